//! `ccplane run` in the simulator: output for people and for scripts.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::common::{
    RunCommand, ccplane, empty_folder, fails, printed, printed_json, said, unused_path, unwrapped,
    write_file,
};

#[test]
fn a_bad_option_is_blamed_on_the_option() {
    for (options, expected) in [
        ("--alg cubic --queue fifo", "--queue fifo: "),
        ("--alg cubic --flows 0", "--flows 0: "),
        ("--alg cubic,absent", "there is no algorithm `absent`"),
        ("--alg ./absent.ccp", "./absent.ccp cannot be read"),
    ] {
        let output = ccplane("run --datapath sim")
            .args(options.split_whitespace())
            .run();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options}: {said}");
        assert!(
            said.contains(expected) && !said.contains("options:"),
            "{options}: {said}"
        );
    }
}

#[test]
fn the_options_of_kernel_runs_do_the_same_in_the_simulator() {
    let path = unused_path("sim-flags");
    let flags = "run --datapath sim --alg reno,cubic --vs native:cubic --flows 4 --duration 5s \
        --rate 96mbit --json --out";
    let object = printed_json(ccplane(flags).arg(&path));
    assert_eq!(object["setup"]["datapath"], "simulator");
    assert_eq!(object["setup"]["flows"], 4);
    assert!(object["setup"].get("socket_buffer_bytes").is_none());
    assert_eq!(object["digest"].as_str().map(str::len), Some(16));
    let contenders = object["contenders"].as_array().expect("a list");
    assert_eq!(contenders.len(), 3);
    for c in contenders {
        for key in ["label", "algorithm", "native", "figures", "audit"] {
            assert!(c.get(key).is_some(), "no {key} in {c}");
        }
        for key in [
            "goodput_mbit",
            "utilisation",
            "delay_mean_ms",
            "delay_p99_ms",
            "retransmitted_segments",
            "queue_drops",
            "jain",
        ] {
            assert!(
                c["figures"][key].is_number(),
                "no {key} in {}",
                c["figures"]
            );
        }
        assert!(
            c["figures"]["goodput_mbit"].as_f64() > Some(70.0),
            "{}",
            c["figures"]
        );
        assert_eq!(c["audit"]["sound"], true);
        assert!(c["audit"]["hops"].as_u64() > Some(1_000));
        assert!(c.get("host").is_none() && c["audit"].get("lateness_p50_us").is_none());
    }
    for file in [
        "summary.json",
        "host.json",
        "series.csv",
        "bins.csv",
        "flows.csv",
        "reports.csv",
        "report.html",
        "scenario.toml",
    ] {
        assert!(path.join(file).is_file(), "no {file}");
    }
    let page = fs::read_to_string(path.join("report.html")).expect("the page");
    assert!(
        page.contains("reno, cubic against native:cubic")
            && page.contains("Self-check of the simulation")
    );
    assert!(!page.contains("{{"), "a mark was left unfilled");
    // The stored scenario reproduces the same run.
    let again = unused_path("sim-flags-again");
    let kept = path.join("scenario.toml");
    let second = printed_json(ccplane("run --json").arg(&kept).arg("--out").arg(&again));
    assert_eq!(object["digest"], second["digest"]);
}

/// Without `--datapath`, options run in the simulator for every user, including root. `native:`
/// means the kernel's own algorithm.
#[test]
fn the_default_datapath_is_the_simulator() {
    for (name, options) in [
        ("plain", "--alg reno"),
        (
            "rc3",
            "--alg cubic --transport rc3 --queue prio:6:shared:1bdp",
        ),
    ] {
        let out = unused_path(&format!("sim-default-{name}"));
        let object = printed_json(
            ccplane("run --duration 1s --json")
                .args(options.split_whitespace())
                .arg("--out")
                .arg(&out),
        );
        assert_eq!(object["setup"]["datapath"], "simulator", "{name}");
    }
    // Usage errors are detected before privileges are checked: they are the same for root and for
    // others.
    fails(
        "run --alg reno --agent unix:/nowhere",
        2,
        &["--datapath linux"],
    );
    fails("run --vs native:reno --pcap", 2, &["--datapath sim"]);
}

#[test]
fn shipped_scenarios_run_by_name_and_unknown_names_get_suggestions() {
    let path = unused_path("sim-shipped");
    let object = printed_json(ccplane("run 01-one-flow --alg native:reno --json --out").arg(&path));
    assert_eq!(object["contenders"][0]["label"], "native:reno");
    let kept = fs::read_to_string(path.join("scenario.toml")).expect("the scenario");
    assert_eq!(kept, include_str!("../../../scenarios/01-one-flow.toml"));
    let output = ccplane("run one-flo --json --out").arg(&path).run();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let error: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(
        error["error"],
        "there is no file and no built-in scenario `one-flo`; did you mean `01-one-flow`?"
    );
}

#[test]
fn a_scenario_runs_with_many_seeds() {
    let path = unused_path("sim-seeds");
    let text = "contenders = [\"native:reno\", \"native:cubic\"]\nduration = \"2s\"\n[topology.dumbbell]\nrate = \"48mbit\"\n\
                rtt = \"20ms\"\nloss = \"0.1%\"\npairs = 2\n[[workload]]\npoisson = { rate = \"20mbit\", sizes = { table = \"caida\" } }\n";
    let file = write_file("sim-seeds.toml", text);
    let object = printed_json(
        ccplane("run --seeds 1..5 --json")
            .arg(&file)
            .arg("--out")
            .arg(&path)
            .env("CCPLANE_THREADS", "2"),
    );
    assert_eq!(object["setup"]["seeds"], "1..5");
    for c in object["contenders"].as_array().expect("a list") {
        assert_eq!(c["spread"]["seeds"], 5);
        assert!(c["spread"]["goodput_mbit"].as_f64() > Some(0.0));
        let classes = c["figures"]["completions"]["classes"]
            .as_array()
            .expect("a list");
        assert_eq!(
            classes.last().map(|all| &all["label"]),
            Some(&Value::from("all"))
        );
        assert!(classes[0]["slowdown_p99"].as_f64() > Some(1.0));
    }
    for seed in 1..=5 {
        assert!(
            path.join(format!("seed-{seed}/summary.json")).is_file(),
            "no figures of seed {seed}"
        );
    }
    assert!(path.join("completions.csv").is_file());
    // A single seed gives the same result as within the series.
    let alone = unused_path("sim-seed-alone");
    printed(ccplane("run --seeds 3").arg(&file).arg("--out").arg(&alone));
    let digest = |path: &Path| -> Value {
        let text = fs::read_to_string(path.join("summary.json")).expect("the figures");
        serde_json::from_str::<Value>(&text).expect("JSON")["digest"].clone()
    };
    assert_eq!(digest(&alone), digest(&path.join("seed-3")));
    let text = printed(ccplane("run --force").arg(&file).arg("--out").arg(&alone));
    assert!(
        text.contains("slowdown") && text.contains("digest"),
        "{text}"
    );
}

#[test]
fn results_of_two_runs_are_not_mixed() {
    let path = unused_path("sim-twice");
    let run = |seeds: &str, more: &[&str]| {
        let mut command = ccplane("run 01-one-flow --alg native:reno");
        said(
            command
                .args(["--seeds", seeds, "--out"])
                .arg(&path)
                .args(more),
        )
    };
    assert_eq!(run("1..2", &[]).0, 0);
    let note = path.join("note.txt");
    fs::write(&note, "mine").expect("the folder can be written");
    let (code, told) = run("1", &[]);
    assert!(
        code == 2 && told.contains("--force") && told.contains("results of another run"),
        "{told}"
    );
    assert!(path.join("seed-2").is_dir());
    let (code, told) = run("1", &["--force"]);
    assert_eq!(code, 0, "{told}");
    assert!(note.is_file() && !path.join("seed-2").exists() && path.join("summary.json").is_file());
    // Without `--out` each run gets a new folder.
    let home = path.join("home");
    fs::create_dir_all(&home).expect("the folder can be written");
    for number in 1..=2 {
        printed(ccplane("run 01-one-flow --alg native:reno").current_dir(&home));
        assert!(
            home.join(format!("ccplane-results/run-{number}/report.html"))
                .is_file()
        );
    }
}

#[test]
fn an_error_is_reported_with_its_line_before_anything_runs() {
    let out = unused_path("sim-mistakes");
    let text = "contenders = [\"native:reno\"]\nduration = \"1s\"\n[topology.dumbbell]\nrate = \"48mbit\"\nrtd = \"20ms\"\n";
    let file = write_file("sim-mistakes.toml", text);
    fails(
        ccplane("run").arg(&file).arg("--out").arg(&out),
        2,
        &["toml:5: there is no setting `rtd`", "did you mean `rtt`?"],
    );
    fails("run nowhere.toml", 2, &["nowhere.toml cannot be read"]);
    fails("run --datapath sim", 2, &["nothing to run"]);
    fails(
        ccplane("run --rate 10mbit").arg(&file),
        2,
        &["cannot be used with"],
    );
    assert!(!out.exists());
}

#[test]
fn features_unsupported_on_real_packets_are_named() {
    let text = "contenders = [\"native:reno\"]\nduration = \"1s\"\nseeds = \"1..3\"\n[topology.incast]\nsenders = 3\n\
                rate = \"1gbit\"\nrtt = \"1ms\"\n[transport]\necn = true\n[[workload]]\nbulk = { bytes = \"1MB\" }\n";
    let file = write_file("sim-linux.toml", text);
    fails(
        ccplane("run --datapath linux").arg(&file),
        2,
        &["[transport]", "[topology.dumbbell]", "--datapath sim"],
    );
}

/// Waits until the file exists or the run has ended, and returns true if it exists.
fn appears(path: &Path, run: &mut Child) -> bool {
    while !path.exists() && run.try_wait().expect("it is ours").is_none() {
        std::thread::yield_now();
    }
    path.exists()
}

/// Sends SIGINT like Ctrl-C. Returns exit code, standard output and standard error.
fn interrupted(run: Child) -> (Option<i32>, String, String) {
    let interrupt = Command::new("kill")
        .args(["-INT", &run.id().to_string()])
        .status();
    assert!(interrupt.expect("there is a kill").success());
    let output = run.wait_with_output().expect("it ends");
    (
        output.status.code(),
        unwrapped(&output.stdout),
        unwrapped(&output.stderr),
    )
}

/// Starts a run that is longer than any test.
fn endless(out: &Path, more: &str) -> Child {
    ccplane("run --alg reno,cubic --duration 1s --seeds 1..1000000")
        .args(more.split_whitespace())
        .arg("--out")
        .arg(out)
        .env("CCPLANE_THREADS", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary under test starts")
}

#[test]
fn a_scenario_is_read_from_standard_input() {
    let path = unused_path("sim-standard-input");
    let run = |text: &str| {
        let mut command = ccplane("run - --json --out");
        command.arg(&path);
        let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = streams.spawn().expect("the binary under test starts");
        let mut input = child.stdin.take().expect("a pipe");
        input.write_all(text.as_bytes()).expect("the command reads");
        drop(input);
        let output = child.wait_with_output().expect("it ends");
        serde_json::from_slice::<Value>(&output.stdout).expect("JSON")
    };
    let text = "contenders = [\"reno\"]\nduration = \"1s\"\n[topology.dumbbell]\n\
                rate = \"10mbit\"\nrtt = \"20ms\"\n[[workload]]\nbulk = {}\n";
    assert_eq!(run(text)["contenders"][0]["label"], "reno");
    let kept = fs::read_to_string(path.join("scenario.toml")).expect("the scenario");
    assert_eq!(kept, text);
    let error = run("duratoin = \"1s\"\n");
    assert!(
        error["error"]
            .as_str()
            .is_some_and(|why| why.starts_with("standard input:1: ")),
        "{error}"
    );
}

#[test]
fn an_interrupt_keeps_what_is_finished() {
    let path = unused_path("sim-interrupted");
    let mut run = endless(&path, "");
    assert!(appears(&path.join("seed-2/summary.json"), &mut run));
    let (code, table, told) = interrupted(run);
    assert_eq!(code, Some(130), "{told}");
    assert!(
        table.contains("reno") && table.contains("goodput") && table.contains("report.html"),
        "{table}"
    );
    assert!(
        told.contains("stopped before the end")
            && told.contains(&format!("the finished part is in {}", path.display())),
        "{told}"
    );
    let read = |name: &str| fs::read_to_string(path.join(name)).expect(name);
    let summary: Value = serde_json::from_str(&read("summary.json")).expect("JSON");
    assert!(
        summary["stopped"]
            .as_str()
            .is_some_and(|why| why.contains("stopped")),
        "{summary}"
    );
    assert!(
        summary["contenders"][1]["spread"]["seeds"].as_u64() >= Some(2),
        "{summary}"
    );
    assert!(
        read("report.html").contains("This run was interrupted. ")
            && read("report.html").contains("of 1000000 runs")
    );
    assert!(path.join("scenario.toml").is_file() && path.join("seed-1/summary.json").is_file());
}

#[test]
fn an_interrupted_run_continues_with_what_is_finished() {
    let path = unused_path("sim-resumed");
    let mut run = endless(&path, "");
    assert!(appears(&path.join("seed-2/summary.json"), &mut run));
    let (_, _, told) = interrupted(run);
    let hint = format!(
        "repeat the command with `--resume --out {}` in place of",
        path.display()
    );
    assert!(told.contains(&hint), "{told}");
    // Another contender may be added.
    let file = path.with_file_name("resumed.ccp");
    let template = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/mine.ccp");
    fs::copy(template, &file).expect("the folder can be written");
    let whole = |out: &Path, more: &str| {
        ccplane("run --alg reno,cubic --duration 1s --seeds 1..3 --vs")
            .arg(&file)
            .arg("--out")
            .arg(out)
            .args(more.split_whitespace())
            .run()
    };
    let resumed = whole(&path, "--resume");
    let text = String::from_utf8_lossy(&resumed.stdout).into_owned();
    let finished = text
        .split_once("resumed: ")
        .and_then(|(_, rest)| rest.split_once(" of 9 runs were finished"))
        .and_then(|(finished, _)| finished.parse::<u64>().ok());
    // The third seed may be finished as well.
    assert!(
        resumed.status.success() && finished.is_some_and(|n| (4..=6).contains(&n)),
        "{text}"
    );
    assert!(!path.join("finished-runs").exists());

    let other = unused_path("sim-resumed-fresh");
    assert!(whole(&other, "").status.success());
    for name in [
        "runs.csv",
        "series.csv",
        "bins.csv",
        "flows.csv",
        "reports.csv",
        "seed-1/bins.csv",
    ] {
        let read = |folder: &Path| fs::read_to_string(folder.join(name)).expect(name);
        assert!(read(&path) == read(&other), "{name} differs");
    }
    let results = |folder: &Path| {
        let text = fs::read_to_string(folder.join("summary.json")).expect("the results");
        let summary: Value = serde_json::from_str(&text).expect("JSON");
        (summary["contenders"].clone(), summary["digest"].clone())
    };
    assert_eq!(results(&path), results(&other));

    let again = whole(&path, "--resume");
    let told = unwrapped(&again.stderr);
    assert!(
        again.status.code() == Some(2) && told.contains("contains no interrupted run"),
        "{told}"
    );
}

#[test]
fn old_results_stay_until_new_ones_are_complete() {
    let path = unused_path("sim-force");
    printed(ccplane("run --alg reno --duration 1s --out").arg(&path));
    let summary = || fs::read_to_string(path.join("summary.json")).expect("the old results");
    let old = summary();
    let inside = || {
        let names = fs::read_dir(&path)
            .expect("it is there")
            .map(|entry| entry.expect("it is there").file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with("unfinished"))
            .count()
    };
    // A request that cannot run.
    for bad in [
        "run --alg absent",
        "run --alg ./absent.ccp",
        "run --alg reno --queue fifo",
        "run --alg reno --trace /absent",
        "run --alg native:absent --datapath sim",
        "run --alg reno --pcap --datapath udp",
    ] {
        let (code, told) = said(ccplane(bad).args(["--force", "--out"]).arg(&path));
        assert_eq!(
            (code, summary() == old, inside()),
            (2, true, 0),
            "{bad}: {told}"
        );
    }
    // Two interrupted runs: finished seeds are stored next to the old results.
    for number in 1..=2 {
        let mut run = endless(&path, "--force");
        let new = path.join(format!("unfinished-{number}"));
        assert!(appears(&new.join("seed-1/summary.json"), &mut run));
        assert_eq!(summary(), old);
        let (code, _, told) = interrupted(run);
        assert!(
            code == Some(130) && told.contains("the old results are unchanged"),
            "{told}"
        );
        assert!(summary() == old && new.join("report.html").is_file());
    }
    // A completed run replaces the old results and the interrupted ones.
    let (code, told) =
        said(ccplane("run --alg cubic --duration 1s --seeds 1..2 --force --out").arg(&path));
    assert_eq!((code, summary() == old, inside()), (0, false, 0), "{told}");
    assert!(path.join("seed-2/summary.json").is_file() && path.join("report.html").is_file());
}

#[test]
fn unwritable_results_are_printed_and_saved_elsewhere() {
    // Detected before the run.
    let path = empty_folder("sim-unwritable");
    let file = path.join("file");
    fs::write(&file, "mine").expect("the test's folder can be written");
    fails(
        ccplane("run --alg reno --duration 60m --out").arg(file.join("results")),
        1,
        &["cannot be written to", "--out"],
    );
    // Detected only at the end: the name of the page is taken.
    let out = path.join("out");
    fs::create_dir_all(out.join("report.html")).expect("the test's folder can be written");
    let run = ccplane("run --alg reno --duration 1s --out")
        .arg(&out)
        .env("TMPDIR", &path)
        .run();
    let table = String::from_utf8_lossy(&run.stdout).into_owned();
    let told = unwrapped(&run.stderr);
    assert_eq!(run.status.code(), Some(1), "{told}");
    let mut inside = fs::read_dir(&path)
        .expect("it is there")
        .flatten()
        .map(|entry| entry.path());
    let rescue = inside.find(|path| path.display().to_string().contains("ccplane-results-"));
    let rescue = rescue.expect(&told);
    assert!(rescue.join("report.html").is_file() && rescue.join("summary.json").is_file());
    assert!(
        table.contains("goodput") && table.contains(&rescue.display().to_string()),
        "{table}"
    );
    assert!(told.contains("the results are in"), "{told}");
}

#[test]
fn no_file_of_a_run_is_hidden() {
    let path = empty_folder("sim-hidden");
    let text = "(algorithm mine (about \"a\") (init Cwnd 30kB)) (def) (when true (:= Cwnd 30kB))";
    fs::write(path.join("mine.ccp"), text).expect("the test's folder can be written");
    let run = "run --alg ./mine.ccp --duration 100ms --pcap --out out";
    printed(ccplane(run).current_dir(&path));
    for folder in [path.join("out"), path.join("out/packets")] {
        let names = fs::read_dir(&folder)
            .expect("results")
            .map(|entry| entry.expect("a file").file_name());
        let names: Vec<String> = names
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        assert!(
            !names.is_empty() && names.iter().all(|name| !name.starts_with('.')),
            "{names:?}"
        );
    }
}
