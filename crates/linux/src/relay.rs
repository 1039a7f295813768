//! The driver for an agent in another process: forwards events to the agent and commands to the
//! kernel.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use ccplane_link::{AgentConnection, SendOutcome};
use ccplane_units::{Duration, Time};
use ccplane_wire::{WireCommand, WireEvent};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::clock;
use crate::drive::{Observer, STOP_POLL_INTERVAL};
use crate::kernel::Kernel;
use crate::privilege;

/// Relays until `stop` is set. Without an agent the flows run the fallback. An agent that
/// reconnects gets an announcement of every live flow.
///
/// Like [`run_agent`](crate::run_agent), it requests a higher scheduling priority for this thread.
pub fn run_relay(
    kernel: &mut Kernel,
    remote: &mut dyn AgentConnection,
    stop: &AtomicBool,
    observer: &mut impl Observer,
) {
    privilege::raise_thread_priority();
    Relay::new(kernel, remote, observer).run(stop);
}

/// Like [`run_relay`], in a thread that keeps only CAP_DAC_OVERRIDE, to reach another user's socket
/// when it reconnects. The commands it reads are untrusted input.
pub fn run_relay_unprivileged(
    kernel: &mut Kernel,
    remote: &mut dyn AgentConnection,
    stop: &AtomicBool,
    observer: &mut impl Observer,
) -> std::io::Result<()> {
    privilege::raise_thread_priority();
    privilege::keep_access_to_files()?;
    Relay::new(kernel, remote, observer).run(stop);
    Ok(())
}

pub(crate) struct Relay<'a, O> {
    kernel: &'a mut Kernel,
    remote: &'a mut dyn AgentConnection,
    observer: &'a mut O,
    /// Events that did not fit in the agent's socket, with their fields. While there are any, the
    /// kernel's ring is not read, so they are at most the contents of one ring; when the ring is
    /// full, the flows keep their measurements.
    queued: VecDeque<(WireEvent<'static>, Vec<u64>)>,
    /// Data is waiting for room in the agent's socket.
    blocked: bool,
    /// Time of the next connection attempt.
    retry_at: Time,
}

impl<'a, O: Observer> Relay<'a, O> {
    pub fn new(
        kernel: &'a mut Kernel,
        remote: &'a mut dyn AgentConnection,
        observer: &'a mut O,
    ) -> Relay<'a, O> {
        Relay {
            kernel,
            remote,
            observer,
            queued: VecDeque::new(),
            blocked: false,
            retry_at: Time::ZERO,
        }
    }

    fn run(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let events = self.poll_once();
            self.wait(events);
        }
    }

    /// Forwards everything pending in both directions, without waiting. Returns the number of
    /// events.
    pub fn poll_once(&mut self) -> usize {
        let now = clock::now();
        if !self.remote.is_connected() && now >= self.retry_at {
            self.connect(now);
        }
        let events = self.forward_events();
        let Relay {
            kernel,
            remote,
            observer,
            ..
        } = self;
        remote.receive(clock::now(), &mut |command| {
            // An agent installs programs for all of its algorithms; this kernel may have only some
            // of them.
            if let WireCommand::Install { algorithm, .. } = &command
                && !kernel.counters().any(|(name, _, _)| *name == **algorithm)
            {
                return;
            }
            observer.on_command(clock::now(), &command);
            kernel.apply(&command);
        });
        events
    }

    fn connect(&mut self, now: Time) {
        if let Err(why) = self.remote.connect(now) {
            tracing::debug!(%why, "no agent");
            self.retry_at = now + self.remote.next_attempt(now);
            return;
        }
        self.queued.clear();
        let watched = self.remote.as_fd().map(|fd| self.kernel.add_wakeup(fd));
        if let Some(Err(why)) = watched {
            tracing::warn!(%why, "commands of the agent are delayed");
        }
        let ready = WireEvent::Ready {
            datapath: self.kernel.info(),
        };
        send_or_queue(self.remote, &mut self.queued, &ready);
        self.kernel.announce();
    }

    /// Forwards events of the kernel. Returns their number.
    fn forward_events(&mut self) -> usize {
        let Relay {
            kernel,
            remote,
            observer,
            queued: kept,
            blocked: behind,
            ..
        } = self;
        while let Some((event, fields)) = kept.front() {
            let sent = match event {
                WireEvent::Report {
                    flow,
                    program,
                    urgent,
                    ..
                } => remote.queue_event(&WireEvent::Report {
                    flow: *flow,
                    program: *program,
                    urgent: *urgent,
                    fields,
                }),
                other => remote.queue_event(other),
            };
            match sent {
                SendOutcome::Queued => drop(kept.pop_front()),
                SendOutcome::Full => break,
                SendOutcome::NoAgent => kept.clear(),
            }
        }
        let mut events = 0;
        if kept.is_empty() {
            events = kernel.drain(&mut |batch| {
                let now = clock::now();
                for event in &batch {
                    observer.on_event(now, event);
                    send_or_queue(*remote, kept, event);
                }
            });
        }
        let sent = remote.flush();
        *behind = remote.is_connected() && (!sent || !kept.is_empty());
        events
    }

    fn wait(&mut self, events: usize) {
        let now = clock::now();
        let mut longest = STOP_POLL_INTERVAL;
        if let Some(due) = self.remote.next_deadline() {
            longest = longest.min(due.since(now));
        }
        if !self.remote.is_connected() {
            longest = longest.min(self.retry_at.since(now));
        }
        match self.remote.as_fd() {
            Some(fd) if self.blocked => wait_for_room(fd, longest),
            // Two events in one poll: more will follow, so batching pays.
            _ => self.kernel.sleep(longest, events >= 2),
        }
    }
}

/// Sends an event to the agent, or keeps it for later. Without an agent it is dropped: a new agent
/// gets an announcement of all flows.
fn send_or_queue(
    remote: &mut dyn AgentConnection,
    kept: &mut VecDeque<(WireEvent<'static>, Vec<u64>)>,
    event: &WireEvent<'_>,
) {
    if kept.is_empty() && remote.queue_event(event) != SendOutcome::Full {
        return;
    }
    let fields = match event {
        WireEvent::Report { fields, .. } => fields.to_vec(),
        _ => Vec::new(),
    };
    let event = match event.clone() {
        WireEvent::Report {
            flow,
            program,
            urgent,
            ..
        } => WireEvent::Report {
            flow,
            program,
            urgent,
            fields: &[],
        },
        WireEvent::Ready { datapath } => WireEvent::Ready { datapath },
        WireEvent::FlowOpened { flow, info } => WireEvent::FlowOpened { flow, info },
        WireEvent::FlowClosed { flow, stats } => WireEvent::FlowClosed { flow, stats },
        WireEvent::Refused { flow, program, why } => WireEvent::Refused { flow, program, why },
        WireEvent::Installed { program } => WireEvent::Installed { program },
    };
    kept.push_back((event, fields));
}

fn wait_for_room(fd: BorrowedFd<'_>, longest: Duration) {
    let ms = longest.as_nanos().div_ceil(1_000_000).clamp(1, 1000) as u16;
    // An error or an interruption counts as a timeout.
    let _ = poll(
        &mut [PollFd::new(fd, PollFlags::POLLIN | PollFlags::POLLOUT)],
        PollTimeout::from(ms),
    );
}
