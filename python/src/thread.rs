//! The interpreter on threads that are not its own. To it each visit of such a thread is a new thread, whose state it makes and throws away: 18 µs,
//! most of them in the kernel. Here a thread keeps its state from its first visit to its end, and a visit costs taking the lock.

use std::cell::OnceCell;

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

/// A thread's state, if it had none.
struct Kept(Option<(ffi::PyGILState_STATE, *mut ffi::PyThreadState)>);

impl Kept {
    fn new() -> Kept {
        // SAFETY: it may be called by any thread at any time after the interpreter began, which imported this module.
        if !unsafe { ffi::PyGILState_GetThisThreadState() }.is_null() {
            return Kept(None);
        }
        // SAFETY: the thread has no state and so not the lock: it gets both, and gives the lock back but not the state, which `drop` ends.
        Kept(Some(unsafe { (ffi::PyGILState_Ensure(), ffi::PyEval_SaveThread()) }))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some((ensured, state)) = self.0 {
            // SAFETY: the state is this thread's, which has not the lock: it takes the lock and undoes what `new` did. Threads of runs and agents
            // end before what started them returns to the interpreter, so that it still runs.
            unsafe {
                ffi::PyEval_RestoreThread(state);
                ffi::PyGILState_Release(ensured);
            }
        }
    }
}
