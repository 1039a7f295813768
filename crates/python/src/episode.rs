//! Simulation stepped from decision to decision, and the flow state of a policy on any datapath.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ccplane_agent::{Fields, box_algorithm};
use ccplane_algorithms::Registry;
use ccplane_algorithms::external::{
    self, ActionKind, ActionMapper, ControlledFlow, ControlledFlows, Decision, ExternalControl,
    Feature, Observer, ProgramTotals, StepInterval, StepSize,
};
use ccplane_lab::scenario::Scenario;
use ccplane_units::{Duration, Time};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::Error;
use crate::algorithm::{register, with_files};
use crate::experiment::failed;

/// Columns of the intervals returned by a step. `link_…` columns are ground truth of the link; the
/// last two are rewards.
pub(crate) const COLUMNS: [&str; 13] = [
    "elapsed",
    "goodput",
    "rtt",
    "base",
    "loss",
    "send_ratio",
    "cwnd",
    "in_flight",
    "timeouts",
    "link_rate",
    "link_rtt",
    "power",
    "aurora",
];

/// Maximum virtual time to wait for a decision. A flow silent for longer stays so until it ends.
const STEP_MAX: Duration = Duration::from_secs(10);

/// Decision interval, observation and action of a policy, in the simulator and on real packets.
#[derive(Clone)]
struct Spec {
    step: StepSize,
    features: Vec<Feature>,
    history: usize,
    act: ActionKind,
}

impl Spec {
    fn read(step: &str, observe: &[String], history: usize, act: &str) -> PyResult<Spec> {
        let wrong = |what: &str, why: String| PyValueError::new_err(format!("{what}: {why}"));
        if observe.is_empty() || history == 0 {
            return Err(wrong(
                "observe",
                "an observation needs at least one feature and one step".to_owned(),
            ));
        }
        Ok(Spec {
            step: step_size(step)?,
            features: observe
                .iter()
                .map(|name| name.parse().map_err(|why| wrong("observe", why)))
                .collect::<PyResult<_>>()?,
            history,
            act: act.parse().map_err(|why| wrong("act", why))?,
        })
    }

    fn player(&self, mss: u64, init_cwnd: u64) -> Player {
        Player {
            observer: Observer::new(&self.features, self.history),
            actor: ActionMapper::new(self.act, mss, init_cwnd),
        }
    }
}

/// Flow controlled by a policy.
struct Player {
    observer: Observer,
    actor: ActionMapper,
}

impl Player {
    fn decide(&mut self, action: &[f32]) -> Decision {
        self.actor.decide(action, self.observer.interval())
    }
}

/// Flow of a policy on any datapath: turns reports into observations, and actions into windows.
#[pyclass(module = "ccplane", frozen)]
pub(crate) struct PolicyFlow(Mutex<Player>);

#[pymethods]
impl PolicyFlow {
    #[new]
    fn new(
        step: &str,
        observe: Vec<String>,
        history: usize,
        act: &str,
        mss: u64,
        init_cwnd: u64,
    ) -> PyResult<PolicyFlow> {
        Ok(PolicyFlow(Mutex::new(
            Spec::read(step, &observe, history, act)?.player(mss, init_cwnd),
        )))
    }

    /// Returns the observation after a report, given as its fields followed by `urgent` and
    /// `now_us`.
    fn observe<'py>(&self, py: Python<'py>, report: Vec<u64>) -> PyResult<Bound<'py, PyBytes>> {
        let wrong = || PyValueError::new_err("not a report of a policy's program");
        let (totals, rest) = report
            .split_at_checked(ProgramTotals::NAMES.len())
            .ok_or_else(wrong)?;
        let (totals, [_, now]) = (ProgramTotals::read(totals).ok_or_else(wrong)?, rest) else {
            return Err(wrong());
        };
        let mut player = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        player
            .observer
            .observe(Time::from_nanos(now.saturating_mul(1000)), &totals);
        Ok(bytes_of(py, player.observer.values()))
    }

    /// Converts an action to a window in bytes and a pacing rate in bytes per second; 0 means
    /// unset.
    fn decide(&self, action: Vec<f32>) -> (u64, u64) {
        let decision = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .decide(&action);
        let cwnd = decision.cwnd.map_or(0, |cwnd| cwnd.get());
        (cwnd, decision.rate.map_or(0, |rate| rate.bytes_per_sec()))
    }
}

/// Returns the datapath program of policies with this decision interval.
#[pyfunction]
pub(crate) fn policy_program(step: &str) -> PyResult<String> {
    Ok(step_size(step)?.program())
}

/// Returns the length of a decision interval in seconds, or `None` if it depends on the RTT.
#[pyfunction]
pub(crate) fn step_seconds(step: &str) -> PyResult<Option<f64>> {
    Ok(match step_size(step)? {
        StepSize::Every(interval) => Some(interval.as_secs_f64()),
        StepSize::RoundTrip | StepSize::Report => None,
    })
}

fn step_size(step: &str) -> PyResult<StepSize> {
    step.parse()
        .map_err(|why: String| PyValueError::new_err(format!("step is `{step}`: {why}")))
}

/// Returns the names of the features and of the interval columns.
#[pyfunction]
pub(crate) fn policy_names() -> (Vec<&'static str>, Vec<&'static str>) {
    (
        Feature::ALL.iter().map(|(_, name)| *name).collect(),
        COLUMNS.to_vec(),
    )
}

/// Simulation with externally controlled windows of its contender.
#[pyclass(module = "ccplane", frozen)]
pub(crate) struct Episode {
    spec: Spec,
    classes: Vec<Py<PyAny>>,
    folder: PathBuf,
    live: Mutex<Option<LiveEpisode>>,
}

struct LiveEpisode {
    spec: Spec,
    episode: ccplane_lab::sim::Episode,
    flows: ControlledFlows,
    players: Vec<Player>,
    /// Per player: true if it has a new observation to decide on.
    fresh: Vec<bool>,
}

/// Result of a step of one flow.
struct StepOutcome {
    values: Vec<f32>,
    interval: [f64; COLUMNS.len()],
    ended: bool,
}

/// Returns true if a flow has delivered all its data, or was abandoned.
fn is_finished(seat: &ControlledFlow, episode: &ccplane_lab::sim::Episode) -> bool {
    seat.closed || episode.is_finished(seat.flow.flow)
}

impl LiveEpisode {
    /// Runs until one flow (or, with `each`, every live flow) has a new observation, or until no
    /// more are expected.
    fn advance(&mut self, each: bool) -> Result<(), ccplane_lab::Error> {
        self.fresh.fill(false);
        // With `each`, gaps without a live flow are skipped until the next flow starts.
        let latest = if each {
            Time::MAX
        } else {
            self.episode.now() + STEP_MAX
        };
        while self.episode.run(latest)? {
            let mut seats = self.flows.lock();
            for seat in &seats[self.players.len()..] {
                let player = self
                    .spec
                    .player(seat.info.mss.get(), seat.info.init_cwnd.get());
                self.players.push(player);
                self.fresh.push(false);
            }
            for ((seat, player), fresh) in
                seats.iter_mut().zip(&mut self.players).zip(&mut self.fresh)
            {
                if let Some((now, totals)) = seat.due.take() {
                    player.observer.observe(now, &totals);
                    *fresh = true;
                }
            }
            let ended = |seat: &ControlledFlow| is_finished(seat, &self.episode);
            let mut open = seats
                .iter()
                .zip(&self.fresh)
                .filter(|(seat, _)| !ended(seat))
                .peekable();
            let enough = match each {
                true => open.peek().is_some() && open.all(|(_, fresh)| *fresh),
                false => seats.first().is_some_and(ended) || open.any(|(_, fresh)| *fresh),
            };
            if enough {
                break;
            }
        }
        Ok(())
    }

    /// Sets the action of a flow; it takes effect when the simulation resumes.
    fn decide(&mut self, n: usize, action: &[f32]) {
        if let (Some(player), Some(seat)) = (self.players.get_mut(n), self.flows.lock().get_mut(n))
        {
            seat.decide(player.decide(action));
        }
    }

    fn is_over(&self) -> bool {
        self.episode.now() >= self.episode.end
    }

    fn outcome(&self, n: usize) -> StepOutcome {
        let now = self.players[n].observer.interval();
        let (rate, rtt) = (
            self.episode.rate.bytes_per_sec() as f64,
            self.episode.rtt.as_secs_f64(),
        );
        StepOutcome {
            values: self.players[n].observer.values().to_vec(),
            interval: [
                now.elapsed,
                now.goodput,
                now.rtt,
                now.min_rtt,
                now.loss,
                now.send_ratio,
                now.cwnd,
                now.in_flight,
                now.timeouts,
                rate,
                rtt,
                power(now, rate, rtt),
                aurora(now),
            ],
            ended: self
                .flows
                .lock()
                .get(n)
                .is_none_or(|seat| is_finished(seat, &self.episode)),
        }
    }
}

/// Kleinrock's power of the link, from 0 to 1: utilisation, times base RTT over measured RTT.
fn power(now: &StepInterval, rate: f64, rtt: f64) -> f64 {
    let used = if rate > 0.0 {
        (now.goodput / rate).min(1.0)
    } else {
        0.0
    };
    let longest = now.rtt.max(rtt);
    if longest > 0.0 {
        used * rtt / longest
    } else {
        0.0
    }
}

/// Reward of Aurora: 10 · throughput − 1000 · latency − 2000 · loss, in packets of 1,500 bytes per
/// second and in seconds (Jay et al., ICML 2019, section 4.2, with the weights of their published
/// code).
fn aurora(now: &StepInterval) -> f64 {
    10.0 * now.goodput / 1500.0 - 1e3 * now.rtt - 2e3 * now.loss
}

impl Episode {
    fn lock(&self) -> MutexGuard<'_, Option<LiveEpisode>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the action to the only flow and runs to its next decision. Returns true if time is
    /// up.
    fn step_one(&self, action: &[f32]) -> Result<(StepOutcome, bool), String> {
        let mut live = self.lock();
        let live = live.as_mut().ok_or("call reset() before step()")?;
        live.decide(0, action);
        live.advance(false).map_err(|why| why.to_string())?;
        let turn = live.outcome(0);
        let over = live.is_over() && !turn.ended;
        Ok((turn, over))
    }
}

/// Observation, interval, and true if the flow has ended.
type StepResult<'py> = (Bound<'py, PyBytes>, [f64; COLUMNS.len()], bool);

impl StepOutcome {
    fn to_py<'py>(&self, py: Python<'py>) -> StepResult<'py> {
        (bytes_of(py, &self.values), self.interval, self.ended)
    }
}

#[pymethods]
impl Episode {
    #[new]
    fn new(
        step: &str,
        observe: Vec<String>,
        history: usize,
        act: &str,
        classes: Vec<Py<PyAny>>,
        folder: PathBuf,
    ) -> PyResult<Episode> {
        Ok(Episode {
            spec: Spec::read(step, &observe, history, act)?,
            classes,
            folder,
            live: Mutex::new(None),
        })
    }

    /// Starts an episode of a scenario, given as text, name or path, with an externally controlled
    /// contender. Returns the number of flows that await a decision.
    fn reset(
        &self,
        py: Python<'_>,
        given: &str,
        is_text: bool,
        seed: u64,
        each: bool,
    ) -> PyResult<usize> {
        let classes: Vec<_> = self
            .classes
            .iter()
            .map(|class| class.bind(py).clone())
            .collect();
        let registry = with_files(register(Registry::builtin(), &classes)?);
        let scenario = crate::experiment::scenario(given, is_text, &self.folder)?;
        let seats = ControlledFlows::default();
        let (theirs, step) = (seats.clone(), self.spec.step);
        let registry = registry.add(external::DOC, move |_| {
            Ok(box_algorithm(ExternalControl::new(step, theirs.clone())))
        });
        let begun = py.detach(|| {
            let scenario = Scenario {
                contenders: vec![
                    external::DOC
                        .name
                        .parse()
                        .map_err(|_| ccplane_lab::Error::NoContender)?,
                ],
                ..scenario
            };
            let mut live = LiveEpisode {
                spec: self.spec.clone(),
                episode: ccplane_lab::sim::Episode::new(&scenario, &registry, seed)?,
                flows: seats,
                players: Vec::new(),
                fresh: Vec::new(),
            };
            live.advance(each)?;
            Ok(live)
        });
        let live = begun.map_err(failed)?;
        let count = live.players.len();
        *self.lock() = Some(live);
        Ok(count)
    }

    /// Returns the current observation and interval of flow `n`.
    fn look<'py>(&self, py: Python<'py>, n: usize) -> PyResult<StepResult<'py>> {
        let live = self.lock();
        let live = live.as_ref().filter(|live| n < live.players.len());
        Ok(live
            .ok_or_else(|| Error::new_err("unknown flow"))?
            .outcome(n)
            .to_py(py))
    }

    /// Applies the action to the only flow and runs to its next decision. Returns the observation,
    /// the interval, true if the flow has ended, and true if time is up.
    fn step<'py>(&self, py: Python<'py>, action: Vec<f32>) -> PyResult<(StepResult<'py>, bool)> {
        let (turn, over) = py
            .detach(|| self.step_one(&action))
            .map_err(Error::new_err)?;
        Ok((turn.to_py(py), over))
    }

    /// Applies actions to several flows and runs until every live flow has a new observation.
    /// Returns the number of flows so far, and true if time is up.
    fn step_each(
        &self,
        py: Python<'_>,
        actions: Vec<(usize, Vec<f32>)>,
    ) -> PyResult<(usize, bool)> {
        py.detach(|| {
            let mut live = self.lock();
            let live = live
                .as_mut()
                .ok_or_else(|| "call reset() before step()".to_owned())?;
            for (n, action) in &actions {
                live.decide(*n, action);
            }
            live.advance(true).map_err(|why| why.to_string())?;
            Ok((live.players.len(), live.is_over()))
        })
        .map_err(|why: String| Error::new_err(why))
    }

    /// Hash of all events so far.
    #[getter]
    fn digest(&self) -> Option<String> {
        Some(format!("{:016x}", self.lock().as_ref()?.episode.digest()))
    }
}

/// Steps many simulations on at most `threads` threads. Returns the concatenated observations and
/// intervals, and two arrays of flags: the flow has ended, and time is up.
#[pyfunction]
pub(crate) fn step_many<'py>(
    py: Python<'py>,
    episodes: Vec<Py<Episode>>,
    actions: Vec<Vec<f32>>,
    threads: usize,
) -> PyResult<[Bound<'py, PyBytes>; 4]> {
    if episodes.len() != actions.len() {
        let text = format!(
            "{} environments, but {} actions",
            episodes.len(),
            actions.len()
        );
        return Err(PyValueError::new_err(text));
    }
    let jobs: Vec<(&Episode, &[f32])> = episodes
        .iter()
        .map(|e| e.get())
        .zip(actions.iter().map(|a| &**a))
        .collect();
    let outcomes = py.detach(|| {
        let share = jobs.len().div_ceil(threads.max(1)).max(1);
        let run = |jobs: &[(&Episode, &[f32])]| -> Vec<_> {
            jobs.iter().map(|(e, a)| e.step_one(a)).collect()
        };
        std::thread::scope(|scope| {
            let mut shares = jobs.chunks(share);
            let ours = shares.next().unwrap_or_default();
            let others: Vec<_> = shares.map(|jobs| scope.spawn(move || run(jobs))).collect();
            let mut outcomes = run(ours);
            for other in others {
                // Propagate a panic of the worker.
                outcomes.extend(
                    other
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                );
            }
            outcomes
        })
    });
    let (mut values, mut intervals, mut ended, mut over) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for outcome in outcomes {
        let (turn, up) = outcome.map_err(Error::new_err)?;
        values.extend(turn.values.iter().flat_map(|value| value.to_ne_bytes()));
        intervals.extend(turn.interval.iter().flat_map(|value| value.to_ne_bytes()));
        ended.push(u8::from(turn.ended));
        over.push(u8::from(up));
    }
    let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
    Ok([
        bytes(&values),
        bytes(&intervals),
        bytes(&ended),
        bytes(&over),
    ])
}

fn bytes_of<'py>(py: Python<'py>, values: &[f32]) -> Bound<'py, PyBytes> {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect();
    PyBytes::new(py, &bytes)
}
