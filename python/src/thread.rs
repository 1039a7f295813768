//! The interpreter on threads that are not its own. To it each visit of such a thread is a new
//! thread, whose state it makes and throws away: 18 µs, most of them in the kernel. Here a thread
//! keeps its state from its first visit to its end, and a visit costs taking the lock.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

thread_local! {
    static KEPT: OnceCell<Kept> = const { OnceCell::new() };
}

/// Runs `f` with the interpreter's lock.
pub(crate) fn visit<R>(f: impl FnOnce(Python<'_>) -> R) -> R {
    // Not any more while the thread ends: then the visit is as any other.
    let _ = KEPT.try_with(|kept| {
        kept.get_or_init(Kept::new);
    });
    Python::attach(f)
}

/// True when the interpreter ends: no thread may take its lock any more.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Registered with `atexit`, whose functions run before the interpreter takes itself apart.
#[pyfunction]
pub(crate) fn interpreter_ends() {
    ENDS.store(true, Ordering::Release);
}

/// A thread's state, if it had none.
struct Kept(Option<(ffi::PyGILState_STATE, *mut ffi::PyThreadState)>);

impl Kept {
    fn new() -> Kept {
        // SAFETY: it may be called by any thread at any time after the interpreter began, which
        // imported this module.
        if !unsafe { ffi::PyGILState_GetThisThreadState() }.is_null() {
            return Kept(None);
        }
        // SAFETY: the thread has no state and so not the lock: it gets both, and gives the lock
        // back but not the state, which `drop` ends.
        Kept(Some(unsafe {
            (ffi::PyGILState_Ensure(), ffi::PyEval_SaveThread())
        }))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // At its end the interpreter frees the state itself. Threads of runs and agents end before:
        // their callers wait for them.
        if let Some((ensured, state)) = self.0.filter(|_| !ENDS.load(Ordering::Acquire)) {
            // SAFETY: the state is this thread's, which does not hold the lock. It takes the lock
            // and undoes `new`.
            unsafe {
                ffi::PyEval_RestoreThread(state);
                ffi::PyGILState_Release(ensured);
            }
        }
    }
}
