//! RC3, figure 2: how much time RC3 and larger initial windows save by the model, and by the
//! simulator.

use ccplane_algorithms::Registry;
use ccplane_report::TargetRange;
use ccplane_report::chart::{Axis, Chart, ChartSeries};
use ccplane_units::{Duration, Rate};

use super::page::{Findings, cell};
use super::rc3_lone::{Acks, Lone, Took};
use super::rc3_theory::{AUTHORS, PAYLOAD, Path, WINDOW, reduction};
use super::rc3_who::{Control, Start};
use super::{Datapath, Experiment, Options, Outcome, simulations};
use ccplane_lab::Error;
use ccplane_lab::Progress;

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "rc3-model",
    title: "What the second loop and larger initial windows save, by the model and simulated",
    source: "Mittal et al., Recursively Cautious Congestion Control, NSDI 2014, section 2 and figure 2",
    takes: "a second",
    on: &[Datapath::Sim],
    repeats: None,
    run: super::Run::Code(model),
};

const STARTS: [Start; 4] = [Start::Tcp, Start::Rc3, Start::Window(10), Start::Window(50)];
/// Beyond the authors' sizes: flows that the path does not hold, packets.
const LARGER: [u64; 3] = [5_000, 10_000, 50_000];

fn model(
    options: &Options,
    _registry: &Registry,
    progress: &dyn Progress,
) -> Result<Outcome, Error> {
    let sizes: Vec<u64> = AUTHORS
        .iter()
        .map(|(packets, _)| *packets)
        .chain(LARGER)
        .collect();
    let jobs: Vec<Lone> = sizes
        .iter()
        .flat_map(|packets| STARTS.map(|start| (*packets, start)))
        .map(|(packets, start)| Lone {
            experiment: EXPERIMENT.name,
            start,
            control: Control::Reno,
            rate: Rate::from_bytes_per_sec(Path::WAN.spare as u64),
            rtt: Duration::from_micros((Path::WAN.rtt * 1e6) as u64),
            bytes: packets * PAYLOAD,
            window: None,
            acks: Acks::Each,
        })
        .collect();
    let took = simulations::run(&jobs, options.threads, &options.parts(), progress)?;
    let results: Vec<(&Lone, &Took)> = jobs.iter().zip(&took).collect();
    findings(&Simulated(results), &sizes).finish(&EXPERIMENT, options)
}

/// What was simulated.
struct Simulated<'a>(Vec<(&'a Lone, &'a Took)>);

impl Simulated<'_> {
    /// Seconds of so many packets.
    fn seconds(&self, start: Start, packets: u64) -> Option<f64> {
        let of = |(job, _): &&(&Lone, &Took)| (job.start, job.bytes) == (start, packets * PAYLOAD);
        self.0.iter().find(of).map(|(_, took)| took.seconds)
    }

    fn saves(&self, start: Start, packets: u64) -> Option<f64> {
        Some(reduction(
            self.seconds(Start::Tcp, packets)?,
            self.seconds(start, packets)?,
        ))
    }

    /// How far from the model the time of a flow of so many packets is, percent of that.
    fn error(&self, start: Start, packets: u64) -> Option<f64> {
        let predicted = predicted(start, packets);
        Some(100.0 * (self.seconds(start, packets)? / predicted - 1.0))
    }
}

/// Seconds by the model.
fn predicted(start: Start, packets: u64) -> f64 {
    match start {
        Start::Window(window) => Path::WAN.tcp(packets, window.into()),
        Start::Rc3 => Path::WAN.rc3(packets),
        _ => Path::WAN.tcp(packets, WINDOW),
    }
}

/// The largest of these, without their signs.
fn largest(errors: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    errors.flatten().map(f64::abs).max_by(f64::total_cmp)
}

fn findings(simulated: &Simulated, sizes: &[u64]) -> Findings {
    let mut findings = Findings::default();
    findings.compare(
        "model_max_error_pp",
        "the model beside the authors' curve, largest difference over their eleven sizes, percentage points",
        largest(
            AUTHORS
                .iter()
                .map(|(packets, percent)| Some(Path::WAN.saves(*packets) - percent)),
        ),
        "their data",
        TargetRange::AtMost(0.02),
    );
    let eleven = || AUTHORS.iter().map(|(packets, _)| *packets);
    for start in STARTS {
        findings.compare(
            &format!("model_sim_max_error_pct_{}", start.key()),
            &format!(
                "simulated completion time beside the model, the same sizes, largest difference, %: {}",
                start.label()
            ),
            largest(eleven().map(|packets| simulated.error(start, packets))),
            "",
            TargetRange::AtMost(0.5),
        );
    }
    let rows = sizes.iter().map(|packets| {
        let theirs = AUTHORS.iter().find(|(theirs, _)| theirs == packets);
        let mut row = vec![
            (packets * PAYLOAD).to_string(),
            packets.to_string(),
            cell(theirs.map(|(_, percent)| *percent), 3),
            format!("{:.3}", Path::WAN.saves(*packets)),
            cell(simulated.saves(Start::Rc3, *packets), 2),
        ];
        for window in [10, 50] {
            let by_model = reduction(
                predicted(Start::Tcp, *packets),
                Path::WAN.tcp(*packets, window.into()),
            );
            row.push(format!("{by_model:.1}"));
            row.push(cell(simulated.saves(Start::Window(window), *packets), 1));
        }
        row.extend([Start::Tcp, Start::Rc3].map(|start| {
            cell(
                simulated
                    .seconds(start, *packets)
                    .map(|seconds| seconds * 1e3),
                2,
            )
        }));
        row.extend([Start::Tcp, Start::Rc3].map(|start| cell(simulated.error(start, *packets), 2)));
        row
    });
    findings.table(
        "Percent of TCP's completion time that is saved",
        &[
            "bytes",
            "packets",
            "RC3\nauthors",
            "RC3\nmodel",
            "RC3\nsimulated",
            "IW 10\nmodel",
            "IW 10\nsimulated",
            "IW 50\nmodel",
            "IW 50\nsimulated",
            "TCP\nms",
            "RC3\nms",
            "TCP off\nmodel, %",
            "RC3 off\nmodel, %",
        ],
        rows.collect(),
    );
    findings.picture(
        "Percent of TCP's completion time that is saved, by size",
        &[chart(simulated, sizes)],
    );
    findings.remark(
        "The model has no queue and no other flow; A is what is left of the link, here 0.7 Gbit/s, and the round trip 40 ms. \
         The steps are those of a window's packets. Simulated: one flow on a link of that rate, NewReno.",
    );
    findings.remark(
        "Beyond what the path holds in a round trip, 2,333 packets, the two loops meet in flight, and some packets are sent \
         twice: in a class below, where they cost the flow nothing.",
    );
    findings.deviation(
        "The link has its spare rate, instead of carrying other traffic: rc3-internet2 has that.",
    );
    findings
}

fn chart(simulated: &Simulated, sizes: &[u64]) -> Chart {
    let others = [Start::Rc3, Start::Window(10), Start::Window(50)];
    let fine: Vec<u64> = (0..=320)
        .map(|step| libm::exp(f64::from(step) / 320.0 * libm::log(50_000.0)) as u64)
        .collect();
    let lines = others.iter().enumerate().flat_map(|(n, start)| {
        let saves =
            |packets: &u64| reduction(predicted(Start::Tcp, *packets), predicted(*start, *packets));
        let model = fine
            .iter()
            .map(|packets| ((packets * PAYLOAD) as f64 / 1e3, saves(packets)));
        let points = sizes.iter().filter_map(|packets| {
            Some((
                (packets * PAYLOAD) as f64 / 1e3,
                simulated.saves(*start, *packets)?,
            ))
        });
        [
            ChartSeries::new(format!("{}, model", start.label()), n, model).dashed(),
            ChartSeries::new(start.label(), n, points).dots(),
        ]
    });
    Chart {
        title: "time saved, %".to_owned(),
        x: Axis::log("size, KB"),
        y: Axis::linear(""),
        lines: lines.collect(),
        guides: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulations::Job;

    fn took(start: Start, packets: u64) -> Took {
        let job = Lone {
            experiment: EXPERIMENT.name,
            start,
            control: Control::Reno,
            rate: Rate::from_bytes_per_sec(87_500_000),
            rtt: Duration::from_millis(40),
            bytes: packets * PAYLOAD,
            window: None,
            acks: Acks::Each,
        };
        job.run().unwrap()
    }

    #[test]
    fn a_simulated_flow_takes_what_the_model_says() {
        for (packets, _) in AUTHORS {
            for start in STARTS {
                let (ours, model) = (took(start, packets).seconds, predicted(start, packets));
                assert!(
                    (ours / model - 1.0).abs() < 0.005,
                    "{start:?}, {packets} packets: {ours} s, {model} s"
                );
            }
        }
    }

    /// A flow that the initial window holds has no second loop: the same packets at the same times.
    #[test]
    fn a_small_flow_is_the_same_under_both() {
        assert_eq!(took(Start::Rc3, 4), took(Start::Tcp, 4));
        assert!(took(Start::Rc3, 5).seconds < took(Start::Tcp, 5).seconds);
    }
}
