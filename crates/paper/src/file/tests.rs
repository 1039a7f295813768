//! Papers as people write them, right and wrong.

use ccplane_algorithms::Registry;
use ccplane_lab::Quiet;
use ccplane_report::Provenance;

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
    let outcome = paper
        .experiment()
        .run(&options, &Registry::builtin(), &mut Quiet)
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
    assert!(page.contains("<svg") && page.contains("waits"));
    std::fs::remove_dir_all(&directory).unwrap();
}
