//! `ccplane quic`: a file over QUIC on loopback, with an algorithm in the process, an agent in
//! another one, or the stack's own algorithm.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

#[path = "../../../tests/qlog/typed.rs"]
mod typed;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use ccplane_link::identity::{Fingerprint, Identity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use noq::rustls;
use serde_json::Value;

use crate::common::eventually;
use typed::typed_by_the_qlog_crate;

/// A temporary folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder =
            std::env::temp_dir().join(format!("ccplane-quic-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Folder(folder)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns true if a file is being received.
    fn has_part(&self) -> bool {
        let names = fs::read_dir(&self.0).expect("a folder").flatten();
        names
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .any(|name| name.starts_with(".out.") && name.ends_with(".part"))
    }

    /// Creates a file of this length in which all pages differ.
    fn filled(&self, name: &str, bytes: usize) -> PathBuf {
        let text: Vec<u8> = (0..bytes as u64)
            .map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8)
            .collect();
        let path = self.file(name);
        fs::write(&path, text).expect("room on the disk");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A process; killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ccplane() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ccplane"))
}

/// Starts a receiver and returns its address with its fingerprint.
fn receiver(folder: &Folder, out: &Path) -> (Running, String) {
    let mut process = ccplane()
        .args([
            "--json",
            "quic",
            "recv",
            "--listen",
            "127.0.0.1:0",
            "--identity",
        ])
        .arg(folder.file("identity"))
        .arg("--out")
        .arg(out)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let to = listening(&mut process);
    (Running(process), to)
}

/// Reads a receiver's address and fingerprint from its output.
fn listening(process: &mut Child) -> String {
    let mut said = BufReader::new(process.stderr.take().expect("piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("it says where it listens");
    std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
    let told: Value = serde_json::from_str(&line).expect("JSON");
    let text = |key: &str| told[key].as_str().expect("a text").to_owned();
    format!("{}#{}", text("listening"), text("fingerprint"))
}

fn send(to: &str, file: &Path, more: &[&str]) -> Output {
    ccplane()
        .args(["--json", "quic", "send", to])
        .arg(file)
        .args(more)
        .output()
        .expect("it starts")
}

fn refused(output: &Output, code: i32, parts: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr).replace("\n  │ ", " ");
    assert_eq!(output.status.code(), Some(code), "{said}");
    for part in parts {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
}

#[test]
fn a_file_arrives_whole_under_its_name_and_only_then() {
    let folder = Folder::new("arrives");
    let (file, out) = (folder.filled("sent", 3_000_000), folder.file("out"));
    let (mut process, to) = receiver(&folder, &out);
    let qlog = folder.file("qlog");
    let output = send(
        &to,
        &file,
        &[
            "--alg",
            "copa:delta=0.25",
            "--qlog",
            qlog.to_str().expect("UTF-8"),
        ],
    );
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (
            &told["bytes"],
            &told["stack"],
            &told["version"],
            &told["fallbacks"],
            &told["encrypted"]
        ),
        (
            &3_000_000.into(),
            &"noq".into(),
            &"1".into(),
            &0.into(),
            &true.into()
        ),
        "{told}"
    );
    assert!(
        told["reports"].as_u64().is_some_and(|reports| reports > 0),
        "{told}"
    );
    let hash = blake3::hash(&fs::read(&file).expect("it is there"))
        .to_hex()
        .to_string();
    assert_eq!(told["blake3"], hash.as_str());
    assert!(process.0.wait().expect("it ends").success());
    assert!(fs::read(&out).expect("it arrived") == fs::read(&file).expect("it is there"));
    assert!(!folder.has_part());
    // Each record follows a separator (RFC 7464), and shows the windows that the algorithm set.
    let text = fs::read_to_string(qlog.join("client-1.sqlog")).expect("UTF-8");
    let records: Vec<Value> = text
        .split('\u{1e}')
        .skip(1)
        .map(|record| serde_json::from_str(record).expect("JSON"))
        .collect();
    assert_eq!(
        records[0]["serialization_format"],
        "application/qlog+json-seq"
    );
    let windows = records
        .iter()
        .filter(|record| record["data"]["congestion_window"].is_number())
        .count();
    assert!(
        windows > 5,
        "{windows} windows in {} records",
        records.len()
    );
    let last = records.last().expect("a record");
    assert_eq!(
        (
            &last["name"],
            &last["data"]["initiator"],
            &last["data"]["error_code"]
        ),
        (&"quic:connection_closed".into(), &"local".into(), &0.into()),
        "{last}"
    );
    typed_by_the_qlog_crate(&qlog.join("client-1.sqlog"), records.len() - 1);
    refused(
        &send(&to, &file, &["--qlog", "/proc/none"]),
        1,
        &["no qlog in /proc/none"],
    );

    // An existing file is not replaced.
    let again = ccplane()
        .args(["quic", "recv", "--listen", "127.0.0.1:0", "--out"])
        .arg(&out)
        .output()
        .expect("it starts");
    refused(&again, 2, &["exists", "--force"]);
}

#[test]
fn a_receiver_of_another_fingerprint_gets_nothing() {
    let folder = Folder::new("fingerprint");
    let file = folder.filled("sent", 10_000);
    let (_process, to) = receiver(&folder, &folder.file("out"));
    let (address, _) = to.split_once('#').expect("a fingerprint");
    let other = format!("{address}#{}", "0".repeat(64));
    refused(
        &send(&other, &file, &[]),
        1,
        &["certificate", "another receiver"],
    );
    refused(
        &send(&format!("{address}#12"), &file, &[]),
        2,
        &["64 hexadecimal digits"],
    );
    refused(
        &send("192.0.2.1:4791", &file, &[]),
        2,
        &["without a fingerprint", "--insecure"],
    );
    refused(
        &send(&to, &file, &["--alg", "dctcp"]),
        2,
        &["ECN counts", "noq"],
    );
    refused(
        &send(&to, &file, &["--alg", "native:vegas"]),
        2,
        &["noq has no", "bbr3"],
    );
    refused(
        &send(&to, &file, &["--stack", "quiche"]),
        2,
        &["quiche", "noq"],
    );
    refused(&send(&to, &folder.0, &[]), 2, &["is a folder"]);
    refused(
        &send("127.0.0.1:9", &file, &["--timeout", "1s"]),
        1,
        &["no connection", "check that `ccplane quic recv` is running"],
    );
    assert!(!folder.file("out").exists());
}

/// Every stack that is built in sends to noq's receiver; others are refused with the name of their
/// feature.
#[test]
fn other_stacks_send_where_they_are_built_in() {
    let folder = Folder::new("stacks");
    let file = folder.filled("sent", 2_000_000);
    for (stack, name, built) in [
        ("quinn", "quinn", cfg!(feature = "quinn")),
        ("s2n", "s2n-quic", cfg!(feature = "s2n")),
    ] {
        let out = folder.file(stack);
        let (mut process, to) = receiver(&folder, &out);
        let output = send(&to, &file, &["--stack", stack, "--alg", "cubic"]);
        if built {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{stack}: {said}");
            let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            assert_eq!(
                (&told["stack"], &told["fallbacks"]),
                (&name.into(), &0.into()),
                "{told}"
            );
            assert!(
                told["reports"].as_u64().is_some_and(|reports| reports > 0),
                "{told}"
            );
            assert!(told["cwnd"].as_u64().is_some_and(|cwnd| cwnd > 0), "{told}");
            assert!(process.0.wait().expect("it ends").success());
            assert!(fs::read(&out).expect("it arrived") == fs::read(&file).expect("it is there"));
            let (_, to) = receiver(&folder, &folder.file("never"));
            let limited = [
                "--stack",
                stack,
                "--alg",
                "native:cubic",
                "--max-rate",
                "1mbit",
            ];
            refused(
                &send(&to, &file, &limited),
                2,
                &["cannot limit the rate", "--stack noq"],
            );
        } else {
            let feature = format!("`--features {stack}`");
            refused(
                &output,
                2,
                &["not part of this build", &format!("(feature `{stack}`)")],
            );
            let datapath = format!("quic:{stack}");
            let output = ccplane()
                .args(["run", "--alg", "cubic", "--datapath", &datapath])
                .output()
                .expect("it starts");
            refused(
                &output,
                2,
                &["not part of this build", feature.trim_matches('`')],
            );
        }
    }
}

/// A symbolic link of another user has the name that earlier versions used for the partial file.
#[test]
fn a_link_at_the_path_of_a_partial_file_is_not_followed() {
    let folder = Folder::new("link");
    let (file, out, victim) = (
        folder.filled("sent", 10_000),
        folder.file("out"),
        folder.file("victim"),
    );
    std::os::unix::fs::symlink(&victim, folder.file("out.part")).expect("a link");
    let (mut process, to) = receiver(&folder, &out);
    assert!(send(&to, &file, &[]).status.success());
    assert!(process.0.wait().expect("it ends").success());
    assert!(!victim.exists() && !out.is_symlink());
    assert!(fs::read(&out).expect("it arrived") == fs::read(&file).expect("it is there"));
}

/// If the transfer is cut off, no file is created.
#[test]
fn incomplete_files_are_not_kept() {
    let folder = Folder::new("cut");
    let (file, out) = (folder.filled("sent", 20_000_000), folder.file("out"));
    let (mut process, to) = receiver(&folder, &out);
    let mut sender = ccplane()
        .args(["quic", "send", &to])
        .arg(&file)
        .args(["--max-rate", "80mbit"])
        .spawn()
        .map(Running)
        .expect("it starts");
    eventually("it has begun", || folder.has_part());
    kill(Pid::from_raw(sender.0.id() as i32), Signal::SIGINT).expect("it runs");
    assert_eq!(sender.0.wait().expect("it ends").code(), Some(1));
    assert_eq!(process.0.wait().expect("it ends").code(), Some(1));
    assert!(!out.exists() && !folder.has_part());
}

/// The first sender that sends a byte owns the transfer; other senders and silent ones do not
/// disturb it.
#[test]
fn a_file_accepts_one_transfer() {
    let folder = Folder::new("one");
    let (file, other) = (folder.filled("sent", 20_000_000), folder.file("other"));
    fs::write(&other, vec![9; 1_000_000]).expect("room on the disk");
    let out = folder.file("out");
    let (mut process, to) = receiver(&folder, &out);
    // It opens a connection and sends nothing until it is killed.
    let silent = ccplane()
        .args(["quic", "send", &to, "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map(Running)
        .expect("it starts");
    let first = ccplane()
        .args(["quic", "send", &to])
        .arg(&file)
        .args(["--max-rate", "80mbit"])
        .spawn()
        .map(Running);
    let mut first = first.expect("it starts");
    eventually("it has begun", || folder.has_part());
    drop(silent);
    let second = send(&to, &other, &[]);
    assert_eq!(
        second.status.code(),
        Some(1),
        "{}",
        String::from_utf8_lossy(&second.stderr)
    );
    assert!(first.0.wait().expect("it ends").success());
    assert!(process.0.wait().expect("it ends").success());
    assert!(fs::read(&out).expect("it arrived") == fs::read(&file).expect("it is there"));
}

fn agent(socket: &Path) -> Running {
    let process = ccplane()
        .args(["agent", "--alg", "cubic", "--unix"])
        .arg(socket)
        .stderr(Stdio::null())
        .spawn();
    let agent = Running(process.expect("it starts"));
    eventually("the agent listens", || {
        std::os::unix::net::UnixStream::connect(socket).is_ok() || socket.exists()
    });
    agent
}

/// An agent is stopped, resumed, killed and restarted. The transfer pauses no longer than the agent
/// timeout, and its flow is taken over each time.
#[test]
fn an_agent_that_hangs_or_dies_costs_a_transfer_a_moment() {
    let folder = Folder::new("agent");
    // 4.8 s at the configured maximum rate.
    let file = folder.filled("sent", 60_000_000);
    let socket = folder.file("socket");
    let mut first = agent(&socket);
    let (mut process, to) = receiver(&folder, Path::new("-"));
    let mut arriving = process.0.stdout.take().expect("piped");
    let watch = std::thread::spawn(move || {
        let (mut bytes, mut longest, mut last) = (0, Duration::ZERO, None::<Instant>);
        let mut buffer = vec![0; 1 << 16];
        while let Ok(count) = arriving.read(&mut buffer) {
            let now = Instant::now();
            if count == 0 {
                break;
            }
            longest = longest.max(last.map_or(Duration::ZERO, |last| now - last));
            (bytes, last) = (bytes + count, Some(now));
        }
        (bytes, longest)
    });
    let address = format!("unix:{}", socket.display());
    let sender = ccplane()
        .args(["--json", "quic", "send", &to])
        .arg(&file)
        .args([
            "--agent",
            &address,
            "--alg",
            "cubic",
            "--max-rate",
            "100mbit",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let wait = |ms| std::thread::sleep(Duration::from_millis(ms));
    wait(700);
    let pid = Pid::from_raw(first.0.id() as i32);
    kill(pid, Signal::SIGSTOP).expect("it runs");
    wait(900);
    kill(pid, Signal::SIGCONT).expect("it runs");
    wait(700);
    first.0.kill().expect("it runs");
    drop(first);
    wait(700);
    let _second = agent(&socket);
    let output = sender.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let (bytes, longest) = watch.join().expect("it counts");
    println!("longest gap {longest:?}, {told}");
    assert_eq!(bytes, 60_000_000);
    // The agent timeout is 500 ms, during which the transfer continues; the rest is margin for a
    // busy machine.
    assert!(
        longest < Duration::from_millis(600),
        "nothing came for {longest:?}"
    );
    let count = |key: &str| told[key].as_u64().expect("a number");
    assert_eq!(count("fallbacks"), 2, "{told}");
    assert!(count("reports") > 50, "{told}");
}

/// Protocol of `ccplane quic` (ALPN).
const PROTOCOL: &[u8] = b"ccplane-quic/1";
/// A command that still runs after this time has no deadline: the longest deadline is 30 s.
const DEADLINE_MAX: Duration = Duration::from_secs(120);

/// Behaviour of a peer on a connection that it keeps alive.
#[derive(Clone, Copy, Debug)]
enum Idle {
    /// Receiver: reads nothing.
    NeverReads,
    /// Receiver: reads everything and sends no receipt.
    SendsNoReceipt,
    /// Sender: opens no stream.
    OpensNothing,
    /// Sender: begins a transfer and sends nothing more.
    SendsNothingMore,
}

/// Settings of a peer that sends a PING every 200 ms.
fn kept_alive() -> Arc<noq::TransportConfig> {
    let mut transport = noq::TransportConfig::default();
    transport
        .keep_alive_interval(Some(Duration::from_millis(200)))
        .max_idle_timeout(None)
        .stream_receive_window(65_536_u32.into());
    Arc::new(transport)
}

/// Runs a peer on its own thread.
fn on_a_thread(peer: impl Future<Output = ()> + Send + 'static) {
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(peer);
    });
}

/// Starts a receiver that misbehaves and returns its address with its fingerprint.
fn idle_receiver(what: Idle) -> String {
    let identity = Identity::new().expect("a certificate");
    let tls = identity.server(PROTOCOL, &[]).expect("TLS");
    let crypto =
        noq::crypto::rustls::QuicServerConfig::try_from(tls).expect("a cipher suite of QUIC");
    let mut config = noq::ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(kept_alive());
    let (listening, address) = channel();
    on_a_thread(async move {
        let local = "127.0.0.1:0".parse().expect("an address");
        let endpoint = noq::Endpoint::server(config, local).expect("a socket");
        listening
            .send(endpoint.local_addr().expect("bound"))
            .expect("the test waits");
        let incoming = endpoint.accept().await.expect("a sender");
        let connection = incoming.await.expect("a handshake");
        // Kept: dropping the stream would stop it, which the sender notices.
        let mut stream = connection.accept_bi().await.expect("a stream");
        if let Idle::SendsNoReceipt = what {
            let receiving = &mut stream.1;
            let mut buffer = vec![0; 1 << 16];
            while let Ok(Some(_)) = receiving.read(&mut buffer).await {}
        }
        connection.closed().await;
    });
    let address = address.recv().expect("it listens");
    format!("{address}#{}", identity.fingerprint())
}

/// A receiver that never completes the handshake and keeps the connection alive with PINGs in
/// Initial packets (RFC 9000 section 17.2.2, RFC 9001 section 5). Returns its address.
fn receiver_without_a_handshake() -> String {
    const OWN_ID: [u8; 8] = *b"hostile.";
    const PAYLOAD: usize = 32;
    const TAG: usize = 16;
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let address = socket.local_addr().expect("bound");
    std::thread::spawn(move || {
        let mut initial = [0; 2048];
        let (_, sender) = socket.recv_from(&mut initial).expect("a sender");
        let (id, rest) = initial[6..].split_at(initial[5].into());
        let sender_id = &rest[1..=usize::from(rest[0])];
        let provider = ccplane_link::identity::provider();
        let suites = provider.cipher_suites.iter();
        let suite = suites.filter_map(|suite| suite.tls13()).find(|suite| {
            let aes_128 = rustls::CipherSuite::TLS13_AES_128_GCM_SHA256;
            suite.common.suite == aes_128
        });
        let suite = suite
            .and_then(|suite| suite.quic_suite())
            .expect("QUIC's first suite");
        let keys = suite
            .keys(id, rustls::Side::Server, rustls::quic::Version::V1)
            .local;
        for number in 0..600_u32 {
            let length = (4 + PAYLOAD + TAG) as u16 | 0x4000;
            let mut packet = [&[0xc3, 0, 0, 0, 1, sender_id.len() as u8][..], sender_id].concat();
            packet.extend(
                [
                    &[OWN_ID.len() as u8][..],
                    &OWN_ID,
                    &[0],
                    &length.to_be_bytes(),
                ]
                .concat(),
            );
            let at = packet.len();
            packet.extend(number.to_be_bytes());
            // A PING and padding.
            let mut payload = [0; PAYLOAD];
            payload[0] = 1;
            let tag = keys
                .packet
                .encrypt_in_place(number.into(), &packet, &mut payload);
            packet.extend([&payload[..], tag.expect("short").as_ref()].concat());
            let sample: [u8; 16] = packet[at + 4..at + 20].try_into().expect("long enough");
            let (first, rest) = packet.split_at_mut(1);
            let protected =
                keys.header
                    .encrypt_in_place(&sample, &mut first[0], &mut rest[at - 1..at + 3]);
            protected.expect("a sample");
            socket.send_to(&packet, sender).expect("loopback");
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    address.to_string()
}

/// Starts a sender that misbehaves. The result is the reason why its connection ended.
fn idle_sender(what: Idle, to: &str) -> Receiver<String> {
    let (address, fingerprint) = to.split_once('#').expect("a fingerprint");
    let address: SocketAddr = address.parse().expect("an address");
    let trusted: Fingerprint = fingerprint.parse().expect("a fingerprint");
    let tls = ccplane_link::identity::client(PROTOCOL, Some(trusted), None).expect("TLS");
    let crypto =
        noq::crypto::rustls::QuicClientConfig::try_from(tls).expect("a cipher suite of QUIC");
    let mut config = noq::ClientConfig::new(Arc::new(crypto));
    config.transport_config(kept_alive());
    let (ended, end) = channel();
    on_a_thread(async move {
        let endpoint =
            noq::Endpoint::client("127.0.0.1:0".parse().expect("an address")).expect("a socket");
        let connecting =
            endpoint.connect_with(config, address, ccplane_link::identity::SUBJECT_NAME);
        let connection = connecting
            .expect("a connection")
            .await
            .expect("a handshake");
        let mut stream = None;
        if let Idle::SendsNothingMore = what {
            let (sending, _) = stream.insert(connection.open_bi().await.expect("a stream"));
            sending.write_all(&[7; 10_000]).await.expect("room");
        }
        let why = connection.closed().await;
        // The test may have ended.
        let _ = ended.send(why.to_string());
    });
    end
}

/// Returns the output of a command that must end by its own deadline.
fn ends_by_itself(mut child: Child, what: &str) -> Output {
    let started = Instant::now();
    while child.try_wait().expect("ours").is_none() {
        if started.elapsed() > DEADLINE_MAX {
            let _ = child.kill();
            panic!("{what} holds it for more than {DEADLINE_MAX:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.wait_with_output().expect("ours")
}

#[test]
fn a_receiver_that_only_keeps_the_connection_alive_ends_the_transfer() {
    let folder = Folder::new("idle-receiver");
    let file = folder.filled("sent", 2_000_000);
    let receivers = [
        ("reads nothing", idle_receiver(Idle::NeverReads)),
        ("sends no receipt", idle_receiver(Idle::SendsNoReceipt)),
        (
            "does not complete the handshake",
            receiver_without_a_handshake(),
        ),
    ];
    let senders = receivers.map(|(what, to)| {
        let sender = ccplane()
            .args(["--json", "quic", "send", &to, "--timeout", "1s"])
            .arg(&file)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        (what, sender.expect("it starts"))
    });
    for (what, sender) in senders {
        let output = ends_by_itself(sender, &format!("a receiver that {what}"));
        let text = match what {
            "does not complete the handshake" => "no connection to",
            _ => "the receiver answers but accepts no data and sends no receipt",
        };
        refused(&output, 1, &[text]);
        let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(told["reason"], "stalled", "{told}");
    }
}

#[test]
fn a_sender_that_only_keeps_the_connection_alive_holds_no_slot() {
    let folder = Folder::new("idle-sender");
    let out = folder.file("out");
    let mut process = ccplane()
        .args([
            "--json",
            "quic",
            "recv",
            "--listen",
            "127.0.0.1:0",
            "--timeout",
            "1s",
            "--identity",
        ])
        .arg(folder.file("identity"))
        .arg("--out")
        .arg(&out)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let to = listening(&mut process);
    // The first sender has not begun a transfer, so the receiver continues after its end.
    let nothing = idle_sender(Idle::OpensNothing, &to);
    let why = nothing
        .recv_timeout(DEADLINE_MAX)
        .expect("the receiver closes it");
    assert!(why.contains("closed by peer"), "{why}");
    let begun = idle_sender(Idle::SendsNothingMore, &to);
    let output = ends_by_itself(process, "a sender that sends nothing more");
    let told: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(output.status.code(), Some(1), "{told}");
    let error = told["error"].as_str().unwrap_or_default();
    assert!(
        error.contains("after 10000 bytes: no new data for 3s"),
        "{told}"
    );
    assert_eq!(told["reason"], "stalled", "{told}");
    let why = begun
        .recv_timeout(DEADLINE_MAX)
        .expect("the receiver closes it");
    assert!(why.contains("closed by peer"), "{why}");
    assert!(!out.exists() && !folder.has_part());
}
