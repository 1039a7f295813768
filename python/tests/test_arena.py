"""Tests of the scores for search programs."""

from __future__ import annotations

import concurrent.futures
import json
import multiprocessing
import os
import socket
import subprocess
import tempfile
import time
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import ccplane
import host
from ccplane import arena

HERE = Path(__file__).parent
ARENA = [host.PYTHON, "-I", "-m", "ccplane", "arena"]
AIMD = (HERE / "aimd.py").read_text()
# This interpreter may be readable by root only.
evaluate = partial(arena.evaluate, user=host.USER_OF_THIS)

# Start of a candidate that attempts forbidden operations, as libraries do, and raises if one
# succeeds.
TRIES = """
import ctypes, fcntl, mmap, os, resource, socket, threading, time

FILE, LIBC, POSSIBLE = OUTSIDE, ctypes.CDLL(None, use_errno=True), []


def tries(name, attempt):
    try:
        if attempt() is not False:
            POSSIBLE.append(name)
    except OSError:
        pass


def forks():
    made = 0
    for _ in range(200):
        try:
            made += 1
            os.fork() or (time.sleep(60), os._exit(0))
        except OSError:
            made -= 1
    return made > 0


def threads():
    threading.stack_size(32768)
    go = threading.Event()
    try:
        for _ in range(1500):
            threading.Thread(target=go.wait, daemon=True).start()
    except RuntimeError:
        return False
    finally:
        go.set()
        threading.stack_size(0)


def descriptors():
    try:
        return len([os.dup(2) for _ in range(1000)]) == 1000
    finally:
        os.closerange(8, 2000)


def message(address):
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"from the candidate", address)


for name, attempt in {
    "write": lambda: open(FILE, "a"), "create": lambda: open(FILE + ".new", "w"), "mkdir": lambda: os.mkdir(FILE + ".new"),
    "rmdir": lambda: os.rmdir(FILE), "ftruncate": lambda: os.ftruncate(2, 0), "fork": forks, "threads without end": threads,
    "shared memory": lambda: mmap.mmap(-1, 1 << 20), "descriptors without end": descriptors, "internet": lambda: socket.socket(), "Unix sockets": lambda: socket.socket(socket.AF_UNIX),
    "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW), "a message to a socket": lambda: message(FILE + ".socket"),
    "a message to an abstract socket": lambda: message("\\0" + FILE), "the caller's environment": lambda: open("/proc/CALLER/environ", "rb"),
    "its supervisor's environment": lambda: open(f"/proc/{os.getppid()}/environ", "rb"), "the kernel's state": lambda: open("/proc/sys/kernel/hostname"),
    "devices": lambda: os.scandir("/dev"), "limits of the caller": lambda: resource.prlimit(CALLER, resource.RLIMIT_CORE, (0, 0)),
    "the secret": lambda: "CCPLANE_TEST_SECRET" in os.environ, "the caller's session": lambda: os.getsid(0) != os.getpid(),
    "a core": lambda: resource.getrlimit(resource.RLIMIT_CORE) != (0, 0), "root": lambda: ROOT_MAY_NOT and os.getuid() == 0,
    "root's groups": lambda: ROOT_MAY_NOT and 0 in [os.getgid(), *os.getgroups()],
}.items():
    tries(name, attempt)

CALLS = {
    "clone3": (435, 0, 0), "pidfd_open": (434, 0, 0), "io_uring_setup": (425, 0, 0), "memfd_create": (319, 0, 0), "memfd_secret": (447, 0),
    "shmget": (29, 0, 0, 0), "semget": (64, 0, 0, 0), "msgget": (68, 0, 0), "mq_open": (240, 0, 0, 0, 0), "inotify_init1": (294, -1), "openat2": (437, -100, 0, 0, 0),
    "personality": (135, -1), "setrlimit": (160, -1, 0), "fallocate": (285, -1, 0, 0, 0), "sync": (162,), "timer_create": (222, -1, 0, 0),
    "sched_setaffinity": (203, 0, 0, 0), "setsid": (112,), "setpgid": (109, 0, 0), "connect": (42, -1, 0, 0), "bind": (49, -1, 0, 0), "flock": (73, -1, 0),
}
if os.uname().machine == "x86_64":
    for name, (number, *arguments) in CALLS.items():
        ctypes.set_errno(0)
        LIBC.syscall(number, *arguments)
        if ctypes.get_errno() not in (1, 38):  # EPERM, ENOSYS
            POSSIBLE.append(name)
if POSSIBLE:
    raise RuntimeError("possible: " + ", ".join(POSSIBLE))
"""

# Operations that only an attack attempts, by their name in the reason. Each ends the candidate,
# even one that catches exceptions. The raw system calls have harmless arguments, in case one is
# allowed.
FORBIDDEN = {
    "chmod": "os.chmod(FILE, 0o4777)", "chown": "os.chown(FILE, 1, 1)", "utimensat": "os.utime(FILE, (1, 1))",
    "setxattr": "os.setxattr(FILE, b'user.a', b'1')", "mknodat": "os.mkfifo(FILE + '.new')", "symlink": "os.symlink(FILE, FILE + '.new')",
    "link": "os.link(FILE, FILE + '.new')", "rename": "os.rename(FILE, FILE + '.new')", "unlink": "os.unlink(FILE)", "truncate": "os.truncate(FILE, 0)",
    "fchmod": "os.fchmod(2, 0o777)", "execve": "os.execv('/bin/true', ['true'])", "kill of another process": "os.kill(CALLER, 0)",
    "signals to another process (fcntl)": "fcntl.fcntl(2, fcntl.F_SETOWN, CALLER)", "input to a terminal (ioctl)": "fcntl.ioctl(2, termios.TIOCSTI, b'x')",
    "sched_setscheduler": "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))", "setpriority": "os.setpriority(os.PRIO_PROCESS, 0, 19)",
}  # fmt: skip
FORBIDDEN_CALLS = {
    "execveat": (322, -1, 0, 0, 0, 0), "ptrace": (101, 0, 0, 0, 0), "process_vm_readv": (310, 0, 0, 0, 0, 0, 0), "pidfd_getfd": (438, -1, -1, 0),
    "pidfd_send_signal": (424, -1, 0, 0, 0), "rt_sigqueueinfo": (129, -1, 0, 0), "mount": (165, 0, 0, 0, 0, 0), "umount2": (166, 0, 0), "pivot_root": (155, 0, 0),
    "chroot": (161, 0), "unshare": (272, 0), "setns": (308, -1, 0), "bpf": (321, -1, 0, 0), "perf_event_open": (298, 0, 0, 0, 0, 0), "userfaultfd": (323, -1),
    "keyctl": (250, -1, 0, 0, 0, 0), "add_key": (248, 0, 0, 0, 0, 0), "init_module": (175, 0, 0, 0), "finit_module": (313, -1, 0), "kexec_load": (246, 0, 0, 0, -1),
    "reboot": (169, 0, 0, 0, 0), "settimeofday": (164, 0, 0), "clock_settime": (227, 0, 0), "adjtimex": (159, 0), "sched_setattr": (314, 0, 0, 0),
    "fanotify_init": (300, -1, 0), "open_by_handle_at": (304, -1, 0, 0), "acct": (163, 1), "swapon": (167, 0, 0), "sethostname": (170, 0, -1), "iopl": (172, 9),
    "ioperm": (173, 0, 0, 0), "setuid": (105, -1), "setgid": (106, -1), "setgroups": (116, -1, 0), "capset": (126, 0, 0), "renameat2": (316, -1, 0, -1, 0, 0),
    "fchmodat2": (452, -1, 0, 0, 0), "quotactl": (179, 0, 0, 0, 0), "tgkill of another process": (234, 1, 1, 0),
}  # fmt: skip


@contextmanager
def outside() -> Iterator[tuple[str, Path]]:
    """A folder with a file that a candidate must not change."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        file = Path(folder, "outside")
        file.write_text("whole")
        file.chmod(0o666)
        yield folder, file


class Scores(unittest.TestCase):
    def test_an_executor_scores_copies_of_the_files(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            broken = Path(folder) / "broken.ccp"
            broken.write_text("(algorithm broken)")
            with concurrent.futures.ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
                answers = arena.evaluate_all([broken, "reno"], executor, suite="gate")
            alone = arena.evaluate_all([broken, "reno"], suite="gate")
        self.assertEqual([answer["passed"] for answer in answers], [0.0, 1.0])
        self.assertEqual(answers[1], alone[1])
        with self.assertRaisesRegex(ccplane.Error, "nowhere.ccp"):
            arena.evaluate_all(["nowhere.ccp"])

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
                "loops": (AIMD.replace("state.cwnd += state.mss", "exec('while True: pass')"), "more than 2 s of CPU time"),
                "loops_at_once": ("while True: pass", "more than 2 s of CPU time"),
                "catches": ("import signal\nsignal.signal(signal.SIGXCPU, lambda *_: None)\nwhile True: pass", "more than 2 s of CPU time"),
                "waits": ("import time\ntime.sleep(1e6)", "did not finish within 8 s"),
                "grows": ("kept = bytearray(10_000_000_000)", "MemoryError"),
                "grows_bit_by_bit": ("kept = [bytes(1 << 20) for _ in range(10_000)]", "MemoryError"),
                "unbounded": ("import resource\nresource.setrlimit(resource.RLIMIT_CPU, (-1, -1))", "Error"),
                "leaves": (AIMD.replace("state.cwnd += state.mss", "__import__('os')._exit(0)"), "exited with code 0 before its runs"),
                "crashes": ("import ctypes\nctypes.string_at(0)", "killed by SIGSEGV"),
                "prints": (AIMD.replace("state.cwnd += state.mss", "print('{}'); state.cwnd += state.mss"), None),
                "good": (AIMD, None),
            }
            for name, (text, _) in texts.items():
                Path(folder, f"{name}.py").write_text(text)
            words = [*ARENA, *host.AS, *(f"{folder}/{name}.py" for name in texts), "reno", "--suite", "gate", "--cpu", "2s"]
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

    def test_a_candidate_can_do_nothing_to_its_host(self) -> None:
        with outside() as (folder, file):
            tries = TRIES.replace("OUTSIDE", repr(str(file))).replace("CALLER", str(os.getpid())).replace("ROOT_MAY_NOT", str(host.USER is None))
            Path(folder, "tries.py").write_text(tries + AIMD)
            words = [*ARENA, f"{folder}/tries.py", "--suite", "gate", "--json"]
            environment = {**os.environ, "CCPLANE_TEST_SECRET": "secret"}
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as named, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as abstract:
                named.bind(f"{file}.socket")
                os.chmod(f"{file}.socket", 0o777)
                abstract.bind(f"\0{file}")
                done = subprocess.run([*words, *host.AS], capture_output=True, text=True, check=False, env=environment)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                os.unlink(f"{file}.socket")
                confinement = json.loads(done.stdout)["confinement"]
                if os.geteuid() == 0:
                    self.assertEqual(confinement["user"], host.USER or "nobody")
                for missing in confinement["missing"]:
                    self.assertRegex(missing, "^(user|pid|ipc|net) namespace$|^cgroup limits|^Landlock ")
                # Without the sandbox, the same file succeeds with its attempts.
                trusted = tries.replace("range(200)", "range(1)").replace("range(1500)", "range(1)").replace("time.sleep(60)", "0")
                Path(folder, "tries.py").write_text(trusted + AIMD)
                done = subprocess.run([*words, "--sandbox", "off"], capture_output=True, text=True, check=False, env=environment)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertIn("possible: write, create, fork", done.stdout + done.stderr)
                os.unlink(f"{file}.new")

    def test_one_that_does_what_only_an_attack_does_is_ended_with_its_reason(self) -> None:
        head = "import ctypes, fcntl, os, signal, termios\nFILE, CALLER = {!r}, {}\ntry:\n    {}\nexcept BaseException:\n    pass\n"
        attacks = {name: (text, f"it made a forbidden system call: {name}") for name, text in FORBIDDEN.items()}
        if os.uname().machine == "x86_64":
            calls = {name: f"ctypes.CDLL(None).syscall{call}" for name, call in FORBIDDEN_CALLS.items()}
            attacks |= {name: (text, f"it made a forbidden system call: {name}") for name, text in calls.items()}
        unnamed = "it made a forbidden system call: unknown"
        attacks["hides by another handler"] = ("signal.signal(signal.SIGSYS, signal.SIG_IGN)", unnamed)
        attacks["hides by a mask"] = ("signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGSYS])\n    os.chmod(FILE, 0)", unnamed)
        attacks["hides by closing all descriptors"] = ("os.closerange(0, 99)\n    os.chmod(FILE, 0)", unnamed)
        in_callback = AIMD.replace("state.cwnd += state.mss", "__import__('os').chmod(__file__, 0)")
        with outside() as (folder, file):
            before = file.stat()
            paths = []
            for number, (text, _) in enumerate(attacks.values()):
                paths.append(Path(folder, f"{number}.py"))
                paths[-1].write_text(head.format(str(file), os.getpid(), text) + AIMD)
            paths.append(Path(folder, "callback.py"))
            paths[-1].write_text(in_callback)
            files = sorted(os.listdir(folder))
            words = [*ARENA, *map(str, paths), "--against", "reno", *host.AS]
            done = subprocess.run([*words, "--json"], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            standings = json.loads(done.stdout)["candidates"]
            reasons = [says for _, says in attacks.values()] + ["it made a forbidden system call: chmod"]
            for name, says, standing in zip([*attacks, "callback"], reasons, standings, strict=True):
                with self.subTest(name):
                    self.assertEqual((standing["score"], standing["gate_passed"], standing["reasons"]), (0.0, False, [says]))
            after = file.stat()
            self.assertEqual((before.st_mode, before.st_uid, before.st_mtime_ns), (after.st_mode, after.st_uid, after.st_mtime_ns))
            self.assertEqual([file.read_text(), sorted(os.listdir(folder))], ["whole", files])
            explained = subprocess.run([*ARENA, "explain", str(paths[0]), *host.AS], capture_output=True, text=True, check=False)
            self.assertEqual(explained.returncode, 1)
            self.assertIn("forbidden system call: chmod", " ".join(explained.stderr.replace("│", " ").split()))

    def test_a_file_of_the_caller_runs_as_another_user(self) -> None:
        if os.geteuid() != 0 or host.USER is not None:
            host.skip("root runs files as other users, and has a Python that they can read")
        with tempfile.TemporaryDirectory() as folder:
            # Only root can read the file and enter the folder.
            Path(folder, "mine.py").write_text("import os\nWHO = (os.getuid(), os.getgid(), os.getgroups())\nassert WHO == EXPECTED, WHO\n" + AIMD)
            text = Path(folder, "mine.py").read_text()
            for given, expected in [([], "(65534, 65534, [65534])"), (["--sandbox", "54321"], "(54321, 54321, [54321])"), (["--sandbox", "root"], "(0, 0, [])")]:
                # No supplementary groups, although some kernels list the primary group among them.
                Path(folder, "mine.py").write_text(text.replace("WHO == EXPECTED", f"WHO[:2] == {expected}[:2] and set(WHO[2]) <= {{WHO[1]}}"))
                os.chmod(f"{folder}/mine.py", 0o600)
                for command in (["mine.py"], ["explain", "./mine.py"]):
                    done = subprocess.run([*ARENA, *command, "--suite", "gate", *given], cwd=folder, capture_output=True, text=True, check=False)
                    with self.subTest(given=given, command=command):
                        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            Path(folder, "mine.py").write_text("import beside\n" + AIMD)
            Path(folder, "beside.py").write_text("")
            done = subprocess.run([*ARENA, "mine.py", "--suite", "gate"], cwd=folder, capture_output=True, text=True, check=False)
            self.assertIn(f"cannot read the folder {folder}", done.stdout)
            for user, says in [("no-such-user", "no such user"), ("4294967295", "no such user")]:
                done = subprocess.run([*ARENA, "mine.py", "--sandbox", user], cwd=folder, capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertIn(says, done.stderr)

    def test_without_namespaces_a_candidate_is_confined_and_the_result_says_so(self) -> None:
        if os.geteuid() != 0 or host.USER is not None:
            host.skip("only root makes a root folder in which no user may make namespaces")
        with outside() as (folder, file):
            path = Path(folder, "tries.py")
            path.write_text(f"import os\nassert os.getuid() == 54321\nos.kill({os.getpid()}, 0)\n" + AIMD)
            os.mkdir(f"{folder}/root")
            # The kernel refuses user namespaces to a process in a chroot.
            script = 'mount --rbind / "$1" && exec chroot --userspec=54321:54321 "$1" "$2" -I -m ccplane arena "$3" --suite gate --json'
            words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", f"{folder}/root", host.PYTHON, str(path)]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            answer = json.loads(done.stdout)
            self.assertEqual(answer["candidates"][0]["reasons"], ["it made a forbidden system call: kill of another process"])
            for name in ("user", "pid", "ipc", "net"):
                self.assertIn(f"{name} namespace", answer["confinement"]["missing"])

    def test_a_candidate_ends_with_a_caller_that_is_killed(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "waits.py")
            path.write_text("import time\ntime.sleep(1e6)")
            running = lambda: [p for p in Path("/proc").glob("[0-9]*/cmdline") if str(path).encode() in host.read(p) and b"--confined" in host.read(p)]
            caller = subprocess.Popen([*ARENA, str(path), *host.AS], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                self.assertTrue(host.becomes(lambda: bool(running())), "it starts")
            finally:
                caller.kill()
                caller.wait()
            self.assertTrue(host.becomes(lambda: not running()), "it has ended")

    def test_what_a_candidate_prints_cannot_control_the_terminal(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "prints.py")
            path.write_text("print('\\x1b[2J\\x9b3J\\rforged')\nprint('x' * 1_000_000)\n" + AIMD)
            for command in ([], ["explain"]):
                done = subprocess.run([*ARENA, *command, str(path), "--suite", "gate", *host.AS], capture_output=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                printed = done.stdout + done.stderr
                self.assertIn(b"forged", printed)
                for control in (b"\x1b", "\x9b".encode(), b"\r"):
                    self.assertNotIn(control, printed)
                if not command:
                    self.assertLess(len(printed), 400_000)

    def test_apart_and_trusted_give_the_same(self) -> None:
        words = [*ARENA, str(HERE / "aimd.py"), "--against", "reno", "--json"]
        apart, trusted = (subprocess.run([*words, *how], capture_output=True, text=True, check=True).stdout for how in (host.AS, ["--sandbox", "off"]))
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
