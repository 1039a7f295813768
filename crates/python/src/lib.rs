//! Native module `ccplane._ccplane`: algorithms as Python classes, the simulator and the command
//! line. The package `python/ccplane` is the public interface, with types and documentation.
//!
//! Callbacks run on the agent's thread, which takes the GIL once per wake-up. The GIL is released
//! while an agent waits and while a simulation runs.

mod algorithm;
mod drive;
mod episode;
mod experiment;
mod flow;
mod sweep;
mod thread;

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(
    ccplane,
    Error,
    PyException,
    "An operation failed. The message states the cause and the fix."
);

/// Native part of the package; see the crate documentation.
#[pymodule(gil_used = true)]
mod _ccplane {
    #[pymodule_export]
    use super::Error;
    #[pymodule_export]
    use super::drive::drive;
    #[pymodule_export]
    use super::episode::{
        Episode, PolicyFlow, policy_names, policy_program, step_many, step_seconds,
    };
    #[pymodule_export]
    use super::experiment::{RunResult, check, command, compile, html, provenance, simulate};
    #[pymodule_export]
    use super::flow::{Control, Flow, FlowInfo, FlowStats};
    #[pymodule_export]
    use super::sweep::{SweepPlan, SweepStore, behaviour};
    #[pymodule_export]
    use super::thread::interpreter_ends;
}
