"""Sweeps: on threads, in the workers of an executor, and their table."""

import concurrent.futures
import dataclasses
import multiprocessing
import pathlib
import tempfile
import unittest
from unittest import mock

import ccplane
from ccplane import sweeps

SCENARIO = {
    "duration": "500ms",
    "topology": {"dumbbell": {"rate": "10mbit", "rtt": "20ms", "loss": "0.5%"}},
    "workload": [{"bulk": {}}],
}
PROGRAM = "(algorithm mine) (def) (when true (:= Cwnd (* 20 Flow.mss)))"
GRID = {
    "seeds": "1..3",
    "scenario": SCENARIO,
    "grid": {"contenders": ["reno", "cubic"], "topology.dumbbell.rate": ["5mbit", "10mbit"]},
}


def processes(count: int) -> concurrent.futures.ProcessPoolExecutor:
    return concurrent.futures.ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))


class Sweep(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name)

    def sweep(self, grid: object, out: str, **more: object) -> ccplane.Table:
        return ccplane.sweep(grid, out=self.out / out, progress=False, **more)  # type: ignore[arg-type]

    def test_a_table_has_one_row_per_run(self) -> None:
        table = self.sweep(GRID, "one", threads=2, flows=True)
        self.assertEqual(table.rows, 12)
        self.assertEqual(list(table["rate_mbit"][:6]), [5.0] * 3 + [10.0] * 3)
        self.assertEqual(list(table["seed"][:3]), [1, 2, 3])
        self.assertEqual(list(table["contender"][[0, 11]]), ["reno", "cubic"])
        self.assertTrue((table["goodput_mbit"] > 1).all())
        self.assertTrue((self.out / "one" / "flows.parquet").stat().st_size > 100)
        again = self.sweep(GRID, "one")
        self.assertEqual(list(again["digest"]), list(table["digest"]))

    def test_an_executor_gives_the_same_bytes(self) -> None:
        (self.out / "mine.ccp").write_text(PROGRAM)
        text = "scenario = 'base.toml'\nseeds = '1..3'\n[grid]\ncontenders = ['./mine.ccp', 'reno']\n"
        scenario = "contenders = ['reno']\nduration = '500ms'\n[topology.dumbbell]\ntrace = 'link.trace'\nrtt = '20ms'\n[[workload]]\nbulk = {}\n"
        (self.out / "base.toml").write_text(scenario)
        (self.out / "link.trace").write_text("1\n2\n4\n")
        (self.out / "sweep.toml").write_text(text)
        self.sweep(self.out / "sweep.toml", "threads")
        with processes(2) as executor:
            self.sweep(self.out / "sweep.toml", "processes", executor=executor)
        read = lambda out: (self.out / out / "runs.parquet").read_bytes()
        self.assertEqual(read("threads"), read("processes"))

    def test_python_classes_run_in_workers(self) -> None:
        from aimd import Aimd

        grid = {**GRID, "seeds": 1, "grid": {"contenders": ["aimd"]}}
        with processes(1) as executor:
            table = self.sweep(grid, "classes", executor=executor, algorithms=[Aimd])
        self.assertGreater(table["goodput_mbit"][0], 1)

    def test_a_worker_of_another_version_is_refused(self) -> None:
        with processes(1) as executor, mock.patch.object(sweeps, "_version", return_value="0.0.9, behaviour x"):
            with self.assertRaisesRegex(ccplane.Error, "started by 0.0.9.*same version on all workers"):
                self.sweep(GRID, "version", executor=executor)

    def test_mistakes_are_errors_with_their_place(self) -> None:
        with self.assertRaisesRegex(ccplane.Error, "5mbt"):
            self.sweep({**GRID, "grid": {"topology.dumbbell.rate": ["5mbt"]}}, "wrong")
        with self.assertRaisesRegex(ccplane.Error, "nowhere.toml"):
            self.sweep("nowhere.toml", "wrong")
        with self.assertRaises(ValueError), processes(1) as executor:
            self.sweep(GRID, "wrong", executor=executor, threads=2)
        (self.out / "other").mkdir()
        (self.out / "other" / "file").touch()
        with self.assertRaisesRegex(ccplane.Error, "contains no sweep"):
            self.sweep(GRID, "other")
        with self.assertRaisesRegex(ccplane.Error, "give the folder of a sweep"):
            sweeps.read(self.out / "nothing")

    def test_a_failed_task_keeps_what_is_finished(self) -> None:
        class Flaky(concurrent.futures.ThreadPoolExecutor):
            submitted = 0

            def submit(self, function, task):  # type: ignore[no-untyped-def]
                self.submitted += 1
                if self.submitted == 4:
                    task = dataclasses.replace(task, version="another")
                return super().submit(function, task)

        with Flaky(1) as executor, self.assertRaises(ccplane.Error):
            self.sweep(GRID, "flaky", executor=executor)
        self.assertGreaterEqual(sweeps.read(self.out / "flaky").rows, 3)
        self.assertEqual(self.sweep(GRID, "flaky").rows, 12)


if __name__ == "__main__":
    unittest.main()
