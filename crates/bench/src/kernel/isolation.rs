//! Part of `ccplane bench kernel`: the cost of isolating an algorithm from its datapath. Reno runs
//! as native code of the kernel, as a verified program in the kernel, in a thread that shares
//! memory with the kernel, and in another process. The interpreter in user space runs the verified
//! program too.

use std::path::Path;

use ccplane_algorithms::Registry;
use ccplane_lab::Contender;
use ccplane_lab::stats::Ratio;
use ccplane_lang::ProgramFile;
use ccplane_report::wrap;
use ccplane_testbed::ends::TrafficEnds;
use ccplane_testbed::loopback::{self, Load, LoopbackRun};

use super::{CPU, Condition};
use crate::bpf_statistics::BpfStatistics;
use crate::control_loop::percentiles_us;
use crate::peers::{Peer, client};
use crate::rounds::{Turns, median};
use crate::{Error, Figures, datapath};

/// Name of the program file that [`one`] and the interpreter run.
pub(super) const PROGRAM_FILE: &str = "reno.ccp";
const PROGRAM: &str = include_str!("../../../algorithms/text/reno.ccp");

/// Round trips to the agent's process per round.
const EXCHANGES: usize = 5_000;

const PAPER_CPU: &str =
    "CCP's paper: 2 with fault isolation in the datapath's address space, cited";
const PAPER_ROUND_TRIP: &str = "CCP's paper: p95 below 30";

/// Measurements of a round outside the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct UserSpace {
    /// CPU time of the interpreter per ACK.
    interpreter_ns: f64,
    /// Time from a report to the update of an agent in another process: median and 95th percentile.
    round_trip_us: [f64; 2],
}

/// Runs the interpreter, and exchanges reports and updates with an agent in another process.
pub(super) fn user_space(program: &Path) -> Result<UserSpace, Error> {
    let reno = ProgramFile::read(PROGRAM)?;
    let source = reno
        .program(&[])
        .map_err(|bad| Error::failed(bad.to_string()))?;
    let peer = Peer::run(program, "ours", ["--updates"])?;
    let times = client::times(peer.path(), client::Waits::Sleeping, EXCHANGES)?;
    let [p50, p95, _] = percentiles_us(&times);
    Ok(UserSpace {
        interpreter_ns: datapath::ns_per_ack(&source, 1)?,
        round_trip_us: [p50, p95],
    })
}

/// Runs once under a condition.
pub(super) fn one(
    ends: &TrafficEnds,
    who: Condition,
    load: Load,
    registry: &Registry,
    program: &Path,
) -> Result<LoopbackRun, Error> {
    let contender = who.contender();
    let run = match who {
        Condition::Native | Condition::PerAck | Condition::Every10Ms => {
            loopback::one(ends, &contender, load, registry)
        }
        Condition::Program => loopback::one(ends, &contender, load, &program_file()),
        Condition::ProgramTimed => {
            let _statistics = BpfStatistics::enable();
            loopback::one(ends, &contender, load, &program_file())
        }
        Condition::ProcessPerAck | Condition::ProcessEvery10Ms => {
            let peer = Peer::run(program, "agent", ["--alg", &contender.to_string()])?;
            // The agent has the parameters.
            let remote = Contender::Remote {
                name: contender.algorithm().to_owned(),
                parameters: Vec::new(),
                agent: format!("unix:{}", peer.path().display()),
            };
            let load = Load {
                agent_process: Some(peer.process()),
                ..load
            };
            loopback::one(ends, &remote, load, registry)
        }
    };
    run.map_err(Error::Lab)
}

fn program_file() -> Registry {
    Registry::empty().with_files(|_| Ok(PROGRAM.to_owned()))
}

/// Adds the metrics.
pub(super) fn add(
    turns: &Turns<Condition, LoopbackRun>,
    user_space: &[UserSpace],
    figures: &mut Figures,
) {
    use Condition::{Native, PerAck, ProcessEvery10Ms, ProcessPerAck, Program, ProgramTimed};
    for (key, who) in [
        ("fixed_cpu_ratio_program", Program),
        ("fixed_cpu_ratio_process_10ms", ProcessEvery10Ms),
        ("fixed_cpu_ratio_process_per_ack", ProcessPerAck),
    ] {
        let ratio = turns.ratio(who, Native, CPU);
        figures.ratio(key, ratio, "x native").beside(PAPER_CPU);
    }
    let per_gb = |per_second: f64, run: &LoopbackRun| per_second / (run.goodput_gbit / 8.0);
    let run_s = |run: &LoopbackRun| run.length_s;
    let acks = turns.median(ProgramTimed, |run| {
        per_gb(run.acks as f64 / run_s(run), run)
    });
    figures.add("isolation_acks_per_gb", acks, "");
    let native_ns = turns.median(Native, CPU) * 1e9 / acks;
    figures
        .add("isolation_native_path_ns_per_ack", native_ns, "ns an ACK")
        .beside("senders, receivers and kernel together");
    // CPU beyond the base's, per ACK or report.
    let mut beyond = |key: &str, who, base, per_gb: f64, unit, scale: f64| {
        let cost = turns.median(base, CPU) * scale / per_gb;
        let ratio = turns.ratio(who, base, CPU);
        let cost = ratio.map(|ratio| beyond_base(&ratio, cost));
        figures.ratio(key, cost, unit);
    };
    beyond(
        "isolation_program_ns_per_ack",
        Program,
        Native,
        acks,
        "ns an ACK",
        1e9,
    );
    for (key, who) in [
        ("isolation_thread_us_per_report", PerAck),
        ("isolation_process_us_per_report", ProcessPerAck),
    ] {
        let reports = turns.median(who, |run| per_gb(run.reports_per_s, run));
        beyond(key, who, Program, reports, "us a report", 1e6);
    }
    let timed = turns.median(ProgramTimed, |run| run.ns_per_ack);
    figures
        .add("isolation_program_run_ns", timed, "ns a call")
        .beside("cong_control, by the kernel's statistics, with their own overhead");
    let of = |value: fn(&UserSpace) -> f64| median(user_space.iter().map(value));
    figures
        .add(
            "isolation_interpreter_ns",
            of(|round| round.interpreter_ns),
            "ns an ACK",
        )
        .beside("CPU time of Flow::on_ack, in user space");
    figures.add(
        "isolation_round_trip_p50_us",
        of(|round| round.round_trip_us[0]),
        "us",
    );
    figures
        .add(
            "isolation_round_trip_p95_us",
            of(|round| round.round_trip_us[1]),
            "us",
        )
        .beside(PAPER_ROUND_TRIP);
}

/// Converts a ratio to the cost beyond the base, of which `cost` is the cost.
fn beyond_base(ratio: &Ratio, cost: f64) -> Ratio {
    let beyond = |ratio: f64| (ratio - 1.0) * cost;
    Ratio {
        value: beyond(ratio.value),
        interval: ratio
            .interval
            .map(|(low, high)| (beyond(low), beyond(high))),
    }
}

pub(super) fn text(flows: usize) -> String {
    wrap(
        &format!(
            "Isolation: Reno at a fixed rate, {flows} flows. `program` is a verified BPF program \
             without an agent, `process` an agent in another process, whose CPU counts. \
             `isolation_program_ns_per_ack` is CPU beyond native, `isolation_thread` and \
             `isolation_process` CPU beyond `program` with a report per ACK. The interpreter runs \
             the program of `program`. `isolation_round_trip` is the time from report to update, \
             both sides sleeping.\n"
        ),
        100,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_beyond_those_of_the_base() {
        let run = |who| {
            let (cpu_s_per_gb, reports_per_s) = match who {
                Condition::Native => (0.4, 0.0),
                Condition::Program | Condition::ProgramTimed => (0.41, 0.0),
                Condition::PerAck => (0.43, 10_000.0),
                _ => (0.61, 10_000.0),
            };
            LoopbackRun {
                // A quarter of a GB per second.
                goodput_gbit: 2.0,
                length_s: 2.0,
                acks: 50_000,
                ns_per_ack: 300.0,
                cpu_s_per_gb,
                reports_per_s,
                ..LoopbackRun::default()
            }
        };
        let turns = Turns::take(3, Condition::FIXED, |_, who| Ok::<_, Error>(run(who))).unwrap();
        let round = UserSpace {
            interpreter_ns: 50.0,
            round_trip_us: [20.0, 27.0],
        };
        let mut figures = Figures::default();
        add(&turns, &[round; 3], &mut figures);
        for (key, value) in [
            ("fixed_cpu_ratio_program", 1.025),
            ("fixed_cpu_ratio_process_per_ack", 1.525),
            ("isolation_acks_per_gb", 100_000.0),
            ("isolation_native_path_ns_per_ack", 4_000.0),
            ("isolation_program_ns_per_ack", 100.0),
            ("isolation_thread_us_per_report", 0.5),
            ("isolation_process_us_per_report", 5.0),
            ("isolation_program_run_ns", 300.0),
            ("isolation_interpreter_ns", 50.0),
            ("isolation_round_trip_p95_us", 27.0),
        ] {
            let found = figures.get(key).unwrap();
            assert!((found / value - 1.0).abs() < 1e-9, "{key}: {found}");
        }
    }

    #[test]
    fn the_interpreter_runs_the_program_of_the_kernel() {
        let source = ProgramFile::read(PROGRAM).unwrap().program(&[]).unwrap();
        let program = ccplane_lang::compile(&source, &Default::default()).unwrap();
        assert!(program.code().instrs().len() > 20);
        assert!(
            program_file()
                .by_name(PROGRAM_FILE, &Default::default())
                .is_ok()
        );
    }
}
