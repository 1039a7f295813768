//! Time stamps of both ends on an emulated link's kernel TCP, and what they say of each packet
//! beside what the link did.

use std::collections::HashMap;
use std::net::SocketAddr;

use ccplane_emu::{EmuReport, LinkLog};
use ccplane_lab::Error;
use ccplane_lab::metrics::Distribution;
use ccplane_lab::result::{OneWayFigures, StampedPacket};
use ccplane_linux::stamp::{Cost, StampCounters, StampPrograms, StampedArrival};
use ccplane_units::Duration;

use crate::ends::TrafficEnds;
use crate::error::BackendError;
use crate::traffic::Transfer;

/// A full packet has at least this share of the largest one's bytes. Smaller ones take less time on
/// the wire, which would show as a delay that no queue made.
const FULL_PACKET_SIZE_RATIO: f64 = 0.98;

/// Stamps at both ends of a path, and the packets that arrived with them.
pub struct Stamping {
    stamps: StampPrograms,
    arrivals: Vec<StampedArrival>,
}

impl Stamping {
    /// Attaches to the devices and the sockets of the two namespaces, for as long as this lives.
    /// The sender's device is the first.
    pub fn start(
        mut stamps: StampPrograms,
        ends: &TrafficEnds,
        devices: [&str; 2],
    ) -> Result<Stamping, Error> {
        for (namespace, device) in [&ends.sender, &ends.receiver].into_iter().zip(devices) {
            stamps.confine(namespace).map_err(BackendError::Kernel)?;
            let attached = namespace
                .run(|| stamps.attach_device(device))
                .map_err(|error| BackendError::Emulator(ccplane_emu::Error::Host(error)))?;
            attached.map_err(BackendError::Kernel)?;
        }
        stamps.attach_sockets(None).map_err(BackendError::Sockets)?;
        Ok(Stamping {
            stamps,
            arrivals: Vec::new(),
        })
    }

    /// Keeps what arrived since the last call.
    pub fn collect(&mut self) {
        let Stamping { stamps, arrivals } = self;
        stamps.arrivals(|arrival| arrivals.push(arrival));
    }

    /// What the programs have cost so far, where the kernel counts.
    pub fn costs(&self) -> Vec<Cost> {
        self.stamps.costs()
    }

    /// What the senders' full packets took above the least of them, ns, of those that left while
    /// bytes were counted.
    pub fn waited(&mut self, transfer: &Transfer) -> Vec<u64> {
        self.collect();
        let full = full(&self.arrivals);
        let (begin, end) = (
            transfer.started_ns,
            transfer.started_ns + transfer.elapsed_ns,
        );
        let ports: Vec<u16> = transfer.senders.iter().map(SocketAddr::port).collect();
        let theirs = self.arrivals.iter();
        let theirs = theirs.filter(|a| a.bytes >= full && ports.contains(&a.remote_port));
        let took: Vec<u64> = theirs
            .filter(|a| (begin..end).contains(&(a.at_ns.saturating_sub(took(a)))))
            .map(took)
            .collect();
        let least = took.iter().copied().min().unwrap_or(0);
        took.into_iter().map(|took| took - least).collect()
    }

    /// What happened to the stamps, and what they say of the packets that left the link while bytes
    /// were counted.
    pub(crate) fn finish(
        mut self,
        report: &EmuReport,
        started_ns: u64,
        elapsed_ns: u64,
    ) -> DelayPair {
        self.collect();
        DelayPair {
            packets: compare(
                &self.arrivals,
                &report.forward,
                report.epoch,
                (started_ns, started_ns + elapsed_ns),
            ),
            counters: self.stamps.counters(),
        }
    }
}

/// Each packet's queueing delay twice.
pub(crate) struct DelayPair {
    pub packets: Vec<StampedPacket>,
    pub counters: StampCounters,
}

impl DelayPair {
    /// `None` where no packet was stamped.
    pub(crate) fn figures(&self) -> Option<OneWayFigures> {
        let of = |what: fn(&StampedPacket) -> u64| {
            Distribution::new(self.packets.iter().map(|p| what(p) as f64 / 1e3))
        };
        let (measured, truth) = (of(|p| p.measured_ns), of(|p| p.link_ns));
        let error = of(|p| p.measured_ns.abs_diff(p.link_ns));
        Some(OneWayFigures {
            packets: self.packets.len() as u64,
            queue_p50_us: measured.quantile(0.5)?,
            queue_p99_us: measured.quantile(0.99)?,
            link_p50_us: truth.quantile(0.5)?,
            link_p99_us: truth.quantile(0.99)?,
            queue_error_p50_us: error.quantile(0.5)?,
            queue_error_p99_us: error.quantile(0.99)?,
            samples: self.counters.samples,
            no_room: self.counters.no_room,
            malformed: self.counters.malformed,
        })
    }
}

/// From so many bytes on a packet of these is full.
fn full(arrivals: &[StampedArrival]) -> u32 {
    let largest = arrivals.iter().map(|a| a.bytes).max().unwrap_or(0);
    (f64::from(largest) * FULL_PACKET_SIZE_RATIO) as u32
}

/// From device to device, ns; both clocks are this host's.
fn took(arrival: &StampedArrival) -> u64 {
    u64::from((arrival.at_ns as u32).wrapping_sub(arrival.sent))
}

/// Full packets in both records. Both clocks are this host's, so a packet is found by its time of
/// departure: packets of a flow do not overtake each other, and it is the first one that reached
/// the link afterwards. Queueing delay is the excess over the shortest of each record.
fn compare(
    arrivals: &[StampedArrival],
    log: &LinkLog,
    epoch: Duration,
    (begin, end): (u64, u64),
) -> Vec<StampedPacket> {
    let largest = log.records().map(|r| r.bytes).max().unwrap_or(0);
    let full_ip = (f64::from(largest) * FULL_PACKET_SIZE_RATIO) as u16;
    let full_tcp = full(arrivals);

    // When it came to the link, and for how long it stayed, by the sender's port.
    let mut flows: HashMap<u16, Vec<(u64, u64)>> = HashMap::new();
    for record in log.records().filter(|r| r.bytes >= full_ip) {
        if let Some(sojourn) = record.sojourn() {
            let came = record.arrived.as_nanos() + epoch.as_nanos();
            flows
                .entry(record.source_port)
                .or_default()
                .push((came, sojourn.as_nanos()));
        }
    }
    let mut next: HashMap<u16, usize> = HashMap::new();
    let mut found = Vec::new();
    let to_this_end = arrivals
        .iter()
        .filter(|a| flows.contains_key(&a.remote_port));
    for arrival in to_this_end.filter(|a| a.bytes >= full_tcp) {
        let took = took(arrival);
        let left = arrival.at_ns.saturating_sub(took);
        let records = &flows[&arrival.remote_port];
        let at = next.entry(arrival.remote_port).or_default();
        while records.get(*at).is_some_and(|(came, _)| *came < left) {
            *at += 1;
        }
        let Some((_, sojourn)) = records.get(*at) else {
            continue;
        };
        *at += 1;
        if (begin..end).contains(&left) {
            found.push(StampedPacket {
                at_ns: left - begin,
                measured_ns: took,
                link_ns: *sojourn,
            });
        }
    }
    let least = |what: fn(&StampedPacket) -> u64| found.iter().map(what).min().unwrap_or(0);
    let (took, sojourn) = (least(|p| p.measured_ns), least(|p| p.link_ns));
    for packet in &mut found {
        packet.measured_ns -= took;
        packet.link_ns -= sojourn;
    }
    found
}
