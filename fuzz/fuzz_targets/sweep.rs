//! Arbitrary text as a sweep file: points whose scenarios are valid, or a problem with a line and a
//! fix.
#![no_main]

use std::path::Path;

use ccplane_scenario::{Sweep, SweepSize};
use libfuzzer_sys::fuzz_target;

/// Maximum number of points that are listed. The list of a large grid is slow, and no different.
const POINTS_MAX: usize = 1_000;

fuzz_target!(|text: &str| {
    for size in [SweepSize::Full, SweepSize::Quick] {
        check(text, size);
    }
});

fn check(text: &str, size: SweepSize) {
    // Files named in the text do not exist; shipped scenarios do.
    let sweep = match Sweep::parse_with("fuzz.toml", text, Path::new("/nonexistent"), size) {
        Ok(sweep) => sweep,
        Err(problem) => {
            assert!(problem.line() >= 1 && !problem.message().is_empty());
            return;
        }
    };
    let values = sweep.axes.iter().map(|axis| axis.values.len().max(1));
    if values.fold(1, usize::saturating_mul) > POINTS_MAX {
        return;
    }
    for point in sweep.points().into_iter().flatten().take(4) {
        match sweep.scenario(&point) {
            Ok(scenario) => assert!(scenario.contenders.len() <= 1),
            Err(problem) => assert!(problem.line() >= 1 && !problem.message().is_empty()),
        }
    }
}
