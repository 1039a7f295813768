//! Shared state of the application's thread and the stack's: one pipe per connection, and one event
//! for all.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::sync::Notify;

use crate::host::QuicStats;

/// Bytes buffered per pipe and direction. With less, the threads wake each other more often; more
/// delays the stack's backpressure to the sender.
pub(super) const PIPE_BYTES: usize = 256 << 10;

/// Function that returns a connection's statistics.
pub(super) type StatsReader = Arc<dyn Fn() -> QuicStats + Send + Sync>;

/// State shared by the two threads.
pub(super) struct PipeBuffers {
    /// Signals the application's thread.
    event: EventFd,
    /// Set while the event is signalled, to avoid further writes.
    signalled: AtomicBool,
    accepted: Mutex<VecDeque<Arc<StreamPipe>>>,
}

impl PipeBuffers {
    pub fn new() -> io::Result<PipeBuffers> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        Ok(PipeBuffers {
            event: EventFd::from_value_and_flags(0, flags)?,
            signalled: AtomicBool::new(false),
            accepted: Mutex::new(VecDeque::new()),
        })
    }

    /// Returns the descriptor that becomes readable on an event of the runtime.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Returns true if there was an event since the last call.
    pub fn take_signal(&self) -> bool {
        let rung = self.signalled.swap(false, Ordering::AcqRel);
        // Read even if the flag is not set: the last writer may have written after the previous
        // read.
        let written = self.event.read().is_ok();
        rung || written
    }

    /// Returns accepted connections that the application has not taken yet.
    pub fn accepted(&self) -> MutexGuard<'_, VecDeque<Arc<StreamPipe>>> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn signal(&self) {
        if !self.signalled.swap(true, Ordering::AcqRel) {
            // The counter cannot overflow, since it is read after every signal.
            let _ = self.event.write(1);
        }
    }
}

pub(super) struct StreamPipe {
    pub shared: Arc<PipeBuffers>,
    state: Mutex<PipeState>,
    /// Notifications of the application: it wrote or ended its stream; it made room for received
    /// data; it closed the connection.
    pub write_notify: Notify,
    pub read_notify: Notify,
    pub close_notify: Notify,
}

#[derive(Default)]
pub(super) struct PipeState {
    pub connected: bool,
    pub stats_reader: Option<StatsReader>,
    /// Data for the stack, and from the stack.
    pub send_buffer: Vec<u8>,
    pub receive_buffer: VecDeque<u8>,
    /// The application ended its stream; the application closed the connection, normally or not.
    pub finished: bool,
    pub close: Option<bool>,
    pub sent_all: bool,
    /// The peer's stream has ended; all data was read once `arrived` is empty.
    pub fin_received: bool,
    pub failure: Option<String>,
    pub task_ended: bool,
}

impl StreamPipe {
    pub fn new(shared: &Arc<PipeBuffers>) -> Arc<StreamPipe> {
        Arc::new(StreamPipe {
            shared: Arc::clone(shared),
            state: Mutex::new(PipeState::default()),
            write_notify: Notify::new(),
            read_notify: Notify::new(),
            close_notify: Notify::new(),
        })
    }

    pub fn state(&self) -> MutexGuard<'_, PipeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates the state from the runtime and signals the application.
    pub fn update(&self, change: impl FnOnce(&mut PipeState)) {
        change(&mut self.state());
        self.shared.signal();
    }
}
