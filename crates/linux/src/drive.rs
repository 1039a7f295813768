//! The driver: runs an agent's algorithms over kernel TCP in one thread.

use std::sync::atomic::{AtomicBool, Ordering};

use ccplane_agent::{Agent, DatapathId};
use ccplane_units::{Duration, Time};
use ccplane_wire::{WireCommand, WireEvent};

use crate::clock;
use crate::kernel::Kernel;
use crate::privilege;

/// Receives events and commands, for samples and logs. Runs in the driver's loop, so its work
/// delays the algorithms.
///
/// ```
/// use ccplane_linux::Observer;
/// use ccplane_units::Time;
/// use ccplane_wire::WireEvent;
///
/// #[derive(Default)]
/// struct Count(u64);
///
/// impl Observer for Count {
///     fn on_event(&mut self, _now: Time, _event: &WireEvent<'_>) {
///         self.0 += 1;
///     }
/// }
/// ```
pub trait Observer {
    /// Called for an event, before the agent handles it.
    fn on_event(&mut self, _now: Time, _event: &WireEvent<'_>) {}
    /// Called for a command, before the kernel applies it.
    fn on_command(&mut self, _now: Time, _command: &WireCommand) {}
    /// Called after the callbacks of one batch of events, or of expired timers. `_took`: time in
    /// the callbacks.
    fn on_callbacks(&mut self, _took: Duration, _agent: &Agent) {}
}

impl Observer for () {}

/// The only datapath of the agent.
const KERNEL_DATAPATH: DatapathId = DatapathId(0);
/// Longest delay in noticing `stop`.
pub(crate) const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs until `stop` is set. This thread runs the callbacks and writes the heartbeat, so an
/// algorithm that hangs counts as silent.
///
/// The thread requests a higher scheduling priority and continues without it if not permitted: next
/// to hundreds of busy senders on few cores, an agent of equal priority would appear silent.
pub fn run_agent(
    kernel: &mut Kernel,
    agent: &mut Agent,
    stop: &AtomicBool,
    observer: &mut impl Observer,
) {
    privilege::raise_thread_priority();
    run_loop(kernel, agent, stop, observer);
}

/// Like [`run_agent`], in a thread that first drops all capabilities permanently, after it has
/// raised its scheduling priority, which may need one. Other threads keep theirs: drop `kernel` in
/// one of them.
///
/// # Errors
/// The capabilities could not be dropped. Nothing was run.
pub fn run_agent_unprivileged(
    kernel: &mut Kernel,
    agent: &mut Agent,
    stop: &AtomicBool,
    observer: &mut impl Observer,
) -> std::io::Result<()> {
    privilege::raise_thread_priority();
    privilege::drop_capabilities()?;
    run_loop(kernel, agent, stop, observer);
    Ok(())
}

fn run_loop(
    kernel: &mut Kernel,
    agent: &mut Agent,
    stop: &AtomicBool,
    observer: &mut impl Observer,
) {
    let ready = WireEvent::Ready {
        datapath: kernel.info(),
    };
    agent.handle(clock::now(), KERNEL_DATAPATH, ready);
    apply_commands(kernel, agent, observer);
    while !stop.load(Ordering::Relaxed) {
        let events = kernel.drain(&mut |batch| {
            let now = clock::now();
            for event in &batch {
                observer.on_event(now, event);
            }
            agent.handle_batch(now, KERNEL_DATAPATH, &batch);
            observer.on_callbacks(clock::now().since(now), agent);
        });
        apply_commands(kernel, agent, observer);
        let now = clock::now();
        if agent.next_deadline().is_some_and(|due| due <= now) {
            agent.on_deadline(now);
            observer.on_callbacks(clock::now().since(now), agent);
            apply_commands(kernel, agent, observer);
        }
        let due = agent
            .next_deadline()
            .map_or(STOP_POLL_INTERVAL, |due| due.since(now));
        // Two reports in one poll: more will follow, so batching pays.
        kernel.sleep(due.min(STOP_POLL_INTERVAL), events >= 2);
    }
}

fn apply_commands(kernel: &mut Kernel, agent: &mut Agent, observer: &mut impl Observer) {
    while let Some((_, command)) = agent.poll() {
        observer.on_command(clock::now(), &command);
        kernel.apply(&command);
    }
}

/// Passes events from the kernel to `observer` until `stop` is set. For programs that need no
/// agent: they continue to run when the reader does not.
pub fn run_reader(kernel: &mut Kernel, stop: &AtomicBool, observer: &mut impl Observer) {
    loop {
        let stopped = stop.load(Ordering::Relaxed);
        let events = kernel.drain(&mut |batch| {
            let now = clock::now();
            batch.iter().for_each(|event| observer.on_event(now, event));
        });
        if stopped {
            break;
        }
        kernel.sleep(STOP_POLL_INTERVAL, events >= 2);
    }
}
