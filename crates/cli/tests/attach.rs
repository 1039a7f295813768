//! `ccplane attach` on real connections: what its threads may do while it steers, and what is left of it.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ccplane_linux::{Observed, attached};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;

const NAME: &str = "ccp_reno";
const PATIENCE: Duration = Duration::from_secs(10);

/// The process, and its end however the test ends.
struct Attach(Child);

impl Attach {
    fn start() -> Attach {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ccplane"));
        command.args(["attach", "--alg", "reno", "--metrics", "127.0.0.1:0"]);
        let process = Attach(
            command
                .stdout(Stdio::null())
                .spawn()
                .expect("the binary under test starts"),
        );
        eventually("it attaches", || Observed::open(NAME).is_ok());
        process
    }

    /// Its threads by name, each with its effective capabilities.
    fn threads(&self) -> Vec<(String, u64)> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.0.id())).expect("it runs");
        let statuses = tasks
            .flatten()
            .filter_map(|task| fs::read_to_string(task.path().join("status")).ok());
        statuses
            .map(|status| {
                let field = |name| {
                    let line = status.lines().find_map(|line| line.strip_prefix(name));
                    line.expect("the kernel's format").trim().to_owned()
                };
                let effective = u64::from_str_radix(&field("CapEff:"), 16).expect("the kernel's format");
                (field("Name:"), effective)
            })
            .collect()
    }
}

impl Drop for Attach {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = ccplane_linux::detach(Some(NAME));
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn can_run(test: &str) -> bool {
    if nix::unistd::geteuid().is_root() && fs::exists("/sys/kernel/btf/vmlinux").is_ok_and(|there| there) {
        return true;
    }
    let skipped = format!("SKIPPED: {test}: it loads BPF programs, as root and with /sys/kernel/btf/vmlinux");
    assert!(
        std::env::var_os("CCPLANE_NO_SKIP").is_none_or(|value| value != "1"),
        "{skipped}"
    );
    eprintln!("{skipped}");
    false
}

#[test]
fn the_agents_thread_steers_without_capabilities_and_the_end_removes_everything() {
    if !can_run("the_agents_thread_steers_without_capabilities_and_the_end_removes_everything") {
        return;
    }
    let lock = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open("/run/lock/ccplane.lock");
    let _host = Flock::lock(lock.expect("as root"), FlockArg::LockExclusive).expect("flock works");
    let mut process = Attach::start();
    let watch = Observed::open(NAME).expect("it is attached");
    let agent = |threads: Vec<(String, u64)>| threads.into_iter().find(|(name, _)| name == "ccplane-agent");
    eventually("the agent's thread gives up what it may", || {
        agent(process.threads()).is_some_and(|(_, effective)| effective == 0)
    });

    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let mut stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    setsockopt(&stream, sockopt::TcpCongestion, &OsString::from(NAME)).expect("it is registered");
    let (mut accepted, _) = listener.accept().expect("it is connected");
    let chunk = vec![0x55; 20_000];
    let mut back = vec![0; chunk.len()];
    let mut exchange = || {
        stream.write_all(&chunk).expect("connected");
        accepted.read_exact(&mut back).expect("connected");
    };
    eventually("the agent steers", || {
        exchange();
        watch.counters().reports > 10 && watch.flows().any(|flow| flow.owned && !flow.fallback)
    });
    let threads = process.threads();
    assert_eq!(
        agent(threads.clone()).map(|(_, effective)| effective),
        Some(0),
        "{threads:?}"
    );
    let privileged = |part: &str| {
        threads
            .iter()
            .any(|(name, effective)| name.starts_with(part) && *effective != 0)
    };
    // The main thread, to detach; and the one that compiles.
    assert!(privileged("ccplane") && privileged("ccplane-compile"), "{threads:?}");

    drop(watch);
    kill(Pid::from_raw(process.0.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    assert!(process.0.wait().expect("our child").success());
    drop((stream, accepted));
    assert!(!attached().iter().any(|name| name == NAME));
    let available =
        || fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").expect("a mounted /proc");
    eventually("it is unregistered", || {
        !available().split_whitespace().any(|name| name == NAME)
    });
    assert!(fs::exists(format!("/run/ccplane/{NAME}.lock")).is_ok_and(|there| !there));
}
