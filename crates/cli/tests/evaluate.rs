//! `ccplane evaluate`: its output for people and for scripts.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::{ccplane, fails, printed, printed_json, unused_path};

#[test]
fn an_evaluation_writes_its_results_and_is_not_overwritten() {
    let path = unused_path("evaluate");
    let evaluate = |more: &str| {
        let mut command = ccplane("evaluate --alg reno --quick --only start-up --json --out");
        command.arg(&path).args(more.split_whitespace());
        command
    };
    let said_json = printed_json(&mut evaluate(""));
    let question = &said_json["questions"][0];
    assert_eq!(
        (question["name"].as_str(), said_json["algorithm"].as_str()),
        (Some("start-up"), Some("reno"))
    );
    assert!(
        question["places"][0]["to_80_percent_ms"].as_f64() > Some(0.0),
        "{question}"
    );
    let page = fs::read(path.join("evaluation.html")).expect("the page");
    let kept: Value =
        serde_json::from_slice(&fs::read(path.join("evaluation.json")).expect("the figures"))
            .unwrap();
    assert_eq!(kept["questions"], said_json["questions"]);
    assert!(!path.join("parts").exists());

    fails(
        &mut evaluate(""),
        2,
        &["exists and is not empty", "--force"],
    );
    fails(&mut evaluate("--resume"), 2, &["is finished"]);
    printed(evaluate("--force").env("CCPLANE_THREADS", "1"));
    assert_eq!(
        fs::read(path.join("evaluation.html")).expect("the page"),
        page
    );
}

#[test]
fn several_algorithms_have_a_leaderboard_and_one_table_of_runs() {
    let path = unused_path("evaluate-several");
    let command = "evaluate --alg reno,cubic,reno --quick --only start-up,bufferbloat --json --out";
    let printed = printed_json(ccplane(command).arg(&path));
    let evaluations = printed["evaluations"].as_array().expect("a list");
    let names: Vec<_> = evaluations.iter().map(|one| &one["algorithm"]).collect();
    assert!(
        names.len() == 2 && names.contains(&&Value::from("cubic")),
        "{names:?}"
    );
    let read = |name: &str| fs::read_to_string(path.join(name)).expect(name);
    let kept: Value = serde_json::from_str(&read("evaluation.json")).expect("JSON");
    assert_eq!(kept["evaluations"], printed["evaluations"]);
    let page = read("leaderboard.html");
    for name in ["reno", "cubic"] {
        let link = format!("href=\"{name}/evaluation.html#start-up\"");
        assert!(page.contains(&link), "{link}");
        let own: Value =
            serde_json::from_str(&read(&format!("{name}/evaluation.json"))).expect("JSON");
        assert!(evaluations.contains(&own), "{name}");
        assert!(read(&format!("{name}/evaluation.html")).contains("start-up"));
    }
    // The reference is the same for both, so its runs are made once.
    let runs = read("runs.csv");
    let mut lines = runs.lines();
    assert!(
        lines
            .next()
            .is_some_and(|line| line.starts_with("run,question,case,algorithm,seed,")),
        "{runs}"
    );
    let identities: BTreeSet<&str> = lines
        .clone()
        .filter_map(|line| line.split(',').next())
        .collect();
    assert_eq!(identities.len(), lines.clone().count(), "{runs}");
    let of = |algorithm: &str| {
        let cell = format!(",{algorithm},1,");
        lines.clone().filter(|line| line.contains(&cell)).count()
    };
    assert!(of("reno") > 0 && of("reno") == of("cubic"), "{runs}");
    assert_eq!(of("native:cubic"), of("reno"), "{runs}");
    assert!(path.join("runs.parquet").exists());
}

#[test]
fn an_interrupted_evaluation_resumes() {
    let path = unused_path("evaluate-interrupted");
    let evaluate = |more: &str| {
        let mut command = ccplane("evaluate --alg reno --quick --only loss,reno,changes --out");
        command.arg(&path).args(more.split_whitespace());
        command
    };
    let mut running = evaluate("")
        .env("CCPLANE_THREADS", "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary under test starts");
    let parts = || fs::read_dir(path.join("parts")).map_or(0, Iterator::count);
    while parts() == 0 && running.try_wait().expect("it is ours").is_none() {
        std::thread::yield_now();
    }
    let interrupt = Command::new("kill")
        .args(["-INT", &running.id().to_string()])
        .status();
    assert!(interrupt.expect("there is a kill").success());
    let output = running.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(130) && text.contains("--resume"),
        "{text}"
    );
    assert!(parts() > 0 && !path.join("evaluation.html").exists());

    fails(&mut evaluate(""), 2, &["interrupted evaluation"]);
    printed(&mut evaluate("--resume"));
    let resumed = fs::read(path.join("evaluation.html")).expect("the page");
    printed(&mut evaluate("--force"));
    assert_eq!(
        fs::read(path.join("evaluation.html")).expect("the page"),
        resumed
    );
}

#[test]
fn invalid_questions_and_algorithms_are_errors() {
    fails(
        "evaluate --alg reno --only shalow-buffer",
        2,
        &["did you mean `shallow-buffer`?"],
    );
    fails("evaluate --alg cubik", 2, &["did you mean `cubic`?"]);
    fails("evaluate --quick", 2, &[]);
    let text = printed("evaluate");
    assert!(
        text.contains("shallow-buffer") && text.contains("RFC 9743"),
        "{text}"
    );
}
