use super::*;

const SWEEP: &str = "\
scenario = \"01-one-flow\"
seeds = \"1..3\"
[grid]
contenders = [\"cubic\", \"reno\", \"./mine.ccp:back={back}\"]
back = [0.5, 0.7]
\"topology.dumbbell.rate\" = [\"10mbit\", \"100mbit\"]
topology.dumbbell.queue = [\"droptail:1bdp\", \"codel\"]
";

fn parse(text: &str) -> Result<Sweep, Problem> {
    Sweep::parse("sweep.toml", text, Path::new("nowhere"))
}

/// Returns the error of a file, or of its points.
fn problem(text: &str) -> Problem {
    let all = |sweep: Sweep| {
        for point in sweep.points()? {
            sweep.scenario(&point)?;
        }
        Ok(())
    };
    parse(text).and_then(all).expect_err("it is wrong")
}

fn columns(sweep: &Sweep) -> Vec<String> {
    sweep.axes.iter().map(SweepAxis::column_name).collect()
}

fn rows(sweep: &Sweep) -> Vec<String> {
    let row = |point: &SweepPoint| {
        let value = |axis| {
            point
                .value(axis, sweep)
                .map_or("", |value: &AxisValue| &*value.text)
        };
        let all: Vec<&str> = (0..sweep.axes.len()).map(value).collect();
        all.join(" ")
    };
    sweep.points().unwrap().iter().map(row).collect()
}

#[test]
fn a_grid_is_a_product_without_values_that_have_no_effect() {
    let sweep = parse(SWEEP).unwrap();
    assert_eq!(columns(&sweep), ["contender", "back", "rate_mbit", "queue"]);
    let rows = rows(&sweep);
    // Cubic and Reno have no `back`: four points each, and eight of mine.ccp.
    assert_eq!(rows.len(), 16);
    assert_eq!(rows[0], "cubic  10mbit droptail:1bdp");
    assert_eq!(rows[1], "cubic  10mbit codel");
    assert_eq!(rows[15], "./mine.ccp 0.7 100mbit codel");
}

#[test]
fn a_point_is_a_scenario_with_its_values() {
    let sweep = parse(SWEEP).unwrap();
    let points = sweep.points().unwrap();
    let scenario = sweep.scenario(&points[15]).unwrap();
    let contenders: Vec<String> = scenario
        .contenders
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(contenders, ["nowhere/./mine.ccp:back=0.7"]);
    assert!(!scenario.text.contains("nowhere"), "{}", scenario.text);
    let crate::Topology::Dumbbell { bottleneck, .. } = &scenario.topology else {
        panic!("{:?}", scenario.topology)
    };
    assert_eq!(bottleneck.line_name, "100mbit");
    assert_eq!(bottleneck.queue_name, "codel");
    let name = sweep.contender(&points[15]).unwrap();
    assert_eq!(name.as_deref(), Some("./mine.ccp:back=0.7"));
    // Equal points give equal texts.
    assert_eq!(scenario.text, sweep.scenario(&points[15]).unwrap().text);
}

#[test]
fn cases_are_explicit_combinations() {
    let text = "\
scenario = \"01-one-flow\"
[grid]
\"topology.dumbbell.rate\" = [\"10mbit\", \"100mbit\"]
[[case]]
name = \"lossy\"
topology.dumbbell.loss = \"1%\"
[[case]]
name = \"deep\"
topology.dumbbell.queue = \"droptail:8bdp\"
[[case]]
";
    let sweep = parse(text).unwrap();
    let contenders = sweep.axes[0].values.len();
    assert_eq!(
        columns(&sweep),
        ["contender", "rate_mbit", "case", "loss", "queue"]
    );
    let rows = rows(&sweep);
    assert_eq!(rows.len(), contenders * 2 * 3);
    assert!(rows[0].ends_with("10mbit lossy 1% "), "{}", rows[0]);
    assert!(
        rows[1].ends_with("10mbit deep  droptail:8bdp"),
        "{}",
        rows[1]
    );
    assert!(rows[2].ends_with("10mbit   "), "{:?}", rows[2]);
    assert_eq!(sweep.axes[3].quantity.number("1%"), Some(0.01));
}

#[test]
fn a_mistake_is_reported_where_it_is_written() {
    let told = |text: &str| {
        let problem = problem(text);
        let marked = problem.text().get(problem.span()).unwrap_or_default();
        format!(
            "{problem} | {marked} | {}",
            problem.fix().unwrap_or_default()
        )
    };
    let with = |grid: &str| told(&format!("scenario = \"01-one-flow\"\n[grid]\n{grid}\n"));
    insta::assert_snapshot!(
        [
            told("scenario = \"01-one\"\n"),
            told("scenario = 3\n"),
            told("[grid]\nback = [1]\n"),
            told("scenario = \"01-one-flow\"\ngrid = 3\n"),
            told("scenario = \"01-one-flow\"\ncase = 3\n"),
            with("back = [0.5, 0.7]"),
            with("duratoin = [\"1s\"]"),
            with("topology.dumbbell.rate = \"10mbit\""),
            with("topology.dumbbell.rate = []"),
            with("topology.dumbbell.rate = [\"10mbt\"]"),
            with("topology.dumbbell.rat = [\"10mbit\"]"),
            with("topology.dumbbell.rate.x = [1]"),
            with("workload.9.start = [\"1s\"]"),
            with("seeds = [1, 2]"),
            with("run = [1]\ncontenders = [\"cubic:hystart={run}\"]"),
            with("contenders = [1]"),
            with("contenders = [\"./mine.ccp:back={bakc}\"]\nback = [1]"),
            with("contenders = [\"cubic:a={b}\"]\nb = [1, 1]"),
            with("duration = [\"1s\"]\n[[case]]\nduration = \"2s\""),
            with("duration = [\"1s\"]\n[[case]]\ncontenders = [\"reno\"]"),
            told("base = \"02-fairness\"\nscenario = \"01-one-flow\"\n"),
            with("duration = [\"1s\"]\n[[case]]\naxis = \"duration\""),
            with("duration = [\"1s\"]\n[[case]]\naxis = \"seed\""),
            with("[[case]]\naxis = \"link\"\nlink = []"),
            with("[[case]]\nwarm = \"1s\"\n[[case]]\naxis = \"b\"\nwarm = \"2s\""),
            with("duration = [\"1s\"]\n[quick]\nseeds = \"x\""),
            with("duration = [\"1s\"]\n[quick]\nrepeats = 0"),
            with("duration = [\"1s\"]\n[quick]\nduration = \"1s\""),
            with("[[case]]\nname = \"a\"\n[quick]\ncase = [\"b\"]"),
            with("[[case]]\nname = \"a\"\n[quick]\nworkload.9.start = \"1s\""),
            told("scenario = \"01-one-flow\"\nrepeats = 0\n"),
        ]
        .join("\n")
    );
}

#[test]
fn a_scenario_can_be_a_table_of_the_sweep() {
    let text = "\
seeds = 4
[scenario]
contenders = [\"reno\"]
duration = \"1s\"
topology.dumbbell = { rate = \"10mbit\", rtt = \"20ms\" }
workload = [{ bulk = {} }]
[grid]
topology.dumbbell.rate = [\"5mbit\", \"6mbt\"]
";
    let sweep = parse(text).unwrap();
    let points = sweep.points().unwrap();
    let scenario = sweep.scenario(&points[0]).unwrap();
    assert!(
        scenario.text.contains("rate = \"5mbit\""),
        "{}",
        scenario.text
    );
    let problem = sweep.scenario(&points[1]).unwrap_err();
    assert_eq!((problem.line(), sweep.scenario_file()), (8, None));
}

/// Cases of one axis are alternatives, and those of different axes are combined.
const CASES: &str = "\
base = \"01-one-flow\"
seeds = \"1..9\"
repeats = 3
[scenario]
contenders = [\"reno\"]
[[case]]
axis = \"load\"
name = \"7\"
topology.dumbbell.rate = \"7mbit\"
duration = \"2s\"
[[case]]
axis = \"load\"
name = \"70\"
topology.dumbbell.rate = \"70mbit\"
duration = \"3s\"
[[case]]
name = \"short\"
topology.dumbbell.queue = \"codel\"
[[case]]
name = \"long\"
[quick]
seeds = 4
repeats = 1
load = [\"70\"]
case = [\"long\"]
warm = \"1s\"
";

#[test]
fn cases_of_different_axes_are_combined() {
    let sweep = parse(CASES).unwrap();
    assert_eq!(
        columns(&sweep),
        [
            "contender",
            "load",
            "rate_mbit",
            "duration_ms",
            "case",
            "queue"
        ]
    );
    let all = rows(&sweep);
    assert_eq!(
        all,
        [
            "reno 7 7mbit 2s short codel",
            "reno 7 7mbit 2s long ",
            "reno 70 70mbit 3s short codel",
            "reno 70 70mbit 3s long "
        ]
    );
    assert_eq!(sweep.axes[1].quantity, AxisQuantity::Number);
    assert_eq!(sweep.real_seeds().iter().collect::<Vec<_>>(), [1, 2, 3]);
    // The base's own settings remain.
    let scenario = sweep.scenario(&sweep.points().unwrap()[0]).unwrap();
    assert!(scenario.text.contains("rtt = "), "{}", scenario.text);
}

#[test]
fn contenders_of_cases_replace_those_of_the_scenario() {
    let text = "\
base = \"22-bundle\"
[scenario]
duration = \"40s\"
[[case]]
name = \"48m\"
contender = \"native:cubic\"
bundle = []
[[case]]
name = \"96m\"
contender = \"bundler:start={start}\"
start = \"passing\"
[[case]]
name = \"own\"
";
    let sweep = parse(text).unwrap();
    assert_eq!(columns(&sweep), ["case", "contender", "bundle", "start"]);
    // A case without a contender runs with those of the scenario.
    let expected = [
        "48m native:cubic [] ",
        "96m bundler  passing",
        "own bundler  ",
        "own native:cubic  ",
        "own autorate  ",
    ];
    assert_eq!(rows(&sweep), expected);
    let points = sweep.points().unwrap();
    let scenarios = points.iter().map(|point| sweep.scenario(point).unwrap());
    let found: Vec<(String, usize)> = scenarios
        .map(|scenario| (scenario.contenders[0].to_string(), scenario.bundles.len()))
        .collect();
    let found: Vec<(&str, usize)> = found.iter().map(|(name, n)| (&**name, *n)).collect();
    assert_eq!(
        found[..2],
        [("native:cubic", 0), ("bundler:start=passing", 1)]
    );
    assert_eq!(
        found[2..],
        [("bundler", 1), ("native:cubic", 1), ("autorate", 1)]
    );
}

#[test]
fn a_quick_sweep_replaces_values() {
    let quick = |text: &str| {
        Sweep::parse_with("sweep.toml", text, Path::new("nowhere"), SweepSize::Quick).unwrap()
    };
    let sweep = quick(CASES);
    assert_eq!(rows(&sweep), ["reno 70 70mbit 3s long "]);
    assert_eq!((sweep.seeds, sweep.repeats), (Seeds::one(4), Some(1)));
    let scenario = sweep.scenario(&sweep.points().unwrap()[0]).unwrap();
    assert_eq!(scenario.warm_up, ccplane_units::Duration::from_secs(1));
    let sweep = quick(&format!(
        "{SWEEP}[quick]\ncontenders = [\"reno\"]\nback = [0.5]\n"
    ));
    assert_eq!(rows(&sweep).len(), 4);
}

#[test]
fn a_sweep_of_too_many_runs_is_refused_before_it_is_listed() {
    let text =
        "scenario = \"01-one-flow\"\nseeds = \"1..1000000\"\n[grid]\nduration = [\"1s\", \"2s\"]\n";
    let problem = parse(text).unwrap().points().unwrap_err();
    assert!(problem.message().starts_with("the sweep has "), "{problem}");
}

#[test]
fn the_inputs_of_the_fuzz_target_are_valid_sweeps() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/sweep");
    let mut count = 0;
    for entry in std::fs::read_dir(seeds).unwrap() {
        let sweep = Sweep::read(&entry.unwrap().path()).unwrap();
        for point in sweep.points().unwrap() {
            sweep.scenario(&point).unwrap();
            count += 1;
        }
    }
    assert!(count > 10, "{count} points");
}
