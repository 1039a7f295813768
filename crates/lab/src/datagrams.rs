//! Runs a contender over ccplane's own transport: UDP through the emulated path, with RC3's second loop or without.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use ccplane_agent::Agent;
use ccplane_agent::datapath::{Here, There};
use ccplane_algorithms::Registry;
use ccplane_datapath::{Capabilities, Limits};
use ccplane_emu::Emulator;
use ccplane_linux::remote_algorithms;
use ccplane_qdisc::Ecn;
use ccplane_transport::udp::{Congestion, DATAGRAM, Host, Options, Stamping, UdpError};
use ccplane_transport::{Config, Native, Phase, Stats, Tail};
use ccplane_units::Duration;

use crate::cpu::Reading;
use crate::diag::TcpInfo;
use crate::ends::{Ends, inside};
use crate::error::Error;
use crate::experiment::{Contender, Experiment, RemoteAgent, wants};
use crate::figures::{audit, figures, series};
use crate::machine::Watch;
use crate::metrics;
use crate::result::{ContenderResult, Figures, HostFigures, Sample, SecondLoop, Setup};
use crate::run::{NARROWEST_BIN, Progress, path, read};
use crate::traffic::{Transfer, monotonic_ns};

/// A host looks around so often where nothing happens.
const LOOK: Duration = Duration::from_millis(5);
/// Until then all connections are open, or it has failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes with which every stream begins: which flow it is.
const NAME: usize = 2;

/// Runs one contender.
pub(crate) fn run_one(
    e: &Experiment,
    setup: &Setup,
    contender: &Contender,
    second_loop: bool,
    registry: &Registry,
    progress: &mut dyn Progress,
) -> Result<ContenderResult, Error> {
    let emulator = Emulator::start(path(e)).map_err(|error| Error::from_emulator(error, false))?;
    let ends = Ends::of(&emulator);
    // An agent in another process may have what is not known here.
    let wanted = match &e.agent {
        Some(_) => wants(contender, registry).unwrap_or_default(),
        None => wants(contender, registry)?,
    };
    let options = options(setup, wanted, second_loop);
    let bind = |namespace: &ccplane_host::Namespace, address| -> Result<Host, Error> {
        let options = Options {
            local: SocketAddr::new(address, 0),
            ..options.clone()
        };
        inside(namespace, "open a UDP socket in a namespace", || {
            Host::bind(options).map_err(io::Error::other)
        })
    };
    let server = bind(&ends.receiver, ends.address)?;
    let mut client = bind(&ends.sender, emulator.sender_addr())?;
    let congestion = congestion(contender, e.agent.as_ref(), registry, &mut client)?;

    let (before, watch) = (Reading::now(None), Watch::start());
    let transferred = transfer(client, server, congestion, e, progress);
    let (after, machine) = (Reading::now(None), watch.finish());
    let report = emulator.finish().map_err(|error| Error::from_emulator(error, false))?;
    if progress.cancelled() {
        return Err(Error::Interrupted);
    }
    let (transfer, second_loops) = transferred.map_err(Error::traffic(
        "send over the path",
        "a loss near 100% lets no connection through",
    ))?;
    let figures = Figures {
        second_loop: second_loop.then_some(second_loops),
        ..figures(e, &transfer, &report)
    };
    let received: u64 = figures.flows.iter().map(|f| f.received_bytes).sum();
    let (process, machine_cpu, _) = after.percent_since(&before);
    let audit = audit(&report, &figures, setup, &machine, None);
    Ok(ContenderResult {
        label: contender.to_string(),
        algorithm: contender.algorithm().to_owned(),
        native: contender.is_native(),
        kernel_name: String::new(),
        host: HostFigures {
            reports_per_s: None,
            agent_cpu_percent: None,
            process_cpu_percent: Some(process),
            machine_cpu_percent: Some(machine_cpu),
            cpu_s_per_gb: Some(after.process_s_since(&before) * 1e9 / received.max(1) as f64),
            wall_s: None,
        },
        audit,
        spread: None,
        series: series(&transfer, &report, e.rtt.max(NARROWEST_BIN), None),
        figures,
    })
}

/// Of both ends' sockets.
fn options(setup: &Setup, wants: Capabilities, second_loop: bool) -> Options {
    let stamps = wants.contains(Capabilities::ONE_WAY_DELAY);
    // All that the path and its queue hold, twice; a queue without limit is taken to hold a second.
    let queue = setup.queue_bytes.unwrap_or((setup.rate_mbit * 125e3) as u64);
    let window = setup
        .bdp_bytes
        .saturating_add(queue)
        .saturating_mul(2)
        .clamp(1 << 20, 1 << 29);
    let config = Config {
        ecn: match wants.contains(Capabilities::ECN) {
            true => Ecn::Ect0,
            false => Ecn::NotEct,
        },
        stamps,
        tail: second_loop.then(Tail::default),
        ..Config::default()
    };
    Options {
        local: SocketAddr::from(([0; 4], 0)),
        datagram: DATAGRAM,
        window: window as usize,
        key: None,
        dscp: 0,
        config,
        stamping: if stamps { Stamping::Software } else { Stamping::Off },
        link: None,
        accepted: Native::cubic(),
    }
}

/// Who decides windows: an agent in the sender's thread, or the transport itself.
fn congestion(
    contender: &Contender,
    agent: Option<&RemoteAgent>,
    registry: &Registry,
    host: &mut Host,
) -> Result<Congestion, Error> {
    match contender {
        Contender::Native { name } => Ok(Congestion::Native(crate::sim::native(name)?)),
        Contender::Ccplane { name, parameters } => {
            let Some(agent) = agent else {
                return here(name, parameters, registry, host);
            };
            // An agent serves a flow whose algorithm it lacks by the first that it has.
            let limits = Limits::default();
            remote_algorithms(&agent.address, &[name], limits.fallback_after)?;
            let remote = agent.address.remote(name, agent.silence);
            let link = There::connect(remote, host.now()).map_err(ccplane_linux::RemoteError::from)?;
            host.steer(link, limits);
            Ok(Congestion::Steered(name.clone()))
        }
    }
}

/// By an algorithm of this process.
fn here(
    name: &str,
    parameters: &[(String, String)],
    registry: &Registry,
    host: &mut Host,
) -> Result<Congestion, Error> {
    let mut agent = Agent::new(ccplane_agent::Options::default());
    agent.add_boxed(registry.by_name(name, &read(parameters))?)?;
    host.steer(Here::new(agent), Limits::default());
    Ok(Congestion::Steered(name.to_owned()))
}

/// Sends on every connection for as long as the experiment says; and what second loops did.
fn transfer(
    mut client: Host,
    server: Host,
    congestion: Congestion,
    e: &Experiment,
    progress: &mut dyn Progress,
) -> io::Result<(Transfer, SecondLoop)> {
    let to = server.local();
    let local = client.local();
    let received: Vec<AtomicU64> = (0..e.flows).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let receiving = scope.spawn(|| {
            let taken = receive(server, &received, &stop);
            // Nobody is to go on sending to an end that failed.
            stop.store(true, Ordering::Relaxed);
            taken
        });
        let sent = send(&mut client, to, &congestion, &received, &stop, e, progress);
        stop.store(true, Ordering::Relaxed);
        let joined = receiving.join();
        // Where both failed it was the receiver's end that did.
        joined
            .map_err(|_| io::Error::other("the receiver panicked"))?
            .map_err(io::Error::other)?;
        let (mut transfer, second_loops) = sent?;
        transfer.senders = vec![local; e.flows];
        Ok((transfer, second_loops))
    })
}

/// Takes all that comes, and counts it by flow.
fn receive(mut host: Host, received: &[AtomicU64], stop: &AtomicBool) -> Result<(), UdpError> {
    host.listen(received.len())?;
    let mut flows: Vec<(u64, Option<usize>)> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        host.turn(LOOK)?;
        while let Some(id) = host.accepted() {
            flows.push((id, None));
        }
        for (id, name) in &mut flows {
            let (first, second) = host.arrived(*id);
            let bytes = first.len() + second.len();
            if name.is_none() && bytes >= NAME {
                let mut begin = first.iter().chain(second);
                let named = begin
                    .by_ref()
                    .take(NAME)
                    .fold(0, |name, byte| name << 8 | usize::from(*byte));
                *name = Some(named);
            }
            if let Some(counter) = name.and_then(|name| received.get(name)) {
                counter.fetch_add(bytes as u64, Ordering::Relaxed);
                host.take(*id, bytes);
            }
        }
    }
    Ok(())
}

/// Keeps every connection's buffer full, and looks at each.
fn send(
    host: &mut Host,
    to: SocketAddr,
    congestion: &Congestion,
    received: &[AtomicU64],
    stop: &AtomicBool,
    e: &Experiment,
    progress: &mut dyn Progress,
) -> io::Result<(Transfer, SecondLoop)> {
    let mut ids = Vec::with_capacity(e.flows);
    for _ in 0..e.flows {
        ids.push(host.connect(to, congestion.clone()).map_err(io::Error::other)?);
    }
    let late = monotonic_ns() + PATIENCE.as_nanos();
    while !ids
        .iter()
        .all(|id| host.stats(*id).is_some_and(|stats| stats.srtt > Duration::ZERO))
    {
        if monotonic_ns() > late || stop.load(Ordering::Relaxed) {
            return Err(io::Error::other("nobody answered in time"));
        }
        host.turn(LOOK).map_err(io::Error::other)?;
    }
    for (name, id) in ids.iter().enumerate() {
        if let Some(place) = host.room(*id).first_chunk_mut() {
            *place = (name as u16).to_be_bytes();
            host.wrote(*id, NAME);
        }
    }
    let started_ns = monotonic_ns();
    let (every, duration) = (e.sample_every.as_nanos().max(1), e.duration.as_nanos());
    let mut flows = vec![vec![Sample::default()]; ids.len()];
    let (mut next, mut seen) = (every, (0, 0));
    let elapsed_ns = loop {
        for id in &ids {
            loop {
                let room = host.room(*id).len(); // what is in it does not matter
                if room == 0 {
                    break;
                }
                host.wrote(*id, room);
            }
        }
        host.turn(LOOK.min(e.sample_every)).map_err(io::Error::other)?;
        let at_ns = monotonic_ns().saturating_sub(started_ns);
        if at_ns < next && at_ns < duration {
            continue;
        }
        next = at_ns + every;
        for ((id, samples), received) in ids.iter().zip(&mut flows).zip(received) {
            let Some(connection) = host.connection(*id) else {
                return Err(io::Error::other("a connection is gone"));
            };
            if let Some(why) = connection.failure() {
                return Err(io::Error::other(why));
            }
            samples.push(Sample {
                at_ns,
                received: received.load(Ordering::Relaxed),
                tcp: tcp(&connection.stats(), connection.mss(), connection.phase()),
            });
        }
        let total: u64 = flows
            .iter()
            .filter_map(|f| f.last())
            .map(|sample| sample.received)
            .sum();
        progress.step(
            (at_ns as f64 / duration.max(1) as f64).min(1.0),
            metrics::mbits(total.saturating_sub(seen.1), at_ns.saturating_sub(seen.0)),
        );
        seen = (at_ns, total);
        if at_ns >= duration || progress.cancelled() || stop.load(Ordering::Relaxed) {
            break at_ns;
        }
    };
    let second_loop = SecondLoop::of(ids.iter().filter_map(|id| host.connection(*id)?.tail_stats()));
    for id in ids {
        host.abort(id).map_err(io::Error::other)?;
    }
    let transfer = Transfer {
        started_ns,
        elapsed_ns,
        senders: Vec::new(),
        flows,
    };
    Ok((transfer, second_loop))
}

/// In the terms of Linux TCP; what the transport does not count is 0.
fn tcp(stats: &Stats, mss: u64, phase: Phase) -> TcpInfo {
    let segments = |bytes: u64| u32::try_from(bytes / mss.max(1)).unwrap_or(u32::MAX);
    let us = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
    TcpInfo {
        ca_state: match phase {
            Phase::Open => 0,
            Phase::Reduction => 2,
            Phase::Recovery => 3,
            Phase::Loss => 4,
        },
        mss: mss as u32,
        unacked: stats.in_flight,
        srtt_us: us(stats.srtt),
        ssthresh: segments(stats.ssthresh).min(0x7fff_ffff),
        cwnd: segments(stats.cwnd),
        retrans: stats.retransmitted,
        pacing_rate: if stats.pacing_rate == 0 {
            u64::MAX
        } else {
            stats.pacing_rate
        },
        delivered_ce: stats.marked,
        bytes_acked: stats.acked,
        min_rtt_us: us(stats.min_rtt),
        bytes_retrans: u64::from(stats.retransmitted) * mss,
        ..TcpInfo::default()
    }
}
