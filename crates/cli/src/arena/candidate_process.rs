//! Runs each candidate in Python in a process of its own, confined, with little memory and limited
//! CPU time. A failure there affects no other candidate.
//!
//! The process reads scenarios from standard input and writes one line per run.

use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use ccplane_lab::arena::{self, Apart, Outcome};
use ccplane_lab::{Contender, NoProgress, Progress};
use nix::sys::signal::Signal;
use nix::unistd::{dup, dup2_stdout};
use serde::{Deserialize, Serialize};

use crate::Registry;
use crate::confine::{bound, confine};
use crate::contender::is_python;
use crate::exit::{Failure, FailureKind};
use crate::python::enter;
use crate::run::failure;
use crate::sandbox::{Process, Sandbox, SandboxRequest};

/// Interval at which the interrupt flag is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Wall-clock limit of the process, in multiples of its CPU time limit.
const WALL_TIME_FACTOR: u32 = 4;
/// Limit of the output, bytes. A few hundred runs write at most some hundred kB each.
const RESULT_BYTES_MAX: u64 = 256 << 20;

/// Message of the process, one per line.
#[derive(Debug, Serialize, Deserialize)]
enum CandidateReply {
    /// An algorithm was created from the file.
    Made,
    /// No algorithm can be created from the file, and the reason.
    Unusable(String),
    /// Outcome of the next run.
    Ran(Box<Outcome>),
}

/// Processes of the candidates.
pub(super) struct Processes {
    /// `None` if Python files are trusted and run in this process.
    pub sandbox: Option<Sandbox>,
    /// CPU time limit, s.
    pub seconds: u64,
}

impl Apart for Processes {
    fn takes(&self, contender: &Contender) -> bool {
        self.sandbox.is_some() && is_python(contender)
    }

    fn run(
        &self,
        contender: &Contender,
        scenarios: &[&str],
        progress: &dyn Progress,
    ) -> Result<Vec<Outcome>, String> {
        let sandbox = self
            .sandbox
            .as_ref()
            .ok_or("Python files run in this process (--sandbox off)")?;
        let given = SandboxRequest {
            scenarios: scenarios.iter().map(|text| (*text).to_owned()).collect(),
            cpu_seconds: Some(self.seconds),
            // The file may import a module next to it.
            folder: std::env::current_dir().ok(),
            ..SandboxRequest::collect([contender])?
        };
        let contender = contender.to_string();
        let words = ["arena", "--confined", &contender].map(OsString::from);
        // An algorithm runs on one thread; a pool of threads would only take memory.
        let (process, to) = sandbox.start(
            words,
            &[("OPENBLAS_NUM_THREADS", "1"), ("OMP_NUM_THREADS", "1")],
        )?;
        let output = process.output();
        let (told, ended) = thread::scope(|scope| {
            // A process that has ended reads nothing. Its exit status gives the reason.
            scope.spawn(move || drop(given.send(to)));
            let told = scope.spawn(move || {
                output
                    .map(|from| read_replies(from, scenarios.len(), progress))
                    .unwrap_or_default()
            });
            let ended = self.wait(&process, progress);
            process.kill();
            (told.join().unwrap_or_default(), ended)
        });
        let mut outcomes = Vec::new();
        for said in told {
            match said {
                CandidateReply::Made => {}
                CandidateReply::Unusable(why) => return Err(why),
                CandidateReply::Ran(outcome) => outcomes.push(*outcome),
            }
        }
        match ended {
            Ok(status) if status.success() && outcomes.len() == scenarios.len() => Ok(outcomes),
            Ok(status) => Err(process
                .refused(status)
                .unwrap_or_else(|| self.failure_reason(status))),
            Err(why) => Err(why),
        }
    }
}

impl Processes {
    /// Waits for the process and kills it after the wall-clock limit.
    #[expect(
        clippy::disallowed_methods,
        reason = "polls a child process with a timeout"
    )]
    fn wait(&self, process: &Process, progress: &dyn Progress) -> Result<ExitStatus, String> {
        let longest = Duration::from_secs(self.seconds) * WALL_TIME_FACTOR;
        let begun = Instant::now();
        loop {
            if let Some(status) = process.wait(POLL_INTERVAL)? {
                return Ok(status);
            }
            if begun.elapsed() > longest || progress.is_cancelled() {
                return Err(format!(
                    "it did not finish within {} s, and was idle for most of that time",
                    longest.as_secs()
                ));
            }
        }
    }

    fn failure_reason(&self, status: ExitStatus) -> String {
        let seconds = self.seconds;
        match status
            .signal()
            .and_then(|signal| Signal::try_from(signal).ok())
        {
            Some(Signal::SIGXCPU) => {
                format!("it used more than {seconds} s of CPU time (--cpu)")
            }
            Some(Signal::SIGKILL) => {
                format!(
                    "it was killed: it used more than {seconds} s of CPU time (--cpu), or this \
                     host is out of memory"
                )
            }
            Some(Signal::SIGABRT) => {
                "it aborted: it needed more than 512 MB of memory, or failed as the message \
                 above describes"
                    .to_owned()
            }
            Some(signal) => format!("its process was killed by {signal}"),
            None => format!(
                "its process exited with code {} before its runs were complete",
                status.code().unwrap_or_default()
            ),
        }
    }
}

/// Reads replies for up to `runs` runs, or until the output ends or is malformed.
fn read_replies(from: impl Read, runs: usize, progress: &dyn Progress) -> Vec<CandidateReply> {
    let mut lines = BufReader::new(from.take(RESULT_BYTES_MAX));
    let (mut said, mut line) = (Vec::new(), Vec::new());
    while said.len() <= runs
        && lines
            .read_until(b'\n', &mut line)
            .is_ok_and(|read| read > 0)
    {
        let Ok(one) = serde_json::from_slice(&line) else {
            break;
        };
        said.push(one);
        line.clear();
        progress.on_progress(said.len().saturating_sub(1) as f64 / runs.max(1) as f64, "");
    }
    // Drains the pipe, so that the process never blocks on it.
    let _ = io::copy(&mut lines, &mut io::sink());
    said
}

/// Main function of the process. It confines itself before it enters the folder of the request,
/// which paths are relative to, and reads the file.
pub(super) fn serve(contender: &Contender, registry: &Registry) -> Result<(), Failure> {
    let cannot = |what: &str, why: &dyn std::fmt::Display| {
        Failure::text(FailureKind::Failed, format!("{what}: {why}"))
    };
    let given = SandboxRequest::receive()?;
    // Keeps the candidate's own prints out of the replies.
    let mut to = std::fs::File::from(
        dup(io::stdout()).map_err(|why| cannot("cannot redirect standard output", &why))?,
    );
    dup2_stdout(io::stderr()).map_err(|why| cannot("cannot redirect standard output", &why))?;
    let mut say = |said: &CandidateReply| -> Result<(), Failure> {
        let mut line = serde_json::to_vec(said)
            .map_err(|why| cannot("cannot send the result of a run", &why))?;
        line.push(b'\n');
        to.write_all(&line)
            .map_err(|why| cannot("cannot send the result of a run", &why))
    };
    let limited = given.cpu_seconds.map_or(Ok(()), bound);
    if let Err(why) = limited
        .and_then(|()| confine())
        .and_then(|()| enter(given.folder.as_deref()))
    {
        return say(&CandidateReply::Unusable(why.sentence()));
    }
    if let Err(why) = arena::usable(contender, registry) {
        return say(&CandidateReply::Unusable(why.to_string()));
    }
    say(&CandidateReply::Made)?;
    for scenario in &given.scenarios {
        let outcome = arena::simulate(scenario, registry, &NoProgress).map_err(failure)?;
        say(&CandidateReply::Ran(Box::new(outcome)))?;
    }
    Ok(())
}
