"""A sweep on a Dask cluster of two worker processes, one of which is killed; run by `scripts/python
release`. Needs `dask[distributed]`."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

import ccplane
from ccplane import sweeps
from dask.distributed import Client, LocalCluster, WorkerPlugin

GRID = {
    "seeds": "1..60",
    "scenario": {
        "duration": "5s",
        "topology": {"dumbbell": {"rate": "50mbit", "rtt": "20ms"}},
        "workload": [{"bulk": {}}],
    },
    "grid": {"contenders": ["reno", "cubic", "copa"], "topology.dumbbell.rate": ["20mbit", "50mbit"]},
}


class OtherVersion(WorkerPlugin):
    """Gives a worker process another version of ccplane."""

    def setup(self, worker: object) -> None:
        sweeps._version = lambda: "0.0.9, behaviour x"


def read_by_others(path: pathlib.Path) -> None:
    """Reads the table with polars and DuckDB."""
    import duckdb
    import polars

    frame = polars.read_parquet(path)
    assert frame.height == 360 and frame["rate_mbit"].dtype == polars.Float64, frame
    assert frame["seed"].max() == 60, frame
    mean = frame.filter(polars.col("contender") == "cubic")["goodput_mbit"].mean()
    query = f"select avg(goodput_mbit) from '{path}' where contender = 'cubic'"
    rows = duckdb.sql(query).fetchall()
    assert abs(rows[0][0] - mean) < 1e-9, (rows, mean)


def evolve(address: str, folder: pathlib.Path) -> None:
    """Runs a short search whose children are scored on the cluster."""
    root = pathlib.Path(__file__).parent.parent.parent
    words = [root / "examples/evolve.py", root / "crates/algorithms/text/vegas.ccp"]
    options = ["--minutes", "0.1", "--children", "4", "--dask", address, "--out", folder / "evolved"]
    command = pathlib.Path(sys.executable).parent / "ccplane"
    done = subprocess.run([sys.executable, *words, *options, "--ccplane", command], capture_output=True, text=True)
    assert done.returncode == 0 and "generation 1: best" in done.stdout, done
    print("dask: evolve.py scored its children on the cluster")


def main() -> None:
    with tempfile.TemporaryDirectory() as name, LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        folder = pathlib.Path(name)
        pids = list(client.run(os.getpid).values())

        def kill() -> None:
            finished = folder / "dask" / "finished.jsonl"
            while not finished.exists() or finished.stat().st_size < 20_000:
                time.sleep(0.02)
            os.kill(pids[0], signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        table = ccplane.sweep(GRID, client.get_executor(retries=3), out=folder / "dask", progress=False)
        killer.join()
        assert table.rows == 360, table
        assert pids[0] not in client.run(os.getpid).values(), "the worker was killed"
        ccplane.sweep(GRID, out=folder / "threads", progress=False)
        for file in ["runs.csv", "runs.parquet"]:
            assert (folder / "dask" / file).read_bytes() == (folder / "threads" / file).read_bytes(), file
        read_by_others(folder / "dask" / "runs.parquet")
        print("dask: 360 runs, one of two workers killed: the same bytes as on threads")
        evolve(client.scheduler.address, folder)
        client.register_plugin(OtherVersion())
        try:
            ccplane.sweep(GRID, client.get_executor(), out=folder / "other", progress=False)
        except ccplane.Error as why:
            assert "same version on all workers" in str(why), why
            print("dask: workers of another version were refused")
        else:
            raise AssertionError("workers of another version were accepted")


if __name__ == "__main__":
    main()
