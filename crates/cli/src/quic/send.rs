//! `ccplane quic send`: sends a file over QUIC.
#![expect(clippy::disallowed_methods, reason = "progress output uses real time")]

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use ccplane_quic::host::{Native, QuicCongestion, QuicHost, QuicStats};
use ccplane_quic::{PlaneError, PlaneStats, QuicPlane, Stack};
use ccplane_units::{Duration, Rate};
use clap::Args;
use serde_json::json;

use super::{
    CommonArgs, INTERRUPT_POLL_INTERVAL, READ_BYTES, RECEIPT_BYTES, failed, unspecified_address,
};
use crate::attach::make;
use crate::escape::printable;
use crate::exit::{Failure, FailureKind};
use crate::identity::receiver;
use crate::steering::{ControlSource, SteerArgs};
use crate::transfer::liveness::{PeerProgress, STALL_TIMEOUTS};
use crate::transfer::wire::Hash;
use crate::transfer::{bar, cpu_seconds, hex};
use crate::{Registry, interrupt};

/// Time to deliver the close to the peer. Nothing depends on it.
const CLOSE_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(200);

#[derive(Args)]
pub struct SendArgs {
    /// Receiver and fingerprint of its certificate, as it prints them: HOST:PORT#FINGERPRINT.
    #[arg(value_name = "HOST:PORT#FINGERPRINT")]
    to: String,
    /// File to send; `-` for standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    steer: SteerArgs,
    /// Send to a receiver on another host without its fingerprint. Anyone on the path can then
    /// impersonate it.
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    common: CommonArgs,
}

pub fn run(args: &SendArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    let (to, trusted) = receiver(&args.to, "ccplane quic recv", args.insecure)?;
    let stack = args.common.stack()?;
    let congestion = congestion(stack, &args.steer, registry)?;
    let (mut source, length) = source(&args.file)?;
    // A plane enforces the operator's limits itself, on stacks that have none of their own.
    let steered = matches!(congestion, QuicCongestion::Steered(_));
    let own = args
        .steer
        .max_rate
        .filter(|_| stack == Stack::Noq || !steered);
    let options = args
        .common
        .options(unspecified_address(to), 1, own, congestion.clone())?;
    let mut host = QuicHost::bind(options, trusted).map_err(failed)?;
    let stop = interrupt::flag()?;
    let begun = (Instant::now(), cpu_seconds());
    let id = host.connect(to).map_err(failed)?;
    let outcome = transfer(
        &mut host,
        id,
        (to, args.common.timeout),
        &mut *source,
        length,
        &stop,
    );
    let (seconds, cpu_s) = (begun.0.elapsed().as_secs_f64(), cpu_seconds() - begun.1);
    let stats = host.stats(id).unwrap_or_default();
    host.close(id, outcome.is_ok());
    let farewell = Instant::now();
    while host.connection_count() > 0 && farewell.elapsed() < CLOSE_TIMEOUT {
        host.poll(Duration::from_millis(10)).map_err(failed)?;
    }
    // Ends the paths, so that the plane's counters are final.
    drop(host);
    let steered = match &congestion {
        QuicCongestion::Steered(plane) => Some(plane.stats()),
        QuicCongestion::Native(_) => None,
    };
    let (bytes, hash) = outcome?;
    let done = QuicSendResult {
        stack,
        bytes,
        hash,
        seconds,
        cpu_s,
        stats,
        steered,
    };
    print(args, to, &done, json);
    Ok(())
}

/// Summary of a successful transfer.
struct QuicSendResult {
    stack: Stack,
    bytes: u64,
    hash: Hash,
    seconds: f64,
    cpu_s: f64,
    stats: QuicStats,
    steered: Option<PlaneStats>,
}

/// Returns the congestion control; starts the algorithm, or connects to a remote agent.
fn congestion(
    stack: Stack,
    steer: &SteerArgs,
    registry: &Registry,
) -> Result<QuicCongestion, Failure> {
    let mut limits = steer.limits()?;
    let refused = |why: PlaneError| {
        let kind = match why {
            PlaneError::Missing { .. } | PlaneError::Algorithm(_) => FailureKind::Usage,
            _ => FailureKind::Failed,
        };
        Failure::new(kind, why)
    };
    let plane = match steer.control_source(&mut limits)? {
        ControlSource::Native(name) => {
            let native = Native::by_name(stack, name)
                .map_err(|why| Failure::new(FailureKind::Usage, why))?;
            return Ok(QuicCongestion::Native(native));
        }
        ControlSource::Agent(address, name) => {
            QuicPlane::with_agent(stack, &address, &name, steer.remote_agent.silence, limits)
        }
        ControlSource::InProcess => {
            QuicPlane::in_process(stack, make(&steer.alg, registry)?, limits)
        }
    };
    plane.map(QuicCongestion::Steered).map_err(refused)
}

/// Opens the source. Returns its length if it is known.
fn source(file: &std::path::Path) -> Result<(Box<dyn Read>, Option<u64>), Failure> {
    if file == std::path::Path::new("-") {
        return Ok((Box::new(io::stdin()), None));
    }
    let bad =
        |why: io::Error| Failure::text(FailureKind::Usage, format!("{}: {why}", file.display()));
    let opened = File::open(file).map_err(bad)?;
    let about = opened.metadata().map_err(bad)?;
    if about.is_dir() {
        let text = format!("{} is a folder", file.display());
        return Err(Failure::text(FailureKind::Usage, text)
            .hint("send an archive: `tar c FOLDER | ccplane quic send HOST:PORT#FINGERPRINT -`"));
    }
    Ok((Box::new(opened), about.is_file().then_some(about.len())))
}

/// Sends everything and waits for the receipt. Returns the number of bytes and their hash.
fn transfer(
    host: &mut QuicHost,
    id: u64,
    (to, timeout): (SocketAddr, Duration),
    source: &mut dyn Read,
    length: Option<u64>,
    stop: &AtomicBool,
) -> Result<(u64, Hash), Failure> {
    let bar = bar(length);
    let (mut piece, mut place, mut filled) = (vec![0; READ_BYTES], 0, 0);
    let (mut read, mut ended) = (0, false);
    let mut hasher = blake3::Hasher::new();
    let mut receipt = Vec::with_capacity(RECEIPT_BYTES);
    let mut progress = PeerProgress::new(Instant::now());
    loop {
        if interrupt::raised(stop) {
            return Err(Failure::text(FailureKind::Failed, "interrupted"));
        }
        let room = RECEIPT_BYTES + 1 - receipt.len().min(RECEIPT_BYTES);
        host.read(id, room, |bytes| receipt.extend_from_slice(bytes));
        // Must precede the check for a failure: a receiver that has replied may have closed the
        // connection already.
        if host.has_read_all(id) || receipt.len() > RECEIPT_BYTES {
            break;
        }
        if let Some(why) = host.failure(id) {
            return Err(lost(host.is_connected(id), to, why));
        }
        while host.is_connected(id) && !ended {
            if place == filled {
                filled = source.read(&mut piece).map_err(|why| {
                    Failure::text(
                        FailureKind::Failed,
                        format!("the input cannot be read: {why}"),
                    )
                })?;
                place = 0;
                if filled == 0 {
                    ended = true;
                    host.finish(id);
                    break;
                }
                hasher.update(piece.get(..filled).unwrap_or_default());
                read += filled as u64;
            }
            match host.write(id, piece.get(place..filled).unwrap_or_default()) {
                0 => break,
                count => place += count,
            }
        }
        let taken = read - (filled - place) as u64;
        bar.set_position(taken);
        // The stack ends a connection whose peer is silent. A peer that merely keeps it alive is
        // handled here, during the handshake as well.
        let is_its_turn = !host.is_connected(id) || ended || place < filled;
        if progress.has_stalled(Instant::now(), taken, is_its_turn, timeout * STALL_TIMEOUTS) {
            return Err(stalled(host.is_connected(id), to).reason("stalled"));
        }
        host.poll(INTERRUPT_POLL_INTERVAL).map_err(failed)?;
    }
    bar.finish_and_clear();
    let hash = *hasher.finalize().as_bytes();
    match Hash::try_from(receipt.as_slice()) {
        Ok(theirs) if theirs == hash => Ok((read, hash)),
        Ok(theirs) => Err(Failure::text(
            FailureKind::Failed,
            format!(
                "{to} received different data: the hash there is {}",
                hex(&theirs)
            ),
        )
        .hint("the file may have changed during the transfer; send it again")),
        Err(_) => Err(Failure::text(
            FailureKind::Failed,
            format!("the receiver at {to} closed the connection without a receipt"),
        )
        .hint("see the receiver's own output for the reason")),
    }
}

/// Returns a failure for a receiver that answers but makes no progress.
fn stalled(connected: bool, to: SocketAddr) -> Failure {
    if connected {
        let text = format!(
            "the transfer to {to} failed: the receiver answers but accepts no data and sends no \
             receipt"
        );
        return Failure::text(FailureKind::Failed, text)
            .hint("if its disk is slow, increase --timeout");
    }
    let text =
        format!("no connection to {to}: the receiver answers but does not complete the handshake");
    Failure::text(FailureKind::Failed, text).hint("check that it runs `ccplane quic recv`")
}

fn lost(connected: bool, to: SocketAddr, why: &str) -> Failure {
    let why = printable(why);
    if connected {
        return Failure::text(
            FailureKind::Failed,
            format!("the transfer to {to} failed: {why}"),
        );
    }
    let text = format!("no connection to {to}: {why}");
    let hint = if why.contains("certificate") {
        "the fingerprint belongs to another receiver; use the command that this receiver prints"
    } else {
        "check that `ccplane quic recv` is running there and that the path carries UDP"
    };
    Failure::text(FailureKind::Failed, text).hint(hint)
}

fn print(args: &SendArgs, to: SocketAddr, done: &QuicSendResult, json: bool) {
    let QuicSendResult {
        bytes,
        seconds,
        stats,
        ..
    } = done;
    let mbit = *bytes as f64 * 8.0 / seconds.max(1e-9) / 1e6;
    let srtt_ms = stats.srtt.as_nanos() as f64 / 1e6;
    if json {
        let object = json!({
            "to": to.to_string(), "bytes": bytes, "blake3": hex(&done.hash),
            "alg": args.steer.alg.to_string(),
            "encrypted": true, "duration_s": seconds, "goodput_mbit": mbit, "cpu_s": done.cpu_s,
            "mss": stats.mtu,
            "packet_bytes": stats.mtu + if to.is_ipv4() { 28 } else { 48 },
            "retransmitted": stats.lost, "lost": stats.lost,
            "srtt_ms": srtt_ms, "cwnd": stats.cwnd, "pacing_rate_bytes_per_s": stats.pacing_rate,
            "stack": done.stack.name(), "version": "1",
            "reports": done.steered.map(|steered| steered.reports),
            "fallbacks": done.steered.map(|steered| steered.fallbacks),
        });
        println!("{object}");
        return;
    }
    let hash = &hex(&done.hash)[..16];
    println!("{to} received {bytes} bytes, hash {hash}: {seconds:.2} s, {mbit:.1} Mbit/s");
    let paced = stats.pacing_rate.map_or_else(String::new, |rate| {
        format!(", paced at {}", Rate::from_bytes_per_sec(rate))
    });
    println!(
        "{} of {} packets lost, RTT {srtt_ms:.2} ms{paced}, {:.2} s of CPU",
        stats.lost, stats.sent, done.cpu_s
    );
    if let Some(steered) = done.steered.filter(|steered| steered.fallbacks > 0) {
        println!(
            "the algorithm timed out {} times, and NewReno took over",
            steered.fallbacks
        );
    }
}
