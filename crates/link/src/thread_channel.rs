//! Channel to an agent in another thread of the same process: two queues, and an eventfd that wakes
//! each side.
//!
//! [`beside`] creates both ends. The datapath uses [`ThreadChannel`]; the agent's thread passes
//! [`ThreadLink`] to [`serve`](crate::serve). A slow callback delays no packets here, unlike with
//! [`Here`](ccplane_agent::datapath::InlineChannel).

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ccplane_agent::datapath::{AgentChannel, AgentEvent, Incoming, recycle_events};
use ccplane_agent::{Agent, DatapathId};
use ccplane_units::Time;
use ccplane_wire::{WireCommand, WireEvent};
use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::{DatapathLink, LinkError, Pollable};

/// Limit of queued reports. A lower limit would refuse reports of a burst of flows while a callback
/// runs; at a higher one, reports would only become stale. Refused reports stay in their flow and
/// are merged with later measurements.
const QUEUED_REPORTS_MAX: usize = 4_096;
/// Replies to commands are dropped above this queue length, so that an agent that sends commands
/// but does not read cannot exhaust memory.
const QUEUED_REPLIES_MAX: usize = 2 * QUEUED_REPORTS_MAX;
/// A datapath with this many pending commands is closed.
const PENDING_COMMANDS_MAX: usize = 1 << 16;

/// Creates the two ends of a channel between threads.
pub fn thread_channel() -> Result<(ThreadChannel, ThreadLink), LinkError> {
    let queue = Arc::new(Queues {
        to_agent: Mutex::new(VecDeque::with_capacity(QUEUED_REPORTS_MAX)),
        from_agent: Mutex::new(VecDeque::new()),
        agent_wakes: wake()?,
        datapath_wakes: wake()?,
        agent_gone: AtomicBool::new(false),
        datapath_gone: AtomicBool::new(false),
    });
    let datapath = ThreadChannel {
        queues: Arc::clone(&queue),
        needs_wake: false,
        received: VecDeque::new(),
    };
    let agent = ThreadLink {
        queues: queue,
        id: DatapathId(0),
        needs_wake: false,
        closed: false,
        drained: VecDeque::with_capacity(QUEUED_REPORTS_MAX),
        batch: Vec::new(),
    };
    Ok((datapath, agent))
}

fn wake() -> Result<EventFd, LinkError> {
    EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).map_err(LinkError::Wait)
}

struct Queues {
    to_agent: Mutex<VecDeque<AgentEvent>>,
    from_agent: Mutex<VecDeque<WireCommand>>,
    agent_wakes: EventFd,
    datapath_wakes: EventFd,
    agent_gone: AtomicBool,
    datapath_gone: AtomicBool,
}

/// Locks a queue. Ignores poisoning: messages are pushed and popped as a whole.
fn locked<T>(queue: &Mutex<T>) -> MutexGuard<'_, T> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes the other side. A wake-up that is already pending is sufficient.
fn notify(wake: &EventFd) {
    let _: Result<usize, Errno> = wake.write(1);
}

/// The datapath's end.
pub struct ThreadChannel {
    queues: Arc<Queues>,
    /// True if a message was queued since the last flush.
    needs_wake: bool,
    received: VecDeque<WireCommand>,
}

impl AgentChannel for ThreadChannel {
    fn try_report(&mut self, _now: Time, report: &WireEvent<'_>) -> bool {
        if self.queues.agent_gone.load(Ordering::Acquire) {
            return false;
        }
        let mut queue = locked(&self.queues.to_agent);
        let room = queue.len() < QUEUED_REPORTS_MAX;
        if room {
            queue.extend(AgentEvent::from_report(report));
            self.needs_wake = true;
        }
        room
    }

    fn send(&mut self, _now: Time, event: WireEvent<'static>) {
        if self.queues.agent_gone.load(Ordering::Acquire) {
            return;
        }
        let mut queue = locked(&self.queues.to_agent);
        match event {
            // If the agent does not keep up, a flow that ended before its opening was delivered is
            // never reported. So the queue length is bounded by the live flows and the flows the
            // agent already has, whatever the churn.
            WireEvent::FlowClosed { flow, .. }
                if queue.len() >= QUEUED_REPORTS_MAX && cancel_opening(&mut queue, flow) => {}
            WireEvent::Installed { .. } | WireEvent::Refused { .. }
                if queue.len() >= QUEUED_REPLIES_MAX => {}
            event => queue.push_back(AgentEvent::Other(event)),
        }
        self.needs_wake = true;
    }

    fn poll(&mut self, _now: Time) {
        // Clear the eventfd before taking the queue, so that later messages signal again.
        let _ = self.queues.datapath_wakes.read();
        self.received.append(&mut locked(&self.queues.from_agent));
    }

    fn recv(&mut self, _now: Time) -> Option<Incoming> {
        self.received.pop_front().map(Incoming::Command)
    }

    fn flush(&mut self, _now: Time) {
        if std::mem::take(&mut self.needs_wake) {
            notify(&self.queues.agent_wakes);
        }
    }

    fn next_deadline(&self) -> Option<Time> {
        None
    }
}

impl Pollable for ThreadChannel {
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queues.datapath_wakes.as_fd())
    }
}

/// Removes the messages of a closed flow if its opening is still queued. Returns whether it was.
fn cancel_opening(queue: &mut VecDeque<AgentEvent>, closed: u64) -> bool {
    let begins = |message: &AgentEvent| match message {
        AgentEvent::Other(WireEvent::FlowOpened { flow, .. }) => *flow == closed,
        _ => false,
    };
    let waited = queue.iter().any(begins);
    if waited {
        let of_it = |message: &AgentEvent| match message {
            AgentEvent::Report { flow, .. } => *flow == closed,
            AgentEvent::Other(WireEvent::Refused { flow, .. }) => *flow == Some(closed),
            message => begins(message),
        };
        queue.retain(|message| !of_it(message));
    }
    waited
}

impl Drop for ThreadChannel {
    fn drop(&mut self) {
        self.queues.datapath_gone.store(true, Ordering::Release);
        notify(&self.queues.agent_wakes);
    }
}

/// The agent's end, a link with one datapath.
pub struct ThreadLink {
    queues: Arc<Queues>,
    id: DatapathId,
    needs_wake: bool,
    /// True if the datapath has disconnected or was closed, and the agent was notified.
    closed: bool,
    /// Scratch buffers for the queue's contents and for the batch passed to the agent; both are
    /// empty between calls.
    drained: VecDeque<AgentEvent>,
    batch: Vec<WireEvent<'static>>,
}

impl DatapathLink for ThreadLink {
    fn set_id_base(&mut self, base: u32) {
        self.id = DatapathId(base);
    }

    fn receive(&mut self, agent: &mut Agent, now: Time) -> bool {
        let gone = self.queues.datapath_gone.load(Ordering::Acquire);
        // Clear the eventfd before taking the queue, so that later messages signal again.
        let _ = self.queues.agent_wakes.read();
        std::mem::swap(&mut self.drained, &mut locked(&self.queues.to_agent));
        let busy = !self.drained.is_empty();
        if busy && !self.closed {
            let mut events = recycle_events(std::mem::take(&mut self.batch));
            events.extend(self.drained.iter().map(AgentEvent::event));
            agent.handle_batch(now, self.id, &events);
            self.batch = recycle_events(events);
        }
        self.drained.clear();
        if gone {
            self.close(agent);
        }
        busy
    }

    fn send(&mut self, agent: &mut Agent, _now: Time, _to: DatapathId, command: &WireCommand) {
        if self.closed {
            return;
        }
        let mut queue = locked(&self.queues.from_agent);
        let full = queue.len() >= PENDING_COMMANDS_MAX;
        if !full {
            queue.push_back(command.clone());
        }
        drop(queue);
        self.needs_wake = true;
        if full {
            tracing::warn!(
                datapath = self.id.0,
                "a datapath does not read its commands; disconnecting it"
            );
            self.queues.agent_gone.store(true, Ordering::Release);
            self.close(agent);
        }
    }

    fn flush(&mut self, _agent: &mut Agent) -> bool {
        if std::mem::take(&mut self.needs_wake) {
            notify(&self.queues.datapath_wakes);
        }
        false
    }

    fn watch<'a>(&'a self, watched: &mut Vec<(BorrowedFd<'a>, PollFlags)>) {
        if !self.closed {
            watched.push((self.queues.agent_wakes.as_fd(), PollFlags::POLLIN));
        }
    }
}

impl ThreadLink {
    fn close(&mut self, agent: &mut Agent) {
        if !std::mem::replace(&mut self.closed, true) {
            agent.on_disconnect(self.id);
        }
    }
}

impl Drop for ThreadLink {
    fn drop(&mut self) {
        self.queues.agent_gone.store(true, Ordering::Release);
        notify(&self.queues.datapath_wakes);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use ccplane_agent::datapath::{Datapath, DatapathCore};
    use ccplane_agent::{AgentOptions, Algorithm, Control, ProgramTables, Programs, Report};
    use ccplane_datapath::{Capabilities, OperatorLimits, Signals, SteeredFlow, Transport};
    use ccplane_units::{Bytes, Duration};
    use ccplane_wire::FlowInfo;

    use super::*;
    use crate::{ThreadClock, WaitStrategy, serve};

    /// Sets cwnd to twice the total of the reported acknowledged bytes.
    struct Doubles;

    impl Algorithm for Doubles {
        type Flow = u64;

        fn name(&self) -> &str {
            "doubles"
        }

        fn programs(&self) -> Programs {
            let fold = "(def (Report (volatile acked 0)))\n(when true \
                        (:= Report.acked (+ Report.acked Ack.bytes_acked)) (report))";
            Programs::new().with("fold", fold)
        }

        fn open(&mut self, _info: &FlowInfo, control: &mut Control<'_>) -> u64 {
            control.set_program("fold", &[]);
            0
        }

        fn on_report(&mut self, sum: &mut u64, report: &Report<'_>, control: &mut Control<'_>) {
            *sum += report.get("acked").unwrap_or(0);
            control.set_cwnd(Bytes::new(2 * *sum));
        }
    }

    fn datapath(now: Time) -> (Datapath<ThreadChannel>, ThreadLink) {
        let (way, served) = thread_channel().unwrap();
        let tables = ProgramTables::new(OperatorLimits::default(), Capabilities(u64::MAX));
        (
            Datapath::new(now, DatapathCore::new(1, "test", tables, way)),
            served,
        )
    }

    #[test]
    fn an_agent_in_another_thread_exchanges_all_messages() {
        let clock = ThreadClock::new();
        let (mut datapath, mut served) = datapath(clock.now());
        let stop = Arc::new(AtomicBool::new(false));
        let serving = {
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let mut agent = Agent::new(AgentOptions::default());
                agent.add(Doubles).unwrap();
                serve(
                    &mut agent,
                    &mut [&mut served],
                    WaitStrategy::default(),
                    &stop,
                )
                .unwrap();
                agent.stats("doubles").unwrap().reports
            })
        };
        datapath.open(clock.now(), 7, FlowInfo::default());
        let late = clock.now() + Duration::from_secs(20);
        let signals = Signals {
            bytes_acked: 1_000,
            mss: 1_000,
            ..Signals::default()
        };
        let mut window = 10_000;
        while window < 100_000 {
            let now = clock.now();
            assert!(now < late, "the agent has not processed it");
            datapath.poll(now);
            let transport = Transport {
                cwnd: window,
                rate: 0,
                ssthresh: u64::MAX,
                now,
            };
            let outcome = datapath.flow(7).unwrap().on_ack(&transport, &signals);
            window = outcome.cwnd.unwrap_or(window);
            // Twice a multiple of the segment size.
            assert_eq!(window % 2_000, 0);
            thread::yield_now();
        }
        datapath.close(clock.now(), 7, Bytes::new(100_000), 0);
        drop(datapath);
        stop.store(true, Ordering::Relaxed);
        assert!(serving.join().unwrap() > 0);
    }

    #[test]
    fn full_queues_drop_reports_but_never_flow_ends() {
        let now = Time::ZERO;
        let (mut way, mut served) = thread_channel().unwrap();
        let report = WireEvent::Report {
            flow: 1,
            program: 1,
            urgent: false,
            fields: &[1],
        };
        let taken = (0..2 * QUEUED_REPORTS_MAX)
            .filter(|_| way.try_report(now, &report))
            .count();
        assert_eq!(taken, QUEUED_REPORTS_MAX);
        for _ in 0..2 * QUEUED_REPLIES_MAX {
            way.send(now, WireEvent::Installed { program: 1 });
        }
        let stats = ccplane_wire::FlowStats::default();
        way.send(now, WireEvent::FlowClosed { flow: 1, stats });
        assert_eq!(locked(&way.queues.to_agent).len(), QUEUED_REPLIES_MAX + 1);
        let mut agent = Agent::new(AgentOptions::default());
        assert!(served.receive(&mut agent, now));
        assert!(way.try_report(now, &report), "the queue has room again");
        drop(served);
        assert!(!way.try_report(now, &report), "no agent");
    }

    #[test]
    fn short_flows_use_bounded_memory_while_the_agent_hangs() {
        let now = Time::ZERO;
        let (mut way, _served) = thread_channel().unwrap();
        let stats = ccplane_wire::FlowStats::default();
        // The agent has received the opening of this flow, so it must receive the rest too.
        way.send(
            now,
            WireEvent::FlowOpened {
                flow: 0,
                info: FlowInfo::default(),
            },
        );
        for flow in 1..20_000 {
            way.send(
                now,
                WireEvent::FlowOpened {
                    flow,
                    info: FlowInfo::default(),
                },
            );
            let report = WireEvent::Report {
                flow,
                program: 1,
                urgent: false,
                fields: &[1],
            };
            way.try_report(now, &report);
            way.send(now, WireEvent::FlowClosed { flow, stats });
        }
        way.send(now, WireEvent::FlowClosed { flow: 0, stats });
        let queue = locked(&way.queues.to_agent);
        assert!(queue.len() <= QUEUED_REPORTS_MAX + 2, "{}", queue.len());
        let ours = |message: &&AgentEvent| {
            matches!(
                message,
                AgentEvent::Other(
                    WireEvent::FlowOpened { flow: 0, .. } | WireEvent::FlowClosed { flow: 0, .. }
                )
            )
        };
        assert_eq!(
            queue.iter().filter(ours).count(),
            0,
            "the flow ended before the agent saw its start"
        );
    }

    #[test]
    fn a_datapath_that_takes_no_commands_is_given_up() {
        let (way, mut served) = thread_channel().unwrap();
        let mut agent = Agent::new(AgentOptions::default());
        let command = WireCommand::Heartbeat {
            algorithm: Arc::from("x"),
        };
        for _ in 0..=PENDING_COMMANDS_MAX {
            served.send(&mut agent, Time::ZERO, DatapathId(0), &command);
        }
        assert!(served.closed);
        assert_eq!(locked(&way.queues.from_agent).len(), PENDING_COMMANDS_MAX);
    }
}
