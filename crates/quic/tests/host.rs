//! Transfers over loopback, by real sockets and an algorithm in a thread of its own.
#![cfg(feature = "host")]
#![expect(clippy::disallowed_methods, reason = "a test of a driver has a clock")]

use std::time::{Duration as Real, Instant};

use ccplane_algorithms::{Parameters, Registry};
use ccplane_identity::Identity;
use ccplane_quic::host::{Congestion, Host, Native, Options};
use ccplane_quic::{Limits, Plane, Stack};
use ccplane_units::Duration;

const SOON: Duration = Duration::from_millis(20);
const LATE: Real = Real::from_secs(60);

fn options() -> Options {
    Options {
        local: ([127, 0, 0, 1], 0).into(),
        window: 8 << 20,
        idle_timeout: Some(Duration::from_secs(5)),
        max_rate: None,
        qlog: None,
        most: 1_000,
        accepted: Congestion::Native(Native::Cubic),
    }
}

fn plane(name: &str) -> Plane {
    let algorithm = Registry::builtin().by_name(name, &Parameters::default()).unwrap();
    Plane::in_process(Stack::Noq, algorithm, Limits::default()).unwrap()
}

/// The byte at a place of the pattern that is sent.
fn pattern(place: u64) -> u8 {
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Sends so many bytes from the second host to the first, on as many connections as wanted.
fn carry(hosts: &mut [Host; 2], identity: &Identity, congestion: &Congestion, bytes: u64, connections: usize) {
    let to = hosts[0].local();
    let ids: Vec<u64> = (0..connections)
        .map(|_| hosts[1].connect(to, Some(identity.fingerprint()), congestion).unwrap())
        .collect();
    let (mut written, mut taken) = (vec![0u64; connections], vec![0u64; connections]);
    let mut accepted = Vec::new();
    let late = Instant::now() + LATE;
    while taken.iter().any(|taken| *taken < bytes) || ids.iter().any(|id| !hosts[1].has_sent_all(*id)) {
        assert!(Instant::now() < late, "{taken:?} of {bytes}");
        for (id, written) in ids.iter().zip(&mut written) {
            assert_eq!(hosts[1].failure(*id), None);
            while *written < bytes {
                let piece: Vec<u8> = (*written..bytes.min(*written + 16_384)).map(pattern).collect();
                match hosts[1].write(*id, &piece) {
                    0 => break,
                    count => *written += count as u64,
                }
            }
            if *written == bytes {
                hosts[1].finish(*id);
            }
        }
        Host::turn_all(hosts, SOON).unwrap();
        while let Some(id) = hosts[0].accepted() {
            accepted.push(id);
        }
        for (id, taken) in accepted.iter().zip(&mut taken) {
            hosts[0].read(*id, usize::MAX, |chunk| {
                assert!(chunk.iter().zip(*taken..).all(|(byte, place)| *byte == pattern(place)));
                *taken += chunk.len() as u64;
            });
        }
    }
    ids.iter().for_each(|id| hosts[1].close(*id, true));
    accepted.iter().for_each(|id| hosts[0].close(*id, true));
    while hosts.iter().any(|host| host.count() > 0) {
        assert!(Instant::now() < late, "a connection does not end");
        Host::turn_all(hosts, SOON).unwrap();
    }
}

#[test]
fn what_is_sent_arrives_whoever_decides_the_window() {
    let identity = Identity::new().unwrap();
    for congestion in [
        Congestion::Native(Native::NewReno),
        Congestion::Native(Native::Bbr3),
        Congestion::Steered(plane("cubic")),
        Congestion::Steered(plane("copa")),
        Congestion::Steered(plane("bbr3")),
    ] {
        let mut hosts = [
            Host::listen(options(), &identity).unwrap(),
            Host::bind(options()).unwrap(),
        ];
        carry(&mut hosts, &identity, &congestion, 5_000_000, 1);
        if let Congestion::Steered(plane) = &congestion {
            let stats = plane.stats();
            assert_eq!((stats.opened, stats.closed), (1, 1));
            assert!(stats.reports > 0, "{stats:?}");
        }
    }
}

#[test]
fn a_hundred_connections_open_and_close_as_many_flows() {
    let identity = Identity::new().unwrap();
    let plane = plane("reno");
    let mut hosts = [
        Host::listen(options(), &identity).unwrap(),
        Host::bind(options()).unwrap(),
    ];
    carry(&mut hosts, &identity, &Congestion::Steered(plane.clone()), 50_000, 100);
    let stats = plane.stats();
    assert_eq!((stats.opened, stats.closed), (100, 100), "{stats:?}");
}

#[test]
fn a_server_of_another_fingerprint_is_refused() {
    let (identity, other) = (Identity::new().unwrap(), Identity::new().unwrap());
    let mut hosts = [
        Host::listen(options(), &identity).unwrap(),
        Host::bind(options()).unwrap(),
    ];
    let to = hosts[0].local();
    let id = hosts[1]
        .connect(to, Some(other.fingerprint()), &Congestion::Native(Native::Cubic))
        .unwrap();
    let late = Instant::now() + LATE;
    while hosts[1].failure(id).is_none() {
        assert!(Instant::now() < late && !hosts[1].is_connected(id));
        Host::turn_all(&mut hosts, SOON).unwrap();
    }
    let why = hosts[1].failure(id).unwrap().to_string();
    assert!(why.contains("certificate"), "{why}");
}

#[test]
fn the_threads_of_a_plane_end_with_it() {
    let threads = || {
        std::fs::read_dir("/proc/self/task")
            .unwrap()
            .filter(|task| {
                let name = task.as_ref().unwrap().path().join("comm");
                std::fs::read_to_string(name).is_ok_and(|name| name.starts_with("ccplane-quic"))
            })
            .count()
    };
    let plane = plane("cubic");
    assert!(threads() > 0);
    drop(plane);
    let late = Instant::now() + LATE;
    while threads() > 0 && Instant::now() < late {
        std::thread::sleep(Real::from_millis(20));
    }
    // Other tests have planes of their own; theirs end too.
    assert_eq!(threads(), 0);
}
