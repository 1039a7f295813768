//! The command line of `ccplane paper`, which the program `ccplane-paper` runs.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Which experiment.
#[derive(Args)]
pub struct PaperArgs {
    /// Its name, or a file of your own (`mine.toml`; docs/papers.md), or `list`.
    pub name: String,
    /// In less than two minutes, with fewer and shorter runs: to see that it works, not to quote.
    #[arg(long)]
    pub quick: bool,
    /// Only there; without it, wherever the experiment runs.
    #[arg(long, value_enum)]
    pub datapath: Option<PaperBackend>,
    /// A recorded cellular link (Mahimahi's format), for experiments that have one; without it one
    /// is generated.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Threads of the simulator; without it as many as there are CPUs. The result does not depend
    /// on it.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Every run on kernel TCP so often, and not as often as the experiment has it (see `list`): a
    /// first answer in less time. The same command with more goes on from there.
    #[arg(long, value_name = "N")]
    pub repeats: Option<usize>,
    /// Use parts again that another build of ccplane made, too: for a long experiment that outlasts
    /// changes which cannot have moved its figures. The page says how many there are.
    #[arg(long)]
    pub any_build: bool,
    /// Folder for parts and results; without it `ccplane-results/NAME`, and `NAME-quick` with
    /// --quick. Parts that are there already are used again, so that the same command goes on where
    /// it was interrupted; once there is a page, it repeats those that were disturbed.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Use that folder although it holds something else.
    #[arg(long)]
    pub force: bool,
}

/// Where packets run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PaperBackend {
    /// The simulator, in virtual time.
    Sim,
    /// This host's kernel TCP, in real time, as root, on a machine that is otherwise idle.
    Linux,
}
