//! Scenario that runs from decision to decision, for learning environments.

use ccplane_algorithms::Registry;
use ccplane_sim::{SimError, SimOptions, Simulation};
use ccplane_units::{Duration, Rate, Time};

use super::job::{Job, RunControls, broken};
use crate::error::Error;
use crate::scenario::Scenario;

/// Simulation of a scenario's first contender, at its beginning.
///
/// Its window comes from an [`Outside`](ccplane_algorithms::external::ExternalControl) in the
/// registry. The same scenario, seed and decisions give the same bytes.
#[derive(Debug)]
pub struct Episode {
    sim: Simulation,
    /// Rate of the drawn link, or its mean if it varies; 0 without a limit.
    pub rate: Rate,
    /// RTT of the first pair without queueing.
    pub rtt: Duration,
    /// End of the scenario.
    pub end: Time,
}

impl Episode {
    /// Creates the simulation.
    pub fn new(scenario: &Scenario, registry: &Registry, seed: u64) -> Result<Episode, Error> {
        let job = Job::new(scenario, registry)?;
        let contender = scenario.contenders.first().ok_or(Error::NoContender)?;
        let told = |error: SimError| job.convert_error(error);
        let mut sim =
            Simulation::new(job.plan.network.clone(), SimOptions::seeded(seed)).map_err(told)?;
        job.prepare(&mut sim).map_err(told)?;
        let mut controls = RunControls::new(&job, Some(contender));
        job.add_bundles(&mut sim, &mut controls, seed)?;
        job.add_workloads(&mut sim, &mut controls, seed)?;
        let line = job
            .plan
            .network
            .spec(job.plan.main_link)
            .and_then(|spec| spec.line.mean_rate());
        Ok(Episode {
            sim,
            rate: line.unwrap_or(Rate::from_bytes_per_sec(0)),
            rtt: job.plan.rtt,
            end: Time::ZERO + scenario.duration,
        })
    }

    /// Returns the current time.
    pub fn now(&self) -> Time {
        self.sim.now()
    }

    /// Runs until a decision is due, at most until `until` or the end of the scenario. Returns true
    /// if a decision is due.
    pub fn run(&mut self, until: Time) -> Result<bool, Error> {
        let due = self.sim.run_until_decision(until.min(self.end));
        Ok(due.map_err(|error| broken(error.to_string()))?.is_some())
    }

    /// Returns true if this flow has delivered all of its data, or has failed. Its connection
    /// closes some time later.
    pub fn is_finished(&self, flow: u64) -> bool {
        let mut flows = self.sim.flows();
        let view = flows
            .nth(flow as usize)
            .and_then(|flow| self.sim.flow(flow));
        view.is_some_and(|view| view.finished.is_some() || view.failure.is_some())
    }

    /// Returns a hash of everything that has happened so far.
    pub fn digest(&self) -> u64 {
        self.sim.digest()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ccplane_agent::box_algorithm;
    use ccplane_algorithms::external::{
        self, ActionKind, ActionMapper, ControlledFlows, ExternalControl, Feature, Observer,
        StepInterval, StepSize,
    };
    use proptest::prelude::*;

    use super::*;

    const LINK_SCENARIO: &str = r#"
contenders = ["outside"]
duration = "4s"
[topology.dumbbell]
rate = "48mbit"
rtt = "40ms"
queue = "droptail:1bdp"
[[workload]]
bulk.flows = 1
"#;

    fn episode(text: &str, step: &str, seed: u64) -> (Episode, ControlledFlows) {
        let scenario =
            Scenario::parse("link", text, Path::new(".")).unwrap_or_else(|why| panic!("{why}"));
        let step: StepSize = step.parse().expect("a step");
        let seats = ControlledFlows::default();
        let theirs = seats.clone();
        let registry = Registry::builtin().add(external::DOC, move |_| {
            Ok(box_algorithm(ExternalControl::new(step, theirs.clone())))
        });
        let episode =
            Episode::new(&scenario, &registry, seed).unwrap_or_else(|why| panic!("{why}"));
        (episode, seats)
    }

    /// Runs to the end with these actions. Returns a digest, the number of decisions, and the last
    /// interval.
    fn play(text: &str, step: &str, seed: u64, actions: &[f32]) -> (u64, usize, StepInterval) {
        let (mut episode, seats) = episode(text, step, seed);
        let mut flows: Vec<(Observer, ActionMapper)> = Vec::new();
        let mut decisions = 0;
        while episode.run(Time::MAX).unwrap_or_else(|why| panic!("{why}")) {
            for (n, seat) in seats.lock().iter_mut().enumerate() {
                if flows.len() == n {
                    let observer = Observer::new(&[Feature::RttRatio], 1);
                    flows.push((
                        observer,
                        ActionMapper::new(
                            ActionKind::CwndFactor,
                            seat.info.mss.get(),
                            seat.info.init_cwnd.get(),
                        ),
                    ));
                }
                let Some((now, totals)) = seat.due else {
                    continue;
                };
                let (observer, actor) = &mut flows[n];
                observer.observe(now, &totals);
                seat.decide(
                    actor.decide(&[actions[decisions % actions.len()]], observer.interval()),
                );
                decisions += 1;
            }
        }
        let last = flows
            .first()
            .map_or(StepInterval::default(), |(observer, _)| {
                *observer.interval()
            });
        (episode.digest(), decisions, last)
    }

    #[test]
    fn external_windows_limit_the_link_use() {
        // Ten segments, doubled four times and then kept: 231,680 bytes per 40 ms are 46 Mbit/s.
        let actions = [&[1.0; 4][..], &[0.0; 400]].concat();
        let (_, decisions, last) = play(LINK_SCENARIO, "20ms", 1, &actions);
        assert!((190..=200).contains(&decisions), "{decisions} in 4 s");
        let mbit = last.goodput * 8.0 / 1e6;
        assert!((44.0..47.0).contains(&mbit), "{mbit} Mbit/s");
        assert!(last.rtt < 0.0455 && last.loss == 0.0, "{last:?}");
        // Doubled once more: the queue is full, and packets are lost.
        let (_, _, full) = play(
            LINK_SCENARIO,
            "20ms",
            1,
            &[&[1.0; 6][..], &[0.0; 400]].concat(),
        );
        assert!(full.rtt > 0.07, "{full:?}");
        assert!(
            full.goodput * 8.0 < 49e6,
            "what fills a hole has not arrived again: {full:?}"
        );
    }

    #[test]
    fn round_trips_and_reports_are_steps_too() {
        let once = play(LINK_SCENARIO, "1rtt", 1, &[0.0]).1;
        assert!((90..=100).contains(&once), "{once} round trips of 40 ms");
        let lossy = LINK_SCENARIO.replace("queue =", "loss = 0.02\nqueue =");
        assert!(play(&lossy, "report", 1, &[0.0]).1 > once, "and at losses");
        assert_ne!(
            play(&lossy, "1rtt", 1, &[0.0]).0,
            play(&lossy, "1rtt", 2, &[0.0]).0,
            "seeds differ"
        );
    }

    #[test]
    fn every_flow_decides_for_itself() {
        let three = LINK_SCENARIO.replace("bulk.flows = 1", "bulk.flows = 3");
        let (_, decisions, _) = play(&three, "20ms", 1, &[0.0]);
        assert!((570..=600).contains(&decisions), "{decisions}");
    }

    #[test]
    fn a_flow_is_finished_when_it_has_delivered_all() {
        let finite =
            LINK_SCENARIO.replace("bulk.flows = 1", "bulk = { flows = 1, bytes = \"20kB\" }");
        let (mut episode, _seats) = episode(&finite, "20ms", 1);
        assert!(!episode.is_finished(0));
        // Ten segments in the first round trip and the others in the second, after one round trip
        // for the handshake.
        while !episode.is_finished(0) {
            assert!(
                episode.run(Time::MAX).is_ok_and(|due| due),
                "before the scenario ends"
            );
        }
        assert!(
            (100..=160).contains(&(episode.now().as_nanos() / 1_000_000)),
            "{:?}",
            episode.now()
        );
    }

    #[test]
    fn a_scenario_without_contender_is_refused() {
        let text =
            LINK_SCENARIO.replace("contenders = [\"outside\"]", "") + "algorithm = \"reno\"\n";
        let scenario =
            Scenario::parse("link", &text, Path::new(".")).unwrap_or_else(|why| panic!("{why}"));
        let refused = Episode::new(&scenario, &Registry::builtin(), 1);
        assert!(matches!(refused, Err(Error::NoContender)));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn the_same_decisions_give_the_same_bytes(
            seed in 1..1000u64,
            actions in prop::collection::vec(-1.0..1.0f32, 1..20),
        ) {
            let lossy = LINK_SCENARIO
                .replace("queue =", "loss = 0.01\nqueue =")
                .replace("\"4s\"", "\"1s\"");
            let first = play(&lossy, "10ms", seed, &actions);
            prop_assert_eq!(first, play(&lossy, "10ms", seed, &actions));
        }
    }
}
