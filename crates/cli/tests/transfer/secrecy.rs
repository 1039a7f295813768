//! Confidentiality and authentication by TLS.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use ccplane_transport::{SegmentKind, SideData};
use ccplane_udp::codec;
use ring::{aead, hkdf};

use super::*;

/// Relayed datagrams, each with true if the client sent it.
type Capture = Arc<Mutex<Vec<(bool, Vec<u8>)>>>;

/// Relays datagrams between a client and a server, and records them.
fn tap(server: &str) -> (String, Capture) {
    let server: SocketAddr = server.parse().unwrap();
    let ends = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let address = ends[0].local_addr().unwrap().to_string();
    let (capture, client) = (Capture::default(), Arc::new(Mutex::new(None)));
    for end in 0..2 {
        let (from, to) = (
            ends[end].try_clone().unwrap(),
            ends[1 - end].try_clone().unwrap(),
        );
        let (capture, client) = (Arc::clone(&capture), Arc::clone(&client));
        std::thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok((length, came)) = from.recv_from(&mut buffer) {
                let whither = if end == 0 {
                    *client.lock().unwrap() = Some(came);
                    Some(server)
                } else {
                    *client.lock().unwrap()
                };
                capture
                    .lock()
                    .unwrap()
                    .push((end == 0, buffer[..length].to_vec()));
                let _ = whither.map(|whither| to.send_to(&buffer[..length], whither));
            }
        });
    }
    (address, capture)
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label (RFC 8446 section 7.1) with the label of RFC 9001 section 5.1.
fn expand<const N: usize>(secret: &[u8], label: &str) -> [u8; N] {
    let label = format!("tls13 {label}");
    let lengths = ([0, N as u8], [label.len() as u8]);
    let info = [&lengths.0[..], &lengths.1, label.as_bytes(), &[0]];
    let mut out = [0; N];
    let prk = hkdf::Prk::new_less_safe(hkdf::HKDF_SHA384, secret);
    prk.expand(&info, Length(N))
        .unwrap()
        .fill(&mut out)
        .unwrap();
    out
}

/// Decrypts a client's datagram (AES-256-GCM) according to the documented format. `None` if it has
/// no encrypted part.
fn opened(datagram: &[u8], secret: &[u8]) -> Option<Vec<u8>> {
    let mut datagram = datagram.to_vec();
    assert_eq!(datagram[0] >> 4, 3, "version 3");
    if datagram[0] >> 1 & 3 != 1 {
        return None;
    }
    let head = 9 + if datagram[0] & 1 == 0 { 0 } else { 10 };
    let protection = aead::quic::HeaderProtectionKey::new(
        &aead::quic::AES_256,
        &expand::<32>(secret, "quic hp"),
    )
    .unwrap();
    let mask = protection.new_mask(&datagram[head + 4..head + 20]).unwrap();
    datagram[0] ^= (mask[0] & 4) << 1;
    assert_eq!(
        datagram[0] & 8,
        0,
        "no other key phase in so short a transfer"
    );
    for (byte, mask) in datagram[head..head + 4].iter_mut().zip(&mask[1..]) {
        *byte ^= mask;
    }
    let (front, sealed) = datagram.split_at_mut(head + 4);
    let mut nonce = expand::<12>(secret, "quic iv");
    for (byte, number) in nonce[8..].iter_mut().zip(&front[head..]) {
        *byte ^= number;
    }
    let key = aead::UnboundKey::new(&aead::AES_256_GCM, &expand::<32>(secret, "quic key")).unwrap();
    let nonce = aead::Nonce::assume_unique_for_key(nonce);
    let text = aead::LessSafeKey::new(key).open_in_place(nonce, aead::Aad::from(&*front), sealed);
    Some(text.expect("it is sealed with this secret").to_vec())
}

fn contains(whole: &[u8], part: &[u8]) -> bool {
    whole.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_capture_is_readable_only_with_the_secrets() {
    let folder = Folder::new("capture");
    let (file, out, log) = (
        folder.file("its-name", 60_000),
        folder.path("out"),
        folder.path("secrets"),
    );
    fs::create_dir(&out).unwrap();
    let receiver = Receiver::start(&["--out", &out, "--once"]);
    let (tapped, capture) = tap(&receiver.address);
    let to = receiver.known(&tapped);
    let output = command(&["send", &to, &file])
        .env("SSLKEYLOGFILE", &log)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(receiver.end().0, 0);

    let secrets = fs::read_to_string(&log).unwrap();
    let secret = secrets.lines().find_map(|line| {
        let [label, _, secret] = line.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let digits = (0..secret.len()).step_by(2);
        let bytes = digits.map(|at| u8::from_str_radix(&secret[at..at + 2], 16).unwrap());
        (label == "CLIENT_TRAFFIC_SECRET_0").then(|| bytes.collect::<Vec<u8>>())
    });
    let secret = secret.unwrap();
    let sent = fs::read(&file).unwrap();
    let (mut stream, mut all) = (BTreeMap::new(), Vec::new());
    for (by_client, datagram) in capture.lock().unwrap().iter() {
        for piece in sent.chunks(40).step_by(20).chain([&b"its-name"[..]]) {
            assert!(!contains(datagram, piece), "legible without the secrets");
        }
        if let Some(text) = by_client.then(|| opened(datagram, &secret)).flatten() {
            let (segment, _, header) = codec::read(&text, &mut SideData::default()).unwrap();
            if segment.kind == SegmentKind::Data {
                stream.insert(segment.offset(), text[header..].to_vec());
            }
        }
    }
    for (offset, payload) in stream {
        // Resegmented data may overlap.
        all.truncate(offset as usize);
        assert_eq!(all.len() as u64, offset, "a piece of the stream is missing");
        all.extend(payload);
    }
    assert!(contains(&all, b"its-name"));
    for piece in sent.chunks(100).step_by(30) {
        assert!(contains(&all, piece), "the stream has what was sent");
    }
}

#[test]
fn unknown_senders_and_receivers_are_refused_by_name() {
    let folder = Folder::new("known");
    let out = folder.path("out");
    let (ours, theirs) = (folder.path("ours"), folder.path("theirs"));
    let print = |identity: &str| own_fingerprint(&["--identity", identity]);
    let known = print(&ours);
    assert_eq!(print(&ours), known, "it is made once");
    let receiver = Receiver::start(&["--out", &out, "--client", &known]);
    let to = receiver.known(&receiver.address);
    let refused = |to: &str, more: &[&str], says: &str| {
        let output = send(&[&[to, "--bytes", "10kB"], more].concat());
        let text = said(&output);
        assert!(
            output.status.code() == Some(1) && text.contains(says),
            "{says}: {text}"
        );
    };
    refused(
        &to,
        &["--identity", &theirs],
        "does not accept this host's certificate",
    );
    let other = format!("{}#{}", receiver.address, print(&theirs));
    refused(
        &other,
        &["--identity", &ours],
        "its certificate has another fingerprint",
    );
    let summary = json(&send(&[
        &to,
        "--bytes",
        "10kB",
        "--identity",
        &ours,
        "--json",
    ]));
    assert_eq!(
        (&summary["encrypted"], &summary["bytes"]),
        (&true.into(), &10_000.into())
    );
    assert_eq!(receiver.end().0, 0);
    assert_eq!(folder.names(), ["ours", "out", "theirs"]);
}

#[test]
fn hidden_files_are_accepted_only_from_known_senders() {
    let folder = Folder::new("hidden");
    let (file, out) = (folder.file(".profile", 100), folder.path("out"));
    fs::create_dir(&out).unwrap();
    let receiver = Receiver::start(&["--out", &out, "--once"]);
    let output = send(&[&receiver.address, &file]);
    let text = said(&output);
    assert!(
        output.status.code() == Some(1)
            && text.contains("only from senders given with `recv --client`"),
        "{text}"
    );
    assert_eq!(receiver.end().0, 1);
    let receiver = Receiver::start(&["--out", &out, "--once", "--client", &own_fingerprint(&[])]);
    json(&send(&[&receiver.address, &file, "--json"]));
    assert_eq!(receiver.end().0, 0);
    assert!(Path::new(&out).join(".profile").exists());
}

#[test]
fn a_datagram_of_version_1_is_logged_by_the_receiver() {
    let folder = Folder::new("version");
    let receiver = Receiver::start(&["--out", &folder.path("out")]);
    let old = UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut hello = vec![0; 1400];
    hello[0] = 0x13;
    for _ in 0..2 {
        old.send_to(&hello, &receiver.address).unwrap();
    }
    std::thread::sleep(Duration::from_millis(500));
    receiver.signal("-INT");
    let (_, text) = receiver.end();
    assert!(text.contains("has version 1 instead of 3"), "{text}");
}
