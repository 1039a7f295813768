//! Papers as people write them, right and wrong.

use ccplane_algorithms::Registry;
use ccplane_lab::{Place, Quiet, Sim};
use ccplane_report::Provenance;
use ccplane_units::Duration;

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
            let scenario = paper.scenario(&point, false).unwrap();
            assert!(
                Sim::default().prepare(&scenario, &Registry::builtin()).is_ok(),
                "{}",
                scenario.text
            );
        }
    }
    let paper = by_name("dx-senders").unwrap();
    assert_eq!((paper.on, paper.repeats), (&[Datapath::Sim][..], None));
    let own = by_name("sim-kernel").unwrap();
    assert_eq!((own.on.len(), own.repeats), (2, Some(5)));
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
        .map(|point| paper.scenario(point, false).unwrap().text)
        .collect();
    assert!(
        texts[5].contains("rate = \"20mbit\"") && texts[5].contains("bulk.flows = 3"),
        "{}",
        texts[5]
    );
    assert!(texts[5].starts_with("contenders = [\"native:reno\"]\n"), "{}", texts[5]);
    assert_eq!(paper.filled("{n}/{rate}", &points[5], |choice| &choice.key), "3/20mbit");
}

#[test]
fn a_scenario_is_the_base_of_a_paper() {
    let text =
        "name = \"mine\"\ntitle = \"t\"\nsource = \"s\"\nbase = \"02-fairness\"\n[[contender]]\nalgorithm = \"reno\"\n";
    let paper = read(text).unwrap();
    let scenario = paper.scenario(&vec![0, 0], false).unwrap();
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
        (small("").replace("\"20mbit\"", "\"20mbitt\""), 18, "20mbitt", "mbit"),
        (
            small("").replace("rtt = \"20ms\"", "rrt = \"20ms\""),
            8,
            "`rrt`",
            "`rtt`",
        ),
        (small("").replace("native:reno", "native:"), 12, "native:", ""),
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
        (figure("value = \"goodput\"\n"), 22, "`goodput`", "goodput_mbit"),
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
        (figure("value = \"jain\"\nat_lest = 1\n"), 23, "`at_lest`", "`at_least`"),
        (
            small("[[figure]]\nkey = \"a\"\nvalue = \"jain\"\n"),
            21,
            "`rate`",
            "only = { rate = \"10mbit\" }",
        ),
        (
            small("[[chart]]\ncaption = \"c\"\nx = \"rate\"\nvalue = \"jain\"\n"),
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
fn a_paper_of_ones_own_runs() {
    let directory = std::env::temp_dir().join(format!("ccplane-own-paper-{}", std::process::id()));
    let paper = read(&small(
        "[[figure]]\nkey = \"use_{rate}\"\nwhat = \"use, {rate}\"\nvalue = \"utilisation\"\nat_least = 0.9\n\
         [[figure]]\nkey = \"twice\"\nvalue = \"goodput_mbit\"\nover = \"other\"\nof = \"reno\"\nonly = { rate = \"20mbit\" }\n\
         [[contender]]\nalgorithm = \"native:reno\"\nkey = \"other\"\nset = { \"topology.dumbbell.rate\" = \"10mbit\" }\n\
         [[table]]\ntitle = \"all\"\nrows = [\"rate\", \"contender\"]\ncolumns = [{ value = \"wait_p50_us\" }]\n\
         [[chart]]\ncaption = \"waits\"\ntitle = \"{rate}\"\nx = \"delay\"\n",
    )
    .replace("what = \"use, {rate}\"\n", "what = \"use, {rate}\"\nof = \"reno\"\n"))
    .unwrap();
    let options = Options {
        quick: false,
        datapath: None,
        threads: 2,
        repeats: None,
        any_build: false,
        trace: None,
        directory: directory.clone(),
        force: false,
        command: "ccplane paper mine.toml".to_owned(),
        provenance: Provenance::default(),
    };
    let outcome = paper.experiment().run(&options, &Registry::builtin(), &Quiet).unwrap();
    let figure = |key: &str| outcome.figures[key].as_f64().unwrap();
    assert!(figure("use_10mbit") > 0.9 && figure("use_20mbit") > 0.9);
    assert!((figure("twice") - 2.0).abs() < 0.1, "{}", figure("twice"));
    assert!(
        outcome.text.contains("met") && outcome.text.contains("20mbit"),
        "{}",
        outcome.text
    );
    let page = std::fs::read_to_string(outcome.page).unwrap();
    assert!(page.contains("<svg") && page.contains("waits"));
    std::fs::remove_dir_all(&directory).unwrap();
}

/// A measure of one run of a paper of the program: what stands at these keys, with seed 1, from `warm` to `until`, ms.
fn short(name: &str, keys: &[(&str, &str)], (warm, until): (u64, u64), measure: &str) -> f64 {
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
    let mut scenario = paper.scenario(&paper.expand(&meant)[0], false).unwrap();
    (scenario.warm, scenario.duration) = (Duration::from_millis(warm), Duration::from_millis(until));
    let (registry, progress) = (Registry::builtin(), Quiet);
    let result = run::run_scenario(&scenario, Datapath::Sim, 1, name, &registry, &progress).unwrap();
    let run = measure::Run {
        warm: scenario.warm,
        duration: scenario.duration,
        sample_every: scenario.sample_every,
        packet_us: 1.2,
        result: &result.contenders[0],
    };
    Measure::read(measure).unwrap().of(&run).unwrap()
}

/// Our aim, for the goal that DX's slides 21 and 22 state: next to no queue, and a link that is full after every decrease.
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
