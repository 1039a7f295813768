//! `ccplane recv`: receives files from `ccplane send`.

mod incoming;

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::path::PathBuf;

use ccplane_link::identity::Fingerprint;
use ccplane_udp::endpoint::ListenLimits;
use ccplane_udp::{Tls, UdpHost};
use ccplane_units::{Duration, Time};
use clap::Args;
use serde_json::json;

use crate::escape::printable;
use crate::exit::{Failure, FailureKind};
use crate::transfer::target::Destination;
use crate::transfer::{TransferArgs, failed, hex};
use crate::{identity, interrupt};
use incoming::{Incoming, ReceiveResult};

/// Interval at which the interrupt flag is checked.
const INTERRUPT_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Polling interval while a file is being written to disk.
const DISK_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Multiple of --timeout after which a live sender without progress is dropped: its own source may
/// pause.
const PAUSE_TIMEOUTS: u64 = 3;
/// Concurrent transfers. Each may hold a window of --window bytes: 256 MiB in all with the default.
/// With fewer, many small senders wait for each other.
const TRANSFERS_MAX: usize = 16;
/// Concurrent transfers per address, if no certificate authenticates senders.
const TRANSFERS_PER_ADDRESS_MAX: usize = 4;

#[derive(Args)]
pub struct RecvArgs {
    /// Address to listen on.
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:4790")]
    listen: SocketAddr,
    /// Destination: a folder, which stores files under their names and is created if PATH ends in
    /// `/`; a file, for one transfer; `-` for standard output; or a device such as `/dev/null`.
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// Exit after one transfer. Implied for a file and for standard output.
    #[arg(long)]
    once: bool,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
    /// Fingerprint of the only sender's certificate to accept, as printed there by `ccplane send
    /// --fingerprint`; can be repeated. Such senders may send hidden files.
    #[arg(long, value_name = "FINGERPRINT")]
    client: Vec<Fingerprint>,
    /// Make every sender prove its address before a handshake, at the cost of one round trip.
    /// Without it, this happens only while 256 handshakes of unknown senders are in progress.
    #[arg(long)]
    retry: bool,
    #[command(flatten)]
    transfer: TransferArgs,
}

impl RecvArgs {
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
    let target = Destination::parse(&args.out, args.force)?;
    let once = args.once || target.is_single();
    let limits = args.limits(once);
    let own = identity::load(args.transfer.identity.as_deref())?;
    let tls =
        Tls::server(&own, &args.client).map_err(|why| Failure::new(FailureKind::Usage, why))?;
    let tls = if args.retry { tls.with_retry() } else { tls };
    let mut host =
        UdpHost::bind(args.transfer.options(args.listen, None, 0, tls)?).map_err(failed)?;
    host.listen_with_limits(limits).map_err(failed)?;
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
            "listening on {local}; to send:\n  ccplane send {}#{fingerprint} FILE",
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
                host.abort(id).map_err(failed)?;
                transfer.interrupt(host.now());
                match transfer.outcome() {
                    Ok(done) => print(&done, json, &target),
                    Err(why) => incomplete = Some(why),
                }
            }
            return incomplete.map_or(Ok(()), Err);
        }
        let storing = transfers.values().any(Incoming::is_storing);
        host.poll(if storing {
            DISK_POLL_INTERVAL
        } else {
            INTERRUPT_POLL_INTERVAL
        })
        .map_err(failed)?;
        while let Some(id) = host.accept() {
            count += 1;
            let peer = host.peer(id).unwrap_or(args.listen);
            transfers.insert(
                id,
                Incoming::new(peer, count, !args.client.is_empty(), host.now()),
            );
        }
        let mut over = Vec::new();
        for (id, transfer) in &mut transfers {
            if transfer.step(*id, &mut host, &target) {
                over.push(*id);
            } else if transfer.is_idle(host.now(), args.transfer.timeout * PAUSE_TIMEOUTS) {
                host.abort(*id).map_err(failed)?;
                over.push(*id);
            }
        }
        if host.was_crowded()
            && !once
            && args.client.is_empty()
            && let Some(id) = victim(&transfers, host.now(), count)
        {
            host.abort(id).map_err(failed)?;
            if let Some(transfer) = transfers.get_mut(&id) {
                transfer.give_up("it sent almost nothing while other senders were waiting");
            }
            over.push(id);
        }
        for id in over {
            host.remove(id);
            let Some(transfer) = transfers.remove(&id) else {
                continue;
            };
            let outcome = transfer.outcome();
            match (outcome, once) {
                (Ok(done), _) => {
                    print(&done, json, &target);
                    if once {
                        return Ok(());
                    }
                }
                (Err(why), true) => return Err(why),
                (Err(why), false) => {
                    why.report(json);
                }
            }
        }
    }
}

/// Returns a random transfer that is slow enough to make room for another sender.
fn victim(transfers: &BTreeMap<u64, Incoming>, now: Time, count: u64) -> Option<u64> {
    let slow: Vec<u64> = transfers
        .iter()
        .filter(|(_, transfer)| transfer.is_slow(now))
        .map(|(id, _)| *id)
        .collect();
    // The hasher is randomly keyed, so no sender can influence the choice.
    let random = RandomState::new().hash_one(count) as usize;
    slow.get(random.checked_rem(slow.len())?).copied()
}

fn print(done: &ReceiveResult, json: bool, target: &Destination) {
    let mbit = done.bytes as f64 * 8.0 / done.seconds.max(1e-9) / 1e6;
    let text = if json {
        let object = json!({
            "from": done.peer.to_string(), "out": done.path, "name": done.name, "bytes": done.bytes,
            "blake3": hex(&done.hash), "duration_s": done.seconds, "goodput_mbit": mbit,
        });
        object.to_string()
    } else {
        let hash = &hex(&done.hash)[..16];
        format!(
            "{}: {} bytes from {}, hash {hash}: {:.2} s, {mbit:.1} Mbit/s",
            printable(&done.path),
            done.bytes,
            done.peer,
            done.seconds
        )
    };
    if matches!(target, Destination::Stdout) {
        eprintln!("{text}");
    } else {
        println!("{text}");
    }
}
