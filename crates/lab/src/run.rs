//! Runs an experiment on real packets: a fresh path for each contender, traffic, samples, figures.

use std::net::TcpStream;

use ccplane_algorithms::{Parameters, Registry};
use ccplane_emu::{Config, EmuReport, Emulator, Fate, LinkConfig, LinkLog};
use ccplane_linux::Counters;
use ccplane_qdisc::{Limit, Line, LineSpec};
use ccplane_units::{Bytes, Duration, Rate, Time};

use crate::cpu::Reading;
use crate::diag::Diag;
use crate::error::Error;
use crate::experiment::{Contender, Experiment, suggestions};
use crate::heard::Heard;
use crate::metrics::{self, Distribution};
use crate::result::{Audit, ContenderResult, Figures, FlowFigures, HostFigures, RunResult, Series, Setup};
use crate::steer::Steered;
use crate::traffic::{self, Sample, Transfer};

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
const MTU: u32 = 1500;

/// Fewer and no bin is whole; the smallest bin is 10 ms wide.
const SHORTEST: Duration = Duration::from_millis(100);

/// Each flow takes two threads and some megabytes of socket buffers.
const MOST_FLOWS: usize = 1000;

/// Throughput and delay are binned by the round-trip time, as the papers do, but not finer than this: below, a bin of
/// a slow link holds a handful of packets.
const NARROWEST_BIN: Duration = Duration::from_millis(10);

/// Reports kept for `reports.csv`, the first of a run: a report every ACK makes thousands a second, each with a dozen
/// fields.
const KEPT_REPORTS: usize = 50_000;

/// A flow held back by a window or buffer for more than this share of its time was not congestion-controlled alone.
const MOST_LIMITED: f64 = 0.01;

/// Runs every contender, one after the other, each on a new path made alike. Nothing is left behind, whatever happens.
pub fn run(experiment: &Experiment, registry: &Registry, progress: &mut dyn Progress) -> Result<RunResult, Error> {
    let setup = check(experiment, registry)?;
    let mut contenders = Vec::with_capacity(experiment.contenders.len());
    for (index, contender) in experiment.contenders.iter().enumerate() {
        progress.begin(&contender.to_string(), index, experiment.contenders.len());
        let result = run_one(experiment, &setup, contender, registry, progress)?;
        progress.end(&result);
        contenders.push(result);
    }
    Ok(RunResult {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        command: experiment.command.clone(),
        note: String::new(),
        setup,
        contenders,
    })
}

/// Everything that can be wrong before anything is made.
fn check(e: &Experiment, registry: &Registry) -> Result<Setup, Error> {
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
        if let Contender::Ccplane { name, parameters } = contender {
            registry.by_name(name, &read(parameters))?;
        }
        if let Contender::Native { name } = contender
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
        datapath: "Linux TCP".to_owned(),
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
        socket_buffer_bytes: traffic::buffer_for(bdp + Bytes::new(queue)),
    })
}

fn read(parameters: &[(String, String)]) -> Parameters {
    parameters
        .iter()
        .fold(Parameters::new(), |all, (name, value)| all.with(name, value))
}

fn path(e: &Experiment) -> Config {
    let there = Duration::from_nanos(e.rtt.as_nanos() / 2);
    Config {
        forward: LinkConfig {
            line: e.line.clone(),
            delay: there,
            queue: e.queue,
            loss: e.loss,
            seed: e.seed,
        },
        reverse: LinkConfig {
            line: LineSpec::Unlimited,
            delay: e.rtt.saturating_sub(there),
            ..LinkConfig::default()
        },
        mtu: MTU,
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
    let steered = match contender {
        Contender::Native { .. } => None,
        Contender::Ccplane { name, parameters } => {
            Some(Steered::start(registry, name, &read(parameters), KEPT_REPORTS)?)
        }
    };
    let kernel_name = steered
        .as_ref()
        .map_or(contender.algorithm(), Steered::kernel_name)
        .to_owned();
    let emulator = Emulator::start(path(e)).map_err(|error| Error::from_emulator(error, bpf))?;
    let (senders, receivers, diag) = open(&emulator, &kernel_name, e.flows, setup.socket_buffer_bytes)?;

    let thread = steered.as_ref().map(Steered::thread);
    let reports = || steered.as_ref().map_or(0, Steered::reports);
    let (before, reports_before) = (Reading::now(thread), reports());
    let mut seen = (0u64, 0u64);
    let transfer = traffic::transfer(senders, receivers, diag, e.duration, e.sample_every, |at_ns, flows| {
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
    let report = emulator.finish().map_err(|error| Error::from_emulator(error, bpf))?;
    if progress.cancelled() {
        return Err(Error::Interrupted);
    }

    let (counters, heard) = steered.map(Steered::finish).transpose()?.unzip();

    let series = series(&transfer, &report, e.rtt.max(NARROWEST_BIN), heard);
    let figures = figures(e, &transfer, &report);
    let received: u64 = figures.flows.iter().map(|f| f.received_bytes).sum();
    let (process, machine, agent) = after.percent_since(&before);
    Ok(ContenderResult {
        label: contender.to_string(),
        algorithm: contender.algorithm().to_owned(),
        native: contender.is_native(),
        kernel_name,
        host: HostFigures {
            reports_per_s: counters.map(|_| reports as f64 * 1e9 / transfer.elapsed_ns.max(1) as f64),
            agent_cpu_percent: counters.map(|_| agent),
            process_cpu_percent: process,
            machine_cpu_percent: machine,
            cpu_s_per_gb: after.process_s_since(&before) * 1e9 / received.max(1) as f64,
        },
        audit: audit(&report, &figures, setup, counters),
        figures,
        series,
    })
}

/// The connections' two ends, and the kernel's view of the senders'.
fn open(
    emulator: &Emulator,
    congestion: &str,
    flows: usize,
    buffer: usize,
) -> Result<(Vec<TcpStream>, Vec<TcpStream>, Diag), Error> {
    let inside = |error| Error::Emulator(ccplane_emu::Error::Tun(error));
    let address = emulator.receiver_addr();
    let listener = emulator
        .receiver_ns()
        .run(|| traffic::listen(address, buffer))
        .map_err(inside)?
        .map_err(Error::traffic("listen in the receiver's namespace", ""))?;
    let to = listener
        .local_addr()
        .map_err(Error::traffic("read the listener's address", ""))?;
    let (senders, diag) = emulator
        .sender_ns()
        .run(|| {
            let senders = (0..flows)
                .map(|_| traffic::connect(to, congestion, buffer))
                .collect::<Result<Vec<_>, _>>()?;
            Ok((senders, Diag::open()?))
        })
        .map_err(inside)?
        .map_err(Error::traffic(
            "connect through the emulated path",
            "a loss near 100% lets no connection through",
        ))?;
    let receivers = traffic::accept(&listener, &senders).map_err(Error::traffic(
        "accept the connections",
        "a loss near 100% lets no connection through",
    ))?;
    Ok((senders, receivers, diag))
}

/// Packets that left the link while bytes were counted: time since the transfer began, time in the queue, size.
fn departures<'a>(
    log: &'a LinkLog,
    report: &EmuReport,
    transfer: &Transfer,
) -> impl Iterator<Item = (u64, u64, u64)> + 'a {
    // Both clocks are CLOCK_MONOTONIC; the log counts from the emulator's start.
    let begin = Time::from_nanos(transfer.started_ns.saturating_sub(report.epoch.as_nanos()));
    let elapsed = transfer.elapsed_ns;
    log.records().filter_map(move |record| match record.fate() {
        Fate::Departed(at) if at >= begin && at.since(begin).as_nanos() < elapsed => Some((
            at.since(begin).as_nanos(),
            record.sojourn()?.as_nanos(),
            u64::from(record.bytes),
        )),
        _ => None,
    })
}

fn series(transfer: &Transfer, report: &EmuReport, bin: Duration, heard: Option<Heard>) -> Series {
    let width = bin.as_nanos();
    let link = || departures(&report.forward, report, transfer);
    Series {
        bin_ns: width,
        throughput_mbit: metrics::bin_bytes(link().map(|(at, _, bytes)| (at, bytes)), width, transfer.elapsed_ns)
            .into_iter()
            .map(|bytes| metrics::mbits(bytes, width))
            .collect(),
        delay_ms: metrics::bin_means(
            link().map(|(at, in_queue, _)| (at, in_queue as f64 / 1e6)),
            width,
            transfer.elapsed_ns,
        ),
        flows: transfer.flows.clone(),
        senders: transfer.senders.clone(),
        started_ns: transfer.started_ns,
        heard: heard.unwrap_or_default(),
        pooled: None,
    }
}

fn figures(e: &Experiment, transfer: &Transfer, report: &EmuReport) -> Figures {
    let flows: Vec<FlowFigures> = transfer
        .flows
        .iter()
        .map(|samples| flow_figures(samples, transfer.elapsed_ns))
        .collect();
    let goodputs: Vec<f64> = flows.iter().map(|f| f.goodput_mbit).collect();
    let link = || departures(&report.forward, report, transfer);
    let delays = Distribution::new(link().map(|(_, in_queue, _)| in_queue as f64 / 1e6));
    let delivered: u64 = link().map(|(_, _, bytes)| bytes).sum();
    let begin = Duration::from_nanos(transfer.started_ns.saturating_sub(report.epoch.as_nanos()));
    let capacity = capacity(&e.line, begin, Duration::from_nanos(transfer.elapsed_ns));
    let at = |p| delays.quantile(p).unwrap_or(0.0);
    Figures {
        goodput_mbit: goodputs.iter().sum(),
        utilisation: if capacity > 0.0 {
            delivered as f64 / capacity
        } else {
            0.0
        },
        delay_mean_ms: delays.mean().unwrap_or(0.0),
        delay_p50_ms: at(0.5),
        delay_p95_ms: at(0.95),
        delay_p99_ms: at(0.99),
        retransmissions: flows.iter().map(|f| f.retransmissions).sum(),
        queue_drops: report.forward.queue_drops,
        random_losses: report.forward.losses,
        jain: metrics::jain(&goodputs),
        flows,
    }
}

/// Bytes that the line could carry in `[begin, begin + span)` of the emulation.
fn capacity(line: &LineSpec, begin: Duration, span: Duration) -> f64 {
    match line {
        LineSpec::Constant(rate) => rate.bytes_per_sec() as f64 * span.as_secs_f64(),
        LineSpec::Unlimited => 0.0,
        LineSpec::Trace(_) => {
            // A saturated line of its own, counted.
            let mut saturated = Line::new(line, Time::ZERO);
            let (mut now, mut bytes) = (Time::ZERO + begin, 0.0);
            let end = now + span;
            loop {
                now = saturated.send(saturated.next_start(now), MTU);
                if now >= end {
                    return bytes;
                }
                bytes += f64::from(MTU);
            }
        }
    }
}

fn flow_figures(samples: &[Sample], elapsed_ns: u64) -> FlowFigures {
    let last = samples.last().copied().unwrap_or_default();
    let mean = |value: fn(&Sample) -> f64| {
        let measured = Distribution::new(samples.iter().skip(1).map(value));
        measured.mean().unwrap_or(0.0)
    };
    let share = |us: u64| us as f64 * 1e3 / elapsed_ns.max(1) as f64;
    FlowFigures {
        received_bytes: last.received,
        goodput_mbit: metrics::mbits(last.received, elapsed_ns),
        retransmissions: u64::from(last.tcp.retrans),
        retransmitted_bytes: last.tcp.bytes_retrans,
        cwnd_mean: mean(|s| f64::from(s.tcp.cwnd)),
        srtt_mean_ms: mean(|s| f64::from(s.tcp.srtt_us) / 1e3),
        min_rtt_ms: f64::from(last.tcp.min_rtt_us) / 1e3,
        rwnd_limited: share(last.tcp.rwnd_limited_us),
        sndbuf_limited: share(last.tcp.sndbuf_limited_us),
    }
}

/// The emulator's own judgement, and whether anything but congestion control held the flows back.
fn audit(report: &EmuReport, figures: &Figures, setup: &Setup, counters: Option<Counters>) -> Audit {
    let a = &report.audit;
    let us = |d: Duration| d.as_secs_f64() * 1e6;
    let mut complaints = Vec::new();
    if !a.ok && a.own_drops + a.tun_drops > 0 {
        complaints.push(format!(
            "the emulator or its devices lost {} packets that no real link would have",
            a.own_drops + a.tun_drops
        ));
    }
    if !a.ok && a.late_fraction > 0.01 {
        complaints.push(format!(
            "one packet in a hundred left more than {:.1} ms late: this machine was too busy to emulate {}; give it idle \
             CPUs or a lower rate",
            us(a.lateness_p99) / 1e3,
            setup.rate
        ));
    }
    if !a.ok && complaints.is_empty() {
        complaints.push("the emulator's audit did not pass".to_owned());
    }
    if report.forward.not_kept > 0 {
        complaints.push(format!(
            "the packet log was full: delay and throughput lack {} packets; run for a shorter time",
            report.forward.not_kept
        ));
    }
    for (i, flow) in figures.flows.iter().enumerate() {
        let limits = [
            ("the receiver's window", flow.rwnd_limited),
            ("the sender's buffer", flow.sndbuf_limited),
        ];
        for (what, share) in limits.into_iter().filter(|(_, share)| *share > MOST_LIMITED) {
            complaints.push(format!(
                "flow {} was held back by {what} for {:.0} % of its time",
                i + 1,
                share * 100.0
            ));
        }
        if flow.received_bytes == 0 {
            complaints.push(format!("flow {} got nothing through", i + 1));
        }
    }
    let counters = counters.unwrap_or_default();
    let mishaps = [
        (
            counters.fallbacks,
            "flows fell back to NewReno, because the algorithm's thread was silent for too long",
        ),
        (
            counters.table_full,
            "flows found no place in the datapath's table and ran NewReno",
        ),
        (
            counters.faults,
            "times the algorithm's program divided by zero or overflowed",
        ),
    ];
    complaints.extend(
        mishaps
            .iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, what)| format!("{n} {what}")),
    );
    Audit {
        lateness_p50_us: us(a.lateness_p50),
        lateness_p99_us: us(a.lateness_p99),
        lateness_max_us: us(a.lateness_max),
        own_drops: a.own_drops + a.tun_drops,
        sound: complaints.is_empty(),
        complaints,
    }
}
