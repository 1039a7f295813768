//! A score for an algorithm in seconds: for those who search for better ones, people and programs.
//!
//! First the **gate**: short runs in places where no algorithm may fail. Then the **score**: on
//! links drawn from ranges the algorithm runs alone, two of its own together, and beside Cubic.
//! Each figure is compared with the best baseline on the same link. The same seed gives the same
//! links and the same bytes. `held_out` links tell those who tune on the published ones what that
//! tuning is worth.

mod asked;
mod explain;
mod gate;
mod page;
mod pool;
mod score;
mod standing;
mod suspect;

use ccplane_algorithms::Registry;

use crate::contender::{self, Contender};
use crate::error::Error;
use crate::evaluate::SEED;
use crate::progress::Progress;
use crate::run::Backend;
use crate::sim::{self, Sim};
use crate::sweep::RunTable;
use crate::transport::native;

pub use asked::{Options, Suite};
pub use explain::{Explained, InForce, Look, Row, Worst, explain};
pub use gate::Check;
pub use page::page;
use pool::Pool;
pub use pool::{Apart, Outcome, simulate};
pub use score::{LinkScore, Parts, Score, WEIGHTS};
pub use standing::Standing;

/// Scores of a run of the arena.
#[derive(Clone, Debug)]
pub struct ArenaResult {
    /// The candidates, in their order.
    pub candidates: Vec<Standing>,
    /// The baselines that are no candidates, scored on the same links. They do not pass the gate.
    /// Empty if only the gate was asked for.
    pub baselines: Vec<Standing>,
    /// One row per run of the gate and of the score.
    pub runs: RunTable,
}

/// Scores every candidate. A candidate fails the gate if it cannot be made, panics, or fails in a
/// process of its own. Everything else that goes wrong is an error.
pub fn run(
    options: &Options,
    registry: &Registry,
    apart: &dyn Apart,
    progress: &dyn Progress,
) -> Result<ArenaResult, Error> {
    for known in options.against.iter().filter(|known| !apart.takes(known)) {
        usable(known, registry)?;
    }
    let pool = Pool {
        options,
        registry,
        apart,
        progress,
    };
    let mut standings: Vec<Standing> = options
        .candidates
        .iter()
        .map(|one| made(one, registry, apart))
        .collect();
    let able = |standings: &[Standing]| -> Vec<Contender> {
        let pairs = options.candidates.iter().zip(standings);
        pairs
            .filter(|(_, standing)| standing.gate_passed)
            .map(|(candidate, _)| candidate.clone())
            .collect()
    };

    // What everybody is held to here is Reno's and Cubic's.
    let mut outcomes = pool.all("gate", &able(&standings), gate::runs)?;
    for (candidate, standing) in options.candidates.iter().zip(&mut standings) {
        match outcomes.failed(candidate) {
            Some(why) => standing.fails(why.to_owned()),
            None if standing.gate_passed => gate::judge(candidate, &outcomes, standing),
            None => {}
        }
    }
    let mut listed = std::mem::take(&mut outcomes.listed);
    let table = |listed| RunTable::of_list(&["part", "case"], Sim::default().name(), SEED, listed);
    if options.suite == Suite::Gate {
        return Ok(ArenaResult {
            candidates: standings,
            baselines: Vec::new(),
            runs: table(listed)?,
        });
    }

    let links = score::links(options.held_out, options.suite.links());
    let mut scored = able(&standings);
    let others: Vec<Contender> = options
        .against
        .iter()
        .filter(|known| !scored.contains(known))
        .cloned()
        .collect();
    scored.extend(others);
    let mut outcomes = pool.all("score", &scored, |some| {
        score::runs(some, &links, options.suite == Suite::Full)
    })?;
    listed.append(&mut outcomes.listed);
    for known in &options.against {
        if let Some(why) = outcomes.failed(known) {
            return Err(sim::broken(format!("{known}, a baseline: {why}")));
        }
    }
    for (candidate, standing) in options.candidates.iter().zip(&mut standings) {
        standing.score = Some(0.0);
        if !standing.gate_passed {
            continue;
        }
        let score = match outcomes.failed(candidate) {
            Some(why) => Err(why.to_owned()),
            None => score::judge(candidate, &options.against, &links, &outcomes),
        };
        match score {
            Ok(score) => {
                standing.score = Some(score.mean());
                standing.parts = Some(score);
            }
            Err(why) => standing.fails(why),
        }
    }
    let baseline = |known: &Contender| {
        // A baseline that breaks on a link has no score.
        let score = score::judge(known, &options.against, &links, &outcomes).ok()?;
        Some(Standing {
            candidate: known.to_string(),
            score: Some(score.mean()),
            gate_passed: false,
            reasons: Vec::new(),
            gate: Vec::new(),
            parts: Some(score),
        })
    };
    let others = options.against.iter();
    let others = others.filter(|known| !options.candidates.contains(known));
    Ok(ArenaResult {
        baselines: others.filter_map(baseline).collect(),
        candidates: standings,
        runs: table(listed)?,
    })
}

/// The standing of a candidate before it has run.
fn made(candidate: &Contender, registry: &Registry, apart: &dyn Apart) -> Standing {
    let why = match apart.takes(candidate) {
        // Making it is running it.
        true => None,
        false => usable(candidate, registry).err(),
    };
    Standing {
        candidate: candidate.to_string(),
        score: None,
        gate_passed: why.is_none(),
        reasons: why.map(|why| why.to_string()).into_iter().collect(),
        gate: Vec::new(),
        parts: None,
    }
}

/// Whether it can be made.
pub fn usable(known: &Contender, registry: &Registry) -> Result<(), Error> {
    match known {
        Contender::Native { name } => native(name).map(drop),
        // All runs of the arena are simulated.
        Contender::Remote { .. } => Err(Error::remote_in_simulator(known)),
        Contender::Ccplane { name, parameters } => {
            registry.by_name(name, &contender::read(parameters))?;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::NoProgress;

    fn standings(candidates: &[&str], suite: Suite, held_out: Option<u64>) -> Vec<Standing> {
        let registry = Registry::builtin().with_files(|path| match path {
            // It never gives back anything.
            "greedy.ccp" => Ok(
                "(algorithm greedy) (def) (when true (:= Ssthresh 1GiB) (:= Cwnd 1MB))".to_owned(),
            ),
            "stuck.ccp" => Ok("(algorithm stuck) (def) (when true (:= Cwnd Flow.mss))".to_owned()),
            "broken.ccp" => {
                Ok("(algorithm broken) (def) (when true (:= Cwnd (+ Cwnd mms)))".to_owned())
            }
            _ => Err(std::io::ErrorKind::NotFound.into()),
        });
        let options = Options {
            candidates: candidates
                .iter()
                .map(|name| name.parse().expect("a name"))
                .collect(),
            against: vec![Contender::ccplane("cubic"), Contender::ccplane("copa")],
            suite,
            held_out,
            threads: 2,
        };
        let result = run(&options, &registry, &(), &NoProgress);
        result.unwrap_or_else(|why| panic!("{why}")).candidates
    }

    #[test]
    fn what_is_in_use_passes_the_gate_and_what_harms_does_not() {
        let all = [
            "reno",
            "cubic",
            "copa",
            "greedy.ccp",
            "stuck.ccp",
            "broken.ccp",
            "absent.ccp",
        ];
        let standings = standings(&all, Suite::Gate, None);
        for standing in &standings[..3] {
            assert!(
                standing.gate_passed,
                "{}: {:?}",
                standing.candidate, standing.reasons
            );
        }
        let reasons = |at: usize| standings[at].reasons.join("; ");
        assert!(reasons(3).contains("Cubic"), "{}", reasons(3));
        assert!(reasons(4).contains("of the link"), "{}", reasons(4));
        assert!(reasons(5).contains("broken.ccp:1:54"), "{}", reasons(5));
        assert!(reasons(6).contains("cannot be read"), "{}", reasons(6));
        assert!(
            standings[3..]
                .iter()
                .all(|standing| !standing.gate_passed && standing.score.is_none())
        );
    }

    #[test]
    fn the_same_seed_gives_the_same_score_and_another_one_other_links() {
        let [first, again, held_out] = [None, None, Some(7)]
            .map(|seed| standings(&["vegas", "stuck.ccp"], Suite::Quick, seed));
        let text = |standings: &[Standing]| serde_json::to_string(standings).expect("an object");
        assert_eq!(text(&first), text(&again));
        assert_ne!(text(&first), text(&held_out));
        let score = first[0].score.expect("it passed");
        assert!((0.2..1.2).contains(&score), "{score}");
        assert_eq!((first[1].score, first[1].gate_passed), (Some(0.0), false));
        let parts = first[0].parts.as_ref().expect("it was scored");
        assert_eq!(parts.links.len(), 6);
        let worst = parts.worst();
        assert!(parts.links.iter().all(|link| link.score >= worst.score));
    }

    #[test]
    fn a_baseline_alone_is_as_good_as_the_best() {
        let standing = standings(&["cubic"], Suite::Quick, None).remove(0);
        let parts = standing.parts.expect("it was scored");
        // Copa has less delay and Cubic no less of anything else that they are measured by, or the
        // other way round.
        assert!(
            parts.parts.delay < 0.9 && parts.parts.throughput > 0.97,
            "{parts:?}"
        );
    }
}
