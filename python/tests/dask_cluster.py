"""A sweep on a Dask cluster of two worker processes, one of which is killed; run by `scripts/python
release`. Needs `dask[distributed]`."""

import os
import pathlib
import signal
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
        print("dask: 360 runs, one of two workers killed: the same bytes as on threads")
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
