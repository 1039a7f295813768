//! Runs as fast as the machine goes, in turns: what the experiments on throughput and CPU have in common.

use ccplane_algorithms::Registry;
use ccplane_units::Duration;

use super::Options;
use super::page::Findings;
use crate::bench_kernel::{Ends, Load, Run, one};
use crate::error::Error;
use crate::experiment::Contender;
use crate::metrics::{self, Distribution};
use crate::parts::{keep, kept};
use crate::run::Progress;

/// What to run.
pub(super) struct Turns<'a> {
    /// Before the names of parts; tells one place from another.
    pub place: &'a str,
    pub flows: &'a [usize],
    /// Who takes turns; the first is what the others are compared with.
    pub contenders: &'a [Contender],
    pub rounds: usize,
    pub length: Duration,
}

/// What came of it: number of flows, who, and a run for each round.
pub(super) struct Measured(Vec<(usize, Contender, Vec<Run>)>);

/// Looks at the sockets are a second apart, as the paper's samples.
const LOOK: Duration = Duration::from_secs(1);

impl Turns<'_> {
    /// Runs them, round by round, so that a disturbance of the machine meets all alike. Parts that are kept and sound are not
    /// run again.
    pub fn run(
        &self,
        ends: &Ends,
        options: &Options,
        registry: &Registry,
        progress: &mut dyn Progress,
    ) -> Result<Measured, Error> {
        let key = format!("{} {}", self.place, self.length);
        let of = self.flows.len() * self.rounds * self.contenders.len();
        let mut measured = Vec::new();
        let mut done = 0;
        for flows in self.flows {
            let mut runs: Vec<Vec<Run>> = self.contenders.iter().map(|_| Vec::new()).collect();
            for round in 0..self.rounds {
                for (contender, runs) in self.contenders.iter().zip(&mut runs) {
                    progress.begin(&format!("{flows} flows, {contender}, round {}", round + 1), done, of);
                    if progress.cancelled() {
                        return Err(Error::Interrupted);
                    }
                    let who = contender.to_string().replace([':', '='], "-");
                    let name = format!("{}-{flows}-{who}-{round}.json", self.place);
                    let run = match kept::<Run>(&options.parts(), &name, &key) {
                        Some(run) if run.sound() => run,
                        _ => {
                            let load = Load {
                                flows: *flows,
                                length: self.length,
                                look_every: LOOK.min(self.length),
                            };
                            let run = one(ends, contender, load, registry)?;
                            keep(&options.parts(), &name, &key, &run)?;
                            run
                        }
                    };
                    runs.push(run);
                    done += 1;
                }
            }
            measured.extend(
                self.contenders
                    .iter()
                    .cloned()
                    .zip(runs)
                    .map(|(who, runs)| (*flows, who, runs)),
            );
        }
        Ok(Measured(measured))
    }
}

impl Measured {
    fn runs(&self, flows: usize, who: &Contender) -> &[Run] {
        let found = self.0.iter().find(|(n, other, _)| *n == flows && other == who);
        found.map_or(&[], |(.., runs)| runs)
    }

    /// The median over rounds of a run's value over that of the run beside it.
    pub fn ratio(&self, flows: usize, ours: &Contender, base: &Contender, value: fn(&Run) -> f64) -> Option<f64> {
        let pairs = self.runs(flows, ours).iter().zip(self.runs(flows, base));
        let ratios = pairs.map(|(ours, base)| value(ours) / value(base).max(f64::MIN_POSITIVE));
        metrics::median(&ratios.collect::<Vec<_>>())
    }

    /// Mean and standard deviation of all samples of a value.
    pub fn mean_and_deviation(
        &self,
        flows: usize,
        who: &Contender,
        samples: impl Fn(&Run) -> Vec<f64>,
    ) -> Option<(f64, f64)> {
        let samples = Distribution::new(self.runs(flows, who).iter().flat_map(samples));
        let mean = samples.mean()?;
        let squares = samples.values().iter().map(|v| (v - mean) * (v - mean)).sum::<f64>();
        Some((mean, (squares / (samples.len().max(2) - 1) as f64).sqrt()))
    }

    /// Says how many runs did not measure what they were to, so that the reader knows.
    pub fn judge(&self, findings: &mut Findings) {
        let unsound = self
            .0
            .iter()
            .flat_map(|(.., runs)| runs)
            .filter(|run| !run.sound())
            .count();
        let all: usize = self.0.iter().map(|(.., runs)| runs.len()).sum();
        let before = findings.number("unsound_runs");
        findings.fact("unsound_runs", before + unsound as u64);
        if unsound > 0 {
            findings.remark(format!(
                "{unsound} of {all} runs are not sound: others used a CPU meanwhile, or flows fell back to the datapath's own \
                 NewReno because the agent got no CPU. The same command again repeats those; run it on an idle machine."
            ));
        }
    }
}

/// The kernel's own.
pub(super) fn native(name: &str) -> Contender {
    Contender::Native { name: name.to_owned() }
}

/// ccplane's, reporting then.
pub(super) fn reporting(name: &str, report: &str) -> Contender {
    Contender::Ccplane {
        name: name.to_owned(),
        parameters: vec![("report".to_owned(), report.to_owned())],
    }
}

#[cfg(test)]
pub(super) fn pretended(runs: &[(usize, Contender, &[f64])]) -> Measured {
    let run = |gbit: &f64| Run {
        goodput_gbit: *gbit,
        goodputs_gbit: vec![*gbit - 1.0, *gbit + 1.0],
        machine_cpu_percent: 10.0 * gbit,
        ..Run::default()
    };
    let one = |(flows, who, gbits): &(usize, Contender, &[f64])| (*flows, who.clone(), gbits.iter().map(run).collect());
    Measured(runs.iter().map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_runs_beside_each_other() {
        let (ours, base) = (reporting("reno", "ack"), native("reno"));
        let measured = pretended(&[
            (4, base.clone(), &[40.0, 10.0, 40.0]),
            (4, ours.clone(), &[38.0, 38.0, 1.0]),
        ]);
        assert_eq!(measured.ratio(4, &ours, &base, |r| r.goodput_gbit), Some(0.95));
        assert_eq!(measured.ratio(8, &ours, &base, |r| r.goodput_gbit), None);
        let (mean, deviation) = measured
            .mean_and_deviation(4, &base, |r| r.goodputs_gbit.clone())
            .unwrap();
        // 39 41 9 11 39 41: mean 30, squares of deviations 81 121 441 361 81 121.
        assert!((mean - 30.0).abs() < 1e-9 && (deviation - (1206.0f64 / 5.0).sqrt()).abs() < 1e-9);
        let mut findings = Findings::default();
        measured.judge(&mut findings);
        measured.judge(&mut findings);
        assert_eq!(findings.figures()["unsound_runs"], 0);
    }
}
