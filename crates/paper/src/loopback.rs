//! Runs as fast as the machine goes, in turns: what the experiments on throughput and CPU have in
//! common.

use ccplane_algorithms::Registry;
use ccplane_lab::Contender;
use ccplane_lab::Error;
use ccplane_lab::Progress;
use ccplane_lab::metrics::Distribution;
use ccplane_lab::parts::Disturbed;
use ccplane_lab::stats::{Ratio, median_ratio};
use ccplane_testbed::ends::TrafficEnds;
use ccplane_testbed::loopback::{Load, LoopbackRun, buffer, one};
use ccplane_units::Duration;

use super::Options;
use super::page::Findings;

/// What to run.
pub(super) struct Turns<'a> {
    /// Before the names of parts; tells one place from another.
    pub place: &'a str,
    pub flows: &'a [usize],
    /// Who takes turns; the first is what the others are compared with.
    pub contenders: &'a [Contender],
    pub rounds: usize,
    pub length: Duration,
    /// Whether agents' threads let senders go first.
    pub behind: bool,
    /// After each run of this one, the first contender runs beside a thread that computes as much
    /// as its agent did.
    pub matched: Option<&'a Contender>,
}

/// What came of it: number of flows, who, and a run; rounds in order.
pub(super) struct Measured {
    runs: Vec<(usize, Contender, LoopbackRun)>,
    /// Of [`Turns::matched`]: number of flows, its run, and that of the first contender beside it.
    matched: Vec<(usize, LoopbackRun, LoopbackRun)>,
}

/// Looks at the sockets are a second apart, as the paper's samples.
const LOOK: Duration = Duration::from_secs(1);

impl Turns<'_> {
    /// Number of flows, round and who of each run: round by round, so that a disturbance of the
    /// machine meets all alike.
    fn order(&self) -> Vec<(usize, usize, &Contender)> {
        let rounds = |flows| (0..self.rounds).map(move |round| (flows, round));
        let every = self.flows.iter().copied().flat_map(rounds);
        every
            .flat_map(|(flows, round)| self.contenders.iter().map(move |who| (flows, round, who)))
            .collect()
    }

    /// Runs them all. Runs that are kept are not made again, but for what was disturbed, in its
    /// time ([`Options::parts_of`]).
    pub fn run(
        &self,
        ends: &TrafficEnds,
        options: &Options,
        registry: &Registry,
        progress: &dyn Progress,
    ) -> Result<Measured, Error> {
        let order = self.order();
        let file = |(flows, round, who): &(usize, usize, &Contender)| {
            let who = who.to_string().replace([':', '='], "-");
            (
                format!("{}-{flows}-{who}-{round}.json", self.place),
                format!(
                    "{} {}, buffers of {} bytes{}",
                    self.place,
                    self.length,
                    buffer(*flows),
                    if self.behind { ", agents behind" } else { "" }
                ),
            )
        };
        let parts = options.parts_of::<LoopbackRun>(order.iter().map(file));
        let (mut measured, mut matched) = (Vec::new(), Vec::new());
        for (done, turn) in order.iter().enumerate() {
            let (flows, round, contender) = *turn;
            let what = format!("{flows} flows, {contender}, round {}", round + 1);
            progress.on_progress(done as f64 / order.len() as f64, &what);
            if progress.is_cancelled() {
                return Err(Error::Interrupted);
            }
            let load = Load {
                low_priority_agent: self.behind,
                ..Load::new(flows, self.length, LOOK.min(self.length))
            };
            let (name, key) = file(turn);
            let run = parts.part(
                &name,
                &key,
                |run: &LoopbackRun| Disturbed::from(&run.disturbed),
                || one(ends, contender, load, registry),
            )?;
            if let Some(base) = self
                .contenders
                .first()
                .filter(|_| self.matched == Some(contender))
            {
                let burns = Load {
                    burn_percent: Some(run.agent_cpu_percent),
                    ..load
                };
                // Of a run that was made again it is another one.
                let key = format!("{key}, beside {:.1} % of a CPU", run.agent_cpu_percent);
                let name = format!("{}-{flows}-matched-{round}.json", self.place);
                let judge = |run: &LoopbackRun| Disturbed::from(&run.disturbed);
                let beside = parts.part(&name, &key, judge, || one(ends, base, burns, registry))?;
                matched.push((flows, run.clone(), beside));
            }
            measured.push((flows, contender.clone(), run));
        }
        Ok(Measured {
            runs: measured,
            matched,
        })
    }
}

impl Measured {
    /// A run for each round.
    pub fn runs(&self, flows: usize, who: &Contender) -> impl Iterator<Item = &LoopbackRun> {
        let same = self
            .runs
            .iter()
            .filter(move |(n, other, _)| *n == flows && other == who);
        same.map(|(.., run)| run)
    }

    /// The median over rounds of a run's value over that of the run beside it, of rounds in which
    /// that is not 0.
    pub fn ratio(
        &self,
        flows: usize,
        ours: &Contender,
        base: &Contender,
        value: fn(&LoopbackRun) -> f64,
    ) -> Option<Ratio> {
        let pairs = self.runs(flows, ours).zip(self.runs(flows, base));
        median_ratio(
            &pairs
                .map(|(ours, base)| (value(ours), value(base)))
                .collect::<Vec<_>>(),
        )
    }

    /// The same of [`Turns::matched`] over the first contender that had as much computed beside it.
    pub fn matched_ratio(&self, flows: usize, value: fn(&LoopbackRun) -> f64) -> Option<Ratio> {
        let pairs = self.matched.iter().filter(|(n, ..)| *n == flows);
        median_ratio(
            &pairs
                .map(|(_, ours, base)| (value(ours), value(base)))
                .collect::<Vec<_>>(),
        )
    }

    /// Mean and standard deviation of all samples of a value.
    pub fn mean_and_deviation(
        &self,
        flows: usize,
        who: &Contender,
        samples: impl Fn(&LoopbackRun) -> Vec<f64>,
    ) -> Option<(f64, f64)> {
        let samples = Distribution::new(self.runs(flows, who).flat_map(samples));
        let mean = samples.mean()?;
        let squares = samples
            .values()
            .iter()
            .map(|v| (v - mean) * (v - mean))
            .sum::<f64>();
        Some((mean, (squares / (samples.len().max(2) - 1) as f64).sqrt()))
    }

    /// Says how many runs did not measure what they were to, so that the reader knows.
    pub fn judge(&self, findings: &mut Findings) {
        let all = self.runs.iter().map(|(.., run)| run);
        let all: Vec<&LoopbackRun> = all
            .chain(self.matched.iter().map(|(.., run)| run))
            .collect();
        findings.disturbed(
            all.iter().filter(|run| !run.is_undisturbed()).count(),
            all.len(),
        );
        let fallbacks: u64 = all.iter().map(|run| run.fallbacks).sum();
        if fallbacks > 0 {
            findings.remark(format!(
                "{fallbacks} times a flow fell back to the datapath's own NewReno: these runs count."
            ));
        }
    }
}

#[cfg(test)]
pub(super) fn pretended(runs: &[(usize, Contender, &[f64])]) -> Measured {
    let run = |gbit: &f64| LoopbackRun {
        goodput_gbit: *gbit,
        goodputs_gbit: vec![*gbit - 1.0, *gbit + 1.0],
        machine_cpu_percent: 10.0 * gbit,
        ..LoopbackRun::default()
    };
    let rounds = |(flows, who, gbits): &(usize, Contender, &[f64])| {
        let (flows, who) = (*flows, who.clone());
        gbits
            .iter()
            .map(run)
            .map(move |run| (flows, who.clone(), run))
            .collect::<Vec<_>>()
    };
    Measured {
        runs: runs.iter().flat_map(rounds).collect(),
        matched: Vec::new(),
    }
}

/// The same with runs of a matched contender and of the first beside it.
#[cfg(test)]
pub(super) fn matched(mut measured: Measured, pairs: &[(usize, f64, f64)]) -> Measured {
    let run = |goodput_gbit| LoopbackRun {
        goodput_gbit,
        ..LoopbackRun::default()
    };
    let pairs = pairs
        .iter()
        .map(|(flows, ours, base)| (*flows, run(*ours), run(*base)));
    measured.matched.extend(pairs);
    measured
}

#[cfg(test)]
mod tests {
    use super::super::page::UNSOUND;
    use super::*;

    #[test]
    fn ratios_are_of_runs_beside_each_other() {
        let (ours, base) = (
            Contender::ccplane_with("reno", "report", "ack"),
            Contender::native("reno"),
        );
        let measured = pretended(&[
            (4, base.clone(), &[40.0, 10.0, 40.0]),
            (4, ours.clone(), &[38.0, 38.0, 1.0]),
        ]);
        let ratio = measured
            .ratio(4, &ours, &base, |r| r.goodput_gbit)
            .unwrap()
            .value;
        assert!((ratio - 0.95).abs() < 1e-9, "{ratio}");
        assert_eq!(measured.ratio(8, &ours, &base, |r| r.goodput_gbit), None);
        let (mean, deviation) = measured
            .mean_and_deviation(4, &base, |r| r.goodputs_gbit.clone())
            .unwrap();
        // 39 41 9 11 39 41: mean 30, squares of deviations 81 121 441 361 81 121.
        assert!((mean - 30.0).abs() < 1e-9 && (deviation - (1206.0f64 / 5.0).sqrt()).abs() < 1e-9);
        let mut findings = Findings::default();
        measured.judge(&mut findings);
        measured.judge(&mut findings);
        assert_eq!(findings.figures()[UNSOUND], 0);
    }
}
