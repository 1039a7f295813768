//! Callbacks that raised, for the metrics: counted by the agents of this process, or told line by
//! line by the one of another that runs Python files.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use ccplane_agent::{Agent, DatapathId};
use ccplane_link::{DatapathLink, Local};
use ccplane_units::Time;
use ccplane_wire::WireCommand;
use nix::poll::PollFlags;

/// A line is no longer: a kernel name and a number. What is longer comes from what is not trusted,
/// and says nothing.
const LINE_BYTES_MAX: u64 = 64;

/// How many callbacks of each algorithm raised.
#[derive(Clone, Debug, Default)]
pub(super) struct Exceptions(Arc<Mutex<BTreeMap<String, ExceptionCount>>>);

/// Of one algorithm, which its agent knows by its own kernel name.
#[derive(Debug, Default)]
struct ExceptionCount {
    /// As what it is registered.
    registered: String,
    count: u64,
}

impl Exceptions {
    /// Counts those of this one from now on; others stay unknown. Its agent calls it `own`.
    pub fn of(&self, own: &str, registered: &str) {
        let registered = registered.to_owned();
        self.counts().entry(own.to_owned()).or_default().registered = registered;
    }

    /// The count of what is registered under this name, `None` where it runs out of sight.
    pub fn get(&self, registered: &str) -> Option<u64> {
        let counts = self.counts();
        let known = counts
            .values()
            .find(|known| known.registered == registered)?;
        Some(known.count)
    }

    /// Takes what an agent has counted.
    pub fn set(&self, own: &str, count: u64) {
        if let Some(known) = self.counts().get_mut(own) {
            known.count = count;
        }
    }

    /// Takes what an agent's process tells, until it ends.
    pub fn listen(&self, told: impl Read) {
        let mut told = BufReader::new(told);
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

/// Remembers what an agent's counts were.
#[derive(Debug, Default)]
pub(super) struct Last(Vec<u64>);

impl Last {
    /// Calls `told` with the kernel name and the count of each algorithm whose count has changed.
    pub fn changes(&mut self, agent: &Agent, mut told: impl FnMut(&str, u64)) {
        self.0.resize(agent.hosted().count(), 0);
        for (hosted, last) in agent.hosted().zip(&mut self.0) {
            let count = agent
                .stats(&hosted.name)
                .map_or(0, |stats| stats.exceptions);
            if count != *last {
                *last = count;
                told(&hosted.kernel_name, count);
            }
        }
    }
}

/// The link of an agent in a process of its own, which also tells who started it what raised.
pub(crate) struct Telling<'a, W> {
    link: &'a mut Local,
    to: W,
    last: Last,
}

impl<'a, W: Write> Telling<'a, W> {
    /// Tells it to `to`.
    pub fn new(link: &'a mut Local, to: W) -> Telling<'a, W> {
        let last = Last::default();
        Telling { link, to, last }
    }
}

impl<W: Write> DatapathLink for Telling<'_, W> {
    fn number_from(&mut self, base: u32) {
        self.link.number_from(base);
    }

    fn receive(&mut self, agent: &mut Agent, now: Time) -> bool {
        self.link.receive(agent, now)
    }

    fn send(&mut self, agent: &mut Agent, now: Time, to: DatapathId, command: &WireCommand) {
        self.link.send(agent, now, to, command);
    }

    fn flush(&mut self, agent: &mut Agent) -> bool {
        // Who does not listen any more has ended, and this process will.
        self.last.changes(agent, |name, count| {
            drop(writeln!(self.to, "{name} {count}").and_then(|()| self.to.flush()))
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
    fn what_is_told_counts_for_those_that_are_known_and_nonsense_for_nobody() {
        let exceptions = Exceptions::default();
        exceptions.of("ccp_mine", "ccp_east");
        let long = "x".repeat(1_000);
        let told = format!(
            "ccp_mine 3\nccp_other 9\nccp_mine many\n{long}\nhello\n\u{fffd}\nccp_mine 4\nccp_mine 5"
        );
        exceptions.listen(told.as_bytes());
        assert_eq!(
            (exceptions.get("ccp_east"), exceptions.get("ccp_mine")),
            (Some(4), None)
        );
    }
}
