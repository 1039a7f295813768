//! noq behind an emulated link: its own Cubic and BBR3 beside ours, and Copa beside itself on kernel TCP.

use ccplane_algorithms::Registry;
use ccplane_lab::scenario::Scenario;
use ccplane_lab::{Contender, Options as RunOptions, Over, Packets, Place, Quiet, run as run_once};
use ccplane_qdisc::{QueueSpec, Size};
use ccplane_units::{Duration, Rate};

use super::Options;
use crate::rounds::Turns;
use crate::{Error, Figures};

const RATE: Rate = Rate::from_bits_per_sec(96_000_000);
const RTT: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Cubic,
    OwnCubic,
    Bbr3,
    OwnBbr3,
    Copa,
    KernelCopa,
}

impl Who {
    const ALL: [Who; 6] = [
        Who::Cubic,
        Who::OwnCubic,
        Who::Bbr3,
        Who::OwnBbr3,
        Who::Copa,
        Who::KernelCopa,
    ];

    fn contender(self) -> Contender {
        match self {
            Who::Cubic => Contender::ccplane("cubic"),
            Who::OwnCubic => Contender::native("cubic"),
            Who::Bbr3 => Contender::ccplane("bbr3"),
            Who::OwnBbr3 => Contender::native("bbr3"),
            Who::Copa | Who::KernelCopa => Contender::ccplane("copa"),
        }
    }

    fn place(self) -> Box<dyn Place> {
        match self {
            Who::KernelCopa => Box::new(Packets::over(Over::Tcp)),
            _ => Box::new(Packets::over(Over::Quic)),
        }
    }
}

struct Run {
    goodput: f64,
    delay: f64,
    again: f64,
}

pub(super) fn run(
    options: &Options,
    registry: &Registry,
    figures: &mut Figures,
    step: &mut dyn FnMut(f64, &str) -> bool,
) -> Result<(), Error> {
    let (length, rounds) = (options.run.1, options.rounds.1);
    let mut done = 0;
    let turns = Turns::take(rounds, &Who::ALL, |_, who| {
        let share = f64::from(done) / (rounds * Who::ALL.len()) as f64;
        done += 1;
        if !step(share, "behind a link") {
            return Err(ccplane_lab::Error::Interrupted.into());
        }
        let queue = QueueSpec::DropTail(Size::Bytes(240_000));
        let scenario = Scenario::over(vec![who.contender()], RATE, RTT, queue, length);
        let once = RunOptions::once(1, "ccplane bench quic");
        let result = run_once(&*who.place(), &scenario, registry, &once, &Quiet)?;
        let told = result.contenders.first().map(|contender| &contender.figures);
        Ok::<Run, Error>(Run {
            goodput: told.map_or(f64::NAN, |figures| figures.goodput_mbit),
            delay: told.map_or(f64::NAN, |figures| figures.delay_mean_ms),
            again: told.map_or(f64::NAN, |figures| figures.retransmissions as f64),
        })
    })?;
    let kinds = [
        ("cubic", Who::Cubic),
        ("cubic_own", Who::OwnCubic),
        ("bbr3", Who::Bbr3),
        ("bbr3_own", Who::OwnBbr3),
        ("copa", Who::Copa),
        ("copa_kernel", Who::KernelCopa),
    ];
    for (name, who) in kinds {
        figures.add(
            format!("emu_goodput_mbit_{name}"),
            turns.median(who, |run| run.goodput),
            "Mbit/s",
        );
        figures.add(format!("emu_delay_ms_{name}"), turns.median(who, |run| run.delay), "ms");
        figures.add(
            format!("emu_retransmitted_{name}"),
            turns.median(who, |run| run.again),
            "packets",
        );
    }
    figures
        .ratio(
            "noq_emu_ratio",
            turns.ratio(Who::Cubic, Who::OwnCubic, |run| run.goodput),
            "x noq's Cubic",
        )
        .at_least(0.99);
    figures
        .ratio(
            "noq_emu_retransmitted_ratio",
            turns.ratio(Who::Cubic, Who::OwnCubic, |run| run.again),
            "x noq's Cubic",
        )
        .at_most(1.0);
    figures.ratio(
        "noq_emu_bbr3_ratio",
        turns.ratio(Who::Bbr3, Who::OwnBbr3, |run| run.goodput),
        "x noq's BBR3",
    );
    figures
        .ratio(
            "copa_delay_ratio_kernel",
            turns.ratio(Who::Copa, Who::KernelCopa, |run| run.delay),
            "x kernel TCP",
        )
        .at_most(1.2);
    figures.note(format!(
        "behind a link: {RATE}, {RTT}, a queue of one BDP, {rounds} runs of {length} each in turns, one flow; delay: one way, mean of packets"
    ));
    Ok(())
}
