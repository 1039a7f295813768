//! Runs on kernel TCP: three hosts as namespaces before the emulated bottleneck, and the agent on a
//! fourth, over TLS.
//!
//! All namespaces of a kernel share the names of congestion controls. Each of the two hosts has a
//! registration under its own name, with its own table, ring and connection to the agent, as two
//! kernels have. The agent's distance is a second emulated path.

use std::fs;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration as StdDuration, SystemTime};

use ccplane_agent::Agent;
use ccplane_algorithms::Registry;
use ccplane_emu::{DEVICE_NAME, EmuConfig, Emulator, LinkConfig};
use ccplane_host::Namespace;
use ccplane_lab::metrics::Distribution;
use ccplane_lab::{Error, MTU, Progress};
use ccplane_link::{AgentAddress, AgentThread, LinkError, TlsAddress, TlsLink, make_keys};
use ccplane_qdisc::{LineSpec, LinkSeeds, QueueSpec};
use ccplane_testbed::BackendError;
use ccplane_testbed::ends::inside;
use ccplane_testbed::machine::MachineWatch;
use ccplane_testbed::steer::SteeredAlgorithm;
use ccplane_testbed::traffic::{self, buffer_for, monotonic_ns, wait_until};
use ccplane_testbed::{longest_stall, wire};
use ccplane_units::Duration;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use super::{
    ALGORITHM, BACKLOG, IDLE_MEMBER, KILLED_MEMBER, Measurement, Point, RATE, RTT, SAMPLE_INTERVAL,
    START_SPREAD, STREAM, Sharing, Timeline,
};

/// Measurements of a run, disturbances by the machine, and the number of flows that fell back.
pub(super) type KernelRun = (Measurement, Vec<String>, u64);

/// Time from the start of the threads to that of the run.
const LEAD: Duration = Duration::from_millis(300);
/// Timeout of a blocked write or read, after which it checks for the end of the run.
const PATIENCE: StdDuration = StdDuration::from_millis(50);
/// Time for the agent's thread to end.
const END: Duration = Duration::from_secs(2);
/// Name of each host's registration.
const NAMES: [&str; 2] = ["ccp_group_east", "ccp_group_west"];
/// Name of each host's key.
const HOSTS: [&str; 2] = ["east", "west"];
/// Pacing rate that makes TCP pace a socket, bytes/s, above the rate of any flow.
const UNLIMITED: u64 = 1 << 40;

/// Runs one point.
pub(super) fn run(
    point: &Point,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<KernelRun, Error> {
    let emulator = Emulator::start(bottleneck(point.seed))
        .map_err(|error| BackendError::from_emulator(error, true))?;
    let hosts = hosts(&emulator)?;
    let group = Group::start(point.sharing, registry)?;
    let (senders, receivers) = connect(point.sharing, &emulator, &hosts, group.as_ref())?;
    let watch = MachineWatch::start();
    let (mut measured, began) = traffic(point, senders, receivers, progress)
        .map_err(Error::traffic("send as a group", ""))?;
    let machine = watch.finish();
    let fallbacks = group.map_or(Ok(0), Group::finish)?;
    let report = emulator
        .finish()
        .map_err(|error| BackendError::from_emulator(error, true))?;
    if progress.is_cancelled() {
        return Err(Error::Interrupted);
    }
    measured.drops = report.forward.queue_drops;
    let began = began.saturating_sub(report.epoch.as_nanos());
    let counted = report
        .forward
        .records()
        .filter(|record| record.arrived.as_nanos() >= began);
    let sojourns = counted.filter_map(|record| Some(record.sojourn()?.as_nanos() as f64 / 1e6));
    measured.delay_ms = Distribution::new(sojourns).mean().unwrap_or_default();
    Ok((
        measured,
        machine.disturbances(longest_stall(RTT.as_secs_f64() * 1e3)),
        fallbacks,
    ))
}

/// Returns the path that all flows share.
fn bottleneck(seed: u64) -> EmuConfig {
    EmuConfig {
        forward: LinkConfig {
            line: LineSpec::Constant(RATE),
            delay: RTT / 2,
            queue: QueueSpec::ONE_BDP,
            seeds: LinkSeeds::from_seed(seed),
            ..LinkConfig::default()
        },
        reverse: LinkConfig {
            line: LineSpec::Unlimited,
            delay: RTT / 2,
            ..LinkConfig::default()
        },
        mtu: MTU,
        ..EmuConfig::default()
    }
}

/// Creates the two hosts of the group and the one of the other flow. The emulator's end is their
/// router.
fn hosts(emulator: &Emulator) -> Result<Vec<Namespace>, Error> {
    let router = emulator.sender_ns();
    let forwards = router.set_sysctl("net/ipv4/ip_forward", "1");
    forwards.map_err(|error| BackendError::from_host(error, true))?;
    // Private addresses (RFC 1918) that the emulator does not use, a network for each host.
    wire::run(
        emulator.receiver_ns(),
        "ip",
        &["route", "add", "10.78.0.0/16", "dev", DEVICE_NAME],
    )?;
    let host = |n: u8| {
        let name = format!("{}-host{n}", router.name());
        let host =
            Namespace::create(&name).map_err(|error| BackendError::from_host(error, true))?;
        let [own, gate] = [1, 2].map(|last| Ipv4Addr::new(10, 78, n, last));
        wire::pair([&host, router], ["host0", &format!("host{n}")], [own, gate])?;
        wire::run(
            &host,
            "ip",
            &["route", "add", "default", "via", &gate.to_string()],
        )?;
        Ok(host)
    };
    (1..=3).map(host).collect()
}

/// Folder of keys, removed on drop.
struct Keys(PathBuf);

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Registrations of the hosts, and the agent that steers them. Registrations are dropped first.
struct Group {
    steered: Vec<SteeredAlgorithm>,
    agent: AgentThread,
    path: Emulator,
    keys: Keys,
}

impl Group {
    /// Starts the agent at its distance, and registers both hosts. Returns `None` without a group.
    #[expect(clippy::disallowed_methods, reason = "certificates are made now")]
    fn start(sharing: Sharing, registry: &Registry) -> Result<Option<Group>, Error> {
        let Some(parameters) = sharing.parameters() else {
            return Ok(None);
        };
        let mut agent = Agent::new(ccplane_agent::AgentOptions::default());
        agent.add_boxed(registry.by_name(ALGORITHM, &parameters)?)?;
        let path = Emulator::start(control(sharing))
            .map_err(|error| BackendError::from_emulator(error, true))?;
        let keys = Keys(std::env::temp_dir().join(path.sender_ns().name()));
        let broken =
            |error: LinkError| Error::traffic("reach the agent", "")(io::Error::other(error));
        let made = make_keys(&keys.0, &HOSTS.map(str::to_owned), SystemTime::now());
        made.map_err(|error| broken(error.into()))?;
        let address = path.receiver_addr();
        let bind = || TlsLink::bind(SocketAddr::new(address, 0), &keys.0).map_err(io::Error::other);
        let link = inside(path.receiver_ns(), "listen for datapaths", bind)?;
        let port = link
            .address()
            .map_err(Error::traffic("read the agent's address", ""))?
            .port();
        let agent = AgentThread::start("lab-agent", agent, link)
            .map_err(Error::traffic("start an agent", ""))?;
        let mut group = Group {
            steered: Vec::new(),
            agent,
            path,
            keys,
        };
        for (name, host) in NAMES.into_iter().zip(HOSTS) {
            let remote = AgentAddress::Tls(TlsAddress {
                host: address.to_string(),
                port,
                keys: Some(group.keys.0.join(host)),
            });
            // The thread, and with it the connection to the agent, starts in this namespace.
            let start = || SteeredAlgorithm::start_remote(&remote, ALGORITHM, Some(name), 0);
            let started = group.path.sender_ns().run(start);
            group
                .steered
                .push(started.map_err(|error| BackendError::from_host(error, true))??);
        }
        Ok(Some(group))
    }

    /// Unregisters the hosts, and returns the number of flows that fell back.
    fn finish(self) -> Result<u64, Error> {
        let fallbacks = self
            .steered
            .into_iter()
            .map(|one| Ok(one.finish()?.counters.fallbacks))
            .sum();
        self.agent.stop_and_join(END);
        fallbacks
    }
}

/// Returns the path to the agent.
fn control(sharing: Sharing) -> EmuConfig {
    let way = || LinkConfig {
        line: LineSpec::Unlimited,
        delay: Duration::from_micros(sharing.distance_us()),
        ..LinkConfig::default()
    };
    EmuConfig {
        forward: way(),
        reverse: way(),
        mtu: MTU,
        ..EmuConfig::default()
    }
}

/// Connects every flow, members first, and returns both ends.
fn connect(
    sharing: Sharing,
    emulator: &Emulator,
    hosts: &[Namespace],
    group: Option<&Group>,
) -> Result<(Vec<TcpStream>, Vec<TcpStream>), Error> {
    let (address, buffer) = (
        emulator.receiver_addr(),
        buffer_for(RATE.bytes_in(RTT) + RATE.bytes_in(RTT)),
    );
    let listen = || traffic::listen(address, buffer);
    let listener = inside(
        emulator.receiver_ns(),
        "listen in the receiver's namespace",
        listen,
    )?;
    let to = listener
        .local_addr()
        .map_err(Error::traffic("read the listener's address", ""))?;
    let mut senders = Vec::new();
    let mut open = |host: usize, congestion: &str, buffer: usize| {
        let namespace = hosts
            .get(host)
            .ok_or_else(|| io::Error::other("no such host"));
        let namespace = namespace.map_err(Error::traffic("find a host", ""))?;
        let connect = || {
            let stream = traffic::connect(to, congestion, buffer)?;
            if sharing != Sharing::Bare {
                ccplane_host::pace(&stream, UNLIMITED)?;
            }
            Ok(stream)
        };
        senders.push(inside(namespace, "connect over the path", connect)?);
        Ok::<(), Error>(())
    };
    let members = sharing.members();
    for member in 0..members {
        let host = usize::from(member >= members.div_ceil(2));
        let steered = group.and_then(|group| group.steered.get(host));
        // The idle member must not have more left to send than in the simulator. The kernel doubles
        // the requested buffer size.
        let small = members > 1 && member == IDLE_MEMBER;
        open(
            host,
            steered.map_or("cubic", SteeredAlgorithm::kernel_name),
            if small { BACKLOG as usize / 2 } else { buffer },
        )?;
    }
    if sharing.has_other() {
        open(2, "cubic", buffer)?;
    }
    let receivers = traffic::accept(&listener, &senders)
        .map_err(Error::traffic("accept the connections", ""))?;
    Ok((senders, receivers))
}

/// Times of a sender, `CLOCK_MONOTONIC` nanoseconds.
#[derive(Clone, Copy)]
struct Times {
    starts: u64,
    /// Interval in which it has nothing to send.
    idle: Option<(u64, u64)>,
    ends: u64,
}

/// Sends on all flows, and samples the bytes received. Also returns the start, `CLOCK_MONOTONIC`
/// nanoseconds.
fn traffic(
    point: &Point,
    senders: Vec<TcpStream>,
    receivers: Vec<TcpStream>,
    progress: &dyn Progress,
) -> io::Result<(Measurement, u64)> {
    let begin = monotonic_ns() + LEAD.as_nanos();
    let at = |seconds: u64| begin + Duration::from_secs(seconds).as_nanos();
    let Timeline {
        idle,
        returns,
        killed,
        end,
        ..
    } = point.timeline;
    let (members, stop) = (point.sharing.members(), AtomicBool::new(false));
    let mut random = Pcg64::new(u128::from(point.seed), STREAM);
    let mut times = (0..).map(|flow: u32| {
        let member = members > 1 && flow < members;
        Times {
            starts: begin + random.next_u64() % START_SPREAD.as_nanos(),
            idle: (member && flow == IDLE_MEMBER).then_some((at(idle), at(returns))),
            ends: if member && flow == KILLED_MEMBER {
                at(killed)
            } else {
                at(end)
            },
        }
    });
    let mut measured = Measurement {
        arrived: vec![Vec::new(); receivers.len()],
        ..Measurement::default()
    };
    let counts: Vec<Arc<AtomicU64>> = receivers.iter().map(|_| Arc::default()).collect();
    thread::scope(|scope| {
        let stop = &stop;
        // The threads end with this function, also after an error.
        let _stops = Stops(stop);
        for (stream, count) in receivers.into_iter().zip(&counts) {
            let body = move || {
                let _ = ccplane_host::raise_priority();
                traffic::drain(stream, count, stop);
            };
            thread::Builder::new()
                .name("lab-receive".into())
                .spawn_scoped(scope, body)?;
        }
        for (stream, times) in senders.into_iter().zip(&mut times) {
            let body = move || send(stream, times, stop);
            thread::Builder::new()
                .name("lab-send".into())
                .spawn_scoped(scope, body)?;
        }
        let samples = Duration::from_secs(end).as_nanos() / SAMPLE_INTERVAL.as_nanos();
        for sample in 1..=samples {
            wait_until(begin + sample * SAMPLE_INTERVAL.as_nanos());
            for (count, arrived) in counts.iter().zip(&mut measured.arrived) {
                arrived.push(count.load(Ordering::Relaxed));
            }
            progress.on_progress(sample as f64 / samples as f64, "");
            if progress.is_cancelled() {
                break;
            }
        }
        Ok((measured, begin))
    })
}

/// Sets the flag on drop.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes as fast as possible. At the end the connection is reset, as by a host that disappears.
fn send(mut stream: TcpStream, times: Times, stop: &AtomicBool) {
    // Without the permission the thread keeps its priority. The emulator's audit reports late
    // packets.
    let _ = ccplane_host::raise_priority();
    let block = vec![0x5a; 32 << 10];
    let mut now = monotonic_ns();
    if stream.set_write_timeout(Some(PATIENCE)).is_ok() {
        wait_until(times.starts);
        while now < times.ends && !stop.load(Ordering::Relaxed) {
            match times.idle {
                // In steps, to react to Ctrl-C.
                Some((from, to)) if (from..to).contains(&now) => {
                    wait_until(to.min(now + SAMPLE_INTERVAL.as_nanos()))
                }
                _ => match stream.write(&block) {
                    Ok(_) => {}
                    Err(e)
                        if matches!(
                            e.kind(),
                            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                        ) => {}
                    Err(_) => break, // a broken connection; the receiver misses its data
                },
            }
            now = monotonic_ns();
        }
    }
    traffic::reset_on_close(&stream);
}

#[cfg(test)]
#[path = "../../../testbed/tests/common/host.rs"]
mod host;

#[cfg(test)]
mod tests {
    use ccplane_lab::NoProgress;

    use super::*;

    /// Members of both hosts receive data, the idle one not while it is idle, and the killed one
    /// not after.
    #[test]
    fn one_agent_steers_the_flows_of_two_hosts_of_this_kernel() {
        if !host::steers("one_agent_steers_the_flows_of_two_hosts_of_this_kernel") {
            return;
        }
        let _one = host::registers();
        let point = Point {
            sharing: Sharing::Limit(1_000),
            seed: 1,
            timeline: Timeline {
                steady: 2,
                idle: 3,
                returns: 5,
                killed: 6,
                end: 8,
            },
        };
        // Repeats the run: other load of the machine may make the agent late. A fallback that the
        // code causes is in every run.
        let once = || run(&point, &Registry::builtin(), &NoProgress).unwrap();
        let (mut measured, _, mut fallbacks) = once();
        for _ in 0..2 {
            if fallbacks > 0 {
                (measured, _, fallbacks) = once();
            }
        }
        assert_eq!(fallbacks, 0);
        let between = |flow: usize, from: f64, to: f64| {
            let at = |seconds: f64| measured.arrived[flow][(seconds * 10.0) as usize - 1];
            (at(to) - at(from)) as f64
        };
        let rate = |from: f64, to: f64| {
            (0..8).map(|flow| between(flow, from, to)).sum::<f64>() * 8.0 / 1e6 / (to - from)
        };
        for (from, to) in [(2.0, 3.0), (5.2, 6.0), (6.4, 8.0)] {
            // The limit is 40 Mbit/s; a busy machine may carry less.
            assert!(
                (20.0..42.0).contains(&rate(from, to)),
                "{} Mbit/s",
                rate(from, to)
            );
        }
        for flow in 0..8 {
            assert!(
                between(flow, 2.0, 3.0) > 200_000.0,
                "{flow}: {}",
                between(flow, 2.0, 3.0)
            );
        }
        // The data that it had left to send has arrived, also on a busy machine.
        assert_eq!(between(IDLE_MEMBER as usize, 4.5, 5.0), 0.0);
        // Its share is 625 kB. A member that is repeatedly considered idle gets a fortieth.
        let back = between(IDLE_MEMBER as usize, 5.0, 6.0);
        assert!(
            back > 60_000.0,
            "{back} bytes in the second after it is back"
        );
        assert_eq!(between(KILLED_MEMBER as usize, 6.4, 8.0), 0.0);
        let names =
            std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
        assert!(!NAMES.iter().any(|name| names.contains(name)), "{names}");
    }
}
