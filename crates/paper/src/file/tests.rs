//! Papers as people write them, right and wrong.

use std::collections::BTreeMap;

use ccplane_algorithms::Registry;
use ccplane_lab::result::{Completion, RunResult};
use ccplane_lab::scenario::WorkloadKind;
use ccplane_lab::{Backend, NoProgress, Sim};
use ccplane_report::Provenance;
use ccplane_sim::{Arrivals, Workload as Sends};
use ccplane_units::{Duration, Rate};

use super::*;
use crate::{Options, by_name};

/// A paper of one cell that takes no time; `more` stands at its end.
fn small(more: &str) -> String {
    format!(
        "name = \"mine\"\ntitle = \"Mine\"\nsource = \"nobody\"\n\n[scenario]\nduration = \"2s\"\nsample = \"10ms\"\n\
         topology.dumbbell = {{ rate = \"10mbit\", rtt = \"20ms\" }}\nworkload = [{{ bulk = {{}} }}]\n\n\
         [[contender]]\nalgorithm = \"native:reno\"\nkey = \"reno\"\n\n[[grid]]\nname = \"rate\"\n\
         sets = \"topology.dumbbell.rate\"\nvalues = [\"10mbit\", \"20mbit\"]\n\n{more}"
    )
}

fn read(text: &str) -> Result<Paper, Problem> {
    Paper::parse("mine.toml", text, Path::new("."))
}

/// Line, sentence and fix.
fn told(text: &str) -> (usize, String, String) {
    let problem = read(text).unwrap_err();
    let fix = problem.fix().unwrap_or_default().to_owned();
    (problem.line(), problem.message().to_owned(), fix)
}

#[test]
fn every_paper_of_the_program_is_read() {
    for (file, text) in EMBEDDED {
        let read = Paper::parse(file, text, Path::new("."));
        assert!(read.is_ok(), "{}", read.unwrap_err());
    }
    assert_eq!(embedded().len(), EMBEDDED.len());
    for paper in embedded() {
        for point in paper.points(false, |on| on == Datapath::Sim) {
            let scenario = paper.scenario(&point, false, None).unwrap();
            assert!(
                Sim::default()
                    .prepare(&scenario, &Registry::builtin())
                    .is_ok(),
                "{}",
                scenario.text
            );
        }
    }
    let paper = by_name("dx-senders").unwrap();
    assert_eq!((paper.on, paper.repeats), (&[Datapath::Sim][..], None));
    let own = by_name("sim-kernel").unwrap();
    assert_eq!((own.on.len(), own.repeats), (2, Some(5)));
    for halves in ["dx-testbed", "rc3-priority"] {
        let halves = by_name(halves).unwrap();
        assert_eq!((halves.on.len(), halves.repeats), (2, None));
    }
}

#[test]
fn a_grid_is_crossed_and_its_words_replace_the_scenarios() {
    let paper = read(&small(
        "[[grid]]\nname = \"n\"\nsets = \"workload.1.bulk.flows\"\nvalues = [1, 2, 3]\n",
    ))
    .unwrap();
    let points = paper.points(false, |_| true);
    assert_eq!(points.len(), 6);
    let texts: Vec<String> = points
        .iter()
        .map(|point| paper.scenario(point, false, None).unwrap().text)
        .collect();
    assert!(
        texts[5].contains("rate = \"20mbit\"") && texts[5].contains("bulk.flows = 3"),
        "{}",
        texts[5]
    );
    assert!(
        texts[5].starts_with("contenders = [\"native:reno\"]\n"),
        "{}",
        texts[5]
    );
    assert_eq!(
        paper.filled("{n}/{rate}", &points[5], |choice| &choice.key),
        "3/20mbit"
    );
}

#[test]
fn a_scenario_is_the_base_of_a_paper() {
    let text = "name = \"mine\"\ntitle = \"t\"\nsource = \"s\"\nbase = \"02-fairness\"\n[[contender]]\nalgorithm = \"reno\"\n";
    let paper = read(text).unwrap();
    let scenario = paper.scenario(&vec![0, 0], false, None).unwrap();
    let contenders: Vec<String> = scenario
        .contenders
        .iter()
        .map(|contender| contender.to_string())
        .collect();
    assert_eq!(contenders, ["reno"]);
    let shipped = Scenario::shipped("02-fairness").unwrap();
    assert_eq!(
        (scenario.duration, scenario.workloads.len()),
        (shipped.duration, shipped.workloads.len())
    );
    let (line, _, fix) = told(&text.replace("02-fairness", "no-such"));
    assert!(line == 4 && fix.contains("02-fairness"), "{fix}");
}

/// The mistake stands in the scenario's words or the grid's, and is told where it stands.
#[test]
fn a_mistake_is_told_with_its_line_and_its_fix() {
    let figure = |rest: &str| small(&format!("[[figure]]\nkey = \"a_{{rate}}\"\n{rest}"));
    for (text, line, what, fix) in [
        (
            small("").replace("\"20mbit\"", "\"20mbitt\""),
            18,
            "20mbitt",
            "mbit",
        ),
        (
            small("").replace("rtt = \"20ms\"", "rrt = \"20ms\""),
            8,
            "`rrt`",
            "`rtt`",
        ),
        (
            small("").replace("native:reno", "native:"),
            12,
            "native:",
            "",
        ),
        (
            small("").replace("topology.dumbbell.rate", "duration.x"),
            17,
            "duration",
            "topology",
        ),
        (
            small("").replace("name = \"rate\"", "name = \"on\""),
            16,
            "`on`",
            "another",
        ),
        (
            figure("value = \"goodput\"\n"),
            22,
            "`goodput`",
            "goodput_mbit",
        ),
        (
            figure("value = \"goodput_mbit\"\nof = \"cubic\"\n"),
            23,
            "`cubic`",
            "`reno`",
        ),
        (
            figure("value = \"goodput_mbit\"\njudge = \"equivalence\"\nmargin = 0.1\n"),
            23,
            "equivalent",
            "over_on",
        ),
        (figure("value = \"jain(3ms)\"\n"), 22, "3ms", "sample"),
        (
            figure("value = \"jain\"\nat_lest = 1\n"),
            23,
            "`at_lest`",
            "`at_least`",
        ),
        (
            figure("value = \"pooled utilisation\"\n"),
            22,
            "no measure",
            "without `pooled`",
        ),
        (
            figure("value = \"completion_p50_ms(<= 3kB)\"\n"),
            22,
            "`<= 3kB`",
            "`<= 10kB`",
        ),
        (
            figure("value = \"share(web)\"\n"),
            22,
            "no workload `web`",
            "`bulk`",
        ),
        (
            figure("value = \"completion_p50_ms(all of bulk)\"\n"),
            22,
            "the only workload",
            "without it",
        ),
        (
            figure("value = \"convergence_p50_ms(0.9)\"\n"),
            22,
            "no measure",
            "(0.95, 5ms)",
        ),
        (
            figure("value = \"convergence_p50_ms(0.9, 3ms)\"\n"),
            22,
            "3ms",
            "sample",
        ),
        (
            figure("value = \"convergence_p50_ms(0.9, 20ms)\"\n")
                .replace("bulk = {}", "bulk = { bytes = \"1MB\" }"),
            22,
            "do not converge",
            "`bytes`",
        ),
        (
            figure("value = \"jain\"\njudge = \"lest\"\n"),
            23,
            "`lest`",
            "`less`",
        ),
        (
            figure("value = \"jain\"\njudge = \"less\"\n"),
            23,
            "less than what",
            "`over`",
        ),
        (
            figure("value = \"jain\"\nover = \"reno\"\njudge = \"less\"\nat_least = 1.0\n"),
            25,
            "all that is aimed at",
            "remove",
        ),
        (
            figure(
                "value = \"pooled slowdown_p99(all)\"\nover = \"reno\"\njudge = \"equivalence\"\nmargin = 0.1\n",
            ),
            24,
            "no pairs",
            "without `pooled`",
        ),
        (
            figure("value = \"jain\"\ntake = \"most\"\n"),
            23,
            "`most`",
            "`max`",
        ),
        (
            figure("value = \"jain\"\ntake = \"together\"\n"),
            23,
            "`pooled`",
            "`take = \"mean\"`",
        ),
        (
            figure("value = \"jain\"\nalso = [\"drops\"]\n"),
            23,
            "several measures",
            "take",
        ),
        (
            figure("value = \"jain\"\npercent = \"less\"\n"),
            23,
            "of what",
            "`over`",
        ),
        (
            figure("value = \"jain\"\nover = \"reno\"\njudge = \"less\"\ntake = \"max\"\n"),
            25,
            "one value",
            "remove",
        ),
        (
            figure("value = \"completion_p50_ms(all in web)\"\n"),
            22,
            "`web` is no span",
            "`bulk`",
        ),
        (
            figure("value = \"passing_share\"\n"),
            22,
            "no measure",
            "`passing_share(all)`",
        ),
        (
            figure("value = \"passing_share(all)\"\n"),
            22,
            "no bundle",
            "`[[bundle]]`",
        ),
        (
            small("[[except]]\nskip = true\n"),
            20,
            "everywhere",
            "`only = ",
        ),
        (
            small("[[except]]\nonly = { rate = \"10mbit\" }\n"),
            20,
            "nothing is different",
            "`skip = true`",
        ),
        (
            small(
                "[[except]]\nonly = { rate = \"10mbit\" }\nskip = true\nset = { duration = \"1s\" }\n",
            ),
            20,
            "needs no words",
            "remove",
        ),
        (
            small("[[except]]\nonly = { rate = \"30mbit\" }\nskip = true\n"),
            21,
            "`30mbit`",
            "mbit`",
        ),
        (
            small(
                "[[except]]\nonly = { rate = \"10mbit\" }\nset = { \"topology.dumbbell.rtt\" = \"1\" }\n",
            ),
            22,
            "`1`",
            "20ms",
        ),
        (
            small("[[except]]\nonly = { contender = \"reno\" }\nskip = true\n"),
            1,
            "nothing is run",
            "`skip`",
        ),
        (
            small("[[figure]]\nkey = \"a\"\nvalue = \"jain\"\n"),
            21,
            "`rate`",
            "only = { rate = \"10mbit\" }",
        ),
        (
            small("[[chart]]\ncaption = \"c\"\nx = \"rate\"\nvalue = \"jain\"\n")
                .replace("20mbit", "fast"),
            22,
            "no place",
            "x = ",
        ),
    ] {
        let (at, said, hint) = told(&text);
        assert_eq!(at, line, "{said}");
        assert!(said.contains(what) && hint.contains(fix), "{said}; {hint}");
    }
}

#[test]
fn where_axes_cross_something_else_may_hold() {
    let paper = read(&small(
        "[[grid]]\nname = \"n\"\nsets = \"workload.1.bulk.flows\"\nvalues = [1, 2, 3]\n\
         [[except]]\nonly = { rate = \"20mbit\", n = [2, 3] }\nset = { \"topology.dumbbell.rate\" = \"21mbit\" }\n\
         [[except]]\nonly = { rate = \"10mbit\", n = 2 }\nskip = true\n",
    ))
    .unwrap();
    let points = paper.points(false, |_| true);
    let rates = points.iter().map(|point| {
        let text = paper.scenario(point, false, None).unwrap().text;
        let rate = text
            .split_once("rate = \"")
            .unwrap()
            .1
            .split_once('"')
            .unwrap()
            .0;
        format!(
            "{} {rate}",
            paper.filled("{rate} {n}", point, |choice| &choice.key)
        )
    });
    let expected = [
        "10mbit 1 10mbit",
        "10mbit 3 10mbit",
        "20mbit 1 20mbit",
        "20mbit 2 21mbit",
        "20mbit 3 21mbit",
    ];
    assert_eq!(rates.collect::<Vec<_>>(), expected);
}

#[test]
fn what_says_no_place_is_of_the_first() {
    let figure = |more: &str| format!("[[figure]]\nkey = \"{{rate}}\"\nvalue = \"jain\"\n{more}");
    let text = |more: &str| {
        small(&figure(more)).replace("\n[scenario]", "on = [\"linux\", \"sim\"]\n[scenario]")
    };
    let places = |text: &str| {
        let paper = read(text).unwrap();
        let points = paper.expand(&paper.figures[0].meant);
        points.iter().map(|point| point[2]).collect::<Vec<_>>()
    };
    assert_eq!(places(&text("")), [0, 0]);
    assert_eq!(places(&text("take = \"max\"\n")), [0, 0]);
    assert_eq!(places(&text("on = \"sim\"\n")), [1, 1]);
    assert_eq!(
        places(&text("").replace("{rate}", "{rate}_{on}")),
        [0, 1, 0, 1]
    );
}

/// A paper with two contenders of which only figures at 10 Mbit/s are shown.
fn shown_of(
    figures: &str,
    kept: &[(usize, u64, run::Kept)],
) -> serde_json::Map<String, serde_json::Value> {
    let paper = read(&small(&format!(
        "[[contender]]\nalgorithm = \"native:cubic\"\nkey = \"cubic\"\n{figures}"
    )))
    .unwrap();
    let mut runs = run::Runs::new();
    for (contender, seed, kept) in kept {
        let of = runs.entry(vec![0, *contender, 0]).or_default();
        of.insert(*seed, kept.clone());
    }
    let findings = shown::findings(&paper, &runs, &options(PathBuf::new()));
    findings.figures().clone()
}

/// What is kept of a run that has this measure, and these completion times.
fn kept(measure: &str, value: f64, times: &[f64]) -> run::Kept {
    run::Kept {
        values: BTreeMap::from([(measure.to_owned(), value)]),
        several: BTreeMap::from([("completion(all)".to_owned(), times.to_vec())]),
        ..run::Kept::default()
    }
}

/// Three flows of the first seed weigh three times as much as one of the second.
#[test]
fn flows_of_all_seeds_are_taken_together() {
    let figure = |key: &str, value: &str, rest: &str| {
        format!(
            "[[figure]]\nkey = \"{key}\"\nvalue = \"{value}\"\nonly = {{ rate = \"10mbit\" }}\nof = \"reno\"\n{rest}"
        )
    };
    let single = "completion_mean_ms(all)";
    let figures = [
        figure("together", "pooled completion_mean_ms(all)", ""),
        figure("p50", "pooled completion_p50_ms(all)", ""),
        figure("each", single, ""),
        figure(
            "ratio",
            "pooled completion_max_ms(all)",
            "over = \"cubic\"\n",
        ),
    ]
    .concat();
    let runs = [
        (0, 1, kept(single, 2.0, &[1.0, 2.0, 3.0])),
        (0, 2, kept(single, 10.0, &[10.0])),
        (1, 1, kept(single, 5.0, &[5.0])),
    ];
    let shown = shown_of(&figures, &runs);
    assert_eq!(
        (&shown["together"], &shown["p50"]),
        (&4.0.into(), &2.0.into())
    );
    assert_eq!(
        (&shown["each"], &shown["ratio"]),
        (&6.0.into(), &2.0.into())
    );
}

/// Of two contenders: the larger, the lesser, the mean; of two measures, and as percent of a
/// third's.
#[test]
fn a_figure_is_taken_of_several_values() {
    let figure = |key: &str, rest: &str| {
        format!("[[figure]]\nkey = \"{key}\"\nonly = {{ rate = \"10mbit\" }}\n{rest}")
    };
    let jain = "value = \"jain\"\n";
    let figures = [
        figure("max", &format!("{jain}take = \"max\"\n")),
        figure("min", &format!("{jain}take = \"min\"\ntimes = 10\n")),
        figure("mean", &format!("{jain}take = \"mean\"\n")),
        figure(
            "also",
            &format!("{jain}also = [\"drops\"]\ntake = \"max\"\n"),
        ),
        figure(
            "less",
            &format!("{jain}of = \"reno\"\nover = \"cubic\"\npercent = \"less\"\n"),
        ),
        figure(
            "more",
            &format!("{jain}of = \"cubic\"\nover = \"reno\"\npercent = \"more\"\n"),
        ),
        figure(
            "together",
            "value = \"pooled completion_mean_ms(all)\"\ntake = \"together\"\n",
        ),
    ]
    .concat();
    let runs = [
        (0, 1, kept("jain", 0.5, &[1.0])),
        (1, 1, kept("jain", 1.0, &[4.0, 4.0])),
    ];
    let shown = shown_of(&figures, &runs);
    let of = |key: &str| shown[key].as_f64();
    assert_eq!(
        (of("max"), of("min"), of("mean")),
        (Some(1.0), Some(5.0), Some(0.75))
    );
    assert_eq!((of("less"), of("more")), (Some(50.0), Some(100.0)));
    assert_eq!(of("together"), Some(3.0));
    // One value of several is missing: what is left says too little.
    assert_eq!(of("also"), None);
    let more = [("jain", 0.5), ("drops", 3.0)].map(|(name, value)| (name.to_owned(), value));
    let both = run::Kept {
        values: BTreeMap::from(more),
        ..run::Kept::default()
    };
    let shown = shown_of(&figures, &[(0, 1, both.clone()), (1, 1, both)]);
    assert_eq!(shown["also"].as_f64(), Some(3.0));
}

/// Drops of the same seed: none beside 177 is a difference, none beside 15 of at least 20 is not,
/// and without a least there is no ratio.
#[test]
fn nothing_beside_much_is_a_difference() {
    let figure = |key: &str, least: &str| {
        format!(
            "[[figure]]\nkey = \"{key}\"\nvalue = \"drops\"\nonly = {{ rate = \"10mbit\" }}\nof = \"reno\"\n\
             over = \"cubic\"\njudge = \"equivalence\"\nmargin = 0.1\n{least}"
        )
    };
    let figures = figure("bounded", "least = 20\n") + &figure("bare", "");
    let runs = |ours: f64, other: f64| {
        [1, 2, 3]
            .map(|seed| {
                let ours = if seed == 1 { ours } else { 170.0 };
                [
                    (0, seed, kept("drops", ours, &[])),
                    (
                        1,
                        seed,
                        kept("drops", if seed == 1 { other } else { 170.0 }, &[]),
                    ),
                ]
            })
            .concat()
    };
    let shown = shown_of(&figures, &runs(0.0, 177.0));
    assert_ne!(shown["bounded_verdict"], "met", "{shown:?}");
    assert!(
        shown["bounded"].as_f64().is_some_and(|ratio| ratio < 0.6),
        "{shown:?}"
    );
    assert!(shown["bare"].is_null(), "{shown:?}");
    let shown = shown_of(&figures, &runs(0.0, 15.0));
    assert_eq!(
        (&shown["bounded"], &shown["bounded_verdict"]),
        (&1.0.into(), &"met".into())
    );
}

#[test]
fn who_is_less_is_a_statement() {
    let figure = |key: &str, of: &str, over: &str| {
        format!(
            "[[figure]]\nkey = \"{key}\"\nvalue = \"jain\"\nonly = {{ rate = \"10mbit\" }}\nof = \"{of}\"\n\
             over = \"{over}\"\njudge = \"less\"\n"
        )
    };
    let figures = figure("less", "reno", "cubic") + &figure("more", "cubic", "reno");
    let runs = [
        (0, 1, kept("jain", 0.8, &[])),
        (1, 1, kept("jain", 0.9, &[])),
    ];
    let shown = shown_of(&figures, &runs);
    assert_eq!(
        (&shown["less"], &shown["more"]),
        (&true.into(), &false.into())
    );
    // Beside nothing nobody is less.
    let nothing = [
        (0, 1, kept("jain", 0.8, &[])),
        (1, 1, kept("jain", 0.0, &[])),
    ];
    let shown = shown_of(&figures, &nothing);
    assert_eq!(
        (&shown["less"], &shown["more"]),
        (&false.into(), &true.into())
    );
    let shown = shown_of(&figures, &runs[..1]);
    assert!(
        shown["less"].is_null() && !shown.contains_key("more"),
        "one of them was not run"
    );
}

fn options(directory: PathBuf) -> Options {
    Options {
        quick: false,
        datapath: None,
        threads: 2,
        repeats: None,
        any_build: false,
        trace: None,
        directory,
        force: false,
        command: "ccplane paper mine.toml".to_owned(),
        provenance: Provenance::default(),
    }
}

#[test]
fn a_paper_of_ones_own_runs() {
    let directory = std::env::temp_dir().join(format!("ccplane-own-paper-{}", std::process::id()));
    let paper = read(&small(
        "[[figure]]\nkey = \"use_{rate}\"\nwhat = \"use, {rate}\"\nvalue = \"utilisation\"\nat_least = 0.9\n\
         [[figure]]\nkey = \"twice\"\nvalue = \"goodput_mbit\"\nover = \"other\"\nof = \"reno\"\nonly = { rate = \"20mbit\" }\n\
         [[contender]]\nalgorithm = \"native:reno\"\nkey = \"other\"\nlabel = \"other\"\nset = { \"topology.dumbbell.rate\" = \"10mbit\" }\n\
         [[table]]\ntitle = \"all\"\nrows = [\"rate\", \"contender\"]\ncolumns = [{ value = \"wait_p50_us\" }, { value = \"goodput_mbit\", over = \"reno\" }]\n\
         [[chart]]\ncaption = \"waits\"\ntitle = \"{rate}\"\nx = \"delay\"\n\
         [[chart]]\ncaption = \"waits\"\ntitle = \"again, {rate}\"\nx = \"delay\"\n\
         [[except]]\nonly = { rate = \"10mbit\", contender = \"other\" }\nskip = true\n",
    )
    .replace("what = \"use, {rate}\"\n", "what = \"use, {rate}\"\nof = \"reno\"\n"))
    .unwrap();
    let options = options(directory.clone());
    let outcome = paper
        .experiment()
        .run(&options, &Registry::builtin(), &NoProgress)
        .unwrap();
    let figure = |key: &str| outcome.figures[key].as_f64().unwrap();
    assert!(figure("use_10mbit") > 0.9 && figure("use_20mbit") > 0.9);
    assert!((figure("twice") - 2.0).abs() < 0.1, "{}", figure("twice"));
    assert!(
        outcome.text.contains("met") && outcome.text.contains("20mbit"),
        "{}",
        outcome.text
    );
    let page = std::fs::read_to_string(outcome.page).unwrap();
    assert!(page.contains("<svg") && page.contains("again, 10mbit"));
    assert_eq!(page.matches("waits</figcaption>").count(), 1, "one picture");
    let rows: Vec<Vec<&str>> = outcome
        .text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let row = |keys: [&str; 2]| rows.iter().find(|row| row.starts_with(&keys));
    let others = [row(["10mbit", "other"]), row(["20mbit", "other"])].map(|row| row.is_some());
    assert_eq!(others, [false, true], "{}", outcome.text);
    assert_eq!(
        row(["20mbit", "native:reno"]).and_then(|row| row.last()),
        Some(&"1.00")
    );
    assert_eq!(row(["20mbit", "native:reno"]).map(Vec::len), Some(4));
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn labels_are_filled_and_quantities_are_an_axis() {
    let directory = std::env::temp_dir().join(format!("ccplane-own-labels-{}", std::process::id()));
    let more = "[[grid]]\nname = \"back\"\nvalues = [\"reno\", \"cubic\"]\n\
                [[contender]]\nalgorithm = \"native:{back}\"\nkey = \"other\"\n\
                [[figure]]\nkey = \"use_{rate}_{back}_{contender}\"\nwhat = \"use of {contender} at {rate}, {back}\"\nvalue = \"utilisation\"\n\
                [[table]]\ntitle = \"{contender}\"\nrows = [\"rate\", \"back\"]\ncolumns = [{ value = \"goodput_mbit\" }]\n\
                [[table]]\ntitle = \"across\"\nrows = [\"rate\", \"back\"]\nacross = \"contender\"\ncolumns = [{ value = \"goodput_mbit\" }]\n\
                [[table]]\ntitle = \"all\"\nrows = [\"rate\", \"back\", \"contender\"]\ncolumns = [{ value = \"goodput_mbit\" }]\n\
                [[chart]]\ncaption = \"use\"\ntitle = \"{back}\"\nx = \"rate\"\nvalue = \"utilisation\"\n";
    let paper = read(&small(more)).unwrap_or_else(|problem| panic!("{problem}"));
    let options = options(directory.clone());
    let outcome = paper
        .experiment()
        .run(&options, &Registry::builtin(), &NoProgress)
        .unwrap();
    let page = std::fs::read_to_string(outcome.page).unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
    for text in [&outcome.text, &page] {
        assert!(
            text.contains("native:cubic") && !text.contains("{back}"),
            "{text}"
        );
        assert!(
            !text.contains("deviates from the paper"),
            "there is nothing to list: {text}"
        );
    }
    assert!(
        outcome.text.contains("use of native:cubic at"),
        "{}",
        outcome.text
    );
    assert!(
        outcome.text.contains("native:back"),
        "one column for both: {}",
        outcome.text
    );
    let rates =
        ["10mbit", "1.5gbit", "20ms", "64kB", "1%"].map(|text| check::coordinate(&text.into()));
    assert_eq!(rates, [10.0, 1_500.0, 20.0, 64_000.0, 1.0].map(Some));
    assert_eq!(check::coordinate(&"droptail:1bdp".into()), None);
}

/// The scenario of a paper of the program: what stands at these keys, and else the first there is.
fn scenario_of(name: &str, keys: &[(&str, &str)]) -> Scenario {
    let paper = embedded().iter().find(|paper| paper.name == name).unwrap();
    let only = keys.iter().map(|(dim, key)| {
        let at = paper.dims.iter().position(|of| of.name == *dim).unwrap();
        let value = paper.dims[at]
            .values
            .iter()
            .position(|value| value.key == *key)
            .unwrap();
        (at, vec![value])
    });
    let meant = Meant {
        only: only.collect(),
        each: Vec::new(),
    };
    paper
        .scenario(&paper.expand(&meant)[0], false, None)
        .unwrap()
}

/// A run of it with this seed.
fn ran(scenario: &Scenario, seed: u64) -> RunResult {
    run::run_scenario(
        scenario,
        Datapath::Sim,
        seed,
        "test",
        &Registry::builtin(),
        &NoProgress,
    )
    .unwrap()
}

/// As measures look at it.
fn looked_at<'r>(scenario: &'r Scenario, result: &'r RunResult) -> seen::Run<'r> {
    seen::Run {
        scenario,
        packet_us: 12_000.0 / result.setup.rate_mbit,
        result: &result.contenders[0],
    }
}

/// A measure of one run of a paper of the program: what stands at these keys, with seed 1, from
/// `warm` to `until`, ms.
fn short(name: &str, keys: &[(&str, &str)], (warm, until): (u64, u64), measure: &str) -> f64 {
    let mut scenario = scenario_of(name, keys);
    (scenario.warm_up, scenario.duration) =
        (Duration::from_millis(warm), Duration::from_millis(until));
    let result = ran(&scenario, 1);
    let run = looked_at(&scenario, &result);
    Measure::read(measure).unwrap().of(&run).unwrap()
}

/// Our aim, for the goal that DX's slides 21 and 22 state: next to no queue, and a link that is
/// full after every decrease.
#[test]
fn the_link_is_full_and_the_queue_short_with_many_senders() {
    for senders in ["10", "30"] {
        let of = |who, measure| {
            short(
                "dx-senders",
                &[("senders", senders), ("contender", who)],
                (100, 150),
                measure,
            )
        };
        let used = of("dx", "utilisation");
        assert!(used >= 0.99, "{senders} senders: {used}");
        let (dx, dctcp) = (of("dx", "delay_p50_ms"), of("dctcp", "delay_p50_ms"));
        assert!(dx < dctcp / 2.0, "{senders} senders: {dx} {dctcp}");
    }
}

/// Noise without headroom leaves the link unused, and headroom above the noise fills it.
#[test]
fn headroom_cures_noise() {
    let used = |headroom| {
        short(
            "dx-noise",
            &[("noise", "1000ns"), ("headroom", headroom)],
            (10, 30),
            "utilisation",
        )
    };
    let (bare, covered) = (used("0ns"), used("19200ns"));
    assert!(covered > 0.9 && bare < covered - 0.05, "{bare} {covered}");
}

/// The ratios of slides 28 and 32 are the least here; the use of the link is ours.
#[test]
fn queues_are_shorter_than_under_dctcp_by_what_the_slides_have_and_the_link_is_full() {
    for (rate, ratio) in [("1g", 5.33), ("10g", 1.6)] {
        let of = |who, measure| {
            short(
                "dx-testbed",
                &[("rate", rate), ("contender", who)],
                (20, 70),
                measure,
            )
        };
        let (dx, dctcp) = (of("dx", "delay_p50_ms"), of("dctcp", "delay_p50_ms"));
        assert!(dctcp / dx >= ratio, "{rate}: {dctcp} {dx}");
        assert!(of("dx", "utilisation") >= 0.97, "{rate}");
        assert_eq!(
            (of("dx", "drops"), of("dx", "retransmissions")),
            (0.0, 0.0),
            "{rate}"
        );
    }
    // DCTCP's queue stands about its threshold of 20 packets, 240 µs.
    let of = |measure| {
        short(
            "dx-testbed",
            &[("rate", "1g"), ("contender", "dctcp")],
            (40, 80),
            measure,
        )
    };
    let (waited, used) = (of("wait_p50_us"), of("utilisation"));
    assert!(
        (150.0..300.0).contains(&waited) && (used - 1.0).abs() < 0.001,
        "{waited} {used}"
    );
}

/// Noise of stamps is the contender's, and only at 10 Gbit/s; the threshold is the rate's.
#[test]
fn a_rate_has_its_contenders_and_its_threshold() {
    let paper = embedded()
        .iter()
        .find(|paper| paper.name == "dx-testbed")
        .unwrap();
    let point = |point: &Point| paper.filled("{rate} {contender}", point, |choice| &choice.key);
    let points = paper.points(true, |_| true);
    let all: Vec<String> = points.iter().map(point).collect();
    let expected = [
        "1g dx",
        "1g dctcp",
        "1g steered_dctcp",
        "10g dx",
        "10g dx_hw",
        "10g dx_sw",
        "10g dctcp",
        "10g steered_dctcp",
    ];
    assert_eq!(all, expected);
    let text = |rate, who| scenario_of("dx-testbed", &[("rate", rate), ("contender", who)]).text;
    assert!(text("1g", "steered_dctcp").contains("ecn:20p:250p"));
    assert!(
        text("10g", "dctcp").contains("ecn:65p:250p") && !text("10g", "dctcp").contains("stamps")
    );
    assert!(text("10g", "dx_sw").contains("stamps.preset = \"software\""));
}

/// Five flows of which each stays for two of five spans of 20 ms.
#[test]
fn flows_join_and_leave() {
    let ms = Duration::from_millis;
    let mut scenario = scenario_of("dx-convergence", &[("contender", "dx")]);
    scenario.duration = ms(120);
    match &mut scenario.workloads[0].kind {
        WorkloadKind::Generated(Sends::Bulk {
            stagger,
            lifetime: lasts,
            ..
        }) => (*stagger, *lasts) = (ms(20), Some(ms(40))),
        other => panic!("{other:?}"),
    }
    let result = ran(&scenario, 1);
    let run = looked_at(&scenario, &result);
    let rates = rates::rates(&run);
    let at = |flow: usize, look: usize| rates[flow][look];
    assert!(at(0, 10) > 9_000.0 && at(1, 10) == 0.0);
    assert!(at(0, 35) > 1_000.0 && at(1, 35) > 1_000.0);
    assert!(at(0, 50) == 0.0 && at(1, 50) > 1_000.0 && at(4, 110) > 9_000.0);
    assert!(at(3, 110) == 0.0 && result.contenders[0].audit.sound);
    // A change of two that share, at 20, 40, 60 and 80 ms; then one is alone.
    let convergence = Measure::read("pooled convergence_p50_ms(0.95, 5ms)").unwrap();
    let (_, each) = convergence.pooled().unwrap();
    let all = each.values(&run);
    assert!(all.len() == 4 && all.iter().all(|ms| *ms < 20.0), "{all:?}");
}

/// The share of the uplinks' 640 Gbit/s; 186 of 191 flows are between racks, and 1,448 of 1,500
/// bytes are theirs.
#[test]
fn the_load_is_of_the_uplinks_with_headers() {
    for (load, share) in [("20", 0.2), ("40", 0.4), ("60", 0.6), ("80", 0.8)] {
        let scenario = scenario_of("dx-fattree", &[("load", load)]);
        let WorkloadKind::Generated(Sends::Poisson {
            arrivals: Arrivals::Rate(rate),
            flows: Some(1_000),
            ..
        }) = &scenario.workloads[0].kind
        else {
            panic!("{:?}", scenario.workloads[0].kind)
        };
        let (gbit, expected) = (
            rate.bits_per_sec() as f64 / 1e9,
            share * 640.0 * 191.0 / 186.0 * 1_448.0 / 1_500.0,
        );
        assert!(
            (gbit - expected).abs() < 1e-3,
            "{load} %: {gbit} {expected}"
        );
    }
}

/// Flows of the tree, with the reconstruction's delays, under this load of its uplinks.
fn tree(who: &str, share: f64, flows: u64, seed: u64) -> RunResult {
    let mut scenario = scenario_of("dx-fattree", &[("delays", "4us_1us"), ("contender", who)]);
    match &mut scenario.workloads[0].kind {
        WorkloadKind::Generated(Sends::Poisson {
            arrivals,
            flows: of,
            ..
        }) => {
            let bits = share * 634_421_217_600.0;
            *arrivals = Arrivals::Rate(Rate::from_bits_per_sec(bits as u64));
            *of = Some(flows);
        }
        other => panic!("{other:?}"),
    }
    ran(&scenario, seed)
}

/// Few flows on an empty tree: each takes two round trips at most and its bytes, the same ones
/// under either control.
#[test]
fn flows_take_what_the_tree_says() {
    let (one, other) = (tree("dctcp", 0.01, 40, 3), tree("dx", 0.01, 40, 3));
    let flows =
        |result: &RunResult| -> Vec<Completion> { result.contenders[0].series.completed.clone() };
    let sizes =
        |result: &RunResult| -> Vec<u64> { flows(result).iter().map(|flow| flow.bytes).collect() };
    assert_eq!(sizes(&one), sizes(&other));
    let series = &one.contenders[0].series;
    assert_eq!(
        (flows(&one).len(), series.dropped_anywhere, series.timeouts),
        (40, Some(0), Some(0))
    );
    for flow in flows(&one) {
        // In one rack 5 + 5 µs each way; over the core 26.
        let (bytes, ns) = (flow.bytes, flow.took_ns);
        assert!(
            ns as f64 >= bytes as f64 * 8.0 / 10.0 + 30_000.0,
            "{bytes} bytes in {ns} ns"
        );
        assert!(bytes > 14_480 || ns < 150_000, "{bytes} bytes in {ns} ns");
    }
}

/// A few hundred flows at half of the uplinks' capacity: small ones do not wait behind large ones
/// under DX.
#[test]
fn small_flows_hardly_wait_under_dx() {
    let slowest = |who| {
        let result = tree(who, 0.5, 400, 1);
        let all = result.contenders[0].series.completed.iter();
        all.filter(|flow| flow.bytes <= 10_000)
            .map(|flow| flow.took_ns)
            .max()
            .unwrap()
    };
    let (dx, dctcp) = (slowest("dx"), slowest("dctcp"));
    assert!(dx < 200_000 && dctcp > 2 * dx, "{dx} ns, {dctcp} ns");
}

/// Of what is of high priority nothing waits behind what is of low priority, and that has what is
/// left.
#[test]
fn high_priority_has_the_link_and_low_priority_what_is_left() {
    let seconds = Duration::from_secs;
    for place in ["host", "switch"] {
        for (order, first) in [("high_joins", "low"), ("low_joins", "high")] {
            let mut scenario = scenario_of("rc3-priority", &[("place", place), ("order", order)]);
            (scenario.warm_up, scenario.duration) = (seconds(5), seconds(8));
            scenario.workloads[1].start = seconds(4);
            let result = ran(&scenario, 1);
            let run = looked_at(&scenario, &result);
            let of = |measure: &str| Measure::read(measure).unwrap().of(&run).unwrap();
            let (high, low) = (of("goodput_mbit(high)"), of("goodput_mbit(low)"));
            assert!(
                (0.98..1.01).contains(&(high / 97.33)),
                "{place} {order}: {high}"
            );
            assert!(low < 2.0, "{place} {order}: {low}");
            let alone = of(&format!("goodput_mbit({first} in 1s..50%)"));
            assert!(alone > 90.0, "{place} {order}: alone {alone}");
        }
    }
}
