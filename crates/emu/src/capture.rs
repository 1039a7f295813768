//! The packet log: every packet of both directions in a pcapng file, with its treatment by the
//! queue.
//!
//! Each packet appears once, at the time when it left the queue; a dropped packet appears at its
//! position within its flow. Its comment states its time in the queue and the backlog behind it, in
//! a format that [`read_clock`] parses. The emulator's thread only copies headers into reused
//! memory; another thread writes the file.

mod file;
mod order;
mod read;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::thread::{self, JoinHandle};

use ccplane_host::headers::ETHERNET_HEADER_BYTES;
use ccplane_host::{FramePacket, Head, LINK_HEADER_BYTES, StoredFrame};
use ccplane_qdisc::DropReason;
use ccplane_units::{Duration, Time};

use crate::control::PathDirection;
use crate::{EmuConfig, Error};

pub(crate) use order::FlowOrder;
pub use read::{Capture, LoggedPacket, read};

/// Bytes stored of each packet: the headers of Ethernet, IPv4 and TCP with all options take 134.
pub(crate) const SNAPLEN_BYTES: usize = 144;

/// Packets per batch to the writer. A smaller one would wake it more often; a larger one would lose
/// more if the process is killed.
const BATCH_PACKETS: usize = 256;

/// Batches that may be queued for the writer, 13 MB: a tenth of a second of full-sized packets at
/// 10 Gbit/s, or a quarter of a minute at 50 Mbit/s. Beyond it packets are not logged but counted.
const QUEUED_BATCHES_MAX: usize = 256;

/// Longest time that a packet stays in memory before it goes to the writer.
const FLUSH_INTERVAL: Duration = Duration::from_millis(200);

/// Log entry of a packet that has left a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogEntry {
    pub(crate) direction: PathDirection,
    /// Departure time; for a dropped packet, the departure of the packets ahead of it.
    pub(crate) at: Time,
    /// Time from the drop to `at`.
    pub(crate) early: Duration,
    /// Time in the queue and on the line.
    pub(crate) queued: Duration,
    /// Backlog in bytes, without this packet.
    pub(crate) backlog: u64,
    pub(crate) dropped: Option<DropReason>,
    /// Length in bytes, including the IP header.
    pub(crate) bytes: u16,
    head_bytes: u8,
    head: [u8; SNAPLEN_BYTES],
}

impl LogEntry {
    /// Creates the entry of a packet. The second argument is the link header and the frame.
    pub(crate) fn from_packet(
        stored: &StoredFrame,
        (lead, frame): (&[u8], &[u8]),
        packet: &FramePacket,
        direction: PathDirection,
        at: Time,
    ) -> LogEntry {
        let mut room = Head::default();
        let pieces = stored
            .frame
            .write_packet(frame, packet.index, packet.marked, &mut room);
        let mut head = [0; SNAPLEN_BYTES];
        let mut kept = 0;
        // A packet that cannot be extracted is logged with its length only.
        let [first, rest] = pieces.unwrap_or([&[], &[]]);
        let link = &lead[..lead
            .len()
            .saturating_sub(LINK_HEADER_BYTES - ETHERNET_HEADER_BYTES)];
        for piece in [link, first, rest] {
            let take = piece.len().min(SNAPLEN_BYTES - kept);
            head[kept..kept + take].copy_from_slice(&piece[..take]);
            kept += take;
        }
        LogEntry {
            direction,
            at,
            early: Duration::ZERO,
            queued: at.since(stored.arrived),
            backlog: 0,
            dropped: None,
            bytes: packet.bytes + link.len() as u16,
            head_bytes: kept as u8,
            head,
        }
    }

    #[cfg(test)]
    fn plain(at: Time, bytes: u16) -> LogEntry {
        LogEntry {
            direction: PathDirection::Forward,
            at,
            early: Duration::ZERO,
            queued: Duration::ZERO,
            backlog: 0,
            dropped: None,
            bytes,
            head_bytes: 0,
            head: [0; SNAPLEN_BYTES],
        }
    }

    /// Returns the stored bytes of the packet.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.head_bytes)]
    }
}

/// Outcome of a packet log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureReport {
    /// Packets in the log.
    pub packets: u64,
    /// Packets missing from the log because the disk was too slow.
    pub missed: u64,
    /// Error that ended the log early.
    pub error: Option<String>,
}

/// The emulator's side of the log: collects entries and passes them on in batches.
#[derive(Debug)]
pub(crate) struct Tap {
    batch: Vec<LogEntry>,
    batch_started: Time,
    filled_batches: SyncSender<Vec<LogEntry>>,
    free_batches: Receiver<Vec<LogEntry>>,
    missed: u64,
    writer: JoinHandle<CaptureReport>,
}

impl Tap {
    /// Creates or truncates the file and starts the writer. `began`: wall-clock time at time zero,
    /// since 1970; `lead`: length of the link header of each frame.
    pub(crate) fn start(
        path: &Path,
        config: &EmuConfig,
        began: Duration,
        lead: usize,
    ) -> Result<Tap, Error> {
        let failed = |source| Error::Log {
            path: path.into(),
            source,
        };
        let file = File::create(path).map_err(failed)?;
        let mut file = file::CaptureWriter::new(io::BufWriter::new(file), config, began, lead > 0)
            .map_err(failed)?;
        let (full, filled) = sync_channel::<Vec<LogEntry>>(QUEUED_BATCHES_MAX);
        let (emptied, empty) = channel();
        let writer = thread::Builder::new()
            .name("ccplane-emu-log".into())
            .spawn(move || {
                let mut report = CaptureReport::default();
                for mut batch in filled {
                    // Each direction is sorted; the merged log must be too.
                    batch.sort_by_key(|sight| sight.at);
                    for sight in batch.drain(..) {
                        if report.error.is_some() {
                            report.missed += 1;
                            continue;
                        }
                        match file.write(&sight) {
                            Ok(()) => report.packets += 1,
                            Err(e) => report.error = Some(e.to_string()),
                        }
                    }
                    // The receiver is gone once the emulator has finished.
                    let _ = emptied.send(batch);
                }
                if let Err(e) = file.finish() {
                    report.error.get_or_insert(e.to_string());
                }
                report
            })
            .map_err(|source| Error::System {
                what: "start a thread",
                source,
            })?;
        Ok(Tap {
            batch: Vec::with_capacity(BATCH_PACKETS),
            batch_started: Time::ZERO,
            filled_batches: full,
            free_batches: empty,
            missed: 0,
            writer,
        })
    }

    /// Takes the entries of a direction.
    pub(crate) fn append(&mut self, now: Time, entries: &mut Vec<LogEntry>) {
        if self.batch.is_empty() && !entries.is_empty() {
            self.batch_started = now;
        }
        self.batch.append(entries);
    }

    /// Passes on a batch that is full, or old enough.
    pub(crate) fn flush_if_due(&mut self, now: Time) {
        if self.batch.len() >= BATCH_PACKETS
            || (!self.batch.is_empty() && now.since(self.batch_started) >= FLUSH_INTERVAL)
        {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let next = self
            .free_batches
            .try_recv()
            .unwrap_or_else(|_| Vec::with_capacity(BATCH_PACKETS));
        match self
            .filled_batches
            .try_send(std::mem::replace(&mut self.batch, next))
        {
            Ok(()) => {}
            Err(TrySendError::Full(mut batch) | TrySendError::Disconnected(mut batch)) => {
                self.missed += batch.len() as u64;
                batch.clear();
                self.batch = batch;
            }
        }
    }

    /// Waits until everything is written.
    pub(crate) fn finish(mut self) -> CaptureReport {
        // Blocking is acceptable here.
        let rest = std::mem::take(&mut self.batch);
        let _ = self.filled_batches.send(rest);
        drop(self.filled_batches);
        let panicked = |_| CaptureReport {
            error: Some("the log thread panicked; please report this".into()),
            ..CaptureReport::default()
        };
        let mut report = self.writer.join().unwrap_or_else(panicked);
        report.missed += self.missed;
        report
    }
}

/// Starts the packet log of a configuration, if it has one. `lead`: length of the link header of
/// each frame.
pub(crate) fn start_if_configured(
    config: &EmuConfig,
    began: Duration,
    lead: usize,
) -> Result<Option<Tap>, Error> {
    let start = |path: &PathBuf| Tap::start(path, config, began, lead);
    config.capture.as_ref().map(start).transpose()
}
