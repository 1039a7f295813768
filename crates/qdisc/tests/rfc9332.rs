//! DualPI2 against a literal transcription of the pseudo-code in RFC 9332, appendix A.

use std::collections::VecDeque;

use crate::common::{Full, Op, ops};
use ccplane_qdisc::{DualPi2, DualPi2Config, Ecn, Limit, Qdisc};
use ccplane_units::{Duration, Time};
use proptest::prelude::*;

/// Likelihoods are in 32-bit fixed point, times in ns.
const PROBABILITY_ONE: i128 = 1 << 32;
const MTU: i64 = 1_500;

#[derive(Default)]
struct Queue {
    packets: VecDeque<(u64, Full)>,
    count: i128,
}

impl Queue {
    fn time(&self, now: u64) -> i128 {
        self.packets
            .front()
            .map_or(0, |(tstamp, _)| i128::from(now - tstamp))
    }

    fn recur(&mut self, likelihood: i128) -> bool {
        self.count += likelihood.min(PROBABILITY_ONE);
        if self.count > PROBABILITY_ONE {
            self.count -= PROBABILITY_ONE;
            return true;
        }
        false
    }
}

struct Literal {
    config: DualPi2Config,
    lq: Queue,
    cq: Queue,
    p: i128,
    prevq: i128,
    next_update: Option<u64>,
    credit: i64,
    dropped: Vec<u32>,
}

impl Literal {
    fn new(config: DualPi2Config) -> Literal {
        Literal {
            config,
            lq: Queue::default(),
            cq: Queue::default(),
            p: 0,
            prevq: 0,
            next_update: None,
            credit: Literal::first_credit(config),
            dropped: Vec::new(),
        }
    }

    /// Linux' `dualpi2_calculate_c_protection`: (wc - wl) MTU.
    fn first_credit(config: DualPi2Config) -> i64 {
        let wc = config.classic_protection as i64;
        (wc - (100 - wc)) * MTU
    }

    /// Fires every Tupdate, starting with the first packet.
    fn timer(&mut self, now: u64) {
        let mut next = *self
            .next_update
            .get_or_insert(now + self.config.tupdate.as_nanos());
        while next <= now {
            let curq = self.cq.time(next).max(self.lq.time(next));
            let target = i128::from(self.config.target.as_nanos());
            // Gains are in mHz.
            let change = i128::from(self.config.alpha) * (curq - target)
                + i128::from(self.config.beta) * (curq - self.prevq);
            self.p =
                (self.p + change * PROBABILITY_ONE / 1_000_000_000_000).clamp(0, PROBABILITY_ONE);
            self.prevq = curq;
            next += self.config.tupdate.as_nanos();
        }
        self.next_update = Some(next);
    }

    fn enqueue(&mut self, now: u64, packet: Full) {
        self.timer(now);
        if packet.ecn as u8 % 2 == 1 {
            self.lq.packets.push_back((now, packet));
        } else {
            self.cq.packets.push_back((now, packet));
        }
    }

    fn laqm(&self, qdelay: i128) -> i128 {
        let min_th = i128::from(self.config.step_thresh.as_nanos());
        let range = i128::from(self.config.range.as_nanos());
        // "Zeroed if the queue is only 1 packet": the packet being dequeued.
        if self.lq.packets.is_empty() {
            0
        } else if qdelay >= min_th + range {
            PROBABILITY_ONE
        } else if qdelay > min_th {
            (qdelay - min_th) * PROBABILITY_ONE / range
        } else {
            0
        }
    }

    fn dequeue(&mut self, now: u64) -> Option<Full> {
        self.timer(now);
        while !self.lq.packets.is_empty() || !self.cq.packets.is_empty() {
            let k = i128::from(self.config.coupling_factor);
            let (p_cl, p_c, p_cmax, p_lmax) = (
                k * self.p,
                self.p * self.p / PROBABILITY_ONE,
                PROBABILITY_ONE / (k * k),
                PROBABILITY_ONE,
            );
            let wc = self.config.classic_protection as i64;
            if !self.lq.packets.is_empty() && (self.cq.packets.is_empty() || self.credit <= 0) {
                let (tstamp, mut packet) = self.lq.packets.pop_front()?;
                if !self.cq.packets.is_empty() {
                    self.credit += wc * i64::from(packet.bytes);
                }
                if p_cl < p_lmax {
                    let p_l = self.laqm(i128::from(now - tstamp)).max(p_cl);
                    if self.lq.recur(p_l) {
                        packet.ecn = Ecn::Ce;
                    }
                } else {
                    if self.lq.recur(p_c) {
                        self.dropped.push(packet.id);
                        continue;
                    }
                    if self.lq.recur(p_cl) {
                        packet.ecn = Ecn::Ce;
                    }
                }
                return Some(packet);
            }
            let (_, mut packet) = self.cq.packets.pop_front()?;
            if !self.lq.packets.is_empty() {
                self.credit -= (100 - wc) * i64::from(packet.bytes);
            }
            if self.cq.recur(p_c) {
                if packet.ecn == Ecn::NotEct || p_c >= p_cmax {
                    self.dropped.push(packet.id);
                    continue;
                }
                packet.ecn = Ecn::Ce;
            }
            return Some(packet);
        }
        self.credit = Literal::first_credit(self.config);
        None
    }
}

proptest! {
    #[test]
    fn it_does_what_the_pseudo_code_does(
        ops in ops(1_200),
        target in 100_000_u64..5_000_000,
        range in prop_oneof![Just(0), 1_u64..3_000_000],
        classic_protection in 0_u64..100,
    ) {
        let config = DualPi2Config {
            target: Duration::from_nanos(target),
            tupdate: Duration::from_millis(1),
            alpha: 2_000,
            beta: 30_000,
            range: Duration::from_nanos(range),
            classic_protection,
            ..DualPi2Config::DEFAULT
        };
        let mut queue = DualPi2::new(config, Limit::Unlimited, MTU as u32);
        let mut literal = Literal::new(config);
        let (mut now, mut dropped) = (1_000_000_000, Vec::new());
        for op in ops {
            match op {
                Op::Arrive(gap, packet) => {
                    now += gap;
                    queue.enqueue(Time::from_nanos(now), packet, &mut |_, _| {});
                    literal.enqueue(now, packet);
                }
                Op::Ask(gap) => {
                    now += gap;
                    let got = queue.dequeue(Time::from_nanos(now), &mut |packet: Full, _| {
                        dropped.push(packet.id)
                    });
                    prop_assert_eq!(got, literal.dequeue(now));
                    prop_assert_eq!(&dropped, &literal.dropped);
                }
            }
            // p_C = (p_CL / k)².
            let p_cl = queue.coupled_probability() as f64 / PROBABILITY_ONE as f64;
            let p_c = queue.classic_probability() as f64 / PROBABILITY_ONE as f64;
            prop_assert!((p_c - p_cl * p_cl / 4.0).abs() < 1e-9);
        }
    }
}

#[test]
fn the_defaults_are_those_of_100_ms() {
    let config = DualPi2Config::DEFAULT;
    let (tupdate, rtt_max) = (config.tupdate.as_secs_f64(), 0.1_f64);
    assert_eq!(config.target, Duration::from_millis(15));
    assert!((config.alpha as f64 / 1e3 - 0.1 * tupdate / (rtt_max * rtt_max)).abs() < 1e-9);
    // Linux rounds 0.3 / RTT_max = 3 up to 3.2.
    assert!((config.beta as f64 / 1e3 - 0.3 / rtt_max).abs() < 0.21);
}

#[test]
fn both_queues_get_their_shares() {
    // Both queues are always backlogged; without signals they get nine tenths and one tenth.
    let mut queue = DualPi2::new(DualPi2Config::DEFAULT, Limit::Unlimited, 1_500);
    let mut sent = [0_u32; 2];
    for id in 0..20_000 {
        for ecn in [Ecn::Ect1, Ecn::NotEct] {
            queue.enqueue(
                Time::ZERO,
                Full {
                    ecn,
                    ..Full::new(id, 1_000)
                },
                &mut |_, _| {},
            );
        }
        let packet = queue
            .dequeue(Time::ZERO, &mut |_, _| {})
            .expect("both classes have packets");
        sent[usize::from(packet.ecn == Ecn::NotEct)] += 1;
    }
    let share = f64::from(sent[1]) / 20_000.0;
    assert!((share - 0.1).abs() < 0.01, "{share}");
}
