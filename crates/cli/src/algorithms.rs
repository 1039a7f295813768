//! `ccplane algorithms`: lists algorithms with their parameters, defaults and units, and whether
//! CCP's own datapaths can run them.

use ccplane_agent::{Agent, AgentOptions};
use ccplane_algorithms::Parameters;
use clap::Args;

use crate::exit::{Failure, FailureKind};
use crate::{AlgorithmDoc, Registry, version1};

#[derive(Args)]
pub struct AlgorithmsArgs {
    /// Algorithm to show [default: all].
    name: Option<String>,
}

pub fn run(args: &AlgorithmsArgs, registry: &Registry, json: bool) -> Result<(), Failure> {
    let shown: Vec<&AlgorithmDoc> = match &args.name {
        None => registry.docs().collect(),
        Some(name) => {
            let found = registry.docs().find(|doc| doc.name == name);
            let found = found.ok_or_else(|| unknown(name, registry))?;
            vec![found]
        }
    };
    if json {
        let all: Vec<_> = shown
            .into_iter()
            .map(|a| {
                let parameters: Vec<_> = a
                    .parameters
                    .iter()
                    .map(|p| serde_json::json!({ "name": p.name, "default": p.default, "values": p.values, "doc": p.doc }))
                    .collect();
                serde_json::json!({ "name": a.name, "doc": a.doc, "ccp_error": not_expressible(registry, a.name), "parameters": parameters })
            })
            .collect();
        println!("{}", serde_json::json!({ "algorithms": all }));
        return Ok(());
    }
    for a in shown {
        println!("{}\n    {}", a.name, a.doc);
        match not_expressible(registry, a.name) {
            None => println!("    CCP datapaths: yes (agent --ccp)"),
            Some(why) => println!("    CCP datapaths: no; {why}"),
        }
        for p in a.parameters {
            println!(
                "    {}={}  ({})\n        {}",
                p.name, p.default, p.values, p.doc
            );
        }
    }
    Ok(())
}

/// Returns the error for an unknown algorithm, with similar names.
fn unknown(name: &str, registry: &Registry) -> Failure {
    let failure = match registry.by_name(name, &Parameters::new()) {
        Err(why) => Failure::new(FailureKind::Usage, why),
        // A file, which has no entry in the list.
        Ok(_) => Failure::text(FailureKind::Usage, format!("`{name}` is a file")),
    };
    failure.hint("`ccplane algorithms` lists all; `ccplane check FILE` shows a program file")
}

/// Returns why CCP's datapaths cannot run the algorithm with default parameters; `None` if they
/// can.
fn not_expressible(registry: &Registry, name: &str) -> Option<String> {
    let algorithm = registry
        .by_name(name, &Parameters::new())
        .map_err(|why| why.to_string());
    let mut agent = Agent::new(AgentOptions::default());
    match algorithm.and_then(|algorithm| agent.add_boxed(algorithm).map_err(|why| why.to_string()))
    {
        Ok(()) => version1::not_expressible_in(agent).into_iter().next(),
        Err(why) => Some(why),
    }
}
