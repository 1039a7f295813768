//! Arguments of `ccplane paper`, which the program `ccplane-paper` implements.

use std::path::PathBuf;

use ccplane_lab::Contender;
use clap::{Args, ValueEnum};

/// Arguments of `paper`.
#[derive(Args)]
pub struct PaperArgs {
    /// Name of the experiment, the script of your own (`mine.py`; docs/papers.md), or `list`.
    pub name: String,
    /// Algorithms of agents in other processes to measure as well on kernel TCP, such as
    /// `reno@ccp:/tmp/ccp/portus`: for experiments whose algorithms the paper's authors published
    /// as an agent (docs/papers.md).
    #[arg(value_name = "AGENT")]
    pub agents: Vec<Contender>,
    /// Make fewer and shorter runs, in less than two minutes: a check that the experiment works,
    /// not results to quote.
    #[arg(long)]
    pub quick: bool,
    /// Datapath to run on; without it, every datapath that the experiment supports.
    #[arg(long, value_enum)]
    pub datapath: Option<PaperBackend>,
    /// Number of runs on kernel TCP, in place of the experiment's own (see `list`): fewer give a
    /// first answer in less time. The same command with a higher number continues from there.
    #[arg(long, value_name = "N")]
    pub repeats: Option<usize>,
    /// Reuse cached parts from other builds of ccplane as well: for a long experiment that spans
    /// code changes which cannot affect its results. Only for experiments with a program of their
    /// own: the runs of a sweep depend on behaviour, not on builds.
    #[arg(long)]
    pub any_build: bool,
    /// Folder for parts and results; without it `ccplane-results/NAME`, or `NAME-quick` with
    /// --quick. Existing parts are reused, so the same command resumes an interrupted experiment;
    /// once the page exists, it repeats the runs that were disturbed.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Use that folder even if it contains other files.
    #[arg(long)]
    pub force: bool,
}

/// Datapath of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PaperBackend {
    /// The simulator, in virtual time.
    Sim,
    /// This host's kernel TCP, in real time, as root, on an otherwise idle machine.
    Linux,
}
