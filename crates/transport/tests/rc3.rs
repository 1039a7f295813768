//! Corner cases of RC3, the second control loop, by number:
//!
//! | cases | where |
//! | --- | --- |
//! | 1 to 4, 12, 13, 20 | `levels.rs`: segments sent, and their classes |
//! | 5 to 11, 14 to 16, 17 in a small window | `meeting.rs`: both loops, losses, and independence of class 0 |
//! | 15 as a property | `windows.rs`: random losses, marks and delays |
//! | 21 to 26 | `life.rs`: both directions, end of a connection, memory, waste |
//! | 17 to 19, and 22 once more | `crates/sim/tests/rc3.rs`: queues, several flows |
//! | hostile peers | `hostile.rs` |
//!
//! Case 20 has a second half for packets sent in batches, on UDP sockets (`src/udp`).

mod hostile;
mod levels;
mod life;
mod meeting;
mod windows;
use std::sync::Arc;

use crate::wire::{Pair, Path, ms, secs};
use ccplane_datapath::Outcome;
use ccplane_transport::{
    CongestionControl, Connection, ControlEvent, Native, Rc3, Segment, SegmentKind, SideData,
    TransportConfig,
};
use ccplane_units::{Duration, Time};

const MSS_BYTES: u64 = 1000;
/// Segments of the initial window.
const INITIAL_WINDOW_SEGMENTS: u64 = 10;

/// Acknowledges every packet, as in the paper.
fn plain() -> TransportConfig {
    TransportConfig {
        mss: MSS_BYTES as u16,
        ack_every: 1,
        ..TransportConfig::default()
    }
}

fn rc3() -> TransportConfig {
    TransportConfig {
        rc3: Some(Rc3::default()),
        ..plain()
    }
}

fn reno() -> [Native; 2] {
    [Native::new_reno(), Native::new_reno()]
}

fn cubic() -> [Native; 2] {
    [Native::cubic(), Native::cubic()]
}

/// Leaves the window unchanged.
struct IdleControl;

impl CongestionControl for IdleControl {
    fn on_event(&mut self, _event: &ControlEvent<'_>) -> Outcome {
        Outcome::default()
    }
}

/// Delays class 0 by 10 ms and other classes by `low`; `lose` selects lost packets by sending end.
fn class_delays(
    low: Duration,
    mut lose: impl FnMut(usize, &Segment) -> bool,
) -> impl FnMut(Time, usize, &mut Segment, &mut Vec<Time>) {
    move |now, from, segment, arrivals| {
        if !lose(from, segment) {
            arrivals.push(now + if segment.class == 0 { ms(10) } else { low });
        }
    }
}

fn no_loss(_: usize, _: &Segment) -> bool {
    false
}

/// Returns a client that may send `bytes`, its server, and the time.
fn open(config: TransportConfig, bytes: u64) -> (Connection, Connection, Time) {
    let config = Arc::new(config);
    let mut side = SideData::default();
    let mut client = Connection::connect(&config, Time::ZERO);
    let request = client
        .transmit(Time::ZERO, 0, &mut side)
        .expect("a request");
    let mut server = Connection::accept(&config, Time::ZERO, &request).expect("a connection");
    let answer = server
        .transmit(Time::ZERO, 0, &mut side)
        .expect("an answer");
    let now = Time::ZERO + ms(20);
    client.handle(now, &answer, &side, &mut Native::new_reno());
    client.write(bytes);
    (client, server, now)
}

/// Sends everything that may be sent now.
fn send_all(connection: &mut Connection, now: Time) -> Vec<Segment> {
    let mut sent = Vec::new();
    while connection.classes(now) != 0 {
        let class = connection.classes(now).trailing_zeros() as u8;
        assert!(connection.has_segment(now, class));
        sent.extend(connection.transmit(now, class, &mut SideData::default()));
    }
    sent
}

/// Runs a pair with a log until everything written is received and acknowledged.
fn run<P: Path>(config: &TransportConfig, control: [Native; 2], path: P, bytes: u64) -> Pair<P> {
    let mut pair = Pair::new(config, control, path, [bytes, 0]);
    pair.log = Some(Vec::new());
    while !pair.all_acked() {
        assert!(
            pair.step(secs(1_000)),
            "the transfer does not end: {:?}",
            pair.connection(0)
        );
    }
    assert_eq!(pair.received(1), bytes);
    pair
}

/// Data sent by the first end, in order.
fn sent<P>(pair: &Pair<P>) -> Vec<(Time, Segment)> {
    let log = pair.log.iter().flatten();
    log.filter(|(_, from, segment)| *from == 0 && segment.kind == SegmentKind::Data)
        .map(|(at, _, segment)| (*at, *segment))
        .collect()
}

/// Number of data segments sent in this class.
fn count<P>(pair: &Pair<P>, class: u8) -> u64 {
    sent(pair)
        .iter()
        .filter(|(_, segment)| segment.class == class)
        .count() as u64
}
