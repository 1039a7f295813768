//! `ccplane agent` as a separate process: `run --agent` over real packets, and behaviour at the
//! limit of file descriptors.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use serde_json::Value;

use crate::common::{RunCommand, can_run, ccplane, eventually, fails, lock_host, printed, said};

/// An agent with a folder for its socket and its log. Drop removes both.
struct Agent {
    process: Child,
    folder: PathBuf,
}

impl Agent {
    /// Starts an agent. `files`: its limit of descriptors.
    fn start(name: &str, files: u32) -> Agent {
        let folder = std::env::temp_dir().join(format!("ccplane-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let log = File::create(folder.join("log")).expect("a file");
        let process = Command::new("prlimit")
            .arg(format!("--nofile={files}:{files}"))
            .arg(env!("CARGO_BIN_EXE_ccplane"))
            .args(["-v", "agent", "--alg", "cubic", "--unix"])
            .arg(folder.join("socket"))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        let agent = Agent {
            process: process.expect("util-linux is there"),
            folder,
        };
        eventually("the agent listens", || agent.socket().exists());
        agent
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).expect("its log")
    }

    fn descriptors(&self) -> usize {
        let folder = format!("/proc/{}/fd", self.process.id());
        fs::read_dir(folder).expect("it runs").count()
    }

    /// CPU time used so far.
    fn cpu(&self) -> Duration {
        let file = format!("/proc/{}/schedstat", self.process.id());
        let text = fs::read_to_string(file).expect("it runs");
        let first = text.split(' ').next().and_then(|ns| ns.parse().ok());
        Duration::from_nanos(first.expect("ns on a CPU"))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn connection(path: &Path) -> OwnedFd {
    let fd = socket(
        AddressFamily::Unix,
        SockType::SeqPacket,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .expect("a socket");
    connect(fd.as_raw_fd(), &UnixAddr::new(path).expect("a short path")).expect("it listens");
    fd
}

#[test]
fn at_the_descriptor_limit_the_agent_pauses_and_resumes_later() {
    const FILES: u32 = 32;
    let agent = Agent::start("descriptors", FILES);
    let path = agent.socket();
    let alone = agent.descriptors();
    let mut held: Vec<OwnedFd> = (0..FILES).map(|_| connection(&path)).collect();
    eventually("it says what it lacks", || {
        agent.log().contains("cannot accept a connection")
    });
    let before = agent.cpu();
    std::thread::sleep(Duration::from_secs(2));
    let (used, lines) = (
        agent.cpu() - before,
        agent.log().matches("cannot accept").count(),
    );
    // A busy loop would use 2 s of CPU and log 100,000 lines.
    assert!(
        used < Duration::from_millis(400),
        "{used:?} of a CPU in 2 s of waiting"
    );
    assert!(lines <= 5, "{lines} lines");

    // Waiting connections are accepted as descriptors become free; after all have closed a new one
    // is accepted.
    held.clear();
    eventually("it forgets who is gone", || agent.descriptors() == alone);
    let _new = connection(&path);
    eventually("it accepts again", || agent.descriptors() == alone + 1);
}

/// Kernel TCP and the UDP transport, controlled by an agent that `run` reaches over its socket.
#[test]
fn a_run_on_real_packets_is_steered_by_an_agent_of_another_process() {
    if !can_run("a_run_on_real_packets_is_steered_by_an_agent_of_another_process") {
        return;
    }
    let _host = lock_host();
    let agent = Agent::start("run-agent", 1024);
    let address = format!("unix:{}", agent.socket().display());
    let mut connected = 0;
    for datapath in ["linux", "udp", "quic"] {
        let out = agent.folder.join(datapath);
        let output = ccplane("--json run --alg cubic --rate 10mbit --rtt 20ms --duration 2s")
            .args(["--agent", &address, "--datapath", datapath, "--out"])
            .arg(&out)
            .run();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{datapath}: {said}");
        let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let goodput = result["contenders"][0]["figures"]["goodput_mbit"].as_f64();
        assert!(
            goodput.is_some_and(|mbit| mbit > 5.0),
            "{datapath}: {goodput:?} Mbit/s"
        );
        assert!(!said.contains("fallback"), "{datapath}: {said}");
        let now = agent.log().matches("a datapath connected").count();
        assert!(
            now > connected,
            "{datapath}: the agent was not asked: {}",
            agent.log()
        );
        connected = now;
    }
    // An algorithm that the agent does not have is rejected before a packet is sent.
    let (code, text) = said(
        ccplane("run --alg bbr --datapath udp --duration 2s")
            .args(["--agent", &address, "--out"])
            .arg(agent.folder.join("bbr")),
    );
    assert!(code != 0 && text.contains("bbr"), "{text}");
}

/// Scenario of a second, with one workload under the contenders and one under `other`.
fn scenario(contenders: &str, other: &str) -> String {
    format!(
        "contenders = [{contenders}]\nduration = \"1s\"\n[topology.dumbbell]\nrate = \"10mbit\"\n\
         rtt = \"20ms\"\nqueue = \"droptail:1bdp\"\n[[workload]]\nbulk = {{}}\n[[workload]]\n\
         name = \"cross\"\nalgorithm = \"{other}\"\nbulk = {{}}\n"
    )
}

/// A contender with the address of an agent: of `run` on every transport, of a workload, and of a
/// sweep.
#[test]
fn a_contender_names_an_agent_of_another_process() {
    if !can_run("a_contender_names_an_agent_of_another_process") {
        return;
    }
    let _host = lock_host();
    let agent = Agent::start("named-agent", 1024);
    let contender = format!("cubic@unix:{}", agent.socket().display());
    let connections = || agent.log().matches("a datapath connected").count();
    for datapath in ["linux", "udp", "quic"] {
        let before = connections();
        let output = ccplane("--json run --rate 10mbit --rtt 20ms --duration 1s --alg")
            .args([&contender, "--vs", "reno", "--datapath", datapath, "--out"])
            .arg(agent.folder.join(datapath))
            .run();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{datapath}: {text}");
        let result: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let [named, local] = [0, 1].map(|index| &result["contenders"][index]);
        assert_eq!(named["label"], *contender, "{datapath}");
        assert_eq!(named["algorithm"], "cubic", "{datapath}");
        assert_eq!(named["native"], false, "{datapath}");
        assert_eq!(local["label"], "reno", "{datapath}");
        let goodput = named["figures"]["goodput_mbit"].as_f64();
        assert!(
            goodput.is_some_and(|mbit| mbit > 5.0),
            "{datapath}: {goodput:?}"
        );
        assert!(!text.contains("fallback"), "{datapath}: {text}");
        assert!(connections() > before, "{datapath}: {}", agent.log());
    }

    let cross = agent.folder.join("cross.toml");
    fs::write(&cross, scenario("\"native:cubic\"", &contender)).expect("a file");
    let before = connections();
    let out = agent.folder.join("cross");
    let text = printed(
        ccplane("run --datapath linux")
            .arg(&cross)
            .arg("--out")
            .arg(&out),
    );
    assert!(
        text.contains(&contender) && connections() > before,
        "{text}"
    );

    let grid = agent.folder.join("grid.toml");
    let text = format!(
        "repeats = 2\n[scenario]\nduration = \"1s\"\n\
         topology.dumbbell = {{ rate = \"10mbit\", rtt = \"20ms\" }}\n\
         workload = [{{ bulk = {{}} }}]\n[grid]\ncontenders = [\"native:cubic\", \"{contender}\"]\n"
    );
    fs::write(&grid, text).expect("a file");
    let out = agent.folder.join("grid");
    let sweep = |more: &str| {
        let mut command = ccplane("sweep --datapath linux");
        command.arg(&grid).arg("--out").arg(&out);
        command.args(more.split_whitespace());
        printed(&mut command)
    };
    sweep("");
    let table = fs::read_to_string(out.join("runs.csv")).expect("the table");
    let named: Vec<&str> = table
        .lines()
        .filter(|line| line.contains(&contender))
        .collect();
    assert_eq!(named.len(), 2, "{table}");
    assert!(!table.contains("agent of"), "{table}");
    let finished = || fs::read_to_string(out.join("finished.jsonl")).expect("the runs");
    assert_eq!(finished().lines().count(), 4);
}

#[test]
fn a_wrong_agent_of_a_contender_is_an_error_before_the_first_run() {
    let socket = "/nonexistent/agent";
    let grid = crate::common::write_file(
        "absent-agent.toml",
        &format!(
            "[scenario]\nduration = \"1s\"\n\
             topology.dumbbell = {{ rate = \"10mbit\", rtt = \"20ms\" }}\n\
             workload = [{{ bulk = {{}} }}]\n\
             [grid]\ncontenders = [\"native:cubic\", \"cubic@unix:{socket}\"]\n"
        ),
    );
    let sweep = |datapath: &str| {
        let mut command = ccplane("sweep --dry-run --datapath");
        command.arg(datapath).arg(&grid);
        command
    };
    // The simulator cannot wait for another process, and says what to do.
    let simulated = ["virtual time does not wait", "--datapath linux"];
    fails(&mut sweep("sim"), 2, &simulated);
    fails(
        ccplane("run --duration 1s --alg").arg(format!("cubic@unix:{socket}")),
        2,
        &simulated,
    );
    fails(&mut sweep("linux"), 1, &["no agent answers"]);
    fails(
        "run --alg reno@ccp:portus",
        2,
        &["absolute path", "NAME@ccp:/PATH"],
    );
    fails(
        "run --datapath linux --alg reno@ccp:/a?timeot=2s",
        2,
        &["timeot", "?timeout=2s"],
    );
    fails(
        "run --datapath udp --agent /nonexistent/agent --alg reno@ccp:/a",
        2,
        &["name an agent of their own"],
    );
    fails(
        "agent --unix /nonexistent/agent --alg reno@ccp:/a",
        2,
        &["runs in another process"],
    );
}
