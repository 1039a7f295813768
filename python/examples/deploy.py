"""Deploys a learned policy on kernel TCP and compares the results with the simulator's. Needs root:

    python deploy.py policy.json

Other commands accept the policy, too:

    python deploy.py policy.json attach --alg policy --cgroup …
"""

from __future__ import annotations

import json
import os
import sys
import tempfile

import numpy as np

import ccplane
from train_cem import SPEC, act


def main() -> int:
    """Runs the policy on both datapaths, or the command that is given."""
    with open(sys.argv[1], encoding="utf-8") as file:
        weights = np.array(json.load(file)["weights"])
    learned = ccplane.policy(SPEC, lambda seen: act(weights, seen))
    if len(sys.argv) > 2:
        return ccplane.main([learned], sys.argv[2:])
    link = ["--rate", "48mbit", "--rtt", "40ms", "--queue", "droptail:2bdp", "--duration", "10s"]
    with tempfile.TemporaryDirectory() as folder:
        for place in ("sim", "linux"):
            out = os.path.join(folder, place)
            failed = ccplane.main([learned], ["run", "--alg", "policy,cubic", *link, "--datapath", place, "--out", out])
            if failed:
                return failed
            with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
                for contender in json.load(file)["contenders"]:
                    figures = contender["figures"]
                    print(f"{place:6} {contender['label']:8} {figures['goodput_mbit']:6.1f} Mbit/s {figures['delay_mean_ms']:6.1f} ms")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
