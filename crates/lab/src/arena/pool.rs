//! Runs of a suite, on the threads of this process or, for an untrusted candidate, in a separate
//! process.

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

/// Processes for untrusted candidates.
pub trait Apart: Sync {
    /// Returns true for an untrusted candidate.
    fn takes(&self, contender: &Contender) -> bool;

    /// Runs the scenarios of this contender with [`simulate`]. Returns the outcomes in their order,
    /// or the reason that there are none.
    fn run(
        &self,
        contender: &Contender,
        scenarios: &[&str],
        progress: &dyn Progress,
    ) -> Result<Vec<Outcome>, String>;
}

/// Trusts every candidate.
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

/// Results of a run, or the failure of the algorithm.
pub type Outcome = Result<Measured, String>;

/// Runs a scenario in this process. An error is not caused by the algorithm.
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

/// Outcomes of runs by their keys.
#[derive(Default)]
pub(super) struct Outcomes {
    keyed: Vec<(String, Outcome)>,
    /// Contenders without outcomes from their separate process, with the reason.
    failed: Vec<(Contender, String)>,
    /// All runs as rows of a table.
    pub listed: Vec<ListedRun>,
}

impl Outcomes {
    /// Returns the results of a run, or a sentence with the reason that there are none.
    pub fn of(&self, key: &str) -> Result<&Measured, String> {
        let found = self.keyed.iter().find(|(known, _)| known == key);
        match found {
            // The fallback ran in place of the candidate.
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

    /// Returns the reason that a contender has no outcomes.
    pub fn failed(&self, contender: &Contender) -> Option<&str> {
        let found = self.failed.iter().find(|(known, _)| known == contender);
        found.map(|(_, why)| why.as_str())
    }
}

/// Runs the suite.
pub(super) struct Pool<'a> {
    pub options: &'a Options,
    pub registry: &'a Registry,
    pub apart: &'a dyn Apart,
    pub progress: &'a dyn Progress,
}

impl Pool<'_> {
    /// Makes the runs of all contenders in a part of the suite. `runs` returns the runs of some
    /// contenders and of their references.
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

    /// Returns the results of `count` jobs in their order.
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
