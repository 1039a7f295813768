//! Minimisation of failing plans.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ccplane_units::Time;

use crate::plan::Plan;
use crate::storm::{self, Failure, Outcome};

/// Runs a plan; a panic counts as a failure.
pub fn attempt(plan: &Plan) -> Result<Outcome, Failure> {
    catch_unwind(AssertUnwindSafe(|| storm::run(plan))).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<String>().map(String::as_str);
        let said = said
            .or(panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(Failure {
            at: Time::ZERO,
            what: format!("panic: {said}"),
        })
    })
}

/// Removes faults while the plan still fails. Returns the removed faults and the last failure.
pub fn shrink(plan: &Plan, mut failure: Failure, mut without: Vec<u64>) -> (Vec<u64>, Failure) {
    let mut again = true;
    while std::mem::take(&mut again) {
        for fault in &plan.faults {
            if without.contains(&fault.id) {
                continue;
            }
            without.push(fault.id);
            match attempt(&plan.without(&without)) {
                Err(same) => {
                    failure = same;
                    again = true;
                }
                Ok(_) => {
                    without.pop();
                }
            }
        }
    }
    without.sort_unstable();
    (without, failure)
}

/// Formats a failure in one line, with the command to reproduce it.
pub fn failure_line(plan: &Plan, without: &[u64], failure: &Failure) -> String {
    let list: Vec<String> = without.iter().map(u64::to_string).collect();
    let without = match list.is_empty() {
        true => String::new(),
        false => format!(" --without {}", list.join(",")),
    };
    let seed = plan.seed;
    format!(
        "seed {seed} at {}: {}; reproduce: cargo run --release -p ccplane-sim --example storm -- \
         --seed {seed}{without}",
        failure.at, failure.what
    )
}
