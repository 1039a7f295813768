"""Tests of the environments, and of policies on all datapaths."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import pickle
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any
from unittest import mock

import ccplane
from test_ccplane import skip

try:
    import gymnasium
    import numpy as np
    from pettingzoo.test import parallel_api_test

    import ccplane.env
except ModuleNotFoundError:
    gymnasium = None  # type: ignore[assignment]

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
LINK: dict[str, Any] = {
    "duration": "10s",
    "topology": {"dumbbell": {"rate": "24mbit", "rtt": "40ms", "queue": "droptail:1bdp"}},
    "workload": [{"bulk": {"flows": 1}}],
}
ANY = {"rate": ("10mbit", "100mbit"), "rtt": ("10ms", "100ms"), "queue": ("0.5bdp", "4bdp"), "loss": (0, 0.01)}


def target(seen: Any) -> Any:
    """Policy that steers towards a queue of a tenth of the RTT."""
    return 0.06 - 0.6 * seen[-6]


class Needing(unittest.TestCase):
    def setUp(self) -> None:
        if gymnasium is None:
            skip("Gymnasium and PettingZoo are not here", package=True)


class Single(Needing):
    def test_gymnasium_and_pettingzoo_accept_them(self) -> None:
        # The checker also opens a window.
        code = (
            "import gymnasium, ccplane\n"
            "from gymnasium.utils.env_checker import check_env\n"
            "check_env(gymnasium.make('ccplane/Link-v0').unwrapped)\n"
        )
        environment = os.environ | {"MPLBACKEND": "module://window_backend"}
        done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=HERE, env=environment, capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        parallel_api_test(ccplane.env.parallel(flows=3, steps=30), num_cycles=100)

    def test_it_is_registered_whichever_is_imported_first(self) -> None:
        page = (HERE.parent.parent / "docs/learning.md").read_text()
        documented = page.partition("```python\n")[2].partition("```")[0]
        self.assertIn("gymnasium.make(", documented)
        make = "print(gymnasium.make('ccplane/Link-v0', steps=3).reset(seed=1)[0].shape)"
        for code in (
            documented + "print(seen.shape)",
            "import ccplane, gymnasium\n" + make,
            "import gymnasium, ccplane\n" + make,
            "import ccplane.env, gymnasium\n" + make,
            "import gymnasium\n" + make.replace("ccplane/Link-v0", "ccplane.env:ccplane/Link-v0"),
            "import ccplane, importlib, gymnasium\nassert importlib.resources.files('gymnasium').is_dir()\nimportlib.reload(gymnasium)\n" + make,
        ):
            with self.subTest(code):
                done = subprocess.run([sys.executable, "-I", "-c", code], cwd="/", capture_output=True, text=True, check=False)
                self.assertEqual((done.stdout, done.returncode), ("(6,)\n", 0), done.stderr)
        # `import ccplane` does not import Gymnasium, which would take longer.
        code = "import sys, ccplane; print('gymnasium' in sys.modules)"
        done = subprocess.run([sys.executable, "-I", "-c", code], cwd="/", capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, "False\n")

    def test_the_same_seed_gives_the_same_bytes_and_another_does_not(self) -> None:
        def play(env: Any, seed: int) -> list[Any]:
            seen = [env.reset(seed=seed)[0].tobytes()]
            for n in range(60):
                values, reward, *_ = env.step(np.array([np.sin(n)], np.float32))
                seen += [values.tobytes(), reward]
            return [*seen, env.unwrapped.digest]

        env = gymnasium.make("ccplane/Link-v0", randomise=ANY, history=3)
        first = play(env, 7)
        self.assertEqual(first, play(env, 7))
        self.assertEqual(first, play(pickle.loads(pickle.dumps(env.unwrapped)), 7))
        self.assertNotEqual(first[-1], play(env, 8)[-1])
        # A separate process must reproduce the digest.
        code = "import test_learning as t; env = t.gymnasium.make('ccplane/Link-v0'); env.reset(seed=1); print(env.unwrapped.digest)"
        other = subprocess.run([sys.executable, "-c", code], cwd=HERE, capture_output=True, text=True, check=True)
        here = gymnasium.make("ccplane/Link-v0")
        here.reset(seed=1)
        self.assertEqual(other.stdout.strip(), here.unwrapped.digest)

    def test_steps_end_as_they_should(self) -> None:
        stay = np.zeros(1, np.float32)
        short = ccplane.env.Link(LINK, steps=7)
        short.reset(seed=1)
        ends = [short.step(stay)[2:4] for _ in range(7)]
        self.assertEqual(ends, [(False, False)] * 6 + [(False, True)])
        timed = ccplane.env.Link(LINK | {"duration": "200ms"})
        timed.reset(seed=1)
        ends = [timed.step(stay)[2:4] for _ in range(12)]
        self.assertIn((False, True), ends)
        finite = ccplane.env.Link(LINK | {"workload": [{"bulk": {"flows": 1, "bytes": "200kB"}}]})
        finite.reset(seed=1)
        for _ in range(400):
            *_, ended, over, _ = finite.step(np.ones(1, np.float32))
            if ended or over:
                break
        self.assertTrue(ended and not over)
        unset = ccplane.env.Link(LINK)
        with self.assertRaisesRegex(ccplane.Error, "reset"):
            unset.step(stay)

    def test_rewards_are_what_they_say(self) -> None:
        full = ccplane.env.Link(LINK)
        full.reset(seed=1)
        for n in range(100):
            _, reward, _, _, info = full.step(np.array([1.0 if n < 4 else 0.0], np.float32))
        # 160 segments per 48 ms: a full link with 8 ms of queue.
        self.assertAlmostEqual(reward, 5792 / 6000 * 40 / (info["rtt"] * 1e3) / 2 * 2 * info["goodput"] / 2.896e6, delta=0.1)
        for kind, least, most in [("aurora", 15_000, 25_000), (lambda info: info["cwnd"], 1e5, 1e6)]:
            env = ccplane.env.Link(LINK, reward=kind)
            env.reset(seed=1)
            for n in range(100):
                _, reward, *_ = env.step(np.array([1.0 if n < 4 else 0.0], np.float32))
            self.assertTrue(least < reward < most, (kind, reward))

    def test_others_compete(self) -> None:
        alone, beside = [], []
        for compete, goodputs in [((), alone), ([("native:cubic", 2)], beside)]:
            env = ccplane.env.Link(LINK, compete=compete, steps=1000)
            env.reset(seed=1)
            for n in range(300):
                info = env.step(np.array([1.0 if n < 2 else 0.0], np.float32))[-1]
                goodputs.append(info["goodput"])
        self.assertLess(np.mean(beside[100:]), 0.8 * np.mean(alone[100:]))

    def test_what_cannot_be_is_told(self) -> None:
        for settings, says in [
            ({"step": "5"}, "step is `5`"),
            ({"observe": ["rtt"]}, "no feature `rtt`; available: rtt_ratio"),
            ({"randomise": {"loss": (0, 1)}}, "without a %"),
            ({"observe": "loss"}, "write \\['loss'\\]"),
            ({"observe": []}, "at least one feature"),
            ({"act": "window"}, "unknown kind of action `window`; available: cwnd_factor"),
            ({"reward": "speed"}, "unknown reward 'speed'; use power, aurora"),
            ({"randomise": {"delay": ("1ms", "2ms")}}, "cannot change 'delay'; use rate"),
            ({"randomise": {"rate": ("20mbit", "10mbit")}}, "from small to large"),
            ({"randomise": {"rate": ("10", "20")}}, "from small to large"),
            ({"scenario": "06-parking-lot", "randomise": ANY}, ".*"),
        ]:
            with self.subTest(says), self.assertRaisesRegex((ValueError, TypeError, OSError), says):
                ccplane.env.Link(**settings)
        with self.assertRaisesRegex(ValueError, "has 2 controlled flows"):
            ccplane.env.Link(LINK | {"workload": [{"bulk": {"flows": 2}}]}).reset(seed=1)
        with self.assertRaisesRegex(ccplane.Error, "did you mean"):
            ccplane.env.Link(LINK | {"duratoin": "1s"}).reset(seed=1)


class Rendered(Needing):
    """Pictures of an episode, drawn without a display."""

    def setUp(self) -> None:
        super().setUp()
        if importlib.util.find_spec("matplotlib") is None:
            skip("matplotlib is not here", package=True)

    def test_pixels_show_the_episode(self) -> None:
        env = gymnasium.make("ccplane/Link-v0", render_mode="rgb_array")
        env.reset(seed=1)
        first = env.render()
        for _ in range(5):
            env.step(np.ones(1, np.float32))
        later, again = env.render(), env.render()
        for frame in (first, later):
            self.assertEqual((frame.shape, frame.dtype), ((480, 640, 3), np.uint8))
        self.assertTrue((later == again).all() and (first != later).any())
        env.reset(seed=1)
        np.testing.assert_array_equal(env.render(), first, "each episode has a chart of its own")
        self.assertEqual(pickle.loads(pickle.dumps(env.unwrapped)).render_mode, "rgb_array")
        # The link's rate and RTT, and the last window, are in the chart.
        chart = env.unwrapped._chart
        info = env.step(np.ones(1, np.float32))[-1]
        env.render()
        goodput, rtt, window = chart._axes
        self.assertEqual([axis.lines[0].get_ydata()[0] for axis in (goodput, rtt)], [info["link_rate"] * 8 / 1e6, info["link_rtt"] * 1e3])
        self.assertEqual(window.lines[0].get_ydata()[-1], info["cwnd"] / 1e3)

    def test_vectors_and_several_flows(self) -> None:
        vector = gymnasium.make_vec("ccplane/Link-v0", num_envs=3, vectorization_mode="vector_entry_point", render_mode="rgb_array", steps=5)
        vector.reset(seed=1)
        first = vector.render()
        for _ in range(6):
            vector.step(np.ones((3, 1), np.float32))
        frames = vector.render()
        self.assertEqual([frame.shape for frame in frames], [(480, 640, 3)] * 3)
        np.testing.assert_array_equal(frames[0], first[0], "it has restarted")
        workload = [{"bulk": {"flows": 1}}, {"bulk": {"flows": 1}, "start": "1s"}]
        both = ccplane.env.parallel(LINK | {"workload": workload}, render_mode="rgb_array")
        both.reset(seed=1)
        for _ in range(60):
            both.step({agent: [0.05] for agent in both.agents})
        both.render()
        _, one, two = both._chart._axes[0].lines
        self.assertAlmostEqual(two.get_xdata()[0], 1.0, delta=0.1)
        self.assertAlmostEqual(one.get_xdata()[-1], two.get_xdata()[-1], delta=0.1)

    def test_a_video_shows_simulated_time(self) -> None:
        for step, fps in [("20ms", 50), ("100ms", 10), ("1s", 1), ("1rtt", 25), ("report", 25)]:
            for env in (
                gymnasium.make("ccplane/Link-v0", step=step),
                gymnasium.make_vec("ccplane/Link-v0", num_envs=2, vectorization_mode="vector_entry_point", step=step),
                ccplane.env.parallel(step=step),
            ):
                self.assertAlmostEqual(env.metadata["render_fps"], fps)
        self.assertEqual(ccplane.env.Link.metadata["render_fps"], 50)
        vector = ccplane.env.LinkVector(step="10ms")
        self.assertEqual((vector.metadata["render_modes"], "autoreset_mode" in vector.metadata), (["rgb_array"], True))

    def test_a_window_is_drawn_at_each_step(self) -> None:
        code = (
            "import ccplane.env, matplotlib.pyplot as plt, window_backend as backend\n"
            "env = ccplane.env.Link(render_mode='human')\n"
            "env.reset(seed=1)\n"
            "for n in range(3): env.step([0.1])\n"
            "print(len(backend.SHOWN), len(backend.FLUSHED), env.render())\n"
            "plt.close('all')\n"
            "env.step([0.1])\n"
            "env.close()\n"
            "print(len(backend.FLUSHED))\n"
        )
        environment = os.environ | {"MPLBACKEND": "module://window_backend"}
        done = subprocess.run([sys.executable, "-c", code], cwd=HERE, env=environment, capture_output=True, text=True, check=False)
        # The reset and three steps, then the call of `render`; nothing once the window is closed.
        self.assertEqual(done.stdout.split("\n")[:2], ["1 4 None", "5"], done.stderr)

    def test_invalid_modes_have_a_fix(self) -> None:
        with self.assertRaisesRegex(ValueError, "unknown render_mode 'ansi'; use 'human', 'rgb_array' or None"):
            ccplane.env.Link(render_mode="ansi")
        with self.assertRaisesRegex(ValueError, "needs gymnasium.make; use 'rgb_array'"):
            ccplane.env.LinkVector(render_mode="human")
        with self.assertRaisesRegex(ccplane.Error, "call reset first"):
            ccplane.env.Link(render_mode="rgb_array").render()
        with mock.patch.object(gymnasium.logger, "warn") as warned:
            self.assertIsNone(ccplane.env.Link().render())
            self.assertIsNone(ccplane.env.LinkVector(num_envs=2).render())
        self.assertEqual(warned.call_count, 2)
        self.assertIn("render_mode='rgb_array'", warned.call_args[0][0])
        with mock.patch.dict(sys.modules, {"matplotlib.figure": None}), self.assertRaisesRegex(ModuleNotFoundError, r"pip install 'ccplane\[plot\]'"):
            ccplane.env.Link(render_mode="rgb_array")
        code = "import ccplane.env\nccplane.env.Link(render_mode='human')"
        environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY", "MPLBACKEND")}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
        self.assertRegex(done.stderr, "opens a window.*'agg' cannot do; use render_mode='rgb_array', or set DISPLAY or WAYLAND_DISPLAY")


class Many(Needing):
    def test_a_vector_is_many_links_on_any_number_of_threads(self) -> None:
        def play(threads: int) -> tuple[Any, ...]:
            env = gymnasium.make_vec("ccplane/Link-v0", num_envs=5, vectorization_mode="vector_entry_point", threads=threads, randomise=ANY, steps=25)
            seen = [env.reset(seed=3)[0]]
            for n in range(60):
                values, rewards, ended, over, _ = env.step(np.full((5, 1), np.sin(n), np.float32))
                seen += [values, rewards, ended, over]
            return seen, env.unwrapped.digests

        one, two = play(1), play(2)
        self.assertEqual(one[1], two[1])
        for a, b in zip(one[0], two[0]):
            np.testing.assert_array_equal(a, b)
        # The third environment alone, up to its restart.
        alone = ccplane.env.Link(randomise=ANY, steps=25)
        values, _ = alone.reset(seed=3 + 2)
        np.testing.assert_array_equal(values, one[0][0][2])
        for n in range(25):
            values, reward, _, over, _ = alone.step(np.array([np.sin(n)], np.float32))
            np.testing.assert_array_equal(values, one[0][1 + 4 * n][2])
            self.assertEqual(reward, one[0][2 + 4 * n][2])
        self.assertTrue(over and one[0][4 + 4 * 24][2])
        self.assertEqual(one[0][2 + 4 * 25][2], 0.0, "the step that begins anew")

    def test_actions_may_be_lists(self) -> None:
        link, array = ccplane.env.Link(), np.full(1, 0.1, np.float32)
        vector = gymnasium.make_vec("ccplane/Link-v0", num_envs=2, vectorization_mode="vector_entry_point")
        both = ccplane.env.parallel(flows=2)

        def play(env: Any, action: Any) -> list[Any]:
            env.reset(seed=1)
            return [env.step(action)[0] for _ in range(5)]

        flows = ["flow_0", "flow_1"]
        for env, lists, arrays in [
            (link, [0.1], array),
            (vector, [[0.1], [0.1]], np.stack([array, array])),
            (both, {agent: [0.1] for agent in flows}, {agent: array for agent in flows}),
        ]:
            for one, other in zip(play(env, lists), play(env, arrays)):
                np.testing.assert_equal(one, other)

    def test_flows_come_and_go(self) -> None:
        workload = [{"bulk": {"flows": 1}}, {"bulk": {"flows": 1, "bytes": "300kB"}, "start": "1s"}]
        env = ccplane.env.parallel(LINK | {"workload": workload}, steps=200)
        env.reset(seed=1)
        counts = []
        while env.agents:
            *_, = env.step({agent: np.full(1, 0.02, np.float32) for agent in env.agents})
            counts.append(len(env.agents))
        self.assertEqual(counts[10], 1)
        self.assertIn(2, counts)
        self.assertEqual(counts[-2], 1, "the second has ended")


@functools.cache
def learned() -> tuple[str, str]:
    """Returns the output of the training example and its saved policy."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "policy.json")
        done = subprocess.run([sys.executable, EXAMPLES / "train_cem.py", "--out", out], capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(done.stderr)
        return done.stdout, out.read_text()


class Learned(Needing):
    def test_the_example_learns_to_fill_links_at_less_delay_than_cubic(self) -> None:
        said, policy = learned()
        self.assertEqual(len(json.loads(policy)["weights"]), 5)
        rows = [line.split() for line in said.splitlines() if "Mbit/s" in line]
        self.assertEqual(len(rows), 3)
        for _, _, goodput, _, delay, _, cubics, _, cubic_delay, _ in rows:
            self.assertGreater(float(goodput), 0.9 * float(cubics), said)
            self.assertLess(float(delay), 0.3 * float(cubic_delay), said)

    def test_what_it_learned_does_on_kernel_tcp_as_in_the_simulator(self) -> None:
        if os.geteuid() != 0 or not Path("/sys/kernel/btf/vmlinux").exists():
            skip("kernel TCP is steered as root, on a kernel with BTF")
        _, policy = learned()
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "policy.json")
            file.write_text(policy)
            done = subprocess.run([sys.executable, EXAMPLES / "deploy.py", file], cwd=folder, capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
        # Columns: backend, contender, goodput in Mbit/s, delay in ms.
        words = [line.split() for line in done.stdout.splitlines() if line.endswith(" ms")]
        figures = {(word[0], word[1]): (float(word[2]), float(word[4])) for word in words if len(word) == 6}
        self.assertEqual(set(figures), {(place, who) for place in ("sim", "linux") for who in ("policy", "cubic")}, done.stdout)
        for place in ("sim", "linux"):
            (goodput, delay), (cubics, cubic_delay) = figures[place, "policy"], figures[place, "cubic"]
            self.assertGreater(goodput, 0.75 * cubics, done.stdout)
            self.assertLess(delay, 0.5 * cubic_delay, done.stdout)


class Deployed(Needing):
    def test_a_policy_does_the_same_in_an_environment_and_in_a_run(self) -> None:
        for act in ("cwnd_factor", "rate_factor", "cwnd_rate"):
            env = ccplane.env.Link(LINK, step="30ms", act=act, steps=10**9)
            numbers = env.spec_of_policy.numbers
            values, _ = env.reset(seed=5)
            learned_in, over = [], False
            while not over:
                learned_in.append(values.tobytes())
                values, _, _, over, _ = env.step(np.full(numbers, target(values), np.float32))
            seen: list[bytes] = []

            def decide(values: Any) -> Any:
                seen.append(values.tobytes())
                return np.full(numbers, target(values))

            # The seed of the scenario is drawn from the seed of the environment.
            seed = int(gymnasium.utils.seeding.np_random(5)[0].integers(1, 2**63))
            ccplane.run(LINK | {"contenders": ["policy"]}, contenders=[ccplane.policy(env.spec_of_policy, decide)], seeds=str(seed))
            self.assertGreater(len(seen), 300)
            self.assertEqual(seen, learned_in, f"{act}: the same bytes at every decision")

    def test_a_policy_steers_kernel_tcp_as_the_simulator(self) -> None:
        if os.geteuid() != 0 or not Path("/sys/kernel/btf/vmlinux").exists():
            skip("kernel TCP is steered as root, on a kernel with BTF")
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "policy.py"
            script.write_text(
                f"import sys; sys.path.insert(0, {str(HERE)!r})\n"
                "import ccplane, test_learning\n"
                "from ccplane import PolicySpec\n"
                "raise SystemExit(ccplane.main([ccplane.policy(PolicySpec(), test_learning.target)]))\n"
            )
            goodput, delay = {}, {}
            for place in ("linux", "sim"):
                words = ["run", "--alg", "policy", "--rate", "24mbit", "--rtt", "40ms", "--duration", "5s", "--datapath", place, "--out", f"{folder}/{place}"]
                done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                figures = json.loads(Path(folder, place, "summary.json").read_text())["contenders"][0]["figures"]
                goodput[place], delay[place] = figures["goodput_mbit"], figures["delay_mean_ms"]
            self.assertGreater(min(goodput.values()), 15, (goodput, delay))
            self.assertLess(max(delay.values()), 20, (goodput, delay))
            self.assertLess(abs(goodput["linux"] / goodput["sim"] - 1), 0.25, (goodput, delay))


if __name__ == "__main__":
    unittest.main()
