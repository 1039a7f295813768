//! The meeting on real packets: kernel TCP, at a host, which sends both flows into its link, and at
//! a switch, to which two hosts send one each.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use ccplane_emu::{EmuConfig, Emulator, LinkConfig};
use ccplane_host::Namespace;
use ccplane_lab::Error;
use ccplane_lab::metrics;
use ccplane_lab::parts::Disturbed;
use ccplane_lab::{Progress, ProgressStep};
use ccplane_qdisc::marking::dscp_of;
use ccplane_qdisc::{LineSpec, QueueSpec};
use ccplane_testbed::BackendError;
use ccplane_testbed::ends::inside;
use ccplane_testbed::longest_stall;
use ccplane_testbed::machine::MachineWatch;
use ccplane_testbed::traffic::{self, monotonic_ns, wait_until};
use ccplane_testbed::wire;
use ccplane_units::Duration;
use nix::sys::socket::{setsockopt, sockopt};

use super::super::Options;
use super::{BUFFER, Case, DELAY, LOOK, Order, Place, RATE, Rates};

/// How long in full and quick.
const LONG: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(6));

/// Runs all four cases.
pub(super) fn meet(
    options: &Options,
    progress: &dyn Progress,
) -> Result<Vec<(Case, Rates)>, Error> {
    let lasts = if options.quick { LONG.1 } else { LONG.0 };
    let mut cases = Vec::new();
    for (n, case) in Case::ALL.into_iter().enumerate() {
        let step = ProgressStep::begin(progress, n, Case::ALL.len(), &case.key());
        if progress.is_cancelled() {
            return Err(Error::Interrupted);
        }
        let (name, made) = (format!("packets-{}.json", case.key()), lasts.to_string());
        let rates = options.parts().part(
            &name,
            &made,
            |rates: &Rates| Disturbed::from(&rates.disturbed),
            || together(case, lasts, &step),
        )?;
        cases.push((case, rates));
    }
    Ok(cases)
}

/// What the experiment's page says of it.
pub(super) fn how() -> String {
    format!(
        "Real packets: kernel TCP under Cubic, low priority by DSCP {}; the emulated link's queue has the bands, which share 250 packets. At the \
         switch each flow has a host of its own, a namespace behind a pair of virtual Ethernet devices, and the kernel forwards. Flows run for less \
         time than a minute.",
        dscp_of(1)
    )
}

/// Both flows meet on the link.
fn together(case: Case, lasts: Duration, progress: &dyn Progress) -> Result<Rates, Error> {
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
    let hosts = match case.place {
        Place::Host => [emulator.sender_ns().clone(), emulator.sender_ns().clone()],
        Place::Switch => hosts(&emulator)?,
    };
    let receiver = emulator.receiver_addr();
    let streams = [dscp_of(0), dscp_of(1)]
        .into_iter()
        .zip(&hosts)
        .map(|(dscp, host)| {
            let listener = inside(emulator.receiver_ns(), "listen", || {
                traffic::listen(receiver, 4 << 20)
            })?;
            let sender = inside(host, "connect", || {
                let sender = traffic::connect(listener.local_addr()?, "cubic", 4 << 20)?;
                setsockopt(&sender, sockopt::Ipv4Tos, &(i32::from(dscp) << 2))?;
                Ok(sender)
            })?;
            let accept = || {
                let mut taken = traffic::accept(&listener, &[sender.try_clone()?])?;
                taken
                    .pop()
                    .ok_or_else(|| io::Error::other("nobody was accepted"))
            };
            let taken = accept().map_err(Error::traffic("accept a connection", ""))?;
            Ok((sender, taken))
        });
    let mut streams = streams.collect::<Result<Vec<_>, Error>>()?;
    if case.order == Order::HighJoinsLow {
        streams.reverse();
    }
    let watch = MachineWatch::start();
    let [first, second] = run(streams, lasts, progress);
    let disturbed = watch
        .finish()
        .disturbances(longest_stall(2e3 * DELAY.as_secs_f64()));
    if progress.is_cancelled() {
        return Err(Error::Interrupted);
    }
    let report = emulator
        .finish()
        .map_err(|error| BackendError::from_emulator(error, false))?;
    let (high, low) = match case.order {
        Order::LowJoinsHigh => (first, second),
        Order::HighJoinsLow => (second, first),
    };
    Ok(Rates {
        high,
        low,
        sound: report.audit.passed && disturbed.is_empty(),
        disturbed,
    })
}

/// Two hosts behind the namespace where the link begins, which forwards for them.
fn hosts(emulator: &Emulator) -> Result<[Namespace; 2], Error> {
    let switch = emulator.sender_ns();
    let forwards = switch.set_sysctl("net/ipv4/ip_forward", "1");
    forwards.map_err(|error| BackendError::from_host(error, false))?;
    let host = |n: u8| {
        let host = Namespace::create(&format!("{}-{n}", switch.name()))
            .map_err(|error| BackendError::from_host(error, false))?;
        let (port, own) = ([10, 79, n, 1].into(), [10, 79, n, 2].into());
        wire::pair([switch, &host], [&format!("port{n}"), "eth0"], [port, own])?;
        wire::run(
            &host,
            "ip",
            &["route", "add", "default", "via", &port.to_string()],
        )?;
        Ok::<_, Error>(host)
    };
    let (back, receiver) = (emulator.sender_addr().to_string(), emulator.receiver_ns());
    wire::run(
        receiver,
        "ip",
        &["route", "add", "10.79.0.0/16", "via", &back],
    )?;
    Ok([host(0)?, host(1)?])
}

/// The first stream sends from the start, the second from half-time on; Mbit/s of each between
/// looks, until told to stop.
fn run(
    streams: Vec<(TcpStream, TcpStream)>,
    lasts: Duration,
    progress: &dyn Progress,
) -> [Vec<f64>; 2] {
    let (stop, counts) = (
        AtomicBool::new(false),
        [AtomicU64::new(0), AtomicU64::new(0)],
    );
    let begin = monotonic_ns();
    thread::scope(|scope| {
        for (n, ((sender, receiver), count)) in streams.into_iter().zip(&counts).enumerate() {
            let starts = begin + if n == 0 { 0 } else { (lasts / 2).as_nanos() };
            let stop = &stop;
            scope.spawn(move || send(sender, starts, stop));
            scope.spawn(move || receive(receiver, count, stop));
        }
        let mut rates = [Vec::new(), Vec::new()];
        let mut last = [0, 0];
        let looks = lasts.as_nanos() / LOOK.as_nanos();
        for look in 1..=looks {
            wait_until(begin + look * LOOK.as_nanos());
            for (n, count) in counts.iter().enumerate() {
                let now = count.load(Ordering::Relaxed);
                rates[n].push(metrics::mbits(now - last[n], LOOK.as_nanos()));
                last[n] = now;
            }
            let total: f64 = rates.iter().filter_map(|rates| rates.last()).sum();
            progress.on_progress(look as f64 / looks as f64, &format!("{total:7.1} Mbit/s"));
            if progress.is_cancelled() {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        rates
    })
}

/// How long a blocked call waits before it looks whether to stop.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(100);

fn send(mut stream: TcpStream, starts: u64, stop: &AtomicBool) {
    while monotonic_ns() < starts && !stop.load(Ordering::Relaxed) {
        wait_until(starts.min(monotonic_ns() + LOOK.as_nanos()));
    }
    let block = vec![0x5a; 64 << 10];
    let ready = stream.set_write_timeout(Some(PATIENCE)).is_ok();
    while ready && !stop.load(Ordering::Relaxed) {
        match stream.write(&block) {
            Ok(_) => {}
            Err(why)
                if matches!(
                    why.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(_) => return, // what does not come is missed at the receiver
        }
    }
}

fn receive(mut stream: TcpStream, count: &AtomicU64, stop: &AtomicBool) {
    let mut block = vec![0; 128 << 10];
    let ready = stream.set_read_timeout(Some(PATIENCE)).is_ok();
    while ready && !stop.load(Ordering::Relaxed) {
        match stream.read(&mut block) {
            Ok(0) => return,
            Ok(read) => {
                count.fetch_add(read as u64, Ordering::Relaxed);
            }
            Err(why)
                if matches!(
                    why.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(_) => return,
        }
    }
}
