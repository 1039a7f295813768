//! Ours, for a claim of CCP's design (SIGCOMM 2018, section 2.2): an algorithm may compute for
//! long, because packets do not wait for it. Reno with a callback that computes for 0 to 10 ms,
//! over loopback as fast as the machine goes.
//!
//! A computation needs a CPU, and takes it from senders that want all CPUs. So the claim is judged
//! beside the kernel's own Reno with an unrelated thread that computes as much. The agent and that
//! thread both have a lower priority than ordinary threads.

use ccplane_agent::{Algorithm, Control, FlowInfo, Programs, Report, box_algorithm};
use ccplane_algorithms::{
    AlgorithmDoc, LossBasedAlgorithm, ParameterDoc, Registry, Reno, SlowStartExit, WindowOptions,
};
use ccplane_datapath::Capabilities;
use ccplane_lab::Contender;
use ccplane_lab::Error;
use ccplane_lab::Progress;
use ccplane_lab::stats::Ratio;
use ccplane_report::TargetRange;
use ccplane_report::chart::{Axis, Chart, ChartSeries};
use ccplane_testbed::ends::TrafficEnds;
use ccplane_testbed::traffic::monotonic_ns;
use ccplane_units::Duration;

use super::loopback::{Measured, Turns};
use super::page::Findings;
use super::{Datapath, Experiment, Options, Outcome};

pub(super) const EXPERIMENT: Experiment = Experiment {
    name: "ccp-slow-algorithm",
    title: "An algorithm that computes for long, at loopback speed",
    source: "ours, for a claim of Narayan et al., Restructuring Endpoint Congestion Control, SIGCOMM 2018, section 2.2",
    takes: "5 minutes; 20 seconds with --quick",
    on: &[Datapath::Linux],
    repeats: Some(ROUNDS),
    run: super::Run::Code(slow),
};

const ROUNDS: usize = 5;
/// How long a callback takes.
const TAKES: [&str; 4] = ["0us", "100us", "1ms", "10ms"];
const FLOWS: [usize; 2] = [1, 8];
/// The contender whose callback takes 1 ms, among all: what is judged.
const MATCHED: usize = 3;
const NAME: &str = "slow_reno";

fn slow(
    options: &Options,
    _registry: &Registry,
    progress: &dyn Progress,
) -> Result<Outcome, Error> {
    let contenders = contenders();
    let length = Duration::from_secs(if options.quick { 1 } else { 5 });
    let rounds = options.repeats(ROUNDS, 1);
    let turns = Turns {
        place: "slow",
        flows: &FLOWS,
        contenders: &contenders,
        rounds,
        length,
        behind: true,
        matched: contenders.get(MATCHED),
    };
    let measured = turns.run(&TrafficEnds::loopback()?, options, &registry(), progress)?;
    findings(&measured, rounds, length).finish(&EXPERIMENT, options)
}

fn contenders() -> Vec<Contender> {
    let ours = TAKES.map(|takes| Contender::ccplane_with(NAME, "takes", takes));
    std::iter::once(Contender::native("reno"))
        .chain(ours)
        .collect()
}

/// With the slow algorithm in it.
fn registry() -> Registry {
    let doc = AlgorithmDoc {
        name: NAME,
        doc: "Reno whose callback computes for a while",
        parameters: &[ParameterDoc {
            name: "takes",
            default: "0us",
            values: "a duration such as 100us",
            doc: "how long each callback computes",
        }],
    };
    Registry::builtin().add(doc, |parameters| {
        Ok(box_algorithm(Slow {
            inner: LossBasedAlgorithm::new(Reno, WindowOptions::default(), SlowStartExit::Off),
            takes: parameters.read("takes", Duration::ZERO)?,
        }))
    })
}

/// An algorithm whose callback keeps its thread busy for a while before it decides.
struct Slow<A> {
    inner: A,
    takes: Duration,
}

impl<A: Algorithm> Algorithm for Slow<A> {
    type Flow = A::Flow;

    fn name(&self) -> &str {
        NAME
    }

    fn programs(&self) -> Programs {
        self.inner.programs()
    }

    fn required_capabilities(&self) -> Capabilities {
        self.inner.required_capabilities()
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> A::Flow {
        self.inner.open(info, control)
    }

    fn on_report(&mut self, flow: &mut A::Flow, report: &Report<'_>, control: &mut Control<'_>) {
        let until = monotonic_ns() + self.takes.as_nanos();
        while monotonic_ns() < until {
            std::hint::spin_loop();
        }
        self.inner.on_report(flow, report, control);
    }
}

fn findings(measured: &Measured, rounds: usize, length: Duration) -> Findings {
    let mut findings = Findings::default();
    let contenders = contenders();
    let Some((base, slow)) = contenders.split_first() else {
        return findings;
    };
    let mut lines = Vec::new();
    for (n, flows) in FLOWS.into_iter().enumerate() {
        let mut points = Vec::new();
        for (at, (takes, who)) in TAKES.iter().zip(slow).enumerate() {
            let ratio = measured.ratio(flows, who, base, |run| run.goodput_gbit);
            findings.compare_ratio(
                &format!("slow_{takes}_ratio_{flows}"),
                &format!("goodput ÷ native, callback of {takes}, {flows} flows"),
                ratio,
                "",
                // Beside a native run that has all CPUs: what is left then is the machine's.
                None,
            );
            points.extend(ratio.map(|ratio| (at as f64, ratio.value)));
        }
        lines.push(ChartSeries::new(format!("{flows} flows"), n, points).dots());
        let gbit = measured.mean_and_deviation(flows, base, |run| vec![run.goodput_gbit]);
        findings.figure(
            format!("slow_native_gbit_{flows}"),
            gbit.map(|(mean, _)| mean),
        );
    }
    fair(&mut findings, measured);
    findings.picture(
        "Goodput under an algorithm that computes for long, over that of the kernel's own Reno",
        &[Chart {
            title: "goodput ÷ native".into(),
            x: Axis::linear("a callback takes: 0 nothing, 1 0.1 ms, 2 1 ms, 3 10 ms")
                .with_range(-0.5, 3.5),
            y: Axis::linear("").with_range(0.0, 1.2),
            lines,
            guides: vec![(1.0, "native".into())],
        }],
    );
    measured.judge(&mut findings);
    findings.remark(format!(
        "{rounds} rounds in turns with runs of {length}. The agent's thread is behind the senders (nice 10). The callback computes on a core of its own as long as there is one: \
         with as many flows as cores, what it takes is taken from the senders, as from the native run beside which a thread of the same priority computes as much."
    ));
    findings.deviation("The paper has no figure for this: \"it is possible to build algorithms that perform complex computations and yet achieve high throughput\" is its statement.");
    findings
}

/// Beside native with as much computed: of the numbers of flows the worst, by the low end of what
/// is known.
fn fair(findings: &mut Findings, measured: &Measured) {
    let mut ratios = Vec::new();
    for flows in FLOWS {
        let ratio = measured.matched_ratio(flows, |run| run.goodput_gbit);
        findings.compare_ratio(
            &format!("slow_1ms_ratio_fair_{flows}"),
            &format!("goodput ÷ native beside a thread that computes as much, callback of 1ms, {flows} flows"),
            ratio,
            "",
            TargetRange::AtLeast(0.95),
        );
        ratios.extend(ratio);
    }
    let low = |ratio: &Ratio| ratio.interval.map_or(ratio.value, |(low, _)| low);
    findings.compare_ratio(
        "slow_1ms_ratio_fair",
        "the worst of these",
        ratios.into_iter().min_by(|a, b| low(a).total_cmp(&low(b))),
        "",
        TargetRange::AtLeast(0.95),
    );
}

#[cfg(test)]
mod tests {
    use super::super::loopback::{matched, pretended};
    use super::*;

    #[test]
    fn it_is_in_the_registry_and_compared_with_native() {
        for contender in contenders().iter().skip(1) {
            let Contender::Ccplane { name, parameters } = contender else {
                panic!("{contender}")
            };
            let parameters = parameters
                .iter()
                .fold(ccplane_algorithms::Parameters::new(), |all, (k, v)| {
                    all.with(k, v)
                });
            let algorithm = registry().by_name(name, &parameters).unwrap();
            assert!(algorithm.kernel_name().len() <= 15);
        }
        let contenders = contenders();
        let measured = pretended(&[
            (1, contenders[0].clone(), &[40.0]),
            (1, contenders[4].clone(), &[30.0]),
        ]);
        assert_eq!(
            findings(&measured, 1, Duration::from_secs(1)).figures()["slow_10ms_ratio_1"],
            0.75
        );
        assert_eq!(contenders[MATCHED].to_string(), format!("{NAME}:takes=1ms"));
    }

    #[test]
    fn what_is_judged_is_beside_native_that_has_as_much_computed() {
        let pairs = [
            (1, 19.8, 20.0),
            (1, 19.8, 20.0),
            (8, 38.8, 40.0),
            (8, 38.8, 40.0),
        ];
        let measured = matched(pretended(&[]), &pairs);
        let findings = findings(&measured, 2, Duration::from_secs(1));
        let figures = findings.figures();
        assert_eq!(figures["slow_1ms_ratio_fair_1"], 0.99);
        assert_eq!(figures["slow_1ms_ratio_fair"], 0.97);
        assert_eq!(figures["slow_1ms_ratio_fair_verdict"], "met");
    }
}
