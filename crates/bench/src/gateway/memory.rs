//! What a sendbox costs in memory: ns a packet, and bytes of a bundle.
use ccplane_bundle::{Sendbox, SendboxConfig};
use ccplane_qdisc::Packet;
use ccplane_testbed::cpu::this_thread_ns;
use ccplane_units::{Duration, Time};

use crate::rounds::median;
use crate::{Error, Figures};

const FLOWS: u32 = 1_000;
/// Rounds of so many packets; figures are their medians.
const ROUNDS: usize = 9;
const PACKETS: u32 = 200_000;
/// Of full packets so many wait, one a flow: far from the limit.
const WAITING: u32 = FLOWS;

/// As large as what a gateway has in its queue, and as much to look at.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    bytes: u32,
    flow: u32,
    #[expect(dead_code, reason = "it takes its place in the queue")]
    rest: [u32; 3],
}

impl Packet for Waiting {
    fn bytes(&self) -> u32 {
        self.bytes
    }

    fn flow_hash(&self) -> u32 {
        self.flow
    }
}

fn packet(number: u32) -> Waiting {
    Waiting {
        bytes: 1_480,
        // Of flows in no order, as they come from many hosts.
        flow: (number.wrapping_mul(0x9e37_79b9) >> 8) % FLOWS * 0x0101_6b55,
        rest: [number; 3],
    }
}

/// A sendbox with a standing queue of so many packets. A packet comes in and one leaves, if
/// `leaves`; else the queue is full, and one is dropped for each that comes. ns a packet, of
/// processor time.
fn ns_a_packet(waiting: u32, leaves: bool) -> Result<f64, Error> {
    let begun = Time::ZERO;
    let mut sendbox = Sendbox::new(begun, &SendboxConfig::default())
        .map_err(|why| Error::failed(format!("the default queue: {why}")))?;
    let mut drops = |_: Waiting, _| {};
    for number in 0..waiting {
        let _ = sendbox.enqueue(begun, packet(number), &mut drops);
    }
    let mut now = begun;
    let mut rounds = Vec::new();
    let mut number = waiting;
    for _ in 0..ROUNDS {
        let start = this_thread_ns();
        for _ in 0..PACKETS {
            now += Duration::from_micros(1);
            let _ = sendbox.enqueue(now, packet(number), &mut drops);
            if leaves && let Some(packet) = sendbox.dequeue(now, &mut drops) {
                sendbox.on_sent(now, u64::from(number), std::hint::black_box(packet).bytes);
            }
            number += 1;
        }
        rounds.push((this_thread_ns() - start) as f64 / f64::from(PACKETS));
    }
    Ok(median(rounds))
}

/// Bytes of a bundle that nothing passed through yet: both boxes and the tunnel; `None` where
/// nobody counts.
fn bundle_bytes() -> Option<f64> {
    #[cfg(feature = "allocations")]
    {
        use ccplane_bundle::{PacketNumbering, Receivebox};
        use ccplane_gateway::{keys::PrivateKey, tunnel::HandshakeDemux};

        use super::sites::KEYS;

        let (mut sizes, mut kept) = (0, None);
        let door = HandshakeDemux::new(&PrivateKey::from_bytes(KEYS[0]), 7);
        let key = PrivateKey::from_bytes(KEYS[1]).public();
        let counted = allocation_counter::measure(|| {
            let sendbox = Sendbox::<Waiting>::new(Time::ZERO, &SendboxConfig::default()).ok();
            let (receivebox, tunnel) = (
                Receivebox::new(PacketNumbering::Counter),
                door.tunnel(0, key, None, true),
            );
            sizes = size_of_val(&sendbox) + size_of_val(&receivebox) + size_of_val(&tunnel);
            kept = Some((sendbox, receivebox, tunnel));
        });
        drop(kept);
        Some(counted.bytes_current as f64 + sizes as f64)
    }
    #[cfg(not(feature = "allocations"))]
    None
}

/// Measures.
pub fn run(figures: &mut Figures) -> Result<(), Error> {
    figures
        .add("sendbox_ns", ns_a_packet(WAITING, true)?, "ns/packet")
        .at_most(250.0)
        .beside("SFQ, 1,000 flows, a packet in and one out");
    figures
        .add(
            "sendbox_full_ns",
            ns_a_packet(2 * WAITING, false)?,
            "ns/packet",
        )
        .beside("the same when it is full: a packet in and the longest flow's last one dropped");
    match bundle_bytes() {
        Some(bytes) => {
            figures
                .add("bundle_bytes", bytes, "bytes")
                .at_most(131_072.0)
                .beside("sendbox, receivebox and tunnel before the first packet");
        }
        None => figures
            .note("built without the feature `allocations`: a bundle's bytes were not counted"),
    }
    Ok(())
}
