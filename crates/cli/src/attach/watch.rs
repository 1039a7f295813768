//! Runs the agents' threads and supervises them, and reloads watched files, until the command ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ccplane_linux::{Kernel, PinnedView, Presence};

use super::program_files::{self, WatchedProgram};
use super::samples::{CallbackObserver, Samples};
use super::{AttachGuard, CallbackRunner, Reload, ServingThread};
use crate::exceptions::Exceptions;
use crate::exit::{Failure, FailureKind};
use crate::flows::stats;
use crate::metrics;

/// Interval at which the registrations are checked for a detach by another process. Each check is a
/// system call or two.
const DETACH_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Time limit for the threads to end, far longer than they take to see `stop`. It lets the process
/// end within two seconds even if a callback hangs.
const THREAD_EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Minimum interval between repeated warnings.
const WARNING_INTERVAL_MIN: Duration = Duration::from_secs(60);

/// Message to the supervising thread.
pub(super) enum WatchMessage {
    /// An algorithm's thread ended.
    Ended,
    /// A scrape requests the metrics; reading them takes capabilities that the HTTP thread lacks.
    MetricsRequest(metrics::MetricsReply),
}

/// State of the supervising thread.
pub(super) struct WatchThread<'a> {
    /// Stops all threads.
    pub stop: &'a AtomicBool,
    /// The operator's agent timeout.
    pub fallback_after: Duration,
    pub reload: Reload<'a>,
    /// Sources of the metrics, if they are served.
    pub samples: Option<Samples>,
    /// Exception counts of agents in this process.
    pub exceptions: Exceptions,
    /// Files to reload when they change.
    pub programs: Vec<WatchedProgram>,
}

/// Runs the agents until `stop`, or until the first of their threads ends on its own, which only a
/// bug can cause. The kernel registrations stay with this thread: removing them may take its
/// capabilities.
///
/// If a thread hangs, everything attached is removed and the process exits here.
pub(super) fn serve(
    steered: Vec<ServingThread>,
    mut kernels: Vec<Kernel>,
    attached: &mut AttachGuard,
    mut watching: WatchThread<'_>,
    (sender, inbox): (mpsc::Sender<WatchMessage>, mpsc::Receiver<WatchMessage>),
    started: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let stop = watching.stop;
    let open =
        |name: &String| PinnedView::open(name).map_err(|e| Failure::new(FailureKind::Failed, e));
    let observed: Vec<PinnedView> = attached.names.iter().map(open).collect::<Result<_, _>>()?;
    // A remote agent may be silent: its flows are then on the fallback, and this process is
    // healthy.
    let here: Vec<String> = steered
        .iter()
        .filter(|one| matches!(one.runner, CallbackRunner::Agent(..)))
        .flat_map(|one| one.specs.iter().map(|spec| spec.kernel_name.clone()))
        .collect();
    let (detached, asked, ends, kept) = thread::scope(|scope| {
        let start = |(one, kernel): (ServingThread, _)| {
            // Dropped, and so sent, even when the thread panics.
            let ended = EndedRun(sender.clone());
            let exceptions = watching.exceptions.clone();
            let run = move || {
                let _ended = ended;
                match one.runner {
                    CallbackRunner::Agent(mut agent, callbacks) => {
                        let mut counting = CallbackObserver::new(callbacks, exceptions);
                        ccplane_linux::run_agent_unprivileged(
                            kernel,
                            &mut agent,
                            stop,
                            &mut counting,
                        )
                    }
                    // Standalone programs have no thread.
                    CallbackRunner::Standalone => Ok(()),
                    CallbackRunner::Remote(mut remote) => {
                        ccplane_linux::run_relay_unprivileged(kernel, &mut *remote, stop, &mut ())
                    }
                }
            };
            let thread = thread::Builder::new().name("ccplane-agent".into());
            thread.spawn_scoped(scope, run)
        };
        let all = steered.into_iter().zip(&mut kernels);
        let (alone, served): (Vec<_>, Vec<_>) =
            all.partition(|(one, _)| matches!(one.runner, CallbackRunner::Standalone));
        let mut alone: Vec<&mut Kernel> = alone.into_iter().map(|(_, kernel)| kernel).collect();
        let threads: Result<Vec<_>, _> = served.into_iter().map(start).collect();
        // The threads have inherited this thread's capabilities by now.
        let kept = started();
        let running = threads.is_ok() && kept.is_ok();
        let detached = running
            .then(|| supervise(&observed, &here, &mut watching, &mut alone, &inbox))
            .flatten();
        // Must precede the end of the scope, which joins the threads.
        let asked = stop.swap(true, Ordering::Relaxed);
        if let Ok(threads) = &threads
            && !wait_for_threads(threads)
        {
            exit_hung(attached);
        }
        let ends = threads.map(|threads| threads.into_iter().map(|t| t.join()).collect::<Vec<_>>());
        (detached, asked, ends, kept)
    });
    kept?;
    let ends = ends.map_err(|e| {
        Failure::text(
            FailureKind::Failed,
            format!(
                "cannot start the agent's \
            thread: {e}"
            ),
        )
    })?;
    if let Some(error) = ends.iter().flatten().find_map(|end| end.as_ref().err()) {
        let text = format!("the agent's thread cannot drop its capabilities: {error}");
        return Err(Failure::text(FailureKind::Failed, text)
            .hint("a system-call filter may forbid it; allow capset and prctl"));
    }
    if !asked || ends.iter().any(Result::is_err) {
        return Err(Failure::text(
            FailureKind::Failed,
            "an algorithm's thread stopped: a callback panicked",
        )
        .hint("its flows run on the fallback; see the panic message above"));
    }
    if let Some(name) = detached {
        tracing::warn!("{name} was detached by another process; nothing is left to control");
    }
    Ok(())
}

/// Returns true if all threads end within [`THREAD_EXIT_TIMEOUT`].
#[expect(clippy::disallowed_methods, reason = "the agent runs in real time")]
fn wait_for_threads<T>(threads: &[thread::ScopedJoinHandle<'_, T>]) -> bool {
    let asked = Instant::now();
    loop {
        if threads.iter().all(thread::ScopedJoinHandle::is_finished) {
            return true;
        }
        if asked.elapsed() >= THREAD_EXIT_TIMEOUT {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Exits the process without joining the hung threads.
fn exit_hung(attached: &mut AttachGuard) -> ! {
    tracing::error!("an algorithm's callback hangs; exiting without waiting for it");
    let names = attached.names.clone();
    let removed = attached.remove();
    names
        .iter()
        .for_each(|name| ccplane_linux::abandon_name(name));
    if let Err(failure) = &removed {
        tracing::error!("cleanup is incomplete: {failure}; run `ccplane detach` to retry");
    }
    std::process::exit(i32::from(removed.is_err()))
}

/// Waits for `stop` or for the end of a thread. Returns the name of a registration that another
/// process detached. Notifies systemd's watchdog while the thread of every algorithm in `here` is
/// alive.
#[expect(clippy::disallowed_methods, reason = "the agent runs in real time")]
fn supervise(
    observed: &[PinnedView],
    here: &[String],
    watching: &mut WatchThread<'_>,
    alone: &mut [&mut Kernel],
    inbox: &mpsc::Receiver<WatchMessage>,
) -> Option<String> {
    let (stop, fallback_after) = (watching.stop, watching.fallback_after);
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Ready]);
    let watchdog = sd_notify::watchdog_enabled().unwrap_or(Duration::from_secs(10)) / 3;
    let mut pins = PinWarnings::default();
    let mut detached = None;
    let (mut looked, mut told) = (Instant::now(), Instant::now());
    let turn = match watching.programs.is_empty() {
        true => watchdog.min(Duration::from_millis(100)),
        false => program_files::FILE_POLL_INTERVAL,
    };
    while !stop.load(Ordering::Relaxed) {
        match inbox.recv_timeout(turn) {
            Ok(WatchMessage::MetricsRequest(answer)) => {
                // Fails only if the scraper has disconnected.
                let _ = answer.send(collect_metrics(observed, watching.samples.as_mut()));
            }
            Ok(WatchMessage::Ended) | Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {}
        }
        if told.elapsed() >= watchdog.min(Duration::from_millis(100))
            && are_alive(observed, here, fallback_after)
        {
            told = Instant::now();
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Watchdog]);
        }
        for text in &mut watching.programs {
            text.poll(alone);
        }
        let arms = watching.samples.as_ref().and_then(Samples::arms);
        watching.reload.poll(arms);
        if looked.elapsed() >= DETACH_POLL_INTERVAL {
            looked = Instant::now();
            if let Some(samples) = &mut watching.samples {
                samples.sample(observed);
            }
            detached = observed
                .iter()
                .find(|o| pins.is_gone(looked, o.name(), ccplane_linux::presence(o.name())))
                .map(|o| o.name().to_owned());
            if detached.is_some() {
                stop.store(true, Ordering::Relaxed);
            }
        }
    }
    let _ = sd_notify::notify(&[sd_notify::NotifyState::Stopping]);
    detached
}

/// Returns the metrics for a scrape.
fn collect_metrics(
    observed: &[PinnedView],
    samples: Option<&mut Samples>,
) -> Result<prometheus_client::registry::Registry, String> {
    let all = stats().map_err(|failure| failure.to_string())?;
    let mut registry = metrics::of_algorithms(&all);
    if let Some(samples) = samples {
        samples.add_metrics(observed, &mut registry)?;
    }
    Ok(registry)
}

/// Returns true if every algorithm in `here` has written a heartbeat within the agent timeout.
fn are_alive(observed: &[PinnedView], here: &[String], fallback_after: Duration) -> bool {
    observed
        .iter()
        .filter(|o| here.iter().any(|name| name == o.name()))
        .all(|o| Duration::from_nanos(o.heartbeat_age().as_nanos()) <= fallback_after)
}

/// Rate limiter of warnings about pins.
#[derive(Default)]
struct PinWarnings {
    last_warning: Option<Instant>,
}

impl PinWarnings {
    /// Returns true if the registration is gone. Logs a damaged or unreadable registration.
    fn is_gone(&mut self, now: Instant, name: &str, presence: std::io::Result<Presence>) -> bool {
        let text = match presence {
            Ok(Presence::Present) => return false,
            Ok(Presence::Gone) => return true,
            Ok(Presence::Partial(pin)) => format!(
                "{} is missing: {name} keeps running, but another `ccplane attach` cannot take \
                 it over; to repair it, run `ccplane detach {name}`, then attach again",
                pin.display()
            ),
            Err(error) => {
                format!("cannot check whether {name} is still attached; it keeps running: {error}")
            }
        };
        if self
            .last_warning
            .is_none_or(|said| now.duration_since(said) >= WARNING_INTERVAL_MIN)
        {
            tracing::warn!("{text}");
            self.last_warning = Some(now);
        }
        false
    }
}

struct EndedRun(mpsc::Sender<WatchMessage>);

impl Drop for EndedRun {
    fn drop(&mut self) {
        let _ = self.0.send(WatchMessage::Ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a start time for the test")]
    fn unreadable_and_partial_registrations_are_not_gone() {
        let mut pins = PinWarnings::default();
        let now = Instant::now();
        let out_of_descriptors = std::io::Error::from_raw_os_error(libc::EMFILE);
        assert!(!pins.is_gone(now, "ccp_x", Err(out_of_descriptors)));
        assert!(pins.last_warning.is_some(), "it is logged");
        assert!(!pins.is_gone(now, "ccp_x", Ok(Presence::Partial("link".into()))));
        assert!(!pins.is_gone(now, "ccp_x", Ok(Presence::Present)));
        assert!(pins.is_gone(now, "ccp_x", Ok(Presence::Gone)));
    }
}
