//! In the steady state a packet causes no allocation: sending, receiving, acknowledging, loss and
//! repair. A connection reports the memory that the allocator has given it.

#[path = "support/exchange.rs"]
mod exchange;
mod wire;

use ccplane_transport::{Native, Rc3, Segment, TransportConfig};
use ccplane_units::{Duration, Time};
use exchange::Exchange;
use wire::{Pair, ms};

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

/// Loses every seventh packet of class 0 and every third of the others; delays the others longer.
fn lossy() -> impl FnMut(Time, usize, &mut Segment, &mut Vec<Time>) {
    let mut count = 0;
    move |now, _, segment, arrivals| {
        count += 1;
        let (period, delay) = if segment.class == 0 { (7, 10) } else { (3, 15) };
        if count % period != 0 {
            arrivals.push(now + ms(delay));
        }
    }
}

#[test]
fn a_connection_reports_the_memory_that_it_frees() {
    let plain = TransportConfig {
        receive_buffer: 1 << 20,
        ..TransportConfig::default()
    };
    let all = TransportConfig {
        pacing: true,
        stamps: true,
        rc3: Some(Rc3 {
            verify: false,
            ..Rc3::default()
        }),
        ..plain.clone()
    };
    let rc3 = TransportConfig {
        rc3: all.rc3,
        ..plain.clone()
    };
    let mut sizes = Vec::new();
    for (config, proves) in [
        (plain.clone(), false),
        (plain, true),
        (rc3, false),
        (all, false),
    ] {
        for end in [0, 1] {
            for moment in [25, 45, 70, 120, 200, 400, 60_000] {
                let controls = [Native::new_reno(), Native::new_reno()];
                let mut pair = Pair::new(&config, controls, lossy(), [3_000_000, 0]);
                pair.ends.iter_mut().for_each(|end| end.finishes = false);
                if proves {
                    pair.require_proof();
                }
                pair.run(Time::ZERO + ms(moment));
                let connection = pair.ends[end].connection.take();
                let reported = connection.as_ref().map(|connection| {
                    assert_eq!(connection.failure(), None);
                    connection.memory_bytes() - size_of_val(connection)
                });
                let freed = -allocation_counter::measure(|| drop(connection)).bytes_current;
                assert_eq!(
                    reported.map(|bytes| bytes as i64),
                    Some(freed),
                    "end {end} after {moment} ms, {config:?}"
                );
                sizes.push(freed);
            }
        }
    }
    sizes.sort_unstable();
    assert!(
        sizes[0] == 0 && sizes[sizes.len() - 1] > 10_000,
        "{sizes:?}"
    );
}
