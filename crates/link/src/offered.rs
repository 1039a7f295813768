//! Queries the algorithms of an agent in another process before anything is set up for it.

use std::sync::Arc;

use ccplane_datapath::Program;
use ccplane_units::{Duration, Time};
use ccplane_wire::{Command, DatapathInfo, Event, Offer};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{AgentAddress, Clock, LinkError, Remote, Sent};

/// An algorithm of an agent, with its programs.
#[derive(Clone, Debug)]
pub struct Offered {
    /// Name and required capabilities.
    pub offer: Arc<Offer>,
    /// Programs in order of declaration.
    pub programs: Vec<Arc<Program>>,
}

/// Timeout for the reply. An agent that is starting or busy replies within a second; one that does
/// not reply in this time could not control flows either.
const PATIENCE: Duration = Duration::from_secs(5);
/// Limit of algorithms, and of programs per algorithm, far above real numbers. Bounds the memory
/// that a faulty agent can use.
const MOST: usize = 256;

/// Reply of an agent.
#[derive(Clone, Debug)]
pub struct Offers {
    /// Algorithms in the order in which they were added.
    pub algorithms: Vec<Offered>,
    /// RTT to the agent; `None` if it is on this host.
    pub round_trip: Option<Duration>,
}

/// Queries the algorithms of a ccplane agent. `datapath` describes the datapath that will connect
/// later, including its fallback timeout.
pub fn offers(address: &AgentAddress, datapath: DatapathInfo) -> Result<Offers, LinkError> {
    let silent = || LinkError::Silent(address.clone());
    let (mut uplink, clock) = (address.remote("", None), Clock::new());
    settle(&mut *uplink, clock.now())?;
    if uplink.event(&Event::Ready { datapath }) != Sent::Yes || !uplink.flush() {
        return Err(silent());
    }
    let mut offered: Vec<Offered> = Vec::new();
    // The first heartbeat marks the end of the list.
    let mut complete = false;
    while !complete {
        let left = PATIENCE.saturating_sub(Duration::from_nanos(clock.now().as_nanos()));
        let Some(fd) = uplink.as_fd().filter(|_| left > Duration::ZERO) else {
            return Err(silent());
        };
        let ms = left.as_nanos().div_ceil(1_000_000).min(60_000) as u16;
        // Ignore errors and interruptions: `receive` detects them.
        let _ = poll(
            &mut [PollFd::new(fd, PollFlags::POLLIN)],
            PollTimeout::from(ms),
        );
        uplink.receive(clock.now(), &mut |command| match command {
            Command::Offer(offer) if offered.len() < MOST => offered.push(Offered {
                offer,
                programs: Vec::new(),
            }),
            Command::Install { algorithm, program } => {
                if let Some(of) = offered
                    .iter_mut()
                    .find(|of| of.offer.name == algorithm && of.programs.len() < MOST)
                {
                    of.programs.push(program);
                }
            }
            Command::Heartbeat { .. } => complete = true,
            Command::Offer(_)
            | Command::SetProgram { .. }
            | Command::Update { .. }
            | Command::Release { .. } => {}
        });
    }
    match offered.is_empty() {
        true => Err(silent()),
        false => Ok(Offers {
            algorithms: offered,
            round_trip: uplink.round_trip(),
        }),
    }
}

/// Connects and waits until the attempt has succeeded or failed. `now` is the time of the caller's
/// clock.
pub fn settle(remote: &mut dyn Remote, now: Time) -> Result<(), LinkError> {
    let clock = Clock::new();
    loop {
        let at = now + Duration::from_nanos(clock.now().as_nanos());
        match remote.connect(at) {
            Err(LinkError::Connecting) => {
                let ms = remote
                    .next_attempt(at)
                    .as_nanos()
                    .div_ceil(1_000_000)
                    .clamp(1, 100) as u16;
                let mut watched: Vec<PollFd<'_>> = remote
                    .as_fd()
                    .into_iter()
                    .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
                    .collect();
                // Ignore errors and interruptions: the next `connect` detects them.
                let _ = poll(&mut watched, PollTimeout::from(ms));
            }
            known => return known,
        }
    }
}
