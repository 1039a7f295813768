//! Asks an agent in another process which algorithms it runs, before anything is set up for it.

use std::sync::Arc;

use ccplane_datapath::Program;
use ccplane_units::{Duration, Time};
use ccplane_wire::{Command, DatapathInfo, Event, Offer};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{AgentAddress, Clock, LinkError, Remote, Sent};

/// An algorithm that an agent runs, with its programs.
#[derive(Clone, Debug)]
pub struct Offered {
    /// What it is called and what it needs.
    pub offer: Arc<Offer>,
    /// Its programs, in order of declaration.
    pub programs: Vec<Arc<Program>>,
}

/// For how long an agent may think about it. An agent that is about to start, or busy, answers
/// within a second; one that says nothing in this time would not steer anything either.
const PATIENCE: Duration = Duration::from_secs(5);
/// Algorithms, and programs of each, that are listened to: more than anyone has, and an agent that
/// never ends fills no memory.
const MOST: usize = 256;

/// What an agent said of itself.
#[derive(Clone, Debug)]
pub struct Offers {
    /// Its algorithms, in the order in which they were added.
    pub algorithms: Vec<Offered>,
    /// The round trip to it, where it is on another host.
    pub round_trip: Option<Duration>,
}

/// Asks the agent there, one of ccplane's, what it runs. `datapath` is what will connect to it
/// later, with a time after which it falls back.
pub fn offers(address: &AgentAddress, datapath: DatapathInfo) -> Result<Offers, LinkError> {
    let silent = || LinkError::Silent(address.clone());
    let (mut uplink, clock) = (address.remote("", None), Clock::new());
    settle(&mut *uplink, clock.now())?;
    if uplink.event(&Event::Ready { datapath }) != Sent::Yes || !uplink.flush() {
        return Err(silent());
    }
    let mut offered: Vec<Offered> = Vec::new();
    // Heartbeats follow when everything was said.
    let mut complete = false;
    while !complete {
        let left = PATIENCE.saturating_sub(Duration::from_nanos(clock.now().as_nanos()));
        let Some(fd) = uplink.as_fd().filter(|_| left > Duration::ZERO) else {
            return Err(silent());
        };
        let ms = left.as_nanos().div_ceil(1_000_000).min(60_000) as u16;
        // An error or an interruption: the next look finds out.
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

/// Connects, and waits until it is known whether an agent is there; `now` is the time by its
/// owner's clock.
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
                // An error or an interruption: the next look finds out.
                let _ = poll(&mut watched, PollTimeout::from(ms));
            }
            known => return known,
        }
    }
}
