//! CCP's experiments on throughput and CPU cost: kernel TCP over loopback, and over a pair of
//! devices of limited rate, memory to memory, at full speed.
//!
//! Contenders take turns, round by round, so that a disturbance of the machine affects all alike.

use ccplane_agent::{Algorithm, Control, FlowInfo, Programs, Report, box_algorithm};
use ccplane_algorithms::{
    AlgorithmDoc, LossBasedAlgorithm, ParameterDoc, Registry, Reno, SlowStartExit, WindowOptions,
};
use ccplane_datapath::Capabilities;
use ccplane_lab::parts::Disturbed;
use ccplane_lab::{Contender, Error, Progress};
use ccplane_testbed::ends::TrafficEnds;
use ccplane_testbed::loopback::{Load, LoopbackRun, buffer, one};
use ccplane_testbed::traffic::monotonic_ns;
use ccplane_testbed::wire;
use ccplane_units::{Duration, Rate};
use serde_json::{Value, json};

use super::program::{Program, Tables, disturbances_cell};
use super::{Datapath, Options};

/// Rounds of the full version, as in the paper for the number of flows.
const ROUNDS: usize = 10;
const SLOW_ROUNDS: usize = 5;

/// Table 1: one flow, with a report for every ACK and every 10 ms; also with every decision in the
/// agent.
pub(super) const INTERVAL: Program = Program {
    script: "ccp/interval",
    on: &[Datapath::Linux],
    repeats: Some(ROUNDS),
    measure: interval,
};

/// Figure 13: 1 to 1,024 flows.
pub(super) const SCALABILITY: Program = Program {
    script: "ccp/scalability",
    on: &[Datapath::Linux],
    repeats: Some(ROUNDS),
    measure: scalability,
};

/// A callback that computes for a while.
pub(super) const SLOW_ALGORITHM: Program = Program {
    script: "ccp/slow-algorithm",
    on: &[Datapath::Linux],
    repeats: Some(SLOW_ROUNDS),
    measure: slow_algorithm,
};

fn interval(
    options: &Options,
    _: Datapath,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Tables, Error> {
    // With `split=agent` the agent makes every decision, as in CCP.
    let agent_only = ["ack", "rtt", "10ms"].map(|every| Contender::Ccplane {
        name: "reno".to_owned(),
        parameters: [("split", "agent"), ("report", every)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into(),
    });
    let turns = Turns {
        place: "loopback",
        flows: &[1],
        contenders: &[
            with_reports("reno"),
            agent_only.into(),
            options.agents.clone(),
        ]
        .concat(),
        rounds: options.repeats(ROUNDS, 3),
        length: Duration::from_secs(if options.quick { 1 } else { 10 }),
        low_priority_agent: false,
        matched: None,
    };
    let runs = turns.run(&TrafficEnds::loopback()?, options, registry, progress)?;
    tables(&runs)
}

fn scalability(
    options: &Options,
    _: Datapath,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Tables, Error> {
    let (flows, seconds) = match options.quick {
        true => (&[1, 16, 64][..], 1),
        false => (&[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024][..], 30),
    };
    let contenders = ["reno", "cubic"].map(with_reports).concat();
    let turns = |place| Turns {
        place,
        flows,
        contenders: &contenders,
        rounds: options.repeats(ROUNDS, 1),
        length: Duration::from_secs(seconds),
        low_priority_agent: false,
        matched: None,
    };
    let mut runs = turns("loopback").run(&TrafficEnds::loopback()?, options, registry, progress)?;
    let (gbit, ends) = limited(options, registry)?;
    let place = format!("wire-{gbit}g");
    let mut limited = turns(&place).run(&ends, options, registry, progress)?;
    for run in &mut limited {
        run.rate_gbit = Some(gbit);
    }
    runs.append(&mut limited);
    tables(&runs)
}

/// A computation needs a CPU, and takes it from senders that want all CPUs. For each run with
/// callbacks of 1 ms there is one of native Reno next to an unrelated thread that computes as much.
/// The agent and that thread both have a lower priority than ordinary threads.
fn slow_algorithm(
    options: &Options,
    _: Datapath,
    _: &Registry,
    progress: &dyn Progress,
) -> Result<Tables, Error> {
    let slow = ["0us", "100us", "1ms", "10ms"]
        .map(|takes| Contender::ccplane_with(SLOW_RENO.name, "takes", takes));
    let matched = slow.get(2).cloned();
    let contenders = [&[Contender::native("reno")][..], &slow].concat();
    let turns = Turns {
        place: "loopback",
        flows: &[1, 8],
        contenders: &contenders,
        rounds: options.repeats(SLOW_ROUNDS, 1),
        length: Duration::from_secs(if options.quick { 1 } else { 5 }),
        low_priority_agent: true,
        matched: matched.as_ref(),
    };
    let registry = Registry::builtin().add(SLOW_RENO, |parameters| {
        Ok(box_algorithm(SlowReno {
            inner: LossBasedAlgorithm::new(Reno, WindowOptions::default(), SlowStartExit::Off),
            takes: parameters.read("takes", Duration::ZERO)?,
        }))
    });
    let runs = turns.run(&TrafficEnds::loopback()?, options, &registry, progress)?;
    tables(&runs)
}

/// Returns the kernel's own algorithm, and ccplane's with a report for every ACK and every 10 ms.
fn with_reports(algorithm: &str) -> Vec<Contender> {
    let ours = ["ack", "10ms"].map(|every| Contender::ccplane_with(algorithm, "report", every));
    [&[Contender::native(algorithm)][..], &ours].concat()
}

/// Returns the highest rate, Gbit/s, that native Reno reaches with 64 flows and CPU to spare in a
/// run of a second, and a pair of devices with that rate. If it reaches none of the higher ones, it
/// is the lowest, untried. The choice is kept, so that all runs have the same rate. A disturbed run
/// only selects a lower rate than possible, at which CPU use can be compared as well.
fn limited(options: &Options, registry: &Registry) -> Result<(u64, TrafficEnds), Error> {
    /// The paper's 10 Gbit/s, and the alternatives for slower machines.
    const RATES_GBIT: [u64; 4] = [10, 5, 2, 1];
    /// Share of all CPUs that native traffic may use. With more, the cost of a datapath would
    /// reduce the throughput instead of raising CPU use; with far less, noise dominates.
    const CPU_SHARE_MAX: f64 = 0.6;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let (parts, key) = (options.parts(), format!("{cpus} CPUs"));
    let make = |gbit: u64| wire::make(Some(Rate::from_bits_per_sec(gbit * 1_000_000_000)));
    if let Some(gbit) = parts.kept::<u64>("rate.json", &key) {
        return Ok((gbit, make(gbit)?));
    }
    let second = Duration::from_secs(1);
    let [higher @ .., lowest] = &RATES_GBIT;
    for gbit in higher {
        let ends = make(*gbit)?;
        let load = Load::new(64, second, second);
        let run = one(&ends, &Contender::native("reno"), load, registry)?;
        if run.goodput_gbit > 0.9 * *gbit as f64
            && run.machine_cpu_percent < CPU_SHARE_MAX * cpus as f64 * 100.0
        {
            parts.keep("rate.json", &key, gbit)?;
            return Ok((*gbit, ends));
        }
    }
    parts.keep("rate.json", &key, lowest)?;
    Ok((*lowest, make(*lowest)?))
}

/// Runs of several contenders, in turns.
struct Turns<'a> {
    /// Name of the path, in the names of runs.
    place: &'a str,
    flows: &'a [usize],
    /// The first is the reference of the others.
    contenders: &'a [Contender],
    rounds: usize,
    length: Duration,
    /// Runs agents' threads at a lower priority than senders.
    low_priority_agent: bool,
    /// After each run of this contender, the first one runs next to a thread that computes as much
    /// as the agent did.
    matched: Option<&'a Contender>,
}

/// One run of [`Turns`].
struct Turn {
    place: String,
    flows: usize,
    contender: Contender,
    round: usize,
    /// Contender whose computation was matched.
    matched: Option<String>,
    rate_gbit: Option<u64>,
    run: LoopbackRun,
}

impl Turns<'_> {
    /// Makes all runs. Kept runs are not repeated, except disturbed ones of a complete experiment
    /// ([`Options::parts_of`]).
    fn run(
        &self,
        ends: &TrafficEnds,
        options: &Options,
        registry: &Registry,
        progress: &dyn Progress,
    ) -> Result<Vec<Turn>, Error> {
        let mut order = Vec::new();
        for flows in self.flows {
            for round in 0..self.rounds {
                let of_round = self.contenders.iter().map(|one| (*flows, round, one));
                order.extend(of_round);
            }
        }
        let key = |flows: usize| {
            let priority = if self.low_priority_agent {
                ", agents behind"
            } else {
                ""
            };
            let (place, length, buffer) = (self.place, self.length, buffer(flows));
            format!("{place} {length}, buffers of {buffer} bytes{priority}")
        };
        let file = |(flows, round, contender): &(usize, usize, &Contender)| {
            // An address contains a path.
            let contender = contender.to_string().replace([':', '=', '/', '?'], "-");
            let name = format!("{}-{flows}-{contender}-{round}.json", self.place);
            (name, key(*flows))
        };
        let parts = options.parts_of::<LoopbackRun>(order.iter().map(file));
        let judge = |run: &LoopbackRun| Disturbed::from(&run.disturbed);
        let mut turns = Vec::new();
        for (done, turn) in order.iter().enumerate() {
            let (flows, round, contender) = *turn;
            let what = format!("{flows} flows, {contender}, round {}", round + 1);
            progress.on_progress(done as f64 / order.len() as f64, &what);
            if progress.is_cancelled() {
                return Err(Error::Interrupted);
            }
            let load = Load {
                low_priority_agent: self.low_priority_agent,
                // The paper's samples are a second apart.
                ..Load::new(flows, self.length, self.length.min(Duration::from_secs(1)))
            };
            let (name, key) = file(turn);
            let run = parts.part(&name, &key, judge, || one(ends, contender, load, registry))?;
            let turn = |contender: &Contender, matched, run| Turn {
                place: self.place.to_owned(),
                flows,
                contender: contender.clone(),
                round,
                matched,
                rate_gbit: None,
                run,
            };
            let agent_cpu_percent = run.agent_cpu_percent;
            turns.push(turn(contender, None, run));
            if let Some(first) = self.contenders.first()
                && self.matched == Some(contender)
            {
                let load = Load {
                    burn_percent: Some(agent_cpu_percent),
                    ..load
                };
                // After a repeated run it is another one.
                let key = format!("{key}, beside {agent_cpu_percent:.1} % of a CPU");
                let name = format!("{}-{flows}-matched-{round}.json", self.place);
                let run = parts.part(&name, &key, judge, || one(ends, first, load, registry))?;
                turns.push(turn(first, Some(contender.to_string()), run));
            }
        }
        Ok(turns)
    }
}

/// Returns one row per run, and the samples of goodput and of the machine's CPU use.
fn tables(turns: &[Turn]) -> Result<Tables, Error> {
    let (mut runs, mut samples) = (Vec::new(), Vec::new());
    for turn in turns {
        let contender = turn.contender.to_string();
        let next_to = turn.matched.as_ref().map_or("", |_| " matched");
        let name = format!(
            "{} {} {contender}{next_to} {}",
            turn.place, turn.flows, turn.round
        );
        let mut row = json!({
            "run": name,
            "place": if turn.rate_gbit.is_some() { "limited" } else { "loopback" },
            "flows": turn.flows,
            "contender": contender,
            "round": turn.round,
            "matched": turn.matched,
            "rate_gbit": turn.rate_gbit,
        });
        if let (Value::Object(row), Ok(Value::Object(mut values))) =
            (&mut row, serde_json::to_value(&turn.run))
        {
            values.remove("goodputs_gbit");
            values.remove("machine_cpu_percents");
            values.remove("disturbed");
            row.append(&mut values);
            let disturbances = disturbances_cell(&turn.run.disturbed);
            row.insert("disturbances".into(), disturbances.into());
        }
        runs.push(row);
        let of_run = turn.run.goodputs_gbit.iter();
        let of_run = of_run.zip(&turn.run.machine_cpu_percents);
        samples.extend(of_run.map(
            |(gbit, percent)| json!({ "run": name, "goodput_gbit": gbit, "cpu_percent": percent }),
        ));
    }
    let mut tables = Tables::default();
    tables.add("runs", &runs)?;
    tables.add("samples", &samples)?;
    Ok(tables)
}

const SLOW_RENO: AlgorithmDoc = AlgorithmDoc {
    name: "slow_reno",
    doc: "Reno whose callback computes for a while",
    parameters: &[ParameterDoc {
        name: "takes",
        default: "0us",
        values: "a duration such as 100us",
        doc: "how long each callback computes",
    }],
};

/// Reno whose callback keeps its thread busy for a while before it decides.
struct SlowReno<A> {
    inner: A,
    takes: Duration,
}

impl<A: Algorithm> Algorithm for SlowReno<A> {
    type Flow = A::Flow;

    fn name(&self) -> &str {
        SLOW_RENO.name
    }

    fn programs(&self) -> Programs {
        self.inner.programs()
    }

    fn required_capabilities(&self) -> Capabilities {
        self.inner.required_capabilities()
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> A::Flow {
        self.inner.open(info, control)
    }

    fn on_report(&mut self, flow: &mut A::Flow, report: &Report<'_>, control: &mut Control<'_>) {
        let until = monotonic_ns() + self.takes.as_nanos();
        while monotonic_ns() < until {
            std::hint::spin_loop();
        }
        self.inner.on_report(flow, report, control);
    }
}
