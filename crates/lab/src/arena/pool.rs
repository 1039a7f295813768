//! The runs of a suite: on this process's threads, or those of one candidate in a process of its
//! own.

use std::path::Path;

use ccplane_algorithms::Registry;

use super::asked::Options;
use crate::contender::Contender;
use crate::error::Error;
use crate::evaluate::{Measured, Run, SEED};
use crate::jobs;
use crate::progress::{Pieces, Progress};
use crate::run::{self as runner, Backend};
use crate::scenario::Scenario;
use crate::sim::Sim;
use crate::sweep::ListedRun;

/// Where candidates run that are not trusted with this process.
pub trait Apart: Sync {
    /// Whether this one is such a candidate.
    fn takes(&self, contender: &Contender) -> bool;

    /// Runs these scenarios of this contender with [`simulate`]: what came of each, in their order,
    /// or why nothing can be said of it at all.
    fn run(
        &self,
        contender: &Contender,
        scenarios: &[&str],
        progress: &dyn Progress,
    ) -> Result<Vec<Outcome>, String>;
}

/// Nobody is.
impl Apart for () {
    fn takes(&self, _contender: &Contender) -> bool {
        false
    }

    fn run(
        &self,
        contender: &Contender,
        _scenarios: &[&str],
        _progress: &dyn Progress,
    ) -> Result<Vec<Outcome>, String> {
        Err(format!("nobody runs {contender} apart"))
    }
}

/// Figures, or how the algorithm broke.
pub type Outcome = Result<Measured, String>;

/// The run of a scenario in this process. An error is not the algorithm's.
pub fn simulate(
    scenario: &str,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Outcome, Error> {
    let scenario = Scenario::parse("run", scenario, Path::new(".")).map_err(Error::Scenario)?;
    outcome(&scenario, registry, progress)
}

fn outcome(
    scenario: &Scenario,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Outcome, Error> {
    let once = runner::RunOptions::single(SEED, "");
    match runner::run(&Sim::default(), scenario, registry, &once, progress) {
        Ok(result) => Ok(Ok(Measured::of(result))),
        Err(Error::Internal { what, .. }) => Ok(Err(what)),
        Err(error) => Err(error),
    }
}

/// What came of runs, by their keys.
#[derive(Default)]
pub(super) struct Outcomes {
    keyed: Vec<(String, Outcome)>,
    /// Contenders that ran apart, of whom nothing can be said, and why.
    failed: Vec<(Contender, String)>,
    /// All runs as rows of a table.
    pub listed: Vec<ListedRun>,
}

impl Outcomes {
    /// The run of that key, or a sentence on what became of it.
    pub fn of(&self, key: &str) -> Result<&Measured, String> {
        let found = self.keyed.iter().find(|(known, _)| known == key);
        match found {
            // What ran then was not the candidate.
            Some((_, Ok(measured))) => measured
                .own
                .first()
                .map_or(Ok(measured), |why| Err(why.clone())),
            Some((_, Err(why))) => Err(why.clone()),
            None => Err(format!("the run {key} is missing")),
        }
    }

    fn add(&mut self, part: &str, run: &Run, outcome: Outcome) {
        let listed = run.listed(part, Sim::default().name(), &outcome);
        self.listed.push(listed);
        self.keyed.push((run.key.clone(), outcome));
    }

    /// Why nothing can be said of this one, if that is so.
    pub fn failed(&self, contender: &Contender) -> Option<&str> {
        let found = self.failed.iter().find(|(known, _)| known == contender);
        found.map(|(_, why)| why.as_str())
    }
}

/// Where runs go.
pub(super) struct Pool<'a> {
    pub options: &'a Options,
    pub registry: &'a Registry,
    pub apart: &'a dyn Apart,
    pub progress: &'a dyn Progress,
}

impl Pool<'_> {
    /// The runs of all of these in a part of the suite; `runs` gives those of some, and of what
    /// everybody is compared with.
    pub fn all(
        &self,
        part: &str,
        contenders: &[Contender],
        runs: impl Fn(&[Contender]) -> Vec<Run>,
    ) -> Result<Outcomes, Error> {
        let (mut apart, here): (Vec<_>, Vec<_>) = contenders
            .iter()
            .cloned()
            .partition(|one| self.apart.takes(one));
        apart.dedup();
        let here = runs(&here);
        let own = |one: Contender| {
            let mut own = runs(std::slice::from_ref(&one));
            own.retain(|run| here.iter().all(|known| known.key != run.key));
            (one, own)
        };
        let apart: Vec<(Contender, Vec<Run>)> = apart.into_iter().map(own).collect();
        let count = here.len() + apart.iter().map(|(_, runs)| runs.len()).sum::<usize>();
        let pieces = Pieces::new(self.progress, count as u64);
        let mut outcomes = Outcomes::default();
        for (run, outcome) in here.iter().zip(self.here(&here, &pieces)?) {
            outcomes.add(part, run, outcome);
        }
        for ((contender, runs), found) in apart.iter().zip(self.apart(&apart, &pieces)?) {
            match found {
                Ok(found) => {
                    for (run, outcome) in runs.iter().zip(found) {
                        outcomes.add(part, run, outcome);
                    }
                }
                Err(why) => outcomes.failed.push((contender.clone(), why)),
            }
        }
        Ok(outcomes)
    }

    fn here(&self, runs: &[Run], pieces: &Pieces<'_>) -> Result<Vec<Outcome>, Error> {
        let work = |at: usize| {
            let this = runs.get(at).ok_or(Error::Interrupted)?;
            let piece = pieces.piece(1, &this.key);
            let outcome =
                outcome(&this.scenario, self.registry, &piece).inspect_err(|_| pieces.stop())?;
            piece.finish();
            Ok(outcome)
        };
        self.each(runs.len(), work)
    }

    fn apart(
        &self,
        all: &[(Contender, Vec<Run>)],
        pieces: &Pieces<'_>,
    ) -> Result<Vec<Result<Vec<Outcome>, String>>, Error> {
        let work = |at: usize| {
            let (contender, runs) = all.get(at).ok_or(Error::Interrupted)?;
            let piece = pieces.piece(runs.len() as u64, contender.to_string());
            let texts: Vec<&str> = runs.iter().map(|run| run.scenario.text.as_str()).collect();
            let found = self.apart.run(contender, &texts, &piece);
            if piece.is_cancelled() {
                return Err(Error::Interrupted);
            }
            piece.finish();
            Ok(found)
        };
        self.each(all.len(), work)
    }

    /// The results of so many jobs, in their order.
    fn each<T: Send>(
        &self,
        count: usize,
        work: impl Fn(usize) -> Result<T, Error> + Sync,
    ) -> Result<Vec<T>, Error> {
        let order: Vec<usize> = (0..count).collect();
        let mut results: Vec<Option<T>> = order.iter().map(|_| None).collect();
        jobs::each(&order, self.options.threads, work, |at, outcome| {
            if let Some(place) = results.get_mut(at) {
                *place = Some(outcome);
            }
            Ok(())
        })?;
        results
            .into_iter()
            .map(|outcome| outcome.ok_or(Error::Interrupted))
            .collect()
    }
}
