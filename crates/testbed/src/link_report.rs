//! The bottleneck of a run on real packets, after the run: the emulator's link, or a token bucket
//! of the kernel.

use ccplane_emu::{EmuReport, Fate};
use ccplane_lab::record::LinkRecord;

use crate::tap::{LinkPacket, TapReport};

/// Record of the bottleneck.
#[derive(Debug)]
pub(crate) enum LinkReport {
    Emulated(Box<EmuReport>),
    TokenBucket(TapReport),
}

impl LinkReport {
    /// Returns the packets that departed in the forward direction.
    pub fn packets(&self) -> impl Iterator<Item = LinkPacket> + '_ {
        let (emulated, bucket) = match self {
            LinkReport::Emulated(report) => (Some(report), None),
            LinkReport::TokenBucket(report) => (None, Some(&report.packets)),
        };
        let emulated = emulated.into_iter().flat_map(|report| {
            let epoch_ns = report.epoch.as_nanos();
            report.forward.records().filter_map(move |record| {
                let Fate::Departed(_) = record.fate() else {
                    return None;
                };
                Some(LinkPacket {
                    arrived_ns: record.arrived.as_nanos() + epoch_ns,
                    sojourn_ns: record.sojourn()?.as_nanos(),
                    bytes: u32::from(record.bytes),
                    source_port: record.source_port,
                })
            })
        });
        emulated.chain(bucket.into_iter().flatten().copied())
    }

    /// Builds the record of the forward link: packets that departed in the `elapsed_ns` after the
    /// first byte (`started_ns`, `CLOCK_MONOTONIC`). `capacity`: bytes that the link could have
    /// carried in this time.
    pub fn record(&self, started_ns: u64, elapsed_ns: u64, capacity: f64) -> LinkRecord {
        let departed = self.packets().filter_map(|packet| {
            let departed_ns = packet.arrived_ns + packet.sojourn_ns;
            let since_ns = departed_ns.checked_sub(started_ns)?;
            let departure = (since_ns, packet.sojourn_ns, u64::from(packet.bytes));
            (since_ns < elapsed_ns).then_some(departure)
        });
        let (queue_drops, random_losses) = match self {
            LinkReport::Emulated(report) => (report.forward.queue_drops, report.forward.losses),
            LinkReport::TokenBucket(report) => (report.drops, 0),
        };
        LinkRecord {
            departures: departed.collect(),
            capacity,
            queue_drops,
            random_losses,
        }
    }
}
