"""Tests of CCP's Python interface."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest
from pathlib import Path
from typing import Any

import ccplane
from test_ccplane import LINK

PACKAGE = Path(__file__).resolve().parents[1] / "pyportus"
sys.path.insert(0, str(PACKAGE))

import pyportus  # noqa: E402

FOLD = """\
    (def (Report (volatile acked 0) (volatile loss 0) (volatile timeout false)) (every 10))
    (when true
        (:= Report.acked (+ Report.acked Ack.bytes_acked))
        (:= Report.loss Ack.lost_pkts_sample)
        (:= Report.timeout Flow.was_timeout)
        (fallthrough))
    (when (|| Report.timeout (> Report.loss 0)) (report) (:= Micros 0))
    (when (> Micros Flow.rtt_sample_us) (report) (:= Micros 0))
"""


class HalvingFlow:
    closed = 0
    seen: list[Any] = []

    def __init__(self, datapath: pyportus.Datapath, datapath_info: pyportus.DatapathInfo) -> None:
        self.datapath, self.info = datapath, datapath_info
        self.cwnd = float(datapath_info.mss * 10)
        self.datapath.set_program("default", [("Cwnd", int(self.cwnd)), ("every", 2**40)])

    def on_report(self, r: Any) -> None:
        HalvingFlow.seen.append((r.Cwnd, self.info.src_ip, self.info.dst_port))
        if r.loss > 0:
            self.cwnd /= 2
        else:
            self.cwnd += self.info.mss * (r.acked / self.cwnd)
        self.cwnd = max(self.cwnd, 10.0 * self.info.mss)
        self.datapath.update_fields([("Cwnd", int(self.cwnd)), ("every", 20)])

    def close(self) -> None:
        HalvingFlow.closed += 1


class Halving(pyportus.AlgBase):
    def datapath_programs(self) -> dict[str, str]:
        return {"default": FOLD}

    def new_flow(self, datapath: pyportus.Datapath, datapath_info: pyportus.DatapathInfo) -> HalvingFlow:
        return HalvingFlow(datapath, datapath_info)


class Compatible(unittest.TestCase):
    def test_an_algorithm_runs_as_it_was_written(self) -> None:
        workload = [{"bulk": {"flows": 2, "lasts": "4s"}}]
        result = ccplane.run(LINK | {"duration": "6s", "workload": workload}, contenders=[pyportus.algorithm(Halving())])
        goodput = result.summary["contenders"][0]["figures"]["goodput_mbit"]
        self.assertGreater(goodput, 25, "48 Mbit/s for two thirds of the time")
        self.assertEqual(HalvingFlow.closed, 2)
        windows = [cwnd for cwnd, _, _ in HalvingFlow.seen]
        self.assertGreaterEqual(min(windows), 10 * 1400)
        self.assertGreater(max(windows), 30 * 1400)

    def test_what_is_wrong_is_told(self) -> None:
        self.assertEqual(pyportus.try_compile(FOLD), "")
        self.assertIn("Report.x", pyportus.try_compile("(def (y 0)) (when true (:= Report.x 1))"))

        class NoFlow(pyportus.AlgBase):
            def datapath_programs(self) -> dict[str, str]:
                return {"default": FOLD}

        with self.assertRaisesRegex(NotImplementedError, "NoFlow does not have the method new_flow"):
            pyportus.algorithm(NoFlow())
        with self.assertRaisesRegex(TypeError, "no subclass of pyportus.AlgBase"):
            pyportus.start("unix", object())  # type: ignore[arg-type]
        with self.assertRaisesRegex(ValueError, "netlink, char or unix"):
            pyportus.start("tcp", Halving())

    def test_it_serves_datapaths_of_ccp(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); import test_pyportus as t; t.pyportus.start('unix', t.Halving(), 'mine')"
            environment = os.environ | {"TMPDIR": folder}
            served = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], cwd=Path(__file__).parent, env=environment, stdout=subprocess.PIPE, text=True)
            try:
                assert served.stdout is not None
                self.assertIn("listening", served.stdout.readline())
                self.assertTrue(Path(folder, "ccp/mine").is_socket())
            finally:
                served.send_signal(signal.SIGTERM)
                served.wait(timeout=20)
                if served.stdout is not None:
                    served.stdout.close()
            for _ in range(50):
                if not Path(folder, "ccp/mine").exists():
                    break
                time.sleep(0.1)
            self.assertFalse(Path(folder, "ccp/mine").exists())


if __name__ == "__main__":
    unittest.main()
