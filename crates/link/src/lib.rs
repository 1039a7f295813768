//! Channels between datapaths and agents, and the keys of hosts.
//!
//! [`serve`] runs an agent over any number of [`Link`]s on one thread. [`Datagram`] takes existing
//! CCP datapaths (version-1 messages), [`Local`] those of ccplane over a Unix socket (version 2),
//! [`TlsLink`] those on other hosts, and [`Served`] one in another thread of this process. The
//! datapath's ends are [`There`], over an [`Uplink`] or a [`TlsUplink`], and [`Beside`].
#![forbid(unsafe_code)]

mod backoff;
mod beside;
mod datagram;
mod derived;
mod error;
mod foreign;
pub mod identity;
mod local;
mod offered;
mod pollable;
mod random;
mod remembered;
mod remote;
mod rest;
mod several;
mod socket;
#[cfg(test)]
mod tests;
mod there;
mod thread;
mod tls;
mod uplink;
mod warning;

pub use beside::{Beside, Served, beside};
pub use datagram::Datagram;
pub use error::LinkError;
pub use foreign::CcpUplink;
pub use local::Local;
pub use offered::{Offered, Offers, offers, settle};
pub use pollable::Pollable;
pub use remote::{AgentAddress, BadAddress, Remote, Sent};
pub use several::Several;
pub use there::There;
pub use thread::AgentThread;
pub use tls::{
    FarError, KEYS, KeyError, Keys, Made, Role, TlsAddress, TlsLink, TlsUplink, far_silence,
    make_keys, revoke_key,
};
pub use uplink::Uplink;

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ccplane_units::{Duration, Time};
use ccplane_wire::Command;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use ccplane_agent::{Agent, DatapathId};

/// A way to datapaths.
pub trait Link {
    /// Takes the numbers from `base` on, 2^24 of them, for its datapaths.
    fn number_from(&mut self, base: u32);

    /// Gives the agent what has arrived, some hundred messages at most; true if there was anything.
    /// Never blocks.
    fn receive(&mut self, agent: &mut Agent, now: Time) -> bool;

    /// Takes a command for one of its datapaths, to be sent at the next flush.
    fn send(&mut self, agent: &mut Agent, now: Time, to: DatapathId, command: &Command);

    /// Sends what it took, as far as the receivers keep up. Never blocks. True while something
    /// waits for a receiver that [`watch`](Link::watch) cannot watch, so that the flush is to be
    /// tried again soon.
    fn flush(&mut self, agent: &mut Agent) -> bool;

    /// When to call [`receive`](Link::receive) at the latest, where no message is to be waited for.
    fn next_deadline(&self) -> Option<Time> {
        None
    }

    /// What to wait for: everything that arrives, and room where something could not be sent.
    fn watch<'a>(&'a self, watched: &mut Vec<(BorrowedFd<'a>, PollFlags)>);
}

/// How a thread waits for messages.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// For how long after the last message it looks for the next without sleeping. It saves a
    /// wake-up, some 5 to 100 µs, from every exchange that follows within this time, and costs as
    /// much CPU at most after each that does not. A thread that looks in vain does so for fewer and
    /// fewer messages. Zero: never.
    pub spin: Duration,
}

impl Default for Waiting {
    /// 200 µs: twice what a wake-up of the other side takes where it is slow, in an idle virtual
    /// machine, so that an answer finds this thread looking. With 50 µs both sides sleep there, and
    /// an exchange takes the wake-ups of both (94 µs instead of 25).
    fn default() -> Waiting {
        Waiting {
            spin: Duration::from_micros(200),
        }
    }
}

/// Time since the thread began.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

#[expect(clippy::disallowed_methods, reason = "the clock of the agent's driver")]
impl Clock {
    /// A clock that shows zero.
    #[expect(
        clippy::new_without_default,
        reason = "two clocks made by default would differ"
    )]
    pub fn new() -> Clock {
        Clock(Instant::now())
    }

    /// The present.
    pub fn now(self) -> Time {
        Time::ZERO + Duration::from(self.0.elapsed())
    }
}

/// Serves datapaths until `stop` is set.
pub fn serve(
    agent: &mut Agent,
    links: &mut [&mut dyn Link],
    waiting: Waiting,
    stop: &AtomicBool,
) -> Result<(), LinkError> {
    for (index, link) in links.iter_mut().enumerate() {
        link.number_from((index as u32) << LINK_BITS);
    }
    let clock = Clock::new();
    let mut spinner = Spinner::new(waiting);
    while !stop.load(Ordering::Relaxed) {
        let now = clock.now();
        let mut busy = false;
        for link in links.iter_mut() {
            busy |= link.receive(agent, now);
        }
        if agent.next_deadline().is_some_and(|due| due <= now) {
            agent.on_deadline(now);
        }
        while let Some((to, command)) = agent.poll() {
            if let Some(link) = links.get_mut((to.0 >> LINK_BITS) as usize) {
                link.send(agent, now, to, &command);
            }
        }
        let mut again = false;
        for link in links.iter_mut() {
            again |= link.flush(agent);
        }
        if spinner.goes_on(busy, now) {
            std::hint::spin_loop();
            continue;
        }
        let longest = if again { RETRY } else { STOP_SEEN_WITHIN };
        let deadlines = links.iter().filter_map(|link| link.next_deadline());
        let due = deadlines.chain(agent.next_deadline()).min();
        wait(
            links,
            due.map_or(longest, |due| due.since(clock.now()).min(longest)),
        )?;
    }
    Ok(())
}

const LINK_BITS: u32 = 24;
/// A stop is seen at the latest after this.
const STOP_SEEN_WITHIN: Duration = Duration::from_millis(100);
/// How soon to try again where the kernel cannot say when there is room.
const RETRY: Duration = Duration::from_millis(1);

fn wait(links: &[&mut dyn Link], longest: Duration) -> Result<(), LinkError> {
    let mut watched = Vec::new();
    links.iter().for_each(|link| link.watch(&mut watched));
    let mut fds: Vec<PollFd<'_>> = watched
        .into_iter()
        .map(|(fd, flags)| PollFd::new(fd, flags))
        .collect();
    // Rounded up: a deadline is never looked at early, over and over.
    let ms = longest.as_nanos().div_ceil(1_000_000).min(60_000);
    match poll(&mut fds, PollTimeout::from(ms as u16)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(why) => Err(LinkError::Wait(why)),
    }
}

/// Decides between looking again at once and sleeping.
///
/// It looks as long as that pays. Where the other side needs this CPU to answer, looking only
/// delays the answer: after a look in vain it sleeps for a number of messages that doubles with
/// every further one. Looks that pay make it forget slowly: where some pay and some do not, as
/// beside a busy process, the others would cost the slowest hundredth of all exchanges.
#[derive(Debug)]
pub struct Spinner {
    spin: Duration,
    last: Time,
    /// Messages for which it sleeps at once.
    sleeps: u32,
    /// The next number of them.
    penalty: u32,
    gave_up: bool,
}

const LEAST_PENALTY: u32 = 16;
const MOST_PENALTY: u32 = 4_096;
/// How many useful checks it takes until about two thirds of the penalty are forgotten. Fewer would
/// try again too soon. More only delay the next try after a useless check, where sleeping costs a
/// wake-up per message.
const FORGETS: u32 = 64;

impl Spinner {
    /// For a thread that waits like this.
    pub fn new(waiting: Waiting) -> Spinner {
        Spinner {
            spin: waiting.spin,
            last: Time::ZERO,
            sleeps: 0,
            penalty: LEAST_PENALTY,
            gave_up: false,
        }
    }

    /// Whether to look again rather than to sleep; `busy`: the last look found something.
    pub fn goes_on(&mut self, busy: bool, now: Time) -> bool {
        if busy {
            match (self.sleeps, self.gave_up) {
                (0, true) => {
                    self.sleeps = self.penalty;
                    self.penalty = (self.penalty * 2).min(MOST_PENALTY);
                }
                (0, false) => {
                    self.penalty = (self.penalty - self.penalty / FORGETS).max(LEAST_PENALTY)
                }
                (left, _) => self.sleeps = left - 1,
            }
            self.gave_up = false;
            self.last = now;
            return self.spin > Duration::ZERO && self.sleeps == 0;
        }
        let looks = self.sleeps == 0 && now.since(self.last) < self.spin;
        self.gave_up |= !looks;
        looks
    }
}
