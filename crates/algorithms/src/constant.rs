//! Constant rate, constant window, or both: no congestion control. For calibration and as cross
//! traffic.

use std::str::FromStr;

use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, box_algorithm};
use ccplane_datapath::Capabilities;
use ccplane_units::{Bytes, Packets, Rate};

use crate::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters};

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "constant",
    doc: "a constant rate, a constant window, or both, without congestion control",
    parameters: &[
        ParameterDoc {
            name: "rate",
            default: "off",
            values: "off | a rate such as 50mbit",
            doc: "pacing rate; off: limited only by the window",
        },
        ParameterDoc {
            name: "cwnd",
            default: "auto",
            values: "auto | packets such as 80p | bytes such as 120kB",
            doc: "window; auto: twice what the rate carries in a round trip, or the initial \
                window if there is no rate",
        },
    ],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    Ok(box_algorithm(Constant {
        rate: parameters.rate_or("rate", "off")?,
        window: parameters.read("cwnd", ConstantWindow::default())?,
    }))
}

/// Keeps its rate and window through losses and timeouts. One such flow can keep a queue full
/// forever, so use it only on networks you own.
pub struct Constant {
    rate: Option<Rate>,
    window: ConstantWindow,
}

/// Window to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ConstantWindow {
    #[default]
    Auto,
    Packets(Packets),
    Bytes(Bytes),
}

impl FromStr for ConstantWindow {
    type Err = String;
    fn from_str(text: &str) -> Result<ConstantWindow, String> {
        let packets = || {
            text.parse::<Packets>()
                .ok()
                .filter(|packets| packets.get() > 0)
        };
        let bytes = || text.parse::<Bytes>().ok().filter(|bytes| bytes.get() > 0);
        match text {
            "auto" => Ok(ConstantWindow::Auto),
            _ => packets()
                .map(ConstantWindow::Packets)
                .or_else(|| bytes().map(ConstantWindow::Bytes))
                .ok_or_else(|| {
                    "expected `auto`, packets such as `80p` or bytes such as `120kB`, above 0"
                        .to_owned()
                }),
        }
    }
}

impl Algorithm for Constant {
    type Flow = ();

    fn name(&self) -> &str {
        DOC.name
    }

    fn programs(&self) -> Programs {
        Programs::new().with("constant", program(self.rate, self.window))
    }

    fn required_capabilities(&self) -> Capabilities {
        match (self.rate, self.window) {
            (None, _) => Capabilities::CWND,
            (Some(_), ConstantWindow::Auto) => Capabilities::CWND
                .union(Capabilities::PACING)
                .union(Capabilities::RTT),
            (Some(_), _) => Capabilities::CWND.union(Capabilities::PACING),
        }
    }

    /// Neither rate nor window ever changes.
    fn requested_capabilities(&self) -> Capabilities {
        self.required_capabilities()
            .union(Capabilities::KEEPS_WINDOW)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) {
        let rate = self.rate.map_or(0, Rate::bytes_per_sec);
        let window = match self.window {
            ConstantWindow::Auto if rate == 0 => info.init_cwnd.get(),
            ConstantWindow::Auto => 0,
            ConstantWindow::Packets(packets) => packets.get().saturating_mul(info.mss.get()),
            ConstantWindow::Bytes(bytes) => bytes.get(),
        };
        let least = info.init_cwnd.get();
        control.set_program(
            "constant",
            &[("rate", rate), ("window", window), ("least", least)],
        );
    }

    fn on_report(&mut self, (): &mut (), _report: &Report<'_>, _control: &mut Control<'_>) {}
}

/// Returns the program. It declares only what the parameters require, so that a datapath with fewer
/// capabilities is accepted. A `window` of 0 stands for twice the rate's bandwidth-delay product on
/// the smoothed RTT, and at least the initial window: pacing is then the limit. In recovery the
/// program sets ssthresh to the window it wants, so that the datapath does not reduce it. It
/// reports once a second for monitoring only.
fn program(rate: Option<Rate>, window: ConstantWindow) -> String {
    let pace = if rate.is_some() {
        "\n    (:= Rate rate)"
    } else {
        ""
    };
    let wanted = match (rate, window) {
        (Some(_), ConstantWindow::Auto) => {
            "(max least (if (< Flow.srtt_us +infinity) (/ (* 2 rate Flow.srtt_us) 1000000) 0))"
        }
        _ => "window",
    };
    format!(
        "(def
    (Report (volatile acked 0) (volatile lost 0) (cwnd 0))
    (rate 0) (window 0) (least 0) (wanted 0) (in_loss false))
(when true
    (:= Report.acked (+ Report.acked Ack.bytes_acked))
    (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
    (:= in_loss (|| Flow.was_timeout (&& in_loss Flow.in_recovery)))
    (:= wanted {wanted}){pace}
    (if (&& Flow.in_recovery (! in_loss)) (:= Ssthresh wanted) (:= Cwnd wanted))
    (:= Report.cwnd Cwnd)
    (fallthrough))
(when (> Micros 1s)
    (:= Micros 0)
    (report))
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Registry;
    use crate::script::{MSS, Script, everything};
    use ccplane_units::Duration;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_window_stands_through_losses_and_timeouts() {
        for (parameters, window) in [
            ("cwnd=80p", 80),
            ("cwnd=80kB", 80),
            ("", 10),
            ("rate=1mbit,cwnd=7", 7),
        ] {
            let mut script = Script::new("constant", parameters);
            script.ack(MS, |_| {});
            assert_eq!(script.window(), window, "{parameters}");
            // A recovery begins: the transport has halved ssthresh and is about to reduce the
            // window to it.
            script.transport.ssthresh = window * MSS / 2;
            let outcome = script.ack(MS, |s| (s.in_recovery, s.lost_pkts_sample) = (1, 1));
            assert_eq!(
                (outcome.ssthresh, outcome.cwnd),
                (Some(window * MSS), None),
                "{parameters}"
            );
            script.transport.cwnd = MSS;
            script.ack(MS, |s| {
                (s.in_recovery, s.was_timeout, s.bytes_acked) = (1, 1, 0)
            });
            assert_eq!(script.window(), window, "{parameters}");
        }
    }

    #[test]
    fn a_rate_is_held_and_its_window_is_twice_what_it_carries_in_an_rtt() {
        let mut script = Script::new("constant", "rate=80mbit");
        script.ack(MS, |_| {});
        // 10 MB/s · 20 ms · 2.
        assert_eq!(
            (script.transport.rate, script.transport.cwnd),
            (10_000_000, 400_000)
        );
        script.ack(MS, |s| s.srtt_us = 40_000);
        assert_eq!(script.transport.cwnd, 800_000);
        script.ack(MS, |s| s.srtt_us = 10);
        assert_eq!(script.transport.cwnd, 10_000, "no less than it began with");
        script.ack(MS, |s| s.srtt_us = 0);
        assert_eq!(script.transport.cwnd, 10_000, "no RTT known");
    }

    #[test]
    fn missing_capabilities_reject_constant() {
        let window = Capabilities::CWND;
        assert!(Script::on(window, "constant", "cwnd=10p").is_some());
        assert!(
            Script::on(window, "constant", "rate=1mbit,cwnd=10p").is_none(),
            "no pacing"
        );
        let paced = window.union(Capabilities::PACING);
        assert!(Script::on(paced, "constant", "rate=1mbit,cwnd=10p").is_some());
        assert!(
            Script::on(paced, "constant", "rate=1mbit").is_none(),
            "no RTT"
        );
        assert!(Script::on(everything(), "constant", "rate=1mbit").is_some());
    }

    #[test]
    fn a_value_without_sense_is_told() {
        for (parameters, expected) in [
            ("rate=0mbit", "a rate of zero sends nothing"),
            ("rate=fast", "or `off`"),
            ("cwnd=0", "above 0"),
            ("cwnd=1bdp", "packets such as `80p`"),
        ] {
            let parameters = parameters.parse().expect("well-formed");
            match Registry::builtin().by_name("constant", &parameters) {
                Ok(_) => panic!("{parameters:?} was accepted"),
                Err(why) => assert!(why.to_string().contains(expected), "{why}"),
            }
        }
    }
}
