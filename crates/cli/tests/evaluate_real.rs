//! `ccplane evaluate`, `ccplane sweep` and runs with several seeds on real packets.

use std::path::Path;

use serde_json::Value;

use crate::common::{ccplane, is_root, lock_host, printed_json, skip, unused_path, write_file};

/// Returns true if links can be emulated; otherwise reports the test as skipped.
fn can_emulate(test: &str) -> bool {
    let has_tun = Path::new("/dev/net/tun").exists();
    if !has_tun {
        skip(test, "needs /dev/net/tun");
    }
    has_tun && is_root(test)
}

/// The question with the shortest runs, on this host's own TCP.
#[test]
fn questions_are_asked_on_kernel_tcp_too() {
    if !can_emulate("questions_are_asked_on_kernel_tcp_too") {
        return;
    }
    let _host = lock_host();
    let path = unused_path("evaluate-linux");
    let said = printed_json(
        ccplane("evaluate --alg reno --quick --datapath linux --only start-up --json --out")
            .arg(&path),
    );
    let question = &said["questions"][0];
    assert_eq!(said["datapath"], "Linux TCP", "{said}");
    assert_ne!(question["verdict"], "unanswered", "{question}");
    let took = |who: &str| question["places"][0][format!("{who}to_80_percent_ms")].as_f64();
    for who in ["", "reference_"] {
        // In steps of a round trip, within the run of three seconds.
        assert!(
            took(who).is_some_and(|ms| (20.0..3_000.0).contains(&ms)),
            "{question}"
        );
    }
    assert!(path.join("evaluation.html").exists());
}

/// One run per seed and contender, and the means of the runs.
#[test]
fn a_range_of_seeds_runs_on_real_packets() {
    if !can_emulate("a_range_of_seeds_runs_on_real_packets") {
        return;
    }
    let _host = lock_host();
    for datapath in ["linux", "udp"] {
        let path = unused_path(&format!("seeds-{datapath}"));
        let run = "run --vs native:reno,native:cubic --seeds 1..2 --duration 1s --rate 24mbit \
            --rtt 10ms --json";
        let summary = printed_json(
            ccplane(run)
                .args(["--datapath", datapath, "--out"])
                .arg(&path),
        );
        assert_eq!(summary["setup"]["repeats"], 2, "{summary}");
        let contenders = summary["contenders"].as_array().expect("a list");
        assert_eq!(contenders.len(), 2, "{summary}");
        for contender in contenders {
            let runs = contender["runs"].as_array().expect("a list");
            let seeds: Vec<_> = runs.iter().map(|run| &run["seed"]).collect();
            assert_eq!(seeds, [&Value::from(1), &Value::from(2)], "{contender}");
            assert_eq!(contender["spread"]["seeds"], 2, "{contender}");
            let goodput = |of: &Value| of["figures"]["goodput_mbit"].as_f64().expect("a number");
            let goodputs = [goodput(&runs[0]), goodput(&runs[1])];
            let is_plausible = |rate: &f64| (5.0..24.0).contains(rate);
            assert!(goodputs.iter().all(is_plausible), "{contender}");
            let mean = (goodputs[0] + goodputs[1]) / 2.0;
            assert!((goodput(contender) - mean).abs() < 1e-6, "{contender}");
        }
        assert!(path.join("report.html").is_file());
    }
}

/// Every point as often as the file says, the points interleaved.
#[test]
fn a_sweep_runs_on_kernel_tcp() {
    if !can_emulate("a_sweep_runs_on_kernel_tcp") {
        return;
    }
    let _host = lock_host();
    let sweep = "repeats = 2\nseeds = 5\n[scenario]\nduration = \"1s\"\n\
        topology.dumbbell = { rate = \"20mbit\", rtt = \"10ms\" }\nworkload = [{ bulk = {} }]\n\
        [grid]\ncontenders = [\"native:reno\", \"native:cubic\"]\n";
    let file = write_file("sweep-linux.toml", sweep);
    let path = unused_path("sweep-linux");
    let command = || {
        let mut command = ccplane("sweep --datapath linux --keep samples,delays --json");
        command.arg(&file).arg("--out").arg(&path);
        command
    };
    let said = printed_json(&mut command());
    assert_eq!(
        (&said["runs"], &said["failed"], &said["made"]),
        (&4.into(), &0.into(), &4.into())
    );
    let csv = std::fs::read_to_string(path.join("runs.csv")).unwrap();
    let mut lines = csv.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| names.iter().position(|column| *column == name).unwrap();
    let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
    let seeds: Vec<&str> = rows.iter().map(|row| row[column("seed")]).collect();
    assert_eq!(seeds, ["5", "6", "5", "6"]);
    for row in &rows {
        let number = |name: &str| row[column(name)].parse::<f64>().unwrap();
        assert!(number("goodput_mbit") > 10.0, "{csv}");
        assert!(
            number("machine_cpu_percent") >= number("process_cpu_percent"),
            "{csv}"
        );
        assert_eq!(row[column("digest")], "");
    }
    for kind in ["samples", "delays"] {
        assert_eq!(std::fs::read_dir(path.join(kind)).unwrap().count(), 4);
    }
    // Only runs that the machine disturbed are repeated.
    let disturbed = names.iter().position(|name| *name == "disturbances");
    let disturbed = disturbed.map_or(0, |n| rows.iter().filter(|row| !row[n].is_empty()).count());
    assert_eq!(printed_json(&mut command())["made"], disturbed);
}
