//! One incoming transfer, from the first byte until the sender has its receipt.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Instant;

use ccplane_units::Duration;
use indicatif::ProgressBar;

use crate::escape::printable;
use crate::exit::{Failure, FailureKind};
use crate::transfer::host::TransferHost;
use crate::transfer::sink::Sink;
use crate::transfer::target::{Destination, human};
use crate::transfer::wire::{Frames, Hash, Header, StreamEvent, TransferReply, greeting};
use crate::transfer::{bar, hex};

/// Time for the sender to acknowledge its receipt once the file is stored. The file is kept either
/// way.
const RECEIPT_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);

/// Age from which a transfer can count as slow.
const SLOW_TRANSFER_AGE_MIN: std::time::Duration = std::time::Duration::from_secs(2);
/// Rate below which a transfer counts as slow, bytes/s. Occupying all 16 slots at this rate costs
/// an attacker 1 Mbit/s.
const SLOW_TRANSFER_BYTES_PER_SECOND: f64 = 8_000.0;

/// State of one incoming transfer.
pub(super) struct Incoming {
    /// The sender, if the transport reports its address.
    peer: Option<SocketAddr>,
    number: u64,
    /// Set if the sender has authenticated: it may use hidden file names.
    is_known: bool,
    /// Set if both streams have the format of [`wire`](crate::transfer::wire). Otherwise the
    /// sender's stream is the file, and the receiver's is its hash.
    framed: bool,
    started_at: Instant,
    frames: Frames,
    header: Option<Header>,
    sink: Option<Sink>,
    hasher: blake3::Hasher,
    /// Bytes of the file received so far.
    bytes: u64,
    /// Bytes to send to the sender.
    out: VecDeque<u8>,
    /// Hash of the complete file, and the thread that writes it to disk. The write may take
    /// seconds, and the main loop must keep sending keepalives meanwhile.
    storing: Option<(Hash, JoinHandle<Result<String, String>>)>,
    /// Time of the last progress.
    last_progress: Instant,
    /// Set once the sender has sent a byte.
    has_started: bool,
    receipt: Option<(TransferReply, Instant)>,
    /// Path of the stored file.
    stored: String,
    is_finished: bool,
    bar: Option<ProgressBar>,
    failed: Option<String>,
    /// Machine-readable name of the connection's failure.
    reason: Option<&'static str>,
}

/// Summary of a successful transfer.
pub(super) struct ReceiveResult {
    pub peer: Option<SocketAddr>,
    pub path: String,
    /// Name given by the sender.
    pub name: String,
    pub bytes: u64,
    pub seconds: f64,
    pub hash: Hash,
}

impl Incoming {
    /// Starts transfer number `number`.
    pub fn new(
        peer: Option<SocketAddr>,
        number: u64,
        is_known: bool,
        framed: bool,
        now: Instant,
    ) -> Incoming {
        Incoming {
            peer,
            number,
            is_known,
            framed,
            started_at: now,
            frames: Frames::default(),
            header: None,
            sink: None,
            hasher: blake3::Hasher::new(),
            bytes: 0,
            out: if framed {
                greeting().into()
            } else {
                VecDeque::new()
            },
            storing: None,
            last_progress: now,
            has_started: false,
            receipt: None,
            stored: String::new(),
            is_finished: false,
            bar: None,
            failed: None,
            reason: None,
        }
    }

    /// Returns true while the file is being written to the disk.
    pub fn is_storing(&self) -> bool {
        self.storing.is_some()
    }

    /// Returns true once data of the transfer has been received.
    pub fn has_started(&self) -> bool {
        self.has_started
    }

    /// Returns true if the sender has received, or may have received, the reply.
    pub fn ends_gracefully(&self) -> bool {
        match &self.receipt {
            Some((TransferReply::Stored(_), _)) => true,
            Some(_) => self.framed,
            None => false,
        }
    }

    /// Processes received data. Returns true once the transfer is over.
    pub fn step(
        &mut self,
        id: u64,
        host: &mut dyn TransferHost,
        target: &Destination,
        now: Instant,
    ) -> bool {
        let is_open = self.receipt.is_none() && self.storing.is_none();
        let mut outcome = Ok(());
        let arrived = host.read(id, &mut |piece| {
            if is_open && outcome.is_ok() && !piece.is_empty() {
                outcome = self.on_data(piece, target);
            }
        });
        let has_read_all = host.has_read_all(id);
        if is_open {
            if !self.framed && has_read_all && outcome.is_ok() {
                outcome = self.on_end_of_file(target);
            }
            if let Err(why) = outcome {
                self.refuse(why, now);
            }
            if arrived > 0 {
                self.last_progress = now;
                self.has_started = true;
            }
        }
        if self
            .storing
            .as_ref()
            .is_some_and(|(_, thread)| thread.is_finished())
        {
            self.poll_stored(now);
        }
        self.send(id, host);
        match (&self.receipt, host.failure(id)) {
            // A complete file is stored even if its sender is gone.
            (None, _) if self.storing.is_some() => false,
            (None, Some((why, reason))) => {
                self.failed = Some(why);
                self.reason = reason;
                true
            }
            (None, None) => {
                if has_read_all {
                    self.failed = Some("the sender closed the connection early".to_owned());
                }
                has_read_all
            }
            (Some(_), Some(_)) => true,
            // A sender without frames gets no refusal, only an abort.
            (Some(_), None) if !self.ends_gracefully() => true,
            (Some((_, since)), None) => {
                host.has_sent_all(id) || now.duration_since(*since) > RECEIPT_TIMEOUT
            }
        }
    }

    /// Consumes a piece of the sender's stream. Bytes after the end of the file are ignored.
    fn on_data(&mut self, mut piece: &[u8], target: &Destination) -> Result<(), TransferReply> {
        if !self.framed {
            self.open_unnamed(target)?;
            self.on_bytes(piece)?;
        }
        while self.framed && self.storing.is_none() {
            let Some(event) = self.frames.next(&mut piece).map_err(failed)? else {
                break;
            };
            match event {
                StreamEvent::Header(header) => self.open(header, target)?,
                StreamEvent::Data(bytes) => self.on_bytes(bytes)?,
                StreamEvent::End(theirs) => self.on_end(theirs)?,
            }
        }
        if let Some(bar) = &self.bar {
            bar.set_position(self.bytes);
        }
        Ok(())
    }

    /// Opens the destination.
    fn open(&mut self, header: Header, target: &Destination) -> Result<(), TransferReply> {
        let sink = target.open(&header, self.is_known, self.number);
        self.sink = Some(sink.map_err(failed)?);
        self.bar = Some(bar(header.bytes));
        self.header = Some(header);
        Ok(())
    }

    /// Opens the destination of a stream without a header, unless it is open.
    fn open_unnamed(&mut self, target: &Destination) -> Result<(), TransferReply> {
        if self.header.is_some() {
            return Ok(());
        }
        let unnamed = Header {
            name: Vec::new(),
            bytes: None,
            executable: false,
        };
        self.open(unnamed, target)
    }

    /// Writes bytes of the file.
    fn on_bytes(&mut self, bytes: &[u8]) -> Result<(), TransferReply> {
        self.bytes += bytes.len() as u64;
        let announced = self.header.as_ref().and_then(|header| header.bytes);
        if announced.is_some_and(|all| self.bytes > all) {
            return Err(failed("received more bytes than announced"));
        }
        let written = self.sink.as_mut().map_or(Ok(()), |sink| sink.write(bytes));
        written.map_err(failed)?;
        self.hasher.update(bytes);
        Ok(())
    }

    /// Ends a file whose end is the end of the stream.
    fn on_end_of_file(&mut self, target: &Destination) -> Result<(), TransferReply> {
        self.has_started = true;
        self.open_unnamed(target)?;
        let hash = *self.hasher.finalize().as_bytes();
        self.on_end(hash)
    }

    /// Compares the hash of the complete file with the sender's and starts writing it to disk.
    fn on_end(&mut self, claimed: Hash) -> Result<(), TransferReply> {
        let announced = self.header.as_ref().and_then(|header| header.bytes);
        if announced.is_some_and(|all| self.bytes != all) {
            return Err(failed("received fewer bytes than announced"));
        }
        let ours = *self.hasher.finalize().as_bytes();
        if ours != claimed {
            return Err(TransferReply::Differs(ours));
        }
        if let Some(sink) = self.sink.take() {
            // A sync may take longer than QUIC's idle timeout, and the stacks send no keepalives.
            let sync = self.framed;
            self.storing = Some((ours, std::thread::spawn(move || sink.store(sync))));
        }
        Ok(())
    }

    /// Waits until the file is stored, and queues the receipt.
    fn poll_stored(&mut self, now: Instant) {
        let Some((hash, thread)) = self.storing.take() else {
            return;
        };
        let stored = thread.join();
        match stored.unwrap_or_else(|_| Err("the storage thread panicked".to_owned())) {
            Ok(place) => {
                self.stored = place;
                self.answer(TransferReply::Stored(hash), now);
            }
            Err(why) => self.refuse(TransferReply::Failed(why), now),
        }
    }

    /// Discards the file and queues the refusal.
    fn refuse(&mut self, why: TransferReply, now: Instant) {
        self.sink = None;
        self.answer(why, now);
    }

    fn answer(&mut self, answer: TransferReply, now: Instant) {
        match &answer {
            TransferReply::Stored(hash) if !self.framed => self.out.extend(hash),
            _ if !self.framed => {}
            answer => self.out.extend(answer.write()),
        }
        self.receipt = Some((answer, now));
    }

    /// Sends queued bytes as far as the send buffer has room.
    fn send(&mut self, id: u64, host: &mut dyn TransferHost) {
        while !self.out.is_empty() {
            let written = host.write(id, self.out.as_slices().0);
            if written == 0 {
                return;
            }
            self.out.drain(..written);
        }
        if self.receipt.is_some() && self.ends_gracefully() && !self.is_finished {
            self.is_finished = true;
            host.finish(id);
        }
    }

    /// Returns true if the transfer may be dropped to make room for another one: it is older than
    /// [`SLOW_TRANSFER_AGE_MIN`] and slower than [`SLOW_TRANSFER_BYTES_PER_SECOND`] on average.
    pub fn is_slow(&self, now: Instant) -> bool {
        let age = now.duration_since(self.started_at);
        let is_open = self.receipt.is_none() && self.storing.is_none();
        is_open
            && age >= SLOW_TRANSFER_AGE_MIN
            && (self.bytes as f64) < SLOW_TRANSFER_BYTES_PER_SECOND * age.as_secs_f64()
    }

    /// Marks the transfer as failed for this reason.
    pub fn give_up(&mut self, why: &str) {
        self.failed = Some(why.to_owned());
    }

    /// Returns true if the stream has made no progress for longer than `within`.
    pub fn is_idle(&mut self, now: Instant, within: Duration) -> bool {
        let idle = self.receipt.is_none()
            && self.storing.is_none()
            && now.duration_since(self.last_progress) > within.to_std();
        if idle {
            self.failed = Some(format!("no new data for {within}"));
            self.reason = Some("stalled");
        }
        idle
    }

    /// Ends the transfer on behalf of the user. A file that is being stored is completed first.
    pub fn interrupt(&mut self, now: Instant) {
        self.poll_stored(now);
        self.failed = Some("interrupted".to_owned());
    }

    pub fn outcome(mut self) -> Result<ReceiveResult, Failure> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let from = match self.peer {
            Some(peer) => format!("the transfer from {peer}"),
            None => "a transfer".to_owned(),
        };
        let failed = |text| Failure::text(FailureKind::Failed, text);
        let name = self.header.as_ref().map_or_else(String::new, |header| {
            String::from_utf8_lossy(&header.name).into_owned()
        });
        match self.receipt.take() {
            Some((TransferReply::Stored(hash), at)) => Ok(ReceiveResult {
                peer: self.peer,
                path: self.stored,
                name,
                bytes: self.bytes,
                seconds: at.duration_since(self.started_at).as_secs_f64(),
                hash,
            }),
            Some((TransferReply::Differs(ours), _)) => Err(failed(format!(
                "{from}: {} does not match what was sent: the hash here is {}; discarded",
                printable(&name),
                hex(&ours),
            ))
            .hint(
                "packets modified by the network are discarded and retransmitted, so either a \
                 host corrupts data or the file changed during the transfer",
            )),
            Some((TransferReply::Failed(why), _)) => {
                Err(failed(format!("{from} was aborted: {}", printable(&why))))
            }
            None => {
                let why = self
                    .failed
                    .take()
                    .unwrap_or_else(|| "lost the connection to the sender".to_owned());
                let total = self.header.as_ref().and_then(|header| header.bytes);
                let of = total.map_or_else(String::new, |total| format!(" of {}", human(total)));
                let failure = failed(format!(
                    "{from} failed after {}{of}: {why}",
                    human(self.bytes)
                ))
                .hint("the received part was discarded");
                Err(match self.reason {
                    Some(reason) => failure.reason(reason),
                    None => failure,
                })
            }
        }
    }
}

/// Returns the reply for a file that cannot be stored.
fn failed(why: impl ToString) -> TransferReply {
    TransferReply::Failed(why.to_string())
}
