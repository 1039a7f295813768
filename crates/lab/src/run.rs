//! Runs an experiment on real packets: a fresh path for each contender, traffic, samples, figures.

use std::net::TcpStream;

use ccplane_algorithms::{Parameters, Registry};
use ccplane_datapath::Capabilities;
use ccplane_emu::{Config, DEVICE, Emulator, LinkConfig};
use ccplane_qdisc::{Limit, LineSpec};
use ccplane_units::{Bytes, Duration, Rate};

use crate::cpu::Reading;
use crate::datagrams;
use crate::diag::Diag;
use crate::ends::Ends;
use crate::error::Error;
use crate::experiment::{Contender, Experiment, suggestions, wants};
use crate::figures::{audit, figures, series};
use crate::heard;
use crate::machine::Watch;
use crate::metrics;
use crate::result::{ContenderResult, HostFigures, RunResult, Setup};
use crate::stamped::Stamping;
use crate::steer::Steered;
use crate::traffic::{self, Plan};
use crate::wire;

/// What a caller may show and decide while a run goes on.
pub trait Progress {
    /// A contender begins: its label, its place among how many.
    fn begin(&mut self, _contender: &str, _index: usize, _of: usize) {}
    /// It goes on: share of its time gone (0 to 1), goodput of all flows since the last step in Mbit/s.
    fn step(&mut self, _share: f64, _goodput_mbit: f64) {}
    /// It is done.
    fn end(&mut self, _result: &ContenderResult) {}
    /// Whether to stop now; asked at every sample.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Shows nothing, never stops.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {}

/// The largest packet on the emulated path, IP header included.
pub(crate) const MTU: u32 = 1500;

/// For how long a full packet waited, µs, whose sojourn at a link of this rate was so many ms: what it takes on the wire itself is
/// no queue.
pub(crate) fn waited_us(sojourn_ms: f64, rate: Rate) -> f64 {
    let wire_us = f64::from(MTU) * 1e6 / rate.bytes_per_sec() as f64;
    (sojourn_ms * 1e3 - wire_us).max(0.0)
}

/// Fewer and no bin is whole; the smallest bin is 10 ms wide.
const SHORTEST: Duration = Duration::from_millis(100);

/// Each flow takes two threads and some megabytes of socket buffers.
const MOST_FLOWS: usize = 1000;

/// Throughput and delay are binned by the round-trip time, as the papers do, but not finer than this: below, a bin of
/// a slow link holds a handful of packets.
pub(crate) const NARROWEST_BIN: Duration = Duration::from_millis(10);

/// What carries the traffic of a run on real packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The kernel's TCP.
    Tcp,
    /// ccplane's transport over UDP.
    Udp {
        /// With RC3's second loop.
        second_loop: bool,
    },
}

/// Runs every contender over kernel TCP, one after the other, each on a new path made alike. Nothing is left behind, whatever happens.
pub fn run(experiment: &Experiment, registry: &Registry, progress: &mut dyn Progress) -> Result<RunResult, Error> {
    run_over(Carrier::Tcp, experiment, registry, progress)
}

/// The same over this carrier.
pub fn run_over(
    carrier: Carrier,
    experiment: &Experiment,
    registry: &Registry,
    progress: &mut dyn Progress,
) -> Result<RunResult, Error> {
    let setup = check(carrier, experiment, registry)?;
    let mut contenders = Vec::with_capacity(experiment.contenders.len());
    for (index, contender) in experiment.contenders.iter().enumerate() {
        progress.begin(&contender.to_string(), index, experiment.contenders.len());
        let result = match carrier {
            Carrier::Tcp => run_one(experiment, &setup, contender, registry, progress)?,
            Carrier::Udp { second_loop } => {
                datagrams::run_one(experiment, &setup, contender, second_loop, registry, progress)?
            }
        };
        progress.end(&result);
        contenders.push(result);
    }
    Ok(RunResult {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: experiment.command.clone(),
        note: String::new(),
        setup,
        title: None,
        digest: None,
        contenders,
    })
}

/// Everything that can be wrong before anything is made.
fn check(carrier: Carrier, e: &Experiment, registry: &Registry) -> Result<Setup, Error> {
    let bad = |what, value: String, fix| Err(Error::Bad { what, value, fix });
    if e.contenders.is_empty() {
        return Err(Error::NoContender);
    }
    let Some(rate) = e.line.mean_rate() else {
        return bad(
            "the link's rate",
            "unlimited".into(),
            "a run needs a bottleneck, such as --rate 96mbit",
        );
    };
    if rate == Rate::from_bytes_per_sec(0) {
        return bad(
            "the link's rate",
            "0".into(),
            "give a rate above 0, such as --rate 96mbit",
        );
    }
    if e.duration < SHORTEST {
        return bad(
            "the duration",
            e.duration.to_string(),
            "give at least 100 ms, better 15s",
        );
    }
    if e.flows == 0 || e.flows > MOST_FLOWS {
        return bad("the number of flows", e.flows.to_string(), "give 1 to 1000");
    }
    if e.rtt > Duration::from_secs(10) {
        return bad(
            "the round-trip time",
            e.rtt.to_string(),
            "give at most 10s: connections would time out",
        );
    }
    for contender in &e.contenders {
        if let Contender::Ccplane { name, parameters } = contender
            && e.agent.is_none()
        {
            registry.by_name(name, &read(parameters))?;
        }
        if let (Contender::Native { name }, Carrier::Udp { .. }) = (contender, carrier) {
            crate::sim::native(name)?;
        }
        if let Contender::Native { name } = contender
            && carrier == Carrier::Tcp
            && !traffic::exists(name)
        {
            let known = traffic::available();
            let near = suggestions(name, known.iter().map(String::as_str))
                .into_iter()
                .map(str::to_owned)
                .collect();
            return Err(Error::UnknownNative {
                name: name.clone(),
                near,
                known,
            });
        }
    }
    let limit = e.queue.limit(Some(rate), e.rtt, MTU).map_err(|source| {
        Error::Emulator(ccplane_emu::Error::Queue {
            way: ccplane_emu::Way::Forward,
            source,
        })
    })?;
    let queue_bytes = match limit {
        Limit::Bytes(bytes) => Some(bytes),
        Limit::Packets(packets) => Some(packets.saturating_mul(u64::from(MTU))),
        Limit::Unlimited => None,
    };
    let bdp = rate.bytes_in(e.rtt);
    // A queue without a limit is taken to hold up to a second.
    let queue = queue_bytes.unwrap_or(rate.bytes_per_sec());
    Ok(Setup {
        datapath: match carrier {
            Carrier::Tcp => "Linux TCP",
            Carrier::Udp { second_loop: false } => "ccplane's transport over UDP",
            Carrier::Udp { second_loop: true } => "ccplane's transport over UDP, with RC3's second loop",
        }
        .to_owned(),
        rate: e.line_name.clone(),
        rate_mbit: rate.bytes_per_sec() as f64 * 8.0 / 1e6,
        rtt_ms: e.rtt.as_secs_f64() * 1e3,
        queue: e.queue_name.clone(),
        queue_bytes,
        bdp_bytes: bdp.get(),
        loss: e.loss.to_string(),
        flows: e.flows,
        duration_s: e.duration.as_secs_f64(),
        seed: e.seed,
        bin_ms: e.rtt.max(NARROWEST_BIN).as_secs_f64() * 1e3,
        sample_ms: e.sample_every.as_secs_f64() * 1e3,
        socket_buffer_bytes: (carrier == Carrier::Tcp).then(|| traffic::buffer_for(bdp + Bytes::new(queue))),
        ..Setup::default()
    })
}

pub(crate) fn read(parameters: &[(String, String)]) -> Parameters {
    parameters
        .iter()
        .fold(Parameters::new(), |all, (name, value)| all.with(name, value))
}

pub(crate) fn path(e: &Experiment) -> Config {
    let there = Duration::from_nanos(e.rtt.as_nanos() / 2);
    Config {
        forward: LinkConfig {
            line: e.line.clone(),
            delay: there,
            queue: e.queue,
            loss: e.loss,
            jitter: e.jitter,
            reorder: e.reorder,
            seed: e.seed,
        },
        reverse: LinkConfig {
            line: LineSpec::Unlimited,
            delay: e.rtt.saturating_sub(there),
            ..LinkConfig::default()
        },
        mtu: MTU,
        timing: e.timing,
        ..Config::default()
    }
}

fn run_one(
    e: &Experiment,
    setup: &Setup,
    contender: &Contender,
    registry: &Registry,
    progress: &mut dyn Progress,
) -> Result<ContenderResult, Error> {
    let bpf = e.contenders.iter().any(|c| !c.is_native());
    let mut steered = match contender {
        Contender::Native { .. } => None,
        Contender::Ccplane { name, parameters } => Some(match &e.agent {
            None => Steered::start(registry, name, &read(parameters), heard::KEPT)?,
            Some(agent) => Steered::start_remote(agent, name, heard::KEPT)?,
        }),
    };
    let wanted = match &steered {
        Some(steered) => steered.wants(),
        None => wants(contender, registry)?,
    };
    let kernel_name = steered
        .as_ref()
        .map_or(contender.algorithm(), Steered::kernel_name)
        .to_owned();
    let emulator = Emulator::start(path(e)).map_err(|error| Error::from_emulator(error, bpf))?;
    let ends = Ends::of(&emulator);
    let stamps = steered.as_mut().and_then(Steered::take_stamps);
    let mut stamping = stamps
        .map(|stamps| Stamping::start(stamps, &ends, [DEVICE; 2]))
        .transpose()?;
    if stamping.is_some() {
        // Without iproute2 it goes on, with some stops of 40 ms.
        let _ = wire::answer_at_once(&ends.receiver, &emulator.sender_addr().to_string(), &["dev", DEVICE]);
    }
    let (senders, receivers, diag) = open(
        &ends,
        &kernel_name,
        wanted,
        e.flows,
        setup.socket_buffer_bytes.unwrap_or_default(),
    )?;

    let thread = steered.as_ref().map(Steered::thread);
    let reports = || steered.as_ref().map_or(0, Steered::reports);
    let (before, reports_before, watch) = (Reading::now(thread), reports(), Watch::start());
    let mut seen = (0u64, 0u64);
    let plan = Plan {
        duration: e.duration,
        sample_every: e.sample_every,
        ahead: true,
    };
    let transfer = traffic::transfer(senders, receivers, diag, &plan, |at_ns, flows| {
        if let Some(stamping) = &mut stamping {
            stamping.collect();
        }
        let received: u64 = flows.iter().filter_map(|f| f.last()).map(|s| s.received).sum();
        let share = at_ns as f64 / e.duration.as_nanos().max(1) as f64;
        progress.step(
            share.min(1.0),
            metrics::mbits(received.saturating_sub(seen.1), at_ns.saturating_sub(seen.0)),
        );
        seen = (at_ns, received);
        !progress.cancelled()
    })
    .map_err(Error::traffic(
        "observe the connections",
        "is the kernel built with inet_diag (CONFIG_INET_DIAG)?",
    ))?;
    let (after, reports) = (Reading::now(thread), reports() - reports_before);
    let machine = watch.finish();
    let report = emulator.finish().map_err(|error| Error::from_emulator(error, bpf))?;
    if progress.cancelled() {
        return Err(Error::Interrupted);
    }

    let (counters, heard) = steered.map(Steered::finish).transpose()?.unzip();

    let mut series = series(&transfer, &report, e.rtt.max(NARROWEST_BIN), heard);
    let mut figures = figures(e, &transfer, &report);
    if let Some(measured) = stamping.map(|stamping| stamping.finish(&report, &transfer)) {
        figures.one_way = measured.figures();
        series.stamped = measured.packets;
    }
    let received: u64 = figures.flows.iter().map(|f| f.received_bytes).sum();
    let (process, machine_cpu, agent) = after.percent_since(&before);
    Ok(ContenderResult {
        label: contender.to_string(),
        algorithm: contender.algorithm().to_owned(),
        native: contender.is_native(),
        kernel_name,
        host: HostFigures {
            reports_per_s: counters.map(|_| reports as f64 * 1e9 / transfer.elapsed_ns.max(1) as f64),
            agent_cpu_percent: counters.map(|_| agent),
            process_cpu_percent: Some(process),
            machine_cpu_percent: Some(machine_cpu),
            cpu_s_per_gb: Some(after.process_s_since(&before) * 1e9 / received.max(1) as f64),
            wall_s: None,
        },
        audit: audit(&report, &figures, setup, &machine, counters),
        spread: None,
        figures,
        series,
    })
}

/// The connections' two ends, and the kernel's view of the senders'. Where the algorithm wants ECN or time stamps both ends
/// run its congestion control: that makes the kernel accept the offer and echo every mark, and answer each packet that has a
/// stamp.
pub(crate) fn open(
    ends: &Ends,
    congestion: &str,
    wants: Capabilities,
    flows: usize,
    buffer: usize,
) -> Result<(Vec<TcpStream>, Vec<TcpStream>, Diag), Error> {
    let inside = |error| Error::Emulator(ccplane_emu::Error::Host(error));
    let ecn = wants.contains(Capabilities::ECN);
    let address = ends.address;
    let listener = ends
        .receiver
        .run(|| {
            let listener = traffic::listen(address, buffer)?;
            if ecn || wants.contains(Capabilities::ONE_WAY_DELAY) {
                traffic::listen_under(&listener, congestion)?;
            }
            Ok(listener)
        })
        .map_err(inside)?
        .map_err(Error::traffic("listen in the receiver's namespace", ""))?;
    let to = listener
        .local_addr()
        .map_err(Error::traffic("read the listener's address", ""))?;
    let (senders, mut diag) = ends
        .sender
        .run(|| {
            let senders = (0..flows)
                .map(|_| traffic::connect(to, congestion, buffer))
                .collect::<Result<Vec<_>, _>>()?;
            Ok((senders, Diag::open()?))
        })
        .map_err(inside)?
        .map_err(Error::traffic(
            "connect over the path",
            "a loss near 100% lets no connection through",
        ))?;
    let receivers = traffic::accept(&listener, &senders).map_err(Error::traffic(
        "accept the connections",
        "a loss near 100% lets no connection through",
    ))?;
    if ecn {
        agreed(&senders, &mut diag).map_err(Error::traffic(
            "use ECN",
            "a loss of the first SYN makes the kernel offer a connection without it (net.ipv4.tcp_ecn_fallback): run again, \
             or with an algorithm that needs no ECN",
        ))?;
    }
    Ok((senders, receivers, diag))
}

/// Refuses connections that did not agree on ECN: what needs marks would see none and take every queue for empty.
fn agreed(senders: &[TcpStream], diag: &mut Diag) -> std::io::Result<()> {
    for sender in senders {
        let (local, peer) = (sender.local_addr()?, sender.peer_addr()?);
        if diag.query(local, peer)?.is_some_and(|info| !info.ecn) {
            return Err(std::io::Error::other(format!(
                "the connection from {local} to {peer} did not agree on it, so no queue on the way may mark its packets"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_without_ecn_are_refused_where_it_is_needed() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut diag = Diag::open().unwrap();
        let offers = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_ecn").unwrap();
        let agreed = agreed(&[sender], &mut diag);
        // 1 and 3 make every connection of this host offer it.
        if matches!(offers.trim(), "1" | "3") {
            agreed.unwrap();
        } else {
            assert!(agreed.unwrap_err().to_string().contains("did not agree"));
        }
    }
}
