//! Cost of sending, receiving and acknowledging a packet: `cargo run --release -p ccplane-transport
//! --example ns_per_packet`. The optional argument is the number of rounds, for callgrind: the
//! difference of two runs excludes the cost of the set-up.

#[path = "../tests/support/exchange.rs"]
mod exchange;

use ccplane_transport::{Native, TransportConfig};
use exchange::Exchange;

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
fn main() {
    let rounds: u32 = std::env::args()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(20_000);
    for (name, ack_every, proves) in [
        ("an ACK for every packet", 1, false),
        ("an ACK for every other", 2, false),
        ("an ACK for every other, receipt proved", 2, true),
    ] {
        let config = TransportConfig {
            ack_every,
            quick_acks: 0,
            ..TransportConfig::default()
        };
        let mut exchange = Exchange::new(config, Native::cubic(), proves);
        let mut spent = [std::time::Duration::ZERO; 3];
        let mut packets = 0;
        for _ in 0..rounds {
            let begin = std::time::Instant::now();
            packets += exchange.send();
            let sent = std::time::Instant::now();
            exchange.receive();
            let received = std::time::Instant::now();
            exchange.acknowledge();
            let end = std::time::Instant::now();
            spent[0] += sent - begin;
            spent[1] += received - sent;
            spent[2] += end - received;
        }
        let per = |spent: std::time::Duration| spent.as_nanos() as f64 / packets as f64;
        let [send, receive, acknowledge] = spent.map(per);
        println!(
            "{name}: {packets} packets; send {send:.1} ns, receive {receive:.1} ns, \
             acknowledge {acknowledge:.1} ns, in all {:.1} ns per packet; {} retransmitted",
            send + receive + acknowledge,
            exchange.retransmitted()
        );
    }
}
