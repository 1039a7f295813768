//! RC3, figures 16 and 17, on real packets: kernel TCP, at a host that sends both flows over its
//! own link, and at a switch to which two hosts send one flow each. `papers/rc3/priority.toml`
//! simulates the figures.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use ccplane_algorithms::Registry;
use ccplane_emu::{EmuConfig, Emulator, LinkConfig};
use ccplane_host::Namespace;
use ccplane_lab::parts::Disturbed;
use ccplane_lab::{Error, Progress, ProgressStep, metrics};
use ccplane_qdisc::marking::dscp_of;
use ccplane_qdisc::{LineSpec, QueueSpec, Size};
use ccplane_testbed::ends::inside;
use ccplane_testbed::machine::MachineWatch;
use ccplane_testbed::traffic::{self, monotonic_ns, wait_until};
use ccplane_testbed::{BackendError, longest_stall, wire};
use ccplane_units::{Duration, Rate};
use nix::sys::socket::{setsockopt, sockopt};
use serde::{Deserialize, Serialize};

use super::program::{Program, Tables, disturbances_cell};
use super::{Datapath, Options};

pub(super) const PROGRAM: Program = Program {
    script: "rc3/priority",
    on: &[Datapath::Linux],
    repeats: None,
    measure,
};

/// Rate and delay of the links in the published repetition.
const RATE: Rate = Rate::from_bits_per_sec(100_000_000);
const DELAY: Duration = Duration::from_millis(2);
/// Capacity of the bottleneck's queue over all bands.
const BUFFER: Size = Size::Packets(250);
const SAMPLE_INTERVAL: Duration = Duration::from_millis(200);
/// Time after which a blocked call checks whether to stop.
const CALL_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(100);

/// Device at which the two flows meet, and the order in which they start: names in the sweep.
const CASES: [(&str, &str); 4] = [
    ("host", "high_joins"),
    ("host", "low_joins"),
    ("switch", "high_joins"),
    ("switch", "low_joins"),
];

/// Throughput of the two flows in each sample, Mbit/s of payload.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Rates {
    high: Vec<f64>,
    low: Vec<f64>,
    on_time: bool,
    disturbances: Vec<String>,
}

/// Row of the table of runs.
#[derive(Serialize)]
struct RunRow {
    run: String,
    place: &'static str,
    order: &'static str,
    duration_s: f64,
    complaints: Option<&'static str>,
    disturbances: Option<String>,
}

/// Row of the table of samples. The time is the end of the sample.
#[derive(Serialize)]
struct SampleRow {
    run: String,
    workload: &'static str,
    s: f64,
    mbit: f64,
}

fn measure(
    options: &Options,
    _: Datapath,
    _: &Registry,
    progress: &dyn Progress,
) -> Result<Tables, Error> {
    let duration = Duration::from_secs(if options.quick { 6 } else { 20 });
    let (mut runs, mut samples) = (Vec::new(), Vec::new());
    for (n, (place, order)) in CASES.into_iter().enumerate() {
        let name = format!("{place}_{order}");
        let step = ProgressStep::begin(progress, n, CASES.len(), &name);
        if progress.is_cancelled() {
            return Err(Error::Interrupted);
        }
        let rates = options.parts().part(
            &format!("packets-{name}.json"),
            &duration.to_string(),
            |rates: &Rates| Disturbed::from(&rates.disturbances),
            || run(place, order, duration, &step),
        )?;
        for (workload, rates) in [("high", &rates.high), ("low", &rates.low)] {
            samples.extend((1u32..).zip(rates).map(|(sample, mbit)| SampleRow {
                run: name.clone(),
                workload,
                s: f64::from(sample) * SAMPLE_INTERVAL.as_secs_f64(),
                mbit: *mbit,
            }));
        }
        runs.push(RunRow {
            run: name,
            place,
            order,
            duration_s: duration.as_secs_f64(),
            complaints: (!rates.on_time).then_some("the emulator was late"),
            disturbances: disturbances_cell(&rates.disturbances),
        });
    }
    let mut tables = Tables::default();
    tables.add("runs", &runs)?;
    tables.add("samples", &samples)?;
    Ok(tables)
}

/// Makes one run: both flows share the link.
fn run(
    place: &str,
    order: &str,
    duration: Duration,
    progress: &dyn Progress,
) -> Result<Rates, Error> {
    let link = LinkConfig {
        line: LineSpec::Constant(RATE),
        delay: DELAY,
        queue: QueueSpec::Prio {
            bands: 6,
            shared: true,
            limit: BUFFER,
        },
        ..LinkConfig::default()
    };
    let config = EmuConfig {
        forward: link.clone(),
        reverse: link,
        log_records: 0,
        ..EmuConfig::default()
    };
    let emulator =
        Emulator::start(config).map_err(|error| BackendError::from_emulator(error, false))?;
    let hosts = match place {
        "host" => [emulator.sender_ns().clone(), emulator.sender_ns().clone()],
        _ => hosts(&emulator)?,
    };
    let [high, low] = [(0, &hosts[0]), (1, &hosts[1])].map(|(band, host)| {
        let listener = inside(emulator.receiver_ns(), "listen", || {
            traffic::listen(emulator.receiver_addr(), 4 << 20)
        })?;
        let sender = inside(host, "connect", || {
            let sender = traffic::connect(listener.local_addr()?, "cubic", 4 << 20)?;
            let tos = i32::from(dscp_of(band)) << 2;
            setsockopt(&sender, sockopt::Ipv4Tos, &tos)?;
            Ok(sender)
        })?;
        let accept = || {
            let accepted = traffic::accept(&listener, &[sender.try_clone()?])?.pop();
            accepted.ok_or_else(|| io::Error::other("no connection was accepted"))
        };
        let receiver = accept().map_err(Error::traffic("accept a connection", ""))?;
        Ok::<_, Error>((sender, receiver))
    });
    let high_joins = order == "high_joins";
    let flows = match high_joins {
        true => [low?, high?],
        false => [high?, low?],
    };
    let watch = MachineWatch::start();
    let [first, second] = transfer(flows, duration, progress);
    let rtt_ms = 2e3 * DELAY.as_secs_f64();
    let disturbances = watch.finish().disturbances(longest_stall(rtt_ms));
    if progress.is_cancelled() {
        return Err(Error::Interrupted);
    }
    let report = emulator
        .finish()
        .map_err(|error| BackendError::from_emulator(error, false))?;
    let (high, low) = match high_joins {
        true => (second, first),
        false => (first, second),
    };
    Ok(Rates {
        high,
        low,
        on_time: report.audit.passed,
        disturbances,
    })
}

/// Makes two hosts behind the sender's namespace, which forwards their packets like a switch.
fn hosts(emulator: &Emulator) -> Result<[Namespace; 2], Error> {
    let switch = emulator.sender_ns();
    let forward = switch.set_sysctl("net/ipv4/ip_forward", "1");
    forward.map_err(|error| BackendError::from_host(error, false))?;
    let host = |n: u8| {
        let host = Namespace::create(&format!("{}-{n}", switch.name()))
            .map_err(|error| BackendError::from_host(error, false))?;
        let (port, own) = ([10, 79, n, 1].into(), [10, 79, n, 2].into());
        wire::pair([switch, &host], [&format!("port{n}"), "eth0"], [port, own])?;
        let port = port.to_string();
        wire::run(&host, "ip", &["route", "add", "default", "via", &port])?;
        Ok::<_, Error>(host)
    };
    let (via, receiver) = (emulator.sender_addr().to_string(), emulator.receiver_ns());
    wire::run(
        receiver,
        "ip",
        &["route", "add", "10.79.0.0/16", "via", &via],
    )?;
    Ok([host(0)?, host(1)?])
}

/// Sends on the first connection from the start and on the second one from half-time. Returns the
/// throughput of each in every sample, Mbit/s.
fn transfer(
    flows: [(TcpStream, TcpStream); 2],
    duration: Duration,
    progress: &dyn Progress,
) -> [Vec<f64>; 2] {
    let stop = AtomicBool::new(false);
    let counts = [AtomicU64::new(0), AtomicU64::new(0)];
    let begin = monotonic_ns();
    thread::scope(|scope| {
        let starts = [begin, begin + (duration / 2).as_nanos()];
        for (((sender, receiver), start), count) in flows.into_iter().zip(starts).zip(&counts) {
            let stop = &stop;
            scope.spawn(move || send(sender, start, stop));
            scope.spawn(move || receive(receiver, count, stop));
        }
        let (mut rates, mut received) = ([Vec::new(), Vec::new()], [0, 0]);
        let samples = duration.as_nanos() / SAMPLE_INTERVAL.as_nanos();
        for sample in 1..=samples {
            wait_until(begin + sample * SAMPLE_INTERVAL.as_nanos());
            for ((count, rates), received) in counts.iter().zip(&mut rates).zip(&mut received) {
                let now = count.load(Ordering::Relaxed);
                rates.push(metrics::mbits(now - *received, SAMPLE_INTERVAL.as_nanos()));
                *received = now;
            }
            let total: f64 = rates.iter().filter_map(|rates| rates.last()).sum();
            progress.on_progress(
                sample as f64 / samples as f64,
                &format!("{total:7.1} Mbit/s"),
            );
            if progress.is_cancelled() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        rates
    })
}

/// Sends from `start` until `stop`. The receiver notices an error.
fn send(mut stream: TcpStream, start: u64, stop: &AtomicBool) {
    while monotonic_ns() < start && !stop.load(Ordering::Relaxed) {
        wait_until(start.min(monotonic_ns() + SAMPLE_INTERVAL.as_nanos()));
    }
    let block = vec![0x5a; 64 << 10];
    let mut ready = stream.set_write_timeout(Some(CALL_TIMEOUT)).is_ok();
    while ready && !stop.load(Ordering::Relaxed) {
        ready = stream
            .write(&block)
            .map_or_else(|error| is_temporary(&error), |_| true);
    }
}

fn receive(mut stream: TcpStream, count: &AtomicU64, stop: &AtomicBool) {
    let mut block = vec![0; 128 << 10];
    let mut ready = stream.set_read_timeout(Some(CALL_TIMEOUT)).is_ok();
    while ready && !stop.load(Ordering::Relaxed) {
        ready = match stream.read(&mut block) {
            Ok(0) => false,
            Ok(read) => {
                count.fetch_add(read as u64, Ordering::Relaxed);
                true
            }
            Err(error) => is_temporary(&error),
        };
    }
}

fn is_temporary(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), WouldBlock | Interrupted)
}
