"""Tests of programs written as classes."""

from __future__ import annotations

import re
import unittest
import warnings
from pathlib import Path

import ccplane
from aimd import Aimd, Window
from ccplane import AckSignals, FlowSignals, Fold, FoldError, FoldWarning, Report, diff, ewma, infinity, report, reset, volatile, wrapped_max

LINK = {
    "contenders": ["reno"],
    "duration": "5s",
    "topology": {"dumbbell": {"rate": "24mbit", "rtt": "20ms", "queue": "droptail:20p"}},
    "workload": [{"bulk": {"flows": 2}}],
}
HALF = 0.5
LANGUAGE = (Path(__file__).parents[2] / "docs/language.md").read_text(encoding="utf-8")
SIGNALS = re.findall(r"^\| \d+ \| `((?:Ack|Flow)\.\w+)`", LANGUAGE, re.MULTILINE)


class Episodes(Fold):
    """Same program as the text in aimd.py."""

    lost: Report[bool] = volatile(False)
    repairing: bool = False

    def on_ack(self, ack: AckSignals, flow: FlowSignals) -> None:
        if flow.was_timeout or (flow.in_recovery and not self.repairing):
            self.lost = True
            self.repairing = True
            flow.micros = 0
            report()
        elif flow.micros > flow.srtt_us:
            self.repairing = flow.in_recovery
            flow.micros = 0
            report()


class Everything(Fold):
    acked: Report[int] = volatile(0)
    rtt: Report[int] = 0
    last: Report[int] = 0
    every: int = 10_000
    LEAST = 2

    def on_ack(self, ack: AckSignals, flow: FlowSignals) -> None:
        """A docstring is not translated."""
        self.acked += ack.bytes_acked
        if flow.rtt_sample_us < infinity:
            self.rtt = ewma(7 / 8, flow.rtt_sample_us)
        wait = max(self.every, flow.srtt_us // 2, 1)
        short = wait - 1 if wait > 1 else 1
        if flow.was_timeout:
            flow.cwnd = self.LEAST * flow.mss
            reset()
        else:
            flow.rate = 0
        self.last = wrapped_max(self.last, min(diff(short, 1), 7))
        if 0 < wait <= flow.micros and not flow.app_limited:
            if flow.cwnd > 10 * flow.mss:
                flow.ssthresh = flow.cwnd * HALF  # type: ignore[assignment]
            else:
                pass
            flow.micros = 0
            report()


EVERYTHING = """(def
    (Report (volatile acked 0) (rtt 0) (last 0))
    (every 10000))
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (fallthrough))
(when (< Flow.rtt_sample_us 4294967295)
    (:= Report.rtt (ewma 7/8 Flow.rtt_sample_us))
    (fallthrough))
(when true
    (:= wait (max every (/ Flow.srtt_us 2) 1))
    (:= short (if (> wait 1) (- wait 1) 1))
    (if Flow.was_timeout
        (do
            (:= Cwnd (* 2 Flow.mss))
            (reset))
        (do
            (:= Rate 0)))
    (:= Report.last (wrapped_max Report.last (min (diff short 1) 7)))
    (fallthrough))
(when (&& (&& (< 0 wait) (<= wait Micros)) (! Flow.app_limited))
    (if (> Cwnd (* 10 Flow.mss))
        (do
            (:= Ssthresh (* Cwnd 0.5))))
    (:= Micros 0)
    (report))
"""


class Translated(unittest.TestCase):
    def test_a_class_is_the_program_that_one_would_write(self) -> None:
        self.assertEqual(Everything.text, EVERYTHING)

    def test_it_runs_as_the_text_does_to_the_byte(self) -> None:
        class Folded(Aimd):
            programs = {"fold": Episodes}

        digests = [ccplane.run(LINK, contenders=[kind]).digest for kind in (Aimd, Folded)]
        self.assertEqual(digests[0], digests[1])

    def test_all_signals_have_names_and_types_here(self) -> None:
        here = [f"Ack.{name}" for name in AckSignals.__annotations__]
        here += [f"Flow.{name}" for name in FlowSignals.__annotations__ if name not in ("cwnd", "rate", "ssthresh", "micros")]
        self.assertEqual(sorted(here), sorted(SIGNALS))
        for owner, kinds in (("Ack", AckSignals), ("Flow", FlowSignals)):
            for name in kinds.__annotations__:
                signal = {"cwnd": "Cwnd", "rate": "Rate", "ssthresh": "Ssthresh", "micros": "Micros"}.get(name, f"{owner}.{name}")
                initial = "false" if kinds.__annotations__[name] == "bool" else "0"
                ccplane.check(f"(def (x {initial}) (Report (y 0))) (when true (:= x {signal}) (report))")

    def test_a_warning_names_the_line_in_the_python_file(self) -> None:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")

            class Mixed(Fold):
                acked: Report[int] = volatile(0)

                def on_ack(self, ack: AckSignals, flow: FlowSignals) -> None:
                    if flow.srtt_us > flow.cwnd:
                        report()

        self.assertEqual([w.category for w in said], [FoldWarning])
        self.assertEqual((said[0].filename, said[0].lineno), (__file__, Mixed.on_ack.__code__.co_firstlineno + 1))


class Refused(unittest.TestCase):
    """Constructs that a program cannot express are refused, with their position."""

    def refused(self, says: str, body: str, fields: str = "acked: Report[int] = volatile(0)", constants: str = "") -> None:
        import linecache

        lines = f"""
{constants}
class Bad(Fold):
    {fields}
    other: int = 0
    def on_ack(self, ack, flow):
        {body}
        report()
"""
        file = f"<{body}>"
        linecache.cache[file] = (len(lines), None, lines.splitlines(keepends=True), file)
        with self.assertRaisesRegex(FoldError, says) as failed:
            exec(compile(lines, file, "exec"), vars(ccplane) | {"Fold": Fold})  # noqa: S102
        self.assertEqual(failed.exception.filename, file)
        self.assertIn(failed.exception.lineno, (4, 7, 8))

    def test_each_with_what_to_do(self) -> None:
        for says, body in [
            ("divide with //", "self.acked = self.acked / 2"),
            ("did you mean acked", "self.akced = 1"),
            ("did you mean srtt_us", "self.acked = flow.srt_us"),
            ("a signal cannot be assigned", "ack.bytes_acked = 1"),
            ("of flow, only cwnd", "flow.srtt_us = 1"),
            ("cannot contain `for`", "for x in y: pass"),
            ("cannot contain `return`", "return"),
            ("cannot call print", "self.acked = print(1)"),
            ("whole right side of an assignment", "self.acked = 1 + ewma(0.5, 2)"),
            ("weight of the old value", "self.acked = ewma(0.5)"),
            ("two values", "self.acked = diff(1, 2, 3)"),
            ("whole numbers from 0, ratios", "self.acked = 'x'"),
            ("cannot contain `-1`", "self.acked = -1"),
            ("is not a number", "self.acked = unheard_of"),
            ("may be unset", "if flow.was_timeout: x = 1\n        self.acked = x"),
            ("is a variable of the class", "acked = 1"),
            ("sets only one variable", "self.acked = self.other = 1"),
            ("cannot assign to this", "self.acked[0] = 1"),
            ("expected a boolean", "if self.acked: report()"),
            ("takes no arguments", "report(self.acked)"),
            ("comparison must use", "self.other = 1 if self.acked in self.other else 2"),
            (r"operators \+ - \* and //", "self.acked = self.acked ** 2"),
        ]:
            with self.subTest(body):
                self.refused(says, body)
        self.refused("is not a valid initial value", "pass", fields="acked: Report[int] = volatile(-1)")
        self.refused("needs an initial value", "pass", fields="acked: Report[int]")

    def test_what_never_runs_says_so(self) -> None:
        for call in (report, reset, lambda: ewma(0.5, 1), lambda: diff(1, 2), lambda: wrapped_max(1, 2)):
            with self.assertRaisesRegex(TypeError, "never runs"):
                call()

    def test_without_a_source_there_is_no_program(self) -> None:
        names = {"Fold": Fold}
        with self.assertRaisesRegex(FoldError, "define a Fold in a file"):
            exec("class X(Fold):\n    def on_ack(self, ack, flow): pass", names)  # noqa: S102
        with self.assertRaisesRegex(FoldError, "no method on_ack"):
            type("X", (Fold,), {})


if __name__ == "__main__":
    unittest.main()
