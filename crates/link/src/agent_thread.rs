//! An agent in a thread of its own, for datapaths in the same process.
#![expect(
    clippy::disallowed_methods,
    reason = "the driver of the agent's thread"
)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use ccplane_agent::Agent;
use ccplane_units::Duration;

use super::{DatapathLink, WaitStrategy, serve};

/// Poll interval while waiting for the thread to end.
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A thread that runs an agent until this is dropped. If a callback never returns, the thread is
/// detached and ends with the process.
#[derive(Debug)]
pub struct AgentThread {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl AgentThread {
    /// Starts the thread. `name` is the thread's name, at most 15 bytes.
    pub fn start(
        name: &str,
        mut agent: Agent,
        mut link: impl DatapathLink + Send + 'static,
    ) -> io::Result<AgentThread> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let body = move || {
            // No busy polling: the agent has the whole report interval to respond.
            let waiting = WaitStrategy {
                spin: Duration::ZERO,
            };
            if let Err(why) = serve(&mut agent, &mut [&mut link], waiting, &stopped) {
                tracing::error!(
                    "the thread of an algorithm failed, so its flows continue on the fallback: \
                    {why}"
                );
            }
        };
        let thread = thread::Builder::new().name(name.to_owned()).spawn(body)?;
        Ok(AgentThread {
            stop,
            thread: Some(thread),
        })
    }

    /// Stops the agent and waits up to `longest` for the thread to end.
    pub fn stop_and_join(self, longest: Duration) {
        self.stop.store(true, Ordering::Relaxed);
        let mut waited = Duration::ZERO;
        while waited < longest
            && self
                .thread
                .as_ref()
                .is_some_and(|thread| !thread.is_finished())
        {
            thread::sleep(std::time::Duration::from_nanos(
                EXIT_POLL_INTERVAL.as_nanos(),
            ));
            waited = waited + EXIT_POLL_INTERVAL;
        }
    }
}

impl Drop for AgentThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take().filter(JoinHandle::is_finished) {
            // A panic of the thread was already reported when it occurred.
            let _ = thread.join();
        }
    }
}
