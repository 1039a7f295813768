//! BBR: a model of the path, its bandwidth and its shortest round trip, instead of losses.
//!
//! Two versions. [`Bbr`] is version 1 as Linux 6.x has it (`net/ipv4/tcp_bbr.c`). [`Bbr3`] is
//! version 3 as draft-ietf-ccwg-bbr has it (the working group's copy at commit 007dbe1 of 2026,
//! later than -06; sections are quoted by their titles).
//!
//! The *program* ([`program`]) does what every ACK needs. It measures: greatest delivery rate,
//! least RTT, packet-timed rounds, losses, and how far ACKs run ahead of the bandwidth. It keeps
//! window and pacing rate at the model times the gains in force. It raises the bandwidth and lowers
//! the RTT of its copy of the model at once. It ends what has to end within a round: a drained
//! queue, and in version 1 a phase of the gain cycle. It reports once a round. The *agent* decides
//! what lasts rounds or seconds: the filters over 10 rounds or 10 s, whether the pipe is full, the
//! next state, and the answer to losses. So an answer that is a round trip late prolongs a state by
//! a round trip, and leaves rate and window right meanwhile. A model that lags still holds the best
//! of the last 10 rounds.

mod filter;
mod full_pipe;
mod min_rtt;
mod model3;
mod policer;
mod program;
mod seen;
mod start;
#[cfg(test)]
mod tests;
mod v1;
mod v3;

pub use v1::Bbr;
pub(crate) use v1::{DOC, make};
pub use v3::Bbr3;
pub(crate) use v3::{DOC as DOC3, make as make3};

use std::str::FromStr;

use ccplane_agent::dice::Dice;
use ccplane_datapath::Capabilities;
use ccplane_units::Duration;

use crate::{BadParameter, ParameterDoc, Parameters};

const PROBE_RTT_INTERVAL: ParameterDoc = ParameterDoc {
    name: "probe_rtt_interval",
    default: "10s",
    values: "a duration of at least 1s",
    doc: "how long the shortest RTT is believed; then the window is cut for 200 ms to measure it anew",
};

/// The value of [`PROBE_RTT_INTERVAL`], µs.
fn probe_rtt_us(parameters: &Parameters) -> Result<u64, BadParameter> {
    struct Interval(Duration);
    impl FromStr for Interval {
        type Err = &'static str;
        fn from_str(text: &str) -> Result<Interval, &'static str> {
            match text.parse::<Duration>() {
                Ok(interval) if interval >= Duration::from_secs(1) => Ok(Interval(interval)),
                _ => Err(
                    "it is a duration of at least 1s, such as 10s; below that the flow would do little but probe",
                ),
            }
        }
    }
    let interval = parameters.read(PROBE_RTT_INTERVAL.name, Interval(Duration::from_secs(10)))?;
    Ok(interval.0.as_micros())
}

/// What both versions need of a datapath.
const NEEDS: Capabilities = Capabilities::CWND
    .with(Capabilities::PACING)
    .with(Capabilities::RTT)
    .with(Capabilities::DELIVERY_RATE);

/// Gains in programs are in this part of one. Products with it of rates up to 10^15 bytes/s do not
/// overflow.
const GAIN: u64 = 10_000;

/// BBR paces 1 % below what its model says (`bbr_pacing_margin_percent`; the draft's
/// BBR.PacingMarginPercent): without it an estimate that is a little high keeps a queue that never
/// drains; more wastes the link.
const fn paced(gain: u64) -> u64 {
    gain * 99 / 100
}

/// The pacing gain 1.
const UNITY: u64 = paced(GAIN);

/// No bound.
const NONE: u64 = u64::MAX;

/// Fewest segments in flight with which an endpoint that acknowledges every other segment keeps
/// ACKs coming (`bbr_cwnd_min_target`; the draft's BBR.MinPipeCwnd).
const LEAST_SEGMENTS: u64 = 4;

/// bytes/s over µs, in bytes.
fn volume(rate: u64, us: u64) -> u64 {
    u64::try_from(u128::from(rate) * u128::from(us) / 1_000_000).unwrap_or(u64::MAX)
}

/// `value` times `num`/`den`, without overflow on the way.
fn scale(value: u64, num: u64, den: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(num) / u128::from(den.max(1))).unwrap_or(u64::MAX)
}

/// What an agent's decisions are written to: a flow's control, or a test.
trait Orders {
    /// Sets a control variable of the program.
    fn set(&mut self, variable: &'static str, value: u64);
    /// Sets the window, bytes.
    fn window(&mut self, bytes: u64);
    /// Sets the pacing rate, bytes/s.
    fn pace(&mut self, rate: u64);
}

impl Orders for ccplane_agent::Control<'_> {
    fn set(&mut self, variable: &'static str, value: u64) {
        ccplane_agent::Control::set(self, variable, value);
    }

    fn window(&mut self, bytes: u64) {
        self.cwnd(ccplane_units::Bytes::new(bytes));
    }

    fn pace(&mut self, rate: u64) {
        self.rate(ccplane_units::Rate::from_bytes_per_sec(rate));
    }
}
