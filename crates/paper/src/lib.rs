//! Published experiments: each runs what a paper reports, and compares its results with the
//! paper's.
//!
//! Most are a sweep and a Python script in `papers/` ([`Script`]). An experiment that measures
//! something other than runs of a scenario is code, a file here for each figure.
#![forbid(unsafe_code)]
// Standard output may be closed or full: `ccplane::program::print_line` reports it at the end.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod ccp_group;
mod ccp_ipc;
mod command;
mod dx_accuracy;
mod loopback;
mod page;
mod program;
mod rc3_fairness;
mod rc3_fct;
mod rc3_internet2;
mod rc3_transport;
mod script;
mod simulations;
mod systems;
mod together;

use std::path::PathBuf;

use ccplane::program::{Failure, FailureKind, failure, find_agents};
use ccplane_algorithms::Registry;
use ccplane_report::provenance::Provenance;
use serde::de::DeserializeOwned;

use ccplane_lab::Contender;
use ccplane_lab::Error;
use ccplane_lab::Progress;
use ccplane_lab::parts::Parts;

pub use command::main_with;
pub use script::Script;

/// One published figure or table.
#[derive(Clone, Copy, Debug)]
pub struct Experiment<'p> {
    /// Name for `ccplane paper`.
    pub name: &'p str,
    /// Title, one line.
    pub title: &'p str,
    /// Publication.
    pub source: &'p str,
    /// Duration, in full and with `--quick`.
    pub takes: &'p str,
    /// Supported datapaths. By default it runs on all of them.
    pub on: &'p [Datapath],
    /// Number of runs of each point on kernel TCP in the full version; `None` if `Options::repeats`
    /// does not apply.
    pub repeats: Option<usize>,
    run: Run<'p>,
}

/// Implementation of an experiment.
#[derive(Clone, Copy, Debug)]
enum Run<'p> {
    /// Sweeps or a program, and a Python script.
    Script(&'p Script),
    /// Several experiments, with the names of their figures in the whole.
    Together(&'static [&'static [&'static str]], together::Key),
}

/// Datapath of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datapath {
    /// The simulator: deterministic, without privileges.
    Sim,
    /// This host's kernel TCP, in real time, as root. Reliable results need an idle machine.
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

/// Options of a run of an experiment.
#[derive(Clone, Debug)]
pub struct Options {
    /// Makes fewer and shorter runs, in less than two minutes: a check that the experiment works.
    pub quick: bool,
    /// The only datapath to use; `None` for all that the experiment supports.
    pub datapath: Option<Datapath>,
    /// Threads for simulations. Results do not depend on it.
    pub threads: usize,
    /// Number of runs of each point on kernel TCP, in place of the experiment's own. A later run
    /// with more repeats continues from there.
    pub repeats: Option<usize>,
    /// Algorithms of agents in other processes to measure as well, on kernel TCP.
    pub agents: Vec<Contender>,
    /// Reuses cached parts of other builds of the program. For code changes that cannot affect
    /// them.
    pub any_build: bool,
    /// Folder of parts and results. Existing parts of the same build and parameters are reused, so
    /// an interrupted experiment continues; one that has its page repeats the disturbed parts.
    pub directory: PathBuf,
    /// Uses the directory even if it contains other files.
    pub force: bool,
    /// Command line that reproduces the results, for the page.
    pub command: String,
    /// The program and the machine at the start.
    pub provenance: Provenance,
}

impl Options {
    /// Returns true if the experiment is to use this datapath.
    fn on(&self, datapath: Datapath) -> bool {
        self.datapath.is_none_or(|only| only == datapath)
    }

    /// Returns the number of runs of each point on kernel TCP, given the experiment's own numbers.
    fn repeats(&self, full: usize, quick: usize) -> usize {
        self.repeats
            .unwrap_or(if self.quick { quick } else { full })
    }

    /// Returns the cache of parts. Disturbed parts are repeated only once the page exists, so that
    /// an interrupted experiment reaches its page even on a busy host.
    fn parts(&self) -> Parts {
        Parts {
            directory: self.directory.join("parts"),
            any_build: self.any_build,
            again: self.directory.join(page::RESULTS).exists(),
        }
    }

    /// Returns the same cache for the given parts (name and key). Missing parts are made before
    /// disturbed ones are repeated.
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

/// Results of an experiment.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Results by name, for one line of JSON.
    pub figures: serde_json::Map<String, serde_json::Value>,
    /// Results next to the paper's values, and the deviations, as text.
    pub text: String,
    /// Path of the page.
    pub page: PathBuf,
    /// Content of the page, as an HTML fragment for a page of several experiments.
    body: String,
}

/// Experiments that are code, and those that combine others.
const SYSTEMS: &[Experiment] = &[
    systems::CCP,
    systems::DX,
    systems::RC3,
    systems::BUNDLER,
    systems::ALL,
];

/// Returns all experiments, those of a paper together.
pub fn all() -> impl Iterator<Item = Experiment<'static>> {
    let scripts = script::embedded().iter().map(Script::experiment);
    let coded = SYSTEMS.iter().copied();
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

/// Returns the experiment of this name.
pub fn by_name(name: &str) -> Option<Experiment<'static>> {
    all().find(|experiment| experiment.name == name)
}

// The peer of an echo over a Unix socket, started by a hidden command.
use ccp_ipc::{ECHO_COMMAND, echo};

/// File in a result directory with the name of its experiment.
const MARK: &str = "experiment";

impl Experiment<'_> {
    /// Makes the runs that are missing, and writes the results.
    pub fn run(
        &self,
        options: &Options,
        registry: &Registry,
        progress: &dyn Progress,
    ) -> Result<Outcome, Failure> {
        self.check_agents(options)?;
        find_agents(&options.agents)?;
        self.check(options).map_err(failure)?;
        match self.run {
            Run::Script(script) => script.run(options, registry, progress),
            Run::Together(parts, key) => {
                together::run(self, parts, key, options, registry, progress)
            }
        }
    }

    /// Checks that the experiment can measure the contenders of the command: algorithms of agents,
    /// on kernel TCP.
    fn check_agents(&self, options: &Options) -> Result<(), Failure> {
        let Some(first) = options.agents.first() else {
            return Ok(());
        };
        let refuse = |what, hint| Err(Failure::text(FailureKind::Usage, what).hint(hint));
        if let Some(here) = options.agents.iter().find(|one| one.agent().is_none()) {
            return refuse(
                format!("`{here}` does not name an agent"),
                "give algorithms of agents, such as reno@ccp:/tmp/ccp/portus".to_owned(),
            );
        }
        let takes = |one: &Experiment<'_>| match one.run {
            Run::Script(script) => script.takes_agents(),
            Run::Together(..) => false,
        };
        if !takes(self) {
            let known: Vec<&str> = all().filter(|one| takes(one)).map(|one| one.name).collect();
            return refuse(
                format!("`{}` does not take agents", self.name),
                format!(
                    "remove them; these experiments take agents: {}",
                    known.join(", ")
                ),
            );
        }
        if options.datapath == Some(Datapath::Sim) {
            return refuse(
                format!("`{first}`: agents in other processes run on kernel TCP only"),
                "remove --datapath sim, or the agent".to_owned(),
            );
        }
        Ok(())
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

    /// Claims the directory, unless it contains something else, such as results of the full version
    /// for the quick one.
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
            agents: Vec::new(),
            any_build: false,
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
    fn agents_are_for_experiments_that_take_them_on_kernel_tcp() {
        let refused = |name: &str, agent: &str, datapath| {
            let options = Options {
                quick: true,
                datapath,
                threads: 1,
                repeats: None,
                agents: vec![agent.parse().unwrap()],
                any_build: false,
                directory: PathBuf::new(),
                force: false,
                command: String::new(),
                provenance: Provenance::default(),
            };
            let checked = by_name(name).unwrap().check_agents(&options);
            checked
                .err()
                .map_or(String::new(), |error| error.sentence())
        };
        let portus = "reno@ccp:/tmp/ccp/portus";
        for name in ["ccp-fidelity", "ccp-fct", "ccp-interval"] {
            assert_eq!(refused(name, portus, None), "", "{name}");
            assert_eq!(refused(name, portus, Some(Datapath::Linux)), "", "{name}");
        }
        let sim = refused("ccp-fidelity", portus, Some(Datapath::Sim));
        assert!(sim.contains("kernel TCP only"), "{sim}");
        let other = refused("ccp-incast", portus, None);
        assert!(other.contains("does not take agents"), "{other}");
        let together = refused("ccp", portus, None);
        assert!(together.contains("does not take agents"), "{together}");
        let here = refused("ccp-fct", "cubic", None);
        assert!(here.contains("does not name an agent"), "{here}");
    }

    #[test]
    fn what_was_disturbed_is_made_again_once_there_is_a_page() {
        let directory = std::env::temp_dir().join(format!("ccplane-again-{}", std::process::id()));
        let options = Options {
            quick: true,
            datapath: None,
            threads: 1,
            repeats: None,
            agents: Vec::new(),
            any_build: false,
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
        std::fs::write(directory.join(page::RESULTS), "{}").unwrap();
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
            agents: Vec::new(),
            any_build: false,
            directory: directory.clone(),
            force,
            command: String::new(),
            provenance: Provenance::default(),
        };
        let [one, other] = [&SYSTEMS[0], &SYSTEMS[1]];
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
