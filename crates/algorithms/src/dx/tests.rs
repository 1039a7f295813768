use ccplane_agent::rng::SplitMix64;
use ccplane_datapath::{ExchangeStamps, INFINITY, OneWay, Signals, Transport};
use ccplane_units::Time;
use ccplane_units::stats::upper_rank;

use super::noise::{Noise, NoiseReport};
use super::*;
use crate::Registry;
use crate::script::{MSS, Script, everything};

/// The page lists every parameter with its default and its values.
#[test]
fn the_page_has_every_parameter() {
    let page = include_str!("../../../../docs/algorithms/dx.md");
    for parameter in DOC.parameters {
        let row = format!("| `{}` | `{}` | ", parameter.name, parameter.default);
        let row = page.lines().find(|line| line.starts_with(&row));
        let row = row.unwrap_or_else(|| panic!("no row of `{}`", parameter.name));
        let words = parameter
            .values
            .split(" | ")
            .filter(|word| !word.contains(' '));
        for word in words {
            assert!(row.contains(&format!("`{word}`")), "{word} in {row}");
        }
    }
}

/// Base RTT, µs, and BDP in packets: a packet takes 100/60 µs.
const RTT_US: u64 = 100;
const BDP_PACKETS: u64 = 60;

/// Signals of an ACK for a time-stamped packet with this queueing delay, ns.
fn waited(s: &mut Signals, queue: u64) {
    (s.owd_ns, s.min_owd_ns) = (RTT_US * 500 + queue, RTT_US * 500);
    (s.rtt_ns, s.min_rtt_ns) = (RTT_US * 1_000 + queue, RTT_US * 1_000);
    (s.queue_delay_ns, s.queue_delay_valid) = (queue, 1);
    by_rtt(s, queue);
}

/// Signals of an ACK for a packet without time stamps.
fn by_rtt(s: &mut Signals, queue: u64) {
    (s.rtt_sample_us, s.srtt_us, s.min_rtt_us) = (RTT_US + queue / 1_000, RTT_US, RTT_US);
    let rate = BDP_PACKETS * MSS * 1_000_000 / RTT_US;
    (s.rate_incoming, s.rate_outgoing) = (rate, rate);
}

/// Returns a flow with this window that has left slow start.
fn avoiding(parameters: &str, packets: u64) -> Script {
    let mut script = Script::new("dx", parameters);
    script.usual.bytes_in_flight = packets * MSS;
    (script.transport.cwnd, script.transport.ssthresh) = (packets * MSS, packets * MSS);
    script
}

/// Delivers one ACK of a packet with this queueing delay, ns. Returns the window in packets.
fn ack(script: &mut Script, queue: u64) -> u64 {
    let in_flight = script.transport.cwnd;
    script.ack(
        Duration::from_micros(RTT_US) / script.window().max(1),
        |s| {
            waited(s, queue);
            s.bytes_in_flight = in_flight;
        },
    );
    script.window()
}

/// Delivers ACKs until the window changes. Returns their number and the new window.
fn moved(script: &mut Script, queue: u64) -> (u64, u64) {
    let before = script.window();
    (1..10_000)
        .map(|n| (n, ack(script, queue)))
        .find(|(_, after)| *after != before)
        .unwrap_or_default()
}

/// A busy host answers late and then sends a burst, whose packets queue behind each other. A queue
/// as long as the host's own delay is treated as none; a longer one is not.
#[test]
fn host_delays_count_as_headroom() {
    for (kept, waited_for, grows) in [(0, 30_000, false), (40, 30_000, true), (40, 90_000, false)] {
        let mut script = avoiding("", 40);
        for _ in 0..200 {
            let in_flight = script.transport.cwnd;
            script.ack(
                Duration::from_micros(RTT_US) / script.window().max(1),
                |s| {
                    waited(s, waited_for);
                    s.rtt_sample_us += kept;
                    s.bytes_in_flight = in_flight;
                },
            );
        }
        assert_eq!(
            script.window() > 40,
            grows,
            "{waited_for} ns, of which hosts kept {kept} us"
        );
    }
}

/// Slide 24: three senders with 20 packets each fill a path of 60, and one more from each makes a
/// queue of three. W·Q/V is one packet.
#[test]
fn three_senders_with_21_packets_return_to_20() {
    let mut script = avoiding("headroom=0us", 21);
    // 3 packet times are 5 µs. The decision follows after the data in flight plus one window.
    assert_eq!(moved(&mut script, 5_000), (22, 20));
    assert_eq!(script.faults(), 0);
}

#[test]
fn the_window_grows_by_a_packet_per_decision_below_the_headroom() {
    for (queue, headroom) in [
        (0, "headroom=auto"),
        (1_600, "rate=4.8gbit"),
        (4_900, "headroom=5us"),
        (8_300, "rate=4.8gbit,headroom=5p"),
    ] {
        let mut script = avoiding(headroom, 40);
        moved(&mut script, queue);
        for _ in 0..5 {
            let before = script.window();
            // The data in flight at the decision, and then the window sent after it.
            let (acks, after) = moved(&mut script, queue);
            assert_eq!(after, before + 1, "{queue} ns under {headroom}");
            assert!(
                acks.abs_diff(2 * before) <= 2,
                "{acks} ACKs at {before} packets"
            );
        }
    }
}

#[test]
fn the_samples_parameter_sets_the_time_of_decisions() {
    for (samples, acks) in [("after", 80), ("window", 40), ("freshest", 41)] {
        let mut script = avoiding(&format!("samples={samples}"), 40);
        moved(&mut script, 0);
        moved(&mut script, 0);
        let before = script.window();
        let (seen, after) = moved(&mut script, 0);
        assert_eq!(after, before + 1);
        let expected = acks * before / 40;
        assert!(
            seen.abs_diff(expected) <= 2,
            "{samples}: {seen} ACKs instead of {expected}"
        );
    }
}

/// The queue of the last decision still affects the data in flight and does not count again.
#[test]
fn packets_in_flight_at_a_decision_cause_no_second_decrease() {
    let mut script = avoiding("", 40);
    let (_, once) = moved(&mut script, 10_000);
    for _ in 0..once - 2 {
        assert_eq!(ack(&mut script, 10_000), once, "packets of before");
    }
    let (_, after) = moved(&mut script, 0);
    assert_eq!(after, once + 1, "those sent since did not wait");
}

/// W(1 − Q/V) = W − (W − 1)·Q/R, down to one packet, where Q/V stays below 1. The headroom
/// determines whether to decrease, not by how much.
#[test]
fn decreases_follow_the_papers_formula() {
    for (headroom, window, queue, expected) in [
        ("headroom=0us", 40, 10_000, 36),
        ("headroom=0us", 100, 50_000, 51),
        ("headroom=0us", 40, 100_000, 1),
        ("headroom=0us", 40, 900_000, 1),
        ("headroom=5us", 40, 10_000, 36),
        ("", 40, 10_000, 36),
    ] {
        let mut script = avoiding(headroom, window);
        assert_eq!(
            moved(&mut script, queue).1,
            expected,
            "{window} packets, {queue} ns, {headroom}"
        );
    }
}

/// Slide 22: one packet per RTT while there is no queue, also from a window of one packet.
#[test]
fn the_papers_rules_add_a_packet_per_rtt() {
    for window in [1, 2, 3, 40] {
        let mut script = avoiding("rules=paper", window);
        moved(&mut script, 0);
        for expected in window + 2..window + 7 {
            let before = script.window();
            let (acks, after) = moved(&mut script, 0);
            // A round trip: the data in flight at the decision, and the first packet sent after it.
            assert!(
                acks.abs_diff(before) <= 1 && after == expected,
                "{acks} ACKs to {after} packets, from {window}"
            );
        }
        assert_eq!((script.transport.rate, script.faults()), (0, 0));
    }
}

/// Slide 22: any queue is one, also one of a fraction of a packet. The window loses W·Q/V once per
/// RTT, with V = R·W/(W − 1), and keeps one packet.
#[test]
fn the_papers_rules_decrease_by_the_queue_over_v_per_rtt() {
    for (window, queue) in [
        (40, 100),
        (40, 10_000),
        (100, 50_000),
        (21, 5_000),
        (2, 50_000),
        (40, 100_000),
        (40, 900_000),
    ] {
        let mut script = avoiding("rules=paper", window);
        // The first decision takes the window of the datapath as W.
        let (acks, after) = moved(&mut script, queue);
        let (w, q, r) = (window as f64, queue as f64, RTT_US as f64 * 1e3);
        let v = r * w / (w - 1.0);
        let expected = (w * (1.0 - q / v)).max(1.0);
        assert_eq!(
            (acks, after),
            (window + 2, (expected + 1e-9) as u64),
            "{window} packets, {queue} ns: {expected}"
        );
        assert_eq!(script.faults(), 0);
    }
    let mut script = avoiding("rules=paper", 1);
    for _ in 0..50 {
        assert_eq!(ack(&mut script, 90_000), 1);
    }
}

/// Decreases by a quarter of a packet add up. The window that is sent is rounded down.
#[test]
fn the_papers_rules_keep_fractions_of_a_packet() {
    let mut script = avoiding("rules=paper", 40);
    // (W − 1)·Q/R = 0.25 packets.
    let mut acks = 0;
    while script.window() > 38 {
        ack(&mut script, 641);
        acks += 1;
    }
    assert!((5 * 39..=6 * 41).contains(&acks), "{acks} ACKs");
}

/// TCP's slow start, without pacing, until a packet has waited. It then continues with W(1 − Q/V).
#[test]
fn the_papers_rules_leave_slow_start_at_the_first_queue() {
    let mut script = Script::new("dx", "rules=paper");
    for n in 1..=100 {
        assert_eq!(ack(&mut script, 0), 10 + n, "a packet per ACK");
    }
    let (_, after) = (0..200)
        .map(|_| (script.window(), ack(&mut script, 20_000)))
        .find(|(before, after)| after < before)
        .expect("the first decision that sees the queue");
    let left = script.window();
    assert_eq!(after, left);
    assert_eq!(script.transport.ssthresh, script.transport.cwnd);
    assert_eq!(script.transport.rate, 0);
    for _ in 0..left - 2 {
        assert_eq!(ack(&mut script, 0), left, "congestion avoidance");
    }
}

#[test]
fn parameters_override_the_papers_rules() {
    for (parameters, queue, grows) in [
        ("rules=paper", 4_900, false),
        ("rules=paper,headroom=5us", 4_900, true),
        ("rules=paper,headroom=5us", 5_100, false),
        ("rules=paper,headroom=5p,rate=4.8gbit", 8_300, true),
        ("rules=paper,headroom=auto,rate=4.8gbit", 6_000, true),
        ("rules=paper,headroom=auto,rate=4.8gbit", 8_000, false),
    ] {
        let mut script = avoiding(parameters, 40);
        let (_, after) = moved(&mut script, queue);
        assert_eq!(after > 40, grows, "{queue} ns under {parameters}");
    }
    let mut script = avoiding("rules=paper,samples=after", 40);
    moved(&mut script, 0);
    let (acks, after) = moved(&mut script, 0);
    assert!(
        acks.abs_diff(2 * 41) <= 2 && after == 42,
        "one per two RTTs: {acks}"
    );
}

#[test]
fn parts_of_a_packet_add_up_unless_they_are_cut_off() {
    let shrunk = |window: &str| {
        let mut script = avoiding(&format!("headroom=0us,window={window}"), 20);
        // (W − 1)·Q/R at 2.5 µs: half a packet per decision.
        for _ in 0..160 {
            ack(&mut script, 2_500);
        }
        script.window()
    };
    let (floor, fractional, ceil) = (shrunk("floor"), shrunk("fractional"), shrunk("ceil"));
    assert!(
        floor < fractional && fractional < 20,
        "{floor} {fractional} {ceil}"
    );
    assert_eq!(ceil, 20, "half a packet less is none less");
}

/// A window below a packet is a pacing rate of W·mss/R.
#[test]
fn below_one_packet_the_window_is_a_rate() {
    // As if measured from a train.
    let mut script = avoiding("rate=4.8gbit", 2);
    for _ in 0..60 {
        script.ack(Duration::from_micros(400), |s| {
            waited(s, 300_000);
            s.bytes_in_flight = 0;
        });
    }
    assert_eq!(script.window(), 1);
    let rate = script.transport.rate;
    // A few hundredths of a packet of 1000 bytes per 100 µs.
    assert!((100_000..5_000_000).contains(&rate), "{rate} bytes/s");
    for _ in 0..100 {
        script.ack(Duration::from_micros(400), |s| {
            waited(s, 0);
            s.bytes_in_flight = 0;
        });
    }
    assert!(
        script.window() > 4 && script.transport.rate > 1 << 30,
        "and no more when it has grown"
    );
    assert_eq!(script.faults(), 0);
}

#[test]
fn slow_start_ends_at_a_queue_and_not_at_one_packet_that_waited() {
    let mut script = Script::new("dx", "");
    for n in 0..200 {
        ack(&mut script, if n % 8 == 0 { 3_000 } else { 0 });
    }
    let grown = script.window();
    assert!(
        grown >= 200 && script.transport.ssthresh == u64::MAX,
        "{grown}"
    );
    // Paced at one window per RTT, the flow's own packets build no queue.
    let rate = script.transport.rate * RTT_US / 1_000_000 / MSS;
    assert!(rate.abs_diff(grown) <= 1, "{rate} packets in an RTT");
    for _ in 0..5 {
        ack(&mut script, 30_000);
    }
    let left = script.window();
    assert!(
        left < (grown + 5) * 9 / 16 + 2 && left > grown / 2,
        "{left} of {grown}"
    );
    assert_eq!(script.transport.ssthresh, script.transport.cwnd);
}

/// The packet time is unknown until there is a delivery rate, which short messages do not yield, or
/// until a pair of packets has measured it. Neither before nor after may the pacing rate or the
/// headroom be derived from an unknown packet time.
#[test]
fn an_unknown_rate_does_not_make_a_path_slow() {
    for (every_second, rate_after) in [(1_600, 1_000), (0, 100)] {
        let mut script = Script::new("dx", "");
        for n in 0..200 {
            let in_flight = script.transport.cwnd;
            script.ack(Duration::from_micros(1), |s| {
                waited(s, if n % 2 == 0 { every_second } else { 0 });
                if n < rate_after {
                    (s.rate_incoming, s.rate_outgoing) = (0, 0);
                }
                s.bytes_in_flight = in_flight;
            });
            let (window, pace) = (
                script.window(),
                script.transport.rate * RTT_US / 1_000_000 / MSS,
            );
            assert!(
                pace.abs_diff(window) <= 1,
                "{pace} packets an RTT of {window}, ACK {n}"
            );
        }
        let grown = script.window();
        for _ in 0..10 {
            script.ack(Duration::from_micros(1), |s| {
                waited(s, 30_000);
                (s.rate_incoming, s.rate_outgoing) = (0, 0);
            });
        }
        assert!(
            script.window() < grown * 3 / 4,
            "{} of {grown}",
            script.window()
        );
        assert_eq!(script.faults(), 0);
    }
}

#[test]
fn a_loss_halves_once_and_a_timeout_is_raised_again() {
    let mut script = avoiding("", 40);
    ack(&mut script, 0);
    let outcome = script.ack(Duration::from_micros(10), |s| {
        waited(s, 0);
        (s.in_recovery, s.lost_pkts_sample) = (1, 1);
    });
    assert_eq!(
        (outcome.ssthresh, outcome.cwnd),
        (Some(20 * MSS), None),
        "the window is the transport's"
    );
    for _ in 0..20 {
        let outcome = script.ack(Duration::from_micros(10), |s| {
            waited(s, 90_000);
            s.in_recovery = 1;
        });
        assert_eq!((outcome.ssthresh, outcome.cwnd), (None, None));
    }
    script.transport.cwnd = 20 * MSS;
    assert_eq!(ack(&mut script, 0), 20);

    script.transport.cwnd = MSS;
    let timeout = script.ack(Duration::from_millis(200), |s| {
        (s.in_recovery, s.was_timeout, s.bytes_acked, s.packets_acked) = (1, 1, 0, 0);
    });
    assert_eq!(timeout.ssthresh, Some(10 * MSS));
    for _ in 0..40 {
        script.ack(Duration::from_micros(10), |s| {
            waited(s, 0);
            s.in_recovery = 1;
        });
    }
    assert_eq!(script.window(), 10, "up to the threshold and no further");
}

/// A spurious timeout, as at the start on a path longer than the initial RTO, leaves slow start
/// unchanged.
#[test]
fn an_undo_restores_slow_start() {
    for timeout in [true, false] {
        let mut script = Script::new("dx", "");
        for _ in 0..20 {
            ack(&mut script, 0);
        }
        let before = script.transport;
        script.transport.ssthresh = before.cwnd / 2;
        script.ack(Duration::from_millis(200), |s| {
            (
                s.in_recovery,
                s.lost_pkts_sample,
                s.bytes_acked,
                s.packets_acked,
            ) = (1, 1, 0, 0);
            s.was_timeout = u64::from(timeout);
        });
        assert!(script.transport.ssthresh < before.cwnd);
        script.transport = Transport {
            now: script.transport.now,
            ..before
        };
        script.ack(Duration::from_micros(10), |s| {
            waited(s, 0);
            s.undone = 1;
        });
        let undone = script.window();
        assert!(undone >= before.cwnd / MSS);
        for _ in 0..10 {
            ack(&mut script, 0);
        }
        assert_eq!(
            script.window(),
            undone + 10,
            "a packet for each ACK; timeout: {timeout}"
        );
        assert_eq!(script.faults(), 0);
    }
}

#[test]
fn nothing_grows_while_the_application_limits_sending() {
    let mut script = avoiding("", 40);
    ack(&mut script, 0);
    script.usual.cwnd_limited = 0;
    assert_eq!(moved(&mut script, 0), (0, 0));
}

/// A flow whose time stamps stop switches to the RTT with the first ACK without one, and back with
/// the first time stamp.
#[test]
fn without_stamps_dx_uses_the_rtt() {
    let mut script = avoiding("headroom=0us", 40);
    ack(&mut script, 0);
    let reports = script.reports;
    let by_rtt_only = |script: &mut Script, queue: u64| {
        let in_flight = script.transport.cwnd;
        script.ack(Duration::from_micros(2), |s| {
            by_rtt(s, queue);
            s.bytes_in_flight = in_flight;
        });
    };
    by_rtt_only(&mut script, 0);
    assert_eq!(script.reports, reports + 1, "the agent hears of it at once");
    let before = script.window();
    (0..2 * before + 2).for_each(|_| by_rtt_only(&mut script, 10_000));
    assert_eq!(script.window(), before - before / 10, "W - (W - 1)·Q/R");
    ack(&mut script, 0);
    assert_eq!(script.reports, reports + 2);
    assert_eq!(script.faults(), 0);
}

#[test]
fn required_capabilities_are_checked() {
    use Capabilities as C;
    let without = |missing: C| Capabilities(everything().0 & !missing.0);
    for missing in [C::PACING, C::RTT, C::RECOVERY] {
        assert!(Script::on(without(missing), "dx", "").is_none());
    }
    assert!(Script::on(without(C::TIMERS.union(C::DELIVERY_RATE)), "dx", "").is_some());
    // Time stamps: used if available, required, or not requested.
    let made = |parameters: &str| {
        let parameters = parameters.parse().expect("well-formed");
        Registry::builtin()
            .by_name("dx", &parameters)
            .expect("valid")
    };
    for (delay, runs, wants) in [
        ("auto", true, true),
        ("stamps", false, true),
        ("rtt", true, false),
    ] {
        let parameters = format!("delay={delay}");
        assert_eq!(
            Script::on(without(C::ONE_WAY_DELAY), "dx", &parameters).is_some(),
            runs,
            "{delay}"
        );
        assert!(
            Script::on(everything(), "dx", &parameters).is_some(),
            "{delay}"
        );
        assert_eq!(
            made(&parameters)
                .requested_capabilities()
                .contains(C::ONE_WAY_DELAY),
            wants,
            "{delay}"
        );
    }
}

#[test]
fn parameters_that_make_no_sense_are_refused() {
    let why = |parameters: &str| match Registry::builtin()
        .by_name("dx", &parameters.parse().expect("well-formed"))
    {
        Ok(_) => panic!("{parameters} was accepted"),
        Err(why) => why.to_string(),
    };
    assert!(why("headroom=2 packets").contains("packets such as `1.5p`"));
    assert!(why("headroom=-1p").contains("headroom"));
    assert!(why("headroom=5s").contains("at most 1s"));
    let fast = why("rate=fast");
    assert!(
        fast.contains("write a rate as 96mbit") && fast.ends_with("; or `auto`"),
        "{fast}"
    );
    assert!(why("samples=all").contains("`after` or `window` or `freshest`"));
    assert!(why("rules=ours").contains("`extended` or `paper`"));
}

/// Simulates time stamps delayed by exponential jitter of this mean, ns, at both hosts, without a
/// queue. Returns the noise estimate and the mean measured delay.
fn noise(mean: f64, samples: f64) -> (u64, f64) {
    let mut dice = SplitMix64(7);
    let mut late =
        || (-mean * libm::log((dice.below(1 << 40) + 1) as f64 / (1_u64 << 40) as f64)) as u64;
    let (mut one_way, mut noise) = (OneWay::default(), Noise::default());
    let (mut headroom, mut seen_mean) = (0, 0.0);
    const BLOCKS: u64 = 200;
    for block in 0..BLOCKS {
        let mut ways = Vec::new();
        for n in 0..64 {
            // A host stamps outgoing packets too early and incoming packets too late.
            let t1 = 1_000_000_000 + (block * 64 + n) * 2_000;
            let t2 = t1 + 50_000 + late() + late();
            let (t3, t4) = (t2 + 3_000, t2 + 53_000 + late() + late());
            let at = Time::from_nanos;
            let stamps = ExchangeStamps {
                t1: at(t1),
                t2: at(t2),
                t3: at(t3),
                t4: at(t4),
            };
            assert!(one_way.sample(stamps.t4, &stamps));
            let mut signals = Signals::default();
            one_way.write(stamps.t4, true, Duration::from_secs(1), &mut signals);
            ways.push(signals.rtt_ns + signals.min_owd_ns - signals.owd_ns);
            seen_mean += signals.queue_delay_ns as f64 / 64.0 / BLOCKS as f64;
        }
        let moved: u64 = ways.windows(2).map(|pair| pair[0].abs_diff(pair[1])).sum();
        let seen = NoiseReport {
            spread: moved / 63,
            reverse_mean: ways.iter().sum::<u64>() / 64,
            reverse_min: ways.iter().copied().min().unwrap_or(INFINITY),
        };
        let now = Time::from_nanos(1_000_000_000 + block * 128_000);
        headroom = noise.update(now, seen, true, samples);
    }
    (headroom, seen_mean)
}

/// The headroom for one packet covers four fifths of the bias and a third of the error, and at most
/// three times their sum.
#[test]
fn the_headroom_covers_the_bias_of_noisy_stamps_and_the_error_of_a_mean() {
    for mean in [0.0, 200.0, 2_000.0, 20_000.0] {
        for samples in [1.0, 8.0, 40.0] {
            let (headroom, bias) = noise(mean, samples);
            // Each sample has two exponential time stamps.
            let error = libm::sqrt(2.0) * mean / libm::sqrt(samples);
            let (least, most) = (0.8 * bias + 0.3 * error, 3.0 * (bias + error));
            println!(
                "{mean} ns, {samples} samples: {headroom} ns, bias {bias:.0}, error {error:.0}"
            );
            assert!(
                (least..=most).contains(&(headroom as f64)),
                "{headroom} is not in {least}..{most}"
            );
        }
    }
}

/// Parameters add to the program, and a datapath takes at most 256 instructions.
#[test]
fn every_combination_of_parameters_compiles_within_the_limits() {
    for rules in ["extended", "paper"] {
        for delay in ["auto", "stamps", "rtt"] {
            for headroom in ["auto", "12us", "1.5p"] {
                for rate in ["auto", "10gbit"] {
                    for samples in ["after", "window", "freshest"] {
                        for window in ["fractional", "floor", "ceil"] {
                            let all = format!(
                                "rules={rules},delay={delay},headroom={headroom},rate={rate},\
                                 samples={samples},window={window}"
                            );
                            assert!(avoiding(&all, 20).window() > 0, "{all}");
                        }
                    }
                }
            }
        }
    }
}

/// Simulates a token bucket as in `tc`, with 120 µs per packet and a depth of 2½ packets, behind a
/// path of 15 µs. Its timer expires up to `late` ns late, packets sent together are `apart` ns
/// apart, and the receiver delays every eighth packet and those behind it by up to `held` ns.
/// Returns the link's utilization and the median queueing delay, ns, over the last three of four
/// seconds.
fn behind_a_bucket(seed: u64, late: u64, apart: u64, held: u64) -> (f64, u64) {
    const PACKET_NS: u64 = MSS * 120;
    const BASE_OWD_NS: u64 = 15_000;
    const TOKEN_BUCKET_DEPTH: u64 = PACKET_NS * 5 / 2;
    let mut dice = SplitMix64(seed);
    let mut script = Script::new("dx", "");
    let start = script.transport.now.as_nanos();
    // Tokens are in units of time; `full` is the time at which the bucket is full again.
    let (mut now, mut full, mut free, mut paced, mut seen) = (start, start, start, start, start);
    let mut under_way = std::collections::VecDeque::new();
    let (mut least, mut waits, mut got, mut acknowledged) = (u64::MAX, Vec::new(), 0_u64, 0);
    while now < start + 4_000_000_000 {
        while (under_way.len() as u64) < script.window() && paced <= now {
            let ready = now.max(free);
            let goes = ready.max((full + PACKET_NS).saturating_sub(TOKEN_BUCKET_DEPTH));
            let goes = if goes > now && late > 0 {
                goes + dice.below(late)
            } else {
                goes
            };
            full = full.max(goes) + PACKET_NS;
            free = goes;
            // A host that takes several packets at once spends 2 µs on each.
            let hold = if held > 0 && dice.below(8) == 0 {
                dice.below(held)
            } else {
                0
            };
            seen = (goes + hold).max(seen + 2_000);
            under_way.push_back((now, seen, seen + BASE_OWD_NS, acknowledged));
            let rate = script.transport.rate;
            let pause = (MSS * 1_000_000_000).checked_div(rate).unwrap_or(0);
            paced = now + pause.max(apart);
        }
        let Some(&(sent, left, back, before)) = under_way.front() else {
            now = paced;
            continue;
        };
        if paced > now && paced < back && (under_way.len() as u64) < script.window() {
            now = paced;
            continue;
        }
        under_way.pop_front();
        acknowledged += 1;
        let rtt = back - sent;
        least = least.min(rtt);
        let pause = Duration::from_nanos(back.saturating_sub(script.transport.now.as_nanos()));
        now = back;
        let in_flight = under_way.len() as u64 * MSS;
        script.ack(pause, |s| {
            (s.owd_ns, s.min_owd_ns) = (left - sent + BASE_OWD_NS / 2, BASE_OWD_NS / 2);
            (s.rtt_ns, s.min_rtt_ns) = (rtt, least);
            (s.queue_delay_ns, s.queue_delay_valid) = (left - sent, 1);
            (s.rtt_sample_us, s.srtt_us, s.min_rtt_us) = (rtt / 1_000, rtt / 1_000, least / 1_000);
            let rate = (acknowledged - before) * MSS * 1_000_000_000 / rtt;
            (s.rate_incoming, s.rate_outgoing) = (rate, rate);
            s.bytes_in_flight = in_flight;
        });
        if now > start + 1_000_000_000 {
            waits.push(left - sent);
            got += 1;
        }
    }
    waits.sort_unstable();
    (
        got as f64 * PACKET_NS as f64 / 3e9,
        upper_rank(&waits, 0.5).expect("packets"),
    )
}

/// A burst that passes the bucket at once does not measure the packet time behind it. Neither does
/// the difference of two packets' queueing delays if the sender spent a part of that time sending
/// the second, or if a late timer or a busy host sends it right behind the first. When DX used
/// these, it left part of the link idle.
#[test]
fn a_token_bucket_is_used_although_bursts_pass_it_at_once() {
    for (late, apart, held) in [
        (0, 0, 0),
        (20_000, 0, 0),
        (60_000, 0, 0),
        (0, 40_000, 0),
        (20_000, 40_000, 0),
        (60_000, 40_000, 0),
        (20_000, 40_000, 100_000),
    ] {
        for seed in 0..10 {
            let (used, waited) = behind_a_bucket(seed, late, apart, held);
            assert!(
                used >= 0.97 && waited <= 200_000,
                "late {late}, {apart} apart, {held} held, seed {seed}: {used:.3} of the link, \
                 {waited} ns"
            );
        }
    }
}
