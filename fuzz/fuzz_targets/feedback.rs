//! Both boxes of a bundle: packets in and out in any order; feedback intact, forged, or decoded
//! from input; silence; renumbering. Checks for panics, that the rate stays at or above its floor,
//! and that a rate is set exactly while the mode is not open.
#![no_main]

use ccplane_bundle::{
    BoxMessage, Feedback, PacketNumbering, Receivebox, Sendbox, SendboxConfig, SendboxMode,
};
use ccplane_datapath::Outcome;
use ccplane_qdisc::{Ecn, Packet};
use ccplane_units::{Duration, Time};
use libfuzzer_sys::fuzz_target;

#[derive(Clone, Copy)]
struct Full(u32);

impl Packet for Full {
    fn bytes(&self) -> u32 {
        self.0
    }
}

fuzz_target!(|input: &[u8]| {
    if let Ok(BoxMessage::Feedback(feedback)) = BoxMessage::decode(input) {
        assert_eq!(
            BoxMessage::decode(&feedback.encode()),
            Ok(BoxMessage::Feedback(feedback))
        );
    }
    let config = SendboxConfig {
        numbering: if input.len() % 2 == 0 {
            PacketNumbering::Counter
        } else {
            PacketNumbering::Hash
        },
        ..SendboxConfig::default()
    };
    let mut now = Time::ZERO + Duration::from_secs(1);
    let Ok(mut sendbox) = Sendbox::new(now, &config) else {
        return;
    };
    let mut receivebox = Receivebox::new(config.numbering);
    let (mut number, mut session, mut last) = (0_u64, 0_u32, None::<Feedback>);
    for step in input.chunks_exact(4) {
        let &[what, a, b, c] = step else { continue };
        let word = u64::from(u32::from_be_bytes([0, a, b, c]));
        match what % 10 {
            0 => (0..1 + a % 32).for_each(|_| {
                let _ = sendbox.enqueue(now, Full(64 + u32::from(b) * 6), &mut |_: Full, _| {});
            }),
            1 => {
                while let Some(packet) = sendbox.dequeue(now, &mut |_: Full, _| {}) {
                    sendbox.on_sent(now, number, packet.0);
                    // Some packets are lost, some carry a different number.
                    if number % 7 != u64::from(a % 8) {
                        receivebox.on_packet(
                            now,
                            number ^ u64::from(b & 1),
                            packet.0,
                            Ecn::from_bits(c),
                        );
                    }
                    number += 1;
                }
            }
            2 => now += Duration::from_micros(word),
            3 => last = receivebox.poll(now).or(last),
            4 => drop(last.map(|feedback| sendbox.on_feedback(now, &feedback))),
            5 => {
                let forged = last.map(|feedback| Feedback {
                    boundary: feedback.boundary ^ word,
                    bytes: feedback.bytes.wrapping_add(word),
                    packets: feedback.packets.wrapping_sub(u64::from(a)),
                    missing: feedback.missing + u64::from(b),
                    hold: Duration::from_nanos(word << (c % 32)),
                    ..feedback
                });
                let _ = forged.map(|feedback| sendbox.on_feedback(now, &feedback));
            }
            6 => {
                let _ = sendbox.tick(now);
                let outcome = Outcome {
                    rate: (a & 1 == 0).then_some(word << (c % 40)),
                    cwnd: (a & 2 == 0).then_some(word << (b % 40)),
                    fallback: a & 12 == 12,
                    ..Outcome::default()
                };
                sendbox.apply_outcome(now, &outcome);
            }
            7 => {
                session += 1;
                number = 0;
                sendbox.start_session(now, session);
                receivebox.start_session(session);
            }
            8 => {
                if let Some(notice) = sendbox.poll_notice(now) {
                    receivebox.on_notice(&notice);
                }
                sendbox.set_disabled_by_operator(now, a % 16 == 0);
                sendbox.set_pass_through(now, b % 2 == 0);
            }
            _ => sendbox.on_deadline(now),
        }
        let status = sendbox.status(now);
        assert!(status.rate.is_none_or(|rate| rate >= config.min_rate));
        assert_eq!(status.rate.is_none(), status.mode == SendboxMode::Open);
        while sendbox.next_mode_change().is_some() {}
    }
});
