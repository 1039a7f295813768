"""Tests of reports as arrays."""

from __future__ import annotations

import importlib.util
import io
import sys
import unittest
from typing import Any
from unittest import mock
from xml.etree import ElementTree

import ccplane
from aimd import Aimd, Window
from test_ccplane import LINK, python, skip

try:
    import numpy as np
except ModuleNotFoundError:
    np = None  # type: ignore[assignment]


class Together(unittest.TestCase):
    def setUp(self) -> None:
        if np is None:
            skip("numpy is not here", package=True)

    def test_arrays_steer_as_single_reports_do(self) -> None:
        class Arrays(Aimd):
            def on_reports(self, batch: ccplane.Batch[Window]) -> None:
                lost = batch["lost"].astype(bool)
                assert batch.names == ("lost",) and batch.fields.shape == (len(batch), 1)
                assert batch.ids.dtype == np.uint64 and batch.urgent.dtype == np.bool_
                windows = np.array([state.cwnd for state in batch.states], dtype=np.uint64)
                mss = np.array([state.mss for state in batch.states], dtype=np.uint64)
                down = np.maximum((windows.astype(np.float64) * self.back).astype(np.uint64), 2 * mss)
                windows = np.where(lost, down, windows + mss)
                for state, window in zip(batch.states, windows):
                    state.cwnd = int(window)
                batch.ssthresh = np.where(lost, windows, np.uint64(0))
                batch.cwnd = windows

        link = LINK | {"workload": [{"bulk": {"flows": 4}}]}
        digests = [ccplane.run(link, contenders=[kind]).digest for kind in (Aimd, Arrays)]
        self.assertEqual(digests[0], digests[1])

    def test_zero_leaves_a_flow_alone_and_variables_are_set(self) -> None:
        seen: list[int] = []

        class Quiet(ccplane.Algorithm[None]):
            name = "quiet"
            programs = {"fold": "(def (Report (volatile acked 0)) (every 100)) (when true (:= Report.acked (+ Report.acked Ack.bytes_acked)) (fallthrough)) (when (> Micros every) (:= Micros 0) (report))"}

            def open(self, info: ccplane.FlowInfo, flow: ccplane.Flow) -> None:
                flow.program("fold")
                flow.cwnd = 30_000

            def on_reports(self, batch: ccplane.Batch[None]) -> None:
                seen.append(len(batch))
                batch.cwnd = np.zeros(len(batch), dtype=np.int64)
                batch.set("every", np.full(len(batch), 100_000))

        result = ccplane.run(LINK, contenders=[Quiet])
        goodput = result.summary["contenders"][0]["figures"]["goodput_mbit"]
        self.assertTrue(10 < goodput < 13, f"30 kB each round trip are 12 Mbit/s: {goodput}")
        self.assertLess(len(seen), 150, "a report each 100 ms, after the first")

    def test_a_wrong_array_is_told_and_its_flows_run_newreno(self) -> None:
        for line, says in [
            ("batch.cwnd = np.full(len(batch) + 1, 9)", r"this batch has 1 flows; use \(1,\)"),
            ("batch.cwnd = np.full(len(batch), 9.5)", r"float64, but must be whole numbers; write .astype"),
            ("batch.rate = np.full(len(batch), -9)", "rate contains -9"),
            ("batch['bytes']", "unknown report variable bytes; use one of lost"),
        ]:
            done = python(f"""
                import numpy as np
                import ccplane
                from aimd import Aimd
                class Bad(Aimd):
                    name = "bad"
                    def on_reports(self, batch):
                        {line}
                result = ccplane.run({LINK!r}, contenders=[Bad, "native:reno"])
                print(*[c["figures"]["goodput_mbit"] for c in result.summary["contenders"]])
            """)
            with self.subTest(line):
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stderr, says)
                self.assertEqual(done.stderr.count("Traceback"), 1)
                bad, reno = map(float, done.stdout.split())
                self.assertGreater(bad, reno * 0.9)


    def test_settings_of_a_batch_are_write_only(self) -> None:
        batch: Any = ccplane.Batch(bytes(8), bytes(8), ("lost",), bytes(1), 0, [None])
        for name in ("cwnd", "rate", "ssthresh"):
            with self.assertRaisesRegex(AttributeError, f"{name} is write-only; the current value is in reports"):
                getattr(batch, name)
            setattr(batch, name, np.ones(1, np.uint64))


class Tables(unittest.TestCase):
    def setUp(self) -> None:
        if np is None:
            skip("numpy is not here", package=True)

    def test_they_are_the_files_of_the_run(self) -> None:
        result = ccplane.run(LINK | {"duration": "2s"}, contenders=[Aimd, "native:reno"])
        tables = result.tables
        self.assertLessEqual({"series", "bins", "flows", "reports"}, set(tables))
        flows = tables["flows"]
        self.assertEqual((flows.rows, list(flows["contender"])), (2, ["aimd", "native:reno"]))
        figures = [c["figures"]["goodput_mbit"] for c in result.summary["contenders"]]
        np.testing.assert_allclose(flows["goodput_mbit"], figures, rtol=1e-3)
        series = tables["series"].where(contender="aimd", flow=1)
        self.assertEqual(series["cwnd_bytes"].dtype, np.int64)
        self.assertTrue(np.isnan(series["ssthresh_segments"][0]), "not known before the first loss")
        self.assertTrue((np.diff(series["time_s"]) > 0).all())
        self.assertEqual(series.numpy().keys(), set(series.columns))
        with self.assertRaisesRegex(KeyError, "unknown column cwnd; use one of contender"):
            series["cwnd"]
        try:
            import pyarrow
        except ModuleNotFoundError:
            with self.assertRaisesRegex(ModuleNotFoundError, r"ccplane\[arrow\]"):
                flows.__arrow_c_stream__()
        else:
            self.assertEqual(pyarrow.table(flows).num_rows, 2)
        with self.assertRaisesRegex(ValueError, "same length; the first has 2 rows, but {'b': 3}"):
            ccplane.Table({"a": np.zeros(2), "b": np.zeros(3)})

    def test_metrics_have_one_row_per_contender_and_the_ends_of_their_intervals(self) -> None:
        self.assertNotIn("goodput_mbit_low", ccplane.run(LINK | {"duration": "1s"}, contenders=["reno"]).metrics)
        for seeds in (range(1, 3), range(1, 5)):
            result = ccplane.run("03-random-loss", contenders=["cubic", "reno"], seeds=seeds)
            metrics = result.metrics
            self.assertEqual(list(metrics["contender"]), ["cubic", "reno"])
            contenders = result.summary["contenders"]
            np.testing.assert_array_equal(metrics["goodput_mbit"], [c["figures"]["goodput_mbit"] for c in contenders])
            self.assertEqual(metrics["random_losses"].dtype, np.int64)
            self.assertTrue(np.isnan(metrics["jain"]).all(), "one flow has no index")
            self.assertNotIn("flows", metrics)
            low, mean, high = (metrics[f"goodput_mbit{end}"] for end in ("_low", "", "_high"))
            self.assertTrue((low <= mean).all() and (mean <= high).all() and (low < high).any())
            self.assertTrue((metrics["delay_p99_ms_low"] >= 0).all())
            if len(seeds) == 2:
                runs = [run["figures"]["goodput_mbit"] for run in contenders[0]["runs"]]
                np.testing.assert_allclose([low[0], high[0]], [min(runs), max(runs)])

    def test_data_frames(self) -> None:
        result = ccplane.run(LINK | {"duration": "2s"}, contenders=[Aimd, "native:reno"])
        with self.assertRaisesRegex(KeyError, "this run has no table 'serie'; use one of metrics, bins"):
            result.to_pandas("serie")
        for package in ("pandas", "polars"):
            convert = getattr(result, f"to_{package}")
            with self.subTest(package):
                with mock.patch.dict(sys.modules, {package: None}), self.assertRaisesRegex(ModuleNotFoundError, rf"pip install 'ccplane\[{package}\]'"):
                    convert()
                if importlib.util.find_spec(package) is None:
                    skip(f"{package} is not here", package=True)
                frame = convert()
                self.assertEqual((list(frame.columns), list(frame["contender"])), (result.metrics.columns, ["aimd", "native:reno"]))
                series = convert("series")
                self.assertEqual((len(series), list(series.columns)), (result.tables["series"].rows, result.tables["series"].columns))
                self.assertGreater(series["cwnd_bytes"].max(), 100_000)

    def test_a_notebook_shows_a_table(self) -> None:
        shown: Any = ccplane.run(LINK | {"duration": "2s", "title": "a <b> & c"}, contenders=[Aimd, "native:reno"])
        page = ElementTree.fromstring(f"<div>{shown._repr_html_()}</div>")
        self.assertEqual(page.findtext("p/strong"), "a <b> & c")
        rows = [[" ".join(cell.itertext()) for cell in row] for row in page.iter("tr")]
        self.assertEqual([row[0] for row in rows], ["", "aimd", "native:reno"])
        self.assertEqual({len(row) for row in rows}, {len(rows[0])})
        column = rows[0].index("goodput Mbit/s")
        for row, goodput in zip(rows[1:], shown.metrics["goodput_mbit"], strict=True):
            self.assertEqual(row[column], f"{goodput:.2f}")
        self.assertNotIn("Jain index", rows[0], "one flow has none")
        seeds: Any = ccplane.run("03-random-loss", contenders=["cubic"], seeds=range(1, 4))
        self.assertRegex(seeds._repr_html_(), r"mean of 3 seeds<br/><small>± 95 %.*<td>[\d.]+ ±[\d.]+</td>.*<p [^>]*>Means over 3 seeds")
        # A table of completion times follows.
        short: Any = ccplane.run(LINK | {"duration": "2s", "workload": [{"list": [["0s", "10kB"], ["50ms", "1MB"]]}]}, contenders=["reno"])
        self.assertEqual(short._repr_html_().count("<table"), 2)

        class Raises(Aimd):
            name = "raises"

            def on_report(self, state: Any, report: Any, flow: ccplane.Flow) -> None:
                raise KeyError("x")

        with mock.patch.object(sys, "stderr", io.StringIO()):
            bad: Any = ccplane.run(LINK | {"duration": "1s"}, contenders=[Raises])
        self.assertRegex(bad._repr_html_(), "<p [^>]*>raises: .*raised")


if __name__ == "__main__":
    unittest.main()
