//! Conservation of packets, per link, per node and in total.

use crate::SimError;
use crate::world::World;

impl World {
    /// Checks that every packet is accounted for. [`run_until`](crate::Simulation::run_until) calls
    /// it after every run.
    ///
    /// Packets that arrive at a link are queued or dropped. Packets that arrive at a switch are
    /// forwarded or have no route. Hosts receive the packets delivered to them. In total, the
    /// packets sent are received, dropped or in flight.
    pub fn check(&self) -> Result<(), SimError> {
        let wrong = |place: String, why: String| {
            Err(SimError::NotConserved {
                seed: self.options.seed,
                place,
                why,
            })
        };
        let nodes = self.network.nodes().len();
        // Per node: packets delivered to it by links, and packets that it offered to links.
        let mut came = vec![0_u64; nodes];
        let mut went = vec![0_u64; nodes];
        let (mut inside, mut dropped) = (0, 0);
        for link in self.network.links() {
            let (from, to) = self.ends_of(link.0);
            let view = self.links.view(self.now, link.0);
            if view.accepted < view.occupancy || view.backlog.packets > view.occupancy {
                return wrong(
                    format!("the link {}", self.network.link_name(link)),
                    format!(
                        "{} accepted, {} inside, {} waiting",
                        view.accepted, view.occupancy, view.backlog.packets
                    ),
                );
            }
            came[to.index()] += view.delivered;
            went[from.index()] += view.arrived;
            inside += view.occupancy;
            dropped += view.queue_drops + view.losses;
        }
        // At switches with boxes, messages begin and end, and packets are queued and dropped.
        let bundles = &self.bundles;
        let (mut taken, mut sent, mut lost) = (0, 0, 0);
        for node in self.network.nodes() {
            let (came, went) = (came[node.index()], went[node.index()]);
            if self.network.is_host(node) {
                taken += came;
                sent += went;
            } else {
                if came < went && !bundles.has_box_at(node.0) {
                    return wrong(
                        format!("the switch {}", self.network.name(node)),
                        format!("{came} arrived, {went} departed"),
                    );
                }
                lost += came as i64 - went as i64;
            }
        }
        let counters = &self.counters;
        let all = self.packets.created;
        let held = bundles.queued_packets();
        let lost = lost + bundles.messages_created as i64
            - (bundles.messages_consumed + bundles.dropped + held) as i64;
        let unroutable = counters.unroutable;
        let totals = [
            ("packets received by hosts", counters.received, taken),
            (
                "packets sent by hosts or unroutable",
                all,
                (sent + bundles.messages_created)
                    .wrapping_add(unroutable.wrapping_sub(lost as u64)),
            ),
            (
                "packets dropped",
                counters.dropped,
                dropped + bundles.dropped,
            ),
            (
                "packets in flight",
                self.packets.len() as u64,
                inside + held,
            ),
            (
                "packets in total",
                all,
                counters.received
                    + counters.dropped
                    + unroutable
                    + inside
                    + held
                    + bundles.messages_consumed,
            ),
        ];
        for (what, one, other) in totals {
            if one != other {
                return wrong(
                    "the network".into(),
                    format!("{what}: counted as {one} and as {other}"),
                );
            }
        }
        Ok(())
    }
}
