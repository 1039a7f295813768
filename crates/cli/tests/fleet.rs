//! Fleet monitoring: `/metrics` of real connections, and the rules and the dashboard of `contrib/`
//! evaluated by a Prometheus that scrapes it.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use crate::common::{REACTION_TIMEOUT, can_run, ccplane, eventually, lock_host, skip};

const NAME: &str = "ccp_reno";
/// Bytes of a short connection.
const SHORT_TRANSFER_BYTES: usize = 200_000;

/// A process; killed on drop.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `ccplane attach` on half of the connections to 127.7.7.0/24, which no other test uses.
struct Attach {
    _process: Process,
    metrics: SocketAddr,
}

impl Attach {
    fn start() -> Attach {
        let mut command = ccplane(
            "attach --config /dev/null --alg reno --to 127.7.7.0/24 --percent 50 \
             --metrics 127.0.0.1:0",
        );
        let mut process = Process(command.stdout(Stdio::piped()).spawn().expect("it starts"));
        let mut output = std::io::BufReader::new(process.0.stdout.take().expect("a pipe"));
        let mut line = String::new();
        let address = loop {
            line.clear();
            let read = std::io::BufRead::read_line(&mut output, &mut line).expect("text");
            assert!(read > 0, "it goes on");
            let address = line.trim().strip_prefix("metrics: http://");
            if let Some(address) = address.and_then(|rest| rest.strip_suffix("/metrics")) {
                break address.parse().expect("an address");
            }
        };
        // Keeps reading its output so that it never blocks.
        thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        Attach {
            _process: process,
            metrics: address,
        }
    }

    fn scrape(&self) -> String {
        get(self.metrics, "/metrics").expect("it answers")
    }
}

impl Drop for Attach {
    fn drop(&mut self) {
        let _ = self._process.0.kill();
        let _ = self._process.0.wait();
        let _ = ccplane_linux::select::detach(Some(NAME));
        let _ = ccplane_linux::detach(Some(NAME));
    }
}

/// Returns the body of a response with status 200.
fn get(server: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(server).ok()?;
    stream.set_read_timeout(Some(REACTION_TIMEOUT)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {server}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    (head.split(' ').nth(1) == Some("200")).then(|| body.to_owned())
}

/// Returns the value of a series, named as in the scrape.
fn value(scrape: &str, series: &str) -> Option<f64> {
    let line = scrape
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok())
}

/// Starts a server at 127.7.7.7 that discards its input.
fn sink() -> SocketAddr {
    let listener = TcpListener::bind("127.7.7.7:0").expect("loopback");
    let address = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || std::io::copy(&mut &stream, &mut std::io::sink()));
        }
    });
    address
}

/// Sends this many bytes over a connection and closes both ends.
fn transfer(to: SocketAddr, bytes: usize) {
    let mut stream = TcpStream::connect(to).expect("it listens");
    stream.write_all(&vec![0x55; bytes]).expect("connected");
    stream.shutdown(Shutdown::Write).expect("connected");
    assert_eq!(
        stream.read(&mut [0; 1]).expect("connected"),
        0,
        "the other end closes after the last byte"
    );
}

fn arm(name: &str, arm: &str) -> String {
    format!("ccplane_arm_{name}{{algorithm=\"{NAME}\",arm=\"{arm}\"}}")
}

fn of(name: &str) -> String {
    format!("ccplane_{name}{{algorithm=\"{NAME}\"}}")
}

#[test]
fn connections_are_added_up_by_algorithm_and_by_arm() {
    if !can_run("connections_are_added_up_by_algorithm_and_by_arm") {
        return;
    }
    let _host = lock_host();
    let attach = Attach::start();
    let to = sink();
    let connections = 80;
    (0..connections).for_each(|_| transfer(to, SHORT_TRANSFER_BYTES));

    // A connection closed by this side disappears with the peer's last ACK.
    let all = (connections * SHORT_TRANSFER_BYTES) as f64;
    let mut scrape = String::new();
    let figure = |scrape: &str, series: &str| {
        value(scrape, series).unwrap_or_else(|| panic!("{series}\n{scrape}"))
    };
    eventually("every byte is in one of the arms", || {
        scrape = attach.scrape();
        let arms = ["steered", "control"]
            .map(|name| value(&scrape, &arm("acked_bytes_total", name)).unwrap_or(0.0));
        arms.iter().sum::<f64>() >= all
    });
    let acked = |name| figure(&scrape, &arm("acked_bytes_total", name));
    let (steered, control) = (acked("steered"), acked("control"));
    // SYN and FIN count as a byte each.
    assert!(
        steered + control <= all * 1.001,
        "{steered} and {control} of {all}"
    );
    // Seven standard deviations of 4.5 connections.
    assert!(
        steered.min(control) > 8.0 * SHORT_TRANSFER_BYTES as f64,
        "{steered} {control}"
    );
    for name in ["steered", "control"] {
        for histogram in ["rtt_seconds_count", "delivery_rate_bytes_per_second_count"] {
            assert!(figure(&scrape, &arm(histogram, name)) >= 8.0, "{scrape}");
        }
        figure(&scrape, &arm("retransmitted_packets_total", name));
        figure(&scrape, &arm("lost_packets_total", name));
    }
    // The algorithm's flows are the steered ones.
    assert!(
        (figure(&scrape, &of("acked_bytes_total")) - steered).abs() < steered * 0.01,
        "{scrape}"
    );
    assert!(figure(&scrape, &of("rtt_seconds_count")) >= 8.0, "{scrape}");
    assert!(
        figure(&scrape, &of("delivery_rate_bytes_per_second_count")) >= 8.0,
        "{scrape}"
    );
    assert!(
        figure(&scrape, &of("callback_seconds_count")) >= 8.0,
        "{scrape}"
    );
    assert_eq!(
        figure(&scrape, &of("callback_exceptions_total")),
        0.0,
        "Rust has none"
    );
    assert_eq!(figure(&scrape, &of("agent_up")), 1.0);
    assert!(
        figure(&scrape, &of("agent_heartbeat_age_seconds")) < 0.5,
        "{scrape}"
    );
    let version = env!("CARGO_PKG_VERSION");
    assert!(
        scrape.contains(&format!("ccplane_build_info{{version=\"{version}\"")),
        "{scrape}"
    );
    assert!(!scrape.contains("127.7.7"), "no address: {scrape}");

    // Live connections are sampled once per second: both arms keep growing even if none ends.
    let mut live: Vec<TcpStream> = (0..40)
        .map(|_| TcpStream::connect(to).expect("it listens"))
        .collect();
    let chunk = vec![0x55; 10_000];
    eventually("live connections are added up", || {
        live.iter_mut()
            .for_each(|stream| stream.write_all(&chunk).expect("connected"));
        thread::sleep(Duration::from_millis(50));
        let now = attach.scrape();
        ["steered", "control"].iter().all(|name| {
            [
                arm("acked_bytes_total", name),
                arm("rtt_seconds_count", name),
            ]
            .iter()
            .all(|series| figure(&now, series) > figure(&scrape, series) + 1.0)
        }) && figure(&now, &of("acked_bytes_total")) > figure(&scrape, &of("acked_bytes_total"))
            && figure(&now, &of("rtt_seconds_count")) > figure(&scrape, &of("rtt_seconds_count"))
    });
}

#[test]
fn an_agent_that_is_stopped_is_down() {
    if !can_run("an_agent_that_is_stopped_is_down") {
        return;
    }
    let _host = lock_host();
    // Two processes: the one that serves the metrics must not be the one that stops.
    let socket = std::env::temp_dir().join(format!("ccplane-fleet-{}.sock", std::process::id()));
    let _ = fs::remove_file(&socket);
    let mut command = ccplane("agent --alg reno --unix");
    command.arg(&socket);
    let agent = Process(command.stdout(Stdio::null()).spawn().expect("it starts"));
    eventually("the agent listens", || socket.exists());
    let mut command = ccplane("attach --config /dev/null --metrics 127.0.0.1:0 --agent");
    command.arg(format!("unix:{}", socket.display()));
    let mut process = Process(command.stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut output = std::io::BufReader::new(process.0.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while !line.starts_with("metrics: ") {
        line.clear();
        assert!(
            std::io::BufRead::read_line(&mut output, &mut line).expect("text") > 0,
            "it goes on"
        );
    }
    let address = line
        .trim()
        .trim_start_matches("metrics: http://")
        .trim_end_matches("/metrics");
    let attach = Attach {
        _process: process,
        metrics: address.parse().expect("an address"),
    };
    let up = || value(&attach.scrape(), &of("agent_up"));
    eventually("the agent is up", || up() == Some(1.0));
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(agent.0.id().cast_signed()),
        nix::sys::signal::Signal::SIGSTOP,
    )
    .expect("it runs");
    eventually("the agent is down", || up() == Some(0.0));
    drop(attach);
    drop(agent);
    let _ = fs::remove_file(&socket);
}

fn contrib(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../contrib")
        .join(file)
}

/// Returns a Prometheus tool, as unpacked by `scripts/setup test` or as installed.
fn program(name: &str) -> Command {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../target/prometheus/usr/bin")
        .join(name);
    Command::new(if unpacked.exists() {
        unpacked
    } else {
        name.into()
    })
}

/// Returns true if Prometheus is available; otherwise reports the test as skipped.
fn has_prometheus(test: &str) -> bool {
    let runs = |tool| program(tool).arg("--version").output().is_ok();
    if runs("promtool") && runs("prometheus") {
        return true;
    }
    skip(
        test,
        "no promtool and no prometheus; `scripts/setup test` unpacks them",
    );
    false
}

/// Returns every expression of the rules with its name, and every alert's expression, whose result
/// may be empty in normal operation.
fn rules() -> Vec<(String, String)> {
    let text = fs::read_to_string(contrib("prometheus/ccplane.rules.yml")).expect("it is there");
    let mut name = String::new();
    let mut all = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(named) = line
            .strip_prefix("- record: ")
            .or(line.strip_prefix("- alert: "))
        {
            named.clone_into(&mut name);
        } else if let Some(expression) = line.strip_prefix("expr: ") {
            all.push((name.clone(), expression.to_owned()));
        }
    }
    all
}

/// Returns every expression of the dashboard, with Grafana's variables substituted.
fn dashboard() -> Vec<(String, String)> {
    let text = fs::read_to_string(contrib("grafana/ccplane-attach.json")).expect("it is there");
    let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let panels = json["panels"].as_array().expect("panels");
    let expressions = panels.iter().flat_map(|panel| {
        let targets = panel["targets"].as_array().expect("targets");
        let title = panel["title"].as_str().expect("a title");
        targets.iter().map(move |target| {
            (
                title.to_owned(),
                target["expr"].as_str().expect("an expression").to_owned(),
            )
        })
    });
    expressions
        .map(|(title, expression)| {
            let filled = expression
                .replace("$__rate_interval", "1m")
                .replace("$instance", ".*")
                .replace("$algorithm", ".*");
            assert!(!filled.contains('$'), "{title}: {filled}");
            (title, filled)
        })
        .collect()
}

/// Returns the metric names in an expression.
fn metrics_of(expression: &str) -> Vec<String> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    words
        .filter(|word| word.starts_with("ccplane_") || word.starts_with("ccplane:"))
        .map(str::to_owned)
        .collect()
}

fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

#[test]
fn promtool_accepts_the_rules_and_their_alerts_fire() {
    if !has_prometheus("promtool_accepts_the_rules_and_their_alerts_fire") {
        return;
    }
    for (what, file) in [
        ("check", "ccplane.rules.yml"),
        ("test", "ccplane.rules.test.yml"),
    ] {
        let mut command = program("promtool");
        command
            .args([what, "rules", file])
            .current_dir(contrib("prometheus"));
        let output = command.output().expect("it is there");
        let said = [output.stdout, output.stderr].concat();
        assert!(
            output.status.success(),
            "{what}: {}",
            String::from_utf8_lossy(&said)
        );
    }
}

#[test]
fn expressions_of_rules_and_dashboard_match_a_real_scrape() {
    const TEST: &str = "expressions_of_rules_and_dashboard_match_a_real_scrape";
    if !can_run(TEST) || !has_prometheus(TEST) {
        return;
    }
    let _host = lock_host();
    let attach = Attach::start();
    let to = sink();
    let place = std::env::temp_dir().join(format!("ccplane-prometheus-{}", std::process::id()));
    fs::create_dir_all(&place).expect("a free path");
    let config = format!(
        "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [\"{}\"]\n\
         scrape_configs:\n- job_name: ccplane\n  static_configs: [{{ targets: [\"{}\"] }}]\n",
        contrib("prometheus/ccplane.rules.yml").display(),
        attach.metrics
    );
    fs::write(place.join("prometheus.yml"), config).expect("ours");
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|l| l.local_addr())
        .expect("loopback");
    let log = fs::File::create(place.join("log")).expect("ours");
    let prometheus = Process(
        program("prometheus")
            .arg(format!(
                "--config.file={}",
                place.join("prometheus.yml").display()
            ))
            .arg(format!(
                "--storage.tsdb.path={}",
                place.join("data").display()
            ))
            .arg(format!("--web.listen-address={port}"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("it is there"),
    );
    let ask = |expression: &str| -> Option<serde_json::Value> {
        let answer = get(
            port,
            &format!("/api/v1/query?query={}", escaped(expression)),
        )?;
        serde_json::from_str::<serde_json::Value>(&answer).ok()
    };
    let results = |expression: &str| {
        ask(expression).map_or(0, |answer| {
            answer["data"]["result"].as_array().map_or(0, Vec::len)
        })
    };
    eventually("Prometheus answers", || results("up{job=\"ccplane\"}") == 1);

    let (rules, dashboard) = (rules(), dashboard());
    assert!(
        rules.len() > 15 && dashboard.len() > 15,
        "{} {}",
        rules.len(),
        dashboard.len()
    );
    let alert = |name: &str| name.starts_with("Ccplane");
    // Records and panels must have a value; for alerts, the metrics of the expression must exist.
    let mut wanted: Vec<(String, String)> = dashboard;
    for (name, expression) in rules {
        if alert(&name) {
            let answer =
                ask(&expression).unwrap_or_else(|| panic!("{name}: refused: {expression}"));
            assert_eq!(answer["status"], "success", "{name}: {answer}");
            wanted.extend(
                metrics_of(&expression)
                    .into_iter()
                    .map(|metric| (name.clone(), metric)),
            );
        } else {
            wanted.push((name.clone(), expression));
            wanted.push((name.clone(), name));
        }
    }
    // Rates need two scrapes, and a recorded rule one evaluation after that.
    let started = std::time::Instant::now();
    loop {
        (0..10).for_each(|_| transfer(to, SHORT_TRANSFER_BYTES));
        let without = wanted
            .iter()
            .find(|(_, expression)| results(expression) == 0);
        let Some((name, expression)) = without else {
            break;
        };
        let log = || fs::read_to_string(place.join("log")).unwrap_or_default();
        assert!(
            started.elapsed() < 2 * REACTION_TIMEOUT,
            "no figure of {name}: {expression}\n{}",
            log()
        );
        thread::sleep(Duration::from_millis(500));
    }
    drop(prometheus);
    fs::remove_dir_all(&place).expect("ours");
}
