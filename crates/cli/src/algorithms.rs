//! `ccplane algorithms`: lists algorithms with their parameters, defaults and units, and whether
//! CCP's own datapaths can run them.

use ccplane_agent::{Agent, AgentOptions};
use ccplane_algorithms::Parameters;

use crate::{Registry, version1};

pub fn run(registry: &Registry, json: bool) {
    if json {
        let all: Vec<_> = registry
            .docs()
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
        return;
    }
    for a in registry.docs() {
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
