//! Published experiments: each runs what a paper reports, and compares its results with the paper's.
//!
//! Most are a sweep and a Python script in `papers/` ([`Script`]). An experiment that measures
//! something other than runs of a scenario is code, a file here for each figure.
#![forbid(unsafe_code)]
// Standard output may be closed or full: `ccplane::program::print_line` reports it at the end.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod ccp_fct;
mod ccp_group;
mod ccp_incast;
mod ccp_interval;
mod ccp_ipc;
mod ccp_scalability;
mod ccp_slow_algorithm;
mod command;
mod dx_accuracy;
mod loopback;
mod outside;
mod page;
mod rc3_fairness;
mod rc3_fct;
mod rc3_internet2;
mod rc3_lone;
mod rc3_model;
mod rc3_priority;
mod rc3_theory;
mod rc3_who;
mod replay;
mod script;
mod simulations;
mod systems;
mod together;

use std::path::PathBuf;

use ccplane::program::{self, Failure};
use ccplane_algorithms::Registry;
use ccplane_qdisc::LineSpec;
use ccplane_report::provenance::Provenance;
use serde::de::DeserializeOwned;

use ccplane_lab::Error;
use ccplane_lab::Progress;
use ccplane_lab::parts::Parts;
use ccplane_lab::stats;

pub use command::main_with;
pub use script::Script;

/// One published figure or table.
#[derive(Clone, Copy, Debug)]
pub struct Experiment<'p> {
    /// What `ccplane paper` calls it.
    pub name: &'p str,
    /// What it shows, in a line.
    pub title: &'p str,
    /// Where it was published.
    pub source: &'p str,
    /// How long it takes, in full and with `--quick`.
    pub takes: &'p str,
    /// Where it can run; without a choice it runs on all of them.
    pub on: &'p [Datapath],
    /// How often its full version makes every run on kernel TCP; `None` where `Options::repeats`
    /// does not change it.
    pub repeats: Option<usize>,
    run: Run<'p>,
}

/// What runs an experiment.
#[derive(Clone, Copy, Debug)]
enum Run<'p> {
    /// Code of its own.
    Code(fn(&Options, &Registry, &dyn Progress) -> Result<Outcome, Error>),
    /// Sweeps and a Python script.
    Script(&'p Script),
    /// Several experiments in their quick form, with the names of their figures in the whole.
    Together(&'static [&'static [&'static str]], together::Key),
}

/// Where packets run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datapath {
    /// The simulator: deterministic, without privileges.
    Sim,
    /// This host's kernel TCP, in real time, as root; for figures it wants an idle machine.
    Linux,
}

impl std::fmt::Display for Datapath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Datapath::Sim => "sim",
            Datapath::Linux => "linux",
        })
    }
}

/// A recorded link.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// What parts know it by.
    pub name: String,
    /// Where it is.
    pub file: PathBuf,
    /// What it says.
    pub line: LineSpec,
}

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// In less than two minutes, with fewer and shorter runs: to see that it works, not to quote.
    pub quick: bool,
    /// Only there; `None` for everywhere the experiment runs.
    pub datapath: Option<Datapath>,
    /// Threads for simulations. Results do not depend on it.
    pub threads: usize,
    /// Every run on kernel TCP so often, and not as often as the experiment has it: a first answer
    /// in less time, which a later run with more repeats goes on from.
    pub repeats: Option<usize>,
    /// Use parts again that another build of the program made: for what no change since then can
    /// have moved.
    pub any_build: bool,
    /// A recorded link for the experiment's cellular one, where it has one; else a generated one is
    /// taken.
    pub trace: Option<Recorded>,
    /// Where parts and results go. Parts that are there already, made by the same build under the
    /// same parameters, are used again: an interrupted experiment goes on where it stopped, and one
    /// that has its page repeats those that were disturbed.
    pub directory: PathBuf,
    /// Use the directory although it holds something else.
    pub force: bool,
    /// The command line that does this again, for the report.
    pub command: String,
    /// The program and the machine, as they were when this began.
    pub provenance: Provenance,
}

impl Options {
    /// Whether to run there.
    fn on(&self, datapath: Datapath) -> bool {
        self.datapath.is_none_or(|only| only == datapath)
    }

    /// How often to make every run on kernel TCP, where the experiment has these numbers of its
    /// own.
    fn repeats(&self, full: usize, quick: usize) -> usize {
        self.repeats
            .unwrap_or(if self.quick { quick } else { full })
    }

    /// Where parts are kept. What was disturbed is made again only once there is a page: so an
    /// experiment that was interrupted goes on and comes to its page, on a busy host too.
    fn parts(&self) -> Parts {
        Parts {
            directory: self.directory.join("parts"),
            any_build: self.any_build,
            again: self.directory.join(page::FIGURES).exists(),
        }
    }

    /// The same for these (name and key), which may be more than those that the page has: what is
    /// missing comes first.
    fn parts_of<T: DeserializeOwned>(
        &self,
        mut names: impl Iterator<Item = (String, String)>,
    ) -> Parts {
        let parts = self.parts();
        Parts {
            again: parts.again && names.all(|(name, key)| parts.kept::<T>(&name, &key).is_some()),
            ..parts
        }
    }
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The figures by name, for one line of JSON.
    pub figures: serde_json::Map<String, serde_json::Value>,
    /// Our figures beside the paper's statement, and the deviations, for a person.
    pub text: String,
    /// The page.
    pub page: PathBuf,
    /// What is on the page, for one of several experiments.
    body: String,
}

/// Those that are code.
const CODE: &[Experiment] = &[
    ccp_fct::EXPERIMENT,
    ccp_ipc::EXPERIMENT,
    ccp_interval::EXPERIMENT,
    ccp_scalability::EXPERIMENT,
    ccp_incast::EXPERIMENT,
    ccp_slow_algorithm::EXPERIMENT,
    ccp_group::EXPERIMENT,
    systems::CCP,
    dx_accuracy::EXPERIMENT,
    systems::DX,
    rc3_model::EXPERIMENT,
    rc3_fct::EXPERIMENT,
    rc3_internet2::EXPERIMENT,
    rc3_fairness::EXPERIMENT,
    rc3_priority::EXPERIMENT,
    systems::RC3,
    systems::BUNDLER,
    systems::ALL,
];

/// Returns all experiments, those of a paper together.
pub fn all() -> impl Iterator<Item = Experiment<'static>> {
    let scripts = script::embedded().iter().map(Script::experiment);
    let coded = CODE.iter().copied();
    let mut all: Vec<Experiment<'static>> = coded.chain(scripts).collect();
    let paper = |experiment: &Experiment<'_>| {
        let family = experiment.name.split('-').next().unwrap_or_default();
        ["ccp", "dx", "rc3", "bundler"]
            .iter()
            .position(|known| *known == family)
            .unwrap_or(usize::MAX)
    };
    all.sort_by_key(paper);
    all.into_iter()
}

/// The experiment of that name.
pub fn by_name(name: &str) -> Option<Experiment<'static>> {
    all().find(|experiment| experiment.name == name)
}

/// The other end of an echo over a Unix socket: a command of its own name, hidden from people,
/// calls it.
use ccp_ipc::{ECHO_COMMAND, echo};

/// The file by which a directory of results says whose they are.
const MARK: &str = "experiment";

impl Experiment<'_> {
    /// Runs it, or what of it is not there yet.
    pub fn run(
        &self,
        options: &Options,
        registry: &Registry,
        progress: &dyn Progress,
    ) -> Result<Outcome, Failure> {
        self.check(options).map_err(program::failure)?;
        let outcome = match self.run {
            Run::Code(run) => run(options, registry, progress),
            Run::Script(script) => return script.run(options, registry, progress),
            Run::Together(parts, key) => {
                return together::run(self, parts, key, options, registry, progress);
            }
        };
        outcome.map_err(program::failure)
    }

    /// Checks the options, and takes the directory.
    fn check(&self, options: &Options) -> Result<(), Error> {
        if let Some(repeats) = options.repeats
            && (self.repeats.is_none() || options.datapath == Some(Datapath::Sim) || repeats == 0)
        {
            return Err(Error::InvalidParameter {
                what: "the number of repeats",
                value: repeats.to_string(),
                fix: "give at least 1, to an experiment of which `ccplane paper list` says that it repeats its runs on kernel TCP",
            });
        }
        self.claim(options)
    }

    /// Takes the directory, unless it holds something else: the full version, for the quick one.
    fn claim(&self, options: &Options) -> Result<(), Error> {
        let directory = &options.directory;
        let mark = directory.join(MARK);
        let mine = format!(
            "{}{}",
            self.name,
            if options.quick { " --quick" } else { "" }
        );
        let occupied =
            std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some());
        let holds =
            std::fs::read_to_string(&mark).map_or(String::new(), |text| text.trim().to_owned());
        if occupied && holds != mine && !options.force {
            return Err(Error::DirectoryInUse {
                directory: directory.clone(),
                holds,
            });
        }
        let fail = |source| Error::Part {
            path: mark.clone(),
            source,
        };
        std::fs::create_dir_all(directory).map_err(fail)?;
        std::fs::write(&mark, format!("{mine}\n")).map_err(fail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for experiment in all() {
            assert_eq!(
                by_name(experiment.name).map(|e| e.title),
                Some(experiment.title)
            );
        }
        assert!(by_name("fig-99").is_none());
    }

    #[test]
    fn repeats_are_for_experiments_that_have_them() {
        let options = |datapath, repeats| Options {
            quick: true,
            datapath,
            threads: 1,
            repeats: Some(repeats),
            any_build: false,
            trace: None,
            directory: PathBuf::new(),
            force: false,
            command: String::new(),
            provenance: Provenance::default(),
        };
        let [some, none] = ["ccp-interval", "ccp-incast"].map(|name| by_name(name).unwrap());
        for (experiment, datapath, repeats) in [
            (some, None, 0),
            (some, Some(Datapath::Sim), 3),
            (none, None, 3),
        ] {
            let (options, progress) = (options(datapath, repeats), ccplane_lab::NoProgress);
            let refused = experiment.run(&options, &Registry::builtin(), &progress);
            assert!(
                refused.is_err_and(|error| error.sentence().contains("the number of repeats")),
                "{}",
                experiment.name
            );
        }
        assert_eq!(options(None, 4).repeats(10, 2), 4);
        let own = |quick| {
            Options {
                repeats: None,
                quick,
                ..options(None, 4)
            }
            .repeats(10, 2)
        };
        assert_eq!([own(true), own(false)], [2, 10]);
    }

    #[test]
    fn what_was_disturbed_is_made_again_once_there_is_a_page() {
        let directory = std::env::temp_dir().join(format!("ccplane-again-{}", std::process::id()));
        let options = Options {
            quick: true,
            datapath: None,
            threads: 1,
            repeats: None,
            any_build: false,
            trace: None,
            directory: directory.clone(),
            force: false,
            command: String::new(),
            provenance: Provenance::default(),
        };
        let part = |name: &str| (name.to_owned(), "30 s".to_owned());
        let again = |names: &[&str]| {
            options
                .parts_of::<f64>(names.iter().map(|name| part(name)))
                .again
        };
        options.parts().keep("a.json", "30 s", &1.0).unwrap();
        assert!(!again(&["a.json"]), "interrupted");
        std::fs::write(directory.join(page::FIGURES), "{}").unwrap();
        assert!(again(&["a.json"]));
        assert!(!again(&["a.json", "b.json"]), "more is asked for");
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_directory_of_something_else_is_left_alone() {
        let directory = std::env::temp_dir().join(format!("ccplane-claim-{}", std::process::id()));
        let options = |force| Options {
            quick: true,
            datapath: Some(Datapath::Sim),
            threads: 1,
            repeats: None,
            any_build: false,
            trace: None,
            directory: directory.clone(),
            force,
            command: String::new(),
            provenance: Provenance::default(),
        };
        let [one, other] = [&CODE[0], &CODE[1]];
        one.claim(&options(false)).unwrap();
        one.claim(&options(false)).unwrap();
        assert!(matches!(
            other.claim(&options(false)),
            Err(Error::DirectoryInUse { .. })
        ));
        let full = Options {
            quick: false,
            ..options(false)
        };
        assert!(
            one.claim(&full).is_err(),
            "the quick version writes over no full one, nor it over that"
        );
        other.claim(&options(true)).unwrap();
        std::fs::remove_file(directory.join(MARK)).unwrap();
        std::fs::write(directory.join("thesis.tex"), "").unwrap();
        let error = other.claim(&options(false)).unwrap_err().to_string();
        assert!(error.contains("--force"), "{error}");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
