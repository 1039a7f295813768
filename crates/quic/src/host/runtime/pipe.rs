//! What crosses between the application's thread and the stack's: of each connection a pipe, and an
//! event for all of them.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::sync::Notify;

use crate::host::Stats;

/// Bytes that wait in a pipe in each direction. With fewer the two threads wake each other more
/// often; more hide longer from the sender what the stack has room for.
pub(super) const ROOM: usize = 256 << 10;

/// What tells the figures of a connection.
pub(super) type Figures = Arc<dyn Fn() -> Stats + Send + Sync>;

/// What the two threads share.
pub(super) struct Shared {
    /// Something happened on the runtime's side.
    event: EventFd,
    /// It is set, so that it need not be set again.
    rung: AtomicBool,
    accepted: Mutex<VecDeque<Arc<Pipe>>>,
}

impl Shared {
    pub fn new() -> io::Result<Shared> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        Ok(Shared {
            event: EventFd::from_value_and_flags(0, flags)?,
            rung: AtomicBool::new(false),
            accepted: Mutex::new(VecDeque::new()),
        })
    }

    /// Becomes readable when something happens on the runtime's side.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Whether it was rung since it was last asked.
    pub fn was_rung(&self) -> bool {
        let rung = self.rung.swap(false, Ordering::AcqRel);
        // Also where it was not rung: who rang last may have written after the look before.
        let written = self.event.read().is_ok();
        rung || written
    }

    /// Connections that peers have opened and the application has not taken.
    pub fn accepted(&self) -> MutexGuard<'_, VecDeque<Arc<Pipe>>> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn ring(&self) {
        if !self.rung.swap(true, Ordering::AcqRel) {
            // It cannot be full: it is read whenever it was rung.
            let _ = self.event.write(1);
        }
    }
}

/// What crosses over of one connection.
pub(super) struct Pipe {
    pub shared: Arc<Shared>,
    state: Mutex<State>,
    /// The application wrote, ended its stream, or closed; and it made room for what arrives.
    pub wrote: Notify,
    pub took: Notify,
    pub closed: Notify,
}

#[derive(Default)]
pub(super) struct State {
    pub connected: bool,
    pub figures: Option<Figures>,
    /// To the stack, and from it.
    pub out: Vec<u8>,
    pub arrived: VecDeque<u8>,
    /// The application's stream ends here; its owner has no more to do with it: well, or not.
    pub finished: bool,
    pub close: Option<bool>,
    pub sent_all: bool,
    /// The peer's stream has ended, which is read once nothing of it waits any more.
    pub ended: bool,
    pub failure: Option<String>,
    pub over: bool,
}

impl Pipe {
    pub fn new(shared: &Arc<Shared>) -> Arc<Pipe> {
        Arc::new(Pipe {
            shared: Arc::clone(shared),
            state: Mutex::new(State::default()),
            wrote: Notify::new(),
            took: Notify::new(),
            closed: Notify::new(),
        })
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The runtime's side changes something that the application wants to know.
    pub fn tell(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.shared.ring();
    }
}
