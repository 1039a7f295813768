//! Simulated disk for the packet log and the agents' log: writes are partial, are interrupted, and
//! fail once the disk is full.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ccplane_sim::{LinkId, Network, PacketEvent, PacketLog, PacketLogError, Tracer};
use ccplane_units::Time;
use pcap_file::pcapng::{Block, PcapNgReader};
use tracing_subscriber::fmt::MakeWriter;

use crate::check::Violation;
use crate::check::stream::Streams;

/// Every n-th write is interrupted.
const INTERRUPTED_WRITE_PERIOD: u64 = 7;

#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// Capacity, bytes.
    pub room: usize,
    /// Maximum size of a write, bytes.
    pub write: usize,
}

#[derive(Clone, Debug)]
pub struct File(Arc<Mutex<Contents>>);

#[derive(Debug)]
struct Contents {
    space: Space,
    bytes: Vec<u8>,
    writes: u64,
    is_full: bool,
}

impl File {
    pub fn new(space: Space) -> File {
        File(Arc::new(Mutex::new(Contents {
            space,
            bytes: Vec::new(),
            writes: 0,
            is_full: false,
        })))
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for File {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut contents = self.contents();
        contents.writes += 1;
        if contents.writes.is_multiple_of(INTERRUPTED_WRITE_PERIOD) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let room = contents.space.room - contents.bytes.len();
        let taken = bytes.len().min(contents.space.write).min(room);
        if taken == 0 && !bytes.is_empty() {
            contents.is_full = true;
            return Err(io::ErrorKind::StorageFull.into());
        }
        contents.bytes.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for File {
    type Writer = File;

    fn make_writer(&self) -> File {
        self.clone()
    }
}

/// Runs `run` with the agents' log on the disk, or without a log.
pub fn run_with_log<T>(space: Option<Space>, run: impl FnOnce() -> T) -> T {
    let Some(space) = space else { return run() };
    let log = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .without_time()
        .with_ansi(false)
        .log_internal_errors(false)
        .with_writer(File::new(space))
        .finish();
    tracing::subscriber::with_default(log, run)
}

/// Tracer that passes every packet to `Streams` and, with a disk, writes the packets of one link to
/// a packet log.
#[derive(Debug)]
pub struct Recorder {
    streams: Streams,
    log: Option<(PacketLog<File>, File)>,
    /// Error from creating the log, if the disk was too small even for that.
    refused: Option<(PacketLogError, File)>,
}

impl Recorder {
    pub fn new(
        streams: Streams,
        network: &Network,
        link: LinkId,
        space: Option<Space>,
    ) -> Recorder {
        let mut recorder = Recorder {
            streams,
            log: None,
            refused: None,
        };
        if let Some(space) = space {
            let file = File::new(space);
            match PacketLog::new(file.clone(), network, &[link]) {
                Ok(log) => recorder.log = Some((log, file)),
                Err(error) => recorder.refused = Some((error, file)),
            }
        }
        recorder
    }

    /// Finishes the packet log. It must fail if and only if the disk was full, and contain as many
    /// packets as it reports.
    pub fn check(self) -> Result<(), Violation> {
        let (finished, file) = match (self.log, self.refused) {
            (Some((log, file)), _) => (log.finish().map(|(_, packets)| packets), file),
            (None, Some((error, file))) => (Err(error), file),
            (None, None) => return Ok(()),
        };
        let contents = file.contents();
        let packets = match finished {
            Ok(_) if contents.is_full => {
                return Err("the disk was full, but the packet log reports no error".to_owned());
            }
            Ok(packets) | Err(PacketLogError::Write { packets, .. }) if contents.is_full => packets,
            Ok(packets) => packets,
            Err(error) => {
                return Err(format!(
                    "the disk has space, but the packet log failed: {error}"
                ));
            }
        };
        let mut whole = 0;
        if let Ok(mut reader) = PcapNgReader::new(&contents.bytes[..]) {
            while let Some(Ok(block)) = reader.next_block() {
                whole += u64::from(matches!(block, Block::EnhancedPacket(_)));
            }
        }
        match whole == packets {
            true => Ok(()),
            false => Err(format!(
                "the packet log reports {packets} packets, but {whole} are on the disk"
            )),
        }
    }
}

impl Tracer for Recorder {
    fn on_packet_event(&mut self, now: Time, seen: &PacketEvent<'_>) {
        self.streams.on_packet_event(now, seen);
        if let Some((log, _)) = &mut self.log {
            log.on_packet_event(now, seen);
        }
    }
}
