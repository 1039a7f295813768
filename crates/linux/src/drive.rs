//! The driver: runs an agent's algorithms over kernel TCP, in one thread.

use std::sync::atomic::{AtomicBool, Ordering};

use ccplane_agent::{Agent, DatapathId};
use ccplane_units::{Duration, Time};
use ccplane_wire::{Command, Event};

use crate::clock;
use crate::kernel::Kernel;
use crate::privilege;

/// Looks on, for samples and logs. Called in the loop: what it does delays the algorithms.
pub trait Observer {
    /// An event, before the agent has it.
    fn event(&mut self, _now: Time, _event: &Event<'_>) {}
    /// A command, before the kernel has it.
    fn command(&mut self, _now: Time, _command: &Command) {}
    /// Callbacks of one batch of events, or of timers that were due, have returned to their agent
    /// after so long.
    fn called(&mut self, _took: Duration, _agent: &Agent) {}
}

impl Observer for () {}

/// The agent has one datapath here.
const KERNEL: DatapathId = DatapathId(0);
/// How long `stop` may go unseen.
pub(crate) const ATTENTION: Duration = Duration::from_millis(50);

/// Runs until `stop`. This thread runs the callbacks, and so it is the one that writes their
/// heartbeat: an algorithm that hangs is silent.
///
/// It also asks for a better place in the scheduler's queue for this thread, and goes on without
/// where it may not: behind hundreds of busy senders on few cores an agent of equal rank would look
/// silent.
pub fn run_agent(
    kernel: &mut Kernel,
    agent: &mut Agent,
    stop: &AtomicBool,
    observer: &mut impl Observer,
) {
    privilege::prefer_this_thread();
    steer(kernel, agent, stop, observer);
}

/// [`run_agent`] in a thread that first gives up every capability, for good, but only after it has
/// its place in the scheduler's queue, which may need one. Other threads keep theirs: drop `kernel`
/// in one of them. An error: this thread could not give them up, and nothing ran.
pub fn run_agent_unprivileged(
    kernel: &mut Kernel,
    agent: &mut Agent,
    stop: &AtomicBool,
    observer: &mut impl Observer,
) -> std::io::Result<()> {
    privilege::prefer_this_thread();
    privilege::drop_capabilities()?;
    steer(kernel, agent, stop, observer);
    Ok(())
}

fn steer(kernel: &mut Kernel, agent: &mut Agent, stop: &AtomicBool, observer: &mut impl Observer) {
    let ready = Event::Ready {
        datapath: kernel.info(),
    };
    agent.handle(clock::now(), KERNEL, ready);
    obey(kernel, agent, observer);
    while !stop.load(Ordering::Relaxed) {
        let events = kernel.drain(&mut |batch| {
            let now = clock::now();
            for event in &batch {
                observer.event(now, event);
            }
            agent.handle_all(now, KERNEL, &batch);
            observer.called(clock::now().since(now), agent);
        });
        obey(kernel, agent, observer);
        let now = clock::now();
        if agent.next_deadline().is_some_and(|due| due <= now) {
            agent.on_deadline(now);
            observer.called(clock::now().since(now), agent);
            obey(kernel, agent, observer);
        }
        let due = agent
            .next_deadline()
            .map_or(ATTENTION, |due| due.since(now));
        // Two reports at one look: there will be more, so that it pays to let them gather.
        kernel.sleep(due.min(ATTENTION), events >= 2);
    }
}

fn obey(kernel: &mut Kernel, agent: &mut Agent, observer: &mut impl Observer) {
    while let Some((_, command)) = agent.poll() {
        observer.command(clock::now(), &command);
        kernel.apply(&command);
    }
}

/// Shows `observer` what comes out of the kernel, until `stop`. It is for programs that need no
/// agent: they go on while this stands still.
pub fn run_reader(kernel: &mut Kernel, stop: &AtomicBool, observer: &mut impl Observer) {
    loop {
        let stopped = stop.load(Ordering::Relaxed);
        let events = kernel.drain(&mut |batch| {
            let now = clock::now();
            batch.iter().for_each(|event| observer.event(now, event));
        });
        if stopped {
            break;
        }
        kernel.sleep(ATTENTION, events >= 2);
    }
}
