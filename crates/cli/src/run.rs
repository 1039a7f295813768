//! `ccplane run`: algorithms one after the other on a link or network, on real packets or in the simulator.

mod sim;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ccplane_agent::link::AgentAddress;
use ccplane_emu::Timing;
use ccplane_lab::result::{ContenderResult, RunResult};
use ccplane_lab::scenario::{ReadError, Scenario, Seeds};
use ccplane_lab::{Carrier, Contender, Error, Experiment, Progress, RemoteAgent, on_real_packets};
use ccplane_qdisc::{LossModel, QueueSpec};
use ccplane_report::Provenance;
use ccplane_units::{Duration, Rate};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use crate::Registry;
use crate::attach::remote::{may_be_silent, names};
use crate::exit::{Failure, Kind};
use crate::{doctor, emu, interrupt};

/// The experiment.
#[derive(Args)]
pub struct RunArgs {
    /// A scenario: network, workloads and contenders from a file (docs/scenarios.md), instead of the options below; or the
    /// name of one that comes with ccplane, such as `02-fairness`.
    #[arg(value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Where the packets run. Without it a scenario runs in the simulator, `--transport rc3` over UDP, everything else on kernel TCP.
    #[arg(long, value_enum)]
    datapath: Option<Datapath>,
    /// ccplane's algorithms, separated by commas; with parameters: `cubic:report=10ms:hystart=off`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    alg: Vec<Contender>,
    /// What to compare with, separated by commas: the datapath's own (`native:cubic`) or others of ccplane's.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    vs: Vec<Contender>,
    /// Let an agent in another process run ccplane's algorithms, on real packets: `unix:PATH` of a `ccplane agent --unix PATH`,
    /// `ccp:PATH` of a CCP agent such as portus.
    #[arg(long, value_name = "ADDRESS")]
    agent: Option<AgentAddress>,
    /// Owner's limit for a CCP agent, which has no heartbeats: it counts as silent this long after its last message.
    #[arg(long, value_name = "TIME", requires = "agent")]
    silence: Option<Duration>,
    /// The transport in the simulator and over UDP: plain, or with RC3's second loop, which sends the end of each flow at lower
    /// priority. The bottleneck needs priorities, such as `--queue prio:6:shared:1bdp`.
    #[arg(long, value_enum, default_value = "plain", conflicts_with = "scenario")]
    transport: TransportArg,
    /// Rate of the bottleneck.
    #[arg(long, default_value = "96mbit", conflicts_with_all = ["trace", "scenario"])]
    rate: Rate,
    /// Bottleneck that follows a trace of packet delivery opportunities (Mahimahi's format) instead of a fixed rate.
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    trace: Option<PathBuf>,
    /// Round-trip time without a queue.
    #[arg(long, default_value = "20ms", conflicts_with = "scenario")]
    rtt: Duration,
    /// The bottleneck's queue: `droptail:` and a size in BDP, packets or bytes (`1bdp`, `160p`, `240kB`, `inf`), or another
    /// of those in docs/scenarios.md, such as `fq_codel`.
    #[arg(long, default_value = "droptail:1bdp", conflicts_with = "scenario")]
    queue: String,
    /// Packets that are lost at random on the way to the receiver: a share, or `gilbert:p=1%:r=25%` for losses in bursts.
    #[arg(long, default_value = "0%", conflicts_with = "scenario")]
    loss: LossModel,
    /// How the emulator of a run on real packets waits for a packet's time: `balanced` sleeps, `precise` spins, for a core.
    #[arg(long, value_enum, default_value = "balanced")]
    timing: TimingArg,
    /// Seed of everything random, the same for every contender; in the simulator also several, each a run of its own:
    /// `1..50`.
    #[arg(long, alias = "seed", value_name = "SEEDS")]
    seeds: Option<Seeds>,
    /// Connections a contender.
    #[arg(long, default_value_t = 1, conflicts_with = "scenario")]
    flows: usize,
    /// For how long each contender sends.
    #[arg(long, default_value = "15s", conflicts_with = "scenario")]
    duration: Duration,
    /// Time between two samples of each socket.
    #[arg(long, default_value = "20ms", conflicts_with = "scenario")]
    sample: Duration,
    /// Threads of the simulator; without it as many as there are CPUs. The result does not depend on it.
    #[arg(long)]
    threads: Option<usize>,
    /// Keeps every packet of the bottleneck, drops included, in pcapng files that Wireshark reads (simulator only; in the
    /// folder `packets` of the results).
    #[arg(long)]
    pcap: bool,
    /// Folder for summary.json, series.csv, flows.csv and report.html.
    #[arg(long, default_value = "ccplane-results")]
    out: PathBuf,
}

/// Where packets run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Datapath {
    /// The discrete-event simulator, in virtual time.
    Sim,
    /// This host's kernel TCP behind an emulated link, in real time, as root.
    Linux,
    /// ccplane's own transport over UDP behind an emulated link, in real time, as root.
    Udp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TransportArg {
    Plain,
    Rc3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TimingArg {
    Balanced,
    Precise,
}

impl From<TimingArg> for Timing {
    fn from(timing: TimingArg) -> Timing {
        match timing {
            TimingArg::Balanced => Timing::Balanced,
            TimingArg::Precise => Timing::Precise,
        }
    }
}

/// Runs the command.
pub fn run(args: RunArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    let second_loop = args.transport == TransportArg::Rc3;
    if args.agent.is_some()
        && (args.datapath == Some(Datapath::Sim) || (args.datapath.is_none() && args.scenario.is_some()))
    {
        return Err(Failure::text(
            Kind::Usage,
            "--agent is for real packets: virtual time does not wait for another process",
        )
        .hint("add `--datapath linux` or `--datapath udp`"));
    }
    let carrier = match args.datapath {
        Some(Datapath::Sim) => return sim::run(&args, registry, json),
        None if args.scenario.is_some() => return sim::run(&args, registry, json),
        // Kernel TCP has no second loop.
        None if second_loop => Carrier::Udp { second_loop },
        Some(Datapath::Udp) => Carrier::Udp { second_loop },
        None | Some(Datapath::Linux) => Carrier::Tcp,
    };
    let out = args.out.clone();
    if second_loop && carrier == Carrier::Tcp {
        return Err(Failure::text(
            Kind::Usage,
            "kernel TCP has no second loop, which `--transport rc3` asks for",
        )
        .hint("`--datapath udp` has it on real packets, `--datapath sim` in the simulator"));
    }
    if args.pcap {
        return Err(
            Failure::text(Kind::Usage, "--pcap keeps the packets of simulated links")
                .hint("add `--datapath sim`; on real packets, `tcpdump` sees the namespaces"),
        );
    }
    let agent = remote_agent(&args)?;
    let experiment = Experiment {
        agent,
        ..experiment(args)?
    };
    let steers = carrier == Carrier::Tcp && !experiment.contenders.iter().all(Contender::is_native);
    let needs: &[doctor::Need] = if !steers {
        &[doctor::Need::Emulator]
    } else {
        &[doctor::Need::Emulator, doctor::Need::KernelTcp]
    };
    doctor::require(needs)?;
    // Before the load is our own.
    let provenance = Provenance::now(crate::build(), command_line(), false);
    let stop = interrupt::flag()?;
    let mut progress = Bar::new(&experiment, stop);
    let result = ccplane_lab::run_over(carrier, &experiment, registry, &mut progress).map_err(failure)?;
    progress.bar.finish_and_clear();
    let page = ccplane_lab::files::write(&result, &out, &provenance).map_err(|e| Failure::new(Kind::Failed, e))?;
    print(&result, &page, json);
    warn(&result);
    Ok(())
}

/// The agent of the command line, with contenders that it may run.
fn remote_agent(args: &RunArgs) -> Result<Option<RemoteAgent>, Failure> {
    let Some(address) = args.agent.clone() else {
        return Ok(None);
    };
    may_be_silent(&address, args.silence)?;
    let ours = |contender: &&Contender| !contender.is_native();
    let ours: Vec<Contender> = args.alg.iter().chain(&args.vs).filter(ours).cloned().collect();
    names(&ours, &address)?;
    let silence = args.silence;
    Ok(Some(RemoteAgent { address, silence }))
}

fn experiment(args: RunArgs) -> Result<Experiment, Failure> {
    let usage = |e: &dyn std::error::Error| Failure::text(Kind::Usage, e.to_string());
    if let Some(file) = &args.scenario {
        let scenario = scenario(file, &args)?;
        let seeds = args.seeds.unwrap_or(scenario.seeds);
        let timing = args.timing.into();
        let experiment = on_real_packets(&scenario, seeds, command_line()).map_err(failure)?;
        return Ok(Experiment { timing, ..experiment });
    }
    let seeds = args.seeds.unwrap_or(Seeds::one(1));
    if seeds.count() > 1 {
        return Err(Failure::text(
            Kind::Usage,
            format!("real packets run with one seed, not with {}", seeds.count()),
        )
        .hint("give one, as `--seeds 7`; or run in the simulator, with `--datapath sim`"));
    }
    let queue: QueueSpec = args.queue.parse().map_err(|e| usage(&e))?;
    let line = emu::line(Some(args.rate), args.trace.as_deref())?.expect("the rate has a default");
    let line_name = args
        .trace
        .as_ref()
        .map_or_else(|| args.rate.to_string(), |file| file.display().to_string());
    Ok(Experiment {
        contenders: args.alg.into_iter().chain(args.vs).collect(),
        line,
        line_name,
        rtt: args.rtt,
        queue,
        queue_name: args.queue,
        loss: args.loss,
        jitter: Duration::ZERO,
        reorder: false,
        timing: args.timing.into(),
        seed: seeds.first(),
        flows: args.flows,
        duration: args.duration,
        sample_every: args.sample,
        agent: None,
        command: command_line(),
    })
}

/// The scenario of a file, with the contenders of the command line where it has some.
fn scenario(file: &Path, args: &RunArgs) -> Result<Scenario, Failure> {
    let mut scenario = Scenario::find(file).map_err(|error| failure(Error::ScenarioFile(error)))?;
    let given: Vec<Contender> = args.alg.iter().chain(&args.vs).cloned().collect();
    if !given.is_empty() {
        if scenario.contenders.is_empty() {
            return Err(Failure::text(
                Kind::Usage,
                format!("every workload of {} names its own algorithm", file.display()),
            )
            .hint("remove the `algorithm` of the workload that --alg is to run"));
        }
        scenario.contenders = given;
    }
    Ok(scenario)
}

/// The command line of this process, as a shell takes it.
pub fn command_line() -> String {
    let quote = |word: String| {
        let plain = !word.is_empty()
            && word
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_./:,=%@+".contains(c));
        if plain {
            word
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    std::iter::once("ccplane".to_owned())
        .chain(std::env::args().skip(1).map(quote))
        .collect::<Vec<_>>()
        .join(" ")
}

/// The exit code of an error of the lab.
pub fn failure(error: Error) -> Failure {
    let error = match error {
        Error::Scenario(problem) | Error::ScenarioFile(ReadError::Problem(problem)) => {
            return Failure::diagnostic(Kind::Usage, problem);
        }
        error => error,
    };
    let kind = match error {
        Error::Bad { .. }
        | Error::NoContender
        | Error::ScenarioFile(_)
        | Error::NotOnLinux { .. }
        | Error::Occupied { .. }
        | Error::UnknownControl { .. }
        | Error::UnknownNative { .. }
        | Error::UnknownQuestion { .. }
        | Error::Algorithm(_)
        | Error::Emulator(ccplane_emu::Error::Queue { .. }) => Kind::Usage,
        Error::NoPermission { .. } => Kind::Unsupported,
        _ => Kind::Failed,
    };
    Failure::new(kind, error)
}

/// A bar of percent on a terminal, nothing in a pipe.
pub fn percent_bar() -> ProgressBar {
    bar(100)
}

fn bar(length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:40} [{bar:30}] {percent:>3}%  {eta} left");
    ProgressBar::new(length).with_style(style.expect("a constant template is valid").progress_chars("=> "))
}

/// A bar on a terminal, nothing in a pipe.
struct Bar {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
    label: String,
    done: u64,
    each_ms: u64,
}

impl Bar {
    fn new(experiment: &Experiment, stop: Arc<AtomicBool>) -> Bar {
        let each_ms = experiment.duration.as_millis();
        let bar = bar(each_ms * experiment.contenders.len() as u64);
        Bar {
            bar,
            stop,
            label: String::new(),
            done: 0,
            each_ms,
        }
    }
}

impl Progress for Bar {
    fn begin(&mut self, contender: &str, index: usize, _of: usize) {
        self.done = index as u64 * self.each_ms;
        self.label = contender.to_owned();
        self.bar.set_message(self.label.clone());
        self.bar.set_position(self.done);
    }
    fn step(&mut self, share: f64, goodput_mbit: f64) {
        self.bar
            .set_message(format!("{:<22} {goodput_mbit:7.1} Mbit/s", self.label));
        self.bar.set_position(self.done + (share * self.each_ms as f64) as u64);
    }
    fn end(&mut self, _result: &ContenderResult) {
        self.bar.set_position(self.done + self.each_ms);
    }
    fn cancelled(&self) -> bool {
        interrupt::raised(&self.stop)
    }
}

fn print(result: &RunResult, page: &std::path::Path, json: bool) {
    let page = std::fs::canonicalize(page).unwrap_or_else(|_| page.to_owned());
    if json {
        let mut object = ccplane_lab::files::summary(result);
        object["report"] = page.display().to_string().into();
        println!("{object}");
    } else {
        println!("{}", ccplane_lab::table::of_run(result).text());
        if let Some(completions) = ccplane_lab::table::of_completions(result) {
            println!("{}", completions.text());
        }
        if let Some(second_loops) = ccplane_lab::table::of_second_loops(result) {
            println!("{}", second_loops.text());
        }
        println!("report: {}", page.display());
    }
}

/// Says where the link did not behave as asked. The figures stand, with `sound: false` beside them, for the reader to
/// judge: one stall of a busy machine in a minute is no reason to throw the minute away.
fn warn(result: &RunResult) {
    for (label, complaint) in result.complaints() {
        tracing::warn!("{label}: {complaint}");
    }
}
