//! Agents behind CCP's messages, each in a process of its own and measured in turns by one plain datapath: ours, a peer that does
//! nothing but answer, and, where one is given, one made of portus (`examples/portus`).

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

use ccplane_agent::bench;
use clap::{Args, ValueEnum};
use serde_json::json;

use ccplane_report::Aim;

use super::Figures;
use crate::exit::{Failure, Kind};

/// Rounds in turns. Each gives a ratio; a verdict is undecided where they disagree.
pub const ROUNDS: usize = 3;

/// Where the reference's agent is.
#[derive(Args)]
pub struct AgainstArgs {
    /// An agent made of portus to measure in turns with ours: `portus-answer` of examples/portus.
    #[arg(long, value_name = "PATH")]
    portus: Option<PathBuf>,
}

/// The hidden command by which a process becomes the other end.
#[derive(Args)]
pub struct PeerArgs {
    who: Who,
    path: PathBuf,
    /// Answers reports.
    #[arg(long)]
    updates: bool,
}

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Who {
    Ours,
    Bound,
    #[value(skip)]
    Portus,
}

/// Runs the other end, until it is killed.
pub fn peer(args: &PeerArgs) -> Result<(), Failure> {
    let bound = || println!("bound");
    let never = AtomicBool::new(false);
    let outcome = match args.who {
        Who::Bound => bench::bound(&args.path, args.updates, bound),
        _ => bench::answer(&args.path, args.updates, &never, bound),
    };
    outcome.map_err(|e| Failure::new(Kind::Failed, e))
}

/// A figure of everybody, by rounds.
pub struct Rounds(Vec<(Who, Vec<f64>)>);

impl AgainstArgs {
    /// Measures with `measure`, round by round.
    pub fn rounds(
        &self,
        updates: bool,
        measure: impl Fn(&Path) -> Result<Vec<f64>, bench::BenchError>,
    ) -> Result<Vec<Rounds>, Failure> {
        let portus = self.portus.as_deref();
        let all: Vec<Who> = [Who::Ours, Who::Bound]
            .into_iter()
            .chain(portus.map(|_| Who::Portus))
            .collect();
        let mut figures: Vec<Rounds> = Vec::new();
        for _ in 0..ROUNDS {
            for who in &all {
                let peer = Peer::start(*who, portus, updates)?;
                let values = measure(&peer.path).map_err(|e| Failure::new(Kind::Failed, e))?;
                figures.resize_with(values.len(), || {
                    Rounds(all.iter().map(|who| (*who, Vec::new())).collect())
                });
                for (rounds, value) in figures.iter_mut().zip(values) {
                    let of = rounds.0.iter_mut().find(|(one, _)| one == who);
                    of.into_iter().for_each(|(_, values)| values.push(value));
                }
            }
        }
        Ok(figures)
    }
}

impl Rounds {
    fn of(&self, who: Who) -> &[f64] {
        self.0
            .iter()
            .find(|(one, _)| *one == who)
            .map_or(&[], |(_, values)| values)
    }

    /// Adds the median of each, and all rounds for scripts.
    pub fn add(&self, figures: &mut Figures, key: &str, unit: &'static str) {
        for (who, suffix) in [(Who::Ours, ""), (Who::Bound, "_bound"), (Who::Portus, "_portus")] {
            let mut values = self.of(who).to_vec();
            if values.is_empty() {
                continue;
            }
            figures.fact(format!("{key}{suffix}_rounds"), json!(values));
            values.sort_by(f64::total_cmp);
            let median = values[values.len() / 2];
            figures.add(format!("{key}{suffix}"), median, unit, None, "");
        }
    }

    /// Adds ours over another's, judged by all rounds: their median, the least and the most.
    pub fn add_ratio(&self, figures: &mut Figures, key: &str, other: Who, aim: Aim) {
        let pairs = self.of(Who::Ours).iter().zip(self.of(other));
        let mut ratios: Vec<f64> = pairs.map(|(ours, theirs)| ours / theirs).collect();
        ratios.sort_by(f64::total_cmp);
        let (Some(low), Some(high)) = (ratios.first().copied(), ratios.last().copied()) else {
            return;
        };
        let (suffix, unit) = match other {
            Who::Portus => ("portus", "x portus"),
            _ => ("bound", "x bound"),
        };
        figures.add_ratio(
            format!("{key}_ratio_{suffix}"),
            ratios[ratios.len() / 2],
            unit,
            Some((low, high)),
            aim,
            "",
        );
    }
}

/// The other end's process; it is killed with this value, or with this process.
struct Peer {
    child: Child,
    path: PathBuf,
}

impl Peer {
    fn start(who: Who, portus: Option<&Path>, updates: bool) -> Result<Peer, Failure> {
        let failed = |what: String| {
            move |why: std::io::Error| Failure::text(Kind::Failed, format!("{what} cannot be started: {why}"))
        };
        let name = format!("ccplane-bench-{}", std::process::id());
        if let (Who::Portus, Some(program)) = (who, portus) {
            // Where portus' sockets are, always.
            let folder = Path::new("/tmp/ccp");
            std::fs::create_dir_all(folder).map_err(failed(folder.display().to_string()))?;
            let path = folder.join(&name);
            let mut command = Command::new(program);
            command.arg(&name).args(updates.then_some("--updates"));
            let mut command = command.stdout(Stdio::null()).stderr(Stdio::null());
            command = ccplane_host::die_with_parent(command);
            let child = command.spawn().map_err(failed(program.display().to_string()))?;
            let peer = Peer { child, path };
            return match (0..100).any(|_| peer.is_there()) {
                true => Ok(peer),
                false => Err(Failure::text(
                    Kind::Failed,
                    format!("{} does not serve at {}", program.display(), peer.path.display()),
                )
                .hint("--portus takes `portus-answer`, which examples/portus builds")),
            };
        }
        let path = std::env::temp_dir().join(format!("{name}.peer"));
        let ours = std::env::current_exe().map_err(failed("this program".to_owned()))?;
        let who = who.to_possible_value().map(|value| value.get_name().to_owned());
        let mut command = Command::new(ours);
        command.args(["bench", "peer"]).args(who).arg(&path);
        command.args(updates.then_some("--updates")).stdout(Stdio::piped());
        let mut child = ccplane_host::die_with_parent(&mut command)
            .spawn()
            .map_err(failed("the other end".to_owned()))?;
        let said = child.stdout.take();
        let peer = Peer { child, path };
        let mut line = String::new();
        said.map(|said| BufReader::new(said).read_line(&mut line));
        match line.is_empty() {
            false => Ok(peer),
            true => Err(Failure::text(
                Kind::Failed,
                "the other end did not begin to serve: it says why above",
            )),
        }
    }

    /// Looked at every 20 ms.
    #[expect(clippy::disallowed_methods, reason = "a benchmark in real time")]
    fn is_there(&self) -> bool {
        thread::sleep(Duration::from_millis(20));
        self.path.exists()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for suffix in ["", ".peers", ".lock"] {
            let mut path = self.path.clone().into_os_string();
            path.push(suffix);
            let _ = std::fs::remove_file(path);
        }
    }
}
