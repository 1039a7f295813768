//! Window per round of each native congestion control: a change of behaviour changes these lines.

use std::fmt::Write;

use crate::wire::{Bottleneck, Pair, ms};
use ccplane_transport::{Ecn, Native, TransportConfig};
use ccplane_units::Time;

/// Window and state every 100 ms (two to five round trips) on a link of 24 Mbit/s and 20 ms with a
/// queue of 40 packets.
fn rounds(native: Native, ecn: Ecn) -> String {
    let config = TransportConfig {
        ecn,
        ..TransportConfig::default()
    };
    let mut path = Bottleneck::new(3_000_000, ms(10), 60_000);
    if ecn != Ecn::NotEct {
        path.mark_from = 15_000;
    }
    let mut pair = Pair::new(&config, [native, Native::new_reno()], path, [1 << 40, 0]);
    let mut text = String::new();
    for tick in 1..=100u64 {
        pair.run(Time::from_micros(tick * 100_000));
        let connection = pair.connection(0);
        let end = if tick % 10 == 0 { "\n" } else { " " };
        write!(
            text,
            "{}{}{end}",
            connection.window(),
            &format!("{:?}", connection.phase())[..1]
        )
        .expect("text");
    }
    let stats = pair.connection(0).stats();
    writeln!(
        text,
        "acked {} lost {} timeouts {} marked {}",
        stats.acked / 1448,
        stats.lost,
        stats.timeouts,
        stats.marked
    )
    .expect("text");
    text
}

#[test]
fn new_reno() {
    insta::assert_snapshot!(rounds(Native::new_reno(), Ecn::NotEct));
}

#[test]
fn cubic() {
    insta::assert_snapshot!(rounds(Native::cubic_without_hystart(), Ecn::NotEct));
}

#[test]
fn cubic_with_hystart() {
    insta::assert_snapshot!(rounds(Native::cubic(), Ecn::NotEct));
}

#[test]
fn dctcp() {
    insta::assert_snapshot!(rounds(Native::dctcp(), Ecn::Ect0));
}
