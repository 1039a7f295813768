//! Ctrl-C and SIGTERM: ask to stop, so that everything that was made is removed on the way out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::{Failure, FailureKind};

/// A flag that the first Ctrl-C, SIGTERM or SIGHUP raises. A second one ends the process at once,
/// for when the way out is stuck; what it leaves is found and removed by the next start.
pub fn flag() -> Result<Arc<AtomicBool>, Failure> {
    on(&[SIGINT, SIGTERM, SIGHUP])
}

/// The same without SIGHUP, which raises the second flag: whoever looks at it reads a configuration
/// again, and lowers it.
pub fn flag_and_reload() -> Result<(Arc<AtomicBool>, Arc<AtomicBool>), Failure> {
    let again = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGHUP, Arc::clone(&again)).map_err(uncaught)?;
    Ok((on(&[SIGINT, SIGTERM])?, again))
}

fn on(signals: &[i32]) -> Result<Arc<AtomicBool>, Failure> {
    let raised = Arc::new(AtomicBool::new(false));
    for &signal in signals {
        let hooks = signal_hook::flag::register_conditional_shutdown(
            signal,
            128 + signal,
            Arc::clone(&raised),
        )
        .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&raised)));
        hooks.map_err(uncaught)?;
    }
    Ok(raised)
}

fn uncaught(error: std::io::Error) -> Failure {
    Failure::text(
        FailureKind::Failed,
        format!("signals cannot be caught: {error}"),
    )
}

/// Whether it was raised.
pub fn raised(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}
