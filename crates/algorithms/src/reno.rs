//! NewReno, with one reduction per recovery: RFC 5681 and RFC 6582.

use ccplane_agent::{DynAlgorithm, FlowInfo};

use crate::window::{AckedRound, Split, WindowLaw, made};
use crate::{AlgorithmDoc, BadParameter, Parameters, SlowStartExit, WindowOptions};

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "reno",
    doc: "NewReno (RFC 5681, RFC 6582): adds one segment per RTT, halves the window on loss",
    parameters: &[
        WindowOptions::REPORT,
        WindowOptions::SLOW_START,
        WindowOptions::SPLIT,
    ],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    let options = WindowOptions::read(parameters, Default::default())?;
    Ok(made(
        Reno,
        Split::read(parameters)?,
        options,
        SlowStartExit::Off,
    ))
}

/// One segment per RTT (RFC 5681, 3.1) and half the window at a loss (equation 4). The reduction
/// starts from the window instead of FlightSize, as in Linux: the window does not grow while the
/// flow is application-limited.
pub struct Reno;

impl WindowLaw for Reno {
    type State = ();

    fn name(&self) -> &'static str {
        "reno"
    }

    fn beta(&self) -> &'static str {
        "0.5"
    }

    fn open(&self, _info: &FlowInfo) {}

    fn growth(&self, (): &mut (), _round: &AckedRound) -> f64 {
        1.0
    }
}
