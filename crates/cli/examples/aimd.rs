//! AIMD, to start an algorithm of your own from: one segment more each round trip, a share of the
//! window after a loss.
//!
//! `cargo run --release -- run --alg aimd --vs native:reno --rate 48mbit --rtt 20ms`

use ccplane::agent::{Algorithm, Control, Fields, FlowInfo, Programs, Report, box_algorithm};
use ccplane::units::Bytes;
use ccplane::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters, Registry};

/// What the fold reports: its variables, with their names and in their order.
#[derive(Fields)]
struct Round {
    lost: bool,
}

struct Aimd {
    /// The share of the window that a loss leaves.
    back: f64,
}

/// What is kept for each flow: bytes.
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
            control.set_ssthresh(Bytes::new(flow.cwnd)); // where the datapath's recovery brings the window
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
        doc: "the share of the window that a loss leaves",
    }],
};

/// `--alg aimd:back=0.8` comes here.
fn make(parameters: &Parameters) -> Result<Aimd, BadParameter> {
    let back = parameters.read("back", 0.5)?;
    if !(0.1..=0.95).contains(&back) {
        return Err(BadParameter::value(
            "back",
            back.to_string(),
            "it is from 0.1 to 0.95",
        ));
    }
    Ok(Aimd { back })
}

/// ccplane's own algorithms, and this one.
fn registry() -> Registry {
    Registry::builtin().add(DOC, |parameters| Ok(box_algorithm(make(parameters)?)))
}

fn main() -> std::process::ExitCode {
    ccplane::main_with(registry())
}

#[cfg(test)]
mod tests {
    use super::registry;

    /// In the simulator: the same bytes on every machine.
    #[test]
    fn it_fills_a_link() {
        let scenario = r#"
            contenders = ["aimd", "aimd:back=0.8"]
            duration = "10s"
            topology.dumbbell = { rate = "48mbit", rtt = "20ms", queue = "droptail:1bdp" }
            workload = [{ bulk = { flows = 2 } }]
        "#;
        let result = ccplane::simulate(scenario, &registry()).expect("it runs");
        for contender in &result.contenders {
            let figures = &contender.figures;
            assert!(
                figures.utilisation > 0.9,
                "{}: {figures:?}",
                contender.label
            );
        }
        let [half, more] = [0, 1].map(|n| result.contenders[n].figures.delay_mean_ms);
        assert!(
            half < more,
            "who keeps more of the window has more of a queue: {half} and {more} ms"
        );
    }
}
