//! Checks docs/results-format.md against the files of a run: the page lists every name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::{ccplane, printed, unused_path};

/// Returns all text in backticks on the page.
fn page() -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results-format.md");
    let text = fs::read_to_string(path).expect("the page is there");
    let words = text.split('`').skip(1).step_by(2);
    words.map(str::to_owned).collect()
}

/// The page lists the names in an evaluation's file. A test in crates/lab covers the metrics of all
/// questions.
#[test]
fn every_name_of_an_evaluation_is_on_the_page() {
    let asked = "evaluate --alg reno --quick --only ack-path";
    let (_, out) = written("evaluation", asked);
    let text = fs::read_to_string(out.join("evaluation.json")).expect("it is written");
    let told: Value = serde_json::from_str(&text).expect("JSON");
    let mut found = BTreeSet::new();
    names(&told, &mut found);
    let page = page();
    let known = |name: &str| page.contains(name.strip_prefix("reference_").unwrap_or(name));
    let missing: Vec<&String> = found.iter().filter(|name| !known(name)).collect();
    assert_eq!(
        missing,
        Vec::<&String>::new(),
        "not in docs/results-format.md"
    );
    for name in ["schema", "verdict", "place", "reference_goodput_mbit"] {
        assert!(found.contains(name), "{found:?}");
    }
}

fn names(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                found.insert(name.clone());
                names(value, found);
            }
        }
        Value::Array(values) => values.iter().for_each(|value| names(value, found)),
        _ => {}
    }
}

/// Returns the names in the files of a run with these arguments.
fn written(name: &str, arguments: &str) -> (BTreeSet<String>, PathBuf) {
    let out = unused_path(&format!("results-format/{name}"));
    printed(ccplane(arguments).arg("--out").arg(&out));
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(&out).expect("the folder is there") {
        let path = entry.expect("it can be read").path();
        let text = || fs::read_to_string(&path).expect("it can be read");
        match path.extension().and_then(|end| end.to_str()) {
            Some("json") => {
                let value: Value = serde_json::from_str(&text()).expect("JSON");
                names(&value, &mut found);
            }
            Some("csv") => {
                found.extend(
                    path.file_name()
                        .map(|name| name.to_string_lossy().into_owned()),
                );
                let text = text();
                let heading = text.lines().next().expect("a heading");
                found.extend(heading.split(',').map(str::to_owned));
            }
            _ => {}
        }
    }
    (found, out)
}

#[test]
fn every_name_that_a_run_writes_is_on_the_page() {
    let page = page();
    let mut all = BTreeSet::new();
    for (name, arguments) in [
        (
            "seeds",
            "run --datapath sim --duration 2s --alg cubic --flows 2 --loss 0.1% --seeds 1..3",
        ),
        (
            "second-loop",
            "run --datapath sim --duration 2s --alg cubic --transport rc3 --queue prio:6:shared:1bdp",
        ),
        ("mixed", "run 21-mixed"),
        ("bundle", "run 22-bundle"),
        ("links", "run 19-graph"),
    ] {
        let (found, _) = written(name, arguments);
        let missing: Vec<&String> = found.iter().filter(|name| !page.contains(*name)).collect();
        assert_eq!(
            missing,
            Vec::<&String>::new(),
            "{name}: not in docs/results-format.md"
        );
        all.extend(found);
    }
    // The runs had all kinds of files except for stamps, which need a kernel.
    for file in [
        "series",
        "bins",
        "flows",
        "reports",
        "completions",
        "workloads",
        "runs",
        "links",
        "bundles",
    ] {
        assert!(
            all.contains(&format!("{file}.csv")),
            "{file}.csv was not written"
        );
    }
    for name in ["second_loop", "bundles", "spread", "runs", "schema"] {
        assert!(all.contains(name), "{name} was not written");
    }
}
