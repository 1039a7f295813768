//! Every combination of parameters makes programs that compile, within what a datapath takes.

use ccplane_agent::{Agent, Options};

use crate::{Parameters, Registry};

/// Each parameter of each algorithm with each of its words, one at a time, and reports by interval.
fn variants(name: &str) -> Vec<Parameters> {
    let registry = Registry::builtin();
    let doc = registry.docs().find(|doc| doc.name == name).expect("it is built in");
    let words = doc
        .parameters
        .iter()
        .flat_map(|p| p.values.split(" | ").map(|word| (p.name, word)));
    let single = words.filter(|(_, word)| !word.contains(' '));
    single
        .chain([("report", "10ms")])
        .map(|(name, word)| Parameters::new().with(name, word))
        .collect()
}

#[test]
fn every_variant_compiles_within_the_limits() {
    for name in ["reno", "cubic", "dctcp"] {
        for parameters in variants(name) {
            let mut agent = Agent::new(Options::default());
            let algorithm = Registry::builtin()
                .by_name(name, &parameters)
                .expect("documented values are accepted");
            agent
                .add_boxed(algorithm)
                .unwrap_or_else(|why| panic!("{name} {parameters:?}: {why:?}"));
            for hosted in agent.hosted() {
                for program in &hosted.programs {
                    let cost = program.compiled.cost();
                    println!("{name} {parameters:?} {}: {cost:?}", program.name);
                    assert!(cost.vars <= 32, "{name} {parameters:?}: {cost:?}");
                    if program.name == "portable" {
                        let said = ccplane_wire::v1::install(&mut Vec::new(), 1, &program.code);
                        assert_eq!(said, Ok(()), "a CCP datapath understands it");
                    }
                }
            }
        }
    }
}
