"""End-to-end tests of the package, in the simulator and, as root, on kernel TCP."""

from __future__ import annotations

import doctest
import functools
import html
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import tomllib
import unittest
import urllib.request
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import ccplane
import ccplane.fold
import host
from aimd import Aimd, Window
from ccplane import _measured, _toml
from host import skip

HERE = Path(__file__).parent
LINK = {
    "contenders": ["reno"],
    "duration": "10s",
    "topology": {"dumbbell": {"rate": "48mbit", "rtt": "20ms", "queue": "droptail:1bdp"}},
    "workload": [{"bulk": {"flows": 1}}],
}


def python(code: str, *, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Runs a program in a separate interpreter."""
    program = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(program, cwd=HERE, capture_output=True, text=True, timeout=timeout, check=False)


def write_hostile(folder: str) -> None:
    """Writes modules that shadow the standard library's and record their import in the file `ran`,
    and one with a name of its own."""
    for name in ("json", "colorsys", "random"):
        Path(folder, f"{name}.py").write_text(f"open({folder!r} + '/ran', 'a').write({name!r})\nraise RuntimeError({name!r})\n")
    Path(folder, "helper.py").write_text("BACK = 0.5\n")


class Simulated(unittest.TestCase):
    def test_contenders_are_names_classes_objects_pairs_and_functions(self) -> None:
        scenario = {key: value for key, value in LINK.items() if key != "contenders"} | {"duration": "20s"}
        contenders: list[ccplane.Contender] = [
            "native:reno",
            Aimd,
            Aimd(0.8),
            (Aimd, {"back": 0.7}),
            lambda: Aimd(0.6),
            functools.partial(Aimd, back=0.9),
        ]
        result = ccplane.run(scenario, contenders=contenders)
        labels = [c["label"] for c in result.summary["contenders"]]
        self.assertEqual(labels, ["native:reno", "aimd", "aimd2", "aimd3", "aimd4", "aimd5"])
        # Each contender keeps its own parameters, as if selected by name.
        named = [f"aimd:back={back}" for back in (0.5, 0.8, 0.7, 0.6, 0.9)]
        by_name = ccplane.run(scenario, contenders=["native:reno", *named], algorithms=[Aimd])
        figures = lambda run: [c["figures"] for c in run.summary["contenders"]]
        self.assertEqual(figures(result), figures(by_name))
        self.assertEqual(len({json.dumps(each) for each in figures(result)}), 6)

    def test_the_seeds_of_the_page_make_a_difference(self) -> None:
        page = (Path(__file__).parents[2] / "docs/python.md").read_text()
        shown = re.search(r'ccplane\.run\("(\S+)", contenders=.*seeds=', page)
        assert shown, "an example with seeds"
        result = ccplane.run(shown[1], contenders=["cubic"], seeds=range(1, 4))
        self.assertIn("Means over 3 seeds", result.summary["note"])

    def test_a_class_steers_and_the_same_seed_gives_the_same_bytes_on_any_number_of_threads(self) -> None:
        run = lambda threads: ccplane.run(LINK, contenders=[Aimd, "native:reno"], seeds=range(1, 4), threads=threads)
        one, two = run(1), run(2)
        self.assertIsNotNone(one.digest)
        self.assertEqual(one.digest, two.digest)
        self.assertEqual(one.summary, two.summary)
        aimd, reno = (c["figures"]["goodput_mbit"] for c in one.summary["contenders"])
        self.assertGreater(aimd, 40)
        self.assertGreater(reno, 40)

    def test_the_command_line_gives_the_same_bytes(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            scenario = Path(folder) / "link.toml"
            scenario.write_text(
                'contenders = ["aimd:back=0.7", "native:reno"]\nduration = "5s"\n[topology.dumbbell]\nrate = "24mbit"\nrtt = "40ms"\n'
                "[[workload]]\nbulk.flows = 2\n"
            )
            result = ccplane.run(scenario, algorithms=[Aimd])
            out = Path(folder) / "out"
            words = [sys.executable, HERE / "aimd.py", "run", scenario, "--out", out]
            subprocess.run(words, check=True, capture_output=True)
            self.assertEqual(json.loads((out / "summary.json").read_text())["digest"], result.digest)
            page = Path(result.write(Path(folder) / "written"))
            self.assertGreater(page.stat().st_size, 10_000)

    def test_a_result_is_drawn(self) -> None:
        result = ccplane.run(LINK | {"workload": [{"bulk": {"flows": 2}}]}, contenders=[Aimd, "native:reno"])
        self.assertIn("series", result.tables)
        with mock.patch.dict(sys.modules, {"matplotlib.figure": None}), self.assertRaisesRegex(ModuleNotFoundError, r"pip install 'ccplane\[plot\]'"):
            result.plot()
        try:
            import matplotlib
        except ModuleNotFoundError:
            skip("matplotlib is not here: pip install 'ccplane[plot]'", package=True)
        figure = result.plot()
        windows, goodput, delay = (figure.axes[row * 2] for row in range(3))
        self.assertEqual([axis.get_title() for axis in figure.axes[:2]], ["aimd", "native:reno"])
        self.assertEqual([len(axis.lines) for axis in (windows, goodput, delay)], [2, 2, 1])
        # Two flows fill 48 Mbit/s between them.
        self.assertTrue(35 < sum(line.get_ydata()[10:].mean() for line in goodput.lines) < 48.5)
        with tempfile.TemporaryDirectory() as folder:
            figure.savefig(Path(folder, "figure.png"))
            self.assertGreater(Path(folder, "figure.png").stat().st_size, 10_000)
        shown: Any = figure
        self.assertEqual(shown._repr_png_()[:4], b"\x89PNG", "a notebook shows it")

    def test_parameters_have_the_types_of_their_defaults(self) -> None:
        goodput = []
        for back in (0.5, 0.9):
            contenders = [f"aimd:back={back}"]
            result = ccplane.run(LINK | {"topology": {"dumbbell": {"rate": "48mbit", "rtt": "20ms", "queue": "droptail:20p"}}},
                                 contenders=contenders, algorithms=[Aimd])
            goodput.append(result.summary["contenders"][0]["figures"]["goodput_mbit"])
        self.assertNotEqual(goodput[1], goodput[0])
        for wrong, says in [("back=x", "float"), ("back=7", "0.1 to 0.95"), ("bak=0.5", "back")]:
            with self.assertRaisesRegex(ccplane.Error, says):
                ccplane.run(LINK, contenders=[f"aimd:{wrong}"], algorithms=[Aimd])

    def test_timers_flows_and_the_end_of_a_flow(self) -> None:
        seen: dict[str, Any] = {"timers": 0, "closed": []}

        class Timed(ccplane.Algorithm[Window]):
            name = "timed"
            programs = {"all": Aimd.programs["fold"]}

            def open(self, info: ccplane.FlowInfo, flow: ccplane.Flow) -> Window:
                flow.program("all")
                flow.after("100ms")
                return Window(info.cwnd, info.mss)

            def on_report(self, state: Window, report: Any, flow: ccplane.Flow) -> None:
                assert report["lost"] == report.lost and report.now_us >= 0 and report.urgent in (0, 1)

            def on_timer(self, control: ccplane.Control) -> None:
                seen["timers"] += 1
                for flow in control.flows():
                    assert control.flow(flow.id) is flow
                    flow.cwnd = 30_000
                control.after("100ms")

            def on_close(self, state: Window, last: ccplane.FlowStats) -> None:
                seen["closed"].append(last.lifetime_s)

        workload = [{"bulk": {"flows": 2, "lasts": "2s"}}]
        result = ccplane.run(LINK | {"duration": "3s", "workload": workload}, contenders=[Timed])
        self.assertGreaterEqual(seen["timers"], 15)
        self.assertEqual(len(seen["closed"]), 2)
        # Both flows together send at most 60 kB per RTT of 20 ms: 24 Mbit/s.
        self.assertLess(result.summary["contenders"][0]["figures"]["goodput_mbit"], 26)


class Wrong(unittest.TestCase):
    def test_a_class_that_is_none_is_told_before_anything_runs(self) -> None:
        good = {"name": "x", "programs": Aimd.programs, "open": Aimd.open, "on_report": Aimd.on_report}
        for change, says in [
            ({"open": None}, "no method `open`"),
            ({"on_report": None}, "neither `on_report` nor `on_reports`"),
            ({"name": None}, "no `name`"),
            ({"programs": {}}, "`programs` is empty"),
            ({"programs": {"fold": "(def"}}, "does not compile"),
            ({"needs": ["cwdn"]}, "unknown capability `cwdn`; use cwnd"),
            ({"latency": "soon"}, "write it as \"10ms\""),
        ]:
            members = {key: value for key, value in (good | change).items() if value is not None}
            with self.subTest(says), self.assertRaisesRegex((TypeError, ValueError), says.replace("(", "\\(")):
                ccplane.run(LINK, contenders=[type("X", (), members)])

        class Half(ccplane.Algorithm[None]):
            name = "half"
            programs = Aimd.programs

            def open(self, info: ccplane.FlowInfo, flow: ccplane.Flow) -> None:
                flow.program("fold")

        with self.assertRaisesRegex(TypeError, "neither `on_report`"):
            ccplane.run(LINK, contenders=[Half])

    def test_what_a_scenario_cannot_mean_has_place_and_fix(self) -> None:
        with self.assertRaisesRegex(ccplane.Error, "did you mean"):
            ccplane.run(LINK | {"topology": {"dumbbell": {"rate": "48mbit", "rtl": "20ms"}}})
        with self.assertRaisesRegex(ccplane.Error, "available: `01-one-flow`"):
            ccplane.run("01-dumbbel")
        with self.assertRaisesRegex(ValueError, "not a valid range of seeds"):
            ccplane.run(LINK, seeds=range(5, 1))
        with self.assertRaises(ccplane.Error):
            ccplane.check("(def (Report (volatile acked 0)")

    def test_an_exception_is_told_once_and_leaves_its_flow_to_newreno(self) -> None:
        for line, says in [
            ("flow.cwnd = -1", "cwnd is -1, but must be bytes from 0"),
            ("flow.cwnd = 1.5", "write int\\("),
            ("flow.rate = 2**64", "0 to 2\\*\\*64-1"),
            ("flow.set('x', 'y')", "must be a number"),
            ("raise RuntimeError('mine')", "mine"),
        ]:
            done = python(f"""
                import ccplane
                from aimd import Aimd
                class Bad(Aimd):
                    name = "bad"
                    def on_report(self, state, report, flow):
                        {line}
                link = {LINK!r}
                result = ccplane.run(link, contenders=[Bad, "native:reno"])
                print([c["figures"]["goodput_mbit"] for c in result.summary["contenders"]])
            """)
            with self.subTest(line):
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stderr, says)
                self.assertEqual(done.stderr.count("Traceback"), 1)
                bad, reno = json.loads(done.stdout)
                self.assertGreater(bad, reno * 0.9)

    def test_ctrl_c_ends_a_simulation(self) -> None:
        # A shell starts background jobs with SIGINT ignored, and the test run may be one.
        code = f"""
            import signal
            import ccplane
            signal.signal(signal.SIGINT, signal.default_int_handler)
            print("begun", flush=True)
            ccplane.run({LINK!r} | {{"duration": "100000s"}}, contenders=["reno"])
        """
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)], cwd=HERE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(0.5)
        child.send_signal(signal.SIGINT)
        asked = time.monotonic()
        _, said = child.communicate(timeout=20)
        self.assertIn("KeyboardInterrupt", said)
        self.assertLess(time.monotonic() - asked, 2)


class CommandLine(unittest.TestCase):
    def test_a_new_python_file_runs(self) -> None:
        command = [sys.executable, "-m", "ccplane"]
        with tempfile.TemporaryDirectory() as folder:
            made = subprocess.run([*command, "new", "fast.py"], cwd=folder, capture_output=True, text=True, check=False)
            self.assertEqual(made.returncode, 0, made.stderr)
            words = ["run", "--alg", "./fast.py:back=0.7", "--duration", "20s", "--json"]
            done = subprocess.run([*command, *words], cwd=folder, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            (contender,) = json.loads(done.stdout)["contenders"]
            self.assertGreater(contender["figures"]["utilisation"], 0.9)

    def test_a_file_has_the_whole_command_with_its_algorithm_in_it(self) -> None:
        listed = subprocess.run([sys.executable, HERE / "aimd.py", "algorithms"], capture_output=True, text=True, check=True)
        self.assertIn("Additive increase", listed.stdout)
        wrong = subprocess.run([sys.executable, HERE / "aimd.py", "run", "--alg", "aimdd"], capture_output=True, text=True, check=False)
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("did you mean `aimd`", wrong.stderr)
        bare = subprocess.run([sys.executable, "-m", "ccplane", "--version"], capture_output=True, text=True, check=True)
        self.assertIn("ccplane", bare.stdout)

    def test_a_class_steers_kernel_tcp(self) -> None:
        if os.geteuid() != 0 or not Path("/sys/kernel/btf/vmlinux").exists():
            skip("kernel TCP is steered as root, on a kernel with BTF")
        with tempfile.TemporaryDirectory() as folder:
            words = ["run", "--alg", "aimd", "--vs", "native:reno", "--rate", "24mbit", "--duration", "4s", "--out", f"{folder}/out"]
            done = subprocess.run([sys.executable, HERE / "aimd.py", *words], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            summary = json.loads(Path(folder, "out/summary.json").read_text())
            goodputs = [c["figures"]["goodput_mbit"] for c in summary["contenders"]]
            self.assertGreater(min(goodputs), 12, goodputs)


class Toml(unittest.TestCase):
    """Scenarios as tables."""

    def test_any_text_is_read_back(self) -> None:
        for text in ["é", "😀", 'a "b" \\c', "\x7f", "\t\n\0", ""]:
            self.assertEqual(tomllib.loads(_toml.dumps({text: text})), {text: text})


class Measured(unittest.TestCase):
    """Runs on real packets from Python."""

    def test_invalid_arguments_are_refused_before_anything_runs(self) -> None:
        before = set(os.listdir())
        unknown = {**LINK, "topology": {"dumbbell": {"trace": "absent.trace", "rtt": "20ms"}}}
        relative = 'contenders = ["reno"]\nduration = "1s"\n[topology.dumbbell]\ntrace = "absent.trace"\nrtt = "20ms"\n'
        shipped = ", ".join(f"`{file.stem}`" for file in sorted((HERE.parents[1] / "scenarios").glob("*.toml")))
        for scenario, settings, says in [
            (LINK, {"threads": 2}, "threads=2 applies to the simulator only; remove it for datapath='linux'"),
            (
                LINK,
                {"datapath": "kernel"},
                "error: invalid value 'kernel' for '--datapath <DATAPATH>'\n"
                "  [possible values: sim, linux, udp, quic, quic:quinn, quic:s2n]\n\n"
                "For more information, try '--help'.",
            ),
            (
                LINK,
                {"contenders": ["nosuch"]},
                "there is no algorithm `nosuch`; available: reno, cubic, bbr, bbr3, dctcp, dx, swift, timely, constant, vegas, copa, "
                "ledbat++, nimbus, vivace, bundler, autorate, group",
            ),
            ("nosuch", {}, f"there is no file and no built-in scenario `nosuch`; available: {shipped}"),
            ({"duratoin": "1s"} | LINK, {}, "scenario:1: there is no setting `duratoin`"),
            # Relative paths start at the working directory.
            (unknown, {}, "scenario:3: absent.trace cannot be read: No such file or directory (os error 2)"),
            (relative, {}, "scenario:4: absent.trace cannot be read: No such file or directory (os error 2)"),
        ]:
            arguments: dict[str, Any] = {"datapath": "linux"} | settings
            with self.subTest(says), self.assertRaises((ccplane.Error, ValueError)) as raised:
                ccplane.run(scenario, **arguments)
            self.assertEqual(str(raised.exception), says)
        self.assertEqual(set(os.listdir()), before)

    def test_a_run_has_the_seeds_and_the_text_of_its_scenario(self) -> None:
        seen: dict[str, Any] = {}

        def record(words: list[str], classes: Any, call: str, text: str) -> tuple[int, str, str]:
            seen.update(words=words, call=call, text=text, files=os.listdir())
            return 1, "", "standard input: stopped"

        before = os.listdir()
        with mock.patch.object(_measured, "_run", record):
            with self.assertRaisesRegex(ccplane.Error, "^scenario: stopped$"):
                ccplane.run("title = 'é'\n", datapath="linux", seeds=range(1, 4), contenders=["reno", "cubic"])
            words = seen["words"]
            results = words[7]
            self.assertEqual(
                words,
                ["ccplane", "run", "-", "--datapath", "linux", "--json", "--out", results, "--alg", "reno", "--alg", "cubic", "--seeds", "1..3"],
            )
            self.assertEqual((seen["call"], seen["text"]), ("ccplane.run(…, datapath='linux')", "title = 'é'\n"))
            # Nothing is written to the working directory, and nothing stays.
            self.assertEqual((seen["files"], os.path.exists(os.path.dirname(results))), (before, False))
            with self.assertRaises(ccplane.Error):
                ccplane.run("01-one-flow", datapath="udp")
            self.assertEqual((seen["words"][2], seen["text"], "--seeds" in seen["words"]), ("01-one-flow", "", False))

    def test_a_file_that_cannot_be_written_is_named(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            absent = os.path.join(folder, "absent")
            with mock.patch.object(tempfile, "tempdir", absent), self.assertRaises(ccplane.Error) as raised:
                ccplane.run(LINK, datapath="linux")
            self.assertRegex(str(raised.exception), rf"^{re.escape(absent)}/ccplane-\w+: No such file or directory$")
            results = Path(folder, "results")
            results.mkdir()
            with self.assertRaises(ccplane.Error) as raised:
                _measured.Folder(folder)
            self.assertEqual(str(raised.exception), f"{results}/summary.json: No such file or directory")

    def test_a_result_is_copied(self) -> None:
        own = tempfile.mkdtemp()
        (Path(own) / "results").mkdir()
        for name in ("summary.json", "report.html"):
            (Path(own) / "results" / name).write_text("{}")
        result = ccplane.Result(_measured.Folder(own))
        with tempfile.TemporaryDirectory() as folder:
            page = Path(result.write(Path(folder, "out")))
            self.assertEqual((page, page.read_text()), (Path(folder, "out/report.html"), "{}"))
            Path(folder, "taken").write_text("")
            with self.assertRaises(ccplane.Error) as raised:
                result.write(Path(folder, "taken"))
            self.assertEqual(str(raised.exception), f"{folder}/taken: File exists")
            # `copytree` copies into folders; these have no room either.
            for name in ("summary.json", "report.html"):
                Path(folder, "full", name, name).mkdir(parents=True)
            with self.assertRaisesRegex(ccplane.Error, rf"^{re.escape(folder)}/full/(summary.json|report.html): .*Is a directory"):
                result.write(Path(folder, "full"))
        del result
        self.assertFalse(os.path.exists(own), "removed with the result")

    def test_names_classes_and_functions_run_on_kernel_tcp(self) -> None:
        if os.geteuid() != 0 or not Path("/sys/kernel/btf/vmlinux").exists():
            skip("kernel TCP is steered as root, on a kernel with BTF")
        contenders: list[ccplane.Contender] = [Aimd, "native:reno", lambda: Aimd(0.8), Raising]
        with warnings.catch_warnings(), mock.patch.object(sys, "stderr", io.StringIO()) as said:
            warnings.simplefilter("error")
            result = ccplane.run(LINK | {"duration": "2s"}, contenders=contenders, datapath="linux", seeds=range(1, 3))
        self.assertEqual([c["label"] for c in result.summary["contenders"]], ["aimd", "native:reno", "aimd2", "raising"])
        self.assertEqual((result.summary["setup"]["datapath"], result.summary["setup"]["repeats"]), ("Linux TCP", 2))
        self.assertEqual((result.summary["command"], result.digest), ("ccplane.run(…, datapath='linux')", None))
        self.assertIn("RuntimeError: too much", said.getvalue())
        goodputs = [c["figures"]["goodput_mbit"] for c in result.summary["contenders"]]
        self.assertGreater(min(goodputs), 20, goodputs)
        with tempfile.TemporaryDirectory() as folder:
            page = Path(result.write(Path(folder, "out")))
            self.assertGreater(page.stat().st_size, 10_000)
            self.assertIn("contenders", page.with_name("scenario.toml").read_text())
            # Every file names the call in place of the command of the child process.
            self.assertEqual(json.loads(page.with_name("summary.json").read_text())["command"], result.summary["command"])
            self.assertIn("ccplane.run(…, datapath='linux')", html.unescape(page.read_text()))
            for file in page.parent.iterdir():
                self.assertNotIn("--json", file.read_text() if file.is_file() else "", file.name)

    def test_ctrl_c_ends_a_run_and_removes_its_namespaces(self) -> None:
        if os.geteuid() != 0 or not Path("/sys/kernel/btf/vmlinux").exists():
            skip("kernel TCP is steered as root, on a kernel with BTF")
        code = f"import ccplane\nccplane.run({LINK | {'duration': '600s'}!r}, datapath='linux')\n"
        with tempfile.TemporaryDirectory() as folder:
            environment = os.environ | {"TMPDIR": folder}
            run = subprocess.Popen([sys.executable, "-c", code], cwd=folder, stderr=subprocess.PIPE, text=True, env=environment)
            children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
            # The folder exists once a namespace has had a name.
            own = lambda: list(Path("/run/netns").glob(f"ccplane-{child}-*"))
            try:
                self.assertTrue(host.becomes(lambda: children.read_text().strip() != ""))
                child = children.read_text().split()[0]
                self.assertTrue(host.becomes(lambda: bool(own())), "namespaces exist while it runs")
                time.sleep(1)
                # As a notebook does: to this process only.
                run.send_signal(signal.SIGINT)
                said = run.communicate(timeout=30)[1]
            finally:
                run.kill()
                run.wait()
            self.assertTrue(said.strip().endswith("KeyboardInterrupt"), said)
            self.assertEqual((own(), os.listdir(folder)), ([], []))


class Raising(Aimd):
    """Algorithm whose `on_report` raises."""

    name = "raising"

    def on_report(self, state: Window, report: Any, flow: ccplane.Flow) -> None:
        raise RuntimeError("too much")


class Files(unittest.TestCase):
    """Algorithms in Python files (`--alg ./mine.py`)."""

    def said(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "ccplane", *words], cwd=HERE, capture_output=True, text=True, check=False)

    def test_a_file_is_an_algorithm_wherever_a_name_is(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            words = ["--rate", "24mbit", "--duration", "3s", "--datapath", "sim", "--out", f"{folder}/out"]
            done = self.said("run", "--alg", "./aimd.py:back=0.7", "--vs", "native:reno", *words)
            self.assertEqual(done.returncode, 0, done.stderr)
            summary = json.loads(Path(folder, "out/summary.json").read_text())
            self.assertEqual([c["label"] for c in summary["contenders"]], ["./aimd.py:back=0.7", "native:reno"])
        file = os.path.relpath(HERE / "aimd.py")
        by_file, by_class = ccplane.run(LINK, contenders=[file]), ccplane.run(LINK, contenders=[Aimd])
        self.assertEqual(by_file.digest, by_class.digest)
        scored = self.said("arena", "./aimd.py", "--suite", "gate", "--json", *host.AS_OF_THIS)
        self.assertIn('"gate_passed":true', scored.stdout.replace(" ", ""))

    def test_a_candidate_whose_callbacks_raise_is_not_scored_as_newreno(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            # Open modes: the sandbox must refuse, not the file permissions.
            os.chmod(folder, 0o777)
            bad = Path(folder, "bad.py")
            bad.write_text((HERE / "aimd.py").read_text().replace("state.cwnd += state.mss", "state.cwnd //= 0"))
            scored = self.said("arena", str(bad), "--suite", "gate", "--json", *host.AS_OF_THIS)
            self.assertEqual(scored.returncode, 1, scored.stderr)
            self.assertIn("raised an exception, and its flows ran NewReno", scored.stdout)
            for line, says in [
                (f"open({str(bad) + '.new'!r}, 'w')", "PermissionError"),
                ("__import__('socket').socket()", "PermissionError"),
                ("__import__('os').fork()", "PermissionError"),
                ("__import__('os').execv('/bin/true', ['true'])", "forbidden system call: execve"),
                ("__import__('os').unlink(__file__)", "forbidden system call: unlink"),
                ("state.cwnd += len(bytearray(10_000_000_000))", "MemoryError"),
            ]:
                bad.write_text((HERE / "aimd.py").read_text().replace("state.cwnd += state.mss", line))
                scored = self.said("arena", str(bad), "--suite", "gate", "--json", *host.AS_OF_THIS)
                with self.subTest(line):
                    self.assertEqual(scored.returncode, 1, scored.stderr)
                    self.assertIn(says, scored.stdout + scored.stderr)
                    self.assertTrue(bad.exists() and not Path(f"{bad}.new").exists())
        result = ccplane.run(LINK, contenders=[Raising])
        self.assertIn("of raising raised an exception", json.dumps(result.summary))

    def test_a_file_imports_from_its_folder_and_replaces_no_module_of_pythons(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            write_hostile(folder)
            own = (HERE / "aimd.py").read_text()
            # ccplane imports `json` before the file is read; nothing imports `colorsys`.
            own = own.replace("import ccplane\n", "import colorsys\nimport json\n\nimport ccplane\nfrom helper import BACK\n\nassert BACK == 0.5 and colorsys.ONE_SIXTH\n")
            self.assertIn("from helper", own)
            Path(folder, "mine.py").write_text(own)
            # Candidates may run as an unprivileged user, who needs to read the modules.
            os.chmod(folder, 0o755)
            for words in (
                ["run", "--alg", "./mine.py", "--duration", "1s", "--out", "out"],
                ["arena", "./mine.py", "--suite", "gate", "--against", "reno", *host.AS_OF_THIS],
                ["arena", "./mine.py", "--suite", "gate", "--against", "reno", "--sandbox", "off"],
            ):
                with self.subTest(words):
                    words = [sys.executable, "-I", "-m", "ccplane", *words]
                    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
                    self.assertEqual(done.returncode, 0, done.stderr)
            code = f"from ccplane.arena import evaluate; import os; os.chdir({folder!r}); print(evaluate('./mine.py', suite='gate', user={host.USER_OF_THIS!r})['passed'])"
            done = subprocess.run([sys.executable, "-I", "-c", code], cwd="/", capture_output=True, text=True, check=False)
            self.assertEqual(done.stdout, "1.0\n", done.stderr)
            self.assertFalse(Path(folder, "ran").exists(), "a module of the folder replaced one of Python's")

    def test_what_is_wrong_with_a_file_is_told(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for text, says in [
                ("x = 1 / 0", "ZeroDivisionError"),
                ("", "must have exactly one subclass of ccplane.Algorithm, but has none"),
                ("from ccplane import Algorithm\nclass A(Algorithm): pass\nclass B(Algorithm): pass", "has A, B"),
                ("from ccplane import Algorithm\nclass A(Algorithm): pass", "no method `open`"),
            ]:
                path = Path(folder) / f"file{abs(hash(text))}.py"
                path.write_text(text)
                done = self.said("run", "--alg", str(path), "--rate", "24mbit", "--datapath", "sim")
                with self.subTest(text):
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertIn(says, " ".join(done.stderr.replace("│", " ").split()))
        self.assertIn("has no parameter `bak`; it has back", self.said("run", "--alg", "./aimd.py:bak=1", "--datapath", "sim").stderr)
        self.assertIn("there is no such file", self.said("run", "--alg", "./absent.py", "--datapath", "sim").stderr)

    def test_attached_it_is_a_process_without_privileges_that_steers(self) -> None:
        if os.geteuid() != 0 or not Path("/sys/kernel/btf/vmlinux").exists():
            skip("kernel TCP is steered as root, on a kernel with BTF")
        with tempfile.TemporaryDirectory() as folder:
            if host.USER is not None:
                skip("there is no Python here that nobody can read")
            interpreter = host.PYTHON
            write_hostile(folder)
            own = (HERE / "aimd.py").read_text().replace('name = "aimd"', 'name = "apart"')
            own = own.replace('flow.program("fold")', 'flow.program("fold")\n        flow.after("50ms")')
            timer = "def on_timer(self, control):\n        raise RuntimeError\n\n    "
            own = own.replace("def on_report(", timer + "def on_report(")
            Path(folder, "apart.py").write_text(own)
            subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
            # World-writable, so that an unprivileged candidate could leave traces.
            os.chmod(folder, 0o777)
            environment = dict(os.environ)
            words = [interpreter, "-I", "-m", "ccplane", "attach", "--alg", "./apart.py:back=0.7", "--metrics", "127.0.0.1:0"]
            attached = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True)
            try:
                assert attached.stdout is not None
                self.assertIn("ccp_apart: registered", attached.stdout.readline())
                url = attached.stdout.readline().split()[-1]
                self.assertTrue(self.steered("ccp_apart", folder, environment, interpreter))
                # The timer fires 50 ms after the flow's first packet. The process of the algorithm
                # reports the exception after it has handed over its commands.
                raised = 'ccplane_callback_exceptions_total{algorithm="ccp_apart"} 1\n'
                self.assertTrue(self.scraped(url, raised), raised)
                process = Path(f"/tmp/ccplane-agent-{attached.pid}").name
                agents = [p for p in Path("/proc").glob("[0-9]*/cmdline") if process in p.read_text()]
                self.assertEqual(len(agents), 1)
                status = (agents[0].parent / "status").read_text()
                for line in ("CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
                    self.assertIn(line, status)
                self.assertNotIn("Uid:\t0", status)
            finally:
                attached.terminate()
                attached.wait(timeout=20)
                if attached.stdout is not None:
                    attached.stdout.close()
            self.assertFalse(agents[0].exists(), "it has ended too")
            self.assertFalse(Path(folder, "ran").exists(), "a module of the folder replaced one of Python's")
            self.assertFalse(Path("/tmp", process).exists())

    def test_attached_one_that_attacks_is_ended_and_its_flows_fall_back(self) -> None:
        if os.geteuid() != 0 or not Path("/sys/kernel/btf/vmlinux").exists():
            skip("kernel TCP is steered as root, on a kernel with BTF")
        if host.USER is not None:
            skip("there is no Python here that nobody can read")
        with tempfile.TemporaryDirectory() as folder:
            own = (HERE / "aimd.py").read_text().replace('name = "aimd"', 'name = "attacks"')
            own = own.replace("state.cwnd += state.mss", "__import__('os').chmod(__file__, 0o777)")
            own = "import os\nassert os.getuid() == 54321, os.getuid()\n" + own
            # Only root can read it.
            Path(folder, "attacks.py").write_text(own)
            words = [host.PYTHON, "-I", "-m", "ccplane", "attach", "--alg", "./attacks.py", "--sandbox", "54321"]
            attached = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert attached.stdout is not None and attached.stderr is not None
            try:
                self.assertIn("ccp_attacks: registered", attached.stdout.readline())
                falls_back = lambda told: told["algorithms"][0]["flows_in_fallback"] > 0
                self.assertTrue(self.steered("ccp_attacks", folder, dict(os.environ), host.PYTHON, falls_back))
            finally:
                attached.terminate()
                _, errors = attached.communicate(timeout=20)
            self.assertIn("its flows run on the fallback: it made a forbidden system call: chmod", errors)

    def test_a_program_attaches_as_long_as_a_block_runs(self) -> None:
        with self.assertRaisesRegex(ValueError, "give `unix`, `ccp` or both"):
            ccplane.Agent([Aimd]).serve()
        if os.geteuid() != 0 or not Path("/sys/kernel/btf/vmlinux").exists():
            skip("kernel TCP is steered as root, on a kernel with BTF")
        available = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
        with ccplane.attach([Aimd], max_rate="800mbit", min_cwnd="4kB") as names:
            self.assertEqual(names, ["ccp_aimd"])
            self.assertIn("ccp_aimd", available.read_text())
            self.assertTrue(self.steered("ccp_aimd", str(HERE), dict(os.environ), sys.executable))
        self.assertNotIn("ccp_aimd", available.read_text())
        # It sets no window and raises, so the flow returns to the kernel's NewReno, which grows the
        # window.
        with ccplane.attach([Raising]):
            grows = lambda told: any(flow["cwnd_segments"] > 12 and flow["fallback"] for flow in told["flows"])
            self.assertTrue(self.steered("ccp_raising", str(HERE), dict(os.environ), sys.executable, grows))
        with self.assertRaisesRegex(ccplane.Error, "could not be attached"), ccplane.attach([Aimd], cgroup="/nowhere"):
            pass

    @staticmethod
    def scraped(url: str, line: str) -> bool:
        """Polls the metrics endpoint until it has the line."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            with urllib.request.urlopen(url, timeout=20) as answer:
                if line in answer.read().decode():
                    return True
            time.sleep(0.05)
        return False

    @staticmethod
    def steered(name: str, folder: str, environment: dict[str, str], interpreter: str, enough: Callable[[Any], bool] | None = None) -> bool:
        """Sends for a while, and checks that the agent controls the flow, or that `enough` accepts
        the output of `flows --json`."""
        with socket.socket() as listener, socket.socket() as sender:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            sender.setsockopt(socket.IPPROTO_TCP, 13, name.encode())
            sender.connect(listener.getsockname())
            receiver, _ = listener.accept()
            with receiver:
                threading.Thread(target=lambda: [None for _ in iter(lambda: receiver.recv(1 << 20), b"")], daemon=True).start()
                until = time.monotonic() + 20
                while time.monotonic() < until:
                    for _ in range(200):
                        sender.send(b"x" * 65536)
                    words = [interpreter, "-I", "-m", "ccplane", "flows", "--json"]
                    told = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout
                    algorithm = json.loads(told)["algorithms"][0]
                    steers = algorithm["reports"] > 10 and algorithm["flows_in_fallback"] == 0
                    if enough(json.loads(told)) if enough else steers:
                        return True
        return False


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite, pattern: str | None) -> unittest.TestSuite:
    """Adds the examples in the documentation of the package."""
    tests.addTests(doctest.DocTestSuite(ccplane, extraglobs={"run": ccplane.run, "check": ccplane.check}))
    tests.addTests(doctest.DocTestSuite(ccplane.fold))
    return tests


if __name__ == "__main__":
    unittest.main()
