//! AIMD, a starting point for your own algorithm: adds one segment to the window per round trip,
//! and multiplies the window by `back` after a loss.
//!
//! `cargo run --release -- run --alg aimd --vs native:reno --rate 48mbit --rtt 20ms`

use ccplane::agent::{Algorithm, Control, Fields, FlowInfo, Programs, Report, box_algorithm};
use ccplane::units::Bytes;
use ccplane::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters, Registry};

/// Report of the fold: its variables, with the same names and in the same order.
#[derive(Fields)]
struct Round {
    lost: bool,
}

struct Aimd {
    /// Factor of the window after a loss.
    back: f64,
}

/// State of a flow, in bytes.
struct Window {
    cwnd: u64,
    mss: u64,
}

impl Algorithm for Aimd {
    type Flow = Window;

    fn name(&self) -> &str {
        "aimd"
    }

    fn programs(&self) -> Programs {
        Programs::new().with_report::<Round>("fold", include_str!("fold.ccp"))
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> Window {
        control.set_program("fold", &[]);
        Window {
            cwnd: info.cwnd.get(),
            mss: info.mss.get(),
        }
    }

    fn on_report(&mut self, flow: &mut Window, report: &Report<'_>, control: &mut Control<'_>) {
        let Some(round) = report.read::<Round>() else {
            return;
        };
        if round.lost {
            flow.cwnd = ((flow.cwnd as f64 * self.back) as u64).max(2 * flow.mss);
            control.set_ssthresh(Bytes::new(flow.cwnd)); // target of the datapath's recovery
        } else {
            flow.cwnd += flow.mss;
        }
        control.set_cwnd(Bytes::new(flow.cwnd));
    }
}

const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "aimd",
    doc: "additive increase, multiplicative decrease",
    parameters: &[ParameterDoc {
        name: "back",
        default: "0.5",
        values: "0.1 to 0.95",
        doc: "factor of the window after a loss",
    }],
};

/// Creates the algorithm from its parameters: `--alg aimd:back=0.8`.
fn make(parameters: &Parameters) -> Result<Aimd, BadParameter> {
    let back = parameters.read("back", 0.5)?;
    if !(0.1..=0.95).contains(&back) {
        return Err(BadParameter::value(
            "back",
            back.to_string(),
            "expected 0.1 to 0.95",
        ));
    }
    Ok(Aimd { back })
}

/// Returns ccplane's algorithms and this one.
fn registry() -> Registry {
    Registry::builtin().add(DOC, |parameters| Ok(box_algorithm(make(parameters)?)))
}

fn main() -> std::process::ExitCode {
    ccplane::main_with(registry())
}

#[cfg(test)]
mod tests {
    use super::registry;

    /// The simulator gives the same result on every machine.
    #[test]
    fn it_fills_a_link() {
        let scenario = r#"
            contenders = ["aimd", "aimd:back=0.8"]
            duration = "10s"
            topology.dumbbell = { rate = "48mbit", rtt = "20ms", queue = "droptail:1bdp" }
            workload = [{ bulk = { flows = 2 } }]
        "#;
        let result = ccplane::simulate(scenario, &registry()).expect("the scenario runs");
        for contender in &result.contenders {
            let metrics = &contender.metrics;
            assert!(
                metrics.utilisation > 0.9,
                "{}: {metrics:?}",
                contender.label
            );
        }
        let [half, more] = [0, 1].map(|n| result.contenders[n].metrics.delay_mean_ms);
        assert!(
            half < more,
            "a smaller reduction leaves a longer queue: {half} and {more} ms"
        );
    }
}
