//! `ccplane send`: sends a file, standard input or a pattern to a `ccplane recv` on another host.
#![expect(clippy::disallowed_methods, reason = "progress output uses real time")]

mod quic;
mod source;
mod stream;
mod udp;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use ccplane_units::{Bytes, Duration, Rate};
use clap::Args;
use indicatif::{HumanBytes, ProgressBar};
use serde_json::{Value, json};

use crate::escape::printable;
use crate::exit::{Failure, FailureKind};
use crate::identity::receiver;
use crate::steering::SteerArgs;
use crate::transfer::host::TransferHost;
use crate::transfer::liveness::{PeerProgress, STALL_TIMEOUTS};
use crate::transfer::wire::{Answers, HASH_BYTES, Hash, TransferReply, WireError};
use crate::transfer::{
    INTERRUPT_POLL_INTERVAL, TransferArgs, TransferProtocol, bar, cpu_seconds, hex,
};
use crate::{Registry, interrupt};
use source::SendSource;
use stream::{FillResult, Stream};

/// Receiver that answers but makes no progress.
const STALLED_RECEIVER_ERROR: &str = "the receiver answers but accepts no data and sends no \
    receipt; increase --timeout if its disk is slow";
/// Receiver that answers but does not complete the handshake.
const STALLED_HANDSHAKE_ERROR: &str = "the receiver answers but does not complete the handshake";
/// Initial polling interval of a source that pauses.
const SOURCE_POLL_INTERVAL_MIN: Duration = Duration::from_millis(1);
/// Interval between updates of the progress bar.
const PROGRESS_INTERVAL: std::time::Duration = std::time::Duration::from_millis(100);

#[derive(Args)]
#[command(group(clap::ArgGroup::new("what").required(true).args(["file", "bytes"])))]
pub struct SendArgs {
    /// Receiver and fingerprint of its certificate, as it prints them: HOST:PORT#FINGERPRINT.
    #[arg(value_name = "HOST:PORT#FINGERPRINT")]
    to: String,
    /// File to send, over UDP under its name; `-` for standard input.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Length of a pattern to send instead of a file: `1GB`.
    #[arg(long, value_name = "N")]
    bytes: Option<Bytes>,
    /// Send to a receiver on another host without its fingerprint. Anyone on the path can then
    /// impersonate it.
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    steer: SteerArgs,
    /// Also send the file from its last byte backwards, at low priority, until both loops meet
    /// (RC3). On a long path with spare capacity this takes a fraction of the time. The path's
    /// queues must serve low priority last, which `ccplane qdisc` sets up on Linux; if the marking
    /// is lost on the path, or if it delays ordinary packets, the second loop stops by itself. Not
    /// over QUIC.
    #[arg(long)]
    rc3: bool,
    /// Differentiated Services codepoint of sent packets, 0 to 63; 0 by default. Not over QUIC.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..64))]
    dscp: Option<u8>,
    #[command(flatten)]
    transfer: TransferArgs,
}

/// Connection to the receiver.
trait SendConnection {
    /// Returns the host and the connection's identifier.
    fn host(&mut self) -> (&mut dyn TransferHost, u64);
    /// Fails if the connection has ended or the receiver is silent.
    fn check(&mut self, stream: &Stream) -> Result<(), Failure>;
    /// Returns true once the handshake is complete.
    fn is_connected(&self) -> bool;
    /// Returns the number of bytes that the receiver, or the stack, has accepted.
    fn accepted(&self, stream: &Stream) -> u64;
    /// Returns true if the next step is the receiver's.
    fn awaits_receiver(&self, stream: &Stream) -> bool;
    /// Closes the connection, with an abort unless the receiver has replied. `bytes`: length of
    /// the file.
    fn close(self: Box<Self>, completed: bool, bytes: u64) -> Result<ConnectionSummary, Failure>;
}

/// Reader of the receiver's stream.
enum ReplyReader {
    Framed(Answers),
    /// A hash, for a stream without frames.
    Hash(Vec<u8>),
}

impl ReplyReader {
    /// Consumes a piece of the receiver's stream. Bytes after a reply or an error are ignored.
    fn on_data(
        &mut self,
        mut piece: &[u8],
        outcome: &mut Result<Option<TransferReply>, WireError>,
    ) {
        match self {
            ReplyReader::Framed(answers) => {
                if let Ok(None) = outcome {
                    *outcome = answers.next(&mut piece);
                }
            }
            // One byte more than a hash shows that it is none.
            ReplyReader::Hash(bytes) => {
                let room = (HASH_BYTES + 1).saturating_sub(bytes.len());
                bytes.extend_from_slice(&piece[..room.min(piece.len())]);
            }
        }
    }

    /// Returns the receiver's reply, and true if there will be no other one.
    fn read(
        &mut self,
        (host, id): (&mut dyn TransferHost, u64),
    ) -> Result<(Option<TransferReply>, bool), Failure> {
        let mut outcome = Ok(None);
        host.read(id, &mut |piece| self.on_data(piece, &mut outcome));
        let reply = outcome.map_err(|why| Failure::new(FailureKind::Failed, why))?;
        Ok(match self {
            ReplyReader::Framed(_) => {
                let ended = reply.is_some() || host.has_read_all(id);
                (reply, ended)
            }
            ReplyReader::Hash(bytes) => {
                let ended = host.has_read_all(id) || bytes.len() > HASH_BYTES;
                let hash = Hash::try_from(bytes.as_slice()).ok().filter(|_| ended);
                (hash.map(TransferReply::Stored), ended)
            }
        })
    }
}

/// Statistics of a finished connection.
#[derive(Default)]
struct ConnectionSummary {
    mss: u64,
    /// Largest packet that the path carries.
    packet_bytes: u64,
    retransmitted: u64,
    lost: u64,
    srtt: Duration,
    min_rtt: Option<Duration>,
    cwnd: u64,
    pacing_rate: Option<u64>,
    /// Losses for display.
    losses: String,
    /// Keys of the JSON object that only this transport has.
    json: Value,
    /// Further lines for display.
    lines: Vec<String>,
}

/// Summary of a successful transfer.
struct SendResult {
    bytes: u64,
    seconds: f64,
    cpu_s: f64,
    hash: Hash,
    connection: ConnectionSummary,
}

pub fn run(args: &SendArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    args.transfer.check_transport(&[
        (args.rc3, "--rc3", "no stack sends a stream from its end"),
        (args.dscp.is_some(), "--dscp", "the stack sets no codepoint"),
        (
            args.transfer.identity.is_some(),
            "--identity",
            "the sender has no certificate",
        ),
    ])?;
    args.steer.limits()?;
    let (source, header) = match (&args.file, args.bytes) {
        (Some(path), _) => SendSource::open(path)?,
        (None, bytes) => SendSource::pattern(bytes.unwrap_or_default()),
    };
    let receiver = receiver(&args.to, args.insecure)?;
    let to = receiver.0;
    let framed = args.transfer.over == TransferProtocol::Udp;
    let mut stream = Stream::new(source, &header, framed)?;
    let mut connection: Box<dyn SendConnection> = match args.transfer.over {
        TransferProtocol::Udp => Box::new(udp::UdpConnection::open(args, registry, receiver)?),
        TransferProtocol::Quic(stack) => {
            Box::new(quic::QuicConnection::open(args, stack, registry, receiver)?)
        }
    };
    let stop = interrupt::flag()?;
    let bar = bar(stream.total());
    let begun = (Instant::now(), cpu_seconds());
    let reply = match transfer(args, &mut *connection, &mut stream, to, &stop, &bar) {
        Ok(reply) => reply,
        Err(why) => {
            // Notifies the receiver. A failure to do so adds nothing to the first error.
            let _ = connection.close(false, stream.read);
            return Err(why);
        }
    };
    let (seconds, cpu_s) = (begun.0.elapsed().as_secs_f64(), cpu_seconds() - begun.1);
    bar.finish_and_clear();
    let bytes = stream.total().unwrap_or(stream.read);
    let connection = connection.close(true, bytes)?;
    check_receipt(reply, to, &stream)?;
    let done = SendResult {
        bytes,
        seconds,
        cpu_s,
        hash: stream.hash(),
        connection,
    };
    print(args, to, done, json);
    Ok(())
}

/// Feeds the stream to the connection until the receiver replies.
fn transfer(
    args: &SendArgs,
    connection: &mut dyn SendConnection,
    stream: &mut Stream,
    to: SocketAddr,
    stop: &AtomicBool,
    bar: &ProgressBar,
) -> Result<Option<TransferReply>, Failure> {
    let (mut shown, mut nap) = (Instant::now(), SOURCE_POLL_INTERVAL_MIN);
    let mut progress = PeerProgress::new(Instant::now());
    let mut replies = match args.transfer.over {
        TransferProtocol::Udp => ReplyReader::Framed(Answers::default()),
        TransferProtocol::Quic(_) => ReplyReader::Hash(Vec::new()),
    };
    let stall_timeout = args.transfer.timeout()? * STALL_TIMEOUTS;
    if args.rc3 {
        // The second loop starts from the end of what has been read. Once the hello has been sent,
        // reading from disk would delay the handling of its answer.
        let (host, id) = connection.host();
        stream.read_ahead(INTERRUPT_POLL_INTERVAL, |bytes| host.write(id, bytes))?;
    }
    loop {
        if interrupt::raised(stop) {
            return Err(Failure::text(FailureKind::Failed, "interrupted"));
        }
        let (host, id) = connection.host();
        let filled = stream.fill(|bytes| host.write(id, bytes))?;
        if filled == FillResult::Ended {
            host.finish(id);
        }
        // Backs off while the source pauses, since polling a slow source would occupy a core.
        nap = if filled == FillResult::Idle {
            (nap * 2).min(INTERRUPT_POLL_INTERVAL)
        } else {
            SOURCE_POLL_INTERVAL_MIN
        };
        host.poll(match filled {
            FillResult::More => Duration::ZERO,
            FillResult::Idle => nap,
            FillResult::Blocked | FillResult::Ended => INTERRUPT_POLL_INTERVAL,
        })?;
        // Must precede the check: a receiver that has replied may have closed the connection.
        let (reply, has_ended) = replies.read((host, id))?;
        if has_ended {
            return Ok(reply);
        }
        connection.check(stream)?;
        let (accepted, awaits) = (
            connection.accepted(stream),
            connection.awaits_receiver(stream),
        );
        if progress.has_stalled(Instant::now(), accepted, awaits, stall_timeout) {
            let why = if connection.is_connected() {
                STALLED_RECEIVER_ERROR
            } else {
                STALLED_HANDSHAKE_ERROR
            };
            let arrived = acked_file_bytes(connection, stream);
            return Err(lost_failure(to, stream, arrived, why).reason("stalled"));
        }
        if shown.elapsed() >= PROGRESS_INTERVAL {
            shown = Instant::now();
            bar.set_position(acked_file_bytes(connection, stream));
        }
    }
}

/// Returns approximately how much of the file the receiver has.
fn acked_file_bytes(connection: &dyn SendConnection, stream: &Stream) -> u64 {
    connection.accepted(stream).min(stream.read)
}

/// Returns the wildcard address of the family of `peer`.
fn wildcard(peer: SocketAddr) -> SocketAddr {
    if peer.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    }
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

fn print(args: &SendArgs, to: SocketAddr, done: SendResult, json: bool) {
    let SendResult {
        bytes,
        seconds,
        cpu_s,
        connection: stats,
        ..
    } = done;
    let mbit = bytes as f64 * 8.0 / seconds.max(1e-9) / 1e6;
    let ms = |d: Duration| d.as_nanos() as f64 / 1e6;
    if json {
        let mut object = json!({
            "to": to.to_string(), "bytes": bytes, "blake3": hex(&done.hash), "alg": args.steer.alg.to_string(),
            "encrypted": true, "duration_s": seconds, "goodput_mbit": mbit, "cpu_s": cpu_s, "mss": stats.mss,
            "packet_bytes": stats.packet_bytes, "retransmitted": stats.retransmitted, "lost": stats.lost,
            "srtt_ms": ms(stats.srtt), "cwnd": stats.cwnd, "pacing_rate_bytes_per_s": stats.pacing_rate,
        });
        if let (Value::Object(all), Value::Object(more)) = (&mut object, stats.json) {
            all.extend(more);
        }
        println!("{object}");
        return;
    }
    let hash = &hex(&done.hash)[..16];
    println!("{to} received {bytes} bytes, hash {hash}: {seconds:.2} s, {mbit:.1} Mbit/s");
    let minimum = stats
        .min_rtt
        .map_or_else(String::new, |rtt| format!(" (minimum {:.2})", ms(rtt)));
    let paced = stats.pacing_rate.map_or_else(String::new, |rate| {
        format!(", paced at {}", Rate::from_bytes_per_sec(rate))
    });
    println!(
        "{}, RTT {:.2} ms{minimum}{paced}, {cpu_s:.2} s of CPU",
        stats.losses,
        ms(stats.srtt),
    );
    for line in stats.lines {
        println!("{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::wire::greeting;

    /// Returns the outcome of a receiver's stream that arrives in these pieces at once.
    fn outcome(pieces: &[&[u8]]) -> Result<Option<TransferReply>, WireError> {
        let (mut reader, mut outcome) = (ReplyReader::Framed(Answers::default()), Ok(None));
        for piece in pieces {
            reader.on_data(piece, &mut outcome);
        }
        outcome
    }

    #[test]
    fn bytes_after_a_reply_or_an_error_change_nothing() {
        let (greeting, stored) = (greeting(), TransferReply::Stored([7; HASH_BYTES]));
        let (reply, failed) = (
            stored.write(),
            TransferReply::Failed("full".to_owned()).write(),
        );
        let malformed = &[9][..];
        assert!(outcome(&[&greeting, malformed, &reply]).is_err());
        assert!(outcome(&[&[&greeting, malformed].concat(), &reply]).is_err());
        assert!(outcome(&[&[0; 8], &greeting, &reply]).is_err());
        for rest in [malformed, &failed] {
            let found = outcome(&[&greeting, &reply[..5], &reply[5..], rest]);
            assert_eq!(found.ok().flatten().as_ref(), Some(&stored));
        }
        assert!(matches!(outcome(&[&greeting, &reply[..5]]), Ok(None)));
    }
}
