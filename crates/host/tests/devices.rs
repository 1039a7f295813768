//! Namespaces and devices in the running kernel.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::common::namespace;
use ccplane_host::{
    Error, Frame, Head, Joiner, MainRoute, Namespace, Offload, Tun, add_default_route,
    interface_stats, mtu, remove_stale_names, set_mtu,
};
use nix::poll::{PollFd, PollFlags, poll};

fn v4(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 99, 0, last))
}

/// Retries until `ask` returns a value. Between fork and exec a child of another test holds copies
/// of all descriptors, so a device may outlive its owner for a moment.
#[expect(
    clippy::disallowed_methods,
    reason = "the kernel has no notification, so this polls"
)]
fn soon<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    for _ in 0..5_000 {
        if let Some(answer) = ask() {
            return answer;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("timeout after five seconds");
}

/// Retries while a copy of the device's descriptor is open.
fn when_free<T>(mut ask: impl FnMut() -> Result<T, Error>) -> T {
    soon(|| match ask() {
        Err(Error::InUse { .. }) => None,
        answer => Some(answer.expect("no process holds the device")),
    })
}

/// Returns the next frame that the namespace sends.
fn read(tun: &Tun) -> Vec<u8> {
    let mut buffer = vec![0; 2_000];
    loop {
        poll(
            &mut [PollFd::new(tun.as_fd(), PollFlags::POLLIN)],
            5_000_u16,
        )
        .expect("one descriptor");
        let length = tun
            .read(&mut buffer)
            .expect("the device is up")
            .expect("a packet within five seconds");
        let packet = Frame::packet(&buffer);
        // Skips the kernel's own reports to IPv6 multicast groups.
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
            .expect("the test's namespace")
            .expect("root has permission")
    };
    let tuns = [
        open(&one, [(v4(1), 30), (v6(1), 64)]),
        open(&other, [(v4(2), 30), (v6(2), 64)]),
    ];
    for to in [v4(2), v6(2)].into_iter().take(families) {
        let bind = |address| UdpSocket::bind((address, 0)).expect("its address is there");
        let any = if to.is_ipv4() { v4(1) } else { v6(1) };
        let sender = one.run(|| bind(any)).expect("the test's namespace");
        let receiver = other.run(|| bind(to)).expect("the test's namespace");
        receiver
            .set_read_timeout(Some(Duration::from_secs(5)))
            .expect("not zero");
        sender
            .send_to(b"hello", receiver.local_addr().expect("bound"))
            .expect("send");
        tuns[1]
            .write([&read(&tuns[0]), &[]])
            .expect("a good packet");
        let mut buffer = [0; 8];
        assert_eq!(receiver.recv(&mut buffer).expect("the packet was sent"), 5);
    }
    // Other destinations use the default route.
    let sender = one
        .run(|| UdpSocket::bind((v4(1), 0)).expect("bind"))
        .expect("the test's namespace");
    sender
        .send_to(b"far", ("192.0.2.1", 9))
        .expect("there is a route");
    assert_eq!(Frame::packet(&read(&tuns[0]))[16..20], [192, 0, 2, 1]);
}

#[test]
fn a_persistent_device_outlives_its_owner_and_is_taken_over() {
    let Some(namespace) = namespace("persistent") else {
        return;
    };
    let work = || {
        let name = "site0";
        let tun = Tun::persistent(name, 1_400, &[(v4(1), 30)], Offload::Segmentation)
            .expect("root has permission");
        assert!(!tun.adopted());
        let again = Tun::persistent(name, 1_400, &[(v4(1), 30)], Offload::None);
        assert!(matches!(again, Err(Error::InUse { .. })), "{again:?}");
        assert!(matches!(Tun::remove(name), Err(Error::InUse { .. })));
        // A persistent device of another owner still blocks `create`.
        let new = Tun::create(name, 1_400, &[], Offload::None);
        assert!(matches!(new, Err(Error::Exists { .. })), "{new:?}");
        drop(tun);

        // The device exists, with its address; packets sent meanwhile are lost.
        assert_eq!(mtu(name).expect("it exists"), 1_400);
        let socket = UdpSocket::bind((v4(1), 0)).expect("its address is there");
        let _ = socket.send_to(b"lost", (v4(2), 9));

        // No offload of the previous owner remains.
        let tun = when_free(|| Tun::persistent(name, 1_300, &[(v4(1), 30)], Offload::None));
        assert!(tun.adopted() && !tun.supports_udp_segmentation());
        assert_eq!(mtu(name).expect("it exists"), 1_300);
        set_mtu(name, 1_350).expect("it exists");
        assert_eq!(mtu(name).expect("it exists"), 1_350);
        // The kernel reopens the queue a moment after the adoption.
        for tries in 0.. {
            assert!(tries < 250, "no packet for five seconds");
            let _ = socket.send_to(b"found", (v4(2), 9));
            if poll(&mut [PollFd::new(tun.as_fd(), PollFlags::POLLIN)], 20_u16)
                .expect("one descriptor")
                > 0
            {
                break;
            }
        }
        let frame = read(&tun);
        assert_eq!(Frame::packet(&frame)[28..], *b"found");
        assert_eq!(frame[0], 0, "with a complete checksum");
        drop(tun);

        assert!(when_free(|| Tun::remove(name)));
        soon(|| interface_stats(name).is_err().then_some(()));
        assert!(mtu(name).is_err());
        assert!(!Tun::remove(name).expect("there is nothing to remove"));
        let foreign = Tun::remove("lo");
        assert!(matches!(foreign, Err(Error::NotTun { .. })), "{foreign:?}");
        let foreign = Tun::persistent("lo", 1_500, &[], Offload::None);
        assert!(matches!(foreign, Err(Error::NotTun { .. })), "{foreign:?}");
    };
    namespace.run(work).expect("the test's namespace");
}

#[test]
fn a_device_that_cannot_be_set_up_does_not_stay() {
    let Some(namespace) = namespace("half") else {
        return;
    };
    let work = || {
        // An MTU that no device can have.
        assert!(Tun::persistent("site0", 1 << 20, &[], Offload::None).is_err());
        soon(|| interface_stats("site0").is_err().then_some(()));
    };
    namespace.run(work).expect("the test's namespace");
}

#[test]
fn of_two_routes_the_lower_metric_is_taken_while_it_is_there() {
    let Some(namespace) = namespace("routes") else {
        return;
    };
    let work = || {
        let v6 = |last| IpAddr::V6(Ipv6Addr::new(0xfd99, 0, 0, last, 0, 0, 0, 1));
        let families = if ccplane_host::has_ipv6() { 2 } else { 1 };
        let open = |name, addresses: [(IpAddr, u8); 2]| {
            Tun::create(name, 1_500, &addresses[..families], Offload::None)
                .expect("root has permission")
        };
        let tuns = [
            open("one", [(v4(1), 30), (v6(1), 64)]),
            open("two", [(v4(5), 30), (v6(2), 64)]),
        ];
        let far: [(IpAddr, IpAddr, u8); 2] = [
            (
                IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77)),
                IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
                24,
            ),
            (
                IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 77)),
                IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
                64,
            ),
        ];
        for (to, destination, prefix) in far.into_iter().take(families) {
            let route = |interface: &str, metric, gateway| MainRoute {
                destination,
                prefix,
                interface: interface.into(),
                gateway,
                metric,
            };
            let gateway = Some(if to.is_ipv4() {
                v4(6)
            } else {
                IpAddr::V6(Ipv6Addr::new(0xfd99, 0, 0, 2, 0, 0, 0, 2))
            });
            let (better, fallback) = (route("one", 50, None), route("two", 700, gateway));
            assert!(fallback.add().expect("a good route"));
            assert!(better.add().expect("a good route"));
            assert!(
                !better.add().expect("a good route") && !fallback.add().expect("a good route"),
                "the devices exist"
            );
            let any: IpAddr = if to.is_ipv4() {
                Ipv4Addr::UNSPECIFIED.into()
            } else {
                Ipv6Addr::UNSPECIFIED.into()
            };
            let through = |tun: &Tun| {
                let socket = UdpSocket::bind((any, 0)).expect("any port");
                socket.send_to(b"far", (to, 9)).expect("there is a route");
                let frame = read(tun);
                let packet = Frame::packet(&frame);
                let sent_to = if to.is_ipv4() { packet[19] } else { packet[39] };
                assert_eq!((sent_to, &packet[packet.len() - 3..]), (77, &b"far"[..]));
            };
            through(&tuns[0]);
            assert!(better.remove().expect("it exists"));
            through(&tuns[1]);
            assert!(
                !better.remove().expect("a good route"),
                "the device is removed"
            );
            assert!(fallback.remove().expect("it exists"));
            let socket = UdpSocket::bind((any, 0)).expect("any port");
            assert!(socket.send_to(b"far", (to, 9)).is_err(), "no route");
        }
        let nowhere = MainRoute {
            destination: v4(0),
            prefix: 30,
            interface: "three".into(),
            gateway: None,
            metric: 1,
        };
        assert!(nowhere.add().is_err(), "no such interface");
    };
    namespace.run(work).expect("the test's namespace");
}

/// The path through a gateway: frames of one site are segmented into wire packets, which are joined
/// at the other.
#[test]
fn datagrams_that_were_taken_apart_and_joined_are_received_as_they_were_sent() {
    let (Some(one), Some(other)) = (namespace("apart"), namespace("joined")) else {
        return;
    };
    let v6 = |last| IpAddr::V6(Ipv6Addr::new(0xfd99, 0, 0, 0, 0, 0, 0, last));
    let families = if ccplane_host::has_ipv6() { 2 } else { 1 };
    let open = |namespace: &Namespace, addresses: [(IpAddr, u8); 2], offload| {
        let open = || Tun::create("link0", 1_400, &addresses[..families], offload);
        namespace
            .run(open)
            .expect("the test's namespace")
            .expect("root has permission")
    };
    let from = open(&one, [(v4(1), 30), (v6(1), 64)], Offload::Segmentation);
    let to = open(&other, [(v4(2), 30), (v6(2), 64)], Offload::Segmentation);
    for (source, destination) in [(v4(1), v4(2)), (v6(1), v6(2))].into_iter().take(families) {
        let receiver =
            other.run(|| UdpSocket::bind((destination, 0)).expect("its address is there"));
        let receiver = receiver.expect("the test's namespace");
        receiver
            .set_read_timeout(Some(Duration::from_secs(5)))
            .expect("not zero");
        let sender = one.run(|| UdpSocket::bind((source, 0)).expect("its address is there"));
        let sender = sender.expect("the test's namespace");
        // Connected, so that identifications count up.
        sender
            .connect(receiver.local_addr().expect("bound"))
            .expect("there is a route");
        let datagrams: Vec<Vec<u8>> = (0..20_u8)
            .map(|n| vec![n; if n == 19 { 500 } else { 1_000 }])
            .collect();
        let mut joiner = Joiner::new(to.supports_udp_segmentation());
        let mut frames = 0;
        let mut write = |joiner: &mut Joiner| {
            if let Some(frame) = joiner.finish() {
                to.write([frame, &[]]).expect("a good frame");
                frames += 1;
            }
        };
        for datagram in &datagrams {
            sender.send(datagram).expect("send");
            let bytes = read(&from);
            let frame = Frame::parse(&bytes).expect("the kernel's own");
            for index in 0..frame.packets() {
                let mut head = Head::default();
                let packet = frame
                    .write_packet(&bytes, index, false, &mut head)
                    .expect("the kernel's own")
                    .concat();
                if !joiner.add(&packet).expect("a packet") {
                    write(&mut joiner);
                    joiner.add(&packet).expect("a packet");
                }
            }
        }
        write(&mut joiner);
        let mut buffer = [0; 2_000];
        for datagram in &datagrams {
            let length = receiver.recv(&mut buffer).expect("the packet was sent");
            assert_eq!(buffer[..length], datagram[..]);
        }
        if to.supports_udp_segmentation() {
            assert_eq!(frames, 1, "{destination}: all in one");
        }
    }
}

#[test]
fn unread_packets_are_dropped_and_counted() {
    let Some(namespace) = namespace("unread") else {
        return;
    };
    let (before, after) = namespace
        .run(|| {
            let _tun = Tun::create("link0", 1_500, &[(v4(1), 30)], Offload::None)
                .expect("root has permission");
            let before = interface_stats("link0").expect("it exists");
            let socket = UdpSocket::bind((v4(1), 0)).expect("bind");
            for _ in 0..10_300 {
                socket.send_to(&[0; 8], (v4(2), 9)).expect("send");
            }
            (before, interface_stats("link0").expect("it exists"))
        })
        .expect("the test's namespace");
    // The excess over a queue of 10,000.
    assert_eq!(after.tx_dropped - before.tx_dropped, 300);
}

#[test]
fn a_command_starts_inside() {
    let Some(namespace) = namespace("inside") else {
        return;
    };
    namespace
        .set_sysctl("net/ipv4/tcp_rmem", "4096 8192 16384")
        .expect("it is the namespace's own");
    let mut command = Command::new("cat");
    command.args(["/proc/net/dev", "/proc/sys/net/ipv4/tcp_rmem"]);
    let output = namespace
        .enter_on_spawn(&mut command)
        .expect("a descriptor")
        .output()
        .expect("every host has cat");
    let text = String::from_utf8(output.stdout).expect("numbers");
    assert!(
        text.contains("lo:") && !text.contains("eth") && text.contains("16384"),
        "{text}"
    );
    assert!(
        namespace
            .set_sysctl("net/ipv4/no_such_variable", "1")
            .is_err()
    );
}

#[test]
fn a_name_lives_as_long_as_its_namespace_and_sweeping_spares_it() {
    let Some(namespace) = namespace("name") else {
        return;
    };
    let path = Path::new("/run/netns").join(namespace.name());
    let copy = namespace.clone();
    drop(namespace);
    // A name created by another program with `ip netns add` is a plain file.
    let foreign = Path::new("/run/netns").join(format!("ccplane-{}-foreign", std::process::id()));
    fs::write(&foreign, "").expect("root may");
    let orphan = Path::new("/run/netns").join(format!("ccplane-{}-orphan", std::process::id()));
    std::os::unix::fs::symlink("/proc/self/fd/no", &orphan).expect("root may");
    // Another test may sweep first as it starts.
    remove_stale_names();
    let (orphan, foreign_kept) = (orphan.is_symlink(), foreign.exists());
    let _ = fs::remove_file(&foreign);
    assert!(!orphan && foreign_kept && fs::File::open(&path).is_ok());
    drop(copy);
    assert!(!path.is_symlink());
}

#[test]
fn bad_names_are_refused() {
    for name in ["", "ccplane-", "mine", "ccplane-a/b", "ccplane-../../etc"] {
        assert!(
            matches!(Namespace::create(name), Err(Error::BadName { .. })),
            "{name}"
        );
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
