//! Ctrl-C, SIGTERM and SIGHUP set a flag, so that a command can clean up before it ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::{Failure, FailureKind};

/// Returns a flag that the first Ctrl-C, SIGTERM or SIGHUP sets. A second signal ends the process
/// at once, in case the cleanup hangs; the next start removes what is left behind.
pub fn flag() -> Result<Arc<AtomicBool>, Failure> {
    on(&[SIGINT, SIGTERM, SIGHUP])
}

/// Returns the same flag without SIGHUP, and a second one that SIGHUP sets. The caller clears the
/// second flag when it reloads the configuration.
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
        format!("cannot install signal handlers: {error}"),
    )
}

/// Returns true if the flag is set.
pub fn raised(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}
