//! In the steady state a packet causes no allocation: sending, receiving, acknowledging, loss and
//! repair.

#[path = "support/exchange.rs"]
mod exchange;

use ccplane_transport::{Native, TransportConfig};
use ccplane_units::Duration;
use exchange::Exchange;

#[test]
fn a_packet_allocates_nothing() {
    for control in [Native::new_reno(), Native::cubic()] {
        for (ack_every, pacing, proves) in [(1, false, false), (2, false, true), (2, true, true)] {
            let config = TransportConfig {
                ack_every,
                pacing,
                pacing_quantum: Duration::from_millis(10),
                ..TransportConfig::default()
            };
            let mut exchange = Exchange::new(config, control.clone(), proves);
            let before = exchange.retransmitted();
            let mut packets = 0;
            let info = allocation_counter::measure(|| {
                for _ in 0..2_000 {
                    packets += exchange.send();
                    exchange.receive();
                    exchange.acknowledge();
                }
            });
            assert!(
                packets > 10_000 && exchange.retransmitted() > before,
                "{packets} packets"
            );
            assert_eq!(
                info.count_total, 0,
                "{packets} packets, {control:?}, {ack_every}, {pacing}"
            );
        }
    }
}
