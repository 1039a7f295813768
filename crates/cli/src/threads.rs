//! Number of threads of the simulator.

use crate::exit::{Failure, FailureKind};

/// Environment variable with the number of threads. Results do not depend on it.
pub const THREADS_VARIABLE: &str = "CCPLANE_THREADS";

/// Returns the number of threads: one per CPU that this process may use, unless the environment
/// sets another.
pub fn threads() -> Result<usize, Failure> {
    let Some(text) = std::env::var_os(THREADS_VARIABLE).filter(|text| !text.is_empty()) else {
        return Ok(std::thread::available_parallelism().map_or(1, usize::from));
    };
    let number = text.to_str().and_then(|text| text.parse().ok());
    number.filter(|number| *number > 0).ok_or_else(|| {
        let what = format!("{THREADS_VARIABLE}: {text:?} is not a number of threads");
        Failure::text(FailureKind::Usage, what)
            .hint("set it to 1 or more, or unset it for one thread per CPU")
    })
}
