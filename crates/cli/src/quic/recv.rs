//! `ccplane quic recv`: receives files over QUIC.
#![expect(
    clippy::disallowed_methods,
    reason = "timeouts and rates use real time"
)]

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use ccplane_quic::Stack;
use ccplane_quic::host::{Native, QuicCongestion, QuicHost};
use ccplane_units::Duration;
use clap::Args;
use serde_json::json;

use super::{CommonArgs, INTERRUPT_POLL_INTERVAL, failed};
use crate::escape::printable;
use crate::exit::{Failure, FailureKind};
use crate::transfer::hex;
use crate::transfer::liveness::PeerProgress;
use crate::transfer::sink::Sink;
use crate::transfer::target::Destination;
use crate::transfer::wire::{Hash, Header};
use crate::{identity, interrupt};

/// Concurrent connections. Each may hold twice the window. With fewer, idle strangers keep others
/// out sooner.
const CONNECTIONS_MAX: usize = 16;
/// Multiple of --timeout after which a live sender without progress is dropped.
const PAUSE_TIMEOUTS: u64 = 3;
/// Time for the sender to acknowledge its receipt once the file is stored.
const RECEIPT_TIMEOUT: Duration = Duration::from_secs(3);

/// Age from which a transfer can count as slow.
const SLOW_TRANSFER_AGE_MIN: Duration = Duration::from_secs(2);
/// Rate below which a transfer counts as slow, bytes/s.
const SLOW_TRANSFER_BYTES_PER_SECOND: f64 = 8_000.0;

#[derive(Args)]
pub struct RecvArgs {
    /// Address to listen on.
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:4791")]
    listen: SocketAddr,
    /// Destination: a file, for one transfer; `-` for standard output; or a device such as
    /// `/dev/null`, for any number of transfers.
    #[arg(long, value_name = "PATH")]
    out: PathBuf,
    /// Exit after one transfer.
    #[arg(long)]
    once: bool,
    /// Replace an existing file.
    #[arg(long)]
    force: bool,
    /// File with the certificate and its private key, created at the first start; without it
    /// `~/.config/ccplane/identity`.
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    #[command(flatten)]
    common: CommonArgs,
}

/// Runs the command until one transfer is complete, or until Ctrl-C.
pub fn run(args: &RecvArgs, json: bool) -> Result<(), Failure> {
    let target = Destination::parse(&args.out, args.force)?;
    if let Destination::Folder(folder) = &target {
        let text = format!("--out {} is a folder", folder.path().display());
        return Err(
            Failure::text(FailureKind::Usage, text).hint("give a file, such as --out FOLDER/FILE")
        );
    }
    let once = args.once || target.is_single();
    let own = identity::load(args.identity.as_deref())?;
    let options = args.common.options(
        args.listen,
        CONNECTIONS_MAX,
        None,
        QuicCongestion::Native(Native::Cubic),
    )?;
    let stack = options.stack;
    let mut host = QuicHost::listen(options, &own).map_err(failed)?;
    let stop = interrupt::flag()?;
    let (local, fingerprint) = (host.local(), own.fingerprint());
    // Standard output may carry the received file.
    if json {
        eprintln!(
            "{}",
            json!({ "listening": local.to_string(), "fingerprint": fingerprint.to_string() })
        );
    } else {
        eprintln!(
            "listening on {local}; to send:\n  ccplane quic send {}#{fingerprint} FILE",
            identity::reached(local)
        );
    }
    let mut transfers: Vec<Transfer> = Vec::new();
    loop {
        if interrupt::raised(&stop) {
            transfers
                .iter()
                .for_each(|transfer| host.close(transfer.id, false));
            host.poll(INTERRUPT_POLL_INTERVAL).map_err(failed)?;
            let incomplete = once || !transfers.is_empty();
            return if incomplete {
                Err(Failure::text(FailureKind::Failed, "interrupted"))
            } else {
                Ok(())
            };
        }
        host.poll(INTERRUPT_POLL_INTERVAL).map_err(failed)?;
        while let Some(id) = host.accept() {
            transfers.push(Transfer::new(id));
        }
        if host.was_crowded() && !once {
            make_room(&transfers, &mut host);
        }
        let (mut ended, mut first) = (
            None,
            transfers
                .iter()
                .find(|one| one.has_started())
                .map(|one| one.id),
        );
        transfers.retain_mut(|transfer| {
            // A file and standard output take one transfer: the first to send a byte.
            if once && first.is_some_and(|first| first != transfer.id) {
                host.close(transfer.id, false);
                return false;
            }
            let outcome = transfer.step(&mut host, &target, args.common.timeout * PAUSE_TIMEOUTS);
            if transfer.has_started() {
                first = Some(transfer.id);
            }
            let well = match outcome {
                Ok(None) => return true,
                Ok(Some(done)) => {
                    print(&done, &target, stack, json);
                    ended = Some(Ok(()));
                    true
                }
                // Connections that have sent nothing do not count as failed transfers.
                Err(why) if transfer.has_started() => {
                    ended = Some(Err(why));
                    false
                }
                Err(why) => {
                    tracing::info!("a connection ended without data: {why}");
                    false
                }
            };
            host.close(transfer.id, well);
            false
        });
        match ended {
            Some(outcome) if once => {
                // Sends the close; the sender already has its receipt.
                host.poll(INTERRUPT_POLL_INTERVAL).map_err(failed)?;
                return outcome;
            }
            Some(Err(why)) => {
                why.report(json);
            }
            _ => {}
        }
    }
}

/// Closes a random slow transfer, because others are waiting.
fn make_room(transfers: &[Transfer], host: &mut QuicHost) {
    let slow: Vec<u64> = transfers
        .iter()
        .filter(|one| one.is_slow())
        .map(|one| one.id)
        .collect();
    // The hasher is randomly keyed, so no sender can influence the choice.
    let random = RandomState::new().hash_one(slow.len()) as usize;
    if let Some(id) = random.checked_rem(slow.len()).and_then(|n| slow.get(n)) {
        host.close(*id, false);
    }
}

/// State of one connection.
struct Transfer {
    id: u64,
    started_at: Instant,
    sink: Option<Sink>,
    hasher: blake3::Hasher,
    bytes: u64,
    progress: PeerProgress,
    /// Path and hash of the stored file, and the time at which the receipt was sent.
    stored: Option<(String, Hash, Instant)>,
}

/// Summary of a successful transfer.
struct QuicReceiveResult {
    path: String,
    bytes: u64,
    hash: Hash,
}

impl Transfer {
    fn new(id: u64) -> Transfer {
        Transfer {
            id,
            started_at: Instant::now(),
            sink: None,
            hasher: blake3::Hasher::new(),
            bytes: 0,
            progress: PeerProgress::new(Instant::now()),
            stored: None,
        }
    }

    /// Returns true if the transfer may be dropped to make room for another one: it is older than
    /// [`SLOW_TRANSFER_AGE_MIN`] and slower than [`SLOW_TRANSFER_BYTES_PER_SECOND`] on average.
    fn is_slow(&self) -> bool {
        let age = self.started_at.elapsed();
        self.stored.is_none()
            && age >= SLOW_TRANSFER_AGE_MIN.to_std()
            && (self.bytes as f64) < SLOW_TRANSFER_BYTES_PER_SECOND * age.as_secs_f64()
    }

    /// Returns true once data of the transfer has been received.
    fn has_started(&self) -> bool {
        self.sink.is_some() || self.stored.is_some()
    }

    /// Processes received data. Returns the result once the file is stored and the receipt is
    /// acknowledged or [`RECEIPT_TIMEOUT`] has passed. Fails after `pause` without progress.
    fn step(
        &mut self,
        host: &mut QuicHost,
        target: &Destination,
        pause: Duration,
    ) -> Result<Option<QuicReceiveResult>, Failure> {
        if let Some((place, hash, since)) = &self.stored {
            let over = host.has_sent_all(self.id)
                || host.failure(self.id).is_some()
                || since.elapsed() > RECEIPT_TIMEOUT.to_std();
            return Ok(over.then(|| QuicReceiveResult {
                path: place.clone(),
                bytes: self.bytes,
                hash: *hash,
            }));
        }
        let (mut outcome, hasher, bytes) = (Ok(()), &mut self.hasher, &mut self.bytes);
        let sink = &mut self.sink;
        host.read(self.id, usize::MAX, |chunk| {
            hasher.update(chunk);
            *bytes += chunk.len() as u64;
            if outcome.is_ok() {
                outcome = open(sink, target).and_then(|sink| sink.write(chunk));
            }
        });
        let failed = |why| Failure::text(FailureKind::Failed, why);
        outcome.map_err(failed)?;
        if host.has_read_all(self.id) {
            open(sink, target).map_err(failed)?;
            let place = self
                .sink
                .take()
                .map_or(Ok(String::new()), |sink| sink.store(false));
            let hash = *self.hasher.finalize().as_bytes();
            self.stored = Some((place.map_err(failed)?, hash, Instant::now()));
            host.write(self.id, &hash);
            host.finish(self.id);
        } else if let Some(why) = host.failure(self.id) {
            let text = format!(
                "a transfer failed after {} bytes: {}",
                self.bytes,
                printable(why)
            );
            return Err(Failure::text(FailureKind::Failed, text));
        } else if self
            .progress
            .has_stalled(Instant::now(), self.bytes, true, pause)
        {
            let text = format!(
                "a transfer failed after {} bytes: no new data for {pause}",
                self.bytes
            );
            let failure = Failure::text(FailureKind::Failed, text).reason("stalled");
            return Err(failure.hint("increase --timeout if the sender's source pauses"));
        }
        Ok(None)
    }
}

fn open<'s>(sink: &'s mut Option<Sink>, target: &Destination) -> Result<&'s mut Sink, String> {
    let unnamed = Header {
        name: Vec::new(),
        bytes: None,
        executable: false,
    };
    match sink {
        Some(sink) => Ok(sink),
        None => Ok(sink.insert(target.open(&unnamed, false, 1)?)),
    }
}

fn print(done: &QuicReceiveResult, target: &Destination, stack: Stack, json: bool) {
    let QuicReceiveResult {
        path: place,
        bytes,
        hash,
    } = done;
    let text = if json {
        let object = json!({ "out": place, "bytes": bytes, "blake3": hex(hash), "encrypted": true, "stack": stack.name() });
        object.to_string()
    } else {
        format!(
            "{}: {bytes} bytes, hash {}",
            printable(place),
            &hex(hash)[..16]
        )
    };
    // Standard output may have carried the received file.
    if matches!(target, Destination::Stdout) {
        eprintln!("{text}");
    } else {
        println!("{text}");
    }
}
