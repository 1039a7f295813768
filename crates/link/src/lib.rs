//! Transports between datapaths and agents, and the TLS identities of hosts.
//!
//! [`serve`] runs an agent over any number of [`DatapathLink`]s on one thread. The agent's ends are
//! [`Datagram`] for existing CCP datapaths (version-1 messages), [`Local`] for ccplane datapaths on
//! the same host (version 2 over a Unix socket), `TlsLink` (feature `tls`) for datapaths on other
//! hosts, and [`ThreadLink`] for a datapath in another thread of the same process. The datapath's
//! ends are [`RemoteChannel`], over an [`Uplink`] or a `TlsUplink`, and [`ThreadChannel`].
#![forbid(unsafe_code)]

mod accept_backoff;
mod agent_connection;
mod agent_thread;
mod backoff;
mod ccp_uplink;
mod datagram;
mod derived_path;
mod error;
mod failover;
#[cfg(feature = "tls")]
pub mod identity;
mod known_peers;
mod local;
mod offers;
mod pollable;
mod random;
mod remote_channel;
pub mod secret_file;
mod socket;
#[cfg(all(test, feature = "tls"))]
mod tests;
mod thread_channel;
#[cfg(feature = "tls")]
mod tls;
mod uplink;
mod warning;

pub use agent_connection::{AgentAddress, AgentConnection, BadAddress, SendOutcome};
pub use agent_thread::AgentThread;
pub use ccp_uplink::CcpUplink;
pub use datagram::Datagram;
pub use error::LinkError;
pub use failover::Failover;
pub use local::Local;
pub use offers::{AgentOffers, OfferedAlgorithm, connect_blocking, query_offers};
pub use pollable::Pollable;
pub use remote_channel::RemoteChannel;
pub use thread_channel::{ThreadChannel, ThreadLink, thread_channel};
#[cfg(feature = "tls")]
pub use tls::{
    KEY_DIRECTORY, KeyError, Keys, NewKeys, RemoteAgentError, Role, TlsAddress, TlsLink, TlsUplink,
    make_keys, remote_agent_timeout, revoke_key,
};
pub use uplink::Uplink;

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use ccplane_units::{Duration, Time};
use ccplane_wire::WireCommand;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use ccplane_agent::{Agent, DatapathId};

/// The agent's end of a transport to one or more datapaths.
pub trait DatapathLink {
    /// Assigns the range of datapath ids that starts at `base` and contains 2^24 ids.
    fn set_id_base(&mut self, base: u32);

    /// Passes the messages that have arrived to the agent, a few hundred at most. Returns whether
    /// there were any. Never blocks.
    fn receive(&mut self, agent: &mut Agent, now: Time) -> bool;

    /// Queues a command for one of the datapaths, to be sent with the next flush.
    fn send(&mut self, agent: &mut Agent, now: Time, to: DatapathId, command: &WireCommand);

    /// Sends the queued commands, as far as the receivers keep up. Never blocks. Returns true while
    /// a receiver is full that [`watch`](DatapathLink::watch) cannot watch, so that the caller must
    /// retry soon.
    fn flush(&mut self, agent: &mut Agent) -> bool;

    /// Returns the latest time for the next call of [`receive`](DatapathLink::receive), if no
    /// message arrives before.
    fn next_deadline(&self) -> Option<Time> {
        None
    }

    /// Adds the descriptors to poll: for incoming messages, and for writability where a send is
    /// pending.
    fn watch<'a>(&'a self, watched: &mut Vec<(BorrowedFd<'a>, PollFlags)>);
}

/// Waiting strategy of a thread that serves links.
#[derive(Clone, Copy, Debug)]
pub struct WaitStrategy {
    /// Time to busy-poll for the next message before sleeping; zero disables busy polling. If the
    /// next message arrives within this time, a wake-up is saved (5 to 100 µs); otherwise up to
    /// this much CPU time is wasted. After unsuccessful polls the thread polls less often, see
    /// [`Spinner`].
    pub spin: Duration,
}

impl Default for WaitStrategy {
    /// 200 µs: twice the wake-up latency of the other side in an idle virtual machine, where it is
    /// highest, so that a reply arrives while this thread is still polling. With 50 µs both sides
    /// sleep there, and an exchange takes both wake-ups (94 µs instead of 25 µs).
    fn default() -> WaitStrategy {
        WaitStrategy {
            spin: Duration::from_micros(200),
        }
    }
}

/// Monotonic clock of an agent's or datapath's thread, starting at zero.
#[derive(Clone, Copy, Debug)]
pub struct ThreadClock(Instant);

#[expect(clippy::disallowed_methods, reason = "the clock of the agent's driver")]
impl ThreadClock {
    /// Starts a clock at zero.
    #[expect(
        clippy::new_without_default,
        reason = "two default clocks would differ"
    )]
    pub fn new() -> ThreadClock {
        ThreadClock(Instant::now())
    }

    /// Returns the current time.
    pub fn now(self) -> Time {
        Time::ZERO + Duration::from(self.0.elapsed())
    }
}

/// Serves datapaths until `stop` is set.
pub fn serve(
    agent: &mut Agent,
    links: &mut [&mut dyn DatapathLink],
    waiting: WaitStrategy,
    stop: &AtomicBool,
) -> Result<(), LinkError> {
    for (index, link) in links.iter_mut().enumerate() {
        link.set_id_base((index as u32) << LINK_NUMBER_BITS);
    }
    let clock = ThreadClock::new();
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
            if let Some(link) = links.get_mut((to.0 >> LINK_NUMBER_BITS) as usize) {
                link.send(agent, now, to, &command);
            }
        }
        let mut again = false;
        for link in links.iter_mut() {
            again |= link.flush(agent);
        }
        if spinner.should_poll(busy, now) {
            std::hint::spin_loop();
            continue;
        }
        let longest = if again {
            RETRY_INTERVAL
        } else {
            STOP_LATENCY_MAX
        };
        let deadlines = links.iter().filter_map(|link| link.next_deadline());
        let due = deadlines.chain(agent.next_deadline()).min();
        wait(
            links,
            due.map_or(longest, |due| due.since(clock.now()).min(longest)),
        )?;
    }
    Ok(())
}

const LINK_NUMBER_BITS: u32 = 24;
/// Longest time before a stop is noticed.
const STOP_LATENCY_MAX: Duration = Duration::from_millis(100);
/// Retry interval for sends whose readiness cannot be polled.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

fn wait(links: &[&mut dyn DatapathLink], longest: Duration) -> Result<(), LinkError> {
    let mut watched = Vec::new();
    links.iter().for_each(|link| link.watch(&mut watched));
    let mut fds: Vec<PollFd<'_>> = watched
        .into_iter()
        .map(|(fd, flags)| PollFd::new(fd, flags))
        .collect();
    // Round up: if the deadline were rounded down, the loop would spin until it is reached.
    let ms = longest.as_nanos().div_ceil(1_000_000).min(60_000);
    match poll(&mut fds, PollTimeout::from(ms as u16)) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(why) => Err(LinkError::Wait(why)),
    }
}

/// Decides between busy polling and sleeping.
///
/// It polls as long as that pays off. If the other side needs this CPU to reply, polling only
/// delays the reply, so after an unsuccessful poll the spinner sleeps for a number of messages that
/// doubles with every further failure. Successful polls reduce this penalty slowly: with mixed
/// results, as next to a busy process, resetting it at once would slow down the slowest 1 % of
/// exchanges.
#[derive(Debug)]
pub struct Spinner {
    spin: Duration,
    last_message: Time,
    /// Messages left for which the thread sleeps without polling.
    sleeps: u32,
    /// Number of such messages after the next unsuccessful poll.
    penalty: u32,
    gave_up: bool,
}

const POLL_PENALTY_MIN: u32 = 16;
const POLL_PENALTY_MAX: u32 = 4_096;
/// Successful polls after which about two thirds of the penalty are gone. A smaller value would
/// poll again too soon. A larger one only delays the next attempt after an unsuccessful poll, while
/// each message costs a wake-up.
const PENALTY_DECAY_POLLS: u32 = 64;

impl Spinner {
    /// Creates a spinner for a thread with this waiting strategy.
    pub fn new(waiting: WaitStrategy) -> Spinner {
        Spinner {
            spin: waiting.spin,
            last_message: Time::ZERO,
            sleeps: 0,
            penalty: POLL_PENALTY_MIN,
            gave_up: false,
        }
    }

    /// Returns whether to poll again instead of sleeping. `busy`: the last poll found messages.
    pub fn should_poll(&mut self, busy: bool, now: Time) -> bool {
        if busy {
            match (self.sleeps, self.gave_up) {
                (0, true) => {
                    self.sleeps = self.penalty;
                    self.penalty = (self.penalty * 2).min(POLL_PENALTY_MAX);
                }
                (0, false) => {
                    self.penalty =
                        (self.penalty - self.penalty / PENALTY_DECAY_POLLS).max(POLL_PENALTY_MIN)
                }
                (left, _) => self.sleeps = left - 1,
            }
            self.gave_up = false;
            self.last_message = now;
            return self.spin > Duration::ZERO && self.sleeps == 0;
        }
        let looks = self.sleeps == 0 && now.since(self.last_message) < self.spin;
        self.gave_up |= !looks;
        looks
    }
}
