//! Experiments as a sweep and a Python script: the sweep's runs make the tables, and the script
//! computes what the paper shows, draws its figure and compares the two.
//!
//! `papers/SYSTEM/NAME.toml` is the sweep in the simulator, `NAME.linux.toml` the one on kernel
//! TCP, `NAME.py` the script, and `papers/paper.py` what all scripts share. A [`Program`] makes the
//! tables where no scenario can.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ccplane::program::{Failure, FailureKind, KeptData, RunDatapath, SweepRequest, failure};
use ccplane_algorithms::Registry;
use ccplane_lab::scenario::{Sweep, SweepSize, toml_string};
use ccplane_lab::{Contender, Error, Progress};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::program::Program;
use crate::{
    Datapath, Experiment, Options, Outcome, Run, ccp_group, ccp_ipc, dx_accuracy, loopback, page,
    rc3_fairness, rc3_fct, rc3_internet2,
};

/// Modules that scripts import.
const SHARED_MODULES: [(&str, &str); 5] = [
    ("paper.py", include_str!("../../../papers/paper.py")),
    ("bundles.py", include_str!("../../../papers/bundles.py")),
    ("turns.py", include_str!("../../../papers/turns.py")),
    ("rc3_model.py", include_str!("../../../papers/rc3_model.py")),
    (
        "distributions.py",
        include_str!("../../../papers/distributions.py"),
    ),
];
/// Description of the experiment for the script.
const ABOUT_FILE: &str = "experiment.json";
/// Ends of the part of the page that the script writes.
const BODY_MARKS: [&str; 2] = ["<!-- results -->", "<!-- /results -->"];

/// Experiment that consists of a script, and of sweeps or a program that make its tables.
#[derive(Debug)]
pub struct Script {
    name: String,
    about: About,
    /// Text of the script.
    code: String,
    /// Sweep of each datapath.
    sweeps: Vec<(Datapath, SweepText)>,
    program: Option<&'static Program>,
    on: Vec<Datapath>,
}

/// Text of a sweep file, with its name and its folder for problems and relative paths.
#[derive(Debug)]
struct SweepText {
    file: String,
    text: String,
    folder: PathBuf,
}

/// Table `[tool.ccplane]` of the script's inline metadata (PEP 723).
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    title: String,
    source: String,
    takes: String,
    /// Data of the runs besides the table, as `ccplane sweep --keep` takes them.
    #[serde(default)]
    keep: Vec<String>,
    /// Axis of the sweep on kernel TCP to which algorithms of agents are added, `contenders` of the
    /// grid or an axis of the cases. Without it the script does not evaluate any.
    agents: Option<String>,
}

macro_rules! embedded {
    ($($file:literal: $($sweep:literal)*;)*) => {
        &[$((
            $file,
            include_str!(concat!("../../../papers/", $file, ".py")),
            &[$(($sweep, include_str!(concat!("../../../papers/", $sweep)))),*],
        )),*]
    };
}

type EmbeddedScript = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
);

/// Scripts that are part of the program, with their sweeps.
const EMBEDDED: &[EmbeddedScript] = embedded![
    "ccp/cwnd-evolution": "ccp/cwnd-evolution.toml" "ccp/cwnd-evolution.linux.toml";
    "ccp/fidelity": "ccp/fidelity.toml" "ccp/fidelity.linux.toml";
    "ccp/fct": "ccp/fct.toml" "ccp/fct.linux.toml";
    "ccp/incast": "ccp/incast.toml";
    "ccp/ipc":;
    "ccp/interval":;
    "ccp/scalability":;
    "ccp/slow-algorithm":;
    "ccp/group":;
    "dx/accuracy":;
    "dx/testbed": "dx/testbed.toml" "dx/testbed.linux.toml";
    "dx/fattree": "dx/fattree.toml";
    "dx/senders": "dx/senders.toml";
    "dx/convergence": "dx/convergence.toml";
    "dx/noise": "dx/noise.toml";
    "dx/stack-noise": "dx/stack-noise.toml";
    "dx/fairness": "dx/fairness.toml";
    "rc3/model": "rc3/model.toml";
    "rc3/internet2":;
    "rc3/fct": "rc3/fct.toml";
    "rc3/priority": "rc3/priority.toml" "rc3/priority.linux.toml";
    "rc3/fairness":;
    "bundler/overview": "bundler/overview.toml" "bundler/overview.linux.toml";
    "bundler/connections": "bundler/connections.toml";
    "bundler/timeline": "bundler/timeline.toml" "bundler/timeline.linux.toml";
    "bundler/inelastic": "bundler/inelastic.toml";
    "bundler/elastic": "bundler/elastic.toml" "bundler/elastic.linux.toml";
    "bundler/two": "bundler/two.toml" "bundler/two.linux.toml";
    "bundler/sendbox-cc": "bundler/sendbox-cc.toml" "bundler/sendbox-cc.linux.toml";
    "bundler/endhost-cc": "bundler/endhost-cc.toml" "bundler/endhost-cc.linux.toml";
    "bundler/load": "bundler/load.toml";
    "bundler/classes": "bundler/classes.toml";
    "bundler/multipath": "bundler/multipath.toml";
    "bundler/accuracy": "bundler/accuracy.toml";
    "bundler/variable": "bundler/variable.toml";
    "own/sim-kernel": "own/sim-kernel.toml" "own/sim-kernel.linux.toml";
    "own/behaviour": "own/behaviour.toml" "own/behaviour.linux.toml";
    "own/bundles-together": "own/bundles-together.toml";
    "own/jitter": "own/jitter.toml";
];

/// Programs of the scripts whose tables are not made by a sweep alone.
const PROGRAMS: &[Program] = &[
    ccp_group::PROGRAM,
    ccp_ipc::PROGRAM,
    loopback::INTERVAL,
    loopback::SCALABILITY,
    loopback::SLOW_ALGORITHM,
    rc3_internet2::PROGRAM,
    rc3_fct::PROGRAM,
    rc3_fairness::PROGRAM,
    dx_accuracy::PROGRAM,
];

/// Returns the scripts that are part of the program. A wrong one is left out: a test reads each.
pub(crate) fn embedded() -> &'static [Script] {
    static SCRIPTS: OnceLock<Vec<Script>> = OnceLock::new();
    SCRIPTS.get_or_init(|| {
        let scripts = EMBEDDED.iter().map(|(file, code, sweeps)| {
            let sweeps = sweeps.iter().map(|(file, text)| SweepText {
                file: format!("papers/{file}"),
                text: (*text).to_owned(),
                folder: PathBuf::from("papers"),
            });
            let program = PROGRAMS.iter().find(|program| program.script == *file);
            // Ours have no system in their names.
            let name = file.trim_start_matches("own/").replace('/', "-");
            Script::new(&name, code, sweeps, program)
        });
        scripts.filter_map(Result::ok).collect()
    })
}

impl Script {
    /// Reads a script and the sweep files next to it.
    pub fn read(path: &Path) -> Result<Script, Failure> {
        let read = |path: &Path| {
            std::fs::read_to_string(path).map_err(|why| {
                let what = format!("cannot read {}: {why}", path.display());
                Failure::text(FailureKind::Usage, what)
            })
        };
        let code = read(path)?;
        let beside = [
            path.with_extension("toml"),
            path.with_extension("linux.toml"),
        ];
        let mut sweeps = Vec::new();
        for file in beside.iter().filter(|file| file.is_file()) {
            sweeps.push(SweepText {
                file: file.display().to_string(),
                text: read(file)?,
                folder: file.parent().unwrap_or(Path::new(".")).to_owned(),
            });
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if sweeps.is_empty() {
            let what = format!("{} has no sweep", path.display());
            return Err(Failure::text(FailureKind::Usage, what).hint(format!(
                "write the grid of its runs to {} (docs/sweeps.md)",
                beside[0].display()
            )));
        }
        Script::new(&name, &code, sweeps.into_iter(), None).map_err(|why| {
            let what = format!("{}: {why}", path.display());
            Failure::text(FailureKind::Usage, what).hint(
                "start it with a block `# /// script` … `# ///` that has [tool.ccplane] with \
                 title, source and takes (docs/papers.md)",
            )
        })
    }

    fn new(
        name: &str,
        code: &str,
        sweeps: impl Iterator<Item = SweepText>,
        program: Option<&'static Program>,
    ) -> Result<Script, String> {
        let sweeps: Vec<(Datapath, SweepText)> = sweeps
            .map(|sweep| match sweep.file.ends_with(".linux.toml") {
                true => (Datapath::Linux, sweep),
                false => (Datapath::Sim, sweep),
            })
            .collect();
        let on = sweeps.iter().map(|(datapath, _)| *datapath);
        let on = on.chain(program.iter().flat_map(|program| program.on).copied());
        Ok(Script {
            name: name.to_owned(),
            about: about(code)?,
            code: code.to_owned(),
            on: on.collect(),
            sweeps,
            program,
        })
    }

    /// Returns the experiment that `ccplane paper` runs.
    pub fn experiment(&self) -> Experiment<'_> {
        Experiment {
            name: &self.name,
            title: &self.about.title,
            source: &self.about.source,
            takes: &self.about.takes,
            on: &self.on,
            repeats: self.repeats(),
            run: Run::Script(self),
        }
    }

    /// Returns the number of runs of each point on kernel TCP.
    fn repeats(&self) -> Option<usize> {
        if let Some(repeats) = self.program.and_then(|program| program.repeats) {
            return Some(repeats);
        }
        let (_, sweep) = self.sweeps.iter().find(|(on, _)| *on == Datapath::Linux)?;
        let sweep = sweep.parse(SweepSize::Full).ok()?;
        usize::try_from(sweep.real_seeds().count()).ok()
    }

    /// Returns true if the script evaluates algorithms of agents in other processes.
    pub(crate) fn takes_agents(&self) -> bool {
        self.about.agents.is_some() && self.on.contains(&Datapath::Linux)
    }

    /// Returns the text of a sweep with the algorithms of agents added on kernel TCP.
    fn sweep_text(
        &self,
        on: Datapath,
        sweep: &SweepText,
        options: &Options,
    ) -> Result<SweepText, Failure> {
        let text = match &self.about.agents {
            Some(axis) if on == Datapath::Linux => with_agents(&sweep.text, axis, &options.agents)
                .ok_or_else(|| {
                    let what = format!("{}: no axis `{axis}` for algorithms of agents", sweep.file);
                    Failure::text(FailureKind::Usage, what).hint(format!(
                        "the script's `agents` is `contenders`, if a line begins with \
                         `{CONTENDERS_START}`, or the `axis` of a [[case]]"
                    ))
                })?,
            _ => sweep.text.clone(),
        };
        Ok(SweepText {
            file: sweep.file.clone(),
            text,
            folder: sweep.folder.clone(),
        })
    }

    /// Makes the missing runs, and runs the script.
    pub(crate) fn run(
        &self,
        options: &Options,
        registry: &Registry,
        progress: &dyn Progress,
    ) -> Result<Outcome, Failure> {
        let size = match options.quick {
            true => SweepSize::Quick,
            false => SweepSize::Full,
        };
        self.check_kept(options)?;
        // Scripts compare kernel TCP with the simulator, so they need the simulated runs in any
        // case.
        let asked = |on: Datapath| on == Datapath::Sim || options.on(on);
        for (datapath, sweep) in self.sweeps.iter().filter(|(on, _)| asked(*on)) {
            let mut sweep = self.sweep_text(*datapath, sweep, options)?.parse(size)?;
            if let Some(repeats) = options.repeats {
                sweep.repeats = u32::try_from(repeats).ok();
            }
            let request = SweepRequest {
                sweep,
                datapath: match datapath {
                    Datapath::Sim => RunDatapath::Sim,
                    Datapath::Linux => RunDatapath::Linux,
                },
                threads: Some(options.threads),
                shard: None,
                limit: None,
                kept: self.kept()?,
            };
            let out = options.directory.join(datapath.to_string());
            let (summary, _) = request.run(&out, registry, &options.command, progress)?;
            if summary.failed == summary.runs {
                let what = format!("all {} runs failed ({datapath})", summary.runs);
                return Err(Failure::text(FailureKind::Failed, what).hint(format!(
                    "the column `error` of {} has the reasons",
                    out.join("runs.csv").display()
                )));
            }
        }
        if let Some(program) = self.program {
            for datapath in program.on.iter().copied().filter(|on| asked(*on)) {
                let tables = (program.measure)(options, datapath, registry, progress);
                let out = options.directory.join(datapath.to_string());
                tables.map_err(failure)?.write(&out)?;
            }
        }
        self.evaluate(options)
    }

    fn kept(&self) -> Result<Vec<KeptData>, Failure> {
        let parse = |name: &String| KeptData::parse(name);
        self.about.keep.iter().map(parse).collect()
    }

    /// Writes the script next to the tables, and runs it.
    fn evaluate(&self, options: &Options) -> Result<Outcome, Failure> {
        let file = format!("{}.py", self.name);
        let about = json!({
            "name": self.name,
            "title": self.about.title,
            "source": self.about.source,
            "quick": options.quick,
            "keep": self.about.keep,
            "provenance": options.provenance.to_json(),
            "page": page::around(
                options,
                &self.about.title,
                &BODY_MARKS.concat(),
                &options.provenance,
            ),
        });
        let about = about.to_string();
        let own = [(&*file, &*self.code), (ABOUT_FILE, &about)];
        for (name, text) in SHARED_MODULES.into_iter().chain(own) {
            let path = options.directory.join(name);
            std::fs::write(&path, text).map_err(|source| failure(Error::Part { path, source }))?;
        }
        let text = python(&file, &options.directory)?;
        let read = |name: &str| {
            let path = options.directory.join(name);
            std::fs::read_to_string(&path).map_err(|source| failure(Error::Part { path, source }))
        };
        let figures: Map<String, Value> = serde_json::from_str(&read(page::RESULTS)?)
            .map_err(|why| Failure::text(FailureKind::Failed, format!("{file}: {why}")))?;
        let html = read(page::PAGE)?;
        let [start, end] = BODY_MARKS;
        let body = html.split_once(start).map_or("", |(_, body)| body);
        let body = body.split_once(end).map_or(body, |(body, _)| body);
        let title = ccplane_report::html::escape(&self.about.title);
        Ok(Outcome {
            figures,
            text,
            page: options.directory.join(page::PAGE),
            body: format!("<section><h2>{title}</h2>{body}</section>"),
        })
    }

    /// Refuses a folder whose runs lack data that the script needs.
    fn check_kept(&self, options: &Options) -> Result<(), Failure> {
        let Ok(text) = std::fs::read(options.directory.join(ABOUT_FILE)) else {
            return Ok(());
        };
        let before: Value = serde_json::from_slice(&text).unwrap_or_default();
        let kept = before["keep"].as_array().cloned().unwrap_or_default();
        let lacks = |name: &&String| !kept.iter().any(|kept| *kept == **name);
        let Some(missing) = self.about.keep.iter().find(lacks) else {
            return Ok(());
        };
        let directory = options.directory.display();
        let what = format!("the runs in {directory} were made without `{missing}`");
        Err(Failure::text(FailureKind::Usage, what)
            .hint("choose another folder with --out, or delete this one"))
    }
}

impl SweepText {
    fn parse(&self, size: SweepSize) -> Result<Sweep, Failure> {
        Sweep::parse_with(&self.file, &self.text, &self.folder, size)
            .map_err(|problem| failure(Error::Scenario(problem)))
    }
}

/// Start of the line of the grid's contenders.
const CONTENDERS_START: &str = "contenders = [";

/// Adds contenders to the text of a sweep: to the grid's `contenders`, or as cases of an axis, which
/// are named like their contender. Returns `None` if the text has no such axis.
fn with_agents(text: &str, axis: &str, agents: &[Contender]) -> Option<String> {
    if agents.is_empty() {
        return Some(text.to_owned());
    }
    let names = agents.iter().map(|agent| toml_string(agent.to_string()));
    if axis == "contenders" {
        let names: Vec<String> = names.collect();
        let is_start = |(at, _): &(usize, &str)| text[..*at].ends_with('\n');
        let (at, _) = text.match_indices(CONTENDERS_START).find(is_start)?;
        let (before, after) = text.split_at(at + CONTENDERS_START.len());
        return Some(format!("{before}{}, {after}", names.join(", ")));
    }
    if !text.contains(&format!("axis = \"{axis}\"")) {
        return None;
    }
    let cases = names
        .map(|name| format!("\n[[case]]\naxis = \"{axis}\"\nname = {name}\ncontender = {name}\n"));
    Some(text.to_owned() + &cases.collect::<String>())
}

/// Parses the table `[tool.ccplane]` of a script's inline metadata.
fn about(code: &str) -> Result<About, String> {
    #[derive(Deserialize)]
    struct Metadata {
        tool: Tools,
    }
    #[derive(Deserialize)]
    struct Tools {
        ccplane: About,
    }
    let block = code
        .lines()
        .skip_while(|line| *line != "# /// script")
        .skip(1);
    let block = block.take_while(|line| *line != "# ///");
    let lines: Vec<&str> = block
        .map(|line| line.trim_start_matches('#').trim_start())
        .collect();
    let metadata: Metadata =
        toml::from_str(&lines.join("\n")).map_err(|error| error.message().to_owned())?;
    Ok(metadata.tool.ccplane)
}

/// Runs a script with the Python of `CCPLANE_PYTHON`, or `python3`. Returns what it prints.
fn python(file: &str, directory: &Path) -> Result<String, Failure> {
    let python = std::env::var_os("CCPLANE_PYTHON").unwrap_or_else(|| "python3".into());
    let missing = |what: String| {
        Failure::text(FailureKind::Unsupported, what).hint(
            "the runs are finished and kept; install Python 3.11 or later with the packages \
             polars, matplotlib and scipy (`pip install polars matplotlib scipy`), name it in CCPLANE_PYTHON if it is \
             not `python3`, and repeat the command",
        )
    };
    let output = Command::new(&python)
        .args([file, "."])
        // Files and output are UTF-8 in every locale.
        .env("PYTHONUTF8", "1")
        .current_dir(directory)
        .output()
        .map_err(|why| missing(format!("cannot run {}: {why}", python.display())))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let last = said.trim().lines().last().unwrap_or_default();
        if last.starts_with("ModuleNotFoundError") {
            return Err(missing(format!("{}: {last}", python.display())));
        }
        let what = format!("{file} failed: {}", said.trim());
        return Err(Failure::text(FailureKind::Failed, what));
    }
    Ok(String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_and_both_variants_of_its_sweeps_are_valid() {
        assert_eq!(embedded().len(), EMBEDDED.len());
        for script in embedded() {
            assert!(script.kept().is_ok(), "{}", script.name);
            for (_, sweep) in &script.sweeps {
                for size in [SweepSize::Full, SweepSize::Quick] {
                    let parsed = sweep
                        .parse(size)
                        .unwrap_or_else(|why| panic!("{}", why.sentence()));
                    let points = parsed.points().unwrap();
                    for point in &points {
                        parsed.scenario(point).unwrap_or_else(|why| panic!("{why}"));
                    }
                }
            }
        }
    }

    #[test]
    fn algorithms_of_agents_become_points_of_the_sweep_on_kernel_tcp() {
        let agents: Vec<Contender> = ["reno@ccp:/tmp/ccp/portus", "cubic@ccp:/tmp/ccp/cubic"]
            .map(|text| text.parse().unwrap())
            .into();
        let names: Vec<String> = agents.iter().map(Contender::to_string).collect();
        let mut taking = 0;
        for script in embedded().iter().filter(|script| script.takes_agents()) {
            let axis = script.about.agents.as_deref().unwrap();
            for (on, sweep) in &script.sweeps {
                taking += usize::from(*on == Datapath::Linux);
                let points = |text: String| {
                    let sweep = SweepText {
                        file: sweep.file.clone(),
                        text,
                        folder: sweep.folder.clone(),
                    };
                    let sweep = sweep.parse(SweepSize::Quick).unwrap();
                    let points = sweep.points().unwrap();
                    let contender = |point| sweep.contender(point).unwrap().unwrap();
                    points.iter().map(contender).collect::<Vec<String>>()
                };
                let without = points(with_agents(&sweep.text, axis, &[]).unwrap());
                let with = points(with_agents(&sweep.text, axis, &agents).unwrap());
                let (added, old): (Vec<_>, Vec<_>) =
                    with.into_iter().partition(|name| names.contains(name));
                assert_eq!(old, without, "{}", script.name);
                for name in &names {
                    assert!(added.contains(name), "{}: {name}", script.name);
                }
                assert_eq!(with_agents(&sweep.text, "absent", &agents), None);
            }
        }
        assert_eq!(taking, 2);
    }

    #[test]
    fn a_script_without_metadata_is_refused() {
        for code in [
            "",
            "# /// script\n# ///\n",
            "# /// script\n# [tool.ccplane]\n# title = 1\n# ///\n",
        ] {
            assert!(about(code).is_err(), "{code}");
        }
        let code = "# /// script\n# [tool.ccplane]\n# title = \"t\"\n# source = \"s\"\n# takes = \"1 s\"\n# ///\n";
        assert_eq!(about(code).unwrap().title, "t");
    }
}
