//! Attachment of foreign threads to the interpreter. By default each attachment creates and
//! destroys a thread state, which takes 18 µs, mostly in the kernel. Here a thread keeps its state
//! from its first attachment to its end, and an attachment costs only the acquisition of the GIL.

use std::cell::OnceCell;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

thread_local! {
    static SAVED_STATE: OnceCell<SavedThreadState> = const { OnceCell::new() };
}

/// Runs `f` with the GIL held.
pub(crate) fn visit<R>(f: impl FnOnce(Python<'_>) -> R) -> R {
    // Fails during thread exit; `attach` then creates a temporary state.
    let _ = SAVED_STATE.try_with(|kept| {
        kept.get_or_init(SavedThreadState::new);
    });
    Python::attach(f)
}

/// True once the interpreter shuts down: no thread may take the GIL any more.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Marks the shutdown. Registered with `atexit`, which runs before finalisation.
#[pyfunction]
pub(crate) fn interpreter_ends() {
    ENDS.store(true, Ordering::Release);
}

/// Thread state created by this module; `None` if the thread already had one.
struct SavedThreadState(Option<(ffi::PyGILState_STATE, *mut ffi::PyThreadState)>);

impl SavedThreadState {
    fn new() -> SavedThreadState {
        // SAFETY: any thread may make this call once the interpreter is initialised, and the
        // interpreter imported this module.
        if !unsafe { ffi::PyGILState_GetThisThreadState() }.is_null() {
            return SavedThreadState(None);
        }
        // SAFETY: the thread has no state, so it does not hold the GIL. `Ensure` creates the state
        // and takes the GIL; `SaveThread` releases the GIL and keeps the state, which `drop`
        // destroys.
        SavedThreadState(Some(unsafe {
            (ffi::PyGILState_Ensure(), ffi::PyEval_SaveThread())
        }))
    }
}

impl Drop for SavedThreadState {
    fn drop(&mut self) {
        // Finalisation frees the state itself. Threads of runs and agents end earlier, since their
        // callers join them.
        if let Some((ensured, state)) = self.0.filter(|_| !ENDS.load(Ordering::Acquire)) {
            // SAFETY: `new` created the state on this thread (`KEPT` is thread-local), and the GIL
            // is not held: `visit` has returned. The calls take the GIL and undo `Ensure`.
            unsafe {
                ffi::PyEval_RestoreThread(state);
                ffi::PyGILState_Release(ensured);
            }
        }
    }
}
