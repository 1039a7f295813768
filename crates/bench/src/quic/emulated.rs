//! noq behind an emulated link: its own Cubic and BBR3 beside ours, and Copa beside itself on
//! kernel TCP.

use ccplane_algorithms::Registry;
use ccplane_lab::scenario::Scenario;
use ccplane_lab::stats::{distance, distance_within};
use ccplane_lab::{Backend, Contender, NoProgress, RunOptions, run as run_once};
use ccplane_qdisc::{QueueSpec, Size};
use ccplane_quic::Stack;
use ccplane_testbed::{RealPackets, TransportKind};
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

    fn backend(self) -> Box<dyn Backend> {
        match self {
            Who::KernelCopa => Box::new(RealPackets::new(TransportKind::Tcp)),
            _ => Box::new(RealPackets::new(TransportKind::Quic(Stack::Noq))),
        }
    }
}

struct Run {
    goodput: f64,
    delay: f64,
    again: f64,
    /// What the link delivered in each bin, Mbit/s.
    throughput: Vec<f64>,
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
        let scenario = Scenario::dumbbell(vec![who.contender()], RATE, RTT, queue, length);
        let once = RunOptions::single(1, "ccplane bench quic");
        let result = run_once(&*who.backend(), &scenario, registry, &once, &NoProgress)?;
        let told = result
            .contenders
            .first()
            .map(|contender| &contender.metrics);
        Ok::<Run, Error>(Run {
            goodput: told.map_or(f64::NAN, |figures| figures.goodput_mbit),
            delay: told.map_or(f64::NAN, |figures| figures.delay_mean_ms),
            again: told.map_or(f64::NAN, |figures| figures.retransmissions as f64),
            throughput: result
                .contenders
                .first()
                .map_or_else(Vec::new, |contender| {
                    contender.series.throughput_mbit.clone()
                }),
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
        figures.add(
            format!("emu_delay_ms_{name}"),
            turns.median(who, |run| run.delay),
            "ms",
        );
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
    let throughput = |who| -> Vec<Vec<f64>> {
        turns
            .of(who)
            .iter()
            .map(|run| run.throughput.clone())
            .collect()
    };
    alike(
        figures,
        "cubic",
        &throughput(Who::Cubic),
        &throughput(Who::OwnCubic),
    );
    alike(
        figures,
        "bbr3",
        &throughput(Who::Bbr3),
        &throughput(Who::OwnBbr3),
    );
    figures.note(format!(
        "behind a link: {RATE}, {RTT}, a queue of one BDP, {rounds} runs of {length} each in turns, one flow; delay: one way, mean of packets"
    ));
    Ok(())
}

/// How far the distributions of throughput are apart, ours and noq's own: the mean
/// Kolmogorov-Smirnov distance between as many runs of either, over every choice of them, beside
/// that of noq's own runs to each other, as in `paper ccp-fidelity`. Two runs of either are needed.
fn alike(figures: &mut Figures, name: &str, ours: &[Vec<f64>], own: &[Vec<f64>]) {
    if ours.len() < 2 || own.len() < 2 {
        return;
    }
    let Some((apart, floor)) = distance(ours, own).zip(distance_within(own)) else {
        return;
    };
    figures.add(
        format!("noq_emu_ks_throughput_{name}_own"),
        floor,
        "KS distance",
    );
    figures
        .add(
            format!("noq_emu_ks_throughput_{name}"),
            apart,
            "KS distance",
        )
        .at_most((1.5 * floor).max(0.05));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(mean: f64) -> Vec<Vec<f64>> {
        let bin = |run: u32, bin: u32| mean + f64::from((run * 7 + bin * 13) % 10) / 10.0;
        (0..4)
            .map(|run| (0..100).map(|at| bin(run, at)).collect())
            .collect()
    }

    #[test]
    fn runs_that_are_alike_are_no_further_apart_than_the_stacks_own() {
        let mut figures = Figures::default();
        alike(&mut figures, "same", &runs(90.0), &runs(90.0));
        alike(&mut figures, "other", &runs(80.0), &runs(90.0));
        let of = |key: &str| figures.get(key).unwrap();
        assert!(of("noq_emu_ks_throughput_same") <= 0.05, "{figures:?}");
        assert_eq!(
            of("noq_emu_ks_throughput_other"),
            1.0,
            "nothing is in common"
        );
        assert!(of("noq_emu_ks_throughput_other_own") <= 0.05);
        // One run of each says nothing of distributions.
        let mut few = Figures::default();
        alike(&mut few, "few", &runs(90.0)[..1], &runs(90.0)[..1]);
        assert_eq!(few.get("noq_emu_ks_throughput_few"), None);
    }
}
