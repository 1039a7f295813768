//! All runs of all questions on all cores; what was measured goes to the judges in the order of the
//! plans.

use std::path::PathBuf;

use ccplane_algorithms::{Parameters, Registry};
use ccplane_units::Duration;

use super::measured::Measured;
use super::question::{Answer, Outcomes, Plan, Question, Run, Setting, Verdict};
use super::{Evaluation, QUESTIONS};
use crate::contender::Contender;
use crate::error::Error;
use crate::jobs;
use crate::parts::Parts;
use crate::progress::{Pieces, Progress};
use crate::run::{self, Backend};
use crate::scenario::{Scenario, Topology};
use crate::transport::native;

/// Whom to ask what, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The algorithm.
    pub algorithm: Contender,
    /// The questions by their names; none for all.
    pub only: Vec<String>,
    /// Shorter and fewer runs.
    pub quick: bool,
    /// Threads of the simulator.
    pub threads: usize,
    /// Where finished runs are kept until all are done, so that an interrupted evaluation goes on
    /// from there. `None` keeps nothing.
    pub parts: Option<PathBuf>,
    /// The command line that does this again.
    pub command: String,
}

/// Longest run in real time. A longer one would make an evaluation take hours; a shorter one has
/// too few round trips on long paths.
const LONGEST_REAL: Duration = Duration::from_secs(30);

/// Answers the questions. The simulator answers all. Real packets answer those whose runs they keep
/// up with, one run after the other.
pub fn run(
    options: &Options,
    backend: &dyn Backend,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Evaluation, Error> {
    let setting = setting(options, backend, registry)?;
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
    let run_once = jobs
        .iter()
        .enumerate()
        .filter(|(at, job)| first(&jobs, job) == *at);
    let duration_s = run_once
        .map(|(_, job)| job.run.scenario.duration.as_secs_f64())
        .sum();
    let results = all(&jobs, options, backend, registry, progress)?;
    let mut results = jobs.iter().zip(results).peekable();

    let mut answers = Vec::new();
    let mut complaints = Vec::new();
    for (question, plan) in &asked {
        let mut outcomes = Vec::new();
        let mut broken = None;
        while let Some((job, outcome)) =
            results.next_if(|(job, _)| job.question.name == question.name)
        {
            match outcome {
                Ok(measured) => {
                    let all = measured.complaints.iter();
                    complaints
                        .extend(all.map(|what| (question.name, job.run.key.clone(), what.clone())));
                    outcomes.push((job.run.key.clone(), measured));
                }
                Err(why) => {
                    broken = broken.or(Some(format!("the run {} broke: {why}", job.run.key)))
                }
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
        datapath: backend.name(),
        quick: options.quick,
        answers,
        left_out,
        complaints,
        duration_s,
    })
}

fn setting(
    options: &Options,
    backend: &dyn Backend,
    registry: &Registry,
) -> Result<Setting, Error> {
    match &options.algorithm {
        // A control of the datapath's own: the simulator is asked now, the kernel when the first
        // run begins.
        Contender::Native { name } if !backend.is_real() => drop(native(name)?),
        Contender::Native { .. } => {}
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
        algorithm: options.algorithm.clone(),
        quick: options.quick,
        bbr,
    })
}

/// Checks the algorithm and the questions without running anything.
pub fn check(options: &Options, backend: &dyn Backend, registry: &Registry) -> Result<(), Error> {
    setting(options, backend, registry)?;
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
    question: &'p Question,
    run: &'p Run,
    cost: u64,
}

/// The first of the jobs that are the same run. Questions ask of one place what another asks too,
/// and a run is a function of its scenario.
fn first(jobs: &[Job], job: &Job) -> usize {
    let same = |other: &Job| {
        let (one, other) = (&job.run.scenario, &other.run.scenario);
        one.duration == other.duration && one.text == other.text
    };
    jobs.iter().position(same).unwrap_or_default()
}

/// About how many packets a run sends, which is what it costs.
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
    // A run of few packets still costs its looks at flows.
    (rate as f64 * scenario.duration.as_secs_f64() / 1_500.0) as u64 + 10_000
}

/// Runs them, each run once and the most expensive first so that no thread is left with one at the
/// end; what came of them, in their order.
fn all(
    jobs: &[Job],
    options: &Options,
    backend: &dyn Backend,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Vec<Result<Measured, String>>, Error> {
    let firsts: Vec<usize> = jobs.iter().map(|job| first(jobs, job)).collect();
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

/// One run, or what was kept of it. An algorithm that breaks is an outcome; what else goes wrong is
/// an error.
fn one(
    job: &Job,
    options: &Options,
    backend: &dyn Backend,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Result<Measured, String>, Error> {
    let name = format!("{}.{}.json", job.question.name, job.run.key);
    let key = format!(
        "{} {} {}\n{}",
        backend.name(),
        options.algorithm,
        job.run.scenario.duration,
        job.run.scenario.text
    );
    if let Some(directory) = &options.parts
        && let Some(measured) = Parts::of_this_build(directory).kept(&name, &key)
    {
        return Ok(Ok(measured));
    }
    let once = run::RunOptions::single(1, &options.command);
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
            question: &QUESTIONS[0],
            run,
            cost: 1,
        });
        assert_eq!(jobs.each_ref().map(|job| first(&jobs, job)), [0, 1, 0]);
    }
}
