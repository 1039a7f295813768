//! Connection of `ccplane send` over ccplane's own transport.

use std::io;
use std::net::SocketAddr;

use ccplane_agent::datapath::InlineChannel;
use ccplane_agent::{Agent, AgentOptions};
use ccplane_datapath::Capabilities;
use ccplane_link::RemoteChannel;
use ccplane_link::identity::Fingerprint;
use ccplane_qdisc::marking::class_of;
use ccplane_transport::{ConnectionError, Ecn, Native, Rc3, Rc3Stats, UnknownNative};
use ccplane_udp::{DelayHistogram, HandshakeError, Tls, UdpCongestion, UdpHost};
use ccplane_units::Duration;
use serde_json::json;

use super::stream::Stream;
use super::{
    ConnectionSummary, SendArgs, SendConnection, acked_file_bytes, lost_failure, wildcard,
};
use crate::contender::add;
use crate::exit::{Failure, FailureKind};
use crate::steering::{ControlSource, SteerArgs};
use crate::transfer::host::TransferHost;
use crate::transfer::liveness::{Liveness, LivenessVerdict};
use crate::transfer::{failed, no_answer_failure};
use crate::{Registry, identity};

/// Receiver that has become silent.
const SILENT_RECEIVER_ERROR: &str = "the receiver stopped answering";

/// Connection to the receiver.
pub(super) struct UdpConnection {
    host: UdpHost,
    id: u64,
    to: SocketAddr,
    liveness: Liveness,
    /// --mtu, bytes.
    mtu: u32,
    rc3: bool,
}

impl UdpConnection {
    /// Starts a connection to `to`, which must have the fingerprint `trusted` if there is one.
    pub fn open(
        args: &SendArgs,
        registry: &Registry,
        (to, trusted): (SocketAddr, Option<Fingerprint>),
    ) -> Result<UdpConnection, Failure> {
        let dscp = args.dscp.unwrap_or(0);
        let class = class_of(dscp);
        if args.rc3 && class != 0 {
            let text = format!(
                "--dscp {dscp} cannot be used with --rc3: it marks class {class} of the second \
                 loop, so the first loop would have no priority over it"
            );
            return Err(Failure::text(FailureKind::Usage, text).hint(
                "remove --dscp, or use a codepoint other than 1, 3, 11 and 19, which mark lower \
                 classes",
            ));
        }
        let own = identity::load_known(args.transfer.identity.as_deref())?;
        let tls = Tls::client(trusted, own.as_ref())
            .map_err(|why| Failure::new(FailureKind::Usage, why))?;
        let mut options = args
            .transfer
            .udp_options(wildcard(to), Some(to), dscp, tls)?;
        options.config.max_rate = args.steer.max_rate;
        options.config.rc3 = args.rc3.then(Rc3::default);
        let wants = match (
            ccplane_lab::wants(&args.steer.alg, registry),
            args.steer.remote_agent.is_set(),
        ) {
            (Ok(wants), _) => wants,
            // A remote agent may have algorithms that are unknown here.
            (Err(_), true) => Capabilities::default(),
            (Err(error), false) => return Err(Failure::new(FailureKind::Usage, error)),
        };
        if wants.contains(Capabilities::ECN) {
            options.config.ecn = Ecn::Ect0;
        }
        options.config.restart_after_idle = !wants.contains(Capabilities::KEEPS_WINDOW);
        options.config.stamps = args
            .transfer
            .stamps()
            .on(wants.contains(Capabilities::ONE_WAY_DELAY));
        let mut host = UdpHost::bind(options).map_err(failed)?;
        let congestion = congestion(&args.steer, registry, &mut host)?;
        let id = host.connect(to, congestion).map_err(failed)?;
        Ok(UdpConnection {
            liveness: Liveness::new(host.now(), args.transfer.timeout()?),
            host,
            id,
            to,
            mtu: args.transfer.mtu(),
            rc3: args.rc3,
        })
    }

    /// Returns a failure for a connection that ended early.
    fn failure(&self, why: ConnectionError, stream: &Stream) -> Failure {
        if let Some(why) = self.host.handshake_error(self.id) {
            return handshake_failure(self.to, why);
        }
        let why_lost =
            |why: &str| lost_failure(self.to, stream, acked_file_bytes(self, stream), why);
        let failure = match why {
            ConnectionError::NoAnswer(_) => no_answer_failure(self.to, self.host.last_error()),
            ConnectionError::TimedOut(_) | ConnectionError::IdleTimeout => {
                why_lost(SILENT_RECEIVER_ERROR)
            }
            ConnectionError::Reset => {
                why_lost("the receiver aborted it; see the receiver's own output for the reason")
            }
            why => why_lost(&why.to_string()),
        };
        failure.reason(why.name())
    }
}

impl SendConnection for UdpConnection {
    fn host(&mut self) -> (&mut dyn TransferHost, u64) {
        (&mut self.host, self.id)
    }

    fn check(&mut self, stream: &Stream) -> Result<(), Failure> {
        let Some(connection) = self.host.connection(self.id) else {
            return Ok(());
        };
        if let Some(why) = connection.failure() {
            return Err(self.failure(why, stream));
        }
        if connection.srtt() == Duration::ZERO {
            // Port unreachable before the handshake is believed, as in TCP.
            let refused = self
                .host
                .last_error()
                .filter(|why| why.kind() == io::ErrorKind::ConnectionRefused);
            return match refused {
                Some(_) => Err(no_answer_failure(self.to, refused)),
                None => Ok(()),
            };
        }
        let last_received = connection.last_received();
        let (reason, why) =
            match self
                .liveness
                .poll(self.host.now(), last_received, self.host.refusals())
            {
                LivenessVerdict::Wait => return Ok(()),
                LivenessVerdict::Probe => {
                    self.host.probe(self.id);
                    return Ok(());
                }
                LivenessVerdict::Refused => ("refused", "the receiving process has exited"),
                LivenessVerdict::TimedOut => {
                    (ConnectionError::IdleTimeout.name(), SILENT_RECEIVER_ERROR)
                }
            };
        Err(lost_failure(self.to, stream, acked_file_bytes(self, stream), why).reason(reason))
    }

    fn is_connected(&self) -> bool {
        let connection = self.host.connection(self.id);
        connection.is_some_and(|connection| connection.srtt() != Duration::ZERO)
    }

    fn accepted(&self, _stream: &Stream) -> u64 {
        self.host.stats(self.id).map_or(0, |stats| stats.acked)
    }

    fn awaits_receiver(&self, stream: &Stream) -> bool {
        // If everything is acknowledged and the source is silent, the receiver owes nothing. The
        // transport itself limits the handshake.
        let connection = self.host.connection(self.id);
        let has_data = connection.is_some_and(|connection| connection.pending() > 0);
        self.is_connected() && (has_data || stream.is_complete())
    }

    fn close(self: Box<Self>, completed: bool, bytes: u64) -> Result<ConnectionSummary, Failure> {
        let (id, mut host) = (self.id, self.host);
        if !completed {
            host.abort(id).map_err(failed)?;
            return Ok(ConnectionSummary::default());
        }
        let Some(connection) = host.connection(id) else {
            unreachable!("only this function removes it")
        };
        let (stats, mss) = (connection.stats(), connection.mss());
        let rc3 = connection.rc3_stats().copied();
        let rc3 = self.rc3.then(|| rc3.unwrap_or_default());
        let packet = host.packet_bytes(id).unwrap_or_default();
        let (delays, missed) = (host.delays(id).cloned(), host.missed_departures());
        let renewed = host.key_updates(id);
        // Sends the ACK of the receipt.
        host.poll(Duration::ZERO).map_err(failed)?;
        host.remove(id);

        let us = |share: f64| {
            let delay = delays.as_ref().and_then(|delays| delays.quantile(share));
            delay.map(|delay| delay.as_nanos() as f64 / 1e3)
        };
        let json = json!({
            "key_updates": renewed, "timeouts": stats.timeouts, "marked": stats.marked,
            "min_rtt_ms": stats.min_rtt.as_nanos() as f64 / 1e6,
            "queue_delay_samples": delays.as_ref().map_or(0, DelayHistogram::count),
            "samples_dropped": stats.samples_dropped, "departures_missed": missed,
            "second_loop": rc3.as_ref().map(|rc3| json!({
                "delivered_bytes": rc3.delivered_bytes, "sent_bytes": rc3.sent_bytes, "sent": rc3.sent, "arrived": rc3.arrived,
                "missing": rc3.unconfirmed(), "duplicates": rc3.duplicates, "bumps": rc3.skips,
                "stopped": rc3.stopped.map(|why| why.to_string()),
            })),
            "queue_delay_p50_us": us(0.5), "queue_delay_p90_us": us(0.9), "queue_delay_p99_us": us(0.99),
        });
        let mut lines = Vec::new();
        if packet < self.mtu as usize {
            lines.push(format!("path MTU: {packet} bytes"));
        }
        if let (Some(delays), Some(median), Some(p99)) = (&delays, us(0.5), us(0.99)) {
            lines.push(format!(
                "one-way queueing delay: median {median:.1} µs, 99th percentile {p99:.1} µs, {} \
                 packets",
                delays.count()
            ));
        }
        lines.extend(rc3.map(|rc3| second_loop(&rc3, bytes)));
        lines.extend(no_samples(stats.samples_dropped, missed));
        Ok(ConnectionSummary {
            mss,
            packet_bytes: packet as u64,
            retransmitted: stats.retransmitted.into(),
            lost: stats.lost.into(),
            srtt: stats.srtt,
            min_rtt: Some(stats.min_rtt),
            cwnd: stats.cwnd,
            pacing_rate: (stats.pacing_rate != 0).then_some(stats.pacing_rate),
            losses: format!("{} segments retransmitted", stats.retransmitted),
            json,
            lines,
        })
    }
}

/// Returns a failure for a handshake in which one side rejected or could not parse the other's
/// messages.
fn handshake_failure(to: SocketAddr, why: &HandshakeError) -> Failure {
    let hint = match why {
        HandshakeError::Fingerprint => {
            "use the command that `ccplane recv` prints there; if it is the same, another host \
             impersonates the receiver, or its certificate has changed"
        }
        HandshakeError::Unknown | HandshakeError::Nameless => {
            "run `ccplane keys fingerprint` here, and pass the fingerprint to `ccplane recv \
             --client` there"
        }
        _ => "check that it runs `ccplane recv` of the same version",
    };
    Failure::text(FailureKind::Failed, format!("no transfer to {to}: {why}")).hint(hint)
}

/// Returns the congestion control; starts an agent in this process, or connects to a remote one.
fn congestion(
    steer: &SteerArgs,
    registry: &Registry,
    host: &mut UdpHost,
) -> Result<UdpCongestion, Failure> {
    let mut limits = steer.limits()?;
    match steer.control_source(&mut limits)? {
        ControlSource::Native(name) => native(name).map(UdpCongestion::Native),
        ControlSource::Agent(address, name) => {
            let remote = address.connection(&name);
            let link = RemoteChannel::connect(remote, host.now())
                .map_err(|e| Failure::new(FailureKind::Failed, e))?;
            host.set_agent(link, limits);
            Ok(UdpCongestion::Steered(name))
        }
        ControlSource::InProcess => {
            let mut agent = Agent::new(AgentOptions::default());
            add(&mut agent, &steer.alg, registry)?;
            host.set_agent(InlineChannel::new(agent), limits);
            Ok(UdpCongestion::Steered(steer.alg.algorithm().to_owned()))
        }
    }
}

/// Returns the transport's built-in congestion control of this name.
fn native(name: &str) -> Result<Native, Failure> {
    name.parse().map_err(|e: UnknownNative| {
        Failure::new(FailureKind::Usage, e)
            .hint("for an algorithm of ccplane, omit `native:`; see `ccplane algorithms`")
    })
}

/// Describes what the second loop contributed, and why it stopped if it did.
fn second_loop(rc3: &Rc3Stats, bytes: u64) -> String {
    let sent: u64 = rc3.sent.iter().sum();
    let mut text = if sent == 0 {
        "second loop: nothing left to send".to_owned()
    } else {
        let share = rc3.delivered_bytes as f64 / bytes.max(1) as f64 * 100.0;
        let missing: Vec<String> = rc3.unconfirmed().iter().map(u64::to_string).collect();
        format!(
            "second loop: delivered {} of {bytes} bytes ({share:.0} %), {} of {sent} segments \
             arrived twice, unconfirmed by level: {}",
            rc3.delivered_bytes,
            rc3.duplicates,
            missing.join(", "),
        )
    };
    if let Some(why) = &rc3.stopped {
        text.push_str(&format!("; stopped: {why}"));
    }
    text
}

/// Describes stamped ACKs that gave no queueing delay, with the reasons; `None` if there were none.
fn no_samples(impossible: u32, unknown: u64) -> Option<String> {
    let mut reasons = Vec::new();
    if impossible > 0 {
        reasons.push(format!("{impossible} with implausible time stamps"));
    }
    if unknown > 0 {
        reasons.push(format!(
            "{unknown} for packets whose departure time was not yet known"
        ));
    }
    (!reasons.is_empty()).then(|| format!("ACKs without a delay sample: {}", reasons.join(", ")))
}

#[cfg(test)]
mod tests {
    use ccplane_transport::Rc3Stop;

    use super::*;

    #[test]
    fn the_second_loop_is_described_with_the_reason_why_it_stopped() {
        let mut rc3 = Rc3Stats::default();
        assert_eq!(second_loop(&rc3, 100), "second loop: nothing left to send");
        (rc3.sent, rc3.arrived) = ([40, 400, 9, 0], [40, 390, 0, 0]);
        (rc3.delivered_bytes, rc3.duplicates) = (500_000, 7);
        assert_eq!(
            second_loop(&rc3, 1_000_000),
            "second loop: delivered 500000 of 1000000 bytes (50 %), 7 of 449 segments arrived \
             twice, unconfirmed by level: 0, 10, 9, 0"
        );
        rc3.stopped = Some(Rc3Stop::Marking { class: 2 });
        let text = second_loop(&rc3, 1_000_000);
        assert!(
            text.contains("; stopped: the path resets the marking"),
            "{text}"
        );
    }

    #[test]
    fn dropped_samples_are_listed_by_reason() {
        assert_eq!(no_samples(0, 0), None);
        assert_eq!(
            no_samples(3, 0).as_deref(),
            Some("ACKs without a delay sample: 3 with implausible time stamps")
        );
        let both = no_samples(1, 2).unwrap_or_default();
        assert!(
            both.contains("1 with") && both.contains(", 2 for packets"),
            "{both}"
        );
    }
}
