"""Scores for programs that search."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import ccplane
from ccplane.arena import evaluate

HERE = Path(__file__).parent
AIMD = (HERE / "aimd.py").read_text()


class Scores(unittest.TestCase):
    def test_a_candidate_has_numbers_by_name(self) -> None:
        found = evaluate(HERE / "aimd.py", against=["reno"])
        self.assertEqual((found["passed"], found["reasons"]), (1.0, []))
        self.assertTrue(0.2 < found["combined_score"] < 1.25, found)
        for name in ("throughput", "delay", "loss", "fairness", "harm", "convergence", "gate_loss", "gate_two"):
            self.assertIsInstance(found[name], float)
        self.assertEqual(found, evaluate(HERE / "aimd.py", against=["reno"]), "the same bytes")
        self.assertNotEqual(found, evaluate(HERE / "aimd.py", against=["reno"], held_out=7))

    def test_one_that_fails_has_no_score_and_a_reason(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "mine.py")
            for text, says in [
                (None, "there is no such file"),
                ("x = (", "SyntaxError"),
                (AIMD.replace("state.cwnd += state.mss", "1 / 0"), "ZeroDivisionError"),
                (AIMD.replace("state.cwnd += state.mss", "state.cwnd = 1"), "of the link"),
            ]:
                if text is not None:
                    path.write_text(text)
                found = evaluate(path, suite="gate")
                with self.subTest(says):
                    self.assertEqual((found["combined_score"], found["passed"]), (0.0, 0.0))
                    self.assertIn(says, " ".join(found["reasons"]))

    def test_what_cannot_be_meant_is_an_error(self) -> None:
        for settings, says in [({"suite": "nope"}, "possible values: gate, quick, full"), ({"against": ["nope"]}, "no algorithm `nope`")]:
            with self.subTest(says), self.assertRaisesRegex(ccplane.Error, says):
                evaluate("reno", **settings)  # type: ignore[arg-type]

    def test_what_becomes_of_one_becomes_of_no_other(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            texts = {
                "loops": (AIMD.replace("state.cwnd += state.mss", "exec('while True: pass')"), "more than 2 s of processor time"),
                "loops_at_once": ("while True: pass", "more than 2 s of processor time"),
                "catches": ("import signal\nsignal.signal(signal.SIGXCPU, lambda *_: None)\nwhile True: pass", "more than 2 s of processor time"),
                "waits": ("import time\ntime.sleep(1e6)", "not done after 8 s"),
                "grows": ("kept = bytearray(10_000_000_000)", "MemoryError"),
                "grows_bit_by_bit": ("kept = [bytes(1 << 20) for _ in range(10_000)]", "MemoryError"),
                "unbounded": ("import resource\nresource.setrlimit(resource.RLIMIT_CPU, (-1, -1))", "Error"),
                "leaves": (AIMD.replace("state.cwnd += state.mss", "__import__('os')._exit(0)"), "ended before its runs, with 0"),
                "crashes": ("import ctypes\nctypes.string_at(0)", "ended by SIGSEGV"),
                "prints": (AIMD.replace("state.cwnd += state.mss", "print('{}'); state.cwnd += state.mss"), None),
                "good": (AIMD, None),
            }
            for name, (text, _) in texts.items():
                Path(folder, f"{name}.py").write_text(text)
            words = [sys.executable, "-m", "ccplane", "arena", *(f"{folder}/{name}.py" for name in texts), "reno", "--suite", "gate", "--cpu", "2s"]
            done = subprocess.run([*words, "--json"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            standings = json.loads(done.stdout)["candidates"]
            for (name, (_, says)), standing in zip(texts.items(), standings):
                with self.subTest(name):
                    self.assertEqual(standing["gate_passed"], says is None, standing)
                    if says is not None:
                        self.assertEqual(len(standing["reasons"]), 1, standing)
                        self.assertIn(says, standing["reasons"][0])
            self.assertTrue(standings[-1]["gate_passed"])

    def test_apart_and_trusted_give_the_same(self) -> None:
        words = [sys.executable, "-m", "ccplane", "arena", str(HERE / "aimd.py"), "--against", "reno", "--json"]
        apart, trusted = (subprocess.run([*words, *how], capture_output=True, text=True, check=True).stdout for how in ([], ["--trusted"]))
        one, other = (json.loads(text)["candidates"][0] for text in (apart, trusted))
        self.assertAlmostEqual(one["score"], other["score"], places=9)
        self.assertEqual(one["gate_passed"], other["gate_passed"])

    def test_one_that_never_returns_is_ended(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "loop.py")
            path.write_text(AIMD.replace("state.cwnd += state.mss", "exec('while True: pass')"))
            began = time.monotonic()
            found = evaluate(path, suite="gate", timeout=3)
            self.assertIn("longer than 3 s", found["reasons"][0])
            self.assertLess(time.monotonic() - began, 15)


if __name__ == "__main__":
    unittest.main()
