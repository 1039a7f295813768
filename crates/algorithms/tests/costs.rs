//! Checks that `docs/algorithms/costs.md` lists the compiler's costs of every program.

use std::fmt::Write;
use std::path::Path;

use ccplane_agent::{Agent, AgentOptions};
use ccplane_algorithms::{Parameters, Registry};

const PAGE: &str = "../../docs/algorithms/costs.md";
const HEAD: &str = "# What the programs cost

The compiler counts these costs for the programs of every algorithm with its default parameters;
`ccplane check` prints the same numbers. *Instructions* is the size of the program, *worst ACK* the
largest number of instructions that one ACK can execute, and each *variable* takes 8 bytes per flow.
If an algorithm has several programs, it installs the one that its datapath can run.

A test writes this page: `CCPLANE_GOLDEN=write cargo test -p ccplane-algorithms --test all costs`.

| algorithm | program | instructions | worst ACK | variables |
| --- | --- | --- | --- | --- |
";

#[test]
fn the_page_of_costs_is_true() {
    let registry = Registry::builtin();
    let mut page = HEAD.to_owned();
    for name in registry.names() {
        let mut agent = Agent::new(AgentOptions::default());
        let algorithm = registry
            .by_name(name, &Parameters::new())
            .expect("built in");
        agent.add_boxed(algorithm).expect("it compiles");
        for program in agent
            .hosted_algorithms()
            .flat_map(|hosted| &hosted.programs)
        {
            let cost = program.compiled.cost();
            let _ = writeln!(
                page,
                "| [{name}]({name}.md) | {} | {} | {} | {} |",
                program.name, cost.instrs, cost.instrs_worst, cost.vars
            );
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    if std::env::var_os("CCPLANE_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&path, &page).expect("the page can be written");
    }
    let there = std::fs::read_to_string(&path).expect("the page is there");
    assert!(
        there == page,
        "{} is out of date; renew it as it says\n{page}",
        path.display()
    );
}
