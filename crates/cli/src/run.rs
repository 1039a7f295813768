//! `ccplane run`: runs algorithms one after another on a link or network, on real packets or in the
//! simulator.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ccplane_lab::result::{RunResult, Setup};
use ccplane_lab::scenario::{Capacity, ReadError, Scenario, Seeds, SingleLink};
use ccplane_lab::{Backend, Contender, Error, Progress, ResumableBackend, RunOptions, Sim, files};
use ccplane_qdisc::LossModel;
use ccplane_report::Provenance;
use ccplane_units::{Duration, Rate};
use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use crate::Registry;
use crate::escape::printable;
use crate::exit::{Failure, FailureKind};
#[cfg(feature = "host")]
use crate::remote_agent::RemoteAgentArgs;
use crate::threads::threads;
use crate::{interrupt, results};

// Backends for real packets; in the core, a hand-over to the installed command.
#[cfg_attr(not(feature = "host"), path = "run/handed_over.rs")]
mod packets;

use packets::Stack;
pub use packets::backend_of_sweep;

#[derive(Args)]
pub struct RunArgs {
    /// Scenario file with network, workloads and contenders (docs/scenarios.md), in place of the
    /// options below; or the name of a scenario that comes with ccplane, such as `02-fairness`; or
    /// `-` for standard input.
    #[arg(value_name = "FILE")]
    scenario: Option<PathBuf>,
    /// Datapath to run on. The default is the simulator, which needs no privileges. Without a FILE,
    /// a contender `native:NAME` is the kernel's own, which makes `linux` the default.
    #[arg(long, value_enum)]
    datapath: Option<RunDatapath>,
    /// Algorithms of ccplane, separated by commas, with parameters:
    /// `cubic:report=10ms:hystart=off`. On real packets also algorithms of agents in other
    /// processes: `reno@ccp:/tmp/ccp/portus`, with an address as in --agent.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    alg: Vec<Contender>,
    /// Contenders to compare with, separated by commas: built into the datapath (`native:cubic`) or
    /// other algorithms of ccplane.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    vs: Vec<Contender>,
    #[cfg(feature = "host")]
    #[command(flatten)]
    remote_agent: RemoteAgentArgs,
    /// Transport in the simulator and over UDP: plain, or with RC3's second loop, which sends the
    /// end of each flow at lower priority. The bottleneck then needs priorities, such as `--queue
    /// prio:6:shared:1bdp`.
    #[arg(long, value_enum, default_value = "plain", conflicts_with = "scenario")]
    transport: TransportArg,
    /// Rate of the bottleneck.
    #[arg(long, default_value = "96mbit", conflicts_with_all = ["trace", "scenario"])]
    rate: Rate,
    /// Trace of packet delivery opportunities (Mahimahi's format) for the bottleneck, in place of a
    /// fixed rate.
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    trace: Option<PathBuf>,
    /// Round-trip time without queueing.
    #[arg(long, default_value = "20ms", conflicts_with = "scenario")]
    rtt: Duration,
    /// Queue of the bottleneck: `droptail:` and a size in BDP, packets or bytes (`1bdp`, `160p`,
    /// `240kB`, `inf`), or another type from docs/scenarios.md, such as `fq_codel`.
    #[arg(long, default_value = "droptail:1bdp", conflicts_with = "scenario")]
    queue: String,
    /// Random loss towards the receiver: a share, or `gilbert:p=1%:r=25%` for bursts of losses.
    #[arg(long, default_value = "0%", conflicts_with = "scenario")]
    loss: LossModel,
    /// Seed of all random numbers, the same for every contender, or a range with one run per seed:
    /// `1..50`. On real packets, the runs of the contenders are interleaved, with random losses and
    /// start times drawn anew, and the results are means with 95 % confidence intervals.
    #[arg(long, alias = "seed", value_name = "SEEDS")]
    seeds: Option<Seeds>,
    /// Connections per contender.
    #[arg(long, default_value_t = 1, conflicts_with = "scenario")]
    flows: u32,
    /// Sending time of each contender.
    #[arg(long, default_value = "15s", conflicts_with = "scenario")]
    duration: Duration,
    /// Write every packet of the bottleneck, drops included, to pcapng files for Wireshark
    /// (simulator only; in the folder `packets` of the results).
    #[arg(long)]
    pcap: bool,
    /// Folder for summary.json, series.csv, flows.csv and report.html; without it a new one,
    /// `ccplane-results/run-N`.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Replace the results of another run in that folder, once the new ones are complete.
    #[arg(long, requires = "out")]
    force: bool,
    /// Continue an interrupted run in that folder: runs that are finished are not repeated. The
    /// contenders and seeds may be others; a run with another scenario, algorithm or build of
    /// ccplane is repeated.
    #[arg(long, requires = "out", conflicts_with_all = ["force", "pcap"])]
    resume: bool,
    /// Open the page in a browser: the program of `$BROWSER`, otherwise `xdg-open`.
    #[arg(long)]
    open: bool,
}

/// Datapath of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunDatapath {
    /// The simulator.
    Sim,
    /// Kernel TCP.
    Linux,
    /// ccplane's transport over UDP.
    Udp,
    /// A QUIC stack.
    Quic(Stack),
}

impl ValueEnum for RunDatapath {
    fn value_variants<'a>() -> &'a [RunDatapath] {
        &[
            RunDatapath::Sim,
            RunDatapath::Linux,
            RunDatapath::Udp,
            RunDatapath::Quic(Stack::Noq),
            RunDatapath::Quic(Stack::Quinn),
            RunDatapath::Quic(Stack::S2n),
        ]
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        let (name, help) = match self {
            RunDatapath::Sim => ("sim", "The discrete-event simulator, in virtual time"),
            RunDatapath::Linux => (
                "linux",
                "This host's kernel TCP behind an emulated link, in real time, as root",
            ),
            RunDatapath::Udp => (
                "udp",
                "ccplane's own transport over UDP behind an emulated link, in real time, as root",
            ),
            RunDatapath::Quic(Stack::Noq) => (
                "quic",
                "QUIC by noq behind an emulated link, in real time, as root",
            ),
            RunDatapath::Quic(Stack::Quinn) => {
                ("quic:quinn", "QUIC by quinn, if built in (feature `quinn`)")
            }
            RunDatapath::Quic(Stack::S2n) => {
                ("quic:s2n", "QUIC by s2n-quic, if built in (feature `s2n`)")
            }
        };
        Some(PossibleValue::new(name).help(help))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TransportArg {
    Plain,
    Rc3,
}

pub fn run(args: RunArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    let datapath = datapath(&args)?;
    let scenario = match &args.scenario {
        Some(file) => from_file(file, &args)?,
        None => from_options(&args)?,
    };
    let seeds = seeds(&args, &scenario, datapath);
    let threads = threads()?;
    let real = match datapath {
        RunDatapath::Sim => None,
        _ => Some(packets::backend(&args, datapath, &scenario, registry)?),
    };
    let stop = interrupt::flag()?;
    let folder = match args.out.as_deref().filter(|_| args.resume) {
        Some(out) => results::ResultFolder::resume(out)?,
        None => results::ResultFolder::open(args.out.as_deref(), args.force)?,
    };
    let out = folder.staging();
    let backend: Box<dyn Backend> = real.unwrap_or_else(|| {
        Box::new(Sim {
            packet_logs: args.pcap.then(|| out.join("packets")),
        })
    });
    let command = command_line();
    // Recorded first: later the load of the host is our own.
    let provenance = Provenance::now(crate::build(), command.clone(), false);
    let options = RunOptions {
        seeds,
        threads,
        repeat_command: without_seeds(&command),
        command,
    };
    let shown = RunProgress {
        bar: percent_bar(),
        stop,
        json,
        out,
        unwritten: AtomicBool::new(false),
    };
    // A single run has no finished part. Packets are not stored with a run.
    let is_stored = !args.pcap && (seeds.count() > 1 || scenario.contenders.len() > 1);
    let resumable =
        ResumableBackend::new(&*backend, &folder.finished_runs(), input_hash(&scenario));
    let backend: &dyn Backend = if is_stored { &resumable } else { &*backend };
    let outcome = ccplane_lab::run_keeping(backend, &scenario, registry, &options, &shown);
    shown.bar.finish_and_clear();
    if args.resume && !json {
        let all = seeds.count() * scenario.contenders.len().max(1) as u64;
        println!(
            "resumed: {} of {all} runs were finished",
            resumable.reused()
        );
    }
    if shown.unwritten.load(Ordering::Relaxed) {
        tracing::warn!(
            "cannot write the results of some seeds to {}",
            out.display()
        );
    }
    let (result, stopped) = match outcome {
        Ok(result) => (Some(result), None),
        Err(stopped) => {
            let failure = match &args.scenario {
                Some(_) => failure(stopped.error),
                None => options_failure(stopped.error, &args),
            };
            (stopped.finished, Some(failure))
        }
    };
    let Some(result) = result else {
        let nothing = |failure: Failure| match failure.kind {
            FailureKind::Interrupted => failure.add_hint("no run is complete"),
            _ => failure,
        };
        return stopped.map_or(Ok(()), |failure| Err(nothing(failure)));
    };
    let (page, failure) = match write(&result, &scenario, &provenance, out) {
        Ok(page) => match stopped {
            None => (Some(folder.complete()?.join(page)), None),
            Some(failure) => (
                Some(out.join(page)),
                Some(failure.add_hint(folder.partial_results_note())),
            ),
        },
        Err(error) => {
            let failure = stopped.unwrap_or_else(|| Failure::new(FailureKind::Failed, error));
            let rescue =
                std::env::temp_dir().join(format!("ccplane-results-{}", std::process::id()));
            match write(&result, &scenario, &provenance, &rescue) {
                Ok(page) => {
                    let hint = format!(
                        "{} cannot be written to; the results are in {}",
                        out.display(),
                        rescue.display()
                    );
                    (Some(rescue.join(page)), Some(failure.add_hint(hint)))
                }
                Err(_) => (None, Some(failure)),
            }
        }
    };
    // With --json, the failure is the only object.
    if failure.is_none() || !json {
        print(&result, page.as_deref(), json);
    }
    if let Some(page) = page.as_deref().filter(|_| args.open) {
        results::open_page(page);
    }
    if !json && datapath == RunDatapath::Sim {
        println!("{}", speed(&result, &scenario, seeds));
    }
    warn(&result);
    failure.map_or(Ok(()), Err)
}

/// Returns a hash of what a run depends on besides its scenario and contender: this build, the
/// Python program that runs the command, and files of the workloads' algorithms.
fn input_hash(scenario: &Scenario) -> String {
    let mut hasher = DefaultHasher::new();
    // From Python, the executable of this process is the interpreter, which is the same for every
    // build of ccplane.
    crate::build().to_string().hash(&mut hasher);
    let program = std::env::args().skip(1).take_while(|word| word != "run");
    for file in program.filter(|word| Path::new(word).is_file()) {
        // A file that cannot be read is not the running program.
        std::fs::read(file).unwrap_or_default().hash(&mut hasher);
    }
    for workload in &scenario.workloads {
        let algorithm = workload.algorithm.as_ref();
        algorithm.map(ccplane_lab::program_file).hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

/// Writes page, metrics and scenario to a folder. Returns the name of the page.
fn write(
    result: &RunResult,
    scenario: &Scenario,
    provenance: &Provenance,
    folder: &Path,
) -> Result<&'static str, files::WriteError> {
    files::write(result, folder, provenance)?;
    files::write_scenario(&scenario.text, folder)?;
    Ok(files::PAGE_FILE)
}

/// Returns the contender that implies kernel TCP: without `--datapath`, `native:cubic` is the
/// kernel's own Cubic. A scenario file runs in the simulator, whose models `native:` also names.
/// Kernel TCP has no second loop, so RC3 implies the simulator.
fn implied_by(args: &RunArgs) -> Option<&Contender> {
    if args.datapath.is_some() || args.scenario.is_some() || args.transport == TransportArg::Rc3 {
        return None;
    }
    args.alg
        .iter()
        .chain(&args.vs)
        .find(|contender| contender.is_native())
}

/// Returns the datapath of the run, after checking options that some datapaths do not support.
fn datapath(args: &RunArgs) -> Result<RunDatapath, Failure> {
    let second_loop = args.transport == TransportArg::Rc3;
    let datapath = args.datapath.unwrap_or(match implied_by(args) {
        Some(_) => RunDatapath::Linux,
        None => RunDatapath::Sim,
    });
    let usage = |what, hint| Err(Failure::text(FailureKind::Usage, what).hint(hint));
    packets::check(args, datapath)?;
    if second_loop && matches!(datapath, RunDatapath::Linux | RunDatapath::Quic(_)) {
        return usage(
            "--transport rc3: kernel TCP and QUIC do not support a second loop",
            "use `--datapath udp` on real packets, or `--datapath sim` in the simulator",
        );
    }
    if args.pcap && datapath != RunDatapath::Sim {
        return usage(
            "--pcap supports only simulated links",
            "use `--datapath sim`; on real packets, run `tcpdump` in the namespaces",
        );
    }
    Ok(datapath)
}

/// Returns the seeds of the command line or of the scenario. A file's seeds are meant for the
/// simulator: real time makes one run, unless more are requested.
fn seeds(args: &RunArgs, scenario: &Scenario, datapath: RunDatapath) -> Seeds {
    args.seeds.unwrap_or(match datapath {
        RunDatapath::Sim => scenario.seeds,
        _ => Seeds::one(scenario.seeds.first()),
    })
}

/// Loads a scenario by file or name. Contenders on the command line replace its own.
fn from_file(file: &Path, args: &RunArgs) -> Result<Scenario, Failure> {
    let mut scenario = Scenario::find(file).map_err(|error| failure(Error::ScenarioFile(error)))?;
    let given: Vec<Contender> = args.alg.iter().chain(&args.vs).cloned().collect();
    if !given.is_empty() {
        if scenario.contenders.is_empty() {
            return Err(Failure::text(
                FailureKind::Usage,
                format!(
                    "--alg has no effect: every workload of {} sets its own algorithm",
                    file.display()
                ),
            )
            .hint("remove `algorithm` from the workloads that --alg should control"));
        }
        scenario.contenders = given;
    }
    Ok(scenario)
}

/// Builds the scenario of the options.
fn from_options(args: &RunArgs) -> Result<Scenario, Failure> {
    if args.alg.is_empty() && args.vs.is_empty() {
        return Err(failure(Error::NoContender));
    }
    let link = SingleLink {
        contenders: args.alg.iter().chain(&args.vs).cloned().collect(),
        duration: args.duration,
        rtt: args.rtt,
        capacity: match &args.trace {
            Some(file) => Capacity::Trace(file.clone()),
            None => Capacity::Rate(args.rate),
        },
        queue: args.queue.clone(),
        loss: args.loss,
        flows: args.flows,
        rc3: args.transport == TransportArg::Rc3,
    };
    let scenario = link.scenario();
    scenario.map_err(|problem| options_failure(Error::Scenario(problem), args))
}

/// Converts an error of a run without a file. A problem names the option instead of a line in a
/// text that the user did not write.
fn options_failure(error: Error, args: &RunArgs) -> Failure {
    let Error::Scenario(problem) = &error else {
        return failure(error);
    };
    let option = match SingleLink::setting_of(problem) {
        Some("contenders") => match (args.alg.as_slice(), args.vs.as_slice()) {
            (_, []) => "--alg".to_owned(),
            ([], _) => "--vs".to_owned(),
            _ => "--alg and --vs".to_owned(),
        },
        Some("duration" | "sample") => format!("--duration {}", args.duration),
        Some("rtt") => format!("--rtt {}", args.rtt),
        Some("trace") => {
            let file = args.trace.as_deref().unwrap_or(Path::new(""));
            format!("--trace {}", file.display())
        }
        Some("rate") => format!("--rate {}", args.rate),
        Some("queue") => format!("--queue {}", args.queue),
        Some("loss") => format!("--loss {}", args.loss),
        Some("bulk") => format!("--flows {}", args.flows),
        Some("rc3") => "--transport rc3".to_owned(),
        _ => return failure(error),
    };
    let text = format!("{option}: {}", problem.message());
    let usage = Failure::text(FailureKind::Usage, text);
    match problem.fix() {
        Some(fix) => usage.hint(fix),
        None => usage,
    }
}

/// Returns the command without its seeds, so that others can be added.
fn without_seeds(command: &str) -> String {
    let mut words = command.split(' ');
    let mut kept: Vec<&str> = Vec::new();
    while let Some(word) = words.next() {
        match word {
            "--seeds" | "--seed" => drop(words.next()),
            word if word.starts_with("--seeds=") || word.starts_with("--seed=") => {}
            word => kept.push(word),
        }
    }
    kept.join(" ")
}

/// Describes the speed of the simulation, and the digest by which results of two machines are
/// compared.
fn speed(result: &RunResult, scenario: &Scenario, seeds: Seeds) -> String {
    let simulated = ccplane_lab::sim::virtual_time(scenario, seeds);
    let wall: f64 = result.contenders.iter().filter_map(|c| c.host.wall_s).sum();
    let hops: u64 = result
        .contenders
        .iter()
        .filter_map(|c| c.audit.simulation.as_ref())
        .map(|a| a.hops)
        .sum();
    let digest = result.digest.as_deref().unwrap_or_default();
    format!(
        "{simulated} simulated in {wall:.3} s ({:.1} ns per packet and link); digest {digest}",
        wall * 1e9 / hops.max(1) as f64
    )
}

/// Environment variable with the command line of the program that handed over to this command.
pub const COMMAND_LINE_VARIABLE: &str = "CCPLANE_COMMAND_LINE";

/// Returns the command line of this process, or of the program that handed over to it, quoted for a
/// shell.
pub fn command_line() -> String {
    if let Ok(handed_over) = std::env::var(COMMAND_LINE_VARIABLE) {
        return handed_over;
    }
    quoted("ccplane")
}

/// Returns `first` and the arguments of this process, quoted for a shell.
pub(crate) fn quoted(first: &str) -> String {
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
    std::iter::once(first.to_owned())
        .chain(std::env::args().skip(1).map(quote))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Converts an error of the lab to a failure with its exit code.
pub fn failure(error: Error) -> Failure {
    let error = match error {
        Error::Scenario(problem) | Error::ScenarioFile(ReadError::Problem(problem)) => {
            return Failure::diagnostic(FailureKind::Usage, problem);
        }
        error => error,
    };
    let kind = match error {
        Error::InvalidParameter { .. }
        | Error::NoContender
        | Error::ScenarioFile(_)
        | Error::NotOnLinux { .. }
        | Error::DirectoryInUse { .. }
        | Error::UnknownControl { .. }
        | Error::RemoteInSimulator { .. }
        | Error::UnknownQuestion { .. }
        | Error::Algorithm(_) => FailureKind::Usage,
        Error::Interrupted => FailureKind::Interrupted,
        _ => packets::kind(&error).unwrap_or(FailureKind::Failed),
    };
    Failure::new(kind, error)
}

/// Returns a percentage bar for a terminal, hidden in a pipe.
pub fn percent_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:40} [{bar:30}] {percent:>3}%  {eta} left");
    ProgressBar::new(PROGRESS_STEPS).with_style(
        style
            .expect("a constant template is valid")
            .progress_chars("=> "),
    )
}

/// Length of a bar. Finer than percent, so that the remaining time is known early.
const PROGRESS_STEPS: u64 = 1_000;

/// Updates a bar with the share done, 0 to 1, and the current step.
pub fn show(bar: &ProgressBar, share: f64, what: &str) {
    bar.set_position((share * PROGRESS_STEPS as f64) as u64);
    let what = printable(what);
    if bar.message() != what {
        bar.set_message(what);
    }
}

/// Progress bar on a terminal, which Ctrl-C cancels.
pub struct BarProgress {
    pub bar: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl BarProgress {
    /// Shows the bar, and catches Ctrl-C.
    pub fn start() -> Result<BarProgress, Failure> {
        Ok(BarProgress {
            bar: percent_bar(),
            stop: interrupt::flag()?,
        })
    }
}

impl Progress for BarProgress {
    fn on_progress(&self, share: f64, what: &str) {
        show(&self.bar, share, what);
    }

    fn is_cancelled(&self) -> bool {
        interrupt::raised(&self.stop)
    }
}

/// Progress bar on a terminal. Also writes results of single seeds to folders of their own.
struct RunProgress<'a> {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
    json: bool,
    out: &'a Path,
    unwritten: AtomicBool,
}

impl Progress for RunProgress<'_> {
    fn on_start(&self, setup: &Setup) {
        if !self.json {
            println!("{}", setup.line());
        }
    }
    fn on_progress(&self, share: f64, what: &str) {
        show(&self.bar, share, what);
    }
    fn on_seed_done(&self, seed: u64, result: RunResult) {
        if files::write_metrics(&result, &self.out.join(format!("seed-{seed}"))).is_err() {
            self.unwritten.store(true, Ordering::Relaxed);
        }
    }
    fn is_cancelled(&self) -> bool {
        interrupt::raised(&self.stop)
    }
}

/// Width of notes next to tables, characters.
const NOTE_WIDTH_CHARACTERS: usize = 100;

fn print(result: &RunResult, page: Option<&Path>, json: bool) {
    let page = page.map(|page| std::fs::canonicalize(page).unwrap_or_else(|_| page.to_owned()));
    if json {
        let mut object = files::summary(result);
        object["report"] = page.map(|page| page.display().to_string()).into();
        println!("{object}");
    } else {
        for table in ccplane_lab::table::all(result) {
            println!("{}", table.to_text());
        }
        if !result.note.is_empty() {
            println!(
                "{}",
                ccplane_report::wrap(&result.note, NOTE_WIDTH_CHARACTERS)
            );
        }
        if let Some(page) = page {
            println!("report: {}", page.display());
        }
    }
}

/// Warns where the link did not behave as requested. The results stand, marked `sound: false`, for
/// the reader to judge: one stall of a busy machine is no reason to discard a minute of results.
fn warn(result: &RunResult) {
    for (label, complaint) in result.complaints() {
        tracing::warn!("{label}: {complaint}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_options_are_removed_from_the_repeated_command() {
        assert_eq!(
            without_seeds("ccplane run a.toml --seeds 1..50 --out b"),
            "ccplane run a.toml --out b"
        );
        assert_eq!(
            without_seeds("ccplane run a.toml --seed=3"),
            "ccplane run a.toml"
        );
    }
}
