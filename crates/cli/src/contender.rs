//! Algorithms of contenders, as written on the command line.

use ccplane_agent::{Agent, DynAlgorithm};
use ccplane_lab::Contender;

use crate::exit::{Failure, FailureKind};
use crate::{Parameters, Registry};

/// Returns true for a Python file, which is code and is not run in this process by default, unless
/// an agent that the contender names has it.
pub(crate) fn is_python(contender: &Contender) -> bool {
    contender.agent().is_none() && contender.algorithm().ends_with(".py")
}

/// Adds an algorithm as written on the command line.
pub fn add(agent: &mut Agent, contender: &Contender, registry: &Registry) -> Result<(), Failure> {
    let algorithm = make(contender, registry)?;
    agent
        .add_boxed(algorithm)
        .map_err(|e| Failure::new(FailureKind::Failed, e))
}

/// Creates the algorithm of a contender. Fails for the datapath's own and for another process'.
pub fn make(contender: &Contender, registry: &Registry) -> Result<Box<dyn DynAlgorithm>, Failure> {
    let (name, parameters) = match contender {
        Contender::Ccplane { name, parameters } => (name, parameters),
        Contender::Native { .. } => {
            let what = format!("`{contender}` is a kernel algorithm");
            return Err(Failure::text(FailureKind::Usage, what).hint(
                "--alg expects an algorithm of ccplane, such as cubic; see `ccplane algorithms`",
            ));
        }
        Contender::Remote { agent, .. } => {
            let what = format!("`{contender}` runs in another process");
            let name = contender.agent_name();
            return Err(Failure::text(FailureKind::Usage, what).hint(format!(
                "write {name} for an algorithm of this process; `attach` takes an agent as \
                 `--alg {name} --agent {agent}`"
            )));
        }
    };
    let parameters = parameters
        .iter()
        .fold(Parameters::new(), |p, (k, v)| p.with(k, v));
    registry
        .by_name(name, &parameters)
        .map_err(|e| Failure::new(FailureKind::Usage, e))
}
