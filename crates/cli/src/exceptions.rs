//! Exceptions in callbacks, for the metrics. They are counted by the agents of this process, or
//! reported line by line by the process that runs Python files.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use ccplane_agent::{Agent, DatapathId};
use ccplane_link::{DatapathLink, Local};
use ccplane_units::Time;
use ccplane_wire::WireCommand;
use nix::poll::PollFlags;

/// Limit of a line: a kernel name and a number. Longer input is from untrusted code and is ignored.
const LINE_BYTES_MAX: u64 = 64;

/// Number of exceptions in the callbacks of each algorithm.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exceptions(Arc<Mutex<BTreeMap<String, ExceptionCount>>>);

/// Count of one algorithm, keyed by its own kernel name at the agent.
#[derive(Debug, Default)]
struct ExceptionCount {
    /// Name of the registration.
    registered: String,
    count: u64,
}

impl Exceptions {
    /// Starts counting for the algorithm that its agent names `own`. Other names are ignored.
    pub fn track(&self, algorithm: &str, registered: &str) {
        let registered = registered.to_owned();
        self.counts()
            .entry(algorithm.to_owned())
            .or_default()
            .registered = registered;
    }

    /// Returns the count of a registration; `None` if an external agent runs its callbacks.
    pub fn get(&self, registered: &str) -> Option<u64> {
        let counts = self.counts();
        let known = counts
            .values()
            .find(|known| known.registered == registered)?;
        Some(known.count)
    }

    /// Stores an agent's count.
    pub fn set(&self, algorithm: &str, count: u64) {
        if let Some(known) = self.counts().get_mut(algorithm) {
            known.count = count;
        }
    }

    /// Reads the reports of an agent's process until it ends.
    pub fn read_reports(&self, reports: impl Read) {
        let mut told = BufReader::new(reports);
        let mut line = Vec::new();
        while let Ok(1..) = told
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
        {
            if let Some((name, count)) = parse(&line) {
                self.set(name, count);
            }
            line.clear();
        }
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, ExceptionCount>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parse(line: &[u8]) -> Option<(&str, u64)> {
    let (name, count) = std::str::from_utf8(line)
        .ok()?
        .strip_suffix('\n')?
        .split_once(' ')?;
    Some((name, count.parse().ok()?))
}

/// Counts at the last call.
#[derive(Debug, Default)]
pub(crate) struct LastCounts(Vec<u64>);

impl LastCounts {
    /// Calls the function with the kernel name and count of each algorithm whose count has changed.
    pub fn changes(&mut self, agent: &Agent, mut on_change: impl FnMut(&str, u64)) {
        self.0.resize(agent.hosted_algorithms().count(), 0);
        for (hosted, last) in agent.hosted_algorithms().zip(&mut self.0) {
            let count = agent
                .stats(&hosted.name)
                .map_or(0, |stats| stats.exceptions);
            if count != *last {
                *last = count;
                on_change(&hosted.kernel_name, count);
            }
        }
    }
}

/// Link of an agent in a process of its own, which also reports exceptions to the parent.
pub(crate) struct ExceptionReporter<'a, W> {
    link: &'a mut Local,
    output: W,
    last: LastCounts,
}

impl<'a, W: Write> ExceptionReporter<'a, W> {
    /// Creates a link that writes reports to `to`.
    pub fn new(link: &'a mut Local, to: W) -> ExceptionReporter<'a, W> {
        let last = LastCounts::default();
        ExceptionReporter {
            link,
            output: to,
            last,
        }
    }
}

impl<W: Write> DatapathLink for ExceptionReporter<'_, W> {
    fn set_id_base(&mut self, base: u32) {
        self.link.set_id_base(base);
    }

    fn receive(&mut self, agent: &mut Agent, now: Time) -> bool {
        self.link.receive(agent, now)
    }

    fn send(&mut self, agent: &mut Agent, now: Time, to: DatapathId, command: &WireCommand) {
        self.link.send(agent, now, to, command);
    }

    fn flush(&mut self, agent: &mut Agent) -> bool {
        // Fails only if the parent has ended, and then this process is about to.
        self.last.changes(agent, |name, count| {
            drop(writeln!(self.output, "{name} {count}").and_then(|()| self.output.flush()))
        });
        self.link.flush(agent)
    }

    fn watch<'a>(&'a self, watched: &mut Vec<(BorrowedFd<'a>, PollFlags)>) {
        self.link.watch(watched);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_counts_of_known_algorithms_are_accepted() {
        let exceptions = Exceptions::default();
        exceptions.track("ccp_mine", "ccp_east");
        let long = "x".repeat(1_000);
        let told = format!(
            "ccp_mine 3\nccp_other 9\nccp_mine many\n{long}\nhello\n\u{fffd}\nccp_mine 4\n\
             ccp_mine 5"
        );
        exceptions.read_reports(told.as_bytes());
        assert_eq!(
            (exceptions.get("ccp_east"), exceptions.get("ccp_mine")),
            (Some(4), None)
        );
    }
}
