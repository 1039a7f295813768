"""Learning environments: a simulated link, stepped from decision to decision (docs/learning.md).

`gymnasium.make("ccplane/Link-v0")` controls one flow, `gymnasium.make_vec("ccplane/Link-v0",
num_envs=64)` steps many simulations per call, and `parallel(...)` is a PettingZoo environment with
one agent per flow.
"""

from __future__ import annotations

import operator
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import gymnasium
import numpy as np
from gymnasium.utils import EzPickle, seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from . import _ccplane, _gym, _render, _toml
from .policies import OBSERVE, PolicySpec

if TYPE_CHECKING:
    from . import Algorithm

Floats = NDArray[np.float32]
Scenario = str | os.PathLike[str] | Mapping[str, Any]
Info = dict[str, Any]
Reward = str | Callable[[Info], Any]

# Default link: 48 Mbit/s, 40 ms RTT, a queue of one BDP.
LINK: dict[str, Any] = {
    "duration": "3600s",
    "topology": {"dumbbell": {"rate": "48mbit", "rtt": "40ms", "queue": "droptail:1bdp"}},
    "workload": [{"bulk": {"flows": 1}}],
}
LOW, HIGH = -10.0, 10.0
COLUMNS: list[str] = _ccplane.policy_names()[1]

REWARDS = ("power", "aurora")
"""Names of the built-in rewards; `info` contains both.

`power` is Kleinrock's power, from 0 to 1: utilisation of the link, times base RTT over measured
RTT. `aurora` is 10 · throughput - 1000 · RTT - 2000 · loss, with throughput in packets of 1,500
bytes per second and RTT in seconds (Jay et al., ICML 2019, section 4.2, with the weights of their
published code).
"""


class _Setup:
    """Common part of the three kinds of environments."""

    def __init__(
        self,
        scenario: Scenario | None,
        step: str,
        observe: Sequence[str],
        history: int,
        act: str,
        reward: Reward,
        randomise: Mapping[str, tuple[Any, Any]] | None,
        compete: Sequence[tuple[str, int]],
        algorithms: Sequence[type[Algorithm[Any]]],
    ) -> None:
        self.spec = PolicySpec(step, observe if isinstance(observe, str) else tuple(observe), history, act)
        if isinstance(reward, str) and reward not in REWARDS:
            raise ValueError(f"unknown reward {reward!r}; use {', '.join(REWARDS)} or a function of the info")
        self.reward: Callable[[Info], Any] = operator.itemgetter(reward) if isinstance(reward, str) else reward
        self.algorithms = list(algorithms)
        self.randomise = {name: self.range(name, between) for name, between in (randomise or {}).items()}
        # Kept as text unless a parameter changes it.
        self.text: str | None = None
        self.table: dict[str, Any] | None = None
        if scenario is None or isinstance(scenario, Mapping):
            self.table = {"contenders": ["outside"]} | dict(LINK if scenario is None else scenario)
        else:
            self.text = os.fspath(scenario)
        if (self.randomise or compete) and self.text is not None:
            if "\n" not in self.text:
                with open(self.text, encoding="utf-8") as file:
                    self.text = file.read()
            self.table = {"contenders": ["outside"]} | tomllib.loads(self.text)
        if self.table is not None:
            others = [{"bulk": {"flows": flows}, "algorithm": name} for name, flows in compete]
            self.table["workload"] = [*self.table.get("workload", ()), *others]
            self.text = _toml.dumps(self.table)
            if self.randomise and "dumbbell" not in self.table.get("topology", {}):
                raise ValueError("randomise requires a dumbbell topology, which this scenario does not have; omit it")
        self.size = len(self.spec.observe) * history
        self.observation_space = gymnasium.spaces.Box(LOW, HIGH, (self.size,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (self.spec.numbers,), np.float32)

    RANGES: Mapping[str, tuple[str, Mapping[str, float]]] = {
        "rate": ("10mbit", {"gbit": 1e9, "mbit": 1e6, "kbit": 1e3, "bit": 1.0}),
        "rtt": ("20ms", {"ms": 1e-3, "us": 1e-6, "s": 1.0}),
        "queue": ("1bdp", {"bdp": 1.0}),
        "loss": ("1%", {"%": 1e-2, "": 1.0}),
    }

    @classmethod
    def range(cls, name: str, between: tuple[Any, Any]) -> tuple[float, float]:
        """Returns both ends of a range, in bits per second, seconds, BDPs, or as a fraction for
        loss."""
        if name not in cls.RANGES:
            raise ValueError(f"randomise cannot change {name!r}; use {', '.join(cls.RANGES)}")
        example, units = cls.RANGES[name]
        ends: list[float] = []
        for end in between:
            text = str(end).strip().lower()
            unit = next((unit for unit in units if text.endswith(unit)), None)
            try:
                ends.append(float(text.removesuffix(unit)) * units[unit] if unit is not None else float("nan"))
            except ValueError:
                ends.append(float("nan"))
            # Ambiguous, as on the command line: 1 could mean 1 % or 100 %.
            if unit == "" and ends[-1] >= 1:
                raise ValueError(f"randomise: {name} is {between!r}; a number of 1 or more without a % is ambiguous (percent or fraction): write ('0%', '1%')")
        if len(ends) != 2 or not 0 <= ends[0] <= ends[1] or (name != "loss" and ends[0] == 0):
            raise ValueError(f"randomise: {name} is {between!r}; write a range from small to large, as ({example!r}, …)")
        return ends[0], ends[1]

    def draw(self, random: np.random.Generator) -> tuple[str, bool]:
        """Returns the scenario of an episode. Rate, RTT and queue are drawn log-uniformly, loss
        uniformly."""
        if self.table is None or not self.randomise:
            assert self.text is not None
            return self.text, "\n" in self.text
        link: dict[str, Any] = dict(self.table["topology"]["dumbbell"])
        for name, (low, high) in self.randomise.items():
            if name == "loss":
                link["loss"] = f"{round(float(random.uniform(low, high)) * 100, 4)}%"
                continue
            ends: tuple[float, float] = (np.log(low), np.log(high))
            drawn = float(np.exp(random.uniform(*ends)))
            if name == "rate":
                link["rate"] = f"{round(drawn / 8) * 8}bit"
            elif name == "rtt":
                link["rtt"] = f"{round(drawn * 1e6)}us"
            else:
                link["queue"] = f"droptail:{drawn:.3f}bdp"
        return _toml.dumps(self.table | {"topology": {"dumbbell": link}}), True

    def episode(self) -> _ccplane.Episode:
        spec = self.spec
        return _ccplane.Episode(spec.step, list(spec.observe), spec.history, spec.act, self.algorithms, os.getcwd())

    def begin(self, episode: _ccplane.Episode, random: np.random.Generator, *, each: bool = False) -> int:
        given, is_text = self.draw(random)
        return episode.reset(given, is_text, int(random.integers(1, 2**63)), each)


def _values(told: bytes) -> Floats:
    return np.frombuffer(told, np.float32).copy()


def _one(flows: int) -> None:
    """Requires exactly one controlled flow."""
    if flows == 0:
        raise ValueError("no flow of the scenario reached a decision before the end")
    if flows > 1:
        raise ValueError(f"the scenario has {flows} controlled flows; use ccplane.env.parallel, which has one agent per flow")


def _rendered(chart: _render.Chart | None) -> _render.Frame | None:
    if chart is None:
        gymnasium.logger.warn("render does nothing without a render_mode; make the environment with render_mode='rgb_array'")
        return None
    return chart.frame()


class Link(gymnasium.Env[Floats, Floats], EzPickle):
    """One flow whose window or rate is decided at each step.

    An episode is `terminated` when the flow has delivered all its data, and `truncated` after
    `steps` decisions or at the end of the scenario. `info` describes the last step in seconds,
    bytes and bytes per second. `render` draws goodput, RTT and window of the episode.
    """

    metadata: dict[str, Any] = _render.metadata(PolicySpec.step)
    observation_space: gymnasium.spaces.Space[Floats]
    action_space: gymnasium.spaces.Space[Floats]

    def __init__(
        self,
        scenario: Scenario | None = None,
        step: str = "20ms",
        observe: Sequence[str] = OBSERVE,
        history: int = 1,
        act: str = "cwnd_factor",
        reward: Reward = "power",
        randomise: Mapping[str, tuple[Any, Any]] | None = None,
        compete: Sequence[tuple[str, int]] = (),
        steps: int = 400,
        algorithms: Sequence[type[Algorithm[Any]]] = (),
        render_mode: str | None = None,
    ) -> None:
        EzPickle.__init__(self, scenario, step, observe, history, act, reward, randomise, compete, steps, algorithms, render_mode)
        self._setup = _Setup(scenario, step, observe, history, act, reward, randomise, compete, algorithms)
        self.metadata = _render.metadata(step)
        self.observation_space = self._setup.observation_space
        self.action_space = self._setup.action_space
        self.steps = steps
        self.render_mode = render_mode
        self._chart = _render.chart(render_mode)
        self._episode = self._setup.episode()
        self._done = 0

    @property
    def spec_of_policy(self) -> PolicySpec:
        """Specification for `ccplane.policy`, so that a policy observes and acts as in this
        environment."""
        return self._setup.spec

    @property
    def digest(self) -> str | None:
        """Hash of all events of this episode."""
        return self._episode.digest

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, Info]:
        """Starts an episode. All randomness is derived from `seed`."""
        super().reset(seed=seed)
        flows = self._setup.begin(self._episode, self.np_random)
        _one(flows)
        values, interval, _ = self._episode.look(0)
        self._done = 0
        info = dict(zip(COLUMNS, interval))
        if self._chart is not None:
            self._chart.clear()
            self._chart.add({0: info})
        return _values(values), info

    def step(self, action: Floats | Sequence[float]) -> tuple[Floats, float, bool, bool, Info]:
        (values, interval, ended), over = self._episode.step(np.asarray(action, np.float32).tolist())
        self._done += 1
        info: Info = dict(zip(COLUMNS, interval))
        if self._chart is not None:
            self._chart.add({0: info})
        return _values(values), float(self._setup.reward(info)), ended, over or self._done >= self.steps, info

    def render(self) -> _render.Frame | None:
        """Returns a picture of the episode so far, as an array of 480 × 640 pixels with three
        bytes, for `render_mode="rgb_array"`. With `"human"` each step is already shown in a
        window."""
        return _rendered(self._chart)

    def close(self) -> None:
        """Closes the window of `render_mode="human"`."""
        if self._chart is not None:
            self._chart.close()


class LinkVector(VectorEnv[Floats, Floats, NDArray[Any]]):
    """Many links stepped in one call, on `threads` threads. A finished episode restarts at the next
    step (Gymnasium's `NEXT_STEP`).

    A reward function receives `info` with an array per key.
    """

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP} | _render.metadata(PolicySpec.step, ["rgb_array"])
    observation_space: gymnasium.spaces.Space[Floats]
    action_space: gymnasium.spaces.Space[Floats]
    single_observation_space: gymnasium.spaces.Space[Floats]
    single_action_space: gymnasium.spaces.Space[Floats]

    def __init__(self, num_envs: int = 1, threads: int | None = None, steps: int = 400, render_mode: str | None = None, **settings: Any) -> None:
        plain: dict[str, Any] = {
            "scenario": None, "step": "20ms", "observe": OBSERVE, "history": 1, "act": "cwnd_factor",
            "reward": "power", "randomise": None, "compete": (), "algorithms": (),
        }  # fmt: skip
        unknown = sorted(set(settings) - set(plain))
        if unknown:
            raise TypeError(f"unknown setting {unknown[0]!r} of an environment; use {', '.join(plain)}, steps, threads, render_mode")
        if render_mode == "human":
            raise ValueError("render_mode='human' shows one episode, so it needs gymnasium.make; use 'rgb_array' for a vector")
        self._setup = _Setup(**(plain | settings))
        self.metadata = self.metadata | _render.metadata(self._setup.spec.step, ["rgb_array"])
        self.render_mode = render_mode
        charts = [_render.chart(render_mode, ["rgb_array"]) for _ in range(num_envs)]
        # Empty without a render mode.
        self._charts = [chart for chart in charts if chart is not None]
        self.num_envs = num_envs
        self.threads: int = threads or os.cpu_count() or 1
        self.steps = steps
        self.single_observation_space = self._setup.observation_space
        self.single_action_space = self._setup.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._episodes = [self._setup.episode() for _ in range(num_envs)]
        self._random = [np.random.default_rng() for _ in range(num_envs)]
        self._done = np.zeros(num_envs, np.int64)
        self._over = np.zeros(num_envs, np.bool_)

    @property
    def spec_of_policy(self) -> PolicySpec:
        """Specification for `ccplane.policy`; see `Link`."""
        return self._setup.spec

    @property
    def digests(self) -> list[str | None]:
        """Hashes of all events, one per current episode."""
        return [episode.digest for episode in self._episodes]

    def reset(self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None) -> tuple[Floats, Info]:
        """Starts all episodes; environment n uses seed + n."""
        seeds = [None if seed is None else seed + n for n in range(self.num_envs)] if seed is None or isinstance(seed, int) else list(seed)
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} environments")
        for n, own in enumerate(seeds):
            if own is not None:
                self._random[n] = seeding.np_random(own)[0]
        begun = [self._begin(n) for n in range(self.num_envs)]
        self._over[:] = False
        return np.stack([values for values, _ in begun]), dict(zip(COLUMNS, np.array([interval for _, interval in begun]).T))

    def _begin(self, n: int) -> tuple[Floats, list[float]]:
        _one(self._setup.begin(self._episodes[n], self._random[n]))
        self._done[n] = 0
        values, interval, _ = self._episodes[n].look(0)
        if self._charts:
            self._charts[n].clear()
            self._charts[n].add({0: dict(zip(COLUMNS, interval))})
        return _values(values), list(interval)

    def step(self, actions: Floats | Sequence[Sequence[float]]) -> tuple[Floats, NDArray[Any], NDArray[Any], NDArray[Any], Info]:
        actions = np.asarray(actions, np.float32)
        if actions.shape != self.action_space.shape:
            raise ValueError(f"actions have the shape {actions.shape} instead of {self.action_space.shape}")
        again, on = np.flatnonzero(self._over), np.flatnonzero(~self._over)
        count = self.num_envs
        values = np.empty((count, self._setup.size), np.float32)
        intervals = np.empty((count, len(COLUMNS)))
        ended, over = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        if on.size:
            told = _ccplane.step_many([self._episodes[n] for n in on], actions[on].tolist(), self.threads)
            values[on] = np.frombuffer(told[0], np.float32).reshape(on.size, -1)
            intervals[on] = np.frombuffer(told[1], np.float64).reshape(on.size, -1)
            ended[on] = np.frombuffer(told[2], np.bool_)
            over[on] = np.frombuffer(told[3], np.bool_)
            self._done[on] += 1
            over[on] |= self._done[on] >= self.steps
            if self._charts:
                for n in on.tolist():
                    self._charts[n].add({0: dict(zip(COLUMNS, intervals[n]))})
        for n in again.tolist():
            values[n], intervals[n] = self._begin(n)
        info: Info = dict(zip(COLUMNS, intervals.T))
        rewards = np.array(np.broadcast_to(self._setup.reward(info), (count,)), np.float64)
        rewards[again] = 0.0
        self._over = ended | over
        return values, rewards, ended, over, info

    def render(self) -> tuple[_render.Frame, ...] | None:
        """Returns a picture of each episode; see `Link`."""
        if not self._charts:
            _rendered(None)
            return None
        return tuple(frame for frame in map(_rendered, self._charts) if frame is not None)


def parallel(
    scenario: Scenario | None = None,
    *,
    step: str = "20ms",
    observe: Sequence[str] = OBSERVE,
    history: int = 1,
    act: str = "cwnd_factor",
    reward: Reward = "power",
    randomise: Mapping[str, tuple[Any, Any]] | None = None,
    compete: Sequence[tuple[str, int]] = (),
    steps: int = 400,
    flows: int = 2,
    algorithms: Sequence[type[Algorithm[Any]]] = (),
    render_mode: str | None = None,
) -> Any:
    """Returns a PettingZoo `ParallelEnv` with one agent per flow of the contender. Without a
    scenario, `flows` flows share one link.

    Flows may start and end during an episode; `agents` lists the live ones. A step runs until each
    live flow has a new observation. `render` draws all flows; see `Link`.
    """
    from pettingzoo import ParallelEnv  # type: ignore[import-untyped]

    given = LINK | {"workload": [{"bulk": {"flows": flows}}]} if scenario is None else scenario
    setup = _Setup(given, step, observe, history, act, reward, randomise, compete, algorithms)

    class Parallel(ParallelEnv):  # type: ignore[misc]
        """Environment returned by `parallel`."""

        metadata: dict[str, Any] = {"name": "ccplane/Link-v0"} | _render.metadata(setup.spec.step)

        def __init__(self) -> None:
            self.possible_agents: list[str] = [f"flow_{n}" for n in range(flows if scenario is None else 0)]
            self.agents: list[str] = []
            self.render_mode = render_mode
            self._chart = _render.chart(render_mode)
            self._episode = setup.episode()
            self._random = np.random.default_rng()
            self._known = 0
            self._done = 0

        @property
        def spec_of_policy(self) -> PolicySpec:
            return setup.spec

        @property
        def digest(self) -> str | None:
            return self._episode.digest

        def observation_space(self, agent: str) -> gymnasium.spaces.Space[Any]:
            return setup.observation_space

        def action_space(self, agent: str) -> gymnasium.spaces.Space[Any]:
            return setup.action_space

        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Floats], dict[str, Info]]:
            if seed is not None:
                self._random = seeding.np_random(seed)[0]
            self._known = setup.begin(self._episode, self._random, each=True)
            self.agents = [f"flow_{n}" for n in range(self._known)]
            self.possible_agents.extend(self.agents[len(self.possible_agents) :])
            self._done = 0
            told = {agent: self._episode.look(n) for n, agent in enumerate(self.agents)}
            infos = {agent: dict(zip(COLUMNS, interval)) for agent, (_, interval, _) in told.items()}
            if self._chart is not None:
                self._chart.clear()
                self._draw(infos)
            return {agent: _values(values) for agent, (values, _, _) in told.items()}, infos

        def _draw(self, infos: Mapping[str, Info]) -> None:
            if self._chart is not None:
                self._chart.add({int(agent.removeprefix("flow_")): info for agent, info in infos.items()})

        def render(self) -> _render.Frame | None:
            """Returns a picture of the episode so far; see `Link`."""
            return _rendered(self._chart)

        def close(self) -> None:
            """Closes the window of `render_mode="human"`."""
            if self._chart is not None:
                self._chart.close()

        def step(self, actions: Mapping[str, Floats | Sequence[float]]) -> tuple[Any, Any, Any, Any, Any]:
            given = [(int(agent.removeprefix("flow_")), np.asarray(action, np.float32).tolist()) for agent, action in actions.items()]
            known, over = self._episode.step_each(given)
            self._done += 1
            over = over or self._done >= steps
            new = [f"flow_{n}" for n in range(self._known, known)]
            self.possible_agents.extend(agent for agent in new if agent not in self.possible_agents)
            self._known = known
            told = {agent: self._episode.look(int(agent.removeprefix("flow_"))) for agent in [*self.agents, *new]}
            infos = {agent: dict(zip(COLUMNS, interval)) for agent, (_, interval, _) in told.items()}
            self._draw(infos)
            ended = {agent: gone for agent, (_, _, gone) in told.items()}
            cut = {agent: over and not gone for agent, gone in ended.items()}
            self.agents = [agent for agent in told if not ended[agent] and not over]
            observations = {agent: _values(values) for agent, (values, _, _) in told.items()}
            rewards = {agent: float(setup.reward(info)) for agent, info in infos.items()}
            return observations, rewards, ended, cut, infos

    return cast(Any, Parallel())


_gym.register()
