//! Complete transfers over a wire with fixed behaviour.

use crate::wire::{Bottleneck, Delay, Pair, ms, secs};
use ccplane_transport::{Native, TransportConfig};
use ccplane_units::Time;

#[test]
fn a_transfer_takes_a_round_trip_for_the_handshake_and_one_for_each_window() {
    let config = TransportConfig {
        ack_every: 1,
        ..TransportConfig::default()
    };
    let bytes = 1448 * 70;
    let mut pair = Pair::new(
        &config,
        [Native::new_reno(), Native::new_reno()],
        Delay(ms(10)),
        [bytes, 0],
    );
    while pair.received(1) < bytes {
        assert!(pair.step(secs(1)));
    }
    // 20 ms handshake, then 10, 20 and 40 segments: the last arrive after 2.5 RTTs.
    assert_eq!(pair.now, Time::from_micros(70_000));
    pair.run(secs(100));
    assert!(pair.is_over());
    let stats = pair.connection(0).stats();
    assert_eq!(
        (stats.acked, stats.retransmitted, stats.timeouts),
        (bytes, 0, 0)
    );
    assert_eq!(stats.srtt, ms(20));
}

#[test]
fn a_bottleneck_is_filled() {
    for native in [
        Native::new_reno(),
        Native::cubic(),
        Native::cubic_without_hystart(),
    ] {
        let path = Bottleneck::new(12_000_000, ms(10), 240_000);
        let bytes = 110_000_000;
        let mut pair = Pair::new(
            &TransportConfig::default(),
            [native.clone(), native.clone()],
            path,
            [bytes, 0],
        );
        while pair.received(1) < bytes {
            assert!(pair.step(secs(60)), "{:?}", pair.connection(0));
        }
        let best = bytes * 1500 / 1448 * 1000 / 12_000_000;
        let took = pair.now.since(Time::ZERO).as_millis();
        println!(
            "{native:?}: {took} ms, best {best}; {:?} {}",
            pair.connection(0).stats(),
            pair.path.dropped
        );
        assert!(
            took < best * 102 / 100,
            "{native:?}: {took} ms instead of {best}"
        );
        assert_eq!(pair.connection(0).stats().timeouts, 0);
        pair.run(secs(100));
        assert!(pair.is_over());
    }
}

#[test]
fn both_ways_at_once() {
    let (there, back) = (3_000_000, 2_000_000);
    let mut pair = Pair::new(
        &TransportConfig::default(),
        [Native::cubic(), Native::cubic()],
        Delay(ms(10)),
        [there, back],
    );
    pair.run(secs(100));
    assert!(pair.is_over());
    assert_eq!([pair.ends[0].read, pair.ends[1].read], [back, there]);
}
