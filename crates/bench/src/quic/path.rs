//! What a path costs at each packet and at each acknowledgement, and in memory, without a stack.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads a clock")]

use std::collections::VecDeque;
use std::time::Instant;

use ccplane_agent::FlowInfo;
use ccplane_agent::datapath::FlowState;
use ccplane_algorithms::{Parameters, Registry};
use ccplane_quic::{OperatorLimits, QuicPlane, Stack, SteeredPath};
use ccplane_units::Time;

use crate::rounds::median;
use crate::{Error, Figures};

/// Packets that one acknowledgement covers: what was seen on loopback, and behind a link of 96
/// Mbit/s.
const COVERED: [u64; 2] = [22, 2];
/// Acknowledgements of a run, and runs; figures are medians.
const EVENTS: u64 = 20_000;
const RUNS: usize = 9;
/// In flight all the time.
const FLYING: u64 = 200;
/// Payload of a packet.
const BYTES: u16 = 1_452;

pub(super) fn run(registry: &Registry, figures: &mut Figures) -> Result<(), Error> {
    for covered in COVERED {
        let mut spent = Vec::new();
        for _ in 0..RUNS {
            spent.push(once(registry, covered)?);
        }
        let event = median(spent.iter().map(|spent| spent.0));
        let packet = median(spent.iter().map(|spent| spent.1));
        let suffix = if covered == COVERED[0] {
            ""
        } else {
            "_2_packets"
        };
        figures
            .add(format!("ack_event_ns{suffix}"), event, "ns")
            .at_most(250.0)
            .beside(
                "everything of ours at an acknowledgement but its packets, Reno's fold; no agent",
            );
        figures
            .add(format!("packet_ns{suffix}"), packet, "ns")
            .at_most(25.0)
            .beside("sent and acknowledged");
    }
    let mut steered = steered(registry)?;
    let empty = steered.path().memory_bytes();
    let now = Time::from_micros(1);
    (0..10_000).for_each(|number| steered.path_mut().on_sent(now, number, BYTES));
    let full = steered.path().memory_bytes();
    let path = size_of::<SteeredPath>() + size_of::<FlowState<FlowInfo>>();
    figures
        .add("path_bytes", path as f64, "bytes")
        .at_most(4_096.0)
        .beside("its flow included, without packets");
    figures
        .add("packet_bytes", (full - empty) as f64 / 10_000.0, "bytes")
        .at_most(48.0)
        .beside("in flight, 10,000 of them");
    Ok(())
}

fn steered(registry: &Registry) -> Result<SteeredPath, Error> {
    let parameters = Parameters::new().with("report", "10ms");
    let reno = registry
        .by_name("reno", &parameters)
        .map_err(|why| Error::failed(why.to_string()))?;
    let plane = QuicPlane::in_process(Stack::Noq, reno, OperatorLimits::default())
        .map_err(|why| Error::failed(why.to_string()))?;
    Ok(SteeredPath::new(&plane, Instant::now(), BYTES))
}

/// ns an acknowledgement, and ns a packet sent and acknowledged.
fn once(registry: &Registry, covered: u64) -> Result<(f64, f64), Error> {
    let mut steered = steered(registry)?;
    // The path's clock is the real one, or its agent would seem silent.
    let time = |steered: &SteeredPath| steered.time(Instant::now());
    steered.open(time(&steered));
    let mut sent: VecDeque<(u64, Time)> = (0..FLYING)
        .map(|number| {
            let now = time(&steered);
            steered.path_mut().on_sent(now, number, BYTES);
            (number, now)
        })
        .collect();
    let (mut next, mut packets_ns, mut events_ns) = (FLYING, 0u128, 0u128);
    let clock = clock_ns();
    for _ in 0..EVENTS {
        let now = time(&steered);
        let first = Instant::now();
        for _ in 0..covered {
            steered.path_mut().on_sent(now, next, BYTES);
            sent.push_back((next, now));
            next += 1;
            if let Some((number, at)) = sent.pop_front() {
                steered.path_mut().on_acked(now, number, at);
            }
        }
        let second = Instant::now();
        steered.finish_event(now, false);
        let third = Instant::now();
        packets_ns += (second - first).as_nanos();
        events_ns += (third - second).as_nanos();
    }
    let per = |ns: u128, count: u64| (ns as f64 / EVENTS as f64 - clock).max(0.0) / count as f64;
    Ok((per(events_ns, 1), per(packets_ns, covered)))
}

/// What a look at the clock costs.
fn clock_ns() -> f64 {
    let begun = Instant::now();
    (0..1_000).for_each(|_| {
        std::hint::black_box(Instant::now());
    });
    begun.elapsed().as_nanos() as f64 / 1_000.0
}
