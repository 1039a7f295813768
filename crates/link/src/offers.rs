//! Queries the algorithms of an agent in another process before anything is set up for it.

use std::sync::Arc;

use ccplane_datapath::Program;
use ccplane_units::{Duration, Time};
use ccplane_wire::{DatapathInfo, Offer, WireCommand, WireEvent};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{AgentAddress, AgentConnection, LinkError, SendOutcome, ThreadClock};

/// An algorithm of an agent, with its programs.
#[derive(Clone, Debug)]
pub struct OfferedAlgorithm {
    /// Name and required capabilities.
    pub offer: Arc<Offer>,
    /// Programs in order of declaration.
    pub programs: Vec<Arc<Program>>,
}

/// Timeout for the reply. An agent that is starting or busy replies within a second; one that does
/// not reply in this time could not control flows either.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Limit of algorithms, and of programs per algorithm, far above real numbers. Bounds the memory
/// that a faulty agent can use.
const ALGORITHMS_MAX: usize = 256;

/// Reply of an agent.
#[derive(Clone, Debug)]
pub struct AgentOffers {
    /// Algorithms in the order in which they were added.
    pub algorithms: Vec<OfferedAlgorithm>,
    /// RTT to the agent; `None` if it is on this host.
    pub round_trip: Option<Duration>,
}

/// Queries the algorithms of a ccplane agent. `datapath` describes the datapath that will connect
/// later, including its fallback timeout.
pub fn query_offers(
    address: &AgentAddress,
    datapath: DatapathInfo,
) -> Result<AgentOffers, LinkError> {
    let silent = || LinkError::Silent(address.clone());
    let (mut uplink, clock) = (address.connection(""), ThreadClock::new());
    connect_blocking(&mut *uplink, clock.now())?;
    if uplink.queue_event(&WireEvent::Ready { datapath }) != SendOutcome::Queued || !uplink.flush()
    {
        return Err(silent());
    }
    let mut offered: Vec<OfferedAlgorithm> = Vec::new();
    // The first heartbeat marks the end of the list.
    let mut complete = false;
    while !complete {
        let left = REPLY_TIMEOUT.saturating_sub(Duration::from_nanos(clock.now().as_nanos()));
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
            WireCommand::Offer(offer) if offered.len() < ALGORITHMS_MAX => {
                offered.push(OfferedAlgorithm {
                    offer,
                    programs: Vec::new(),
                })
            }
            WireCommand::Install { algorithm, program } => {
                if let Some(of) = offered
                    .iter_mut()
                    .find(|of| of.offer.name == algorithm && of.programs.len() < ALGORITHMS_MAX)
                {
                    of.programs.push(program);
                }
            }
            WireCommand::Heartbeat { .. } => complete = true,
            WireCommand::Offer(_)
            | WireCommand::SetProgram { .. }
            | WireCommand::Update { .. }
            | WireCommand::Release { .. } => {}
        });
    }
    match offered.is_empty() {
        true => Err(silent()),
        false => Ok(AgentOffers {
            algorithms: offered,
            round_trip: uplink.round_trip(),
        }),
    }
}

/// Connects and waits until the attempt has succeeded or failed. `now` is the time of the caller's
/// clock.
pub fn connect_blocking(remote: &mut dyn AgentConnection, now: Time) -> Result<(), LinkError> {
    let clock = ThreadClock::new();
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
