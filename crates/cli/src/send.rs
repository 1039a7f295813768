//! `ccplane send`: sends a file, standard input or a pattern to a `ccplane recv` on another host.
#![expect(clippy::disallowed_methods, reason = "progress output uses real time")]

mod source;
mod stream;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use ccplane_agent::datapath::InlineChannel;
use ccplane_agent::{Agent, AgentOptions};
use ccplane_datapath::Capabilities;
use ccplane_link::RemoteChannel;
use ccplane_qdisc::marking::class_of;
use ccplane_transport::{
    ConnectionError as Ended, ConnectionStats, Ecn, Native, Rc3, Rc3Stats, UnknownNative,
};
use ccplane_udp::{DelayHistogram, HandshakeError, Tls, UdpCongestion, UdpHost};
use ccplane_units::{Bytes, Duration, Rate};
use clap::Args;
use indicatif::{HumanBytes, ProgressBar};
use serde_json::json;

use crate::attach::add;
use crate::escape::printable;
use crate::exit::{Failure, FailureKind};
use crate::identity::{self, receiver};
use crate::steering::{ControlSource, SteerArgs};
use crate::transfer::liveness::{Liveness, LivenessVerdict, PeerProgress, STALL_TIMEOUTS};
use crate::transfer::wire::{Answers, Hash, Header, TransferReply};
use crate::transfer::{TransferArgs, bar, cpu_seconds, failed, hex, no_answer_failure};
use crate::{Registry, interrupt};
use source::SendSource;
use stream::{FillResult, Stream};

/// Interval at which the interrupt flag is checked.
const INTERRUPT_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Receiver that has become silent.
const SILENT_RECEIVER_ERROR: &str = "the receiver stopped answering";
/// Receiver that answers but makes no progress.
const STALLED_RECEIVER_ERROR: &str = "the receiver answers but accepts no data and sends no \
    receipt; increase --timeout if its disk is slow";
/// Initial polling interval of a source that pauses.
const SOURCE_POLL_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Interval between updates of the progress bar.
const PROGRESS_INTERVAL: std::time::Duration = std::time::Duration::from_millis(100);

#[derive(Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["file", "bytes", "fingerprint"])))]
pub struct SendArgs {
    /// Receiver and fingerprint of its certificate, as it prints them: HOST:PORT#FINGERPRINT.
    #[arg(
        value_name = "HOST:PORT#FINGERPRINT",
        required_unless_present = "fingerprint"
    )]
    to: Option<String>,
    /// File to send, under its name; `-` for standard input.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Length of a pattern to send instead of a file: `1GB`.
    #[arg(long, value_name = "N")]
    bytes: Option<Bytes>,
    /// Print the fingerprint of this host's certificate, for `ccplane recv --client`, and exit. The
    /// certificate is created if it does not exist.
    #[arg(long, conflicts_with = "to")]
    fingerprint: bool,
    /// Send to a receiver on another host without its fingerprint. Anyone on the path can then
    /// impersonate it.
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    steer: SteerArgs,
    /// Also send the file from its last byte backwards, at low priority, until both loops meet
    /// (RC3). On a long path with spare capacity this takes a fraction of the time. The path's
    /// queues must serve low priority last, which `ccplane qdisc` sets up on Linux; if the marking
    /// is lost on the path, or if it delays ordinary packets, the second loop stops by itself.
    #[arg(long)]
    rc3: bool,
    /// Differentiated Services codepoint of sent packets, 0 to 63.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..64))]
    dscp: u8,
    #[command(flatten)]
    transfer: TransferArgs,
}

pub fn run(args: &SendArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    if args.fingerprint {
        let fingerprint = identity::load(args.transfer.identity.as_deref())?
            .fingerprint()
            .to_string();
        if json {
            println!("{}", json!({ "fingerprint": fingerprint }));
        } else {
            println!("{fingerprint}");
        }
        return Ok(());
    }
    args.steer.limits()?;
    let class = class_of(args.dscp);
    if args.rc3 && class != 0 {
        let text = format!(
            "--dscp {0} cannot be used with --rc3: it marks class {class} of the second loop, so \
             the first loop would have no priority over it",
            args.dscp
        );
        return Err(Failure::text(FailureKind::Usage, text).hint(
            "remove --dscp, or use a codepoint other than 1, 3, 11 and 19, which mark lower \
             classes",
        ));
    }
    let (source, header) = match (&args.file, args.bytes) {
        (Some(path), _) => SendSource::open(path)?,
        (None, bytes) => SendSource::pattern(bytes.unwrap_or_default()),
    };
    let (to, trusted) = receiver(
        args.to.as_deref().unwrap_or_default(),
        "ccplane recv",
        args.insecure,
    )?;
    let own = identity::load_known(args.transfer.identity.as_deref())?;
    let tls =
        Tls::client(trusted, own.as_ref()).map_err(|why| Failure::new(FailureKind::Usage, why))?;
    let stop = interrupt::flag()?;
    let done = transfer(args, registry, (source, &header), (to, tls), &stop)?;
    print(args, to, &done, json);
    Ok(())
}

/// Summary of a successful transfer.
struct SendResult {
    bytes: u64,
    seconds: f64,
    cpu_s: f64,
    hash: Hash,
    stats: ConnectionStats,
    mss: u64,
    /// Largest packet that the path carries.
    packet: usize,
    /// One-way queueing delays, if packets were stamped.
    delays: Option<DelayHistogram>,
    /// ACKs without a delay sample, because the departure time of the acknowledged packet was not
    /// known yet.
    departures_missed: u64,
    /// Key updates of the connection.
    renewed: u64,
    /// Counters of the second loop, if requested; zero if nothing was left for it.
    rc3: Option<Rc3Stats>,
}

fn transfer(
    args: &SendArgs,
    registry: &Registry,
    (source, header): (SendSource, &Header),
    (to, tls): (SocketAddr, Tls),
    stop: &AtomicBool,
) -> Result<SendResult, Failure> {
    let any: SocketAddr = if to.is_ipv4() {
        ([0, 0, 0, 0], 0).into()
    } else {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let mut options = args.transfer.options(any, Some(to), args.dscp, tls)?;
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
        .stamps
        .on(wants.contains(Capabilities::ONE_WAY_DELAY));
    let mut host = UdpHost::bind(options).map_err(failed)?;
    let congestion = congestion(&args.steer, registry, &mut host)?;
    let mut stream = Stream::new(source, header, host.now())?;
    let total = stream.total();
    let bar = bar(total);

    let begun = (Instant::now(), cpu_seconds());
    let id = host.connect(to, congestion).map_err(failed)?;
    let receipt = match run_transfer(args, &mut host, id, &mut stream, to, stop, &bar) {
        Ok(receipt) => receipt,
        Err(why) => {
            // Notifies the receiver. A failure to do so adds nothing to the first error.
            let _ = host.abort(id);
            return Err(why);
        }
    };
    let elapsed = begun.0.elapsed();
    let cpu = cpu_seconds();
    bar.finish_and_clear();
    let (Some(stats), Some(mss)) = (host.stats(id), host.connection(id).map(|c| c.mss())) else {
        unreachable!("not removed by anyone else")
    };
    let rc3 = args.rc3.then(|| {
        let rc3 = host
            .connection(id)
            .and_then(|connection| connection.rc3_stats());
        rc3.copied().unwrap_or_default()
    });
    let packet = host.packet_bytes(id).unwrap_or_default();
    let (delays, departures_missed) = (host.delays(id).cloned(), host.missed_departures());
    let renewed = host.key_updates(id);
    // Sends the ACK of the receipt.
    host.poll(Duration::ZERO).map_err(failed)?;
    host.remove(id);
    check_receipt(receipt, to, &stream)?;
    Ok(SendResult {
        bytes: total.unwrap_or(stream.read),
        seconds: elapsed.as_secs_f64(),
        cpu_s: cpu - begun.1,
        hash: stream.hash(),
        stats,
        mss,
        packet,
        delays,
        departures_missed,
        renewed,
        rc3,
    })
}

/// Feeds the stream to the connection until the receiver replies.
fn run_transfer(
    args: &SendArgs,
    host: &mut UdpHost,
    id: u64,
    stream: &mut Stream,
    to: SocketAddr,
    stop: &AtomicBool,
    bar: &ProgressBar,
) -> Result<Option<TransferReply>, Failure> {
    let (mut shown, mut nap) = (Instant::now(), SOURCE_POLL_INTERVAL_MIN);
    let mut answers = Answers::default();
    let mut liveness = Liveness::new(host.now(), args.transfer.timeout);
    let mut progress = PeerProgress::new(Instant::now());
    if args.rc3 {
        // The second loop starts from the end of what has been read. Once the hello has been sent,
        // reading from disk would delay the handling of its answer.
        stream.read_ahead(host, id, INTERRUPT_POLL_INTERVAL)?;
    }
    loop {
        if interrupt::raised(stop) {
            return Err(Failure::text(FailureKind::Failed, "interrupted"));
        }
        let filled = stream.fill(host, id)?;
        // Backs off while the source pauses, since polling a slow source would occupy a core.
        nap = if filled == FillResult::Idle {
            (nap * 2).min(INTERRUPT_POLL_INTERVAL)
        } else {
            SOURCE_POLL_INTERVAL_MIN
        };
        host.poll(match filled {
            FillResult::More => Duration::ZERO,
            FillResult::Idle => nap,
            FillResult::Blocked => INTERRUPT_POLL_INTERVAL,
        })
        .map_err(failed)?;

        let receipt = read_reply(host, id, &mut answers)?;
        let Some(connection) = host.connection(id) else {
            unreachable!("not removed by anyone else")
        };
        if receipt.is_some() || connection.all_received() {
            return Ok(receipt);
        }
        if let Some(why) = connection.failure() {
            return Err(failure_of_connection(why, host, id, to, stream));
        }
        if connection.srtt() == Duration::ZERO {
            // Port unreachable before the handshake is believed, as in TCP.
            let refused = host
                .last_error()
                .filter(|why| why.kind() == io::ErrorKind::ConnectionRefused);
            if refused.is_some() {
                return Err(no_answer_failure(to, refused));
            }
        } else {
            // If everything is acknowledged and the source is silent, the receiver owes nothing.
            let is_its_turn = connection.pending() > 0 || stream.is_complete();
            let (acked, limit) = (
                connection.stats().acked,
                args.transfer.timeout * STALL_TIMEOUTS,
            );
            let ends = match liveness.poll(host.now(), connection.last_received(), host.refusals())
            {
                LivenessVerdict::Wait => None,
                LivenessVerdict::Probe => {
                    host.probe(id);
                    None
                }
                LivenessVerdict::Refused => Some(("refused", "the receiving process has exited")),
                LivenessVerdict::TimedOut => {
                    Some((Ended::IdleTimeout.name(), SILENT_RECEIVER_ERROR))
                }
            };
            let has_stalled = progress.has_stalled(Instant::now(), acked, is_its_turn, limit);
            if let Some((reason, why)) =
                ends.or(has_stalled.then_some(("stalled", STALLED_RECEIVER_ERROR)))
            {
                return Err(
                    lost_failure(to, stream, acked_file_bytes(host, id, stream), why)
                        .reason(reason),
                );
            }
        }
        if shown.elapsed() >= PROGRESS_INTERVAL {
            shown = Instant::now();
            bar.set_position(acked_file_bytes(host, id, stream));
        }
    }
}

/// Returns the receiver's reply once it has arrived.
fn read_reply(
    host: &mut UdpHost,
    id: u64,
    answers: &mut Answers,
) -> Result<Option<TransferReply>, Failure> {
    let mut receipt = None;
    let (first, second) = host.received(id);
    let taken = first.len() + second.len();
    for mut piece in [first, second] {
        while let Some(answer) = answers
            .next(&mut piece)
            .map_err(|why| Failure::new(FailureKind::Failed, why))?
        {
            receipt = Some(answer);
        }
    }
    host.consume(id, taken);
    Ok(receipt)
}

/// Returns approximately how much of the file the receiver has.
fn acked_file_bytes(host: &UdpHost, id: u64, stream: &Stream) -> u64 {
    let acked = host.stats(id).map_or(0, |stats| stats.acked);
    acked.min(stream.read)
}

/// Checks that the receiver has what was sent.
fn check_receipt(
    receipt: Option<TransferReply>,
    to: SocketAddr,
    stream: &Stream,
) -> Result<(), Failure> {
    let ours = stream.hash();
    let failed = |text| Failure::text(FailureKind::Failed, text);
    let changes = "packets modified by the network are discarded and retransmitted, so either a \
        host corrupts data or the file changed during the transfer";
    match receipt {
        Some(TransferReply::Stored(theirs)) if theirs == ours => Ok(()),
        Some(TransferReply::Stored(theirs)) => Err(failed(format!(
            "{to} received different data: its hash is {}, ours {}",
            hex(&theirs),
            hex(&ours)
        ))
        .hint(changes)),
        Some(TransferReply::Differs(theirs)) => Err(failed(format!(
            "{to} received different data: the hash there is {}",
            hex(&theirs)
        ))
        .hint(changes)),
        Some(TransferReply::Failed(why)) => Err(failed(format!(
            "the receiver at {to} aborted the transfer: {}",
            printable(&why)
        ))),
        _ => Err(failed(format!(
            "the receiver at {to} closed the connection without a receipt"
        ))
        .hint("see the receiver's own output for the reason")),
    }
}

/// Returns a failure for a connection that ended early.
fn failure_of_connection(
    why: Ended,
    host: &UdpHost,
    id: u64,
    to: SocketAddr,
    stream: &Stream,
) -> Failure {
    if let Some(why) = host.handshake_error(id) {
        return handshake_failure(to, why);
    }
    let arrived = acked_file_bytes(host, id, stream);
    let failure = match why {
        Ended::NoAnswer(_) => no_answer_failure(to, host.last_error()),
        Ended::TimedOut(_) | Ended::IdleTimeout => {
            lost_failure(to, stream, arrived, SILENT_RECEIVER_ERROR)
        }
        Ended::Reset => lost_failure(
            to,
            stream,
            arrived,
            "the receiver aborted it; see the receiver's own output for the reason",
        ),
        why => lost_failure(to, stream, arrived, &why.to_string()),
    };
    failure.reason(why.name())
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
            "run `ccplane send --fingerprint` here, and pass the fingerprint to `ccplane recv \
             --client` there"
        }
        _ => "check that it runs `ccplane recv` of the same version",
    };
    Failure::text(FailureKind::Failed, format!("no transfer to {to}: {why}")).hint(hint)
}

/// Returns a failure for a receiver that disappeared.
fn lost_failure(to: SocketAddr, stream: &Stream, arrived: u64, why: &str) -> Failure {
    let of = stream
        .total()
        .map_or_else(String::new, |total| format!(" of {}", HumanBytes(total)));
    let text = format!(
        "the transfer to {to} failed after {}{of}: {why}",
        HumanBytes(arrived)
    );
    Failure::text(FailureKind::Failed, text)
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
            let remote = address.connection(&name, steer.remote_agent.silence);
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
pub fn native(name: &str) -> Result<Native, Failure> {
    name.parse().map_err(|e: UnknownNative| {
        Failure::new(FailureKind::Usage, e)
            .hint("for an algorithm of ccplane, omit `native:`; see `ccplane algorithms`")
    })
}

fn print(args: &SendArgs, to: SocketAddr, done: &SendResult, json: bool) {
    let SendResult {
        bytes,
        seconds,
        stats,
        ..
    } = done;
    let mbit = *bytes as f64 * 8.0 / seconds.max(1e-9) / 1e6;
    let ms = |d: Duration| d.as_nanos() as f64 / 1e6;
    let us = |share: f64| {
        let delay = done
            .delays
            .as_ref()
            .and_then(|delays| delays.quantile(share));
        delay.map(|delay| delay.as_nanos() as f64 / 1e3)
    };
    if json {
        let object = json!({
            "to": to.to_string(), "bytes": bytes, "blake3": hex(&done.hash),
            "alg": args.steer.alg.to_string(),
            "encrypted": true, "key_updates": done.renewed, "duration_s": seconds,
            "goodput_mbit": mbit, "cpu_s": done.cpu_s,
            "mss": done.mss, "packet_bytes": done.packet, "retransmitted": stats.retransmitted,
            "lost": stats.lost, "timeouts": stats.timeouts,
            "marked": stats.marked, "srtt_ms": ms(stats.srtt), "min_rtt_ms": ms(stats.min_rtt),
            "cwnd": stats.cwnd,
            "pacing_rate_bytes_per_s": (stats.pacing_rate != 0).then_some(stats.pacing_rate),
            "queue_delay_samples": done.delays.as_ref().map_or(0, DelayHistogram::count),
            "samples_dropped": stats.samples_dropped, "departures_missed": done.departures_missed,
            "second_loop": done.rc3.as_ref().map(|rc3| json!({
                "delivered_bytes": rc3.delivered_bytes, "sent_bytes": rc3.sent_bytes,
                "sent": rc3.sent, "arrived": rc3.arrived,
                "missing": rc3.unconfirmed(), "duplicates": rc3.duplicates, "bumps": rc3.skips,
                "stopped": rc3.stopped.map(|why| why.to_string()),
            })),
            "queue_delay_p50_us": us(0.5), "queue_delay_p90_us": us(0.9),
            "queue_delay_p99_us": us(0.99),
        });
        println!("{object}");
    } else {
        let hash = &hex(&done.hash)[..16];
        println!("{to} received {bytes} bytes, hash {hash}: {seconds:.2} s, {mbit:.1} Mbit/s");
        let paced = match stats.pacing_rate {
            0 => String::new(),
            rate => format!(", paced at {}", Rate::from_bytes_per_sec(rate)),
        };
        println!(
            "{} segments retransmitted, RTT {:.2} ms (minimum {:.2}){paced}, {:.2} s of CPU",
            stats.retransmitted,
            ms(stats.srtt),
            ms(stats.min_rtt),
            done.cpu_s,
        );
        if done.packet < args.transfer.mtu as usize {
            println!("path MTU: {} bytes", done.packet);
        }
        if let (Some(delays), Some(median), Some(p99)) = (&done.delays, us(0.5), us(0.99)) {
            println!(
                "one-way queueing delay: median {median:.1} µs, 99th percentile {p99:.1} µs, {} \
                 packets",
                delays.count()
            );
        }
        if let Some(rc3) = &done.rc3 {
            println!("{}", second_loop(rc3, *bytes));
        }
        if let Some(text) = no_samples(stats.samples_dropped, done.departures_missed) {
            println!("{text}");
        }
    }
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
            both.contains("1 whose") && both.contains(", 2 for packets"),
            "{both}"
        );
    }
}
