"""Scores for programs that search."""

from __future__ import annotations

import json
import os
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

# Head of a candidate that tries each family of system calls and raises if one was possible. The
# arguments of the calls by number do no harm if the call is allowed.
TRIES = """
import ctypes, fcntl, os, resource, socket, termios

FILE, LIBC, POSSIBLE = OUTSIDE, ctypes.CDLL(None, use_errno=True), []


def tries(name, attempt):
    try:
        if attempt() is not False:
            POSSIBLE.append(name)
    except OSError:
        pass


def let_through(number, *arguments):
    LIBC.syscall(number, *arguments)
    return ctypes.get_errno() not in (1, 38)  # EPERM, ENOSYS


for name, attempt in {
    "write": lambda: open(FILE, "a"), "create": lambda: open(FILE + ".new", "w"), "truncate": lambda: os.truncate(FILE, 0),
    "chmod": lambda: os.chmod(FILE, 0o4777), "chown": lambda: os.chown(FILE, 1, 1), "utime": lambda: os.utime(FILE, (1, 1)),
    "setxattr": lambda: os.setxattr(FILE, b"user.a", b"1"), "mkdir": lambda: os.mkdir(FILE + ".new"), "mknod": lambda: os.mkfifo(FILE + ".new"),
    "symlink": lambda: os.symlink(FILE, FILE + ".new"), "link": lambda: os.link(FILE, FILE + ".new"), "rename": lambda: os.rename(FILE, FILE + ".new"),
    "unlink": lambda: os.unlink(FILE), "fork": lambda: os.fork() or os._exit(0), "kill the caller": lambda: os.kill(os.getppid(), 0),
    "signals by fcntl": lambda: fcntl.fcntl(2, fcntl.F_SETOWN, os.getppid()), "internet": lambda: socket.socket(),
    "Unix sockets": lambda: socket.socket(socket.AF_UNIX), "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
    "the caller's environment": lambda: open(f"/proc/{os.getppid()}/environ", "rb"), "the kernel's state": lambda: open("/proc/sys/kernel/hostname"),
    "devices": lambda: os.scandir("/dev"), "limits of the caller": lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (0, 0)), "the secret": lambda: "CCPLANE_TEST_SECRET" in os.environ,
    "the caller's session": lambda: os.getsid(0) != os.getpid(),
}.items():
    tries(name, attempt)

CALLS = {
    "terminal input": (16, 2, termios.TIOCSTI, 0), "clone3": (435, 0, 0), "execve": (59, 0, 0, 0), "execveat": (322, -1, 0, 0, 0, 0), "ptrace": (101, 0, 0, 0, 0),
    "process_vm_readv": (310, 0, 0, 0, 0, 0, 0), "pidfd_open": (434, 0, 0), "pidfd_getfd": (438, -1, -1, 0), "pidfd_send_signal": (424, -1, 0, 0, 0),
    "mount": (165, 0, 0, 0, 0, 0), "umount2": (166, 0, 0), "pivot_root": (155, 0, 0), "chroot": (161, 0), "unshare": (272, 0), "setns": (308, -1, 0),
    "bpf": (321, -1, 0, 0), "perf_event_open": (298, 0, 0, 0, 0, 0), "io_uring_setup": (425, 0, 0), "userfaultfd": (323, -1), "keyctl": (250, -1, 0, 0, 0, 0),
    "add_key": (248, 0, 0, 0, 0, 0), "init_module": (175, 0, 0, 0), "finit_module": (313, -1, 0, 0), "kexec_load": (246, 0, 0, 0, -1), "reboot": (169, 0, 0, 0, 0),
    "settimeofday": (164, 0, 0), "clock_settime": (227, 0, 0), "adjtimex": (159, 0), "sched_setscheduler": (144, 0, 1, 0), "sched_setattr": (314, 0, 0, 0),
    "setpriority": (141, 0, 0, 0), "memfd_create": (319, 0, 0), "shmget": (29, 0, 0, 0), "semget": (64, 0, 0, 0), "msgget": (68, 0, 0), "mq_open": (240, 0, 0, 0, 0),
    "inotify_init1": (294, -1), "fanotify_init": (300, -1, 0), "open_by_handle_at": (304, -1, 0, 0), "openat2": (437, -100, 0, 0, 0), "personality": (135, -1),
    "acct": (163, 1), "swapon": (167, 0, 0), "sethostname": (170, 0, -1), "iopl": (172, 9), "ioperm": (173, 0, 0, 0), "setuid": (105, -1), "setgid": (106, -1),
    "setgroups": (116, -1, 0), "capset": (126, 0, 0), "setrlimit": (160, -1, 0), "renameat2": (316, -1, 0, -1, 0, 0), "fchmodat2": (452, -1, 0, 0, 0),
    "ftruncate": (77, -1, 0), "fallocate": (285, -1, 0, 0, 0), "sync": (162,), "quotactl": (179, 0, 0, 0, 0), "timer_create": (222, -1, 0, 0),
}
if os.uname().machine == "x86_64":
    for name, (number, *arguments) in CALLS.items():
        ctypes.set_errno(0)
        if let_through(number, *arguments):
            POSSIBLE.append(name)
if POSSIBLE:
    raise RuntimeError("possible: " + ", ".join(POSSIBLE))
"""


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

    def test_a_candidate_can_do_nothing_to_its_host(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            outside = Path(folder, "outside")
            outside.write_text("whole")
            outside.chmod(0o644)
            before = outside.stat()
            Path(folder, "tries.py").write_text(TRIES.replace("OUTSIDE", repr(str(outside))) + AIMD)
            words = [sys.executable, "-m", "ccplane", "arena", f"{folder}/tries.py", "--suite", "gate", "--json"]
            environment = {**os.environ, "CCPLANE_TEST_SECRET": "secret"}
            done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            after = outside.stat()
            self.assertEqual((before.st_mode, before.st_uid, before.st_mtime_ns), (after.st_mode, after.st_uid, after.st_mtime_ns))
            self.assertEqual([outside.read_text(), sorted(os.listdir(folder))], ["whole", ["outside", "tries.py"]])
            # Unconfined, the same file finds what it can do.
            done = subprocess.run([*words, "--trusted"], capture_output=True, text=True, check=False, env=environment)
            self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
            self.assertIn("possible: write, create, truncate, chmod", done.stdout + done.stderr)

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
