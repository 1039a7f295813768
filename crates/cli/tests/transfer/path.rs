//! Paths that do not carry full-sized packets, from the start or after a change.

use super::*;
use crate::common::RoutedPath;

/// Relays datagrams of at most this size between clients and a server, and silently drops larger
/// ones.
fn narrow_relay(server: &str, most: usize) -> String {
    let server: std::net::SocketAddr = server.parse().unwrap();
    let front = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = front.local_addr().unwrap().to_string();
    let back = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (front_2, back_2) = (front.try_clone().unwrap(), back.try_clone().unwrap());
    let client = std::sync::Arc::new(std::sync::Mutex::new(None));
    let known = std::sync::Arc::clone(&client);
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok((length, from)) = front.recv_from(&mut buffer) {
            *known.lock().unwrap() = Some(from);
            if length <= most {
                let _ = back.send_to(&buffer[..length], server);
            }
        }
    });
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok((length, _)) = back_2.recv_from(&mut buffer) {
            if let (true, Some(client)) = (length <= most, *client.lock().unwrap()) {
                let _ = front_2.send_to(&buffer[..length], client);
            }
        }
    });
    address
}

#[test]
fn the_path_mtu_is_found_without_answers_to_full_packets() {
    let folder = Folder::new("narrow");
    let file = folder.file("f", 2_000_000);
    for (most, found, options) in [
        // A tunnel's MTU of 1420, an MTU of 1300 that is in no table, jumbo frames on ordinary
        // Ethernet, and an MTU just above the minimum.
        (1420 - 28, 1420, &[][..]),
        (1300 - 28, 1280, &["--alg", "native:reno"]),
        (1500 - 28, 1500, &["--mtu", "9000"]),
        (600, 576, &["--alg", "native:cubic"]),
    ] {
        let out = folder.path("out");
        // The narrowest path, combined with a cookie (`--retry`).
        let more = if found == 576 { &["--retry"][..] } else { &[] };
        let receiver = Receiver::start(&[&["--out", &out, "--force"], more].concat());
        let relay = narrow_relay(&receiver.address, most);
        let summary = json(&send(
            &[&[&receiver.known(&relay), file.as_str(), "--json"], options].concat(),
        ));
        assert_eq!(summary["packet_bytes"], found, "{summary}");
        assert_eq!(receiver.end().0, 0);
        assert_eq!(fs::read(&file).unwrap(), fs::read(&out).unwrap());
    }
}

#[test]
fn a_path_that_becomes_narrower_in_the_middle_is_noticed() {
    if !is_root("a_path_that_becomes_narrower_in_the_middle_is_noticed") {
        return;
    }
    let folder = Folder::new("hole");
    let (file, out) = (folder.file("f", 6_000_000), folder.path("out"));
    let routed = RoutedPath::new("narrow", 71);
    let [a, _, b] = &routed.names;
    let binary = env!("CARGO_BIN_EXE_ccplane");
    let inside = |namespace: &str, arguments: &[&str]| {
        let mut command = Command::new("ip");
        command.args([&["netns", "exec", namespace, binary], arguments].concat());
        command
            .env_remove("CCPLANE_LOG")
            .env("XDG_CONFIG_HOME", env!("CARGO_TARGET_TMPDIR"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let receiver = inside(b, &["recv", "--listen", "10.71.2.1:4790", "--out", &out]);
    std::thread::sleep(Duration::from_millis(500));
    let options = ["--max-rate", "20mbit", "--insecure", "--json"];
    let sender = inside(
        a,
        &[&["send", "10.71.2.1:4790", &file], &options[..]].concat(),
    );
    std::thread::sleep(Duration::from_millis(1000));
    // The router drops packets that are too large, and its ICMP errors are lost.
    routed.drop_icmp();
    routed.set_mtu(1300);
    let output = sender.wait_with_output().unwrap();
    let summary = json(&output);
    // The base size that every path carries, or the result of the search from there by the end.
    let carried = summary["packet_bytes"].as_u64();
    assert!(matches!(carried, Some(1260 | 1280)), "{summary}");
    let output = receiver.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(fs::read(&file).unwrap(), fs::read(&out).unwrap());
    drop(routed);
}
