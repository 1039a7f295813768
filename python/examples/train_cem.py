"""Learns a policy with numpy alone: `python train_cem.py [--seed 1] [--out policy.json]`. Takes
some seconds on one core.

Cross-entropy method: each round draws many policies around the current mean, runs each on a link of
its own, and takes the mean and deviation of the best tenth. A policy is one weight per feature and
a bias. At the end the policy and Cubic run on links unseen in training.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np

import ccplane
from ccplane.env import LinkVector

SPEC = ccplane.PolicySpec(step="20ms", observe=("rtt_ratio", "rtt_gradient", "loss", "delivery"))
POLICIES, BEST, ROUNDS, STEPS = 40, 6, 20, 250
LINKS = {"rate": ("12mbit", "96mbit"), "rtt": ("20ms", "100ms"), "queue": ("1bdp", "4bdp")}


def act(weights: Any, seen: Any) -> Any:
    """Returns the action of a policy, or of one policy per row."""
    return np.tanh((weights[..., :-1] * seen).sum(axis=-1) + weights[..., -1])


def train(seed: int) -> Any:
    """Returns the weights of the final policy."""
    random = np.random.default_rng(seed)
    links = LinkVector(num_envs=POLICIES, randomise=LINKS, steps=STEPS, step=SPEC.step, observe=SPEC.observe)
    mean, spread = np.zeros(len(SPEC.observe) + 1), np.full(len(SPEC.observe) + 1, 1.0)
    for number in range(ROUNDS):
        weights = random.normal(mean, spread, (POLICIES, mean.size))
        # All policies of a round get the same link, so that the link does not bias the comparison.
        seen, _ = links.reset(seed=[int(random.integers(2**31))] * POLICIES)
        gained = np.zeros(POLICIES)
        for _ in range(STEPS):
            seen, rewards, *_ = links.step(act(weights, seen).astype(np.float32)[:, None])
            gained += rewards
        best = weights[np.argsort(gained)[-BEST:]]
        mean, spread = best.mean(axis=0), best.std(axis=0) + 0.5 / (number + 1)
        print(f"round {number + 1:2}: the best have {np.sort(gained)[-BEST:].mean() / STEPS:.2f} of all power, the mean {gained.mean() / STEPS:.2f}")
    return mean


def main() -> None:
    """Trains a policy, and compares it with Cubic on unseen links."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--out", default="policy.json")
    given = arguments.parse_args()
    begun = time.perf_counter()
    weights = train(given.seed)
    print(f"learned in {time.perf_counter() - begun:.0f} s: " + ", ".join(f"{n} {w:.2f}" for n, w in zip([*SPEC.observe, "always"], weights)))
    with open(given.out, "w", encoding="utf-8") as file:
        json.dump({"weights": weights.tolist()}, file)
    learned = ccplane.policy(SPEC, lambda seen: act(weights, seen))
    print(f"{'link':>16}  {'policy':>22}  {'cubic':>22}")
    for rate, rtt in [("20mbit", "30ms"), ("50mbit", "60ms"), ("80mbit", "25ms")]:
        link = {"duration": "20s", "topology": {"dumbbell": {"rate": rate, "rtt": rtt, "queue": "droptail:2bdp"}}, "workload": [{"bulk": {"flows": 1}}]}
        result = ccplane.run(link | {"contenders": ["cubic"]}, contenders=[learned, "cubic"])
        figures = [contender["figures"] for contender in result.summary["contenders"]]
        told = [f"{f['goodput_mbit']:5.1f} Mbit/s {f['delay_mean_ms']:5.1f} ms" for f in figures]
        print(f"{rate + ' ' + rtt:>16}  {told[0]:>22}  {told[1]:>22}")


if __name__ == "__main__":
    main()
