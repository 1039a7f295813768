//! Tests with real sockets and threads: the faults of a peer affect only that peer.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration as StdDuration, Instant};

use ccplane_agent::datapath::{Datapath, DatapathCore};
use ccplane_agent::{
    AgentOptions, Algorithm, AlgorithmStats, Control, FlowInfo, ProgramTables, Programs, Report,
};
use ccplane_datapath::{Capabilities, OperatorLimits, Signals, SteeredFlow, Transport};
use ccplane_units::Bytes;
use ccplane_wire::v1;
use nix::sys::stat::stat;

use super::*;
use crate::RemoteChannel;

/// Increases the window at every report and stores the announced flows.
#[derive(Default)]
pub(super) struct Grow(pub(super) Arc<Mutex<Vec<FlowInfo>>>);

const PROGRAM: &str = "(def (Report (volatile acked 0)) (unused 0))
    (when true (:= Report.acked (+ Report.acked Ack.bytes_acked)) (report))";

impl Algorithm for Grow {
    type Flow = u64;

    fn name(&self) -> &str {
        "grow"
    }

    fn programs(&self) -> Programs {
        Programs::new().with("fold", PROGRAM)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> u64 {
        self.0.lock().unwrap().push(info.clone());
        control.set_program("fold", &[]);
        info.cwnd.get()
    }

    fn on_report(&mut self, cwnd: &mut u64, _report: &Report<'_>, control: &mut Control<'_>) {
        *cwnd += 1000;
        control.set_cwnd(Bytes::new(*cwnd));
    }
}

/// A temporary directory of one test.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NEXT_NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NEXT_NUMBER.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("ccplane-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Place(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Serves on a thread while `test` runs. Returns the algorithm's statistics.
fn serving(link: &mut (dyn DatapathLink + Send), test: impl FnOnce()) -> AlgorithmStats {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let agent = scope.spawn(|| {
            let mut agent = Agent::new(AgentOptions::default());
            agent.add(Grow::default()).expect("it compiles");
            serve(&mut agent, &mut [link], WaitStrategy::default(), &stop).expect("it serves");
            agent.stats("grow").expect("it exists")
        });
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test));
        stop.store(true, Ordering::Relaxed);
        let stats = agent.join().expect("the agent's thread does not panic");
        result.map_or_else(|panic| std::panic::resume_unwind(panic), |()| stats)
    })
}

/// A datapath like the reference's: bound to a path, not connected, one message per datagram.
struct Ccp {
    socket: UnixDatagram,
    agent: PathBuf,
}

impl Ccp {
    fn new(place: &Place, name: &str, agent: &Path) -> Ccp {
        let socket = UnixDatagram::bind(place.path(name)).expect("a path of its own");
        socket
            .set_read_timeout(Some(StdDuration::from_secs(20)))
            .expect("a time-out");
        Ccp {
            socket,
            agent: agent.to_owned(),
        }
    }

    fn send(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        write(&mut out);
        self.socket
            .send_to(&out, &self.agent)
            .expect("the agent is there");
    }

    /// Sends READY and returns the id of the program that the agent installs.
    fn begin(&self) -> u32 {
        self.send(|out| v1::ready(out, 7));
        self.expect(|message| match message {
            v1::V1Message::Install(install) => Some(install.program),
            _ => None,
        })
    }

    fn open(&self, flow: u32) {
        let zero = ([0, 0, 0, 0], 0).into();
        let create = v1::Create {
            init_cwnd: 10_000,
            mss: 1000,
            source: zero,
            destination: zero,
            algorithm: "grow",
        };
        self.send(|out| v1::create(out, flow, &create).expect("it fits"));
        self.expect(|message| match message {
            v1::V1Message::ChangeProgram { flow: of, .. } => (*of == flow).then_some(()),
            _ => None,
        });
    }

    fn report(&self, flow: u32, program: u32) {
        self.send(|out| v1::measure(out, flow, program, &[1000]).expect("it fits"));
    }

    fn window(&self) -> u64 {
        self.expect(|message| match message {
            v1::V1Message::UpdateField { updates, .. } => updates.iter().next().map(|u| u.value),
            _ => None,
        })
    }

    /// Receives until a message matches and returns the match.
    fn expect<T>(&self, wanted: impl Fn(&v1::V1Message<'_>) -> Option<T>) -> T {
        let mut buffer = vec![0; 65_536];
        loop {
            let length = self.socket.recv(&mut buffer).expect("an answer in time");
            let mut messages =
                v1::messages(&buffer[..length]).map(|message| message.expect("a good message"));
            if let Some(found) = messages.find_map(|message| wanted(&message)) {
                return found;
            }
        }
    }
}

#[test]
fn a_ccp_datapath_is_served() {
    let place = Place::new();
    let path = place.path("agent");
    let mut link = Datagram::bind(&path).expect("it binds");
    assert_eq!(stat(&path).expect("it exists").st_mode & 0o777, 0o600);
    let stats = serving(&mut link, || {
        let datapath = Ccp::new(&place, "ccp", &path);
        assert_eq!(
            datapath.begin(),
            1,
            "number 1 empties a reference datapath's table"
        );
        datapath.open(3);
        datapath.report(3, 1);
        assert_eq!(datapath.window(), 11_000);
        // A report for a program that was never installed.
        datapath.report(3, 77);
        // A report and a close in one datagram.
        datapath.send(|out| {
            v1::measure(out, 3, 1, &[1]).expect("it fits");
            v1::measure(out, 3, 1, &[]).expect("it fits");
        });
        assert_eq!(datapath.begin(), 1);
    });
    assert_eq!(
        (
            stats.opened,
            stats.flows,
            stats.reports,
            stats.stale_reports
        ),
        (1, 0, 2, 1)
    );
    drop(link);
    assert!(!path.exists(), "no file is left behind");
}

#[test]
fn garbage_costs_its_sender_its_flows_until_its_next_good_message() {
    let place = Place::new();
    let path = place.path("agent");
    let mut link = Datagram::bind(&path).expect("it binds");
    let stats = serving(&mut link, || {
        let (good, bad) = (
            Ccp::new(&place, "good", &path),
            Ccp::new(&place, "bad", &path),
        );
        for datapath in [&good, &bad] {
            datapath.begin();
            datapath.open(1);
        }
        let garbage: [&[u8]; 5] = [
            b"not a message",
            &[0, 0, 32, 0, 1, 0, 0, 0],
            &[1, 0, 20, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4],
            &[3, 0, 12, 0, 1, 0, 0, 0, 0, 0, 0, 0],
            &[5, 0, 12, 0],
        ];
        for junk in garbage {
            bad.send(|out| out.extend_from_slice(junk));
            good.report(1, 1);
            good.window();
            // No READY, as a CCP datapath would not send one either: its next report gets programs
            // and a window again.
            bad.report(1, 1);
            bad.expect(|message| {
                matches!(message, v1::V1Message::ChangeProgram { flow: 1, .. }).then_some(())
            });
            bad.report(1, 1);
            bad.window();
        }
        // A sender without a path cannot be answered.
        let nobody = UnixDatagram::unbound().expect("a socket");
        nobody
            .send_to(&[5, 0, 12, 0, 0, 0, 0, 0, 1, 0, 0, 0], &path)
            .expect("it is sent");
        good.report(1, 1);
        assert_eq!(good.window(), 10_000 + 6 * 1000);
    });
    assert_eq!((stats.flows, stats.reports, stats.taken_over), (2, 11, 5));
    assert_eq!(link.dropped(), 1);
}

#[test]
fn a_datapath_that_stops_reading_delays_nobody_and_loses_its_connection() {
    let place = Place::new();
    let path = place.path("agent");
    let mut link = Datagram::bind(&path).expect("it binds");
    let stats = serving(&mut link, || {
        let (good, stuck) = (
            Ccp::new(&place, "good", &path),
            Ccp::new(&place, "stuck", &path),
        );
        for datapath in [&good, &stuck] {
            datapath.begin();
            datapath.open(1);
        }
        // Far more replies than the queue limit, none of which the peer reads.
        let mut batch = Vec::new();
        (0..500).for_each(|_| v1::measure(&mut batch, 1, 1, &[1]).expect("it fits"));
        let mut slowest = StdDuration::ZERO;
        for _ in 0..60 {
            stuck.send(|out| out.extend_from_slice(&batch));
            let start = Instant::now();
            good.report(1, 1);
            good.window();
            slowest = slowest.max(start.elapsed());
        }
        assert!(slowest < StdDuration::from_secs(5), "{slowest:?}");
        // The peer was closed, and can return.
        let mut buffer = vec![0; 65_536];
        stuck.socket.set_nonblocking(true).expect("a mode");
        while stuck.socket.recv(&mut buffer).is_ok() {}
        stuck.socket.set_nonblocking(false).expect("a mode");
        assert_eq!(stuck.begin(), 1);
    });
    assert!(stats.opened >= 2, "{stats:?}");
}

#[test]
fn a_datapath_that_starts_again_on_its_path_is_answered() {
    let place = Place::new();
    let path = place.path("agent");
    let mut link = Datagram::bind(&path).expect("it binds");
    let stats = serving(&mut link, || {
        for _ in 0..3 {
            let datapath = Ccp::new(&place, "ccp", &path);
            assert_eq!(datapath.begin(), 1);
            datapath.open(3);
            datapath.report(3, 1);
            assert_eq!(datapath.window(), 11_000);
            drop(datapath);
            std::fs::remove_file(place.path("ccp")).expect("it was bound");
        }
    });
    assert_eq!((stats.opened, stats.reports), (3, 3));
}

#[test]
fn after_a_restart_programs_go_to_every_datapath_that_is_remembered() {
    let place = Place::new();
    let path = place.path("agent");
    let (stays, goes) = (
        Ccp::new(&place, "stays", &path),
        Ccp::new(&place, "goes", &path),
    );
    let mut link = Datagram::bind(&path).expect("it binds");
    serving(&mut link, || {
        stays.begin();
        goes.begin();
    });
    drop(link);
    std::fs::remove_file(place.path("goes")).expect("it was bound");
    let mut link = Datagram::bind(&path).expect("it binds");
    serving(&mut link, || {
        // The datapath sends nothing.
        stays.expect(|message| matches!(message, v1::V1Message::Install(_)).then_some(()));
    });
    let file = place.path("agent.peers");
    let text = std::fs::read_to_string(&file).expect("it is written");
    assert_eq!(text, format!("{}\n", place.path("stays").display()));
    assert_eq!(stat(&file).expect("it exists").st_mode & 0o777, 0o600);
    std::fs::remove_file(place.path("stays")).expect("it was bound");
    drop(link);
    assert!(!file.exists(), "no datapath is left");
}

#[test]
fn files_writable_by_others_are_ignored() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    let path = place.path("agent");
    let datapath = Ccp::new(&place, "ccp", &path);
    let file = place.path("agent.peers");
    std::fs::write(&file, format!("{}\n", place.path("ccp").display())).expect("a file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).expect("a mode");
    assert!(known_peers::KnownPeers::read(&path).paths().is_empty());
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("a mode");
    assert_eq!(known_peers::KnownPeers::read(&path).paths().len(), 1);
    drop(datapath);
}

#[test]
fn a_datapath_that_outlives_its_agent_is_taken_over_by_its_reports() {
    let place = Place::new();
    let path = place.path("agent");
    let datapath = Ccp::new(&place, "ccp", &path);
    let mut link = Datagram::bind(&path).expect("it binds");
    serving(&mut link, || {
        datapath.begin();
        datapath.open(5);
    });
    drop(link);
    let mut link = Datagram::bind(&path).expect("it binds");
    let stats = serving(&mut link, || {
        datapath.report(5, 1);
        datapath.expect(|message| {
            matches!(message, v1::V1Message::ChangeProgram { flow: 5, .. }).then_some(())
        });
        datapath.report(5, 1);
        datapath.window();
    });
    assert_eq!(
        (stats.taken_over, stats.reports),
        (1, 1),
        "the first report was of the former agent's program"
    );
}

#[test]
fn one_path_one_agent() {
    let place = Place::new();
    let path = place.path("agent");
    let first = Datagram::bind(&path).expect("it binds");
    assert!(matches!(Datagram::bind(&path), Err(LinkError::InUse(_))));
    assert!(matches!(
        Local::bind(&place.path("nowhere/agent")),
        Err(LinkError::Bind { .. })
    ));
    drop(first);
    // A killed agent leaves a path on which no process listens.
    drop(UnixDatagram::bind(&path).expect("it binds"));
    assert!(path.exists());
    drop(Datagram::bind(&path).expect("the new agent takes over"));
    std::fs::write(&path, "precious").expect("a file");
    assert!(matches!(Datagram::bind(&path), Err(LinkError::NoSocket(_))));
    assert_eq!(std::fs::read(&path).expect("still there"), b"precious");
}

#[test]
fn an_agent_that_ends_leaves_the_path_of_its_successor() {
    let place = Place::new();
    let path = place.path("agent");
    let old = Datagram::bind(&path).expect("it binds");
    std::fs::remove_file(&path).expect("the socket file is removable");
    let new = Datagram::bind(&path).expect("it binds");
    drop(old);
    assert!(path.exists(), "the socket belongs to the new agent");
    drop(new);
    assert!(!path.exists());
}

#[test]
fn exactly_one_of_many_takes_over_a_dead_path() {
    let place = Place::new();
    let path = place.path("agent");
    for _ in 0..50 {
        // Left behind by a killed agent.
        drop(UnixDatagram::bind(&path).expect("it binds"));
        let start = std::sync::Barrier::new(4);
        let served: Vec<Result<Local, LinkError>> = thread::scope(|scope| {
            let all: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        Local::bind(&path)
                    })
                })
                .collect();
            all.into_iter()
                .map(|one| one.join().expect("no panic"))
                .collect()
        });
        assert_eq!(
            served.iter().filter(|one| one.is_ok()).count(),
            1,
            "{:?}",
            served
                .iter()
                .map(|one| one.as_ref().err())
                .collect::<Vec<_>>()
        );
        drop(served);
        assert!(!path.exists());
    }
}

/// A ccplane datapath with one flow, on the local link.
struct OwnDatapath {
    datapath: Datapath<RemoteChannel>,
    transport: Transport,
    clock: ThreadClock,
}

impl OwnDatapath {
    fn new(path: &Path) -> OwnDatapath {
        let limits = OperatorLimits {
            agent_timeout: ccplane_units::Duration::from_millis(300),
            ..OperatorLimits::default()
        };
        let tables = ProgramTables::new(limits, Capabilities::CWND.union(Capabilities::RTT));
        let clock = ThreadClock::new();
        let link = RemoteChannel::new(Box::new(Uplink::new(path)));
        let mut datapath = Datapath::new(clock.now(), DatapathCore::new(1, "own", tables, link));
        let info = FlowInfo {
            algorithm: "grow".to_owned(),
            ..FlowInfo::default()
        };
        datapath.open(clock.now(), 9, info);
        let transport = Transport {
            cwnd: 20_000,
            rate: 0,
            ssthresh: u64::MAX,
            now: clock.now(),
        };
        OwnDatapath {
            datapath,
            transport,
            clock,
        }
    }

    /// Runs one iteration of a datapath's loop: connect, take commands, process an ACK. Returns
    /// whether the fallback is in control.
    fn turn(&mut self) -> bool {
        let now = self.clock.now();
        self.datapath.poll(now);
        self.transport.now = now;
        let signals = Signals {
            bytes_acked: 1000,
            mss: 1000,
            rtt_sample_us: 1000,
            ..Signals::default()
        };
        let mut flow = self.datapath.flow(9).expect("it is open");
        let outcome = flow.on_ack(&self.transport, &signals);
        self.transport.cwnd = outcome.cwnd.unwrap_or(self.transport.cwnd);
        flow.user_data().cwnd = Bytes::new(self.transport.cwnd);
        thread::sleep(StdDuration::from_millis(1));
        outcome.fallback
    }

    fn is_connected(&self) -> bool {
        self.datapath.channel().is_connected()
    }

    fn turn_until(&mut self, what: &str, mut done: impl FnMut(&mut OwnDatapath) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < StdDuration::from_secs(30), "{what}");
        }
    }
}

#[test]
fn an_agent_dies_the_fallback_steers_and_a_new_agent_takes_over() {
    let place = Place::new();
    let path = place.path("agent");
    let mut own = OwnDatapath::new(&path);
    let mut link = Local::bind(&path).expect("it binds");
    assert_eq!(stat(&path).expect("it exists").st_mode & 0o777, 0o600);
    let first = serving(&mut link, || {
        own.turn_until("the agent steers", |own| {
            !own.turn() && own.transport.cwnd > 30_000
        });
    });
    assert_eq!(
        (first.opened, first.taken_over),
        (1, 1),
        "the flow began before the agent"
    );
    drop(link);

    own.turn_until("the fallback steers", OwnDatapath::turn);
    assert!(!own.is_connected());
    let before = own.transport.cwnd;

    let mut link = Local::bind(&path).expect("it binds");
    let second = serving(&mut link, || {
        own.turn_until("a new agent steers", |own| {
            !own.turn() && own.transport.cwnd > before
        });
        let target = own.transport.cwnd + 5_000;
        own.turn_until("the flow continues", |own| {
            !own.turn() && own.transport.cwnd >= target
        });
    });
    assert_eq!((second.opened, second.taken_over), (1, 1));
    assert_eq!(second.malformed_reports, 0);
}

#[test]
fn heartbeats_keep_the_fallback_away_from_a_quiet_flow() {
    let place = Place::new();
    let path = place.path("agent");
    let mut own = OwnDatapath::new(&path);
    let mut link = Local::bind(&path).expect("it binds");
    serving(&mut link, || {
        own.turn_until("the agent steers", |own| {
            !own.turn() && own.transport.cwnd > 22_000
        });
        let start = Instant::now();
        while start.elapsed() < StdDuration::from_millis(1_200) {
            own.datapath.poll(own.clock.now());
            thread::sleep(StdDuration::from_millis(10));
        }
        assert!(
            !own.turn(),
            "four times the fallback time passed without a report"
        );
    });
}

#[test]
fn garbage_on_the_local_link_closes_that_connection_only() {
    let place = Place::new();
    let path = place.path("agent");
    let mut own = OwnDatapath::new(&path);
    let mut link = Local::bind(&path).expect("it binds");
    let stats = serving(&mut link, || {
        own.turn_until("the agent steers", |own| {
            !own.turn() && own.transport.cwnd > 22_000
        });
        let bad = socket::open(nix::sys::socket::SockType::SeqPacket).expect("a socket");
        let address = nix::sys::socket::UnixAddr::new(&path).expect("a path");
        use std::os::fd::AsRawFd;
        nix::sys::socket::connect(bad.as_raw_fd(), &address).expect("it connects");
        nix::unistd::write(&bad, b"garbage").expect("it is sent");
        let target = own.transport.cwnd + 5_000;
        own.turn_until("the other flow continues", |own| {
            !own.turn() && own.transport.cwnd >= target
        });
        assert!(own.is_connected());
    });
    assert_eq!(stats.opened, 1);
}

/// In virtual time, with one datapath iteration per millisecond.
#[test]
fn an_agent_that_sends_garbage_is_connected_to_less_and_less_often() {
    use std::io::Write;
    let place = Place::new();
    let path = place.path("agent");
    let bound =
        socket::BoundSocket::new(&path, nix::sys::socket::SockType::SeqPacket).expect("it binds");
    let listener =
        std::os::unix::net::UnixListener::from(bound.fd.try_clone().expect("a descriptor"));
    listener.set_nonblocking(true).expect("a socket");
    let tables = ProgramTables::new(OperatorLimits::default(), Capabilities::CWND);
    let link = RemoteChannel::new(Box::new(Uplink::new(&path)));
    let mut datapath = Datapath::new(Time::ZERO, DatapathCore::new(1, "own", tables, link));
    let (mut connections, mut kept) = (0, Vec::new());
    for ms in 0..60_000 {
        datapath.poll(Time::ZERO + Duration::from_millis(ms));
        if let Ok((mut socket, _)) = listener.accept() {
            connections += 1;
            socket.write_all(b"garbage").expect("it is sent");
            kept.push(socket);
        }
    }
    // Waits of 100 ms, 200 ms, … 3.2 s, then 5 s, each less up to half.
    assert!((15..=30).contains(&connections), "{connections}");
}

#[test]
fn fruitless_polling_stops() {
    let us = |n| Time::from_micros(n);
    let spin = Duration::from_micros(50);
    let mut spinner = Spinner::new(WaitStrategy { spin });
    assert!(spinner.should_poll(true, us(0)));
    assert!(spinner.should_poll(false, us(40)), "it looks");
    assert!(!spinner.should_poll(false, us(60)), "polling phase over");
    for exchange in 1..=POLL_PENALTY_MIN as u64 {
        spinner.should_poll(true, us(exchange * 100));
        assert!(
            !spinner.should_poll(false, us(exchange * 100 + 1)),
            "sleeps without polling: {exchange}"
        );
    }
    spinner.should_poll(true, us(10_000));
    assert!(spinner.should_poll(false, us(10_001)), "polling resumes");
    let mut never = Spinner::new(WaitStrategy {
        spin: Duration::ZERO,
    });
    assert!(!never.should_poll(true, us(0)));
}

/// Next to a busy process, some polls succeed and some do not: less than 1 % of all exchanges may
/// suffer from an unsuccessful poll.
#[test]
fn successful_polls_do_not_offset_many_fruitless_ones() {
    let spin = Duration::from_micros(200);
    let mut spinner = Spinner::new(WaitStrategy { spin });
    let (mut looks, mut in_vain) = (0, 0);
    for message in 1..=100_000u64 {
        let at = Time::from_micros(message * 1_000);
        if spinner.should_poll(true, at) {
            looks += 1;
            if looks % 3 == 0 {
                in_vain += 1;
                assert!(!spinner.should_poll(false, at + spin));
            }
        }
    }
    assert!(
        looks > 30 && in_vain < 1_000,
        "{in_vain} of {looks} polls found nothing"
    );
}
