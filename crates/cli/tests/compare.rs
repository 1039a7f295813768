//! `ccplane compare` on runs in the simulator.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::common::{ccplane, empty_folder, fails, printed, printed_json};

/// Returns `ccplane` in a folder. `arguments` are separated by spaces.
fn ccplane_in(folder: &Path, arguments: &str) -> Command {
    let mut command = ccplane(arguments);
    command.current_dir(folder);
    command
}

fn simulate(folder: &Path, out: &str, more: &str) {
    let run = format!("run --datapath sim --alg cubic --duration 3s --out {out} {more}");
    printed(&mut ccplane_in(folder, &run));
}

#[test]
fn runs_are_compared_side_by_side_with_differences_first() {
    let here = empty_folder("compare-two");
    simulate(&here, "slow", "--rate 24mbit");
    simulate(&here, "fast", "--rate 96mbit --vs native:reno");
    let text = printed(&mut ccplane_in(&here, "compare slow fast"));
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].contains("set-up") && lines[0].contains("slow") && lines[0].contains("fast"),
        "{text}"
    );
    let rate = lines
        .iter()
        .find(|line| line.starts_with("link"))
        .expect("the rate differs");
    assert!(
        rate.contains("24mbit (24 Mbit/s)") && rate.contains("96mbit (96 Mbit/s)"),
        "{text}"
    );
    assert!(!text.contains("round-trip time"), "it is the same: {text}");
    // Three contenders in total, two of them in the second folder.
    let rows = |name: &str| lines.iter().filter(|line| line.contains(name)).count();
    assert_eq!((rows("cubic"), rows("native:reno")), (2, 1), "{text}");
    assert!(here.join("ccplane-results/compare-1.html").exists());

    let page =
        fs::read_to_string(here.join("ccplane-results/compare-1.html")).expect("it is there");
    for part in [
        "cubic, slow</text>",
        "native:reno, fast</text>",
        "The same in all",
        "round-trip time",
    ] {
        assert!(page.contains(part), "no {part:?}");
    }

    // JSON output, and a page at a given path.
    let object = printed_json(&mut ccplane_in(
        &here,
        "compare slow fast --json --out page.html",
    ));
    assert_eq!(object["page"], "page.html");
    assert!(
        object["differs"]
            .as_array()
            .expect("a list")
            .contains(&json!("link"))
    );
    let own: Value = serde_json::from_str(
        &fs::read_to_string(here.join("slow/summary.json")).expect("it is there"),
    )
    .expect("JSON");
    assert_eq!(
        object["runs"][0],
        json!({ "folder": "slow", "result": own })
    );
    let again = "compare slow fast --out page.html";
    fails(
        &mut ccplane_in(&here, again),
        2,
        &["page.html already exists", "--force"],
    );
    printed(&mut ccplane_in(
        &here,
        "compare slow fast --out page.html --force",
    ));
}

#[test]
fn several_seeds_have_an_ellipse_and_their_intervals() {
    let here = empty_folder("compare-seeds");
    let lossy = "--loss 0.1% --rate 24mbit --seeds 1..4";
    simulate(&here, "one", lossy);
    simulate(&here, "two", &format!("{lossy} --rtt 40ms"));
    let text = printed(&mut ccplane_in(&here, "compare one two --out page.html"));
    assert!(text.matches('±').count() >= 4, "{text}");
    let page = fs::read_to_string(here.join("page.html")).expect("it is there");
    // Two dots and two ellipses with 48 corners each.
    let picture = page.split("<svg").nth(1).expect("a picture");
    assert_eq!(picture.matches("<circle").count(), 2, "{picture}");
    assert_eq!(picture.matches('L').count() / 48, 2, "{picture}");
}

/// Returns the names of the files in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().display().to_string())
        .collect();
    names.sort();
    names
}

#[test]
fn charts_are_saved_in_every_format_under_the_names_of_the_page() {
    let here = empty_folder("compare-formats");
    simulate(&here, "slow", "--rate 24mbit");
    simulate(&here, "fast", "--rate 96mbit");
    printed(&mut ccplane_in(
        &here,
        "compare slow fast --format svg --out charts",
    ));
    printed(&mut ccplane_in(
        &here,
        "compare slow fast --format csv --out values",
    ));
    let svg = names(&here.join("charts"));
    assert_eq!(svg.len(), 3, "{svg:?}");
    let of = |name: &String| name.replace("charts-", "values-").replace(".svg", ".csv");
    assert_eq!(
        names(&here.join("values")),
        svg.iter().map(of).collect::<Vec<_>>()
    );

    printed(&mut ccplane_in(&here, "compare slow fast --out page.html"));
    let page = fs::read_to_string(here.join("page.html")).expect("it is there");
    for name in &svg {
        let stem = name.trim_start_matches("charts-").trim_end_matches(".svg");
        assert!(page.contains(&format!("data-file=\"{stem}\"")), "{stem}");
        let text = fs::read_to_string(here.join("charts").join(name)).expect("it is there");
        assert!(
            text.starts_with("<svg ") && !text.contains("var("),
            "{text}"
        );
        assert!(text.contains("cubic, slow</text>"), "{text}");
    }
    assert!(
        page.contains("cubic in fast: ") && page.contains(" times the goodput of cubic in slow")
    );

    // The extension selects the format; one file has all charts.
    printed(&mut ccplane_in(&here, "compare slow fast --out all.svg"));
    let all = fs::read_to_string(here.join("all.svg")).expect("it is there");
    assert_eq!(all.matches("font-weight=\"600\"").count(), 3, "{all}");
    printed(&mut ccplane_in(&here, "compare slow fast --out all.csv"));
    let all = fs::read_to_string(here.join("all.csv")).expect("it is there");
    assert!(
        all.starts_with("chart,line,x,value\n") && all.lines().count() == 7,
        "{all}"
    );
    let object = printed_json(&mut ccplane_in(
        &here,
        "compare slow fast --format svg --json",
    ));
    assert_eq!(
        object["files"].as_array().map(Vec::len),
        Some(3),
        "{object}"
    );

    let csv = "compare slow fast --format csv --out x.svg";
    fails(
        &mut ccplane_in(&here, csv),
        2,
        &["does not match the extension"],
    );
    let pdf = "compare slow fast --out all.pdf";
    fails(ccplane_in(&here, pdf).env("PATH", ""), 3, &["librsvg2-bin"]);
    assert!(!here.join("all.pdf").exists());
}

#[test]
fn folders_without_a_run_are_refused_with_the_reason() {
    let here = empty_folder("compare-bad");
    simulate(&here, "run", "");
    for (name, file, text) in [
        ("empty", "other.txt", ""),
        ("evaluation", "evaluation.json", "{}"),
        ("broken", "summary.json", "{"),
        ("old", "summary.json", "{\"version\": \"0.0.1\"}"),
        ("new", "summary.json", "{\"schema\": 99}"),
        ("odd", "summary.json", "{\"schema\": 1, \"version\": 7}"),
    ] {
        fs::create_dir_all(here.join(name)).expect("a folder can be made");
        fs::write(here.join(name).join(file), text).expect("a file can be written");
    }
    for (other, reason) in [
        ("absent", "there is no folder absent"),
        ("empty", "has no summary.json"),
        ("evaluation", "it is an evaluation"),
        ("broken", "broken/summary.json cannot be read"),
        ("old", "schema none"),
        ("new", "schema 99"),
        ("odd", "invalid type: integer `7`"),
        ("run", "named twice"),
        ("./run", "named twice"),
    ] {
        fails(ccplane_in(&here, "compare run").arg(other), 2, &[reason]);
        assert!(
            !here.join("ccplane-results").exists(),
            "{other}: nothing is written"
        );
    }
    fails(
        &mut ccplane_in(&here, "compare run"),
        2,
        &["2 values required"],
    );
}
