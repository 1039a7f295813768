//! The rate of a line, measured with kernel timestamps.
#![expect(clippy::disallowed_methods, reason = "real packets take real time")]

use std::io::IoSliceMut;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration as StdDuration, Instant};

use crate::common::{may_run, rate, sockets};
use ccplane_emu::{EmuConfig, Emulator, LinkConfig, PathDirection, Timing};
use ccplane_units::Rate;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};

/// Payload of a full packet.
const PAYLOAD_BYTES: usize = 1_472;
const PACKET_BYTES: usize = PAYLOAD_BYTES + 28;

/// Receives a packet and returns its kernel timestamp, in seconds: a receiver that waits for a
/// processor does not move it.
fn arrival_secs(receiver: &UdpSocket) -> f64 {
    let mut data = [0; PACKET_BYTES];
    let mut space = nix::cmsg_space!(nix::sys::time::TimeSpec);
    let mut pieces = [IoSliceMut::new(&mut data)];
    let (fd, flags) = (receiver.as_raw_fd(), MsgFlags::empty());
    let message = recvmsg::<SockaddrStorage>(fd, &mut pieces, Some(&mut space), flags)
        .expect("nothing is dropped");
    let stamp = message
        .cmsgs()
        .expect("room for one")
        .find_map(|control| match control {
            ControlMessageOwned::ScmTimestampns(stamp) => Some(StdDuration::from(stamp)),
            _ => None,
        });
    stamp.expect("asked for").as_secs_f64()
}

/// Returns the ratio of the duration of `packets` packets to the expected one. The sender passes
/// `burst` of them at once to its kernel. All wait in the queue before the line gets its rate, so the
/// sender cannot be too slow. The duration is measured between an early and the last tenth, each
/// represented by its earliest packet relative to the line rate: a link that waits for a processor
/// sends late and catches up, at an unchanged rate.
fn duration_ratio(line: &str, packets: usize, burst: usize, timing: Timing) -> f64 {
    let config = EmuConfig {
        // 120 ms per packet.
        forward: LinkConfig {
            line: rate("100kbit"),
            ..LinkConfig::default()
        },
        timing,
        ..EmuConfig::default()
    };
    let emulator = Emulator::start(config).expect("the machine allows it");
    let (sender, receiver) = sockets(&emulator);
    setsockopt(&sender, sockopt::UdpGsoSegment, &(PAYLOAD_BYTES as i32)).expect("Linux 4.18");
    setsockopt(&receiver, sockopt::RcvBufForce, &(64 << 20)).expect("root may");
    setsockopt(&receiver, sockopt::ReceiveTimestampns, &true).expect("an option of every socket");
    for _ in 0..packets / burst {
        sender
            .send(&vec![7; burst * PAYLOAD_BYTES])
            .expect("the socket accepts the option");
    }
    let control = emulator.control();
    let begun = Instant::now();
    while control.stats(PathDirection::Forward).arrived < packets as u64 {
        assert!(
            begun.elapsed() < StdDuration::from_secs(10),
            "packets are missing"
        );
        thread::sleep(StdDuration::from_millis(1));
    }
    control
        .set_line(PathDirection::Forward, rate(line))
        .expect("a valid line");
    let bytes_per_sec = line.parse::<Rate>().expect("a rate").bytes_per_sec() as f64;
    let gap_secs = PACKET_BYTES as f64 / bytes_per_sec;
    let late_secs: Vec<f64> = (0..packets)
        .map(|n| arrival_secs(&receiver) - n as f64 * gap_secs)
        .collect();
    // The first tenth contains the packets that left before the change.
    let (tenth, nine_tenths) = (packets / 10, packets - packets / 10);
    let earliest = |part: &[f64]| part.iter().copied().fold(f64::INFINITY, f64::min);
    let drift_secs = earliest(&late_secs[nine_tenths..]) - earliest(&late_secs[tenth..2 * tenth]);
    1.0 + drift_secs / ((nine_tenths - tenth) as f64 * gap_secs)
}

#[test]
fn the_rate_is_accurate() {
    if !may_run("rate") {
        return;
    }
    // 0.2 s worth.
    let ratio = duration_ratio("12mbit", 200, 1, Timing::Balanced);
    assert!((ratio - 1.0).abs() < 0.02, "{ratio}");
}

#[test]
fn super_packets_leave_at_the_line_s_rate() {
    if !may_run("gso-rate") {
        return;
    }
    // 0.1 s worth each.
    for timing in [Timing::Balanced, Timing::Precise] {
        for (line, packets) in [("96mbit", 800), ("960mbit", 8_000)] {
            let ratio = duration_ratio(line, packets, 40, timing);
            assert!((ratio - 1.0).abs() < 0.02, "{line}, {timing:?}: {ratio}");
        }
    }
}
