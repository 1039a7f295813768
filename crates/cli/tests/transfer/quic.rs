//! `ccplane send` and `ccplane recv` over QUIC.

#[path = "../../../../tests/qlog/typed.rs"]
mod typed;

use std::io::Read;
use std::net::SocketAddr;
use std::process::Child;
use std::sync::mpsc::{Receiver as Channel, channel};
use std::time::Instant;

use ccplane_link::identity::Fingerprint;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use noq::rustls;
use serde_json::Value;

use super::*;
use crate::common::eventually;
use typed::typed_by_the_qlog_crate;

/// Starts a receiver and returns it with its address and fingerprint.
fn receiver(out: &str) -> (Receiver, String) {
    let receiver = Receiver::start(&["--over", "quic", "--out", out]);
    let to = receiver.known(&receiver.address);
    (receiver, to)
}

fn send_quic(arguments: &[&str]) -> Output {
    send(&[&["--over", "quic"], arguments].concat())
}

/// Returns true if a file `out` is being received.
fn has_part(folder: &Folder) -> bool {
    let names = folder.names();
    names
        .iter()
        .any(|name| name.starts_with(".out.") && name.ends_with(".part"))
}

fn refused(output: &Output, code: i32, parts: &[&str]) {
    let said = said(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for part in parts {
        assert!(said.contains(part), "`{part}` is not in: {said}");
    }
}

#[test]
fn a_transfer_reports_its_plane_and_writes_a_qlog() {
    let folder = Folder::new("qlog");
    let (file, out, qlog) = (
        folder.file("f", 3_000_000),
        folder.path("out"),
        folder.path("qlog"),
    );
    let (receiver, to) = receiver(&out);
    let options = ["--alg", "copa:delta=0.25", "--qlog", &qlog, "--json"];
    let told = json(&send_quic(&[&[&to, file.as_str()], &options[..]].concat()));
    let hash = blake3::hash(&fs::read(&file).unwrap()).to_hex();
    let expected = serde_json::json!({
        "bytes": 3_000_000, "blake3": hash.as_str(), "stack": "noq", "version": "1", "fallbacks": 0,
        "encrypted": true,
    });
    for (key, value) in expected.as_object().unwrap() {
        assert_eq!(&told[key], value, "{key}: {told}");
    }
    assert!(told["reports"].as_u64() > Some(0), "{told}");
    assert_eq!(receiver.end().0, 0);
    assert!(fs::read(&out).unwrap() == fs::read(&file).unwrap());
    // Each record follows a separator (RFC 7464), and shows the windows that the algorithm set.
    let log = Path::new(&qlog).join("client-1.sqlog");
    let text = fs::read_to_string(&log).unwrap();
    let records: Vec<Value> = text
        .split('\u{1e}')
        .skip(1)
        .map(|record| serde_json::from_str(record).unwrap())
        .collect();
    let format = &records[0]["serialization_format"];
    assert_eq!(format, "application/qlog+json-seq");
    let windows = records
        .iter()
        .filter(|record| record["data"]["congestion_window"].is_number())
        .count();
    assert!(windows > 5, "{windows} of {} records", records.len());
    let last = records.last().unwrap();
    assert_eq!(last["name"], "quic:connection_closed", "{last}");
    assert_eq!(
        (&last["data"]["initiator"], &last["data"]["error_code"]),
        (&"local".into(), &0.into()),
        "{last}"
    );
    typed_by_the_qlog_crate(&log, records.len() - 1);
    let output = send_quic(&[&to, &file, "--qlog", "/proc/none"]);
    refused(&output, 1, &["cannot write a qlog in /proc/none"]);
}

#[test]
fn what_the_stack_or_the_receiver_refuses_is_reported() {
    let folder = Folder::new("refused");
    let file = folder.file("f", 10_000);
    let (receiver, to) = receiver(&folder.path("out"));
    let other = format!("{}#{}", receiver.address, "0".repeat(64));
    let short = format!("{}#12", receiver.address);
    let cases: [(&[&str], i32, &[&str]); 8] = [
        (&[&other, &file], 1, &["certificate", "another receiver"]),
        (&[&short, &file], 2, &["64 hexadecimal digits"]),
        (
            &["192.0.2.1:4791", &file],
            2,
            &["without a fingerprint", "--insecure"],
        ),
        (&[&to, &folder.path("")], 2, &["is a folder"]),
        (&[&to, &file, "--alg", "dctcp"], 2, &["ECN counts", "noq"]),
        (
            &[&to, &file, "--alg", "native:vegas"],
            2,
            &["noq has no", "bbr3"],
        ),
        (&[&to, &file, "--over", "quic:quiche"], 2, &["quic:s2n"]),
        (
            &["127.0.0.1:9", &file, "--timeout", "1s"],
            1,
            &["no connection", "check that `ccplane recv --over quic` is"],
        ),
    ];
    for (arguments, code, parts) in cases {
        let over = if arguments.contains(&"--over") {
            send(arguments)
        } else {
            send_quic(arguments)
        };
        refused(&over, code, parts);
    }
    assert_eq!(folder.names(), ["f"]);
}

#[test]
fn an_existing_file_is_kept() {
    let folder = Folder::new("kept");
    let (file, out) = (folder.file("f", 10_000), folder.path("out"));
    fs::write(&out, "mine").unwrap();
    let listen = ["recv", "--over", "quic", "--listen", "127.0.0.1:0", "--out"];
    let output = command(&[&listen[..], &[&out]].concat()).output().unwrap();
    refused(&output, 2, &["exists", "--force"]);
    assert_eq!(fs::read(&out).unwrap(), b"mine");
    // A file that appears while the receiver waits is not replaced either.
    fs::remove_file(&out).unwrap();
    let (receiver, to) = receiver(&out);
    fs::write(&out, "mine").unwrap();
    assert_eq!(send_quic(&[&to, &file]).status.code(), Some(1));
    let (code, text) = receiver.end();
    assert!(code == 1 && text.contains("exists"), "{code} {text}");
    assert_eq!(fs::read(&out).unwrap(), b"mine");
    assert_eq!(folder.names(), ["f", "out"]);
}

/// Earlier versions used this name for the partial file.
#[test]
fn a_link_in_place_of_a_partial_file_is_not_followed() {
    let folder = Folder::new("link");
    let (file, out) = (folder.file("f", 10_000), folder.path("out"));
    let victim = folder.path("victim");
    std::os::unix::fs::symlink(&victim, folder.path("out.part")).unwrap();
    let (receiver, to) = receiver(&out);
    json(&send_quic(&[&to, &file, "--json"]));
    assert_eq!(receiver.end().0, 0);
    assert!(!Path::new(&victim).exists() && !Path::new(&out).is_symlink());
    assert!(fs::read(&out).unwrap() == fs::read(&file).unwrap());
}

/// Every stack that is built in sends to noq's receiver; others are refused with the name of their
/// feature.
#[test]
fn other_stacks_send_where_they_are_built_in() {
    let folder = Folder::new("stacks");
    let file = folder.file("f", 2_000_000);
    for (stack, name, built) in [
        ("quinn", "quinn", cfg!(feature = "quinn")),
        ("s2n", "s2n-quic", cfg!(feature = "s2n")),
    ] {
        let (out, over) = (folder.path(stack), format!("quic:{stack}"));
        let (receiver, to) = receiver(&out);
        let output = send(&[&to, &file, "--over", &over, "--alg", "cubic", "--json"]);
        if !built {
            refused(
                &output,
                2,
                &["not part of this build", &format!("--features {stack}")],
            );
            let run = ["run", "--alg", "cubic", "--datapath", &over];
            refused(
                &command(&run).output().unwrap(),
                2,
                &["not part of this build", &format!("--features {stack}")],
            );
            continue;
        }
        let told = json(&output);
        assert_eq!(
            (&told["stack"], &told["fallbacks"]),
            (&name.into(), &0.into()),
            "{told}"
        );
        let count = |key: &str| told[key].as_u64().unwrap();
        assert!(count("reports") > 0 && count("cwnd") > 0, "{told}");
        assert_eq!(receiver.end().0, 0);
        assert!(fs::read(&out).unwrap() == fs::read(&file).unwrap());
        let limited = ["--alg", "native:cubic", "--max-rate", "1mbit"];
        let output = send(&[&["--over", &over, &to, &file], &limited[..]].concat());
        refused(&output, 2, &["cannot limit the rate", "--over quic"]);
    }
}

/// The first sender that sends a byte owns the transfer; other senders and silent ones do not
/// disturb it.
#[test]
fn a_file_accepts_one_transfer() {
    let folder = Folder::new("one");
    let (file, other) = (folder.file("f", 20_000_000), folder.file("g", 1_000_000));
    let out = folder.path("out");
    let (receiver, to) = receiver(&out);
    // It opens a connection and sends nothing until it is killed.
    let mut silent = command(&["send", "--over", "quic", &to, "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut first = command(&["send", "--over", "quic", &to, &file, "--max-rate", "80mbit"])
        .spawn()
        .unwrap();
    eventually("it has begun", || has_part(&folder));
    silent.kill().unwrap();
    silent.wait().unwrap();
    let second = send_quic(&[&to, &other]);
    assert_eq!(second.status.code(), Some(1), "{}", said(&second));
    assert!(first.wait().unwrap().success());
    assert_eq!(receiver.end().0, 0);
    assert!(fs::read(&out).unwrap() == fs::read(&file).unwrap());
}

/// A process; killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn agent(socket: &str) -> Running {
    let process = command(&["agent", "--alg", "cubic", "--unix", socket])
        .stderr(Stdio::null())
        .spawn();
    let agent = Running(process.unwrap());
    eventually("the agent listens", || Path::new(socket).exists());
    agent
}

/// An agent is stopped, resumed, killed and restarted. The transfer pauses no longer than the agent
/// timeout, and its flow is taken over each time.
#[test]
fn an_agent_that_hangs_or_dies_costs_a_transfer_a_moment() {
    let folder = Folder::new("quic-agent");
    // 4.8 s at the configured maximum rate.
    let file = folder.file("f", 60_000_000);
    let socket = folder.path("socket");
    let mut first = agent(&socket);
    let (mut receiver, to) = receiver("-");
    let mut arriving = receiver.child.stdout.take().unwrap();
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
    let options = ["--agent", &socket, "--max-rate", "100mbit", "--json"];
    let sender = command(&[&["send", "--over", "quic", &to, &file], &options[..]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let wait = |ms| std::thread::sleep(Duration::from_millis(ms));
    wait(700);
    let pid = Pid::from_raw(first.0.id() as i32);
    kill(pid, Signal::SIGSTOP).unwrap();
    wait(900);
    kill(pid, Signal::SIGCONT).unwrap();
    wait(700);
    first.0.kill().unwrap();
    drop(first);
    wait(700);
    let _second = agent(&socket);
    let told = json(&sender.wait_with_output().unwrap());
    let (bytes, longest) = watch.join().unwrap();
    println!("longest gap {longest:?}, {told}");
    assert_eq!(bytes, 60_000_000);
    // The agent timeout is 500 ms, during which the transfer continues; the rest is margin for a
    // busy machine.
    assert!(
        longest < Duration::from_millis(600),
        "nothing came for {longest:?}"
    );
    let count = |key: &str| told[key].as_u64().unwrap();
    assert_eq!(count("fallbacks"), 2, "{told}");
    assert!(count("reports") > 50, "{told}");
}

/// ALPN protocol of a transfer over QUIC.
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
        runtime.unwrap().block_on(peer);
    });
}

/// Starts a receiver that misbehaves and returns its address with its fingerprint.
fn idle_receiver(what: Idle) -> String {
    let identity = Identity::new().unwrap();
    let tls = identity.server(PROTOCOL, &[]).unwrap();
    let crypto = noq::crypto::rustls::QuicServerConfig::try_from(tls).unwrap();
    let mut config = noq::ServerConfig::with_crypto(Arc::new(crypto));
    config.transport_config(kept_alive());
    let (listening, address) = channel();
    on_a_thread(async move {
        let local = "127.0.0.1:0".parse().unwrap();
        let endpoint = noq::Endpoint::server(config, local).unwrap();
        listening.send(endpoint.local_addr().unwrap()).unwrap();
        let incoming = endpoint.accept().await.unwrap();
        let connection = incoming.await.unwrap();
        // Kept: dropping the stream would stop it, which the sender notices.
        let mut stream = connection.accept_bi().await.unwrap();
        if let Idle::SendsNoReceipt = what {
            let receiving = &mut stream.1;
            let mut buffer = vec![0; 1 << 16];
            while let Ok(Some(_)) = receiving.read(&mut buffer).await {}
        }
        connection.closed().await;
    });
    let address = address.recv().unwrap();
    format!("{address}#{}", identity.fingerprint())
}

/// A receiver that never completes the handshake and keeps the connection alive with PINGs in
/// Initial packets (RFC 9000 section 17.2.2, RFC 9001 section 5). Returns its address.
fn receiver_without_a_handshake() -> String {
    const OWN_ID: [u8; 8] = *b"hostile.";
    const PAYLOAD: usize = 32;
    const TAG: usize = 16;
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut initial = [0; 2048];
        let (_, sender) = socket.recv_from(&mut initial).unwrap();
        let (id, rest) = initial[6..].split_at(initial[5].into());
        let sender_id = &rest[1..=usize::from(rest[0])];
        let provider = ccplane_link::identity::provider();
        let suites = provider.cipher_suites.iter();
        let suite = suites.filter_map(|suite| suite.tls13()).find(|suite| {
            let aes_128 = rustls::CipherSuite::TLS13_AES_128_GCM_SHA256;
            suite.common.suite == aes_128
        });
        let suite = suite.and_then(|suite| suite.quic_suite()).unwrap();
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
            packet.extend([&payload[..], tag.unwrap().as_ref()].concat());
            let sample: [u8; 16] = packet[at + 4..at + 20].try_into().unwrap();
            let (first, rest) = packet.split_at_mut(1);
            let protected =
                keys.header
                    .encrypt_in_place(&sample, &mut first[0], &mut rest[at - 1..at + 3]);
            protected.unwrap();
            socket.send_to(&packet, sender).unwrap();
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    address.to_string()
}

/// Starts a sender that misbehaves. The result is the reason why its connection ended.
fn idle_sender(what: Idle, to: &str) -> Channel<String> {
    let (address, fingerprint) = to.split_once('#').unwrap();
    let address: SocketAddr = address.parse().unwrap();
    let trusted: Fingerprint = fingerprint.parse().unwrap();
    let tls = ccplane_link::identity::client(PROTOCOL, Some(trusted), None).unwrap();
    let crypto = noq::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let mut config = noq::ClientConfig::new(Arc::new(crypto));
    config.transport_config(kept_alive());
    let (ended, end) = channel();
    on_a_thread(async move {
        let endpoint = noq::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        let connecting =
            endpoint.connect_with(config, address, ccplane_link::identity::SUBJECT_NAME);
        let connection = connecting.unwrap().await.unwrap();
        let mut stream = None;
        if let Idle::SendsNothingMore = what {
            let (sending, _) = stream.insert(connection.open_bi().await.unwrap());
            sending.write_all(&[7; 10_000]).await.unwrap();
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
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > DEADLINE_MAX {
            let _ = child.kill();
            panic!("{what} holds it for more than {DEADLINE_MAX:?}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn a_receiver_that_only_keeps_the_connection_alive_ends_the_transfer() {
    let folder = Folder::new("idle-receiver");
    let file = folder.file("f", 2_000_000);
    let nothing = "the receiver answers but accepts no data and sends no receipt";
    let receivers = [
        (idle_receiver(Idle::NeverReads), nothing),
        (idle_receiver(Idle::SendsNoReceipt), nothing),
        (
            receiver_without_a_handshake(),
            "the receiver answers but does not complete the handshake",
        ),
    ];
    let senders = receivers.map(|(to, says)| {
        let arguments = [
            "--json",
            "send",
            "--over",
            "quic",
            &to,
            &file,
            "--timeout",
            "1s",
        ];
        let sender = command(&arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        (sender.unwrap(), says)
    });
    for (sender, says) in senders {
        let output = ends_by_itself(sender, says);
        refused(&output, 1, &[says]);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["reason"], "stalled", "{told}");
    }
}

#[test]
fn a_sender_that_only_keeps_the_connection_alive_holds_no_slot() {
    let folder = Folder::new("idle-sender");
    let out = folder.path("out");
    let options = ["--over", "quic", "--timeout", "1s", "--out", &out];
    let receiver = Receiver::start_with_json(&options);
    let to = receiver.known(&receiver.address);
    // The first sender has not begun a transfer, so the receiver continues after its end.
    let nothing = idle_sender(Idle::OpensNothing, &to);
    let why = nothing.recv_timeout(DEADLINE_MAX).unwrap();
    assert!(why.contains("closed by peer"), "{why}");
    let begun = idle_sender(Idle::SendsNothingMore, &to);
    let why = begun.recv_timeout(DEADLINE_MAX).unwrap();
    assert!(why.contains("closed by peer"), "{why}");
    let (code, told) = receiver.end_with_json();
    assert_eq!(code, 1, "{told}");
    let error = told["error"].as_str().unwrap_or_default();
    let says = "failed after 9.77 KiB: no new data for 3s";
    assert!(error.contains(says), "{told}");
    assert_eq!(told["reason"], "stalled", "{told}");
    assert!(folder.names().is_empty(), "{:?}", folder.names());
}
