//! `ccplane emu`: packets after the command has ended, packet logs, separate directions, and access
//! beyond the host.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ccplane_host::{Namespace, bind_mount_over};

use crate::common::{REACTION_TIMEOUT, eventually, is_root, skip, unwrapped};

/// Returns `ccplane emu OPTIONS -- bash -c SCRIPT`.
fn emu(options: &str, script: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccplane"));
    command.arg("emu").args(options.split_whitespace());
    command.args(["--", "bash", "-c", script]);
    command
}

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("it starts")
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes))
        .concat()
}

/// A temporary file, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("ccplane-{}-{name}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
        let _ = std::fs::remove_file(self.0.with_extension("html"));
    }
}

#[test]
fn packets_in_flight_when_the_command_exits_arrive() {
    if !is_root("packets_in_flight_when_the_command_exits_arrive") {
        return;
    }
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .expect("a time");
    let port = socket.local_addr().expect("bound").port();
    let script = format!("echo last >/dev/udp/$CCPLANE_HOST/{port}");
    assert!(run(&mut emu("--delay 300ms", &script)).status.success());
    assert_eq!(socket.recv(&mut [0; 16]).expect("it was delivered"), 5);
    let began = Instant::now();
    assert!(run(&mut emu("--delay 30s", &script)).status.success());
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "two seconds are the most"
    );
}

#[test]
fn a_packet_log_has_every_packet_and_becomes_a_page() {
    if !is_root("a_packet_log_has_every_packet_and_becomes_a_page") {
        return;
    }
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a port");
    let port = socket.local_addr().expect("bound").port();
    let log = Scratch::new("log.pcapng");
    let path = log.0.to_str().expect("plain");
    // One is being transmitted, five wait, and the other fourteen find the queue full.
    let options =
        format!("--up rate=100kbit,queue=droptail:5p --down delay=20ms --log {path} --json");
    let script = format!(
        "exec 3>/dev/udp/$CCPLANE_HOST/{port}; for n in {{1..20}}; do printf '%1000d' $n >&3; done"
    );
    let output = run(&mut emu(&options, &script));
    assert!(output.status.success(), "{}", said(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    assert_eq!(
        report["log"],
        serde_json::json!({ "packets": 20, "missed": 0, "error": null }),
        "{report}"
    );

    let mut graph = Command::new(env!("CARGO_BIN_EXE_ccplane"));
    let output = run(graph.args(["emu", "graph", path, "--json"]));
    assert!(output.status.success(), "{}", said(&output));
    let drawn: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    let up = &drawn["up"];
    assert_eq!(
        (&up["delivered"], &up["queue_drops"]),
        (&6.into(), &14.into()),
        "{drawn}"
    );
    // Six packets of 1,028 bytes at 100 kbit/s: the last one waits for the others.
    let longest = up["queued_max_ms"].as_f64().expect("a number");
    assert!((470.0..494.0).contains(&longest), "{drawn}");
    let page = std::fs::read_to_string(log.0.with_extension("html")).expect("the page");
    assert!(
        page.contains("up: rate 100 kbit/s") || page.contains("up: rate 100kbit"),
        "{page}"
    );
    assert!(page.contains("data-name=\"dropped by the queue\""));

    let mut graph = Command::new(env!("CARGO_BIN_EXE_ccplane"));
    let refused = run(graph.args(["emu", "graph", env!("CARGO_BIN_EXE_ccplane")]));
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        said(&refused).contains("not a pcapng file"),
        "{}",
        said(&refused)
    );
}

/// A data packet of a log, as decoded by tshark.
struct LoggedData {
    sequence: u64,
    out_of_order: bool,
    dropped: bool,
}

/// Returns data packets to the command, or `None` without tshark.
fn tshark(path: &str) -> Option<Vec<LoggedData>> {
    let mut command = Command::new("tshark");
    command.args([
        "-nr",
        path,
        "-Y",
        "frame.interface_name == \"down\" && tcp.len > 0",
        "-T",
        "fields",
    ]);
    command.args([
        "-e",
        "tcp.seq",
        "-e",
        "tcp.analysis.out_of_order",
        "-e",
        "frame.comment",
    ]);
    let output = command.output().ok()?;
    assert!(output.status.success(), "{}", said(&output));
    let seen = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [sequence, flag, comment] = fields[..] else {
            panic!("three fields: {line}")
        };
        LoggedData {
            sequence: sequence.parse().expect("a number"),
            out_of_order: !flag.is_empty(),
            dropped: comment.contains("dropped="),
        }
    };
    Some(
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(seen)
            .collect(),
    )
}

#[test]
fn drops_keep_the_order_of_their_flow() {
    if !is_root("drops_keep_the_order_of_their_flow") {
        return;
    }
    let listener = std::net::TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("it connects");
        std::io::Write::write_all(&mut stream, &vec![0x55; 3_000_000]).expect("it reads");
    });
    let log = Scratch::new("order.pcapng");
    let path = log.0.to_str().expect("plain");
    // A queue of two bandwidth-delay products: many packets are queued before the drop is repaired.
    let options = format!("--rate 10mbit --delay 20ms --queue droptail:60p --log {path}");
    let script = format!("cat < /dev/tcp/$CCPLANE_HOST/{port} | wc -c");
    let output = run(&mut emu(&options, &script));
    assert!(
        output.status.success() && said(&output).contains("3000000"),
        "{}",
        said(&output)
    );
    server.join().expect("it has sent all");
    let Some(packets) = tshark(path) else {
        return skip(
            "drops_keep_the_order_of_their_flow",
            "no tshark; `scripts/setup test` installs it",
        );
    };
    // tshark also reports a retransmission within a round trip as out of order. For these, the log
    // has the dropped packet earlier.
    let (mut sent, mut dropped) = (BTreeSet::new(), BTreeSet::new());
    let (mut drops, mut disordered) = (0, Vec::new());
    for packet in packets {
        let is_retransmission = !sent.insert(packet.sequence) && dropped.contains(&packet.sequence);
        if packet.out_of_order && !is_retransmission {
            disordered.push(packet.sequence);
        }
        if packet.dropped {
            drops += 1;
            dropped.insert(packet.sequence);
        }
    }
    assert!(drops > 10, "the queue was to overflow: {drops} drops");
    assert!(disordered.is_empty(), "{disordered:?}");
}

#[test]
fn unsupported_links_are_refused_before_the_command_runs() {
    if !is_root("unsupported_links_are_refused_before_the_command_runs") {
        return;
    }
    let output = run(&mut emu("--delay 5ms --jitter 10ms", "echo it runs"));
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(
        said(&output).contains("jitter of 10ms exceeds the delay of 5ms"),
        "{}",
        said(&output)
    );
    assert!(!said(&output).contains("it runs"));
    // 100 Gbit/s over a second: no host allows TCP 12.5 GB in flight.
    let output = run(&mut emu(
        "--rate 100gbit --delay 500ms --json",
        "echo it runs",
    ));
    assert!(output.status.success(), "{}", said(&output));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("net.ipv4.tcp_wmem") && errors.contains("12500000000"),
        "{errors}"
    );
    // The JSON object follows the command's own output.
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    let (first, object) = lines.trim_end().split_once('\n').expect("two lines");
    let object: serde_json::Value = serde_json::from_str(object).expect("an object");
    assert_eq!((first, &object["exit_code"]), ("it runs", &0.into()));
}

#[test]
fn a_link_inside_a_link_adds_up() {
    if !is_root("a_link_inside_a_link_adds_up") {
        return;
    }
    let server = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = server.local_addr().expect("bound").port();
    let taken = thread::spawn(move || server.accept().expect("a connection").1);
    let inner = env!("CARGO_BIN_EXE_ccplane");
    // Two round trips of 40 and 60 ms.
    let script = format!(
        "{inner} emu --delay 30ms -- bash -c \
         'began=$(date +%s%N); exec 3<>/dev/tcp/$CCPLANE_HOST/{port}; echo took $((($(date +%s%N) - began) / 1000000))'"
    );
    let output = run(&mut emu("--delay 20ms", &script));
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    let ms: u64 = said
        .lines()
        .find_map(|line| line.strip_prefix("took "))
        .and_then(|ms| ms.parse().ok())
        .expect("how long it took");
    assert!((100..1_000).contains(&ms), "{said}");
    let from = taken.join().expect("it was taken");
    assert!(
        said.contains("behind the link") && !from.ip().is_loopback(),
        "{said}"
    );
}

/// Two hosts, and between them a third one whose two interfaces have no address. All three are
/// namespaces.
#[test]
fn two_interfaces_are_joined_with_super_packets_and_neighbours() {
    if !is_root("two_interfaces_are_joined_with_super_packets_and_neighbours") {
        return;
    }
    let name = |part: &str| format!("ccplane-{}-between-{part}", std::process::id());
    let [left, middle, right] = ["left", "middle", "right"]
        .map(|part| Namespace::create(&name(part)).expect("a namespace"));
    for (end, port, address) in [(&left, "l", "198.51.100.1"), (&right, "r", "198.51.100.2")] {
        let middle = middle.name();
        let script = format!(
            "ip link add {port}0 type veth peer name {port}1 netns {middle} && ip address add {address}/24 dev {port}0 && \
             ip link set {port}0 up && ip netns exec {middle} ip link set {port}1 up"
        );
        let made = run(end
            .enter_on_spawn(Command::new("sh").args(["-c", &script]))
            .expect("a descriptor"));
        assert!(made.status.success(), "{}", said(&made));
    }
    let joined = |interfaces: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ccplane"));
        let link = "--rate 200mbit --delay 10ms --queue droptail:2bdp --json".split_whitespace();
        command.args(["emu", "--between", interfaces]).args(link);
        middle.enter_on_spawn(&mut command).expect("a descriptor");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let refused = |interfaces: &str| unwrapped(&run(&mut joined(interfaces)).stderr);
    assert!(refused("l1,l1").contains("both ends of the link are l1"));
    assert!(refused("l1,absent").contains("absent"));
    assert!(refused("l1,lo").contains("not Ethernet"));
    let route = |verb: &'static str| {
        let ip = middle.run(|| {
            Command::new("ip")
                .args(["route", verb, "default", "dev", "l1"])
                .status()
        });
        assert!(ip.expect("inside").expect("ip").success());
    };
    route("add");
    assert!(refused("l1,r1").contains("carries a default route"));
    route("del");

    let emulator = joined("l1,r1").spawn().expect("it starts");
    let server = right
        .run(|| TcpListener::bind("198.51.100.2:0"))
        .expect("inside")
        .expect("a port");
    let address = server.local_addr().expect("bound");
    const BYTES: usize = 4_000_000;
    let received = thread::spawn(move || {
        let (mut connection, _) = server.accept().expect("a connection");
        let mut all = Vec::new();
        connection.read_to_end(&mut all).expect("its end arrives");
        all
    });
    // ARP has to cross too, and only does once the emulator runs.
    let mut connection = None;
    eventually("they reach each other", || {
        let limit = Duration::from_millis(500);
        let tried = left
            .run(|| std::net::TcpStream::connect_timeout(&address, limit))
            .expect("inside");
        connection = tried.ok();
        connection.is_some()
    });
    let mut connection = connection.expect("they do");
    let sent: Vec<u8> = (0..BYTES).map(|at| ((at * 31) >> 5) as u8).collect();
    let began = Instant::now();
    connection.write_all(&sent).expect("it is taken");
    drop(connection);
    assert!(
        received.join().expect("no panic") == sent,
        "every byte, in order"
    );
    let rate = BYTES as f64 * 8.0 / began.elapsed().as_secs_f64();
    assert!(rate < 200e6, "{rate} bit/s is beyond the link");
    let pid = nix::unistd::Pid::from_raw(i32::try_from(emulator.id()).expect("a process"));
    nix::sys::signal::kill(pid, nix::sys::signal::SIGTERM).expect("it runs");
    let output = emulator.wait_with_output().expect("it ends");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    let delivered = report["up"]["delivered"].as_u64().expect("a number");
    assert!(
        output.status.success() && delivered >= (BYTES / 1_448) as u64,
        "{report}"
    );
    assert_eq!(report["audit"]["own_drops"], 0, "{report}");
}

/// A namespace as the host, and the network beyond it at 198.51.100.2 (RFC 5737).
struct RoutedHost {
    host: Namespace,
    net: Namespace,
}

impl RoutedHost {
    fn new(test: &str) -> RoutedHost {
        let name = |part: &str| format!("ccplane-{}-{test}-{part}", std::process::id());
        let host = Namespace::create(&name("host")).expect("a namespace");
        let net = Namespace::create(&name("net")).expect("a namespace");
        let net_name = net.name().to_owned();
        let script = format!(
            "ip link add out0 type veth peer name in0 netns {net_name} && ip address add 198.51.100.1/24 dev out0 && ip link set out0 up \
             && ip netns exec {net_name} sh -c 'ip address add 198.51.100.2/24 dev in0 && ip link set in0 up'"
        );
        let beyond = RoutedHost { host, net };
        let made = run(beyond
            .host
            .enter_on_spawn(Command::new("sh").args(["-c", &script]))
            .expect("a descriptor"));
        assert!(made.status.success(), "{}", said(&made));
        beyond
    }

    /// nft tables of the host.
    fn tables(&self) -> String {
        let listed = run(self
            .host
            .enter_on_spawn(Command::new("nft").args(["list", "tables"]))
            .expect("a descriptor"));
        assert!(listed.status.success(), "{}", said(&listed));
        said(&listed)
    }
}

#[test]
fn with_translation_the_command_reaches_what_the_host_reaches() {
    if !is_root("with_translation_the_command_reaches_what_the_host_reaches") {
        return;
    }
    let beyond = RoutedHost::new("nat");
    let server = beyond
        .net
        .run(|| TcpListener::bind("198.51.100.2:0"))
        .expect("inside")
        .expect("a port");
    let port = server.local_addr().expect("bound").port();
    // The host's stub resolver.
    let stub = beyond
        .host
        .run(|| UdpSocket::bind("127.0.0.53:53"))
        .expect("inside")
        .expect("its port");
    stub.set_read_timeout(Some(REACTION_TIMEOUT))
        .expect("a time");
    let settings = Scratch::new("resolv.conf");
    std::fs::write(&settings.0, "search example.org\nnameserver 127.0.0.53\n")
        .expect("a temporary file");

    let script = format!(
        "server=$(sed -n 's/^nameserver //p' /etc/resolv.conf); exec 4<>/dev/udp/$server/53; echo who >&4; head -c 4 <&4; \
         exec 3<>/dev/tcp/198.51.100.2/{port}; echo hello >&3"
    );
    let start = || {
        let mut command = emu("--nat --delay 5ms", &script);
        beyond
            .host
            .enter_on_spawn(&mut command)
            .expect("a descriptor");
        bind_mount_over(&mut command, &settings.0, "/etc/resolv.conf".as_ref()).expect("paths");
        command
    };
    let refused = run(&mut start());
    assert_eq!(refused.status.code(), Some(1), "{}", said(&refused));
    assert!(
        said(&refused).contains("sysctl -w net.ipv4.ip_forward=1"),
        "{}",
        said(&refused)
    );

    beyond
        .host
        .set_sysctl("net/ipv4/ip_forward", "1")
        .expect("its own");
    let answered = thread::spawn(move || {
        let mut room = [0; 16];
        let (length, from) = stub.recv_from(&mut room).expect("the question");
        assert_eq!(&room[..length], b"who\n");
        stub.send_to(b"you\n", from).expect("the answer");
    });
    let taken = thread::spawn(move || {
        let (mut connection, from) = server.accept().expect("a connection");
        let mut text = String::new();
        connection
            .read_to_string(&mut text)
            .expect("its end arrives");
        (from, text)
    });
    let output = run(&mut start());
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("you"), "{}", said(&output));
    answered.join().expect("it was asked");
    let (from, text) = taken.join().expect("it was taken");
    assert_eq!(
        (from.ip().to_string().as_str(), text.as_str()),
        ("198.51.100.1", "hello\n")
    );
    assert_eq!(beyond.tables(), "", "the table goes with the command");

    // The table is also removed if the emulator is killed.
    let mut command = emu("--nat", "sleep 60");
    let mut killed = beyond
        .host
        .enter_on_spawn(&mut command)
        .expect("a descriptor")
        .spawn()
        .expect("it starts");
    eventually("the table is there", || {
        beyond.tables().contains("ccplane-")
    });
    killed.kill().expect("it runs");
    killed.wait().expect("our child");
    eventually("the table goes", || beyond.tables().is_empty());
}
