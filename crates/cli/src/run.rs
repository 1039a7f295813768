//! `ccplane run`: algorithms one after the other on an emulated link, on real kernel TCP.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ccplane_lab::result::{ContenderResult, RunResult};
use ccplane_lab::{Contender, Error, Experiment, Progress};
use ccplane_qdisc::QueueSpec;
use ccplane_units::{Duration, Probability, Rate};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use crate::Registry;
use crate::exit::{Failure, Kind};
use crate::{doctor, emu, interrupt};

/// The experiment.
#[derive(Args)]
pub struct RunArgs {
    /// ccplane's algorithms, separated by commas; with parameters: `cubic:report=10ms:hystart=off`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    alg: Vec<Contender>,
    /// What to compare with, separated by commas: the kernel's own (`native:cubic`) or others of ccplane's.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    vs: Vec<Contender>,
    /// Rate of the bottleneck.
    #[arg(long, default_value = "96mbit", conflicts_with = "trace")]
    rate: Rate,
    /// Bottleneck that follows a trace of packet delivery opportunities (Mahimahi's format) instead of a fixed rate.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Round-trip time without a queue.
    #[arg(long, default_value = "20ms")]
    rtt: Duration,
    /// The bottleneck's queue: `droptail:` and a size in BDP, packets or bytes (`1bdp`, `160p`, `240kB`, `inf`).
    #[arg(long, default_value = "droptail:1bdp")]
    queue: String,
    /// Share of packets that are lost at random on the way to the receiver.
    #[arg(long, default_value = "0%")]
    loss: Probability,
    /// Seed of the random loss, the same for every contender.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Connections a contender.
    #[arg(long, default_value_t = 1)]
    flows: usize,
    /// For how long each contender sends.
    #[arg(long, default_value = "15s")]
    duration: Duration,
    /// Time between two samples of each socket.
    #[arg(long, default_value = "20ms")]
    sample: Duration,
    /// Folder for summary.json, series.csv, flows.csv and report.html.
    #[arg(long, default_value = "ccplane-results")]
    out: PathBuf,
}

/// Runs the command.
pub fn run(args: RunArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    let needs: &[doctor::Need] = if args.alg.iter().chain(&args.vs).all(Contender::is_native) {
        &[doctor::Need::Emulator]
    } else {
        &[doctor::Need::Emulator, doctor::Need::KernelTcp]
    };
    let out = args.out.clone();
    let experiment = experiment(args)?;
    doctor::require(needs)?;
    let stop = interrupt::flag()?;
    let mut progress = Bar::new(&experiment, stop);
    let result = ccplane_lab::run(&experiment, registry, &mut progress).map_err(failure)?;
    progress.bar.finish_and_clear();
    let page = ccplane_lab::files::write(&result, &out).map_err(|e| Failure::new(Kind::Failed, e))?;
    print(&result, &page, json);
    warn(&result);
    Ok(())
}

fn experiment(args: RunArgs) -> Result<Experiment, Failure> {
    let usage = |e: &dyn std::error::Error| Failure::text(Kind::Usage, e.to_string());
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
        seed: args.seed,
        flows: args.flows,
        duration: args.duration,
        sample_every: args.sample,
        command: command_line(),
    })
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
    let kind = match error {
        Error::Bad { .. }
        | Error::NoContender
        | Error::UnknownNative { .. }
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
        println!("{}", ccplane_lab::table::of_run(result));
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
