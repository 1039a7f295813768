//! All runs of all questions on all cores; what was measured goes to the judges in the order of the plans.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use ccplane_algorithms::{Parameters, Registry};
use ccplane_units::Duration;

use super::{Answer, Evaluation, Measured, Outcomes, Plan, QUESTIONS, Question, Run, Setting, Verdict};
use crate::error::Error;
use crate::experiment::Contender;
use crate::parts::Parts;
use crate::scenario::{Scenario, Seeds, Topology};
use crate::sim;

/// Where the runs take place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datapath {
    /// The simulator: every question, in virtual time.
    Sim,
    /// This host's kernel TCP behind an emulated link: the questions whose runs have one algorithm on one link, in real
    /// time, one run after the other.
    Linux,
}

/// Whom to ask what, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The algorithm.
    pub algorithm: Contender,
    /// The questions by their names; none for all.
    pub only: Vec<String>,
    /// Shorter and fewer runs.
    pub quick: bool,
    /// Where.
    pub datapath: Datapath,
    /// Threads of the simulator.
    pub threads: usize,
    /// Where finished runs are kept until all are done, so that an interrupted evaluation goes on from there. `None`
    /// keeps nothing.
    pub parts: Option<PathBuf>,
    /// The command line that does this again.
    pub command: String,
}

/// What a caller may show and decide; called from every thread.
pub trait Watch: Sync {
    /// So much of the work is done, 0 to 1; this question's run was the last to go on.
    fn advanced(&self, _share: f64, _question: &str) {}
    /// Whether to stop now.
    fn cancelled(&self) -> bool {
        false
    }
}

impl Watch for crate::run::Quiet {}

/// Kernel TCP takes as long as it says: its questions are asked in at most this much time a run.
const LONGEST_REAL: Duration = Duration::from_secs(30);
/// What the emulator keeps up with on any machine that it is tested on (docs/emulator.md); faster links are simulated only.
const FASTEST_REAL_MBIT: f64 = 1_000.0;

/// Asks, and judges.
pub fn run(options: &Options, registry: &Registry, watch: &dyn Watch) -> Result<Evaluation, Error> {
    let setting = setting(options, registry)?;
    let mut left_out = Vec::new();
    let mut asked: Vec<(&'static Question, Plan)> = Vec::new();
    for question in wanted(&options.only)? {
        match (question.plan)(&setting) {
            Plan::Runs(runs) if options.datapath == Datapath::Linux => match real(runs) {
                Some(runs) => asked.push((question, Plan::Runs(runs))),
                None => left_out.push(question.name),
            },
            plan => asked.push((question, plan)),
        }
    }
    let jobs: Vec<Job> = asked
        .iter()
        .flat_map(|(question, plan)| {
            let runs = match plan {
                Plan::Runs(runs) => runs.as_slice(),
                Plan::Cannot(_) => &[],
            };
            runs.iter().map(|run| Job {
                question,
                run,
                cost: cost(&run.scenario),
            })
        })
        .collect();
    let duration_s = jobs.iter().map(|job| job.run.scenario.duration.as_secs_f64()).sum();
    let results = all(&jobs, options, registry, watch)?;
    let mut results = jobs.iter().zip(results).peekable();

    let mut answers = Vec::new();
    let mut complaints = Vec::new();
    for (question, plan) in &asked {
        let mut outcomes = Vec::new();
        let mut broken = None;
        while let Some((job, outcome)) = results.next_if(|(job, _)| job.question.name == question.name) {
            match outcome {
                Ok(measured) => {
                    let all = measured.complaints.iter();
                    complaints.extend(all.map(|what| (question.name, job.run.key.clone(), what.clone())));
                    outcomes.push((job.run.key.clone(), measured));
                }
                Err(why) => broken = broken.or(Some(format!("the run {} broke: {why}", job.run.key))),
            }
        }
        let answer = match (plan, broken) {
            (Plan::Cannot(why), _) => Answer::unanswered(why.clone()),
            // A panic or a standstill in somebody's algorithm is an answer, too.
            (Plan::Runs(_), Some(why)) => Answer {
                verdict: Verdict::Fail,
                ..Answer::unanswered(why)
            },
            (Plan::Runs(_), None) => (question.judge)(&setting, &Outcomes(outcomes)),
        };
        answers.push((*question, answer));
    }
    Ok(Evaluation {
        algorithm: setting.name(),
        about: registry
            .docs()
            .find(|doc| doc.name == options.algorithm.algorithm())
            .map_or(String::new(), |doc| doc.doc.to_owned()),
        command: options.command.clone(),
        datapath: match options.datapath {
            Datapath::Sim => "simulator",
            Datapath::Linux => "Linux TCP",
        },
        quick: options.quick,
        answers,
        left_out,
        complaints,
        duration_s,
    })
}

fn setting(options: &Options, registry: &Registry) -> Result<Setting, Error> {
    match &options.algorithm {
        // A control of the datapath's own: the simulator is asked now, the kernel when the first run begins.
        Contender::Native { name } if options.datapath == Datapath::Sim => sim::known_control(name)?,
        Contender::Native { .. } => {}
        Contender::Ccplane { name, parameters } => {
            let parameters = parameters
                .iter()
                .fold(Parameters::new(), |all, (name, value)| all.with(name, value));
            registry.by_name(name, &parameters)?;
        }
    }
    let bbr = registry
        .names()
        .any(|name| name == "bbr")
        .then(|| Contender::ccplane("bbr"));
    Ok(Setting {
        algorithm: options.algorithm.clone(),
        quick: options.quick,
        bbr,
    })
}

fn wanted(only: &[String]) -> Result<Vec<&'static Question>, Error> {
    for name in only {
        if super::by_name(name).is_none() {
            let known: Vec<&str> = QUESTIONS.iter().map(|question| question.name).collect();
            return Err(Error::UnknownQuestion {
                name: name.clone(),
                near: crate::suggestions(name, known.iter().copied())
                    .into_iter()
                    .map(str::to_owned)
                    .collect(),
                known: known.into_iter().map(str::to_owned).collect(),
            });
        }
    }
    Ok(QUESTIONS
        .iter()
        .filter(|question| only.is_empty() || only.iter().any(|name| name == question.name))
        .collect())
}

/// The runs for kernel TCP, shortened to real time; none where one of them cannot be there.
fn real(mut runs: Vec<Run>) -> Option<Vec<Run>> {
    // What it is compared with is the kernel's own there, under the same names.
    for run in &mut runs {
        run.scenario.duration = run.scenario.duration.min(LONGEST_REAL);
        let experiment = crate::on_real_packets(&run.scenario, Seeds::one(1), String::new()).ok()?;
        let mbit = experiment.line.mean_rate()?.bytes_per_sec() as f64 * 8.0 / 1e6;
        if mbit > FASTEST_REAL_MBIT {
            return None;
        }
    }
    Some(runs)
}

struct Job<'p> {
    question: &'p Question,
    run: &'p Run,
    cost: u64,
}

/// About how many packets a run sends, which is what it costs.
fn cost(scenario: &Scenario) -> u64 {
    let rate = match &scenario.topology {
        Topology::Dumbbell { bottleneck, .. } => bottleneck.line.mean_rate(),
        Topology::Graph { links, .. } => links.iter().filter_map(|link| link.link.line.mean_rate()).min(),
        _ => None,
    };
    let rate = rate.map_or(12_000_000, |rate| rate.bytes_per_sec());
    // A run of few packets still costs its looks at flows.
    (rate as f64 * scenario.duration.as_secs_f64() / 1_500.0) as u64 + 10_000
}

/// Runs them, the most expensive first so that no thread is left with one at the end; what came of them, in their order.
fn all(
    jobs: &[Job],
    options: &Options,
    registry: &Registry,
    watch: &dyn Watch,
) -> Result<Vec<Result<Measured, String>>, Error> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    let cost = |at: &usize| jobs.get(*at).map_or(0, |job| job.cost);
    order.sort_by_key(|at| std::cmp::Reverse(cost(at)));
    let total: u64 = jobs.iter().map(|job| job.cost).sum();
    let results: Vec<Mutex<Option<Result<Measured, String>>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    let failed = Mutex::new(None::<Error>);
    let stop = AtomicBool::new(false);
    let worker = || {
        while !stop.load(Ordering::Relaxed) {
            let Some(at) = order.get(next.fetch_add(1, Ordering::Relaxed)) else {
                return;
            };
            let (Some(job), Some(place)) = (jobs.get(*at), results.get(*at)) else {
                return;
            };
            let meter = Meter {
                job,
                watch,
                done: &done,
                total,
                stop: &stop,
                told: AtomicU64::new(0),
            };
            match one(job, options, registry, &meter) {
                Ok(outcome) => {
                    meter.finish();
                    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
                }
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                    // Others stop because of the first: what they say is no news.
                    if failed.is_none() {
                        *failed = Some(error);
                    }
                    return;
                }
            }
        }
    };
    let threads = match options.datapath {
        Datapath::Sim => options.threads,
        Datapath::Linux => 1,
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(jobs.len()) {
            scope.spawn(worker);
        }
        worker();
    });
    if let Some(error) = failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let each = results.into_iter().map(|place| {
        let outcome = place.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcome.ok_or(Error::Interrupted)
    });
    each.collect()
}

/// One run, or what was kept of it. An algorithm that breaks is an outcome; what else goes wrong is an error.
fn one(job: &Job, options: &Options, registry: &Registry, meter: &Meter) -> Result<Result<Measured, String>, Error> {
    let name = format!("{}.{}.json", job.question.name, job.run.key);
    let key = format!(
        "{:?} {} {}\n{}",
        options.datapath, options.algorithm, job.run.scenario.duration, job.run.scenario.text
    );
    if let Some(directory) = &options.parts
        && let Some(measured) = Parts::of_this_build(directory).kept(&name, &key)
    {
        return Ok(Ok(measured));
    }
    let scenario = &job.run.scenario;
    let result = match options.datapath {
        Datapath::Sim => sim::run(
            scenario,
            registry,
            &sim::Options {
                seeds: Seeds::one(1),
                threads: 1,
                command: String::new(),
                repeat: options.command.clone(),
                packet_logs: None,
            },
            meter,
        ),
        Datapath::Linux => crate::on_real_packets(scenario, Seeds::one(1), String::new())
            .and_then(|experiment| crate::run::run(&experiment, registry, &mut Real(meter))),
    };
    let measured = match result {
        Ok(result) => Measured::of(result).kept(),
        Err(Error::Broken { what, .. }) => return Ok(Err(what)),
        Err(error) => return Err(error),
    };
    if let Some(directory) = &options.parts {
        Parts::of_this_build(directory).keep(&name, &key, &measured)?;
    }
    Ok(Ok(measured))
}

/// From the progress of a run to that of all.
struct Meter<'a> {
    job: &'a Job<'a>,
    watch: &'a dyn Watch,
    done: &'a AtomicU64,
    total: u64,
    stop: &'a AtomicBool,
    /// Of this run's cost, what has been counted.
    told: AtomicU64,
}

impl Meter<'_> {
    fn add(&self, cost: u64) {
        let counted = self.told.load(Ordering::Relaxed);
        let cost = cost.min(self.job.cost.saturating_sub(counted));
        self.told.fetch_add(cost, Ordering::Relaxed);
        let done = self.done.fetch_add(cost, Ordering::Relaxed) + cost;
        self.watch
            .advanced(done as f64 / self.total.max(1) as f64, self.job.question.name);
    }

    fn finish(&self) {
        self.add(self.job.cost);
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.watch.cancelled()
    }
}

impl sim::Watch for Meter<'_> {
    fn advanced(&self, by: Duration) {
        let share = by.as_nanos() as f64 / self.job.run.scenario.duration.as_nanos().max(1) as f64;
        self.add((share * self.job.cost as f64) as u64);
    }

    fn cancelled(&self) -> bool {
        self.stopped()
    }
}

/// The same for a run in real time.
struct Real<'a>(&'a Meter<'a>);

impl crate::run::Progress for Real<'_> {
    fn step(&mut self, share: f64, _goodput_mbit: f64) {
        let counted = self.0.told.load(Ordering::Relaxed);
        self.0
            .add(((share * self.0.job.cost as f64) as u64).saturating_sub(counted));
    }

    fn cancelled(&self) -> bool {
        self.0.stopped()
    }
}
