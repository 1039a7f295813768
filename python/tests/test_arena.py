"""Scores for programs that search."""

from __future__ import annotations

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
