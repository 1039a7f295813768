//! `ccplane send` and `ccplane recv` over loopback.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

mod crowd;
mod files;
#[path = "../../../udp/tests/support/liar.rs"]
mod liar;
mod path;
mod quic;
mod secrecy;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ccplane_link::identity::Identity;
use ccplane_transport::{Native, TransportConfig};
use ccplane_udp::{DATAGRAM_BYTES_DEFAULT, Stamping, Tls, UdpHost, UdpOptions};

use crate::common::{fails, is_root, unwrapped};

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccplane"));
    command.args(arguments).env_remove("CCPLANE_LOG");
    // One identity for all of these tests, separate from the user's.
    command.env("XDG_CONFIG_HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

fn send(arguments: &[&str]) -> Output {
    command(&[&["send"], arguments].concat())
        .output()
        .expect("the binary under test starts")
}

/// Returns standard error, with line wrapping removed.
fn said(output: &Output) -> String {
    unwrapped(&output.stderr)
}

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("transfer-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Creates a file of pseudo-random bytes.
    fn file(&self, name: &str, bytes: usize) -> String {
        let mut random = bytes as u64 + 1;
        let text: Vec<u8> = (0..bytes)
            .map(|_| {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (random >> 56) as u8
            })
            .collect();
        fs::write(self.0.join(name), text).unwrap();
        self.path(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap().flatten();
        let mut names: Vec<_> = entries
            .map(|e| e.file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the fingerprint of this host's certificate, which identifies it to a receiver.
fn own_fingerprint(options: &[&str]) -> String {
    let output = command(&[&["keys", "fingerprint"], options].concat())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A receiver on a free port; killed on drop.
struct Receiver {
    child: Child,
    address: String,
    fingerprint: String,
    errors: BufReader<std::process::ChildStderr>,
}

impl Receiver {
    fn start(arguments: &[&str]) -> Receiver {
        Receiver::listen("127.0.0.1:0", arguments)
    }

    /// Starts a receiver whose output is JSON.
    fn start_with_json(arguments: &[&str]) -> Receiver {
        let words = ["recv", "--json", "--listen", "127.0.0.1:0"];
        let mut child = command(&[&words, arguments].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary under test starts");
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        let told: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let text = |key: &str| told[key].as_str().expect("a text").to_owned();
        Receiver {
            child,
            address: text("listening"),
            fingerprint: text("fingerprint"),
            errors,
        }
    }

    fn listen(address: &str, arguments: &[&str]) -> Receiver {
        let listen = ["recv", "--listen", address];
        let mut child = command(&[&listen, arguments].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary under test starts");
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut text = String::new();
        let (mut address, mut fingerprint) = (None, None);
        while fingerprint.is_none() {
            let before = text.len();
            assert!(errors.read_line(&mut text).unwrap() > 0, "it said `{text}`");
            let line = text[before..].trim();
            if let Some(rest) = line.strip_prefix("listening on ") {
                address = rest.strip_suffix("; to send:").map(str::to_owned);
            }
            let print = line
                .split_once('#')
                .map(|(_, rest)| rest.trim_end_matches(" FILE"));
            fingerprint = print
                .filter(|_| line.starts_with("ccplane send "))
                .map(str::to_owned);
        }
        Receiver {
            child,
            address: address.expect("it says where it listens first"),
            fingerprint: fingerprint.expect("it was found"),
            errors,
        }
    }

    /// Returns an address of the receiver with its fingerprint.
    fn known(&self, address: &str) -> String {
        format!("{address}#{}", self.fingerprint)
    }

    /// Returns the exit code and the JSON object on standard output.
    fn end_with_json(mut self) -> (i32, serde_json::Value) {
        let mut text = String::new();
        std::io::copy(&mut self.errors, &mut std::io::sink()).unwrap();
        let mut output = self.child.stdout.take().unwrap();
        output.read_to_string(&mut text).unwrap();
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        (code, serde_json::from_str(&text).expect("one JSON object"))
    }

    /// Returns the exit code, and the text on standard error and standard output.
    fn end(mut self) -> (i32, String) {
        let mut text = String::new();
        self.errors.read_to_string(&mut text).unwrap();
        let code = self.child.wait().unwrap().code().unwrap_or(-1);
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        (code, unwrapped(text.as_bytes()))
    }

    fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([name, &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(status.success());
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn json(output: &Output) -> serde_json::Value {
    assert!(output.status.success(), "{}", said(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_file_arrives_unchanged_under_every_kind_of_control() {
    let folder = Folder::new("file");
    let file = folder.file("f", 300_001);
    let empty = folder.file("empty", 0);
    for (index, options) in [
        &[][..],
        &["--alg", "native:reno"],
        &["--alg", "cubic:report=10ms"],
        &["--insecure"],
        &["--dscp", "46", "--mtu", "9000"],
        &["--max-rate", "80mbit"],
        &["--max-rate", "80mbit", "--alg", "native:cubic"],
        &["--rc3"],
        &["--rc3", "--alg", "native:reno", "--stamps", "software"],
        &["--over", "quic", "--alg", "cubic"],
        &["--over", "quic", "--alg", "native:bbr3"],
    ]
    .into_iter()
    .enumerate()
    {
        for source in [&file, &empty] {
            let out = folder.path(&format!("out-{index}"));
            let over = if options.contains(&"quic") {
                "quic"
            } else {
                "udp"
            };
            let receiver = Receiver::start(&["--out", &out, "--force", "--over", over]);
            let to = receiver.known(&receiver.address);
            let output = send(&[&[&to, source.as_str(), "--json"], options].concat());
            let summary = json(&output);
            assert_eq!(summary["bytes"], fs::metadata(source).unwrap().len());
            assert_eq!(summary["encrypted"], true);
            assert_eq!(
                summary["second_loop"].is_object(),
                options.contains(&"--rc3"),
                "{summary}"
            );
            assert_eq!(receiver.end().0, 0);
            assert_eq!(
                fs::read(source).unwrap(),
                fs::read(&out).unwrap(),
                "{options:?}"
            );
            assert!(folder.names().iter().all(|name| !name.ends_with(".part")));
        }
    }
}

#[test]
fn two_transfers_at_once_while_strangers_send_garbage() {
    let folder = Folder::new("two");
    let out = folder.path("out");
    fs::create_dir(&out).unwrap();
    let receiver = Receiver::start(&["--out", &out]);
    let files = [folder.file("a", 2_000_000), folder.file("b", 2_000_003)];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
            // Protocol version that does not exist.
            let mut garbage = vec![0x45; 1200];
            for n in 0u64.. {
                garbage[1..9].copy_from_slice(&(n % 3).to_be_bytes());
                garbage[19] = n as u8;
                let _ = stranger.send_to(&garbage[..(n % 1200) as usize], &receiver.address);
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let senders: Vec<_> = files
            .iter()
            .map(|file| {
                command(&["send", &receiver.address, file])
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let ended: Vec<_> = senders
            .into_iter()
            .map(|sender| sender.wait_with_output())
            .collect();
        done.store(true, Ordering::Relaxed);
        for output in ended {
            let output = output.unwrap();
            assert!(output.status.success(), "{}", said(&output));
        }
    });
    receiver.signal("-INT");
    assert_eq!(receiver.end().0, 0, "Ctrl-C is how a receiver of many ends");
    let mut received: Vec<_> = fs::read_dir(&out)
        .unwrap()
        .flatten()
        .map(|e| fs::read(e.path()).unwrap())
        .collect();
    received.sort_by_key(Vec::len);
    assert!(
        received == files.map(|file| fs::read(file).unwrap()),
        "the two files, nothing else"
    );
}

#[test]
fn bad_requests_are_usage_errors() {
    let folder = Folder::new("usage");
    let file = folder.file("f", 10);
    let exposed = folder.file("exposed", 10);
    fs::set_permissions(&exposed, fs::Permissions::from_mode(0o644)).unwrap();
    let open_to_all = folder.path("open");
    fs::create_dir(&open_to_all).unwrap();
    fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o777)).unwrap();
    // Words in capitals stand for paths.
    let refused = |arguments: &str, says: &str| {
        let words: Vec<&str> = arguments
            .split(' ')
            .map(|word| match word {
                "FILE" => &file,
                "EXPOSED" => &exposed,
                "OPEN" => &open_to_all,
                word => word,
            })
            .collect();
        fails(&mut command(&words), 2, &[says]);
    };
    for (arguments, says) in [
        ("send nowhere FILE", "not a valid address"),
        ("send 192.0.2.1:1 FILE", "without a fingerprint"),
        ("send 127.0.0.1:1#12ab FILE", "64 hexadecimal digits"),
        ("send 127.0.0.1:1 /tmp", "tar -c /tmp"),
        ("send 127.0.0.1:1 FILE FILE", "unexpected argument"),
        ("send 127.0.0.1:1 FILE --bytes 1kB", "cannot be used with"),
        ("recv --out FILE --force --identity EXPOSED", "chmod 600"),
        (
            "recv --out FILE --force --client 12",
            "64 hexadecimal digits",
        ),
        ("send 127.0.0.1:1 FILE --alg native:none", "none"),
        ("recv --out OPEN", "other users can replace files"),
        ("send 127.0.0.1:1 FILE --mtu 100", "--mtu"),
        ("send [::1]:1 FILE --mtu 576", "596 to 65535"),
        ("send 127.0.0.1:1 FILE --max-rate 0mbit", "--max-rate"),
        (
            "send 127.0.0.1:1 FILE --rc3 --dscp 11",
            "--dscp 11 cannot be used with --rc3",
        ),
        (
            "send 127.0.0.1:1 FILE --qlog logs",
            "--qlog: not supported over UDP",
        ),
        (
            "recv --over quic --out /tmp",
            "a folder is not supported over QUIC",
        ),
        (
            "recv --over quic --out FILE --retry",
            "--retry: not supported over QUIC",
        ),
        ("recv --out FILE", "--force"),
        ("recv --out /no/such/folder/f", "folder /no/such/folder"),
    ] {
        refused(arguments, says);
    }
    for option in [
        "--rc3",
        "--dscp 46",
        "--mtu 1400",
        "--stamps off",
        "--link-rate 1gbit",
        "--identity file",
    ] {
        let name = option.split(' ').next().unwrap_or_default();
        let says = format!("{name}: not supported over QUIC");
        refused(
            &format!("send --over quic 127.0.0.1:1 FILE {option}"),
            &says,
        );
    }
}

#[test]
fn absent_failing_and_vanishing_receivers_are_reported() {
    let folder = Folder::new("gone");
    let nobody = UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let output = send(&[&nobody, "--bytes", "1kB"]);
    let text = said(&output);
    assert!(
        output.status.code() == Some(1) && text.contains("refused"),
        "{text}"
    );

    let full = Receiver::start(&["--out", "/dev/full", "--once"]);
    let output = send(&[&full.address, "--bytes", "1MB", "--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let error = told["error"].as_str().unwrap();
    assert!(
        error.contains("cannot write /dev/full") && error.contains("No space left"),
        "{error}"
    );
    let (code, text) = full.end();
    assert!(code == 1 && text.contains("/dev/full"), "{code} {text}");

    let out = folder.path("out");
    let stopped = Receiver::start(&["--out", &out]);
    let pattern = ["--bytes", "1GB", "--timeout", "2s"];
    let to = ["send", &stopped.address, "--max-rate", "40mbit"];
    let sender = command(&[to, pattern].concat());
    let mut sender = { sender }.stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(700));
    assert!(sender.try_wait().unwrap().is_none(), "1 GB takes longer");
    stopped.signal("-STOP");
    let output = sender.wait_with_output().unwrap();
    let text = said(&output);
    assert!(
        output.status.code() == Some(1) && text.contains("stopped answering"),
        "{text}"
    );
    stopped.signal("-CONT");
    let (code, text) = stopped.end();
    assert!(
        code == 1 && text.contains("the received part was discarded"),
        "{code} {text}"
    );
    assert!(folder.names().is_empty());
}

#[test]
fn an_interrupted_sender_makes_the_receiver_clean_up() {
    let folder = Folder::new("interrupt");
    let out = folder.path("out");
    for (over, says) in [
        ("udp", "aborted the connection"),
        ("quic", "closed by peer"),
    ] {
        let receiver = Receiver::start(&["--out", &out, "--over", over]);
        let pattern = ["--bytes", "1GB", "--max-rate", "40mbit"];
        let to = [receiver.address.as_str(), "--over", over];
        let sender = command(&[&["send"], &to[..], &pattern].concat())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        crate::common::eventually("it has begun", || !folder.names().is_empty());
        let interrupted = Command::new("kill")
            .args(["-INT", &sender.id().to_string()])
            .status();
        assert!(interrupted.unwrap().success());
        let output = sender.wait_with_output().unwrap();
        assert!(
            output.status.code() == Some(1) && said(&output).contains("interrupted"),
            "{}",
            said(&output)
        );
        let (code, text) = receiver.end();
        assert!(code == 1 && text.contains(says), "{code} {text}");
        assert!(folder.names().is_empty());
    }
}

/// `agent --unix` serves ccplane's datapaths, `agent --ccp` those that use version 1 of CCP.
#[test]
fn a_transfer_survives_the_death_of_its_agent() {
    let folder = Folder::new("agent");
    let (socket, out) = (folder.path("agent.sock"), folder.path("out"));
    let file = folder.file("f", 400_000);
    for (listen, address, says) in [
        ("--unix", socket.clone(), "ccplane agent --unix"),
        ("--ccp", format!("ccp:{socket}"), "no CCP agent answers"),
    ] {
        let steered = ["--alg", "reno", "--agent", &address];
        let output = send(&[&["127.0.0.1:1", &file], &steered[..]].concat());
        assert!(
            output.status.code() == Some(1) && said(&output).contains(says),
            "{}",
            said(&output)
        );
        let mut agent = command(&["agent", "--alg", "reno", listen, &socket])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(agent.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert!(line.contains("listening"), "{line}");
        let receiver = Receiver::start(&["--out", &out, "--force"]);
        let arguments = ["send", "--json", "--max-rate", "2mbit"];
        let arguments = [&arguments[..], &[&receiver.address, &file]].concat();
        let sender = command(&[&arguments[..], &steered].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(500));
        agent.kill().unwrap();
        agent.wait().unwrap();
        let output = sender.wait_with_output().unwrap();
        assert_eq!(json(&output)["bytes"], 400_000);
        assert!(
            said(&output).contains("lost the connection to the agent"),
            "{}",
            said(&output)
        );
        assert_eq!(receiver.end().0, 0);
        assert_eq!(fs::read(&file).unwrap(), fs::read(&out).unwrap());
        let _ = fs::remove_file(&socket);
    }
}

/// A link with losses in both directions, delay, an overflowing queue and ECN marks.
#[test]
fn a_file_arrives_over_a_link_that_loses_packets() {
    if !is_root("a_file_arrives_over_a_link_that_loses_packets") {
        return;
    }
    let folder = Folder::new("losses");
    let file = folder.file("f", 1_500_000);
    for (index, (queue, options)) in [
        ("droptail:20p", &["--alg", "cubic"][..]),
        (
            "droptail:60p",
            &["--alg", "native:reno", "--stamps", "software"],
        ),
        ("fq_codel", &["--alg", "native:cubic"]),
        ("prio:6:shared:400p", &["--alg", "cubic", "--rc3"]),
    ]
    .into_iter()
    .enumerate()
    {
        let out = folder.path(&format!("out-{index}"));
        let receiver = Receiver::listen("0.0.0.0:0", &["--out", &out]);
        let port = receiver.address.rsplit(':').next().unwrap();
        let words: Vec<String> = options.iter().map(|word| format!("'{word}'")).collect();
        let line = format!(
            "{} send {} {file} --json {}",
            env!("CARGO_BIN_EXE_ccplane"),
            receiver.known(&format!("$CCPLANE_HOST:{port}")),
            words.join(" ")
        );
        let link = [
            "emu", "--rate", "30mbit", "--delay", "5ms", "--loss", "1%", "--queue", queue,
        ];
        let output = command(&[&link[..], &["--", "sh", "-c", &line]].concat())
            .output()
            .unwrap();
        let summary = json(&output);
        assert!(summary["retransmitted"].as_u64().unwrap() > 5, "{summary}");
        let goodput = summary["goodput_mbit"].as_f64().unwrap();
        assert!(goodput < 30.0, "{goodput} Mbit/s through 30");
        if options.contains(&"--rc3") {
            let brought = summary["second_loop"]["delivered_bytes"].as_u64().unwrap();
            assert!(
                brought > 150_000 && summary["second_loop"]["stopped"].is_null(),
                "{summary}"
            );
        }
        assert_eq!(receiver.end().0, 0);
        assert_eq!(
            fs::read(&file).unwrap(),
            fs::read(&out).unwrap(),
            "{options:?}"
        );
    }
}

#[test]
fn one_address_has_four_transfers_and_a_fifth_sender_is_not_answered() {
    let folder = Folder::new("places");
    let file = folder.file("f", 4_000_000);
    fs::create_dir(folder.path("in")).unwrap();
    let receiver = Receiver::start(&["--out", &folder.path("in")]);
    let slow = ["--max-rate", "1mbit", &receiver.address, &file];
    let start = |arguments: &[&str]| {
        let mut command = command(&[&["send"], arguments].concat());
        command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut senders: Vec<Child> = (0..4).map(|_| start(&slow)).collect();
    // Each transfer has a hidden file until it is complete.
    for _ in 0..600 {
        if fs::read_dir(folder.path("in")).unwrap().count() == 4 {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let fifth = send(&[&receiver.address, &folder.file("g", 10)]);
    assert!(!fifth.status.success(), "{}", said(&fifth));
    assert_eq!(fs::read_dir(folder.path("in")).unwrap().count(), 4);
    for sender in &mut senders {
        let _ = sender.kill();
        let _ = sender.wait();
    }
    receiver.signal("-INT");
}

#[test]
fn a_sender_without_new_data_loses_its_slot() {
    let folder = Folder::new("idle");
    let file = folder.file("f", 10_000_000);
    fs::create_dir(folder.path("in")).unwrap();
    let receiver = Receiver::start(&["--out", &folder.path("in"), "--timeout", "1s"]);
    let mut sender = command(&["send", "--max-rate", "1mbit", &receiver.address, &file])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let held = || fs::read_dir(folder.path("in")).unwrap().count();
    let within = |condition: &dyn Fn() -> bool| {
        (0..400).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            condition()
        })
    };
    assert!(within(&|| held() == 1), "the transfer has begun");
    let stopped = Command::new("kill")
        .args(["-STOP", &sender.id().to_string()])
        .status();
    assert!(stopped.unwrap().success());
    assert!(
        within(&|| held() == 0),
        "its place and its file are given up"
    );
    let _ = sender.kill();
    let _ = sender.wait();
    receiver.signal("-INT");
}

/// A receiver that accepts a transfer and never sends a receipt. `reads`: it reads the data.
fn stalling(reads: bool, stop: Arc<AtomicBool>) -> (String, std::thread::JoinHandle<()>) {
    let identity = Identity::new().unwrap();
    let options = UdpOptions {
        local: "127.0.0.1:0".parse().unwrap(),
        datagram_bytes: DATAGRAM_BYTES_DEFAULT,
        window: 1 << 20,
        tls: Some(Tls::server(&identity, &[]).unwrap()),
        dscp: 0,
        config: TransportConfig::default(),
        stamping: Stamping::Off,
        link_rate: None,
        accept_congestion: Native::cubic(),
    };
    let mut host = UdpHost::bind(options).unwrap();
    host.listen(1).unwrap();
    let address = format!("{}#{}", host.local(), identity.fingerprint());
    let thread = std::thread::spawn(move || {
        let mut transfer = None;
        while !stop.load(Ordering::Relaxed) {
            host.poll(ccplane_units::Duration::from_millis(10)).unwrap();
            transfer = transfer.or_else(|| host.accept());
            if let Some(id) = transfer.filter(|_| reads) {
                let (first, second) = host.received(id);
                let arrived = first.len() + second.len();
                host.consume(id, arrived);
            }
        }
    });
    (address, thread)
}

#[test]
fn a_receiver_that_conceals_losses_ends_the_transfer_with_the_reason() {
    let identity = Identity::new().unwrap();
    let mut liar = liar::Liar::new(Tls::server(&identity, &[]).unwrap());
    let address = format!(
        "{}#{}",
        liar.socket.local_addr().unwrap(),
        identity.fingerprint()
    );
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let receiver = std::thread::spawn(move || {
        while !stopped.load(Ordering::Relaxed) {
            liar.receive();
            liar.acknowledge();
        }
        liar.datagrams
    });
    let options = ["--json", "--alg", "native:cubic", "--bytes", "200MB"];
    let output = send(&[&options[..], &[&address]].concat());
    stop.store(true, Ordering::Relaxed);
    let datagrams = receiver.join().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("acknowledged data that it did not receive"),
        "{said}"
    );
    assert!(
        (liar::LOST_SEGMENT..100_000).contains(&datagrams),
        "{datagrams} datagrams"
    );
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&told["reason"], &told["kind"]),
        (&"false_receipt".into(), &"failed".into()),
        "{told}"
    );
}

#[test]
fn a_receiver_that_answers_but_accepts_nothing_ends_the_transfer() {
    let stop = Arc::new(AtomicBool::new(false));
    let senders = [false, true].map(|reads| {
        let (address, receiver) = stalling(reads, stop.clone());
        let options = ["--json", "send", "--timeout", "1s", "--bytes", "8MB"];
        let mut sender = command(&[&options[..], &[&address]].concat());
        let sender = sender
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        (sender, receiver)
    });
    let ended = senders.map(|(sender, receiver)| (sender.wait_with_output().unwrap(), receiver));
    stop.store(true, Ordering::Relaxed);
    for (output, receiver) in ended {
        receiver.join().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(
            said.contains("the receiver answers but accepts no data"),
            "{said}"
        );
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["reason"], "stalled", "{told}");
    }
}
