//! `ccplane bench quic`: what ccplane costs behind noq, and how it does beside noq's own control,
//! on loopback and behind a link.

mod emulated;
mod loopback;
mod path;

use ccplane_algorithms::Registry;
use ccplane_units::Duration;

use crate::{Error, Figures};

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Length of each run on loopback, and behind the link.
    pub run: (Duration, Duration),
    /// Runs of each kind, in turns.
    pub rounds: (usize, usize),
}

/// Runs the benchmark. `step` hears how far it is and what comes next, and ends it by false.
pub fn run(
    options: &Options,
    registry: &Registry,
    step: &mut dyn FnMut(f64, &str) -> bool,
) -> Result<Figures, Error> {
    let mut figures = Figures::default();
    step(0.0, "a path in memory");
    path::run(registry, &mut figures)?;
    loopback::run(options, registry, &mut figures, &mut |share, what| {
        step(0.01 + share * 0.2, what)
    })?;
    emulated::run(options, registry, &mut figures, &mut |share, what| {
        step(0.21 + share * 0.79, what)
    })?;
    Ok(figures)
}
