//! Algorithms of contenders, as written on the command line.

use ccplane_agent::{Agent, DynAlgorithm};
use ccplane_lab::Contender;

use crate::exit::{Failure, FailureKind};
use crate::{Parameters, Registry};

/// Returns true for a Python file, which is code and is not run in this process by default.
pub(crate) fn is_python(contender: &Contender) -> bool {
    contender.algorithm().ends_with(".py")
}

/// Adds an algorithm as written on the command line.
pub fn add(agent: &mut Agent, contender: &Contender, registry: &Registry) -> Result<(), Failure> {
    let algorithm = make(contender, registry)?;
    agent
        .add_boxed(algorithm)
        .map_err(|e| Failure::new(FailureKind::Failed, e))
}

/// Creates the algorithm of a contender. Fails for the datapath's own.
pub fn make(contender: &Contender, registry: &Registry) -> Result<Box<dyn DynAlgorithm>, Failure> {
    let Contender::Ccplane { name, parameters } = contender else {
        return Err(Failure::text(
            FailureKind::Usage,
            format!("`{contender}` is a kernel algorithm"),
        )
        .hint("--alg expects an algorithm of ccplane, such as cubic; see `ccplane algorithms`"));
    };
    let parameters = parameters
        .iter()
        .fold(Parameters::new(), |p, (k, v)| p.with(k, v));
    registry
        .by_name(name, &parameters)
        .map_err(|e| Failure::new(FailureKind::Usage, e))
}
