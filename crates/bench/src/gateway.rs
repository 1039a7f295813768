//! `ccplane bench gateway`: what a gateway costs: bulk and small packets, round trips, a limit, a
//! bundle's memory, and how soon it is out of the way or back.
//!
//! Two sites in namespaces, each with a box, a wire of virtual devices between them, and both ends
//! of all traffic: on one machine. The gateway takes turns with a bare forwarder of our own between
//! the same devices and, where it is installed, with `wireguard-go`. Each ratio is the median over
//! rounds of a run's figure over that of the run beside it.

mod bare;
mod load;
mod memory;
mod sites;
mod trouble;
mod wireguard_go;

use std::time::Duration as Span;

use ccplane_report::TargetRange;
use ccplane_units::{Duration, Rate};

use crate::rounds::{Turns, median};
use crate::{Error, Figures};
use load::{Bulk, Packets};
use sites::{MTU, Sites, Who};

/// The limit of a shaped run.
const LIMIT: Rate = Rate::from_bits_per_sec(96_000_000);
/// Bytes of a small packet, and of how many a second are offered.
const SMALL: usize = 64;
const OFFERED: f64 = 200_000.0;
/// Before a run counts.
const WARM_UP: Span = Span::from_millis(500);
/// Bytes on the wire of a full packet in a tunnel.
const FULL: f64 = MTU as f64 + 60.0;

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Length of each run.
    pub run: Duration,
    /// Runs of each; figures are medians.
    pub rounds: usize,
}

const GATEWAY: Who = Who::Gateway(None);

/// What the gateway is measured beside.
struct Beside {
    suffix: &'static str,
    who: Who,
}

/// Measures. `step` hears the share that is done and what comes next, and says whether to go on.
pub fn run(options: &Options, mut step: impl FnMut(f64, &str) -> bool) -> Result<Figures, Error> {
    check(options)?;
    let mut figures = Figures::default();
    // While memory is as it was.
    memory::run(&mut figures)?;
    let others = others(&mut figures);
    let all: Vec<Who> = std::iter::once(GATEWAY)
        .chain(others.iter().map(|other| other.who))
        .collect();
    let (length, rounds) = (options.run.to_std(), options.rounds);
    let (mut done, total) = (0, rounds * (3 * all.len() + 6));
    let mut next = |what: &str| {
        let go_on = step(done as f64 / total as f64, what);
        done += 1;
        match go_on {
            true => Ok(()),
            false => Err(Error::from(ccplane_lab::Error::Interrupted)),
        }
    };

    let turns = Turns::take(rounds, &all, |_, who| {
        next(&format!("one connection, {}", who.name()))?;
        load::bulk(&Sites::over_wire(who)?, WARM_UP, length)
    })?;
    bulk(&mut figures, &turns, &others);

    let turns = Turns::take(rounds, &all, |_, who| {
        next(&format!("packets of {SMALL} bytes, {}", who.name()))?;
        let burst = Span::from_micros(500);
        load::packets(
            &Sites::over_wire(who)?,
            SMALL,
            OFFERED,
            burst,
            WARM_UP,
            length,
        )
    })?;
    small(&mut figures, &turns, &others);

    let with_wire: Vec<Who> = std::iter::once(Who::Wire)
        .chain(all.iter().copied())
        .collect();
    let turns = Turns::take(rounds, &with_wire, |_, who| {
        next(&format!("round trips, {}", who.name()))?;
        let samples = (options.run.as_secs_f64() * 200.0) as usize;
        load::round_trip_us(&Sites::over_wire(who)?, samples.max(50))
    })?;
    idle(&mut figures, &turns, &others);

    let turns = Turns::take(rounds, &[Who::Gateway(Some(LIMIT)), Who::Bare], |_, who| {
        next(&format!("96 Mbit/s, {}", who.name()))?;
        shaped_run(who, length)
    })?;
    shaped(&mut figures, &turns);

    let silent = (0..rounds).map(|_| {
        next("the other side falls silent")?;
        trouble::silent_open_ms()
    });
    let silent = silent.collect::<Result<Vec<f64>, Error>>()?;
    let outages = (0..rounds).map(|_| {
        next("kill -9 and start again")?;
        Ok([
            trouble::restart_outage_ms(0)?,
            trouble::restart_outage_ms(1)?,
        ])
    });
    let outages = outages.collect::<Result<Vec<[f64; 2]>, Error>>()?;
    figures
        .add("silent_open_ms", median(silent), "ms")
        .at_most(300.0)
        .beside("RTT 50 ms; 4 RTT and at least 250 ms of silence");
    figures
        .add(
            "restart_outage_ms",
            median(outages.iter().map(|both| both[0].max(both[1]))),
            "ms",
        )
        .at_most(2_000.0)
        .beside("the longer of the two that follow");
    figures.add(
        "restart_caller_outage_ms",
        median(outages.iter().map(|both| both[0])),
        "ms",
    );
    figures.add(
        "restart_called_outage_ms",
        median(outages.iter().map(|both| both[1])),
        "ms",
    );
    notes(&mut figures, options);
    Ok(figures)
}

fn check(options: &Options) -> Result<(), ccplane_lab::Error> {
    let bad =
        |what, value: String, fix| Err(ccplane_lab::Error::InvalidParameter { what, value, fix });
    if options.rounds == 0 {
        return bad(
            "the number of rounds",
            "0".into(),
            "give at least 1, better 5",
        );
    }
    if options.run < Duration::from_millis(200) {
        return bad(
            "the length of a run",
            options.run.to_string(),
            "give at least 200ms, better 2s",
        );
    }
    Ok(())
}

/// What takes turns with the gateway here.
fn others(figures: &mut Figures) -> Vec<Beside> {
    let mut all = vec![Beside {
        suffix: "bare",
        who: Who::Bare,
    }];
    match sites::is_installed(wireguard_go::PROGRAM) {
        true => all.push(Beside {
            suffix: "wireguard_go",
            who: Who::WireguardGo,
        }),
        false => {
            figures.note("wireguard-go is not installed, and was not measured beside (`apt install wireguard-go`)")
        }
    }
    all
}

/// A figure of the gateway, of the others, and its ratio to theirs; to the bare forwarder's it has
/// an aim.
fn add<T>(
    figures: &mut Figures,
    key: &str,
    unit: &'static str,
    aims: [TargetRange; 2],
    (turns, others): (&Turns<Who, T>, &[Beside]),
    value: impl Fn(&T) -> f64 + Copy,
) {
    let [aim, ratio_aim] = aims;
    figures
        .add(key, turns.median(GATEWAY, value), unit)
        .target(aim);
    for other in others {
        figures.add(
            format!("{key}_{}", other.suffix),
            turns.median(other.who, value),
            unit,
        );
        let ratio = turns.ratio(GATEWAY, other.who, value);
        let units = match other.who {
            Who::Bare => "x bare",
            _ => "x wireguard-go",
        };
        let figure = figures.ratio(format!("{key}_ratio_{}", other.suffix), ratio, units);
        if other.who == Who::Bare {
            figure.target(ratio_aim);
        }
    }
}

/// Aims of ratios are those of the figures over what a tunnel in C took without a seal: 6.1 Gbit/s,
/// 1.1 and 0.9 us, and of small packets at best 78,000 a second and 8 us.
fn bulk(figures: &mut Figures, turns: &Turns<Who, Bulk>, others: &[Beside]) {
    let beside = (turns, others);
    let most = |most| [TargetRange::AtMost(2.0), TargetRange::AtMost(most)];
    let fast = [TargetRange::AtLeast(3.5), TargetRange::AtLeast(0.57)];
    add(figures, "gso_gbps", "Gbit/s", fast, beside, |run| run.gbps);
    add(figures, "send_us", "us/packet", most(1.8), beside, |run| {
        run.send_us
    });
    add(
        figures,
        "receive_us",
        "us/packet",
        most(2.2),
        beside,
        |run| run.receive_us,
    );
}

fn small(figures: &mut Figures, turns: &Turns<Who, Packets>, others: &[Beside]) {
    let beside = (turns, others);
    let many = [TargetRange::AtLeast(120.0), TargetRange::AtLeast(1.5)];
    let cheap = [TargetRange::AtMost(5.0), TargetRange::AtMost(0.63)];
    add(figures, "small_kpps", "1,000/s", many, beside, |run| {
        run.per_s / 1e3
    });
    add(figures, "small_us", "us/packet", cheap, beside, |run| {
        run.us
    });
}

/// What the boxes add to a round trip over the wire alone, in the same round.
fn idle(figures: &mut Figures, turns: &Turns<Who, f64>, others: &[Beside]) {
    let added = |who: Who| -> Vec<f64> {
        let pairs = turns.of(who).iter().zip(turns.of(Who::Wire));
        pairs.map(|(through, wire)| through - wire).collect()
    };
    figures
        .add("idle_rtt_added_us", median(added(GATEWAY)), "us")
        .at_most(400.0)
        .beside("p50; four threads have to wake up, some 70 us each");
    for other in others {
        figures.add(
            format!("idle_rtt_added_us_{}", other.suffix),
            median(added(other.who)),
            "us",
        );
    }
    figures.add("idle_rtt_us_wire", turns.median(Who::Wire, |us| *us), "us");
    let pairs: Vec<(f64, f64)> = added(GATEWAY).into_iter().zip(added(Who::Bare)).collect();
    if let Some(ratio) = ccplane_lab::stats::median_ratio(&pairs) {
        figures
            .add("idle_rtt_added_us_ratio_bare", ratio.value, "x bare")
            .in_turns(ratio.interval);
    }
}

/// Full packets, one by one: more than a limit lets pass, or, where there is none, as many as it
/// would.
fn shaped_run(who: Who, length: Span) -> Result<Packets, Error> {
    let sites = Sites::over_wire(who)?;
    let rate = LIMIT.bytes_per_sec() as f64 / FULL;
    let once = Span::from_micros(100);
    if who == Who::Bare {
        return load::packets(&sites, MTU as usize, rate, once, WARM_UP, length);
    }
    // There is no limit before there is a queue.
    let bucket = ["rate", "100mbit", "burst", "4kb", "limit", "200kb"];
    let tbf = |what| {
        let mut arguments = vec!["qdisc", what, "dev", sites::DEVICE, "root"];
        if what == "add" {
            arguments.push("tbf");
            arguments.extend(bucket);
        }
        ccplane_testbed::wire::run(&sites.spaces[0], "tc", &arguments)
    };
    tbf("add")?;
    load::packets(&sites, MTU as usize, rate * 1.2, once, WARM_UP, WARM_UP)?;
    trouble::limited(&sites)?;
    tbf("del")?;
    let run = load::packets(&sites, MTU as usize, rate * 1.1, once, WARM_UP, length)?;
    trouble::limited(&sites)?;
    Ok(run)
}

fn shaped(figures: &mut Figures, turns: &Turns<Who, Packets>) {
    let limited = Who::Gateway(Some(LIMIT));
    let asked = LIMIT.bytes_per_sec() as f64;
    let error = turns.median(limited, |run| (run.rate - asked).abs() / asked * 100.0);
    figures
        .add("shaped_96mbit_error_pct", error, "%")
        .at_most(0.5)
        .beside("by hand 0.07");
    let cpu = |run: &Packets| run.near_cpu_pct;
    figures
        .add(
            "shaped_96mbit_cpu_pct",
            turns.median(limited, cpu),
            "% of a core",
        )
        .at_most(35.0)
        .beside("by hand, without a seal, 23");
    figures.add(
        "shaped_96mbit_cpu_pct_bare",
        turns.median(Who::Bare, cpu),
        "% of a core",
    );
    if let Some(ratio) = turns.ratio(limited, Who::Bare, cpu) {
        figures
            .add("shaped_96mbit_cpu_pct_ratio_bare", ratio.value, "x bare")
            .in_turns(ratio.interval)
            .at_most(1.5);
    }
}

fn notes(figures: &mut Figures, options: &Options) {
    figures.note(format!(
        "medians of {} rounds with runs of {}; CPU: all that a box' threads do, the kernel's work on their behalf included",
        options.rounds, options.run
    ));
    figures.note(
        "gso, send, receive: one TCP connection, packets of 1,420 bytes, no limit; by hand, in C: 3.0 to 3.3 Gbit/s sealed and 6.1 plain, \
         2.3 and 2.2 us sealed, 1.1 and 0.9 plain",
    );
    figures.note(
        "small: of 200,000 packets of 64 bytes a second, one by one, those that came; CPU of both boxes for each, halved; by hand 62,000 to \
         78,000, 8 to 17 us",
    );
    figures.note(
        "shaped: 10 % more than 96 Mbit/s are offered; CPU of the sending site's box, beside the bare forwarder with 96 Mbit/s offered",
    );
}

impl Who {
    fn name(self) -> &'static str {
        match self {
            Who::Wire => "the wire alone",
            Who::Gateway(_) => "the gateway",
            Who::Bare => "a bare forwarder",
            Who::WireguardGo => wireguard_go::PROGRAM,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sites, unless this process may make none.
    fn sites(who: Who) -> Option<Sites> {
        match Sites::over_wire(who) {
            Ok(sites) => Some(sites),
            Err(reason) if std::env::var_os("CCPLANE_NO_SKIP").is_none() => {
                eprintln!("SKIPPED: {reason}");
                None
            }
            Err(reason) => panic!("cannot run: {reason}"),
        }
    }

    #[test]
    fn whoever_carries_the_packets_carries_them_and_its_cpu_is_counted() {
        let length = Span::from_millis(300);
        for who in [GATEWAY, Who::Bare] {
            let Some(sites) = sites(who) else { return };
            let bulk = load::bulk(&sites, length, length).unwrap();
            assert!(
                bulk.gbps > 0.05 && bulk.send_us > 0.1 && bulk.receive_us > 0.1,
                "{bulk:?}"
            );
            let few = load::packets(&sites, SMALL, 2_000.0, Span::from_millis(1), length, length)
                .unwrap();
            assert!(
                (1_000.0..3_000.0).contains(&few.per_s) && few.us > 0.5,
                "{few:?}"
            );
            assert!(load::round_trip_us(&sites, 20).unwrap() > 1.0);
        }
    }

    #[test]
    fn nonsense_is_refused_before_anything_is_made() {
        for (run, rounds) in [(Duration::from_secs(2), 0), (Duration::ZERO, 5)] {
            let refused = run_with(run, rounds);
            assert!(matches!(
                refused,
                Err(Error::Lab(ccplane_lab::Error::InvalidParameter { .. }))
            ));
        }
    }

    fn run_with(run: Duration, rounds: usize) -> Result<Figures, Error> {
        super::run(&Options { run, rounds }, |_, _| true)
    }
}
