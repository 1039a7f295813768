//! What can be served to CCP's own datapaths: a program that their version of the messages can say.

use ccplane_agent::Agent;
use ccplane_lang as lang;
use ccplane_wire::v1;

/// Why a program cannot be installed at a CCP datapath; `None` where it can.
pub fn unsayable(program: &lang::Program) -> Option<String> {
    v1::sayable(program.code()).err().map(|why| why.to_string())
}

/// The same of all that an agent hosts: the first program of each algorithm that cannot be said, as `name: why`.
pub fn unsayable_of(agent: &Agent) -> Vec<String> {
    let first = |hosted: &std::sync::Arc<ccplane_agent::Hosted>| {
        hosted.programs.iter().find_map(|program| {
            let why = unsayable(&program.compiled)?;
            Some(format!("{}, program `{}`: {why}", hosted.name, program.name))
        })
    };
    agent.hosted().filter_map(first).collect()
}
