"""Learns a policy with PPO of Stable-Baselines3: `pip install stable-baselines3`, then
`python train_ppo.py`. Takes minutes on one core."""

from __future__ import annotations

import gymnasium
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

import ccplane

SETTINGS = {
    "history": 4,
    "steps": 250,
    "randomise": {"rate": ("12mbit", "96mbit"), "rtt": ("20ms", "100ms"), "queue": ("1bdp", "4bdp")},
}


def main() -> None:
    """Trains a policy, and compares it with Cubic."""
    links = make_vec_env("ccplane/Link-v0", n_envs=8, env_kwargs=SETTINGS)
    model = PPO("MlpPolicy", links, n_steps=256, batch_size=512, gamma=0.95, seed=1, verbose=1, device="cpu")
    model.learn(300_000)
    spec = gymnasium.make("ccplane/Link-v0", **SETTINGS).unwrapped.spec_of_policy
    learned = ccplane.policy(spec, lambda seen: np.asarray(model.predict(seen, deterministic=True)[0]))
    result = ccplane.run("01-one-flow", contenders=[learned, "cubic"])
    for contender in result.summary["contenders"]:
        print(contender["label"], contender["figures"]["goodput_mbit"], contender["figures"]["delay_mean_ms"])


if __name__ == "__main__":
    main()
