//! `ccplane recv`: receives files from `ccplane send`.
#![expect(
    clippy::disallowed_methods,
    reason = "timeouts and rates use real time"
)]

mod incoming;

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use ccplane_link::identity::{Fingerprint, Identity};
use ccplane_quic::host::QuicHost;
use ccplane_udp::endpoint::ListenLimits;
use ccplane_udp::{Tls, UdpHost};
use ccplane_units::Duration;
use clap::Args;
use serde_json::json;

use crate::escape::printable;
use crate::exit::{Failure, FailureKind};
use crate::transfer::host::TransferHost;
use crate::transfer::target::Destination;
use crate::transfer::{
    INTERRUPT_POLL_INTERVAL, TransferArgs, TransferProtocol, failed, hex, quic as quic_transfer,
};
use crate::{identity, interrupt};
use incoming::{Incoming, ReceiveResult};

/// Polling interval while a file is being written to disk.
const DISK_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Multiple of --timeout after which a live sender without progress is dropped: its own source may
/// pause.
const PAUSE_TIMEOUTS: u64 = 3;
/// Concurrent transfers. Each may hold a window of --window bytes, over QUIC two: 256 MiB in all
/// with the default. With fewer, many small senders wait for each other.
const TRANSFERS_MAX: usize = 16;
/// Concurrent transfers per address, if no certificate authenticates senders.
const TRANSFERS_PER_ADDRESS_MAX: usize = 4;

#[derive(Args)]
pub struct RecvArgs {
    /// Address to listen on; without it port 4790 of all addresses, over QUIC port 4791.
    #[arg(long, value_name = "ADDR:PORT")]
    listen: Option<SocketAddr>,
    /// Destination: a folder, which stores files under their names and is created if PATH ends in
    /// `/` (not over QUIC); a file, for one transfer; `-` for standard output; or a device such as
    /// `/dev/null`.
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// Exit after one transfer. Implied for a file and for standard output.
    #[arg(long)]
    once: bool,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
    /// Fingerprint of the only sender's certificate to accept, as printed there by `ccplane keys
    /// fingerprint`; can be repeated. Such senders may send hidden files. Not over QUIC.
    #[arg(long, value_name = "FINGERPRINT")]
    client: Vec<Fingerprint>,
    /// Make every sender prove its address before a handshake, at the cost of one round trip.
    /// Without it, this happens only while 256 handshakes of unknown senders are in progress. Not
    /// over QUIC.
    #[arg(long)]
    retry: bool,
    #[command(flatten)]
    transfer: TransferArgs,
}

impl RecvArgs {
    /// Returns a host that listens.
    fn listen(&self, own: &Identity, once: bool) -> Result<Box<dyn TransferHost>, Failure> {
        let wildcard = |port| self.listen.unwrap_or(([0, 0, 0, 0], port).into());
        if let TransferProtocol::Quic(stack) = self.transfer.over {
            let mut options = quic_transfer::options(&self.transfer, stack, wildcard(4791))?;
            (options.connections_max, options.per_address) =
                (TRANSFERS_MAX, TRANSFERS_PER_ADDRESS_MAX);
            let host = QuicHost::listen(options, own).map_err(quic_transfer::failed)?;
            return Ok(Box::new(host));
        }
        let tls =
            Tls::server(own, &self.client).map_err(|why| Failure::new(FailureKind::Usage, why))?;
        let tls = if self.retry { tls.with_retry() } else { tls };
        let options = self.transfer.udp_options(wildcard(4790), None, 0, tls)?;
        let mut host = UdpHost::bind(options).map_err(failed)?;
        host.listen_with_limits(self.limits(once)).map_err(failed)?;
        Ok(Box::new(host))
    }

    /// Returns the connection limits; without --client they also bound each address.
    fn limits(&self, once: bool) -> ListenLimits {
        match (once, self.client.is_empty()) {
            (true, _) => ListenLimits::connections(1),
            (false, false) => ListenLimits::connections(TRANSFERS_MAX),
            (false, true) => ListenLimits {
                connections: TRANSFERS_MAX,
                per_address: TRANSFERS_PER_ADDRESS_MAX,
            },
        }
    }
}

/// Runs the command until one transfer is complete, or until Ctrl-C.
pub fn run(args: &RecvArgs, json: bool) -> Result<(), Failure> {
    args.transfer.check_transport(&[
        (
            !args.client.is_empty(),
            "--client",
            "senders have no certificate",
        ),
        (
            args.retry,
            "--retry",
            "the stack decides who proves its address",
        ),
    ])?;
    let framed = args.transfer.over == TransferProtocol::Udp;
    let target = Destination::parse(&args.out, args.force)?;
    if let (Destination::Folder(folder), false) = (&target, framed) {
        let text = format!(
            "--out {}: a folder is not supported over QUIC, because senders give no file name",
            folder.path().display()
        );
        return Err(Failure::text(FailureKind::Usage, text)
            .hint("give a file, such as --out FOLDER/FILE, or use --over udp"));
    }
    let once = args.once || target.is_single();
    let pause = args.transfer.timeout()? * PAUSE_TIMEOUTS;
    let own = identity::load(args.transfer.identity.as_deref())?;
    let mut host = args.listen(&own, once)?;
    let stop = interrupt::flag()?;
    // Standard output may carry the received file.
    let (local, fingerprint) = (host.local(), own.fingerprint().to_string());
    if json {
        eprintln!(
            "{}",
            json!({ "listening": local.to_string(), "fingerprint": fingerprint })
        );
    } else {
        eprintln!(
            "listening on {local}; to send:\n  ccplane send {}{}#{fingerprint} FILE",
            if framed { "" } else { "--over quic " },
            identity::reached(local)
        );
    }

    let mut transfers: BTreeMap<u64, Incoming> = BTreeMap::new();
    let mut count = 0;
    loop {
        if interrupt::raised(&stop) {
            let mut incomplete = (once && transfers.is_empty())
                .then(|| Failure::text(FailureKind::Failed, "interrupted"));
            for (id, mut transfer) in transfers {
                host.close(id, false)?;
                transfer.interrupt(Instant::now());
                match transfer.outcome() {
                    Ok(done) => print(&done, args, &target, json),
                    Err(why) => incomplete = Some(why),
                }
            }
            host.flush()?;
            return incomplete.map_or(Ok(()), Err);
        }
        let storing = transfers.values().any(Incoming::is_storing);
        host.poll(if storing {
            DISK_POLL_INTERVAL
        } else {
            INTERRUPT_POLL_INTERVAL
        })?;
        let now = Instant::now();
        while let Some(id) = host.accept() {
            count += 1;
            let is_known = !args.client.is_empty();
            let transfer = Incoming::new(host.peer(id), count, is_known, framed, now);
            transfers.insert(id, transfer);
        }
        // A file and standard output take one transfer: the first to send a byte.
        let started = |(id, transfer): (&u64, &Incoming)| transfer.has_started().then_some(*id);
        let mut first = transfers.iter().find_map(started).filter(|_| once);
        let mut over = Vec::new();
        for (id, transfer) in &mut transfers {
            if first.is_some_and(|first| first != *id) {
                transfer.give_up("another sender was first");
                over.push(*id);
            } else if transfer.step(*id, &mut *host, &target, now) || transfer.is_idle(now, pause) {
                over.push(*id);
            }
            if once && first.is_none() && transfer.has_started() {
                first = Some(*id);
            }
        }
        if host.was_crowded()
            && !once
            && args.client.is_empty()
            && let Some(id) = victim(&transfers, now, count)
        {
            if let Some(transfer) = transfers.get_mut(&id) {
                transfer.give_up("it sent almost nothing while other senders were waiting");
            }
            over.push(id);
        }
        for id in over {
            let Some(transfer) = transfers.remove(&id) else {
                continue;
            };
            host.close(id, transfer.ends_gracefully())?;
            let has_started = transfer.has_started();
            match transfer.outcome() {
                Ok(done) => {
                    print(&done, args, &target, json);
                    if once {
                        return host.flush();
                    }
                }
                // Connections that have sent nothing do not count as failed transfers.
                Err(why) if !has_started => {
                    tracing::info!("a connection ended without data: {why}")
                }
                Err(why) if once => {
                    host.flush()?;
                    return Err(why);
                }
                Err(why) => {
                    why.report(json);
                }
            }
        }
    }
}

/// Returns a random transfer that is slow enough to make room for another sender.
fn victim(transfers: &BTreeMap<u64, Incoming>, now: Instant, count: u64) -> Option<u64> {
    let slow: Vec<u64> = transfers
        .iter()
        .filter(|(_, transfer)| transfer.is_slow(now))
        .map(|(id, _)| *id)
        .collect();
    // The hasher is randomly keyed, so no sender can influence the choice.
    let random = RandomState::new().hash_one(count) as usize;
    slow.get(random.checked_rem(slow.len())?).copied()
}

fn print(done: &ReceiveResult, args: &RecvArgs, target: &Destination, json: bool) {
    let ReceiveResult {
        path,
        bytes,
        seconds,
        ..
    } = done;
    let mbit = *bytes as f64 * 8.0 / seconds.max(1e-9) / 1e6;
    let hash = hex(&done.hash);
    let text = match (json, args.transfer.over) {
        (true, TransferProtocol::Udp) => json!({
            "from": done.peer.map(|peer| peer.to_string()), "out": path, "name": done.name, "bytes": bytes,
            "blake3": hash, "duration_s": seconds, "goodput_mbit": mbit,
        })
        .to_string(),
        (true, TransferProtocol::Quic(stack)) => json!({
            "out": path, "bytes": bytes, "blake3": hash, "encrypted": true, "stack": stack.name(),
        })
        .to_string(),
        (false, _) => {
            let from = done
                .peer
                .map_or_else(String::new, |peer| format!(" from {peer}"));
            format!(
                "{}: {bytes} bytes{from}, hash {}: {seconds:.2} s, {mbit:.1} Mbit/s",
                printable(path),
                &hash[..16]
            )
        }
    };
    if matches!(target, Destination::Stdout) {
        eprintln!("{text}");
    } else {
        println!("{text}");
    }
}
