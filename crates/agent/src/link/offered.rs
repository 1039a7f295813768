//! Asks an agent in another process which algorithms it runs, before anything is set up for it.

use std::path::Path;
use std::sync::Arc;

use ccplane_datapath::Program;
use ccplane_units::Duration;
use ccplane_wire::{Command, DatapathInfo, Event, Offer};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Clock, LinkError, Sent, Uplink};

/// An algorithm that an agent runs, with its programs.
#[derive(Clone, Debug)]
pub struct Offered {
    /// What it is called and what it needs.
    pub offer: Arc<Offer>,
    /// Its programs, in order of declaration.
    pub programs: Vec<Arc<Program>>,
}

/// For how long an agent may think about it. An agent that is about to start, or busy, answers within a second; one that
/// says nothing in this time would not steer anything either.
const PATIENCE: Duration = Duration::from_secs(5);
/// Algorithms, and programs of each, that are listened to: more than anyone has, and an agent that never ends fills no memory.
const MOST: usize = 256;

/// Asks the agent that serves at `path` ([`Local`](super::Local)) what it runs, in the order in which it was added. `datapath`
/// is what will connect to it later, with a time after which it falls back.
pub fn offers(path: &Path, datapath: DatapathInfo) -> Result<Vec<Offered>, LinkError> {
    let silent = || LinkError::Silent(path.to_owned());
    let mut uplink = Uplink::new(path);
    uplink.connect()?;
    if uplink.event(&Event::Ready { datapath }) != Sent::Yes || !uplink.flush() {
        return Err(silent());
    }
    let clock = Clock::new();
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
        let _ = poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], PollTimeout::from(ms));
        uplink.receive(&mut |command| match command {
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
            Command::Offer(_) | Command::SetProgram { .. } | Command::Update { .. } | Command::Release { .. } => {}
        });
    }
    match offered.is_empty() {
        true => Err(silent()),
        false => Ok(offered),
    }
}
