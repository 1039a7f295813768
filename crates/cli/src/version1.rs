//! Algorithms that CCP's own datapaths can run: those whose programs can be expressed in version 1
//! of the messages.

use std::sync::Arc;

use ccplane_agent::ccp_datapath;
use ccplane_agent::{Agent, DatapathId, FlowInfo, HostedAlgorithm};
use ccplane_lang as lang;
use ccplane_units::Time;
use ccplane_wire::{WireCommand, WireEvent, v1};

/// Returns the reason why a program cannot be installed at a CCP datapath; `None` if it can.
pub fn not_expressible(program: &lang::Program) -> Option<String> {
    v1::check_expressible(program.code())
        .err()
        .map(|why| why.to_string())
}

/// Returns `name: reason` for each hosted algorithm that CCP's datapaths cannot run. Only the
/// program that an algorithm installs when one of their flows opens counts; other programs are for
/// other datapaths. The trial consumes the agent.
pub fn not_expressible_in(mut agent: Agent) -> Vec<String> {
    const TRIAL_DATAPATH: DatapathId = DatapathId(0);
    let hosted: Vec<Arc<HostedAlgorithm>> = agent.hosted_algorithms().cloned().collect();
    let now = Time::from_micros(0);
    let datapath = ccp_datapath(0);
    let lacks = |hosted: &HostedAlgorithm| {
        let missing = hosted.required.missing_from(datapath.capabilities);
        missing.names().collect::<Vec<_>>().join(", ")
    };
    agent.handle(
        now,
        TRIAL_DATAPATH,
        WireEvent::Ready {
            datapath: datapath.clone(),
        },
    );
    // Returns the number of the first program that the algorithm installs.
    let mut first = |flow: u64, hosted: &HostedAlgorithm| {
        while agent.poll().is_some() {}
        let info = FlowInfo {
            algorithm: hosted.name.to_string(),
            ..FlowInfo::default()
        };
        agent.handle(now, TRIAL_DATAPATH, WireEvent::FlowOpened { flow, info });
        std::iter::from_fn(|| agent.poll()).find_map(|(_, command)| match command {
            WireCommand::SetProgram { uid, .. } => Some(uid),
            _ => None,
        })
    };
    let why = |(flow, hosted): (u64, &Arc<HostedAlgorithm>)| {
        let lacks = lacks(hosted);
        if !lacks.is_empty() {
            return Some(format!(
                "{}: CCP datapaths do not support {lacks}",
                hosted.name
            ));
        }
        let set = first(flow, hosted);
        match hosted
            .programs
            .iter()
            .find(|program| Some(program.uid) == set)
        {
            Some(program) => {
                let why = not_expressible(&program.compiled)?;
                Some(format!(
                    "{}, program `{}`: {why}",
                    hosted.name, program.name
                ))
            }
            None => Some(format!(
                "{}: it sets no program for flows of a CCP datapath",
                hosted.name
            )),
        }
    };
    (1..).zip(&hosted).filter_map(why).collect()
}
