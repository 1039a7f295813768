//! Namespaces and devices as the kernel makes them.

mod common;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ccplane_host::{Error, Frame, Namespace, Offload, Tun, add_default_route, interface_stats, sweep};
use common::namespace;
use nix::poll::{PollFd, PollFlags, poll};

fn v4(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 99, 0, last))
}

/// The next frame that the namespace sends.
fn read(tun: &Tun) -> Vec<u8> {
    let mut buffer = vec![0; 2_000];
    loop {
        poll(&mut [PollFd::new(tun.as_fd(), PollFlags::POLLIN)], 5_000_u16).expect("one descriptor");
        let length = tun
            .read(&mut buffer)
            .expect("it is up")
            .expect("a packet within five seconds");
        let packet = Frame::packet(&buffer);
        // Not the kernel's own reports to IPv6 multicast groups.
        if packet[0] >> 4 == 4 || packet[24] != 0xff {
            buffer.truncate(length);
            return buffer;
        }
    }
}

#[test]
fn packets_pass_between_two_devices() {
    let (Some(one), Some(other)) = (namespace("one"), namespace("other")) else {
        return;
    };
    let v6 = |last| IpAddr::V6(Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, last));
    let families = if ccplane_host::has_ipv6() { 2 } else { 1 };
    let open = |namespace: &Namespace, addresses: [(IpAddr, u8); 2]| {
        let open = || {
            let tun = Tun::create("link0", 1_400, &addresses[..families], Offload::None)?;
            add_default_route("link0", addresses[0].0)?;
            Ok::<Tun, Error>(tun)
        };
        namespace
            .run(open)
            .expect("our own namespace")
            .expect("root may do this")
    };
    let tuns = [
        open(&one, [(v4(1), 30), (v6(1), 64)]),
        open(&other, [(v4(2), 30), (v6(2), 64)]),
    ];
    for to in [v4(2), v6(2)].into_iter().take(families) {
        let bind = |address| UdpSocket::bind((address, 0)).expect("its address is there");
        let any = if to.is_ipv4() { v4(1) } else { v6(1) };
        let sender = one.run(|| bind(any)).expect("our own namespace");
        let receiver = other.run(|| bind(to)).expect("our own namespace");
        receiver
            .set_read_timeout(Some(Duration::from_secs(5)))
            .expect("not zero");
        sender
            .send_to(b"hello", receiver.local_addr().expect("bound"))
            .expect("send");
        tuns[1].write([&read(&tuns[0]), &[]]).expect("a good packet");
        let mut buffer = [0; 8];
        assert_eq!(receiver.recv(&mut buffer).expect("it was written"), 5);
    }
    // Anything else goes to the default route.
    let sender = one
        .run(|| UdpSocket::bind((v4(1), 0)).expect("bind"))
        .expect("our own namespace");
    sender.send_to(b"far", ("192.0.2.1", 9)).expect("there is a route");
    assert_eq!(Frame::packet(&read(&tuns[0]))[16..20], [192, 0, 2, 1]);
}

#[test]
fn what_nobody_reads_is_dropped_and_counted() {
    let Some(namespace) = namespace("unread") else { return };
    let (before, after) = namespace
        .run(|| {
            let _tun = Tun::create("link0", 1_500, &[(v4(1), 30)], Offload::None).expect("root may do this");
            let before = interface_stats("link0").expect("it is there");
            let socket = UdpSocket::bind((v4(1), 0)).expect("bind");
            for _ in 0..10_300 {
                socket.send_to(&[0; 8], (v4(2), 9)).expect("send");
            }
            (before, interface_stats("link0").expect("it is there"))
        })
        .expect("our own namespace");
    // What does not fit a queue of 10 000.
    assert_eq!(after.tx_dropped - before.tx_dropped, 300);
}

#[test]
fn a_command_starts_inside() {
    let Some(namespace) = namespace("inside") else { return };
    namespace
        .set_sysctl("net/ipv4/tcp_rmem", "4096 8192 16384")
        .expect("it is the namespace's own");
    let mut command = Command::new("cat");
    command.args(["/proc/net/dev", "/proc/sys/net/ipv4/tcp_rmem"]);
    let output = namespace
        .confine(&mut command)
        .expect("a descriptor")
        .output()
        .expect("cat is everywhere");
    let text = String::from_utf8(output.stdout).expect("numbers");
    assert!(
        text.contains("lo:") && !text.contains("eth") && text.contains("16384"),
        "{text}"
    );
    assert!(namespace.set_sysctl("net/ipv4/no_such_variable", "1").is_err());
}

#[test]
fn a_name_lives_as_long_as_its_namespace_and_sweeping_spares_it() {
    let Some(namespace) = namespace("name") else { return };
    let path = Path::new("/run/netns").join(namespace.name());
    let copy = namespace.clone();
    drop(namespace);
    // Somebody else's, made by `ip netns add`, is a plain file.
    let foreign = Path::new("/run/netns").join(format!("ccplane-{}-foreign", std::process::id()));
    fs::write(&foreign, "").expect("root may");
    let orphan = Path::new("/run/netns").join(format!("ccplane-{}-orphan", std::process::id()));
    std::os::unix::fs::symlink("/proc/self/fd/no", &orphan).expect("root may");
    // Another test's start may sweep first.
    sweep();
    let (orphan, foreign_kept) = (orphan.is_symlink(), foreign.exists());
    let _ = fs::remove_file(&foreign);
    assert!(!orphan && foreign_kept && fs::File::open(&path).is_ok());
    drop(copy);
    assert!(!path.is_symlink());
}

#[test]
fn bad_names_are_refused() {
    for name in ["", "ccplane-", "mine", "ccplane-a/b", "ccplane-../../etc"] {
        assert!(matches!(Namespace::create(name), Err(Error::BadName { .. })), "{name}");
    }
    let long = Tun::create("sixteen-letters-", 1_500, &[], Offload::None);
    assert!(
        matches!(
            long,
            Err(Error::BadName { .. } | Error::Permission { .. } | Error::NoTunDriver)
        ),
        "{long:?}"
    );
}
