//! `ccplane attach` on real connections: privileges of its threads while attached, and cleanup.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ccplane_emu::qdisc::LineSpec;
use ccplane_emu::{EmuConfig, Emulator, LinkConfig};
use ccplane_host::Namespace;
use ccplane_linux::{PinnedView, attached};
use ccplane_units::Rate;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{setsockopt, sockopt};
use nix::unistd::Pid;

use crate::common::pair::{Pair, is_registered, is_steered};
use crate::common::{
    REACTION_TIMEOUT, RunCommand, can_run, ccplane, eventually, lock_host, printed, printed_json,
};

const NAME: &str = "ccp_reno";

/// The process; killed on drop.
struct Attach(Child);

impl Attach {
    fn start() -> Attach {
        Attach::start_with(&[])
    }

    fn start_with(arguments: &[&str]) -> Attach {
        Attach::start_by(ccplane(""), arguments)
    }

    fn start_by(mut command: Command, arguments: &[&str]) -> Attach {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("ccplane-ready-{}-{number}", std::process::id()));
        let _ = fs::remove_file(&path);
        let systemd = UnixDatagram::bind(&path).expect("a free path");
        systemd
            .set_read_timeout(Some(REACTION_TIMEOUT))
            .expect("a socket");
        command.args(["attach", "--alg", "reno", "--metrics", "127.0.0.1:0"]);
        command.args(arguments);
        let process = Attach(
            command
                .env("NOTIFY_SOCKET", &path)
                .stdout(Stdio::null())
                .spawn()
                .expect("the binary under test starts"),
        );
        // Registration and pinning come first. READY=1 is sent when the threads run and the
        // endpoint listens.
        let mut message = [0; 256];
        loop {
            let length = systemd
                .recv(&mut message)
                .expect("it says in time that it is ready");
            if message[..length].starts_with(b"READY=1") {
                break;
            }
        }
        let _ = fs::remove_file(&path);
        eventually("it attaches", || PinnedView::open(NAME).is_ok());
        process
    }

    /// Threads by name, each with its effective capabilities.
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
                let effective =
                    u64::from_str_radix(&field("CapEff:"), 16).expect("the kernel's format");
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

#[test]
fn an_unsupported_selection_is_refused_before_registration() {
    if !can_run("an_unsupported_selection_is_refused_before_registration") {
        return;
    }
    let _host = lock_host();
    let output = "attach --alg reno --cgroup /proc".run();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(2) && said.contains("cgroup"),
        "{said}"
    );
    assert!(
        output.stdout.is_empty(),
        "nothing was registered: {output:?}"
    );
    assert!(PinnedView::open(NAME).is_err());
}

#[test]
fn flows_are_watched_until_ctrl_c() {
    if !can_run("flows_are_watched_until_ctrl_c") {
        return;
    }
    let _host = lock_host();
    let mut command = ccplane("flows --watch --json");
    command.stdout(Stdio::piped());
    let mut watch = command.spawn().expect("the binary under test starts");
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(
        watch.stdout.take().expect("a pipe"),
    ));
    for _ in 0..2 {
        let line = lines.next().expect("a line each second").expect("text");
        assert!(
            line.starts_with('{') && line.contains("\"flows\""),
            "{line}"
        );
    }
    kill(Pid::from_raw(watch.id() as i32), Signal::SIGINT).expect("it runs");
    assert!(watch.wait().expect("it ends").success());
}

#[test]
fn flows_reports_an_agent_that_was_killed_when_its_flows_fall_back() {
    if !can_run("flows_reports_an_agent_that_was_killed_when_its_flows_fall_back") {
        return;
    }
    let _host = lock_host();
    let mut process = Attach::start_with(&["--limits", "fallback_after=3s"]);
    let gone = || {
        let flows = printed_json("flows --json");
        let gone = flows["agents_gone"].as_array().expect("a list").clone();
        gone.contains(&NAME.into())
    };
    assert!(!gone(), "it lives");
    process.0.kill().expect("it runs");
    process.0.wait().expect("our child");
    let died = Instant::now();
    eventually("the agent is missed", gone);
    let missed = died.elapsed();
    assert!(
        missed > Duration::from_millis(2_800),
        "missed after {missed:?}"
    );
    let said = printed("flows");
    assert!(
        said.contains(&format!("{NAME}: no heartbeat from its agent for")),
        "{said}"
    );
}

#[test]
fn the_agents_thread_steers_without_capabilities_and_the_end_removes_everything() {
    if !can_run("the_agents_thread_steers_without_capabilities_and_the_end_removes_everything") {
        return;
    }
    let _host = lock_host();
    let mut process = Attach::start();
    let watch = PinnedView::open(NAME).expect("it is attached");
    let agent = |threads: Vec<(String, u64)>| {
        threads
            .into_iter()
            .find(|(name, _)| name == "ccplane-agent")
    };
    eventually("the agent's thread gives up what it may", || {
        agent(process.threads()).is_some_and(|(_, effective)| effective == 0)
    });

    let mut pair = Pair::under(NAME);
    eventually("the agent steers", || {
        pair.exchange();
        watch.counters().reports > 10 && is_steered(&watch)
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
    // The main thread keeps them to detach, the compiler thread to load programs.
    assert!(
        privileged("ccplane") && privileged("ccplane-compile"),
        "{threads:?}"
    );

    drop(watch);
    kill(Pid::from_raw(process.0.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    assert!(process.0.wait().expect("our child").success());
    drop(pair);
    assert!(!attached().iter().any(|name| name == NAME));
    eventually("it is unregistered", || !is_registered(NAME));
    assert!(fs::exists(format!("/run/ccplane/{NAME}.lock")).is_ok_and(|exists| !exists));
}

/// The only capabilities that the command needs, in setpriv's notation.
const NEEDED_CAPABILITIES: &str = "-all,+bpf,+perfmon,+net_admin";
const NEEDED_BITS: u64 = 1 << 39 | 1 << 38 | 1 << 12;

fn setpriv(options: &[&str]) -> Option<Command> {
    let there = Command::new("setpriv")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok();
    if !there {
        eprintln!("SKIPPED: there is no setpriv (util-linux)");
        return None;
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set", NEEDED_CAPABILITIES])
        .args(options);
    command.arg(env!("CARGO_BIN_EXE_ccplane"));
    Some(command)
}

#[test]
fn root_with_three_capabilities_attaches_and_removes_everything() {
    if !can_run("root_with_three_capabilities_attaches_and_removes_everything") {
        return;
    }
    let Some(command) = setpriv(&[]) else { return };
    let _host = lock_host();
    let mut process = Attach::start_by(command, &[]);
    eventually("its threads have what they need, and no more", || {
        let threads = process.threads();
        let of = |part: &str| {
            threads
                .iter()
                .find(|(name, _)| name == part)
                .map(|(_, bits)| *bits)
        };
        of("ccplane-agent") == Some(0)
            && of("ccplane-metrics") == Some(0)
            && of("ccplane") == Some(NEEDED_BITS)
    });
    kill(Pid::from_raw(process.0.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    assert!(process.0.wait().expect("our child").success());
    assert!(!attached().iter().any(|name| name == NAME));
}

/// The locks are in different folders but the pins in the same one. Without the check, the second
/// process would take over the flows of the first.
#[test]
fn an_agent_with_another_state_folder_does_not_take_over_flows() {
    if !can_run("an_agent_with_another_state_folder_does_not_take_over_flows") {
        return;
    }
    let _host = lock_host();
    let mut first = Attach::start();
    let state = std::env::temp_dir().join(format!("ccplane-state-{}", std::process::id()));
    fs::create_dir(&state).expect("a free path");
    let mut second = ccplane("attach --alg reno");
    second.env("CCPLANE_STATE", &state);
    let mut second = Attach(second.stderr(Stdio::piped()).spawn().expect("it starts"));
    let mut ended = None;
    eventually("it is refused", || {
        ended = second.0.try_wait().expect("our child");
        ended.is_some()
    });
    let mut why = String::new();
    let stderr = second.0.stderr.as_mut().expect("it is piped");
    stderr.read_to_string(&mut why).expect("text");
    assert!(!ended.is_some_and(|status| status.success()), "{why}");
    assert!(why.contains("another CCPLANE_STATE"), "{why}");
    // The lock is removed with its process, and the folder with its last lock.
    let _ = fs::remove_dir(&state);
    kill(Pid::from_raw(first.0.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    assert!(first.0.wait().expect("our child").success());
}

#[test]
fn a_user_with_three_capabilities_attaches_with_its_own_paths() {
    if !can_run("a_user_with_three_capabilities_attaches_with_its_own_paths") {
        return;
    }
    let ids = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let caps = [
        "--inh-caps",
        NEEDED_CAPABILITIES,
        "--ambient-caps",
        NEEDED_CAPABILITIES,
    ];
    let Some(mut command) = setpriv(&[&ids[..], &caps].concat()) else {
        return;
    };
    let _host = lock_host();
    let places = std::env::temp_dir().join(format!("ccplane-places-{}", std::process::id()));
    let (state, bpffs) = (places.join("state"), places.join("bpf"));
    for place in [&state, &bpffs] {
        fs::create_dir_all(place).expect("a free path");
    }
    let mount = Command::new("mount")
        .args(["-t", "bpf", "bpf"])
        .arg(&bpffs)
        .status();
    assert!(mount.is_ok_and(|status| status.success()), "as root");
    for place in [&state, &bpffs] {
        std::os::unix::fs::chown(place, Some(65534), Some(65534)).expect("as root");
    }
    command.args(["attach", "--alg", "reno"]);
    command
        .env("CCPLANE_STATE", &state)
        .env("CCPLANE_BPFFS", &bpffs);
    let mut process = Attach(command.stdout(Stdio::null()).spawn().expect("it starts"));
    eventually("it is registered", || {
        assert!(
            process.0.try_wait().expect("our child").is_none(),
            "it goes on"
        );
        is_registered(NAME) && fs::exists(bpffs.join("ccplane")).is_ok_and(|exists| exists)
    });
    eventually("all are forbidden to get more", || {
        let tasks = fs::read_dir(format!("/proc/{}/task", process.0.id())).expect("it runs");
        tasks
            .flatten()
            .filter_map(|task| fs::read_to_string(task.path().join("status")).ok())
            .all(|status| status.contains("NoNewPrivs:\t1"))
    });
    assert!(!fs::exists(format!("/run/ccplane/{NAME}.lock")).is_ok_and(|exists| exists));
    kill(Pid::from_raw(process.0.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    let end = process.0.wait().expect("our child");
    let left = fs::exists(bpffs.join("ccplane")).expect("mounted");
    let unmount = Command::new("umount").arg(&bpffs).status();
    assert!(unmount.is_ok_and(|status| status.success()), "as root");
    fs::remove_dir_all(&places).expect("ours");
    assert!(end.success(), "{end}");
    assert!(!left);
    eventually("it is unregistered", || !is_registered(NAME));
}

#[test]
fn running_out_of_descriptors_does_not_end_attach() {
    if !can_run("running_out_of_descriptors_does_not_end_attach") {
        return;
    }
    let _host = lock_host();
    let mut process = Attach::start();
    let pid = process.0.id().to_string();
    let limit = |soft: &str| {
        let status = Command::new("prlimit")
            .args(["--pid", &pid, &format!("--nofile={soft}:1024")])
            .status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "util-linux, as root"
        );
    };
    limit("4");
    std::thread::sleep(Duration::from_millis(3500));
    assert!(
        process.0.try_wait().expect("our child").is_none(),
        "it goes on"
    );
    limit("1024");
    kill(Pid::from_raw(process.0.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    assert!(process.0.wait().expect("our child").success());
    assert!(!attached().iter().any(|name| name == NAME));
}

/// Uses a namespace whose loopback device stamps packets: both ends of the connections are in it.
#[test]
fn time_stamps_are_attached_and_detached_also_after_a_kill() {
    const TEST: &str = "time_stamps_are_attached_and_detached_also_after_a_kill";
    const DX: &str = "ccp_dx";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    let namespace =
        Namespace::create(&format!("ccplane-attach-{}", std::process::id())).expect("as root");
    let listen = || TcpListener::bind("127.0.0.1:0").expect("loopback");
    let before = namespace.run(listen).expect("inside");
    let old = before.local_addr().expect("bound").to_string();
    let ccplane = |arguments: &str| {
        let mut command = ccplane(arguments);
        namespace.enter_on_spawn(&mut command).expect("a namespace");
        command
    };
    let refused = ccplane("attach --alg reno --dev lo").run();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("uses time stamps"),
        "{said}"
    );

    let mut child = ccplane("attach --alg dx --dev lo")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut output = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while !line.contains("was already listening") {
        line.clear();
        assert!(
            std::io::BufRead::read_line(&mut output, &mut line).expect("text") > 0,
            "it ended"
        );
    }
    assert!(line.contains(&old), "{line}");

    let connect = || {
        let listener = listen();
        let to = listener.local_addr().expect("bound");
        let socket = nix::sys::socket::socket(
            nix::sys::socket::AddressFamily::Inet,
            nix::sys::socket::SockType::Stream,
            nix::sys::socket::SockFlag::SOCK_CLOEXEC,
            None,
        );
        let socket = socket.expect("a socket");
        setsockopt(&socket, sockopt::TcpCongestion, &OsString::from(DX)).expect("it is registered");
        let address = nix::sys::socket::SockaddrStorage::from(to);
        nix::sys::socket::connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &address)
            .expect("it listens");
        (
            TcpStream::from(socket),
            listener.accept().expect("it is connected").0,
        )
    };
    let (mut stream, mut accepted) = namespace.run(connect).expect("inside");
    let chunk = vec![0x55; 20_000];
    let mut back = vec![0; chunk.len()];
    let mut shown = String::new();
    eventually("its delay is from stamps", || {
        for _ in 0..20 {
            stream.write_all(&chunk).expect("connected");
            accepted.read_exact(&mut back).expect("connected");
        }
        let flows = ccplane("--json flows").run();
        shown = String::from_utf8_lossy(&flows.stdout).into_owned();
        shown.contains("\"stamped\":true")
    });
    assert!(
        shown.contains("\"agreed\":2") && shown.contains("\"malformed\":0"),
        "{shown}"
    );

    child.kill().expect("our child");
    child.wait().expect("our child");
    assert_eq!(
        ccplane_linux::stamp::observe().expect("bpffs").len(),
        1,
        "pinned"
    );
    let detached = ccplane("detach").run();
    let said = String::from_utf8_lossy(&detached.stdout).into_owned();
    assert!(
        detached.status.success() && said.contains("removed the time stamps of ccp_dx"),
        "{said}"
    );
    assert!(ccplane_linux::stamp::observe().expect("bpffs").is_empty());
    assert!(!attached().iter().any(|name| name == DX));
    // No remaining program delays the connection.
    stream.write_all(&chunk).expect("connected");
    accepted.read_exact(&mut back).expect("connected");
}

/// Runs `ccplane attach --alg dx --keep` in a namespace, which registers or takes over, ends, and
/// leaves everything in place. Returns its warnings.
fn attach_dx(namespace: &Namespace, more: &[&str]) -> String {
    let mut command = ccplane("attach --alg dx --keep");
    command.args(more);
    namespace.enter_on_spawn(&mut command).expect("a namespace");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut output = std::io::BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    let read = std::io::BufRead::read_line(&mut output, &mut line).expect("text");
    if read > 0 {
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    }
    let ended = child.wait_with_output().expect("our child");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success(), "{line}{said}");
    said
}

#[test]
fn attach_reports_missing_time_stamps_and_detach_removes_leftover_ones() {
    const TEST: &str = "attach_reports_missing_time_stamps_and_detach_removes_leftover_ones";
    const DX: &str = "ccp_dx";
    const BY_RTT: &str = "uses the RTT";
    if !can_run(TEST) {
        return;
    }
    let _host = lock_host();
    let namespace =
        Namespace::create(&format!("ccplane-said-{}", std::process::id())).expect("as root");
    let detach = || printed(ccplane("detach").arg(DX));

    let said = attach_dx(&namespace, &[]);
    assert!(
        said.contains(BY_RTT) && said.contains("with --dev DEVICE"),
        "{said}"
    );
    let said = attach_dx(&namespace, &["--dev", "lo"]);
    assert!(
        said.contains(BY_RTT) && said.contains("to add them"),
        "{said}"
    );
    assert!(ccplane_linux::stamp::attached().is_empty());
    assert!(detach().contains("removed ccp_dx"));

    let said = attach_dx(&namespace, &["--dev", "lo"]);
    assert!(!said.contains(BY_RTT), "{said}");
    let said = attach_dx(&namespace, &[]);
    assert!(!said.contains(BY_RTT), "{said}");
    let said = attach_dx(&namespace, &["--dev", "lo"]);
    assert!(said.contains("keeps its time stamps"), "{said}");

    // The state after a kill between attaching the stamps and registering; also detached from
    // another namespace.
    assert_eq!(ccplane_linux::detach(Some(DX)).expect("as root"), [DX]);
    assert_eq!(ccplane_linux::stamp::attached(), [DX]);
    assert_eq!(detach().trim(), "removed the time stamps of ccp_dx");
    assert!(ccplane_linux::stamp::attached().is_empty());

    // Stamps in an unreachable namespace do not prevent other removals.
    attach_dx(&namespace, &["--dev", "lo"]);
    fs::remove_file(format!("/run/netns/{}", namespace.name())).expect("its name");
    let ended = "--json detach".run();
    let said = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(
        !ended.status.success()
            && said.contains("\"removed\":[\"ccp_dx\"],\"stamps\":[]")
            && said.contains("namespace that cannot be found"),
        "{said}"
    );
    assert!(!attached().iter().any(|name| name == DX));
    assert_eq!(ccplane_linux::stamp::attached(), [DX]);
    let inside = namespace
        .run(|| ccplane_linux::stamp::detach(None))
        .expect("inside");
    assert_eq!(inside.expect("it is found"), [DX]);
}

/// Congestion window of a socket in segments, from `ss`.
fn window(stream: &TcpStream) -> u32 {
    let port = stream.local_addr().expect("bound").port();
    let mut ss = Command::new("ss");
    let output = ss
        .args(["-tinH", &format!("sport = :{port}")])
        .output()
        .expect("iproute2 is there");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let window = said
        .split_whitespace()
        .find_map(|word| word.strip_prefix("cwnd:"));
    window
        .and_then(|segments| segments.parse().ok())
        .unwrap_or(0)
}

#[test]
fn a_changed_program_file_takes_effect_only_if_valid() {
    if !can_run("a_changed_program_file_takes_effect_only_if_valid") {
        return;
    }
    const TEXT: &str = "ccp_watched";
    let _host = lock_host();
    let file = std::env::temp_dir().join(format!("ccplane-{}-watched.ccp", std::process::id()));
    let write = |segments: u32| {
        let text = format!(
            "(algorithm watched (needs cwnd)) (def) (when true (:= Cwnd (* {segments} Flow.mss)))"
        );
        fs::write(&file, text).expect("a temporary file");
    };
    write(20);
    // A second algorithm next to it, which is not a program file.
    let algorithms = format!("{},reno", file.display());
    let mut command = ccplane("attach --watch --alg");
    command.arg(&algorithms);
    let mut process = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    eventually("it attaches", || PinnedView::open(TEXT).is_ok());
    let Pair {
        mut stream,
        mut accepted,
    } = Pair::under(TEXT);
    let mut exchange = || {
        let mut back = [0; 3_000];
        stream.write_all(&back).expect("it is connected");
        accepted.read_exact(&mut back).expect("it is connected");
        std::thread::sleep(Duration::from_millis(5));
        window(&stream)
    };
    eventually("the text sets the window", || exchange() == 20);
    write(33);
    eventually("the changed one does", || exchange() == 33);
    fs::write(&file, "(algorithm watched (def").expect("a temporary file");
    let later = std::time::Instant::now() + Duration::from_millis(500);
    while std::time::Instant::now() < later {
        assert_eq!(exchange(), 33, "the old version remains in effect");
    }
    drop((stream, accepted));
    kill(Pid::from_raw(process.id() as i32), Signal::SIGINT).expect("it runs");
    let mut said = String::new();
    process
        .stderr
        .take()
        .expect("a pipe")
        .read_to_string(&mut said)
        .expect("text");
    assert!(process.wait().expect("it ends").success(), "{said}");
    assert!(
        said.contains("is in effect") && said.contains("missing at the end of the program"),
        "{said}"
    );
    let _ = fs::remove_file(&file);
    assert!(PinnedView::open(TEXT).is_err(), "nothing is left");
    assert!(PinnedView::open("ccp_reno").is_err(), "nor of the other");
}

/// Process, registered algorithm and program file; Drop removes all of them.
struct Texts(Child, &'static str, std::path::PathBuf);

impl Drop for Texts {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = ccplane_linux::detach(Some(self.1));
        let _ = fs::remove_file(&self.2);
    }
}

#[test]
fn a_program_file_keeps_control_while_its_process_is_stopped_or_dead() {
    if !can_run("a_program_file_keeps_control_while_its_process_is_stopped_or_dead") {
        return;
    }
    const TEXT: &str = "ccp_still";
    // 15 times the agent timeout.
    const OBSERVED: Duration = Duration::from_secs(3);
    let _host = lock_host();
    let file = std::env::temp_dir().join(format!("ccplane-{}-still.ccp", std::process::id()));
    let text = "(algorithm still (needs cwnd recovery)) (def (Report (volatile acked 0)))
(when true (:= Report.acked (+ Report.acked Ack.bytes_acked)) (:= Cwnd (* 40 Flow.mss)) (fallthrough))
(when (> Micros 1ms) (:= Micros 0) (report))";
    fs::write(&file, text).expect("a temporary file");
    let mut command = ccplane("attach --limits fallback_after=200ms --alg");
    command.arg(&file);
    let process = command.stdout(Stdio::null()).spawn().expect("it starts");
    let process = Texts(process, TEXT, file);
    eventually("it attaches", || PinnedView::open(TEXT).is_ok());
    let watch = PinnedView::open(TEXT).expect("it is attached");
    let threads = fs::read_dir(format!("/proc/{}/task", process.0.id())).expect("it runs");
    let names = threads
        .flatten()
        .filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    assert!(
        !names.into_iter().any(|name| name.trim() == "ccplane-agent"),
        "no thread steers"
    );

    // 40 segments in 20 ms is about the capacity of the link.
    let way = || LinkConfig {
        line: LineSpec::Constant(Rate::from_bits_per_sec(20_000_000)),
        delay: ccplane_units::Duration::from_millis(10),
        ..LinkConfig::default()
    };
    let config = EmuConfig {
        forward: way(),
        reverse: way(),
        ..EmuConfig::default()
    };
    let emulator = Emulator::start(config).expect("it starts");
    let address = emulator.receiver_addr().to_string();
    let listen = || TcpListener::bind((address.as_str(), 0)).expect("an address of the namespace");
    let listener = emulator.receiver_ns().run(listen).expect("inside");
    let to = listener.local_addr().expect("bound");
    let connect = || TcpStream::connect(to).expect("it listens");
    let mut stream = emulator.sender_ns().run(connect).expect("inside");
    setsockopt(&stream, sockopt::TcpCongestion, &OsString::from(TEXT)).expect("it is registered");
    let (mut accepted, _) = listener.accept().expect("it is connected");
    let sender = std::thread::spawn(move || while stream.write_all(&[0x55; 1 << 16]).is_ok() {});
    let mut buffer = vec![0; 1 << 16];
    let mut receive = |time: Duration| {
        let end = std::time::Instant::now() + time;
        let mut bytes = 0;
        while std::time::Instant::now() < end {
            bytes += accepted.read(&mut buffer).expect("connected");
        }
        bytes
    };
    let _start = receive(Duration::from_secs(1));
    let pid = Pid::from_raw(process.0.id().cast_signed());
    let before = receive(OBSERVED);
    kill(pid, Signal::SIGSTOP).expect("it runs");
    let reports = watch.counters().reports;
    let stopped = receive(OBSERVED);
    let flow = watch.flows().next().expect("it lives");
    assert!(
        flow.agent_controlled && !flow.in_fallback && flow.fallbacks == 0,
        "{flow:?}"
    );
    assert_eq!(watch.counters().fallbacks, 0);
    assert!(
        watch.counters().reports > reports + 100,
        "the text reports whether or not anybody reads"
    );
    assert!(
        watch.heartbeat_age() > OBSERVED.into(),
        "nobody gave a sign of life"
    );
    assert!(
        stopped * 10 > before * 9,
        "{before} bytes in {OBSERVED:?}, then {stopped}"
    );

    kill(pid, Signal::SIGKILL).expect("it is stopped");
    let _while_it_is_dead = receive(Duration::from_millis(500));
    let flow = watch.flows().next().expect("it lives");
    assert!(flow.agent_controlled && !flow.in_fallback, "{flow:?}");
    // A detached program no longer controls flows.
    ccplane_linux::detach(Some(TEXT)).expect("it is attached");
    eventually("NewReno has the flow", || {
        receive(Duration::from_millis(20));
        watch.flows().any(|flow| flow.in_fallback)
    });
    drop(accepted);
    sender.join().expect("no panic");
}
