//! Makes all runs of all questions on all cores, and passes the results to the judges in the order
//! of the plans.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ccplane_algorithms::{Parameters, Registry};
use ccplane_units::Duration;

use super::measured::Measured;
use super::question::{Answer, Outcomes, Plan, Question, Run, SEED, Setting, Verdict};
use super::{Evaluation, Evaluations, QUESTIONS};
use crate::contender::Contender;
use crate::error::Error;
use crate::jobs;
use crate::parts::Parts;
use crate::progress::{Pieces, Progress};
use crate::run::{self, Backend};
use crate::scenario::{Scenario, Topology};
use crate::sweep::{RunTable, identity};
use crate::transport::native;

/// Options of an evaluation.
#[derive(Clone, Debug)]
pub struct Options {
    /// The algorithms. Those that are compared with the same reference share its runs.
    pub algorithms: Vec<Contender>,
    /// Names of the questions; empty for all.
    pub only: Vec<String>,
    /// True for shorter and fewer runs.
    pub quick: bool,
    /// Threads of the simulator.
    pub threads: usize,
    /// Folder of finished runs until all are finished, so that an interrupted evaluation continues.
    /// `None` stores nothing.
    pub parts: Option<PathBuf>,
    /// Command line that repeats the evaluation.
    pub command: String,
}

/// Longest run in real time. A longer one would make an evaluation take hours; a shorter one has
/// too few round trips on long paths.
const LONGEST_REAL: Duration = Duration::from_secs(30);

/// Answers the questions about every algorithm. The simulator answers all of them, real packets
/// those whose rates they support, one run after the other.
pub fn run(
    options: &Options,
    backend: &dyn Backend,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Evaluations, Error> {
    let mut inquiries = Vec::new();
    for algorithm in &options.algorithms {
        inquiries.push(Inquiry::new(algorithm, options, backend, registry)?);
    }
    let jobs: Vec<Job> = inquiries
        .iter()
        .enumerate()
        .flat_map(|(inquiry, of)| {
            of.runs().map(move |(question, run)| Job {
                inquiry,
                question,
                run,
                cost: cost(&run.scenario),
            })
        })
        .collect();
    let firsts = firsts(&jobs);
    let results = all(&jobs, &firsts, options, backend, registry, progress)?;
    let once = jobs.iter().zip(&results).zip(&firsts).enumerate();
    let rows = once
        .filter(|(at, (_, first))| at == *first)
        .map(|(_, ((job, outcome), _))| job.run.listed(job.question.name, backend.name(), outcome));
    let runs = RunTable::of_list(&["question", "case"], backend.name(), SEED, rows.collect())?;
    let mut results = jobs.iter().zip(results).peekable();
    let mut each = Vec::new();
    for (number, inquiry) in inquiries.iter().enumerate() {
        let mut own = Vec::new();
        while let Some(result) = results.next_if(|(job, _)| job.inquiry == number) {
            own.push(result);
        }
        each.push(inquiry.answered(own, options, backend, registry));
    }
    Ok(Evaluations { each, runs })
}

/// Questions about one algorithm, with their runs.
struct Inquiry {
    setting: Setting,
    asked: Vec<(&'static Question, Plan)>,
    left_out: Vec<&'static str>,
}

impl Inquiry {
    fn new(
        algorithm: &Contender,
        options: &Options,
        backend: &dyn Backend,
        registry: &Registry,
    ) -> Result<Inquiry, Error> {
        let setting = setting(algorithm, options.quick, backend, registry)?;
        let mut left_out = Vec::new();
        let mut asked: Vec<(&'static Question, Plan)> = Vec::new();
        for question in wanted(&options.only)? {
            match (question.plan)(&setting) {
                Plan::Runs(runs) if backend.is_real() => match real(runs, backend) {
                    Some(runs) => asked.push((question, Plan::Runs(runs))),
                    None => left_out.push(question.name),
                },
                plan => asked.push((question, plan)),
            }
        }
        Ok(Inquiry {
            setting,
            asked,
            left_out,
        })
    }

    fn runs(&self) -> impl Iterator<Item = (&'static Question, &Run)> {
        self.asked.iter().flat_map(|(question, plan)| {
            let runs = match plan {
                Plan::Runs(runs) => runs.as_slice(),
                Plan::Cannot(_) => &[],
            };
            runs.iter().map(move |run| (*question, run))
        })
    }

    /// Judges the results of the runs, which are in their order.
    fn answered(
        &self,
        results: Vec<(&Job<'_>, Result<Measured, String>)>,
        options: &Options,
        backend: &dyn Backend,
        registry: &Registry,
    ) -> Evaluation {
        let own: Vec<&Job<'_>> = results.iter().map(|(job, _)| *job).collect();
        let firsts = firsts(own.iter().copied());
        let once = own.iter().zip(&firsts).enumerate();
        let once = once.filter(|(at, (_, first))| at == *first);
        let duration_s = once
            .map(|(_, (job, _))| job.run.scenario.duration.as_secs_f64())
            .sum();
        let mut results = results.into_iter().peekable();
        let mut answers = Vec::new();
        let mut complaints = Vec::new();
        for (question, plan) in &self.asked {
            let mut outcomes = Vec::new();
            let mut broken = None;
            while let Some((job, outcome)) =
                results.next_if(|(job, _)| job.question.name == question.name)
            {
                match outcome {
                    Ok(measured) => {
                        let all = measured.complaints.iter();
                        complaints.extend(
                            all.map(|what| (question.name, job.run.key.clone(), what.clone())),
                        );
                        outcomes.push((job.run.key.clone(), measured));
                    }
                    Err(why) => {
                        broken = broken.or(Some(format!("the run {} broke: {why}", job.run.key)))
                    }
                }
            }
            let answer = match (plan, broken) {
                (Plan::Cannot(why), _) => Answer::unanswered(why.clone()),
                // A panic or a standstill of the algorithm is an answer, too.
                (Plan::Runs(_), Some(why)) => Answer {
                    verdict: Verdict::Fail,
                    ..Answer::unanswered(why)
                },
                (Plan::Runs(_), None) => (question.judge)(&self.setting, &Outcomes(outcomes)),
            };
            answers.push((*question, answer));
        }
        let name = self.setting.algorithm.algorithm();
        Evaluation {
            algorithm: self.setting.name(),
            about: registry
                .docs()
                .find(|doc| doc.name == name)
                .map_or(String::new(), |doc| doc.doc.to_owned()),
            command: options.command.clone(),
            datapath: backend.name(),
            quick: options.quick,
            answers,
            left_out: self.left_out.clone(),
            complaints,
            duration_s,
        }
    }
}

fn setting(
    algorithm: &Contender,
    quick: bool,
    backend: &dyn Backend,
    registry: &Registry,
) -> Result<Setting, Error> {
    match algorithm {
        // A native algorithm: checked now in the simulator, and by the kernel when the first run
        // begins.
        Contender::Native { name } if !backend.is_real() => drop(native(name)?),
        Contender::Remote { .. } if !backend.is_real() => {
            return Err(Error::remote_in_simulator(algorithm));
        }
        // Its agent is asked when the first run begins.
        Contender::Native { .. } | Contender::Remote { .. } => {}
        Contender::Ccplane { name, parameters } => {
            let parameters = parameters
                .iter()
                .fold(Parameters::new(), |all, (name, value)| {
                    all.with(name, value)
                });
            registry.by_name(name, &parameters)?;
        }
    }
    let bbr = registry
        .names()
        .any(|name| name == "bbr")
        .then(|| Contender::ccplane("bbr"));
    Ok(Setting {
        algorithm: algorithm.clone(),
        quick,
        bbr,
    })
}

/// Checks the algorithms and the questions without running anything.
pub fn check(options: &Options, backend: &dyn Backend, registry: &Registry) -> Result<(), Error> {
    for algorithm in &options.algorithms {
        setting(algorithm, options.quick, backend, registry)?;
    }
    wanted(&options.only).map(|_| ())
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

/// Returns the runs for real packets, shortened; `None` if one of them cannot run there. Native
/// controls are the datapath's own, under the same names.
fn real(mut runs: Vec<Run>, backend: &dyn Backend) -> Option<Vec<Run>> {
    for run in &mut runs {
        run.scenario.duration = run.scenario.duration.min(LONGEST_REAL);
    }
    runs.iter()
        .all(|run| backend.supports_rate(&run.scenario))
        .then_some(runs)
}

struct Job<'p> {
    /// Index of the algorithm.
    inquiry: usize,
    question: &'p Question,
    run: &'p Run,
    cost: u64,
}

/// Returns for each job the first one that is the same run: several questions and algorithms need
/// some runs, and a run is a function of its scenario.
fn firsts<'j, 'p: 'j>(jobs: impl IntoIterator<Item = &'j Job<'p>>) -> Vec<usize> {
    let mut known = BTreeMap::new();
    let jobs = jobs.into_iter().enumerate();
    jobs.map(|(at, job)| {
        let scenario = &job.run.scenario;
        *known
            .entry((scenario.duration, &*scenario.text))
            .or_insert(at)
    })
    .collect()
}

/// Returns the approximate number of packets of a run, which determines its cost.
fn cost(scenario: &Scenario) -> u64 {
    let rate = match &scenario.topology {
        Topology::Dumbbell { bottleneck, .. } => bottleneck.line.mean_rate(),
        Topology::Graph { links, .. } => links
            .iter()
            .filter_map(|link| link.link.line.mean_rate())
            .min(),
        _ => None,
    };
    let rate = rate.map_or(12_000_000, |rate| rate.bytes_per_sec());
    // A run of few packets still samples its flows.
    (rate as f64 * scenario.duration.as_secs_f64() / 1_500.0) as u64 + 10_000
}

/// Makes each run once, the most expensive first, so that no thread is left with a long one at the
/// end. Returns the results in the order of the jobs.
fn all(
    jobs: &[Job],
    firsts: &[usize],
    options: &Options,
    backend: &dyn Backend,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Vec<Result<Measured, String>>, Error> {
    let mut order: Vec<usize> = (0..jobs.len())
        .filter(|at| firsts.get(*at) == Some(at))
        .collect();
    let cost = |at: &usize| jobs.get(*at).map_or(0, |job| job.cost);
    order.sort_by_key(|at| std::cmp::Reverse(cost(at)));
    let pieces = Pieces::new(progress, order.iter().map(cost).sum());
    let mut results: Vec<Option<Result<Measured, String>>> = jobs.iter().map(|_| None).collect();
    let threads = if backend.is_real() {
        1
    } else {
        options.threads
    };
    let work = |at: usize| {
        let job = jobs.get(at).ok_or(Error::Interrupted)?;
        let piece = pieces.piece(job.cost, job.question.name);
        let outcome =
            one(job, options, backend, registry, &piece).inspect_err(|_| pieces.stop())?;
        piece.finish();
        Ok(outcome)
    };
    jobs::each(&order, threads, work, |at, outcome| {
        if let Some(place) = results.get_mut(at) {
            *place = Some(outcome);
        }
        Ok(())
    })?;
    let found = |first: &usize| {
        results
            .get(*first)
            .cloned()
            .flatten()
            .ok_or(Error::Interrupted)
    };
    firsts.iter().map(found).collect()
}

/// Makes a run, or returns its stored results. A failure of the algorithm is an outcome, any other
/// failure an error.
fn one(
    job: &Job,
    options: &Options,
    backend: &dyn Backend,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Result<Measured, String>, Error> {
    let id = identity(&job.run.scenario, backend.name(), SEED);
    let name = format!("{id}.json");
    // On real packets runs are shorter than their scenario says.
    let key = job.run.scenario.duration.to_string();
    if let Some(directory) = &options.parts
        && let Some(measured) = Parts::of_this_build(directory).kept(&name, &key)
    {
        return Ok(Ok(measured));
    }
    let once = run::RunOptions::single(SEED, &options.command);
    let result = run::run(backend, &job.run.scenario, registry, &once, progress);
    let measured = match result {
        Ok(result) => Measured::of(result).kept(),
        Err(Error::Internal { what, .. }) => return Ok(Err(what)),
        Err(error) => return Err(error),
    };
    if let Some(directory) = &options.parts {
        Parts::of_this_build(directory).keep(&name, &key, &measured)?;
    }
    Ok(Ok(measured))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluate::Sketch;

    #[test]
    fn what_two_questions_ask_for_is_run_once() {
        let run = |seconds, key: &str| {
            let link = Sketch::dumbbell("10mbit", "20ms", "droptail:1bdp").seconds(seconds);
            link.flow("native:cubic", "bulk = {}", "").run(key)
        };
        let runs = [run(1.0, "a"), run(2.0, "b"), run(1.0, "c")];
        let jobs = runs.each_ref().map(|run| Job {
            inquiry: 0,
            question: &QUESTIONS[0],
            run,
            cost: 1,
        });
        assert_eq!(firsts(&jobs), [0, 1, 0]);
    }
}
