//! Reno with NewReno's one reduction per recovery: RFC 5681 and RFC 6582.

use ccplane_agent::{DynAlgorithm, FlowInfo, boxed};

use crate::window::{Law, Round};
use crate::{AlgorithmDoc, BadParameter, Exit, LossBased, Parameters, WindowOptions};

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "reno",
    doc: "NewReno (RFC 5681, RFC 6582): one segment an RTT, half the window at a loss",
    parameters: &[WindowOptions::REPORT, WindowOptions::SLOW_START],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    Ok(boxed(LossBased::new(
        Reno,
        WindowOptions::read(parameters, Default::default())?,
        Exit::Off,
    )))
}

/// One segment for each window acknowledged (RFC 5681, 3.1), half the window at a loss (equation 4; the window, not
/// the data in flight, as Linux has it, since a program's growth stops while the application limits sending).
pub struct Reno;

impl Law for Reno {
    type State = ();

    fn name(&self) -> &'static str {
        "reno"
    }

    fn beta(&self) -> &'static str {
        "0.5"
    }

    fn open(&self, _info: &FlowInfo) {}

    fn growth(&self, (): &mut (), _round: &Round) -> f64 {
        1.0
    }
}
