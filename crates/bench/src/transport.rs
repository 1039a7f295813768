//! `ccplane bench transport`: what a packet costs the transport, and how fast its UDP driver and
//! the kernel's TCP are on loopback.

mod pair;
mod sockets;

use ccplane_transport::{Rc3, TransportConfig};
use ccplane_units::{Duration, Rate};

use crate::rounds::Turns;
use crate::{Error, Figures};
use pair::Pair;
use sockets::{over_tcp, over_udp};

/// Bytes of a datagram: 1500 less IPv4's and UDP's headers.
const DATAGRAM: usize = 1472;
/// Packets to warm up with, until rings and windows have their size, and to measure.
const WARM: u64 = 100_000;
const PACKETS: u64 = 500_000;
/// Packets handed over at once, as many as the kernel joins of this size.
const ROUND: usize = 44;
/// The limit of a paced run.
const LIMIT: Rate = Rate::from_bits_per_sec(1_000_000_000);
/// For how long the sockets run each time, and how often; figures are medians.
const RUN: Duration = Duration::from_secs(2);
const RUNS: usize = 3;

/// What takes turns on loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Our transport as fast as it goes.
    Udp,
    /// The same with the second loop.
    Rc3,
    /// Under the limit.
    Limited,
    /// Under the limit with the second loop.
    LimitedRc3,
    /// With the kernel's time stamps.
    Stamped,
    /// The kernel's TCP.
    Tcp,
}

impl Way {
    const ALL: [Way; 6] = [
        Way::Udp,
        Way::Rc3,
        Way::Limited,
        Way::LimitedRc3,
        Way::Stamped,
        Way::Tcp,
    ];

    /// How our transport is set.
    fn config(self) -> TransportConfig {
        TransportConfig {
            max_rate: matches!(self, Way::Limited | Way::LimitedRc3).then_some(LIMIT),
            rc3: matches!(self, Way::Rc3 | Way::LimitedRc3).then(Rc3::default),
            stamps: self == Way::Stamped,
            ..TransportConfig::default()
        }
    }

    fn run(self) -> Result<Run, Error> {
        match self {
            Way::Tcp => over_tcp(),
            ours => over_udp(&ours.config()),
        }
    }
}

/// One run over sockets.
struct Run {
    gbps: f64,
    cpu_s_per_gb: f64,
}

/// Runs the benchmark: some 20 s.
pub fn run() -> Result<Figures, Error> {
    let mut figures = Figures::default();
    in_memory(&mut figures)?;
    on_loopback(&mut figures)?;
    figures.note(format!(
        "per packet: {PACKETS} full segments between two connections in memory, {ROUND} at a time; send: segment, codec, copy, and \
         its share of acknowledgements; receive: codec, connection, and the acknowledgement of a round"
    ));
    figures.note(format!(
        "loopback: one connection, native Cubic, datagrams of {DATAGRAM} bytes, no key, no hash; medians of {RUNS} runs of {RUN}; \
         kernel TCP has loopback's 64 kB packets"
    ));
    Ok(figures)
}

fn in_memory(figures: &mut Figures) -> Result<(), Error> {
    let mut pair = Pair::new()?;
    pair.carry(WARM)?;
    let warm = pair.spent();
    let mut outcome = Ok(());
    let allocations = count_allocations(|| outcome = pair.carry(PACKETS));
    outcome?;
    let spent = pair.spent().since(warm);
    let packets = spent.packets as f64;
    let reference = "codec and copy of payload included";
    for (key, ns) in [("send_ns", spent.send_ns), ("receive_ns", spent.receive_ns)] {
        figures
            .add(key, ns as f64 / packets, "ns/packet")
            .beside(reference);
    }
    match allocations {
        Some(count) => {
            figures
                .add("allocations_per_packet", count as f64 / packets, "")
                .at_most(0.0);
        }
        None => figures.note("built without the feature `allocations`: they were not counted"),
    }
    figures
        .add("flow_bytes", pair.idle_bytes() as f64, "bytes")
        .at_most(1024.0)
        .beside("both ends under native Cubic, idle");
    Ok(())
}

fn on_loopback(figures: &mut Figures) -> Result<(), Error> {
    let turns = Turns::take(RUNS, &Way::ALL, |_, way| way.run())?;
    let gbps = |way| turns.median(way, |run| run.gbps);
    let cpu = |way| turns.median(way, |run| run.cpu_s_per_gb);
    let both_ends = "both ends, user and system";
    figures
        .add("udp_loopback_gbps", gbps(Way::Udp), "Gbit/s")
        .at_least(3.0);
    figures
        .add("udp_cpu_s_per_gb", cpu(Way::Udp), "s/GB")
        .beside(both_ends);
    // 98 % of 1421 bytes in 1485.
    figures
        .add("udp_limited_gbps", gbps(Way::Limited), "Gbit/s")
        .at_least(0.937)
        .beside("payload under a limit of 1 Gbit/s with headers");
    figures
        .add("udp_limited_cpu_s_per_gb", cpu(Way::Limited), "s/GB")
        .at_most(1.0)
        .beside(both_ends);
    figures
        .add("udp_stamped_gbps", gbps(Way::Stamped), "Gbit/s")
        .beside("with the kernel's time stamps: each datagram a packet of its own, and an acknowledgement for each");
    figures
        .add("udp_stamped_cpu_s_per_gb", cpu(Way::Stamped), "s/GB")
        .beside(both_ends);
    figures
        .add("udp_tail_gbps", gbps(Way::Rc3), "Gbit/s")
        .beside("with the second loop");
    figures
        .add("udp_tail_cpu_s_per_gb", cpu(Way::Rc3), "s/GB")
        .beside(both_ends);
    figures
        .add("udp_tail_cpu_ratio", cpu(Way::Rc3) / cpu(Way::Udp), "")
        .at_most(1.1)
        .beside("to that without, as fast as it goes");
    let limited = cpu(Way::LimitedRc3) / cpu(Way::Limited);
    figures
        .add("udp_limited_tail_cpu_ratio", limited, "")
        .at_most(1.1)
        .beside("to that without, under the limit of 1 Gbit/s");
    figures
        .add("tcp_loopback_gbps", gbps(Way::Tcp), "Gbit/s")
        .beside("kernel TCP in the same run");
    figures
        .add("tcp_cpu_s_per_gb", cpu(Way::Tcp), "s/GB")
        .beside(both_ends);
    Ok(())
}

/// Allocations and reallocations of this thread while `work` runs; `None` where nobody counts.
fn count_allocations(work: impl FnOnce()) -> Option<u64> {
    #[cfg(feature = "allocations")]
    return Some(allocation_counter::measure(work).count_total);
    #[cfg(not(feature = "allocations"))]
    {
        work();
        None
    }
}
