//! Timestamps at both ends of kernel TCP over a link, compared with the link's own record packet by
//! packet.

use std::collections::HashMap;
use std::net::SocketAddr;

use ccplane_lab::Error;
use ccplane_lab::metrics::Distribution;
use ccplane_lab::result::{OneWayMetrics, StampedPacket};
use ccplane_linux::stamp::{Cost, StampCounters, StampPrograms, StampedArrival};

use crate::ends::TrafficEnds;
use crate::error::BackendError;
use crate::link_report::LinkReport;
use crate::traffic::Transfer;

/// Minimum size of a full packet, relative to the largest. Smaller packets take less serialisation
/// time; compared with them, full ones would appear to have queued.
const FULL_PACKET_SIZE_RATIO: f64 = 0.98;

/// Timestamping at both ends of a path, and the stamped packets that arrived.
pub struct Stamping {
    stamps: StampPrograms,
    arrivals: Vec<StampedArrival>,
}

impl Stamping {
    /// Attaches to the devices and sockets of the two namespaces until dropped. The first device is
    /// the sender's.
    pub fn start(
        mut stamps: StampPrograms,
        ends: &TrafficEnds,
        devices: [&str; 2],
    ) -> Result<Stamping, Error> {
        for (namespace, device) in [&ends.sender, &ends.receiver].into_iter().zip(devices) {
            stamps
                .add_namespace(namespace)
                .map_err(BackendError::Kernel)?;
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

    /// Stores the packets that arrived since the last call.
    pub fn collect(&mut self) {
        let Stamping { stamps, arrivals } = self;
        stamps.drain_arrivals(|arrival| arrivals.push(arrival));
    }

    /// Returns the CPU cost of the BPF programs so far, if the kernel measures it.
    pub fn costs(&self) -> Vec<Cost> {
        self.stamps.run_times()
    }

    /// Returns the queueing delay of the senders' full packets, ns: one-way delay above the
    /// minimum. Only packets sent during the transfer count.
    pub fn queueing_delays(&mut self, transfer: &Transfer) -> Vec<u64> {
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

    /// Returns the counters of the stamps, and the queueing delays of the packets that left the
    /// link while bytes were counted.
    pub(crate) fn finish(
        mut self,
        report: &LinkReport,
        started_ns: u64,
        elapsed_ns: u64,
    ) -> DelayPair {
        self.collect();
        DelayPair {
            packets: compare(
                &self.arrivals,
                report,
                (started_ns, started_ns + elapsed_ns),
            ),
            counters: self.stamps.counters(),
        }
    }
}

/// Queueing delay of each packet, by the stamps and by the emulator's log.
pub(crate) struct DelayPair {
    pub packets: Vec<StampedPacket>,
    pub counters: StampCounters,
}

impl DelayPair {
    /// Returns `None` if no packet was stamped.
    pub(crate) fn metrics(&self) -> Option<OneWayMetrics> {
        let of = |what: fn(&StampedPacket) -> u64| {
            Distribution::new(self.packets.iter().map(|p| what(p) as f64 / 1e3))
        };
        let (measured, truth) = (of(|p| p.measured_ns), of(|p| p.link_ns));
        let error = of(|p| p.measured_ns.abs_diff(p.link_ns));
        Some(OneWayMetrics {
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

/// Returns the size from which a packet counts as full.
fn full(arrivals: &[StampedArrival]) -> u32 {
    let largest = arrivals.iter().map(|a| a.bytes).max().unwrap_or(0);
    (f64::from(largest) * FULL_PACKET_SIZE_RATIO) as u32
}

/// Returns the one-way delay from device to device, ns. Both clocks are this host's.
fn took(arrival: &StampedArrival) -> u64 {
    u64::from((arrival.at_ns as u32).wrapping_sub(arrival.sent))
}

/// Matches full packets of the two records. Both clocks are this host's, and packets of a flow are
/// not reordered: a stamped packet is the first one in the log that reached the link after its
/// departure. Queueing delay is the excess over the minimum of each record.
fn compare(
    arrivals: &[StampedArrival],
    log: &LinkReport,
    (begin, end): (u64, u64),
) -> Vec<StampedPacket> {
    let largest = log.packets().map(|r| r.bytes).max().unwrap_or(0);
    let full_ip = (f64::from(largest) * FULL_PACKET_SIZE_RATIO) as u32;
    let full_tcp = full(arrivals);

    // Arrival time at the link and sojourn time, by the sender's port.
    let mut flows: HashMap<u16, Vec<(u64, u64)>> = HashMap::new();
    for packet in log.packets().filter(|packet| packet.bytes >= full_ip) {
        flows
            .entry(packet.source_port)
            .or_default()
            .push((packet.arrived_ns, packet.sojourn_ns));
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
