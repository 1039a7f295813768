//! Real sockets on loopback and real certificates. One thread runs both ends alternately and
//! controls the time.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration as StdDuration, Instant, SystemTime};

use ccplane_agent::datapath::{Datapath, DatapathCore};
use ccplane_agent::{Agent, AgentOptions, DatapathInfo, ProgramTables};
use ccplane_datapath::{Capabilities, OperatorLimits, Signals, SteeredFlow, Transport};
use ccplane_units::{Duration, Time};
use ccplane_wire::framed::{self, Hello};
use ccplane_wire::{FlowInfo, Tags, WireCommand, WireEvent, v2};
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

use super::stream::Stream;
use super::*;
use crate::RemoteChannel;
use crate::tests::Grow;
use crate::{AgentConnection, DatapathLink, LinkError, SendOutcome};

mod tenants;

/// A temporary directory of one test, with keys for these datapaths.
struct Place(PathBuf);

impl Place {
    fn new(names: &[&str]) -> Place {
        static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let place = Place(
            std::env::temp_dir().join(format!("ccplane-tls-{}-{number}", std::process::id())),
        );
        place.make(names);
        place
    }

    fn make(&self, names: &[&str]) -> Vec<NewKeys> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        make_keys(&self.0, &names, SystemTime::now()).expect("keys")
    }

    fn of(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A clock that is off by this many days.
#[derive(Debug)]
struct SkewedClock(i64);

impl TimeProvider for SkewedClock {
    fn current_time(&self) -> Option<UnixTime> {
        let now = UnixTime::now().as_secs() as i64 + self.0 * 24 * 3600;
        Some(UnixTime::since_unix_epoch(StdDuration::from_secs(
            now as u64,
        )))
    }
}

/// An agent on loopback.
struct World {
    agent: Agent,
    link: TlsLink,
    began: Instant,
    told: Arc<std::sync::Mutex<Vec<FlowInfo>>>,
}

impl World {
    fn new(keys: &Path) -> World {
        World::at(([127, 0, 0, 1], 0).into(), keys, 0)
    }

    fn at(address: SocketAddr, keys: &Path, days: i64) -> World {
        let (mut agent, told) = (Agent::new(AgentOptions::default()), Arc::default());
        agent.add(Grow(Arc::clone(&told))).expect("it compiles");
        World {
            agent,
            link: TlsLink::with_clock(address, keys, Arc::new(SkewedClock(days)))
                .expect("it listens"),
            began: Instant::now(),
            told,
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + Duration::from(self.began.elapsed())
    }

    fn address(&self) -> SocketAddr {
        self.link.address().expect("it listens")
    }

    fn to(&self, keys: &Path) -> TlsAddress {
        TlsAddress {
            host: "127.0.0.1".to_owned(),
            port: self.address().port(),
            keys: Some(keys.to_owned()),
        }
    }

    fn turn(&mut self) {
        self.turn_at(self.now());
    }

    fn turn_at(&mut self, now: Time) {
        self.link.receive(&mut self.agent, now);
        if self.agent.next_deadline().is_some_and(|due| due <= now) {
            self.agent.on_deadline(now);
        }
        while let Some((to, command)) = self.agent.poll() {
            self.link.send(&mut self.agent, now, to, &command);
        }
        self.link.flush(&mut self.agent);
    }

    /// Runs turns until a condition holds.
    fn until<T>(&mut self, what: &str, mut so: impl FnMut(&mut World) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            self.turn();
            if let Some(it) = so(self) {
                return it;
            }
            assert!(began.elapsed() < StdDuration::from_secs(30), "{what}");
            std::thread::sleep(StdDuration::from_micros(200));
        }
    }

    /// Connects, or returns the error.
    fn connect(&mut self, uplink: &mut TlsUplink) -> Result<(), String> {
        self.until("the attempt ends", |world| {
            match uplink.connect(world.now()) {
                Ok(()) => Some(Ok(())),
                Err(LinkError::Connecting) => None,
                Err(why) => Some(Err(why.to_string())),
            }
        })
    }

    fn connected(&mut self, keys: &Path) -> TlsUplink {
        let mut uplink = TlsUplink::new(&self.to(keys));
        self.connect(&mut uplink)
            .expect("the connection is accepted");
        uplink
    }

    fn refused(&mut self, keys: &Path, days: i64) -> String {
        let mut uplink = TlsUplink::with_clock(&self.to(keys), Arc::new(SkewedClock(days)));
        self.connect(&mut uplink)
            .expect_err("the connection is refused")
    }

    /// Creates a datapath with an uplink.
    fn datapath(&mut self, uplink: TlsUplink) -> Datapath<RemoteChannel> {
        let tables = ProgramTables::new(OperatorLimits::default(), Capabilities::CWND);
        let shared = DatapathCore::new(1, "test", tables, RemoteChannel::new(Box::new(uplink)));
        Datapath::new(self.now(), shared)
    }

    /// Returns an authenticated stream for sending arbitrary bytes.
    fn stream(&mut self, keys: &Path) -> Stream {
        let keys = Keys::load(keys, Role::Datapath).unwrap();
        let config = trust::datapath(&keys, Arc::new(SkewedClock(0))).unwrap();
        let tls = rustls::ClientConnection::new(config, trust::agent_name().unwrap()).unwrap();
        let socket = TcpStream::connect(self.address()).unwrap();
        let mut stream = Stream::new(socket, tls.into()).unwrap();
        let hello = framed::encode_hello(Hello {
            process: process(),
            channel: random(),
        });
        let mut said = false;
        self.until("the connection is accepted", |_| {
            let mut welcome = false;
            let read = stream.read(&mut [0; 4096], &mut |_| {
                welcome = true;
                Ok(())
            });
            read.expect("a handshake");
            if !stream.is_handshaking() && !said {
                stream.queue_frame(&hello).unwrap();
                said = true;
            }
            stream.flush().unwrap();
            welcome.then_some(())
        });
        stream
    }
}

/// First event of a datapath.
fn ready() -> WireEvent<'static> {
    let datapath = DatapathInfo {
        id: 1,
        kind: "test".to_owned(),
        capabilities: Capabilities::CWND,
        max_programs: 8,
        max_instrs: 256,
        max_vars: 64,
        agent_timeout: None,
    };
    WireEvent::Ready { datapath }
}

/// Returns why the peer closed a stream.
fn end_of(world: &mut World, mut stream: Stream) -> String {
    world.until("it ends", |_| {
        let read = stream.read(&mut [0; 4096], &mut |_| Ok(()));
        read.err().map(|why| why.to_string())
    })
}

/// Processes an ACK of a flow.
fn ack(
    datapath: &mut Datapath<RemoteChannel>,
    now: Time,
    flow: u64,
    cwnd: u64,
) -> ccplane_datapath::Outcome {
    let transport = Transport {
        cwnd,
        rate: 0,
        ssthresh: u64::MAX,
        now,
    };
    let signals = Signals {
        bytes_acked: 1000,
        ..Signals::default()
    };
    datapath
        .flow(flow)
        .expect("it lives")
        .on_ack(&transport, &signals)
}

#[test]
fn keys_are_for_their_owners_and_are_made_once() {
    let place = Place::new(&["web1", "web2"]);
    for file in [
        "ca.key",
        "ca.pem",
        "agent/key.pem",
        "web1/key.pem",
        "web2/ca.pem",
    ] {
        let mode = fs::metadata(place.of(file))
            .expect(file)
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    let key = fs::read(place.of("web1/key.pem")).unwrap();
    let new: Vec<bool> = place
        .make(&["web1", "web3"])
        .iter()
        .map(|made| made.created)
        .collect();
    assert_eq!(new, [false, false, true]);
    assert_eq!(fs::read(place.of("web1/key.pem")).unwrap(), key);
    revoke_key(&place.0, "web1").unwrap();
    assert!(
        place
            .make(&["web1"])
            .iter()
            .any(|made| made.created && made.name == "web1")
    );
    assert_ne!(fs::read(place.of("web1/key.pem")).unwrap(), key);
    let says = |result: Result<(), KeyError>, words: &str| {
        let why = result.unwrap_err().to_string();
        assert!(why.contains(words), "{why}");
    };
    says(
        revoke_key(&place.0, "web9"),
        "its keys are agent, web1, web2, web3",
    );
    for bad in [
        "",
        "agent",
        "Web",
        "a/b",
        "../x",
        "1a",
        "a.b",
        "revoked",
        &"x".repeat(41),
    ] {
        says(
            make_keys(&place.0, &[bad.to_owned()], SystemTime::now()).map(drop),
            "is not a valid key name",
        );
    }
    let load = |path: &str| Keys::load(&place.of(path), Role::Datapath).map(drop);
    says(
        Keys::load(&place.0, Role::Datapath).map(drop),
        "several datapaths",
    );
    says(load("nowhere"), "ccplane keys");
    assert!(Keys::load(&place.0, Role::Agent).is_ok());
    fs::set_permissions(place.of("web1/key.pem"), fs::Permissions::from_mode(0o640)).unwrap();
    says(load("web1"), "chmod 600");
    fs::write(place.of("web2/key.pem"), "nonsense").unwrap();
    says(load("web2"), "not a certificate");
    fs::write(place.of("revoked"), "nonsense\n").unwrap();
    says(
        make_keys(&place.0, &[], SystemTime::now()).map(drop),
        "line 1",
    );
}

#[test]
fn a_key_that_is_not_valid_now_is_made_anew() {
    let place = Place::new(&["web1"]);
    let year = std::time::Duration::from_secs(365 * 86_400);
    let now = SystemTime::now();
    for (when, made) in [
        (now + 9 * year, false),
        (now + 11 * year, true),
        (now, true),
        (now, false),
    ] {
        let all = make_keys(&place.0, &["web1".to_owned()], when).unwrap();
        assert!(
            all.iter().all(|one| one.created == made),
            "{when:?}: {all:?}"
        );
    }
}

#[test]
fn an_agent_steers_a_flow_over_tls_and_hears_of_its_tags() {
    let place = Place::new(&["web1"]);
    let mut world = World::new(&place.0);
    // Also works with the parent directory, if it contains only one datapath's key.
    let uplink = world.connected(&place.0);
    assert!(
        uplink
            .round_trip()
            .is_some_and(|took| took > Duration::ZERO)
    );
    let mut datapath = world.datapath(uplink);
    let tags = Tags::new(["site=paris".parse().unwrap()]).unwrap();
    let info = FlowInfo {
        tags: tags.clone(),
        ..FlowInfo::default()
    };
    datapath.open(world.now(), 1, info);
    let cwnd = world.until("it is steered", |world| {
        let now = world.now();
        datapath.poll(now);
        let outcome = ack(&mut datapath, now, 1, 10_000);
        datapath.flush(now);
        outcome.cwnd.filter(|cwnd| *cwnd > 14_480)
    });
    assert_eq!(cwnd % 1000, 480);
    assert_eq!(world.told.lock().unwrap()[0].tags, tags);
    assert_eq!(world.agent.flow_count(), 1);
    drop(datapath);
    world.until("its flows are closed", |world| {
        (world.agent.flow_count() == 0).then_some(())
    });
}

#[test]
fn a_certificate_that_is_not_trusted_is_refused_at_both_ends() {
    let (place, other) = (Place::new(&["web1"]), Place::new(&["web1"]));
    let mut world = World::new(&place.0);
    // The datapath fails first: the agent's certificate is signed by another CA.
    let why = world.refused(&other.0, 0);
    assert!(why.contains("was not issued by the CA"), "{why}");
    // A datapath that trusts the agent's CA but presents a certificate of another one.
    fs::copy(place.of("ca.pem"), other.of("web1/ca.pem")).unwrap();
    let why = world.refused(&other.of("web1"), 0);
    assert!(why.contains("does not trust the CA"), "{why}");
    assert!(world.connected(&place.0).is_connected());
}

#[test]
fn a_certificate_of_the_wrong_role_is_refused_at_both_ends() {
    let place = Place::new(&["web1"]);
    let mut world = World::new(&place.0);
    let why = world.refused(&place.of("agent"), 0);
    assert!(why.contains("wrong role"), "{why}");
    // A datapath's key used as an agent's.
    let mut world = World::new(&place.of("web1"));
    let why = world.refused(&place.of("web1"), 0);
    assert!(why.contains("not the certificate of an agent"), "{why}");
}

#[test]
fn clocks_may_differ_by_a_day_and_an_expired_certificate_is_refused() {
    let place = Place::new(&["web1"]);
    for (agent, datapath) in [(-1, 1), (1, -1), (0, -1)] {
        let mut world = World::at(([127, 0, 0, 1], 0).into(), &place.0, agent);
        let mut uplink =
            TlsUplink::with_clock(&world.to(&place.0), Arc::new(SkewedClock(datapath)));
        world
            .connect(&mut uplink)
            .expect("a day of clock skew is tolerated");
    }
    let mut world = World::new(&place.0);
    let why = world.refused(&place.0, 4000);
    assert!(why.contains("has expired"), "{why}");
    let why = world.refused(&place.0, -10);
    assert!(why.contains("not valid yet"), "{why}");
    let mut later = World::at(([127, 0, 0, 1], 0).into(), &place.0, 4000);
    let why = later.refused(&place.0, 0);
    assert!(why.contains("this end's certificate has expired"), "{why}");
}

#[test]
fn a_revoked_key_is_disconnected_within_a_second_and_stays_refused() {
    let place = Place::new(&["web1", "web2"]);
    let mut world = World::new(&place.0);
    let mut one = world.connected(&place.of("web1"));
    let mut two = world.connected(&place.of("web2"));
    revoke_key(&place.0, "web1").unwrap();
    let revoked = Instant::now();
    world.until("the connection is closed", |world| {
        one.receive(world.now(), &mut |_| ());
        (!one.is_connected()).then_some(())
    });
    assert!(
        revoked.elapsed() < StdDuration::from_secs(1),
        "{:?}",
        revoked.elapsed()
    );
    let why = world.refused(&place.of("web1"), 0);
    assert!(why.contains("the key `web1` was revoked"), "{why}");
    two.receive(world.now(), &mut |_| ());
    assert!(two.is_connected());
    place.make(&["web1"]);
    assert!(world.connected(&place.of("web1")).is_connected());
}

#[test]
fn two_processes_with_one_key_are_distinguished() {
    let place = Place::new(&["web1"]);
    let mut world = World::new(&place.0);
    let first = world.connected(&place.0);
    // Another algorithm of the same process.
    let second = world.connected(&place.0);
    let mut third = TlsUplink::new(&world.to(&place.0));
    third.process ^= 1;
    let why = world
        .connect(&mut third)
        .expect_err("another process is refused");
    assert!(
        why.contains("already uses the key `web1`") && why.contains("127.0.0.1"),
        "{why}"
    );
    drop((first, second));
    world.until("the other connections are closed", |world| {
        third.connect(world.now()).is_ok().then_some(())
    });
}

#[test]
fn a_datapath_that_comes_back_replaces_its_former_connection() {
    let place = Place::new(&["web1"]);
    let mut world = World::new(&place.0);
    let uplink = world.connected(&place.0);
    let mut datapath = world.datapath(uplink);
    datapath.open(world.now(), 7, FlowInfo::default());
    world.until("it is known", |world| {
        datapath.poll(world.now());
        (world.agent.flow_count() == 1).then_some(())
    });
    // The agent is silent for longer than the timeout, so the datapath reconnects while the old
    // connection still exists.
    let late = world.now() + Duration::from_secs(3);
    let address = world.address();
    for ms in 0..2_000 {
        let now = late + Duration::from_millis(ms);
        datapath.poll(now);
        world.turn_at(now);
        std::thread::sleep(StdDuration::from_micros(200));
        if world.told.lock().unwrap().len() == 2 {
            break;
        }
    }
    let told = world.told.lock().unwrap().clone();
    assert_eq!(
        told.iter().map(|info| info.live).collect::<Vec<_>>(),
        [false, true],
        "at {address}"
    );
    assert_eq!(
        world.agent.flow_count(),
        1,
        "the flow of the previous connection is closed"
    );
}

#[test]
fn a_connection_of_the_same_way_replaces_the_one_before() {
    let place = Place::new(&["web1"]);
    let mut world = World::new(&place.0);
    let mut before = world.connected(&place.0);
    let mut again = TlsUplink::new(&world.to(&place.0));
    again.channel = before.channel;
    world
        .connect(&mut again)
        .expect("the connection is accepted");
    world.until("the previous connection is closed", |world| {
        before.receive(world.now(), &mut |_| ());
        (!before.is_connected()).then_some(())
    });
    assert!(again.is_connected());
}

#[test]
fn a_restarted_agent_learns_every_live_flow() {
    let place = Place::new(&["web1"]);
    let mut world = World::new(&place.0);
    let uplink = world.connected(&place.0);
    let mut datapath = world.datapath(uplink);
    for flow in 1..=3 {
        datapath.open(world.now(), flow, FlowInfo::default());
    }
    world.until("the datapaths are known", |world| {
        datapath.poll(world.now());
        (world.agent.flow_count() == 3).then_some(())
    });
    let address = world.address();
    drop(world);
    let mut world = World::at(address, &place.0, 0);
    let began = Instant::now();
    let lost = Time::from_micros(100_000_000);
    world.until("the datapaths are known again", |world| {
        datapath.poll(lost + Duration::from(began.elapsed()));
        (world.agent.flow_count() == 3).then_some(())
    });
    assert!(world.told.lock().unwrap().iter().all(|info| info.live));
}

#[test]
fn an_agent_that_dies_mid_packet_is_reconnected() {
    let place = Place::new(&["web1"]);
    let mut world = World::new(&place.0);
    // A datapath that disconnects within a packet: its flows close, others are not affected.
    let other = world.connected(&place.0);
    let mut stream = world.stream(&place.0);
    let mut packet = v2::PacketWriter::new();
    let info = FlowInfo::default();
    packet.push_event(&ready()).unwrap();
    packet
        .push_event(&WireEvent::FlowOpened { flow: 1, info })
        .unwrap();
    stream.queue_packet(&packet).unwrap();
    let whole = [
        &framed::encode_length(packet.as_bytes())[..],
        packet.as_bytes(),
    ]
    .concat();
    stream.queue_frame(&whole[..whole.len() / 2]).unwrap();
    stream.flush().unwrap();
    world.until("its flow is there", |world| {
        (world.agent.flow_count() == 1).then_some(())
    });
    drop(stream);
    world.until("its flow is closed", |world| {
        (world.agent.flow_count() == 0).then_some(())
    });
    assert!(other.is_connected());
    // An agent that does the same: the partial packet is ignored and the datapath detects the loss.
    let mut uplink = world.connected(&place.0);
    let partial_packet = [
        &framed::encode_length(packet.as_bytes())[..],
        &packet.as_bytes()[..9],
    ]
    .concat();
    world.link.send_to_all(&partial_packet);
    drop(world);
    let (began, mut commands) = (Instant::now(), 0);
    while uplink.is_connected() {
        uplink.receive(
            Time::ZERO + Duration::from(began.elapsed()),
            &mut |_: WireCommand| commands += 1,
        );
        assert!(began.elapsed() < StdDuration::from_secs(10));
    }
    assert_eq!(commands, 0);
    assert_eq!(
        uplink.queue_event(&WireEvent::Installed { program: 1 }),
        SendOutcome::NoAgent
    );
}

#[test]
fn invalid_messages_close_the_connection() {
    let place = Place::new(&["web1"]);
    let mut world = World::new(&place.0);
    let other = world.connected(&place.0);
    for (said, words) in [
        (
            &[0xff, 0xff, 0xff, 0xff][..],
            "a frame is 4294967295, but the format allows at most 65536",
        ),
        (&[3, 0, 0, 0, 0xcc, 9, 0], "version 9"),
        (&[1, 0, 0, 0, 7], "invalid frame type 7"),
        (
            &[
                17, 0, 0, 0, 0xce, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            ],
            "a second hello",
        ),
    ] {
        let mut stream = world.stream(&place.0);
        stream.queue_frame(said).unwrap();
        stream.flush().unwrap();
        let why = end_of(&mut world, stream);
        assert!(why.contains(words), "{why}");
    }
    // A peer that does not speak TLS, and silent ones.
    let mut plain = TcpStream::connect(world.address()).unwrap();
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    plain.set_nonblocking(true).unwrap();
    let ends = |plain: &mut TcpStream| match plain.read(&mut [0; 64]) {
        Ok(0) => Some(()),
        Err(why) if why.kind() == std::io::ErrorKind::ConnectionReset => Some(()),
        _ => None,
    };
    world.until("HTTP is refused", |_| ends(&mut plain));
    // Connections of one address have 16 slots.
    let mut crowd: Vec<TcpStream> = (0..20)
        .map(|_| TcpStream::connect(world.address()).unwrap())
        .collect();
    crowd
        .iter()
        .for_each(|one| one.set_nonblocking(true).unwrap());
    world.until("four of them are dropped", |_| {
        let ended = crowd.iter_mut().filter_map(ends).count();
        (ended == 4).then_some(())
    });
    assert_eq!(world.link.pending_count(), 16);
    drop(crowd);
    world.until("they went", |world| {
        (world.link.pending_count() == 0).then_some(())
    });
    let mut silent = TcpStream::connect(world.address()).unwrap();
    silent.set_nonblocking(true).unwrap();
    world.until("the connection is accepted", |world| {
        (world.link.pending_count() == 1).then_some(())
    });
    assert!(ends(&mut silent).is_none());
    world.turn_at(world.now() + Duration::from_secs(6));
    world.until("silent connections are dropped", |_| ends(&mut silent));
    assert!(other.is_connected());
}

#[test]
fn an_authority_that_was_killed_before_it_wrote_its_certificate_writes_it_later() {
    let place = Place::new(&["web1"]);
    let mut world = World::new(&place.0);
    fs::remove_file(place.of("ca.pem")).unwrap();
    place.make(&["web2"]);
    // Signed by the same CA, so hosts with the old keys trust it.
    assert!(world.connected(&place.of("web1")).is_connected());
    assert!(world.connected(&place.of("web2")).is_connected());
}

#[test]
fn a_peer_with_a_million_flows_is_limited_to_its_share_of_memory() {
    let place = Place::new(&["web1"]);
    let mut world = World::new(&place.0);
    // Two connections: the limit applies to the key.
    let mut other = world.connected(&place.0);
    assert_eq!(other.queue_event(&ready()), SendOutcome::Queued);
    for flow in 0..100 {
        let info = FlowInfo::default();
        assert_eq!(
            other.queue_event(&WireEvent::FlowOpened { flow, info }),
            SendOutcome::Queued
        );
    }
    other.flush();
    world.until("they exist", |world| {
        (world.agent.flow_count() == 100).then_some(())
    });
    let mut uplink = world.connected(&place.0);
    assert_eq!(uplink.queue_event(&ready()), SendOutcome::Queued);
    let mut opened = 0;
    let flows_max = 1 << 17;
    while opened < 1_000_000 {
        let info = FlowInfo::default();
        match uplink.queue_event(&WireEvent::FlowOpened { flow: opened, info }) {
            SendOutcome::Queued => opened += 1,
            SendOutcome::Full => {
                world.turn();
                uplink.receive(world.now(), &mut |_| ());
            }
            SendOutcome::NoAgent => panic!("the connection stays open"),
        }
    }
    let lifetime = Duration::ZERO;
    let stats = ccplane_wire::FlowStats {
        lifetime,
        ..Default::default()
    };
    let close = |flow| WireEvent::FlowClosed { flow, stats };
    world.until("all messages arrive", |world| {
        uplink.flush();
        uplink.receive(world.now(), &mut |_| ());
        (world.agent.flow_count() == flows_max).then_some(())
    });
    // Once there is room, further flows are controlled.
    assert_eq!(uplink.queue_event(&close(0)), SendOutcome::Queued);
    let info = FlowInfo::default();
    assert_eq!(
        uplink.queue_event(&WireEvent::FlowOpened {
            flow: 2_000_000,
            info
        }),
        SendOutcome::Queued
    );
    let told = world.told.lock().unwrap().len();
    world.until("one more", |world| {
        uplink.flush();
        uplink.receive(world.now(), &mut |_| ());
        (world.told.lock().unwrap().len() == told + 1).then_some(())
    });
    assert_eq!(world.agent.flow_count(), flows_max);
}

#[test]
fn a_datapath_that_does_not_read_is_disconnected() {
    let place = Place::new(&["web1"]);
    let mut world = World::new(&place.0);
    let _stream = world.stream(&place.0);
    let to = world.link.first().expect("it exists");
    let algorithm: Arc<str> = "x".repeat(200).into();
    for _ in 0..200_000 {
        let command = WireCommand::Heartbeat {
            algorithm: Arc::clone(&algorithm),
        };
        world.link.send(&mut world.agent, Time::ZERO, to, &command);
        world.link.flush(&mut world.agent);
        if world.link.first().is_none() {
            return;
        }
    }
    panic!("40 MB are queued");
}

#[test]
fn a_datapath_that_reads_slowly_stays_connected() {
    let place = Place::new(&["web1"]);
    let mut world = World::new(&place.0);
    let mut stream = world.stream(&place.0);
    let to = world.link.first().expect("it exists");
    let algorithm: Arc<str> = "x".repeat(200).into();
    let began = Instant::now();
    // More than the sockets and the queue hold together.
    for _ in 0..60_000 {
        let command = WireCommand::Heartbeat {
            algorithm: Arc::clone(&algorithm),
        };
        world.link.send(&mut world.agent, Time::ZERO, to, &command);
        world.link.flush(&mut world.agent);
        assert!(world.link.first().is_some(), "it reads");
        while world.link.unsent() > 1 << 19 {
            stream
                .read(&mut [0; 4096], &mut |_| Ok(()))
                .expect("connected");
            world.link.flush(&mut world.agent);
            assert!(began.elapsed() < StdDuration::from_secs(30), "it reads");
        }
    }
}

#[test]
fn partially_sent_packets_are_completed() {
    let place = Place::new(&["web1"]);
    let mut world = World::new(&place.0);
    let mut uplink = world.connected(&place.0);
    let fields = [7; 1000];
    let report = WireEvent::Report {
        flow: 1,
        program: 2,
        urgent: true,
        fields: &fields,
    };
    // The agent does not read, and 80 MB exceed the socket buffers.
    for _ in 0..10_000 {
        assert_eq!(uplink.queue_event(&report), SendOutcome::Queued);
        assert_eq!(uplink.flush(), !uplink.waits());
        if uplink.waits() {
            let soon = world.now() + Duration::from_secs(30);
            assert!(uplink.next_deadline().is_some_and(|due| due < soon));
            return;
        }
    }
    panic!("the sender is never blocked");
}

#[test]
fn the_addresses_of_a_name_are_tried_one_after_the_other() {
    let place = Place::new(&["web1"]);
    // If `localhost` resolves to ::1 first, nothing listens there.
    let mut world = World::new(&place.0);
    let address = TlsAddress {
        host: "localhost".to_owned(),
        ..world.to(&place.0)
    };
    let mut uplink = TlsUplink::new(&address);
    world
        .connect(&mut uplink)
        .expect("the connection is accepted");
}

#[test]
fn reports_travel_together_and_urgent_ones_do_not_wait() {
    let place = Place::new(&["web1"]);
    let mut world = World::new(&place.0);
    let mut uplink = world.connected(&place.0);
    let now = world.now() + Duration::from_secs(1);
    let report = |urgent| WireEvent::Report {
        flow: 1,
        program: 2,
        urgent,
        fields: &[3],
    };
    let mut give = |at: Time, urgent| {
        uplink.receive(at, &mut |_| ());
        assert_eq!(uplink.queue_event(&report(urgent)), SendOutcome::Queued);
        assert!(uplink.flush(), "no bytes stay unsent");
        uplink.next_deadline()
    };
    // The first report is sent at once; the next ones wait, because the agent has not responded.
    assert_eq!(give(now, false), None);
    let at = |us| now + Duration::from_micros(us);
    let due = give(at(100), false).expect("it waits");
    assert!(due >= at(1_000) && due < at(5_000), "{due}");
    assert_eq!(give(at(200), false).expect("with it"), due);
    assert_eq!(give(at(300), true), None);
    assert!(give(at(400), false).is_some());
    assert_eq!(give(at(9_000), false), None);
}
