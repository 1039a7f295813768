//! BBR: congestion control based on a model of the path, its bandwidth and its round-trip
//! propagation delay, instead of losses.
//!
//! Two versions: [`Bbr`] is version 1 as in Linux 6.x (`net/ipv4/tcp_bbr.c`). [`Bbr3`] is version 3
//! as in draft-ietf-ccwg-bbr-06.
//!
//! The *program* ([`program`]) handles each ACK. It measures the maximum delivery rate, the minimum
//! RTT, packet-timed rounds, losses and ACK aggregation. It keeps the window and the pacing rate at
//! the model times the current gains, and at once raises the bandwidth or lowers the RTT in its
//! copy of the model. It ends what cannot wait a round for the agent: the draining of a queue, and
//! in version 1 a phase of the gain cycle. It reports once per round.
//!
//! The *agent* decides what takes rounds or seconds: the filters over 10 rounds or 10 s, full-pipe
//! detection, state transitions and the reaction to losses. An action that is a round trip late
//! prolongs a state by one round trip, with the rate and the window still valid. A late model still
//! holds the maximum of the last 10 rounds.

mod full_pipe;
mod initial_pacing;
mod max_filter;
mod min_rtt;
mod policer;
mod program;
mod report;
#[cfg(test)]
mod tests;
mod v1;
mod v3;

pub use v1::Bbr;
pub(crate) use v1::{DOC, make};
pub use v3::Bbr3;
pub(crate) use v3::{DOC as DOC3, make as make3};

use std::str::FromStr;

use ccplane_agent::rng::SplitMix64;
use ccplane_datapath::Capabilities;
use ccplane_units::Duration;

use crate::{BadParameter, ParameterDoc, Parameters};

const PROBE_RTT_INTERVAL: ParameterDoc = ParameterDoc {
    name: "probe_rtt_interval",
    default: "10s",
    values: "a duration of at least 1s",
    doc: "lifetime of the minimum RTT; then the window is cut for 200 ms to measure it again",
};

/// Parses [`PROBE_RTT_INTERVAL`], µs.
fn probe_rtt_us(parameters: &Parameters) -> Result<u64, BadParameter> {
    struct BbrInterval(Duration);
    impl FromStr for BbrInterval {
        type Err = &'static str;
        fn from_str(text: &str) -> Result<BbrInterval, &'static str> {
            match text.parse::<Duration>() {
                Ok(interval) if interval >= Duration::from_secs(1) => Ok(BbrInterval(interval)),
                _ => Err(
                    "expected a duration of at least 1s, such as 10s; below that the flow would \
                     mostly probe",
                ),
            }
        }
    }
    let interval = parameters.read(
        PROBE_RTT_INTERVAL.name,
        BbrInterval(Duration::from_secs(10)),
    )?;
    Ok(interval.0.as_micros())
}

/// Capabilities that both versions require.
const REQUIRED_CAPABILITIES: Capabilities = Capabilities::CWND
    .union(Capabilities::PACING)
    .union(Capabilities::RTT)
    .union(Capabilities::DELIVERY_RATE);

/// Unit of gains in programs, 1/10,000. Its product with rates up to 10^15 bytes/s does not
/// overflow.
const GAIN_UNIT: u64 = 10_000;

/// Returns a pacing gain minus the pacing margin of 1 % (`bbr_pacing_margin_percent`; the draft's
/// BBR.PacingMarginPercent). Without a margin, a slightly high estimate keeps a queue that never
/// drains. A larger one wastes capacity.
const fn paced(gain: u64) -> u64 {
    gain * 99 / 100
}

/// The pacing gain 1, with the pacing margin.
const UNITY_PACING_GAIN: u64 = paced(GAIN_UNIT);

/// No bound.
const UNBOUNDED: u64 = u64::MAX;

/// Minimum window, segments: an endpoint that acknowledges every other segment then keeps sending
/// ACKs (`bbr_cwnd_min_target`; the draft's BBR.MinPipeCwnd).
const MIN_PIPE_CWND_SEGMENTS: u64 = 4;

/// Returns `rate` (bytes/s) times `us` (µs), bytes.
fn volume(rate: u64, us: u64) -> u64 {
    u64::try_from(u128::from(rate) * u128::from(us) / 1_000_000).unwrap_or(u64::MAX)
}

/// Returns `value`·`num`/`den` without intermediate overflow.
fn scale(value: u64, num: u64, den: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(num) / u128::from(den.max(1))).unwrap_or(u64::MAX)
}

/// Receiver of the agent's commands: a flow's control, or a test.
trait ControlSink {
    /// Sets a control variable of the program.
    fn set_variable(&mut self, variable: &'static str, value: u64);
    /// Sets the window, bytes.
    fn set_window(&mut self, bytes: u64);
    /// Sets the pacing rate, bytes/s.
    fn set_pacing_rate(&mut self, rate: u64);
}

impl ControlSink for ccplane_agent::Control<'_> {
    fn set_variable(&mut self, variable: &'static str, value: u64) {
        ccplane_agent::Control::set_variable(self, variable, value);
    }

    fn set_window(&mut self, bytes: u64) {
        self.set_cwnd(ccplane_units::Bytes::new(bytes));
    }

    fn set_pacing_rate(&mut self, rate: u64) {
        self.set_rate(ccplane_units::Rate::from_bytes_per_sec(rate));
    }
}
