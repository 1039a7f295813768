"""Makes, steps and renders the registered environments.

`scripts/python release` runs this program with the oldest and the newest Gymnasium.
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np

import ccplane


def main() -> None:
    """Steps one environment and a vector, and prints the versions."""
    env = gymnasium.make("ccplane/Link-v0")
    seen, _ = env.reset(seed=1)
    assert env.observation_space.contains(seen), seen
    seen, reward, terminated, truncated, info = env.step(env.action_space.sample())
    assert env.observation_space.contains(seen), seen
    assert 0 <= float(reward) <= 1 and not terminated and not truncated and info["link_rate"] > 0
    env.close()
    drawn = gymnasium.make("ccplane/Link-v0", render_mode="rgb_array")
    drawn.reset(seed=1)
    frame: Any = drawn.render()
    assert (frame.shape, frame.dtype) == ((480, 640, 3), np.uint8)
    drawn.close()
    vector = gymnasium.make_vec(
        "ccplane/Link-v0", num_envs=2, vectorization_mode="vector_entry_point"
    )
    vector.reset(seed=1)
    many, rewards, *_ = vector.step(np.zeros((2, 1), np.float32))
    assert (many.shape, rewards.shape) == ((2, 6), (2,))
    vector.close()
    print(
        f"python: ccplane/Link-v0 works with Gymnasium {gymnasium.__version__}, "
        f"numpy {np.__version__}, Python {sys.version.split()[0]}"
    )
    assert "site-packages" in ccplane.__file__, f"{ccplane.__file__} is not from the wheel"


if __name__ == "__main__":
    main()
