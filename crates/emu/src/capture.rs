//! The packet log: every packet of both directions in a pcapng file, with what the queue did to it.
//!
//! A packet is in it once, with the time at which it left the queue; a dropped one where its flow
//! had it. Its comment says how long it had waited and how much waited behind it, in words that
//! [`read`] understands. The emulator's thread only copies headers into memory that is used again
//! and again; another thread writes.

mod file;
mod order;
mod read;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, channel, sync_channel};
use std::thread::{self, JoinHandle};

use ccplane_host::{Head, LINK_HEADER, Packet, Stored};
use ccplane_qdisc::DropReason;
use ccplane_units::{Duration, Time};

use crate::control::Way;
use crate::{Config, Error};

pub(crate) use order::FlowOrder;
pub use read::{Captured, Logged, read};

/// Bytes kept of each packet: headers of Ethernet, IPv4 and TCP with all their options take 134.
pub(crate) const KEPT: usize = 144;
/// Of them the header of Ethernet, where there is one.
const ETHERNET: usize = 14;

/// Packets that go to the writer at once. Fewer would wake it more often; more would be lost
/// together when the process is killed.
const BATCH: usize = 256;

/// Batches that may wait for the writer, 13 MB: a tenth of a second of 10 Gbit/s in full packets,
/// and a quarter of a minute at 50 Mbit/s. Beyond it packets are not logged, and counted.
const BATCHES: usize = 256;

/// The longest that a packet waits in memory before it goes to the writer.
const PATIENCE: Duration = Duration::from_millis(200);

/// A packet that has left a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    pub(crate) way: Way,
    /// When it left; when the packets ahead of it had left if it was dropped.
    pub(crate) at: Time,
    /// How much earlier it was dropped.
    pub(crate) early: Duration,
    /// How long it was in the queue and on the line.
    pub(crate) queued: Duration,
    /// Bytes in the queue without it.
    pub(crate) backlog: u64,
    pub(crate) dropped: Option<DropReason>,
    /// Its length, IP header included.
    pub(crate) bytes: u16,
    kept: u8,
    head: [u8; KEPT],
}

impl Sight {
    /// What is to be logged of a packet, whose frame is what the link has in front and the rest.
    pub(crate) fn of(
        stored: &Stored,
        (lead, frame): (&[u8], &[u8]),
        packet: &Packet,
        way: Way,
        at: Time,
    ) -> Sight {
        let mut room = Head::default();
        let pieces = stored
            .frame
            .completed(frame, packet.index, packet.marked, &mut room);
        let mut head = [0; KEPT];
        let mut kept = 0;
        // What cannot be cut off is logged by its length alone.
        let [first, rest] = pieces.unwrap_or([&[], &[]]);
        let link = &lead[..lead.len().saturating_sub(LINK_HEADER - ETHERNET)];
        for piece in [link, first, rest] {
            let take = piece.len().min(KEPT - kept);
            head[kept..kept + take].copy_from_slice(&piece[..take]);
            kept += take;
        }
        Sight {
            way,
            at,
            early: Duration::ZERO,
            queued: at.since(stored.arrived),
            backlog: 0,
            dropped: None,
            bytes: packet.bytes + link.len() as u16,
            kept: kept as u8,
            head,
        }
    }

    #[cfg(test)]
    fn plain(at: Time, bytes: u16) -> Sight {
        Sight {
            way: Way::Forward,
            at,
            early: Duration::ZERO,
            queued: Duration::ZERO,
            backlog: 0,
            dropped: None,
            bytes,
            kept: 0,
            head: [0; KEPT],
        }
    }

    /// Its first bytes.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head[..usize::from(self.kept)]
    }
}

/// How a packet log ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureReport {
    /// Packets in it.
    pub packets: u64,
    /// Packets that are not, since the disk was too slow.
    pub missed: u64,
    /// Why it ends early.
    pub error: Option<String>,
}

/// The emulator's end: collects, and hands over by the batch.
#[derive(Debug)]
pub(crate) struct Tap {
    batch: Vec<Sight>,
    since: Time,
    full: SyncSender<Vec<Sight>>,
    empty: Receiver<Vec<Sight>>,
    missed: u64,
    writer: JoinHandle<CaptureReport>,
}

impl Tap {
    /// Makes the file, or empties it, and starts to write. `began` is what the wall clock said at
    /// time zero, since 1970; `lead` is what the link has in front of each frame.
    pub(crate) fn start(
        path: &Path,
        config: &Config,
        began: Duration,
        lead: usize,
    ) -> Result<Tap, Error> {
        let failed = |source| Error::Log {
            path: path.into(),
            source,
        };
        let file = File::create(path).map_err(failed)?;
        let mut file =
            file::Writer::new(io::BufWriter::new(file), config, began, lead > 0).map_err(failed)?;
        let (full, filled) = sync_channel::<Vec<Sight>>(BATCHES);
        let (emptied, empty) = channel();
        let writer = thread::Builder::new()
            .name("ccplane-emu-log".into())
            .spawn(move || {
                let mut report = CaptureReport::default();
                for mut batch in filled {
                    // Each direction is in order; both together are to be.
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
                    // Whoever has ended takes none back.
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
            batch: Vec::with_capacity(BATCH),
            since: Time::ZERO,
            full,
            empty,
            missed: 0,
            writer,
        })
    }

    /// Takes what a direction has seen.
    pub(crate) fn take(&mut self, now: Time, seen: &mut Vec<Sight>) {
        if self.batch.is_empty() && !seen.is_empty() {
            self.since = now;
        }
        self.batch.append(seen);
    }

    /// Hands over what is enough for a batch, or old.
    pub(crate) fn pass_on(&mut self, now: Time) {
        if self.batch.len() >= BATCH
            || (!self.batch.is_empty() && now.since(self.since) >= PATIENCE)
        {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let next = self
            .empty
            .try_recv()
            .unwrap_or_else(|_| Vec::with_capacity(BATCH));
        match self.full.try_send(std::mem::replace(&mut self.batch, next)) {
            Ok(()) => {}
            Err(TrySendError::Full(mut batch) | TrySendError::Disconnected(mut batch)) => {
                self.missed += batch.len() as u64;
                batch.clear();
                self.batch = batch;
            }
        }
    }

    /// Waits until all is written.
    pub(crate) fn finish(mut self) -> CaptureReport {
        // Here it may wait for the writer.
        let rest = std::mem::take(&mut self.batch);
        let _ = self.full.send(rest);
        drop(self.full);
        let panicked = |_| CaptureReport {
            error: Some("its thread panicked; please report this".into()),
            ..CaptureReport::default()
        };
        let mut report = self.writer.join().unwrap_or_else(panicked);
        report.missed += self.missed;
        report
    }
}

/// Where a configuration wants its packet log; `lead` is what the link has in front of each frame.
pub(crate) fn wanted(config: &Config, began: Duration, lead: usize) -> Result<Option<Tap>, Error> {
    let start = |path: &PathBuf| Tap::start(path, config, began, lead);
    config.capture.as_ref().map(start).transpose()
}
