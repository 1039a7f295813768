//! DX, slide 26 (title only): noise of the stamps against headroom, the delay that is taken for none.

use std::sync::Arc;

use ccplane_algorithms::{Parameters, Registry};
use ccplane_report::Aim;
use ccplane_report::chart::{Axis, Chart, Line};
use ccplane_sim::{JitterShape, StampModel};
use ccplane_units::Duration;

use super::many_to_one::{ManyToOne, RTT, Seen, Senders};
use super::page::Findings;
use super::pool::Job;
use super::who;
use super::{Datapath, Experiment, Options, Outcome, pool};
use ccplane_lab::Error;
use ccplane_lab::Progress;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "dx-noise",
    title: "Noise against headroom: use and queue of a link of 10 Gbit/s with 10 senders",
    source: "Lee et al., Accurate Latency-based Congestion Feedback for Datacenters, USENIX ATC 2015, slide 26 (title only)",
    takes: "2 minutes on two cores; 15 seconds with --quick",
    on: &[Datapath::Sim],
    repeats: None,
    run: noise,
};

/// Standard deviations of the noise, ns, of each of the four stamps.
const NOISE: [u64; 6] = [0, 500, 1_000, 2_000, 5_000, 10_000];
/// Headrooms, ns; the last is the algorithm's own choice.
const HEADROOM: [Option<u64>; 6] = [Some(0), Some(1_200), Some(4_800), Some(19_200), Some(76_800), None];
/// How noise is distributed: to both sides, as in a NIC; or late and early by what a stack takes.
const SHAPES: [(JitterShape, &str); 2] = [
    (JitterShape::Normal, "normal"),
    (JitterShape::Exponential, "exponential"),
];
const SENDERS: u32 = 10;
const WARM: Duration = Duration::from_millis(50);

/// One run.
#[derive(Clone)]
struct Noisy<'r> {
    inner: ManyToOne<'r>,
    shape: (JitterShape, &'static str),
    noise_ns: u64,
    headroom_ns: Option<u64>,
}

impl Noisy<'_> {
    fn headroom(&self) -> String {
        self.headroom_ns.map_or("auto".to_owned(), |ns| format!("{ns}ns"))
    }
}

impl Job for Noisy<'_> {
    type Result = Seen;

    fn name(&self) -> String {
        format!(
            "{}-{}ns-{}-{}",
            self.shape.1,
            self.noise_ns,
            self.headroom(),
            self.inner.seed
        )
    }

    fn key(&self) -> String {
        format!(
            "{} {} {} {}",
            self.inner.key(),
            self.shape.1,
            self.noise_ns,
            self.headroom()
        )
    }

    fn run(&self) -> Result<Seen, Error> {
        self.inner.run_under(&self.name(), &|sim, own| {
            let model = StampModel {
                jitter: Duration::from_nanos(self.noise_ns),
                shape: self.shape.0,
                ..StampModel::EXACT
            };
            let parameters = Parameters::new().with("headroom", self.headroom());
            who::stamp_all(sim, model).map_err(pool::broken(&self.name(), self.inner.seed, EXPERIMENT.name))?;
            let (congestion, config) = who::steered(sim, self.inner.registry, own, "dx", &parameters)?;
            Ok((congestion, Arc::new(config)))
        })
    }
}

fn noise(options: &Options, registry: &Registry, progress: &mut dyn Progress) -> Result<Outcome, Error> {
    let (seeds, measured) = if options.quick {
        (1, Duration::from_millis(50))
    } else {
        (5, Duration::from_millis(200))
    };
    let points = SHAPES.iter().flat_map(|shape| NOISE.map(|noise| (*shape, noise)));
    let points = points.flat_map(|(shape, noise)| HEADROOM.map(|headroom| (shape, noise, headroom)));
    let jobs: Vec<Noisy> = points
        .flat_map(|(shape, noise, headroom)| (1..=seeds).map(move |seed| (shape, noise, headroom, seed)))
        .map(|(shape, noise_ns, headroom_ns, seed)| Noisy {
            inner: ManyToOne {
                senders: Senders::Always(SENDERS),
                warm: WARM,
                until: WARM + measured,
                seed,
                ..ManyToOne::of(registry, EXPERIMENT.name)
            },
            shape,
            noise_ns,
            headroom_ns,
        })
        .collect();
    let seen = pool::run(&jobs, options.threads, &options.parts(), progress)?;
    let results: Vec<(&Noisy, &Seen)> = jobs.iter().zip(&seen).collect();
    findings(&results).finish(&EXPERIMENT, options)
}

fn label(headroom: Option<u64>) -> String {
    headroom.map_or("its own choice".to_owned(), |ns| format!("{} µs", ns as f64 / 1e3))
}

fn findings(results: &[(&Noisy, &Seen)]) -> Findings {
    let mut findings = Findings::default();
    for (shape, name) in SHAPES {
        of_shape(&mut findings, results, shape, name);
    }
    findings.remark(
        "Noise is drawn for each of the four stamps of a packet; the one-way delay has that of two. Delays count from their least \
         of some seconds. That of normal noise is three to four standard deviations below its mean, so that noise reads as a \
         queue of as much; exponential noise, as a stack's, has most of its values near its least. Without headroom every flow \
         yields to noise, and the link is not full. Headroom that covers it fills the link, and costs a queue.",
    );
    findings.deviation(format!(
        "The slides have the title of this figure and nothing of its content. Ours: {SENDERS} senders, 10 Gbit/s, a round trip of {} \
         µs, no batches, clocks that agree.",
        RTT.as_micros()
    ));
    findings
}

/// The figures under noise of one distribution.
fn of_shape(findings: &mut Findings, results: &[(&Noisy, &Seen)], shape: JitterShape, name: &str) {
    let mean = |noise: u64, headroom: Option<u64>, figure: &dyn Fn(&Seen) -> f64| {
        let meant = |job: &Noisy| (job.shape.0, job.noise_ns, job.headroom_ns) == (shape, noise, headroom);
        pool::mean(results, meant, |seen| Some(figure(seen)))
    };
    for noise in [1_000, 10_000] {
        findings.compare(
            &format!("util_auto_{name}_{noise}ns"),
            &format!(
                "use of the link, headroom of its own choice, {name} noise of {} µs",
                noise as f64 / 1e3
            ),
            mean(noise, None, &|seen| seen.utilisation),
            "",
            Aim::AtLeast(0.95),
        );
    }
    let mut rows = Vec::new();
    for noise in NOISE {
        let mut row = vec![format!("{}", noise as f64 / 1e3)];
        for headroom in HEADROOM {
            let (used, queue) = (
                mean(noise, headroom, &|seen| seen.utilisation),
                mean(noise, headroom, &|seen| seen.mean_us / seen.packet_us),
            );
            row.push(match used.zip(queue) {
                Some((used, queue)) => format!("{:.1} ({queue:.1})", used * 100.0),
                None => "–".to_owned(),
            });
            let key = headroom.map_or("auto".to_owned(), |ns| format!("{ns}ns"));
            findings.figure(format!("util_{name}_{noise}ns_{key}"), used);
            findings.figure(format!("queue_{name}_{noise}ns_{key}_packets"), queue);
        }
        rows.push(row);
    }
    let headings: Vec<String> = std::iter::once("noise\nµs".to_owned())
        .chain(HEADROOM.map(|headroom| format!("headroom\n{}", label(headroom))))
        .collect();
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let title = format!("Use of the link, % (mean queue, packets), {name} noise; means over seeds");
    findings.table(title, &headings, rows);
    let lines = |figure: &dyn Fn(&Seen) -> f64| {
        let line = |(n, headroom): (usize, &Option<u64>)| {
            let points = NOISE
                .iter()
                .filter_map(|noise| Some((*noise as f64 / 1e3, mean(*noise, *headroom, figure)?)));
            Line::new(label(*headroom), n, points.collect::<Vec<_>>()).dots()
        };
        HEADROOM.iter().enumerate().map(line).collect()
    };
    let chart = |title: &str, lines| Chart {
        title: title.to_owned(),
        x: Axis::linear("noise of each stamp, standard deviation, µs"),
        y: Axis::linear(""),
        lines,
        guides: Vec::new(),
    };
    findings.picture(
        format!("Noise against headroom, {name} noise"),
        &[
            chart("use of the link, %", lines(&|seen| seen.utilisation * 100.0)),
            chart("mean queue, packets", lines(&|seen| seen.mean_us / seen.packet_us)),
        ],
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise without headroom leaves the link unused, and headroom above the noise fills it.
    #[test]
    fn headroom_cures_noise() {
        let registry = Registry::builtin();
        let used = |noise_ns, headroom_ns| {
            let inner = ManyToOne {
                senders: Senders::Always(4),
                warm: Duration::from_millis(10),
                until: Duration::from_millis(30),
                ..ManyToOne::of(&registry, EXPERIMENT.name)
            };
            let job = Noisy {
                inner,
                shape: SHAPES[0],
                noise_ns,
                headroom_ns,
            };
            job.run().unwrap().utilisation
        };
        let (bare, covered) = (used(1_000, Some(0)), used(1_000, Some(19_200)));
        assert!(covered > 0.9 && bare < covered - 0.05, "{bare} {covered}");
    }
}
