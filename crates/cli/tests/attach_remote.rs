//! `ccplane attach --agent`: kernel TCP controlled by an agent in another process, possibly of
//! another user.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ccplane_datapath::OperatorLimits;
use ccplane_host::Namespace;
use ccplane_linux::{PinnedView, attached};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::common::pair::{Pair, is_registered, is_steered};
use crate::common::{
    RunCommand, can_run, ccplane, copy_command, eventually, fails, lock_host, printed,
    printed_json, unwrapped,
};

const NAME: &str = "ccp_reno";
/// User ID without any capability.
const NOBODY_UID: u32 = 65_534;

/// A process; killed on drop.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Process {
        Process(command.stdout(Stdio::null()).spawn().expect("it starts"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `attach`; drop also detaches.
struct Attach(Process);

impl Attach {
    /// Attaches Reno of the agent at this address.
    fn start(agent: &str) -> Attach {
        Attach::by(ccplane("attach --alg reno --agent").arg(agent))
    }

    fn by(command: &mut Command) -> Attach {
        let mut process = Attach(Process::start(command));
        eventually("it attaches", || {
            assert!(
                process.0.0.try_wait().expect("our child").is_none(),
                "attach ended"
            );
            PinnedView::open(NAME).is_ok()
        });
        process
    }

    fn end(mut self) {
        kill(Pid::from_raw(self.0.0.id().cast_signed()), Signal::SIGTERM).expect("it runs");
        assert!(self.0.0.wait().expect("our child").success());
        assert!(!attached().iter().any(|name| name == NAME));
    }
}

impl Drop for Attach {
    fn drop(&mut self) {
        let _ = self.0.0.kill();
        let _ = self.0.0.wait();
        let _ = ccplane_linux::detach(Some(NAME));
    }
}

/// A folder writable for all users, with a copy of the command that all users may run.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("ccplane-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("ours");
        Folder(path)
    }

    fn command(&self) -> PathBuf {
        let copy = self.0.join("ccplane");
        if !copy.exists() {
            copy_command(&copy);
        }
        copy
    }

    fn agent(&self, socket: &Path) -> Process {
        let mut command = Command::new(self.command());
        command
            .args(["agent", "--alg", "cubic,reno", "--unix"])
            .arg(socket);
        let process = Process::start(command.uid(NOBODY_UID).gid(NOBODY_UID));
        eventually("the agent listens", || socket.exists());
        process
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Attaches Reno of the agent at this address. Checks that the agent steers a flow, that the flow
/// falls back when the agent is dropped, and that the next agent takes it back.
fn check_takeover<A>(
    address: &str,
    mut start_agent: impl FnMut() -> A,
    is_steered: fn(&PinnedView) -> bool,
) {
    let agent = start_agent();
    let attach = Attach::start(address);
    let watch = PinnedView::open(NAME).expect("it is attached");
    let mut pair = Pair::under(NAME);
    eventually("the agent steers", || {
        pair.exchange();
        watch.counters().reports > 10 && is_steered(&watch)
    });
    drop(agent);
    eventually("without an agent the flow falls back", || {
        pair.exchange();
        watch.flows().any(|flow| flow.in_fallback)
    });
    let _agent = start_agent();
    eventually("the next agent takes the flow back", || {
        pair.exchange();
        is_steered(&watch)
    });
    drop(watch);
    attach.end();
}

#[test]
fn a_new_agent_of_another_user_takes_over_the_flows_of_a_dead_one() {
    if !can_run("a_new_agent_of_another_user_takes_over_the_flows_of_a_dead_one") {
        return;
    }
    let _host = lock_host();
    let folder = Folder::new("remote");
    let socket = folder.0.join("agent");
    let start_agent = || {
        let agent = folder.agent(&socket);
        let status = fs::read_to_string(format!("/proc/{}/status", agent.0.id())).expect("it runs");
        assert!(status.contains("CapPrm:\t0000000000000000"), "{status}");
        agent
    };
    let address = format!("unix:{}", socket.display());
    check_takeover(&address, start_agent, |watch| {
        let names = attached();
        let algorithms = names.iter().filter(|name| name.starts_with("ccp_"));
        assert_eq!(
            algorithms.collect::<Vec<_>>(),
            [NAME],
            "of the agent's two algorithms the one that was asked for"
        );
        is_steered(watch)
    });
}

/// An `attach` with its own kernel name, state folder and bpffs.
struct NamedAttach {
    process: Process,
    name: &'static str,
    state: PathBuf,
    bpffs: PathBuf,
}

impl NamedAttach {
    fn start(folder: &Path, name: &'static str, address: &str) -> NamedAttach {
        let (state, bpffs) = (
            folder.join(name),
            Path::new("/sys/fs/bpf").join(format!("ccplane-{name}")),
        );
        for place in [&state, &bpffs] {
            fs::create_dir_all(place).expect("a folder");
        }
        let mut command = ccplane("attach --alg reno");
        command
            .args(["--agent", address, "--kernel-name", name])
            .env("CCPLANE_STATE", &state)
            .env("CCPLANE_BPFFS", &bpffs);
        let mut process = Process::start(&mut command);
        eventually("it attaches", || {
            assert!(
                process.0.try_wait().expect("our child").is_none(),
                "attach ended"
            );
            is_registered(name) && bpffs.join("ccplane").exists()
        });
        NamedAttach {
            process,
            name,
            state,
            bpffs,
        }
    }

    /// Output of `ccplane flows --json` for it.
    fn flows(&self) -> serde_json::Value {
        printed_json(
            ccplane("flows --json")
                .env("CCPLANE_STATE", &self.state)
                .env("CCPLANE_BPFFS", &self.bpffs),
        )
    }

    fn end(&mut self) {
        kill(
            Pid::from_raw(self.process.0.id().cast_signed()),
            Signal::SIGTERM,
        )
        .expect("it runs");
        assert!(self.process.0.wait().expect("our child").success());
        assert!(!is_registered(self.name));
    }
}

impl Drop for NamedAttach {
    fn drop(&mut self) {
        let _ = self.process.0.kill();
        let _ = self.process.0.wait();
        let mut command = ccplane("detach");
        command
            .env("CCPLANE_STATE", &self.state)
            .env("CCPLANE_BPFFS", &self.bpffs);
        let _ = command.stdout(Stdio::null()).status();
        let _ = fs::remove_dir_all(&self.bpffs);
    }
}

/// Corresponds to two hosts, each with its own kernel.
#[test]
fn one_algorithm_is_attached_twice_under_two_names_and_one_agent_steers_both() {
    if !can_run("one_algorithm_is_attached_twice_under_two_names_and_one_agent_steers_both") {
        return;
    }
    let _host = lock_host();
    let folder = Folder::new("named");
    let socket = folder.0.join("agent");
    let _agent = folder.agent(&socket);
    let address = format!("unix:{}", socket.display());
    let mut hosts =
        ["ccp_east", "ccp_west"].map(|name| NamedAttach::start(&folder.0, name, &address));
    let mut pairs = ["ccp_east", "ccp_west"].map(Pair::under);
    let mut seen = [false; 2];
    eventually("the agent steers both", || {
        for ((host, pair), seen) in hosts.iter().zip(&mut pairs).zip(&mut seen) {
            pair.exchange();
            let told = host.flows();
            let flows = told["flows"].as_array().expect("a list");
            assert!(
                flows.iter().all(|flow| flow["algorithm"] == host.name),
                "{told}"
            );
            *seen |= flows.iter().any(|flow| flow["steered_by"] == "agent");
        }
        seen == [true; 2]
    });
    hosts.iter_mut().for_each(NamedAttach::end);
}

#[test]
fn a_kernel_name_needs_one_algorithm_and_the_prefix() {
    let single = "names a single algorithm, but 2 are to be attached";
    for (arguments, says) in [
        ("--alg reno,cubic --kernel-name ccp_east", single),
        ("--alg reno --kernel-name east", "expected `ccp_`"),
        ("--alg reno --kernel-name ccp_", "expected `ccp_`"),
        (
            "--alg reno --kernel-name ccp_north_by_north_west",
            "expected `ccp_`",
        ),
    ] {
        fails(&*format!("attach {arguments}"), 2, &[says]);
    }
}

/// A minimal CCP agent on a thread, written at the level of message bytes. It installs a program
/// that reports acknowledged bytes every 2 ms, and answers each report with a window.
struct CcpAgent {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// Window that it sets, bytes: some segments of loopback's MTU, below the initial window of a flow.
const WINDOW: u32 = 300_000;

/// Address to which a CCP agent sends its answers, for a datapath bound to `from`.
type Answers = fn(agent: &Path, from: &Path) -> PathBuf;

/// Behaviour of portus 0.8: answers the address of the sender.
fn to_its_address(_agent: &Path, from: &Path) -> PathBuf {
    from.to_owned()
}

/// Behaviour of portus 0.6 and 0.7: `format!("/tmp/ccp/{}", from)`.
fn below_its_folder(agent: &Path, from: &Path) -> PathBuf {
    let folder = agent.parent().expect("it is bound to a file");
    format!("{}/{}", folder.display(), from.display()).into()
}

impl CcpAgent {
    fn start(path: &Path) -> CcpAgent {
        CcpAgent::answering(path, to_its_address)
    }

    fn answering(path: &Path, answers: Answers) -> CcpAgent {
        let _ = fs::remove_file(path);
        let socket = UnixDatagram::bind(path).expect("a path of its own");
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).expect("ours");
        socket
            .set_read_timeout(Some(Duration::from_millis(20)))
            .expect("a time-out");
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let agent = path.to_owned();
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            while !seen.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else {
                    continue;
                };
                let from = answers(&agent, from.as_pathname().expect("a datapath is bound"));
                let mut rest = &buffer[..length];
                while rest.len() >= 8 {
                    let word = |at: usize| {
                        u32::from_le_bytes(rest[at..at + 4].try_into().expect("four bytes"))
                    };
                    let (kind, long, flow) = (word(0) & 0xffff, (word(0) >> 16) as usize, word(4));
                    let answer = match kind {
                        0 => Some(change_program(flow)),
                        // A report without fields announces the end of the flow.
                        1 if word(12) > 0 => Some(update(flow)),
                        5 => Some(install()),
                        _ => None,
                    };
                    if let Some(answer) = answer {
                        let _ = socket.send_to(&answer, &from);
                    }
                    rest = &rest[long..];
                }
            }
        });
        CcpAgent {
            path: path.to_owned(),
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for CcpAgent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.path);
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn header(kind: u32, length: u32, flow: u32) -> Vec<u8> {
    words(&[length << 16 | kind, flow])
}

/// Installs `(def (Report (volatile acked 0))) (when true (:= Report.acked (+ Report.acked
/// Ack.bytes_acked)) (fallthrough)) (when (> Micros 2000) (report) (:= Micros 0))` as program 7.
fn install() -> Vec<u8> {
    type Register = (u8, u32);
    let (acked, flag): (Register, Register) = ((5, 0), (2, 0));
    let instruction = |(op, result, left, right): (u8, Register, Register, Register)| {
        let mut bytes = vec![op];
        for (class, index) in [result, left, right] {
            bytes.push(class);
            bytes.extend(index.to_le_bytes());
        }
        bytes
    };
    let constant = |value| (1, value);
    let instructions = [
        (2, acked, acked, constant(0)),
        (1, flag, flag, constant(1)),
        (0, (7, 0), acked, (4, 0)),
        (1, acked, acked, (7, 0)),
        (1, (2, 1), (2, 1), constant(1)),
        (6, flag, (2, 3), constant(2000)),
        (1, (2, 2), (2, 2), constant(1)),
        (1, (2, 3), (2, 3), constant(0)),
    ];
    let mut message = header(2, 20 + 16 * (2 + 8), 0);
    message.extend(words(&[7, 2, 8]));
    message.extend(words(&[1, 1, 2, 3]));
    message.extend(words(&[5, 1, 6, 2]));
    message.extend(instructions.into_iter().flat_map(instruction));
    message
}

fn change_program(flow: u32) -> Vec<u8> {
    let mut message = header(4, 16, flow);
    message.extend(words(&[7, 0]));
    message
}

fn update(flow: u32) -> Vec<u8> {
    let mut message = header(3, 12 + 13, flow);
    message.extend(words(&[1]));
    message.push(2);
    message.extend(words(&[4, WINDOW, 0]));
    message
}

#[test]
fn a_new_ccp_agent_takes_over_the_flows_of_a_dead_one() {
    if !can_run("a_new_ccp_agent_takes_over_the_flows_of_a_dead_one") {
        return;
    }
    let _host = lock_host();
    let folder = Folder::new("ccp");
    let socket = folder.0.join("agent");
    let address = format!("ccp:{}", socket.display());
    let start_agent = || CcpAgent::start(&socket);
    check_takeover(&address, start_agent, |watch| {
        // The window is in force, rounded to segments.
        watch.flows().any(|flow| {
            flow.agent_controlled
                && !flow.in_fallback
                && u64::from(WINDOW).abs_diff(flow.cwnd.get()) <= flow.mss.get()
        })
    });
}

/// Returns a socket path in portus' folder, unique to this process.
fn portus_path(name: &str) -> PathBuf {
    let folder = Path::new("/tmp/ccp");
    fs::create_dir_all(folder).expect("a folder");
    folder.join(format!("ccplane-{name}-{}", std::process::id()))
}

#[test]
fn an_agent_that_answers_as_portus_0_6_steers() {
    if !can_run("an_agent_that_answers_as_portus_0_6_steers") {
        return;
    }
    let _host = lock_host();
    let socket = portus_path("derived");
    let _agent = CcpAgent::answering(&socket, below_its_folder);
    let attach = Attach::start(&format!("ccp:{}", socket.display()));
    let watch = PinnedView::open(NAME).expect("it is attached");
    let mut pair = Pair::under(NAME);
    eventually("the agent steers", || {
        pair.exchange();
        watch.counters().reports > 10 && is_steered(&watch)
    });
    drop(watch);
    attach.end();
}

#[test]
fn a_run_whose_agent_dies_fails_and_names_the_agent() {
    if !can_run("a_run_whose_agent_dies_fails_and_names_the_agent") {
        return;
    }
    let _host = lock_host();
    for datapath in ["linux", "udp", "quic"] {
        let folder = Folder::new("dies");
        let (socket, out) = (folder.0.join("agent"), folder.0.join("out"));
        let agent = CcpAgent::start(&socket);
        let link = "--rate 12mbit --rtt 20ms --duration 4s";
        let run = ccplane(&format!("run --alg reno --vs native:cubic {link}"))
            .args(["--datapath", datapath, "--agent"])
            .arg(format!("ccp:{}", socket.display()))
            .arg("--out")
            .arg(&out)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        std::thread::sleep(Duration::from_secs(2));
        drop(agent);
        let output = run.wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{datapath}: {said}");
        assert!(
            said.contains("the agent of reno was gone or silent"),
            "{datapath}: {said}"
        );
        let summary = fs::read(out.join("summary.json")).expect("it is written");
        let summary: serde_json::Value = serde_json::from_slice(&summary).expect("an object");
        let labels: Vec<_> = summary["contenders"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|contender| contender["label"].as_str().expect("text"))
            .collect();
        assert_eq!(
            labels,
            ["NewReno (agent of reno gone)", "native:cubic"],
            "{datapath}"
        );
    }
}

/// The algorithm of `examples/portus`, if it has been built: `cargo build --manifest-path
/// examples/portus/Cargo.toml --target-dir target/portus`.
#[test]
fn an_algorithm_written_for_portus_steers_kernel_tcp_unchanged() {
    let built = Path::new(env!("CARGO_BIN_EXE_ccplane")).ancestors().nth(2);
    let portus = built
        .expect("in the target folder")
        .join("portus/debug/portus-reno");
    if !portus.exists() {
        eprintln!(
            "SKIPPED: {} is not there: examples/portus/Cargo.toml says how to build it",
            portus.display()
        );
        return;
    }
    if !can_run("an_algorithm_written_for_portus_steers_kernel_tcp_unchanged") {
        return;
    }
    let _host = lock_host();
    let name = format!("ccplane-test-{}", std::process::id());
    let socket = Path::new("/tmp/ccp").join(&name);
    let agent = || {
        let _ = fs::remove_file(&socket);
        let process = Process::start(Command::new(&portus).arg(&name));
        eventually("portus listens", || socket.exists());
        process
    };
    check_takeover(&format!("ccp:{}", socket.display()), agent, is_steered);
    let _ = fs::remove_file(&socket);
}

#[test]
fn a_missing_agent_or_algorithm_is_an_error_with_a_hint() {
    if !can_run("a_missing_agent_or_algorithm_is_an_error_with_a_hint") {
        return;
    }
    let folder = Folder::new("absent");
    let socket = folder.0.join("agent");
    let refused = |agent: &str, more: &str, says: &[&str]| {
        let mut attach = ccplane("attach --agent");
        let output = attach.arg(agent).args(more.split_whitespace()).run();
        assert!(!output.status.success());
        let text = unwrapped(&output.stderr);
        for part in says {
            assert!(text.contains(part), "no `{part}` in: {text}");
        }
    };
    let unix = format!("unix:{}", socket.display());
    let ccp = format!("ccp:{}", socket.display());
    refused(&unix, "", &["no agent answers"]);
    refused(&ccp, "--alg reno", &["no CCP agent answers"]);
    refused(&ccp, "", &["does not list its algorithms"]);
    let _agent = folder.agent(&socket);
    refused(&unix, "--alg vegas", &["has no vegas", "reno"]);
    // An agent runs an algorithm with parameters only if it offers it with these parameters.
    refused(
        &unix,
        "--alg reno:report=10ms",
        &["has no reno:report=10ms", "where the agent is started"],
    );
    refused(
        &ccp,
        "--alg reno:report=10ms",
        &["does not accept parameters"],
    );
    refused(
        &format!("{unix}?timeout=1s"),
        "--alg reno",
        &["applies to CCP agents only"],
    );
}

/// Link between the namespaces of datapath and agent.
struct Link {
    datapath_host: Namespace,
    agent_host: Namespace,
    keys: Folder,
}

const AGENT: &str = "192.0.2.2";

impl Link {
    fn new() -> Link {
        let name = |end| format!("ccplane-far-{end}-{}", std::process::id());
        let link = Link {
            datapath_host: Namespace::create(&name("a")).expect("as root"),
            agent_host: Namespace::create(&name("b")).expect("as root"),
            keys: Folder::new("keys"),
        };
        let (a, b) = (link.datapath_host.name(), link.agent_host.name());
        ip(&[
            "-n", a, "link", "add", "a0", "type", "veth", "peer", "name", "b0", "netns", b,
        ]);
        for (namespace, device, address) in [(a, "a0", "192.0.2.1/24"), (b, "b0", "192.0.2.2/24")] {
            ip(&["-n", namespace, "address", "add", address, "dev", device]);
            ip(&["-n", namespace, "link", "set", device, "up"]);
            ip(&["-n", namespace, "link", "set", "lo", "up"]);
        }
        printed(ccplane("keys").arg(&link.keys.0).args(["web1", "web2"]));
        link
    }

    fn set(&self, state: &str) {
        ip(&["-n", self.agent_host.name(), "link", "set", "b0", state]);
    }

    fn key(&self, name: &str) -> String {
        self.keys.0.join(name).display().to_string()
    }

    fn agent(&self, port: u16) -> Process {
        let mut command = ccplane("agent --alg reno --tls");
        command
            .arg(format!("{AGENT}:{port}"))
            .arg("--keys")
            .arg(&self.keys.0);
        let process = Process::start(
            self.agent_host
                .enter_on_spawn(&mut command)
                .expect("a namespace"),
        );
        eventually("the agent listens", || {
            let connects = || TcpStream::connect((AGENT, port)).is_ok();
            self.agent_host.run(connects).expect("inside")
        });
        process
    }

    /// Starts `attach` with two agents to choose from.
    fn attach(&self) -> Attach {
        let keys = self.key("web1");
        let agents = [4700, 4701].map(|port| format!("tls://{AGENT}:{port}?keys={keys}"));
        let mut command = ccplane("attach --alg reno");
        command.args(["--agent", &agents[0], "--agent", &agents[1]]);
        Attach::by(
            self.datapath_host
                .enter_on_spawn(&mut command)
                .expect("a namespace"),
        )
    }
}

fn ip(arguments: &[&str]) {
    let done = Command::new("ip")
        .args(arguments)
        .output()
        .expect("iproute2 is there");
    assert!(done.status.success(), "ip {arguments:?}: {done:?}");
}

/// Returns the time until a condition holds while the connection carries data.
fn took(what: &str, pair: &mut Pair, mut so: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    eventually(what, || {
        pair.exchange();
        so()
    });
    began.elapsed()
}

#[test]
fn flows_of_a_remote_agent_survive_a_cut_and_its_death_on_the_fallback() {
    if !can_run("flows_of_a_remote_agent_survive_a_cut_and_its_death_on_the_fallback") {
        return;
    }
    let _host = lock_host();
    let link = Link::new();
    let first = link.agent(4700);
    let attach = link.attach();
    let watch = PinnedView::open(NAME).expect("it is attached");
    let mut pair = link
        .datapath_host
        .run(|| Pair::under(NAME))
        .expect("inside");
    let steered = || is_steered(&watch);
    let fallen = || watch.flows().any(|flow| flow.in_fallback);
    took("the agent steers", &mut pair, || {
        watch.counters().reports > 10 && steered()
    });

    // 3 round trips and 200 ms, with a margin for a busy machine.
    let in_time = Duration::from_secs(2);
    for cut in [100, 1_000, 10_000].map(Duration::from_millis) {
        link.set("down");
        let began = Instant::now();
        if cut >= Duration::from_secs(1) {
            let fell = took("the flow falls back", &mut pair, fallen);
            assert!(fell < in_time, "after {fell:?}");
        }
        while began.elapsed() < cut {
            pair.exchange();
        }
        link.set("up");
        // TCP's next retransmission or the next reconnection attempt: at most 5 s.
        let back = took("the agent steers again", &mut pair, steered);
        eprintln!("a cut of {cut:?}: steered again after {back:?}");
    }

    // The other agent may take over before the flow falls back. Long after the fallback is due,
    // only the other agent can be in control.
    let takes_over = |gone: Process, what: &str, pair: &mut Pair| {
        drop(gone);
        let due = Instant::now() + 4 * OperatorLimits::default().agent_timeout.to_std();
        while Instant::now() < due {
            pair.exchange();
        }
        let reports = watch.counters().reports;
        took(what, pair, || {
            steered() && watch.counters().reports > reports + 10
        });
    };
    let second = link.agent(4701);
    takes_over(first, "the second agent steers", &mut pair);
    let _first = link.agent(4700);
    takes_over(second, "the first steers again", &mut pair);

    // A key can be used by one process only.
    let mut other = ccplane("attach --alg reno --agent");
    other.arg(format!("tls://{AGENT}:4700?keys={}", link.key("web1")));
    let refused = link.datapath_host.enter_on_spawn(&mut other);
    let refused = refused.expect("a namespace").run();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && said.contains("already uses the key `web1`"),
        "{said}"
    );

    printed(ccplane("keys revoke web1").arg(&link.keys.0));
    let cut = took("the flow falls back", &mut pair, fallen);
    assert!(cut < Duration::from_secs(1) + in_time, "after {cut:?}");
    drop(watch);
    attach.end();
}
