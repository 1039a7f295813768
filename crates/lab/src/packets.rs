//! [`Place`]s of real packets: kernel TCP, and our transport over UDP, each through an emulated bottleneck that a run makes and removes.

use std::net::TcpStream;

use ccplane_agent::link::AgentAddress;
use ccplane_algorithms::Registry;
use ccplane_datapath::Capabilities;
use ccplane_emu::{Config, DEVICE, Emulator, LinkConfig, Timing};
use ccplane_qdisc::LineSpec;
use ccplane_sim::Workload as Sends;
use ccplane_units::{Bytes, Duration, Rate};

use crate::cpu::Reading;
use crate::datagrams;
use crate::diag::Diag;
use crate::ends::Ends;
use crate::error::Error;
use crate::experiment::{Contender, read, suggestions, wants};
use crate::figures::{audit, record};
use crate::heard;
use crate::machine::Watch;
use crate::metrics;
use crate::progress::Progress;
use crate::result::{ContenderResult, HostFigures, Setup};
use crate::run::{Place, Prepared};
use crate::scenario::{Kind, Link, Scenario, Topology, TransportOptions, Until};
use crate::sim::{self, Plan as Network};
use crate::stamped::Stamping;
use crate::steer::Steered;
use crate::traffic::{self, Plan};
use crate::wire;

/// The largest packet on the emulated path, IP header included.
pub const MTU: u32 = 1500;

/// For how long a full packet waited, µs, whose sojourn at a link of this rate was so many ms: what it takes on the wire itself is
/// no queue.
pub fn waited_us(sojourn_ms: f64, rate: Rate) -> f64 {
    let wire_us = f64::from(MTU) * 1e6 / rate.bytes_per_sec() as f64;
    (sojourn_ms * 1e3 - wire_us).max(0.0)
}

/// Fewer and no bin is whole; the smallest bin is 10 ms wide.
const SHORTEST: Duration = Duration::from_millis(100);

/// Each flow takes some megabytes of socket buffers.
const MOST_FLOWS: usize = 1000;

/// Throughput and delay are binned by the round-trip time, as the papers do, but not finer than this: below, a bin of
/// a slow link holds a handful of packets.
const NARROWEST_BIN: Duration = Duration::from_millis(10);

/// An agent in another process.
#[derive(Clone, Debug)]
pub struct RemoteAgent {
    /// Where it serves.
    pub address: AgentAddress,
    /// How long a CCP agent may say nothing; without it, as long as it is there.
    pub silence: Option<Duration>,
}

/// Kernel TCP.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    /// How the emulator waits for a packet's time.
    pub timing: Timing,
    /// Who runs ccplane's algorithms; without it this process does.
    pub agent: Option<RemoteAgent>,
}

/// ccplane's transport over UDP; with RC3's second loop where the scenario's `[transport]` has it.
#[derive(Clone, Debug, Default)]
pub struct Udp {
    /// How the emulator waits for a packet's time.
    pub timing: Timing,
    /// Who runs ccplane's algorithms; without it this process does.
    pub agent: Option<RemoteAgent>,
}

impl Place for Kernel {
    fn prepare<'s>(&'s self, scenario: &'s Scenario, registry: &'s Registry) -> Result<Box<dyn Prepared + 's>, Error> {
        let path = Path::of(scenario, registry, Carrier::Tcp, self.timing, self.agent.as_ref())?;
        Ok(Box::new(path))
    }

    fn is_real(&self) -> bool {
        true
    }
}

impl Place for Udp {
    fn prepare<'s>(&'s self, scenario: &'s Scenario, registry: &'s Registry) -> Result<Box<dyn Prepared + 's>, Error> {
        let path = Path::of(scenario, registry, Carrier::Udp, self.timing, self.agent.as_ref())?;
        Ok(Box::new(path))
    }

    fn is_real(&self) -> bool {
        true
    }
}

/// What carries the traffic of a run on real packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// The kernel's TCP.
    Tcp,
    /// ccplane's transport over UDP.
    Udp,
}

/// A scenario over an emulated bottleneck.
pub(crate) struct Path<'s> {
    pub scenario: &'s Scenario,
    pub registry: &'s Registry,
    pub carrier: Carrier,
    pub timing: Timing,
    pub agent: Option<&'s RemoteAgent>,
    /// The bottleneck.
    pub link: &'s Link,
    /// Without a queue, there and back.
    pub rtt: Duration,
    /// Connections, all from the start.
    pub flows: usize,
    pub setup: Setup,
}

impl<'s> Path<'s> {
    /// Everything that can be wrong is found here, before anything is made.
    fn of(
        scenario: &'s Scenario,
        registry: &'s Registry,
        carrier: Carrier,
        timing: Timing,
        agent: Option<&'s RemoteAgent>,
    ) -> Result<Path<'s>, Error> {
        let (link, rtt) = bottleneck(scenario, carrier)?;
        let network = Network::new(scenario).map_err(Error::Scenario)?;
        let datapath = match carrier {
            Carrier::Tcp => "Linux TCP",
            Carrier::Udp if scenario.transport.tail.is_none() => "ccplane's transport over UDP",
            Carrier::Udp => "ccplane's transport over UDP, with RC3's second loop",
        };
        let mut setup = sim::setup(scenario, &network, datapath, rtt.max(NARROWEST_BIN));
        check(scenario, link, &setup, rtt)?;
        for contender in &scenario.contenders {
            known(contender, carrier, registry, agent)?;
        }
        // A queue without a limit is taken to hold up to a second.
        let queue = setup.queue_bytes.unwrap_or((setup.rate_mbit * 125e3) as u64);
        let buffer = || traffic::buffer_for(Bytes::new(setup.bdp_bytes.saturating_add(queue)));
        setup.socket_buffer_bytes = (carrier == Carrier::Tcp).then(buffer);
        Ok(Path {
            flows: setup.flows,
            scenario,
            registry,
            carrier,
            timing,
            agent,
            link,
            rtt,
            setup,
        })
    }

    /// The path of a run with this seed.
    pub fn config(&self, seed: u64) -> Config {
        let there = self.link.delay;
        Config {
            forward: LinkConfig {
                line: self.link.line.clone(),
                delay: there,
                queue: self.link.queue,
                loss: self.link.loss,
                jitter: self.link.jitter,
                reorder: self.link.reorder,
                seed,
            },
            reverse: LinkConfig {
                line: LineSpec::Unlimited,
                delay: self.rtt.saturating_sub(there),
                ..LinkConfig::default()
            },
            mtu: MTU,
            timing: self.timing,
            ..Config::default()
        }
    }

    /// Bins of figures over time.
    pub fn bin(&self) -> Duration {
        self.rtt.max(NARROWEST_BIN)
    }
}

impl Prepared for Path<'_> {
    fn setup(&self) -> Setup {
        self.setup.clone()
    }

    fn run(&self, contender: Option<&Contender>, seed: u64, progress: &dyn Progress) -> Result<ContenderResult, Error> {
        let contender = contender.ok_or(Error::NoContender)?;
        match self.carrier {
            Carrier::Tcp => kernel(self, contender, seed, progress),
            Carrier::Udp => datagrams::run_one(self, contender, seed, progress),
        }
    }
}

/// The bottleneck of a scenario that real packets can run, and the round trip; [`Error::NotOnLinux`] names everything that cannot be.
fn bottleneck(scenario: &Scenario, carrier: Carrier) -> Result<(&Link, Duration), Error> {
    let parts = refused(scenario, carrier);
    match &scenario.topology {
        Topology::Dumbbell { bottleneck, back, .. } if parts.is_empty() => Ok((bottleneck, bottleneck.delay + *back)),
        _ => Err(Error::NotOnLinux {
            file: scenario.file.clone(),
            parts,
        }),
    }
}

/// The bottleneck's mean rate, of a scenario that kernel TCP can run.
pub(crate) fn bottleneck_rate(scenario: &Scenario) -> Option<Rate> {
    let (link, _) = bottleneck(scenario, Carrier::Tcp).ok()?;
    link.line.mean_rate()
}

/// What of a scenario cannot run on real packets, each with its reason.
fn refused(scenario: &Scenario, carrier: Carrier) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut cannot = |when: bool, what: &str| {
        if when {
            parts.push(what.to_owned());
        }
    };
    cannot(scenario.until != Until::Duration, "`until`: real time runs for its duration");
    cannot(!scenario.events.is_empty(), "events");
    cannot(!scenario.routes.is_empty() || scenario.per_packet, "routing");
    let own = TransportOptions {
        tail: scenario.transport.tail.filter(|_| carrier == Carrier::Udp),
        ..TransportOptions::default()
    };
    cannot(
        scenario.transport != own,
        "[transport]: what carries real packets has settings of its own",
    );
    cannot(
        scenario.staleness.is_some(),
        "[steering]: reports take the time that they take",
    );
    cannot(scenario.stamps.is_some(), "[stamps]: clocks are what they are");
    cannot(!scenario.report.links.is_empty(), "links in [report]: there is one");
    cannot(scenario.workloads.len() > 1, "several workloads");
    let workload = scenario.workloads.first();
    match workload.map(|w| &w.kind) {
        Some(Kind::Of(Sends::Bulk {
            bytes: None,
            stagger: Duration::ZERO,
            ..
        })) => {}
        Some(Kind::Of(Sends::Bulk { bytes: Some(_), .. })) => cannot(true, "flows of a given size"),
        Some(Kind::Of(Sends::Bulk { .. })) => cannot(true, "flows that start one after the other"),
        _ => cannot(true, "workloads other than `bulk`"),
    }
    cannot(
        workload.is_some_and(|w| w.algorithm.is_some()),
        "a workload's own algorithm",
    );
    cannot(
        workload.is_some_and(|w| w.start > Duration::ZERO || w.stop.is_some()),
        "a workload's start and stop",
    );
    cannot(
        workload.is_some_and(|w| !w.from.is_empty() || !w.to.is_empty()),
        "a choice of hosts: there is one sender and one receiver",
    );
    match &scenario.topology {
        Topology::Dumbbell { access, .. } => cannot(access.is_some(), "`access_rate`"),
        _ => cannot(true, "networks other than [topology.dumbbell]"),
    }
    parts
}

/// Values with which nothing could be measured.
fn check(scenario: &Scenario, link: &Link, setup: &Setup, rtt: Duration) -> Result<(), Error> {
    let bad = |what, value: String, fix| Err(Error::Bad { what, value, fix });
    if link.line.mean_rate().is_none() {
        return bad(
            "the link's rate",
            "unlimited".into(),
            "a run needs a bottleneck, such as --rate 96mbit",
        );
    }
    if link.line.mean_rate() == Some(Rate::from_bytes_per_sec(0)) {
        return bad(
            "the link's rate",
            "0".into(),
            "give a rate above 0, such as --rate 96mbit",
        );
    }
    if scenario.duration < SHORTEST {
        return bad(
            "the duration",
            scenario.duration.to_string(),
            "give at least 100 ms, better 15s",
        );
    }
    if setup.flows > MOST_FLOWS {
        return bad("the number of flows", setup.flows.to_string(), "give 1 to 1000");
    }
    if rtt > Duration::from_secs(10) {
        return bad(
            "the round-trip time",
            rtt.to_string(),
            "give at most 10s: connections would time out",
        );
    }
    Ok(())
}

/// Whether there is such an algorithm.
fn known(
    contender: &Contender,
    carrier: Carrier,
    registry: &Registry,
    agent: Option<&RemoteAgent>,
) -> Result<(), Error> {
    match contender {
        // An agent in another process knows what it has.
        Contender::Ccplane { .. } if agent.is_some() => Ok(()),
        Contender::Ccplane { name, parameters } => Ok(drop(registry.by_name(name, &read(parameters))?)),
        Contender::Native { name } if carrier == Carrier::Udp => sim::native(name).map(drop),
        Contender::Native { name } if traffic::exists(name) => Ok(()),
        Contender::Native { name } => {
            let known = traffic::available();
            let near = suggestions(name, known.iter().map(String::as_str))
                .into_iter()
                .map(str::to_owned)
                .collect();
            Err(Error::UnknownNative {
                name: name.clone(),
                near,
                known,
            })
        }
    }
}

/// Runs one contender over kernel TCP, on a path of its own. Nothing is left behind, whatever happens.
fn kernel(
    path: &Path<'_>,
    contender: &Contender,
    seed: u64,
    progress: &dyn Progress,
) -> Result<ContenderResult, Error> {
    let (scenario, setup, registry) = (path.scenario, &path.setup, path.registry);
    let bpf = scenario.contenders.iter().any(|c| !c.is_native());
    let mut steered = match contender {
        Contender::Native { .. } => None,
        Contender::Ccplane { name, parameters } => Some(match path.agent {
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
    let emulator = Emulator::start(path.config(seed)).map_err(|error| Error::from_emulator(error, bpf))?;
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
        path.flows,
        setup.socket_buffer_bytes.unwrap_or_default(),
    )?;

    let thread = steered.as_ref().map(Steered::thread);
    let reports = || steered.as_ref().map_or(0, Steered::reports);
    let (before, reports_before, watch) = (Reading::now(thread), reports(), Watch::start());
    let mut seen = (0u64, 0u64);
    let plan = Plan {
        duration: scenario.duration,
        sample_every: scenario.sample_every,
        ahead: true,
    };
    let transfer = traffic::transfer(senders, receivers, diag, &plan, |at_ns, flows| {
        if let Some(stamping) = &mut stamping {
            stamping.collect();
        }
        let received: u64 = flows.iter().filter_map(|f| f.last()).map(|s| s.received).sum();
        let share = at_ns as f64 / scenario.duration.as_nanos().max(1) as f64;
        progress.advanced(share, &goodput(received.saturating_sub(seen.1), at_ns.saturating_sub(seen.0)));
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

    let told = record(&path.link.line, contender, &transfer, &report).told(path.bin(), &[]);
    let (mut series, mut figures) = (told.series, told.figures);
    series.heard = heard.unwrap_or_default().in_order_of(&transfer.senders);
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
        figures,
        series,
        ..ContenderResult::default()
    })
}

/// For a progress bar.
pub(crate) fn goodput(bytes: u64, span_ns: u64) -> String {
    format!("{:7.1} Mbit/s", metrics::mbits(bytes, span_ns))
}

/// The connections' two ends, and the kernel's view of the senders'. Where the algorithm wants ECN or time stamps both ends
/// run its congestion control: that makes the kernel accept the offer and echo every mark, and answer each packet that has a
/// stamp.
pub fn open(
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
