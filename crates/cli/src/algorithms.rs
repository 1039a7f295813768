//! `ccplane algorithms`: what there is, with parameters, their defaults and units.

use crate::Registry;

/// Runs the command.
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
                serde_json::json!({ "name": a.name, "doc": a.doc, "parameters": parameters })
            })
            .collect();
        println!("{}", serde_json::json!({ "algorithms": all }));
        return;
    }
    for a in registry.docs() {
        println!("{}\n    {}", a.name, a.doc);
        for p in a.parameters {
            println!("    {}={}  ({})\n        {}", p.name, p.default, p.values, p.doc);
        }
    }
}
