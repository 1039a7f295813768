//! Transfers over loopback with real sockets and an algorithm on a thread of its own.
#![cfg(feature = "host")]
#![expect(clippy::disallowed_methods, reason = "a test of a driver has a clock")]

use std::process::Command;
use std::time::{Duration as Real, Instant};

use ccplane_agent::Agent;
use ccplane_algorithms::{Parameters, Registry};
use ccplane_link::identity::Identity;
use ccplane_link::{AgentAddress, AgentThread, Local};
use ccplane_quic::host::{HostOptions, Native, QuicCongestion, QuicHost, built_in};
use ccplane_quic::{OperatorLimits, QuicPlane, Stack};
use ccplane_units::{Duration, Rate};

const EXPECTED_TIME: Duration = Duration::from_millis(20);
const TIMEOUT: Real = Real::from_secs(60);

fn options(congestion: QuicCongestion) -> HostOptions {
    HostOptions {
        stack: match &congestion {
            QuicCongestion::Steered(plane) => plane.stack(),
            QuicCongestion::Native(_) => Stack::Noq,
        },
        local: ([127, 0, 0, 1], 0).into(),
        window: 8 << 20,
        idle_timeout: Some(Duration::from_secs(5)),
        max_rate: None,
        qlog: None,
        dscp: 0,
        connections_max: 1_000,
        per_address: 1_000,
        congestion,
    }
}

/// Creates a server with the stack's own Cubic and a client with the given congestion control.
fn pair(identity: &Identity, stack: Stack, congestion: &QuicCongestion) -> [QuicHost; 2] {
    let of = |congestion| HostOptions {
        stack,
        ..options(congestion)
    };
    [
        QuicHost::listen(of(QuicCongestion::Native(Native::Cubic)), identity).unwrap(),
        QuicHost::bind(of(congestion.clone()), Some(identity.fingerprint())).unwrap(),
    ]
}

fn plane(stack: Stack, name: &str) -> QuicPlane {
    let algorithm = Registry::builtin()
        .by_name(name, &Parameters::default())
        .unwrap();
    QuicPlane::in_process(stack, algorithm, OperatorLimits::default()).unwrap()
}

/// Returns the stacks that are built in.
fn stacks() -> impl Iterator<Item = Stack> {
    Stack::ALL
        .into_iter()
        .filter(|stack| built_in(*stack).is_ok())
}

/// Returns the byte of the test pattern at this offset.
fn pattern(place: u64) -> u8 {
    (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Sends `bytes` bytes from the second host to the first on each of `connections` connections.
fn carry(hosts: &mut [QuicHost; 2], bytes: u64, connections: usize) {
    let to = hosts[0].local();
    let ids: Vec<u64> = (0..connections)
        .map(|_| hosts[1].connect(to).unwrap())
        .collect();
    let (mut written, mut taken) = (vec![0u64; connections], vec![0u64; connections]);
    let mut accepted = Vec::new();
    // Once: connections whose stream is full would repeat it at every poll.
    let content: Vec<u8> = (0..bytes).map(pattern).collect();
    let late = Instant::now() + TIMEOUT;
    while taken.iter().any(|taken| *taken < bytes)
        || ids.iter().any(|id| !hosts[1].has_sent_all(*id))
    {
        assert!(Instant::now() < late, "{taken:?} of {bytes}");
        for (id, written) in ids.iter().zip(&mut written) {
            assert_eq!(hosts[1].failure(*id), None);
            while *written < bytes {
                let end = bytes.min(*written + 16_384);
                match hosts[1].write(*id, &content[*written as usize..end as usize]) {
                    0 => break,
                    count => *written += count as u64,
                }
            }
            if *written == bytes {
                hosts[1].finish(*id);
            }
        }
        QuicHost::poll_all(hosts, EXPECTED_TIME).unwrap();
        while let Some(id) = hosts[0].accept() {
            accepted.push(id);
        }
        for (id, taken) in accepted.iter().zip(&mut taken) {
            hosts[0].read(*id, usize::MAX, |chunk| {
                assert!(
                    chunk
                        .iter()
                        .zip(*taken..)
                        .all(|(byte, place)| *byte == pattern(place))
                );
                *taken += chunk.len() as u64;
            });
        }
    }
    ids.iter().for_each(|id| hosts[1].close(*id, true));
    accepted.iter().for_each(|id| hosts[0].close(*id, true));
    while hosts.iter().any(|host| host.connection_count() > 0) {
        assert!(Instant::now() < late, "a connection does not end");
        QuicHost::poll_all(hosts, EXPECTED_TIME).unwrap();
    }
}

/// Starts a connection from each of these loopback addresses and abandons it.
fn call_and_leave(host: &mut QuicHost, addresses: impl Iterator<Item = u8>) {
    for address in addresses {
        let from = HostOptions {
            local: ([127, 0, 1, address], 0).into(),
            ..options(QuicCongestion::Native(Native::Cubic))
        };
        let mut caller = QuicHost::bind(from, None).unwrap();
        caller.connect(host.local()).unwrap();
        caller.poll(Duration::ZERO).unwrap();
        host.poll(EXPECTED_TIME).unwrap();
    }
}

#[test]
fn unvalidated_addresses_leave_slots_to_others() {
    let identity = Identity::new().unwrap();
    for stack in stacks() {
        let small = |local| HostOptions {
            stack,
            local,
            connections_max: 16,
            per_address: 4,
            idle_timeout: Some(Duration::from_secs(60)),
            ..options(QuicCongestion::Native(Native::Cubic))
        };
        let mut server = QuicHost::listen(small(([127, 0, 0, 1], 0).into()), &identity).unwrap();
        call_and_leave(&mut server, 1..=100);
        let client = QuicHost::bind(
            small(([127, 0, 0, 1], 0).into()),
            Some(identity.fingerprint()),
        )
        .unwrap();
        let mut hosts = [server, client];
        let to = hosts[0].local();
        let id = hosts[1].connect(to).unwrap();
        let late = Instant::now() + TIMEOUT;
        while !hosts[1].is_connected(id) {
            assert!(
                Instant::now() < late,
                "{stack:?}: no slot: {:?}",
                hosts[1].failure(id)
            );
            assert_eq!(hosts[1].failure(id), None, "{stack:?}");
            QuicHost::poll_all(&mut hosts, EXPECTED_TIME).unwrap();
        }
    }
}

#[test]
fn one_address_holds_no_more_connections_than_its_share() {
    let identity = Identity::new().unwrap();
    let small = HostOptions {
        connections_max: 16,
        per_address: 4,
        ..options(QuicCongestion::Native(Native::Cubic))
    };
    let server = QuicHost::listen(small, &identity).unwrap();
    let to = server.local();
    let client = |last: u8| {
        let from = HostOptions {
            local: ([127, 0, 1, last], 0).into(),
            ..options(QuicCongestion::Native(Native::Cubic))
        };
        QuicHost::bind(from, Some(identity.fingerprint())).unwrap()
    };
    let mut hosts = [server, client(1), client(2)];
    let ids: Vec<u64> = (0..6).map(|_| hosts[1].connect(to).unwrap()).collect();
    let other = hosts[2].connect(to).unwrap();
    let late = Instant::now() + TIMEOUT;
    let mut outcomes = (0, 0);
    while outcomes != (4, 2) || !hosts[2].is_connected(other) {
        assert!(Instant::now() < late, "connected and refused: {outcomes:?}");
        QuicHost::poll_all(&mut hosts, EXPECTED_TIME).unwrap();
        let connected = ids.iter().filter(|id| hosts[1].is_connected(**id)).count();
        let refused = ids
            .iter()
            .filter(|id| hosts[1].failure(**id).is_some())
            .count();
        outcomes = (connected, refused);
    }
}

#[test]
fn data_arrives_under_any_control() {
    let identity = Identity::new().unwrap();
    let of = |stack: Stack, natives: &[Native], names: &[&str]| {
        let natives = natives.iter().copied().map(QuicCongestion::Native);
        let steered = names
            .iter()
            .map(|name| QuicCongestion::Steered(plane(stack, name)));
        natives.chain(steered).collect::<Vec<QuicCongestion>>()
    };
    for stack in stacks() {
        let all = match stack {
            Stack::Noq => of(
                stack,
                &[Native::NewReno, Native::Bbr3],
                &["cubic", "copa", "bbr3"],
            ),
            Stack::Quinn => of(stack, &[Native::NewReno, Native::Bbr], &["cubic", "reno"]),
            Stack::S2n => of(
                stack,
                &[Native::Cubic, Native::Bbr2],
                &["cubic", "copa", "dctcp"],
            ),
        };
        for congestion in all {
            let mut hosts = pair(&identity, stack, &congestion);
            carry(&mut hosts, 5_000_000, 1);
            drop(hosts);
            if let QuicCongestion::Steered(plane) = &congestion {
                ends(plane, 1);
                assert!(plane.stats().reports > 0, "{stack:?}: {:?}", plane.stats());
            }
        }
    }
}

/// Waits until `flows` flows were opened and closed.
fn ends(plane: &QuicPlane, flows: u64) {
    let late = Instant::now() + TIMEOUT;
    while plane.stats().closed < flows && Instant::now() < late {
        std::thread::sleep(Real::from_millis(10));
    }
    let stats = plane.stats();
    assert_eq!((stats.opened, stats.closed), (flows, flows), "{stats:?}");
}

#[test]
fn a_hundred_connections_open_and_close_as_many_flows() {
    let identity = Identity::new().unwrap();
    for stack in stacks() {
        let plane = plane(stack, "reno");
        let mut hosts = pair(&identity, stack, &QuicCongestion::Steered(plane.clone()));
        carry(&mut hosts, 50_000, 100);
        drop(hosts);
        ends(&plane, 100);
    }
}

#[test]
fn two_planes_at_one_agents_socket_are_both_steered() {
    let identity = Identity::new().unwrap();
    let path = std::env::temp_dir().join(format!("ccplane-quic-{}.sock", std::process::id()));
    let mut agent = Agent::new(Default::default());
    let cubic = Registry::builtin()
        .by_name("cubic", &Parameters::default())
        .unwrap();
    agent.add_boxed(cubic).unwrap();
    let thread = AgentThread::start("agent", agent, Local::bind(&path).unwrap()).unwrap();
    let address: AgentAddress = format!("unix:{}", path.display()).parse().unwrap();
    let planes: Vec<QuicPlane> = (stacks().chain([Stack::Noq]))
        .map(|stack| {
            QuicPlane::with_agent(stack, &address, "cubic", OperatorLimits::default()).unwrap()
        })
        .collect();
    // Run in parallel: flows of all planes have the same numbers.
    std::thread::scope(|scope| {
        for plane in &planes {
            let identity = &identity;
            scope.spawn(move || {
                let mut hosts = pair(
                    identity,
                    plane.stack(),
                    &QuicCongestion::Steered(plane.clone()),
                );
                carry(&mut hosts, 2_000_000, 2);
            });
        }
    });
    for plane in &planes {
        ends(plane, 2);
        assert!(
            plane.stats().reports > 0 && plane.stats().fallbacks == 0,
            "{:?}",
            plane.stats()
        );
    }
    drop(planes);
    thread.stop_and_join(Duration::from_secs(2));
    assert!(!path.exists(), "the socket file remains");
}

#[test]
fn a_server_of_another_fingerprint_is_refused() {
    let (identity, other) = (Identity::new().unwrap(), Identity::new().unwrap());
    for stack in stacks() {
        let congestion = QuicCongestion::Native(Native::Cubic);
        let [listening, _] = pair(&identity, stack, &congestion);
        let [_, opening] = pair(&other, stack, &congestion);
        let mut hosts = [listening, opening];
        let to = hosts[0].local();
        let id = hosts[1].connect(to).unwrap();
        let late = Instant::now() + TIMEOUT;
        while hosts[1].failure(id).is_none() {
            assert!(
                Instant::now() < late && !hosts[1].is_connected(id),
                "{stack:?}"
            );
            QuicHost::poll_all(&mut hosts, EXPECTED_TIME).unwrap();
        }
        let why = hosts[1].failure(id).unwrap();
        assert!(why.contains("certificate"), "{stack:?}: {why}");
    }
}

#[test]
fn algorithms_beyond_the_stack_are_refused_by_name() {
    let identity = Identity::new().unwrap();
    for stack in Stack::ALL {
        let feature = match built_in(stack) {
            Ok(()) => continue,
            Err(why) => why.to_string(),
        };
        let options = HostOptions {
            stack,
            ..options(QuicCongestion::Native(Native::Cubic))
        };
        let why = QuicHost::listen(options, &identity)
            .err()
            .unwrap()
            .to_string();
        assert!(
            why == feature && why.contains("feature `") && why.contains(stack.name()),
            "{why}"
        );
    }
    for stack in stacks() {
        let native = if stack == Stack::Noq {
            Native::Bbr2
        } else {
            Native::Bbr3
        };
        let wanted = HostOptions {
            stack,
            ..options(QuicCongestion::Native(native))
        };
        let why = QuicHost::listen(wanted, &identity)
            .err()
            .unwrap()
            .to_string();
        assert!(
            why.contains(stack.name()) && why.contains("use one of"),
            "{why}"
        );
        let limited = HostOptions {
            stack,
            max_rate: Some(Rate::from_bits_per_sec(1_000_000)),
            ..options(QuicCongestion::Native(Native::Cubic))
        };
        match QuicHost::bind(limited, None) {
            Ok(_) => assert_eq!(stack, Stack::Noq),
            Err(why) => assert!(
                stack != Stack::Noq && why.to_string().contains("cannot limit the rate"),
                "{why}"
            ),
        }
        let marked = HostOptions {
            stack,
            dscp: 1,
            ..options(QuicCongestion::Native(Native::Cubic))
        };
        match QuicHost::bind(marked, None) {
            Ok(_) => assert_eq!(stack, Stack::Noq),
            Err(why) => assert!(
                stack != Stack::Noq && why.to_string().contains("cannot set the DSCP"),
                "{why}"
            ),
        }
        let listening = &mut pair(&identity, stack, &QuicCongestion::Native(Native::Cubic))[0];
        let why = listening
            .connect(listening.local())
            .unwrap_err()
            .to_string();
        assert!(why.contains("accepts connections"), "{why}");
    }
}

/// The limit includes connections in a handshake.
#[test]
fn excess_connections_are_refused() {
    let identity = Identity::new().unwrap();
    for stack in stacks() {
        let of = |most| HostOptions {
            stack,
            connections_max: most,
            ..options(QuicCongestion::Native(Native::Cubic))
        };
        let mut hosts = [
            QuicHost::listen(of(1), &identity).unwrap(),
            QuicHost::bind(of(10), Some(identity.fingerprint())).unwrap(),
        ];
        let to = hosts[0].local();
        let ids: Vec<u64> = (0..3).map(|_| hosts[1].connect(to).unwrap()).collect();
        let late = Instant::now() + TIMEOUT;
        loop {
            QuicHost::poll_all(&mut hosts, EXPECTED_TIME).unwrap();
            let failed = ids
                .iter()
                .filter(|id| hosts[1].failure(**id).is_some())
                .count();
            let connected = ids.iter().filter(|id| hosts[1].is_connected(**id)).count();
            if (failed, connected) == (2, 1) {
                break;
            }
            assert!(
                Instant::now() < late,
                "{stack:?}: {failed} refused, {connected} connected"
            );
        }
    }
}

#[test]
fn the_threads_of_a_plane_end_with_it() {
    // In a process of its own, since other tests have planes with threads of the same name.
    let name = "threads_end_with_their_plane";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", name, "--nocapture"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
#[ignore = "child: the process of the_threads_of_a_plane_end_with_it"]
fn threads_end_with_their_plane() {
    let threads = || {
        std::fs::read_dir("/proc/self/task")
            .unwrap()
            .filter(|task| {
                let name = task.as_ref().unwrap().path().join("comm");
                std::fs::read_to_string(name).is_ok_and(|name| name.starts_with("ccplane-quic"))
            })
            .count()
    };
    let until = |what: &str, holds: &dyn Fn() -> bool| {
        let late = Instant::now() + TIMEOUT;
        while !holds() {
            assert!(Instant::now() < late, "not within {TIMEOUT:?}: {what}");
            std::thread::sleep(Real::from_millis(20));
        }
    };
    let plane = plane(Stack::Noq, "cubic");
    // A thread sets its name only once it runs.
    until("a thread of the plane", &|| threads() > 0);
    drop(plane);
    until("the end of the threads", &|| threads() == 0);
}
