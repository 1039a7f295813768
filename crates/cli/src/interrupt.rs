//! Ctrl-C and SIGTERM: ask to stop, so that everything that was made is removed on the way out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::exit::{Failure, Kind};

/// A flag that the first Ctrl-C, SIGTERM or SIGHUP raises. A second one ends the process at once, for when the way
/// out is stuck; what it leaves is found and removed by the next start.
pub fn flag() -> Result<Arc<AtomicBool>, Failure> {
    let raised = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let hooks = signal_hook::flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&raised))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&raised)));
        hooks.map_err(|e| Failure::text(Kind::Failed, format!("signals cannot be caught: {e}")))?;
    }
    Ok(raised)
}

/// Whether it was raised.
pub fn raised(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}
