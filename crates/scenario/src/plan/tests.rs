//! Tests of plans that need no backend.

use std::path::Path;

use ccplane_units::Duration;
use ccplane_workload::Pairs as FixedPairs;

use super::{Pairs, Plan};
use crate::{Contender, Problem, Scenario, shipped};

const TWO_SITES: &str = r#"
contenders = ["bundler"]
duration = "1s"
[[node]]
name = "a"
[[node]]
name = "s"
switch = true
[[node]]
name = "t"
switch = true
[[node]]
name = "b"
[[link]]
from = "a"
to = "s"
delay = "1ms"
[[link]]
from = "s"
to = "t"
name = "slow"
rate = "10mbit"
delay = "4ms"
queue = "droptail:1bdp"
[[link]]
from = "t"
to = "b"
rate = "1gbit"
[[bundle]]
from = "s"
to = "t"
[[workload]]
from = "a"
to = "b"
bulk = {}
"#;

fn plan(text: &str) -> Result<Plan, Problem> {
    Plan::new(&Scenario::parse("test.toml", text, Path::new(".")).unwrap())
}

#[test]
fn every_shipped_scenario_has_a_plan() {
    for name in shipped() {
        let scenario = Scenario::shipped(name).unwrap();
        let plan = Plan::new(&scenario).unwrap_or_else(|problem| panic!("{name}: {problem}"));
        assert_eq!(plan.workloads.len(), scenario.workloads.len(), "{name}");
        for workload in &plan.workloads {
            let spec = workload.spec(1);
            let FixedPairs::List(pairs) = &spec.pairs else {
                continue;
            };
            assert_eq!(pairs.len(), workload.pairs.count(), "{name}, {}", spec.name);
        }
    }
}

#[test]
fn a_graph_uses_its_slowest_link_and_the_rtt_of_its_first_pair() {
    let plan = plan(TWO_SITES).unwrap();
    assert_eq!(plan.network.link_name(plan.main_link), "slow");
    assert_eq!(plan.rtt, Duration::from_millis(10));
    let node = |name| plan.network.find_node(name).unwrap();
    assert_eq!(plan.bundles, [(node("s"), node("t"))]);
    let Pairs::Fixed(FixedPairs::List(pairs)) = &plan.workloads[0].pairs else {
        panic!("{:?}", plan.workloads);
    };
    assert_eq!(*pairs, [(node("a"), node("b"))]);
}

#[test]
fn contenders_of_bundles_do_not_control_host_connections() {
    let plan = plan(TWO_SITES).unwrap();
    let bundler = Contender::ccplane("bundler");
    let control = plan.workloads[0].control(Some(&bundler));
    assert_eq!(control, Some(&Contender::native("cubic")));
}

#[test]
fn mistakes_in_a_network_are_problems_of_the_file() {
    for (old, new, message) in [
        (
            "droptail:1bdp",
            "red:min=3p:max=9kB",
            "the queue of the link `slow` is invalid: RED's min and max are in different units",
        ),
        (
            "to = \"t\"\n[[workload]]",
            "to = \"v\"\n[[workload]]",
            "there is no node `v`",
        ),
        (
            "to = \"b\"\nbulk",
            "to = \"c\"\nbulk",
            "there is no host `c`",
        ),
        (
            "from = \"t\"\nto = \"b\"",
            "from = \"t\"\nto = \"s\"",
            "no link leads to a receiver",
        ),
        (
            "[[bundle]]",
            "[routing]\nfixed = [{ at = \"t\", to = \"b\", next = \"s\" }]\n[[bundle]]",
            "the routes to `b` form a loop",
        ),
        (
            "[[bundle]]",
            "[[event]]\nat = \"1ms\"\nlink = \"slov\"\nup = false\n[[bundle]]",
            "there is no link `slov`",
        ),
    ] {
        assert!(TWO_SITES.contains(old), "{old}");
        let problem = plan(&TWO_SITES.replace(old, new)).unwrap_err();
        assert!(problem.message().starts_with(message), "{problem}");
        if message.ends_with("form a loop") {
            let line = problem.text().lines().nth(problem.line() - 1);
            assert!(
                line.is_some_and(|line| line.starts_with("fixed = ")),
                "{problem}"
            );
        }
    }
}

#[test]
fn mistakes_in_a_network_have_a_line_and_a_fix() {
    let dumbbell = |settings: &str, workload: &str| {
        format!(
            "[topology.dumbbell]\nrate = \"96mbit\"\n{settings}rtt = \"20ms\"\n[[workload]]\n{workload}\nbulk = {{}}\n"
        )
    };
    let fat_tree = "[topology.fat_tree]\nk = 1000\nrate = \"100gbit\"\ndelay = \"1us\"\n\
                    [[workload]]\npairs = \"permutation\"\nbulk = {}\n";
    for (network, line, message, fix) in [
        (fat_tree.to_owned(), 3, "MB of memory", "make it smaller"),
        (
            dumbbell("", "from = \"lift1\""),
            7,
            "there is no host `lift1`",
            "did you mean `left1`?",
        ),
        (
            dumbbell("", "from = \"left\""),
            7,
            "there is no host `left`",
            "left1",
        ),
        (
            dumbbell("pairs = 3\n", "to = [\"right1\", \"right3\"]"),
            7,
            "cannot pair 3 senders with 2 receivers",
            "",
        ),
        (
            dumbbell("", "") + "[[event]]\nat = \"1s\"\nlink = \"bottlenek\"\nup = false\n",
            11,
            "there is no link `bottlenek`",
            "did you mean `bottleneck`?",
        ),
    ] {
        let text = format!("contenders = [\"native:cubic\"]\nduration = \"1s\"\n{network}");
        let problem = plan(&text).unwrap_err();
        assert_eq!(problem.line(), line, "{problem}");
        assert!(problem.message().contains(message), "{problem}");
        assert!(problem.fix().unwrap_or_default().contains(fix), "{problem}");
    }
}
