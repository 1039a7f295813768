//! What `contrib/` has for Prometheus and Grafana speaks of figures that there are, and Prometheus' own tool takes it.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::{can_run, lock_host};

fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib").join(name)
}

/// The process, and its end however the test ends.
struct Attach(Child);

impl Drop for Attach {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = ccplane_linux::detach(Some("ccp_reno"));
    }
}

/// The names that a text has of figures of ccplane's.
fn names(text: &str) -> BTreeSet<&str> {
    let begins = text.match_indices("ccplane_").map(|(at, _)| &text[at..]);
    let ends = |rest: &str| rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    begins.map(|rest| &rest[..ends(rest).unwrap_or(rest.len())]).collect()
}

#[test]
fn every_name_is_in_a_real_scrape() {
    if !can_run("every_name_is_in_a_real_scrape") {
        return;
    }
    let _host = lock_host();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccplane"));
    command.args(["attach", "--alg", "reno", "--metrics", "127.0.0.1:0"]);
    let mut attach = Attach(
        command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary under test starts"),
    );
    let lines = BufReader::new(attach.0.stdout.take().expect("a pipe")).lines();
    let address = lines
        .map_while(Result::ok)
        .find_map(|line| {
            Some(
                line.strip_prefix("metrics: http://")?
                    .strip_suffix("/metrics")?
                    .to_owned(),
            )
        })
        .expect("it says where");
    let mut stream = TcpStream::connect(&address).expect("it listens");
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .expect("it takes requests");
    let mut scrape = String::new();
    stream.read_to_string(&mut scrape).expect("text");
    let there = names(&scrape);
    for file in ["prometheus/ccplane.rules.yml", "grafana/ccplane.json"] {
        let text = fs::read_to_string(contrib(file)).expect("it is shipped");
        let asked = names(&text);
        assert!(asked.len() >= 6, "{file}: {asked:?}");
        for name in asked {
            assert!(
                there.contains(name),
                "{file} asks for {name}, and a scrape has {there:?}"
            );
        }
    }
    assert!(
        scrape.contains("ccplane_agent_up{algorithm=\"ccp_reno\"} 1.0"),
        "{scrape}"
    );
}

#[test]
fn the_dashboard_is_one_with_all_its_panels() {
    let text = fs::read_to_string(contrib("grafana/ccplane.json")).expect("it is shipped");
    let board: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let panels = board["panels"].as_array().expect("panels");
    let shown = |panel: &serde_json::Value| panel["targets"].as_array().is_some_and(|all| !all.is_empty());
    assert!(panels.len() >= 6 && panels.iter().all(shown), "{board}");
}

#[test]
fn prometheus_own_tool_takes_the_rules_and_their_alerts_fire() {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/promtool/usr/bin/promtool");
    let promtool = if unpacked.exists() {
        unpacked
    } else {
        PathBuf::from("promtool")
    };
    for (what, file) in [("check", "ccplane.rules.yml"), ("test", "ccplane.rules.test.yml")] {
        let mut command = Command::new(&promtool);
        command.args([what, "rules", file]).current_dir(contrib("prometheus"));
        match command.output() {
            Ok(output) => {
                let said = [output.stdout, output.stderr].concat();
                assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&said));
            }
            Err(why) => {
                let skipped =
                    format!("SKIPPED: rules of Prometheus: no promtool ({why}); `scripts/setup test` unpacks it");
                assert!(
                    std::env::var_os("CCPLANE_NO_SKIP").is_none_or(|value| value != "1"),
                    "{skipped}"
                );
                eprintln!("{skipped}");
            }
        }
    }
}
