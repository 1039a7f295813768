//! The list on kernel TCP through the emulated path: our own senders and receivers, a thread each.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use ccplane_algorithms::{Parameters, Registry};
use ccplane_emu::{EmuConfig, Emulator, LinkConfig};
use ccplane_lab::Error;
use ccplane_lab::{MTU, Progress};
use ccplane_qdisc::{LineSpec, LinkSeeds, QueueSpec};
use ccplane_testbed::BackendError;
use ccplane_testbed::ends::TrafficEnds;
use ccplane_testbed::ends::open;
use ccplane_testbed::longest_stall;
use ccplane_testbed::machine::MachineWatch;
use ccplane_testbed::steer::SteeredAlgorithm;
use ccplane_testbed::traffic::{self, monotonic_ns, wait_until};
use ccplane_units::Duration;

use super::super::replay::Message;
use super::draw::CONNECTIONS;
use super::{LINK, RTT, Who};

/// From the threads' start to the list's: all of them wait then.
const LEAD: Duration = Duration::from_millis(500);
/// A flow that has not ended so long after the last one began never does.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a blocked read waits before it looks whether to stop.
const LOOK: std::time::Duration = std::time::Duration::from_millis(100);

/// One list under one control: the µs that each flow took, what the machine did, and how many flows
/// fell back.
pub(super) type Run = (Vec<u64>, Vec<String>, u64);

/// Runs one list under one control.
pub(super) fn run(
    list: &[Message],
    who: Who,
    registry: &Registry,
    progress: &dyn Progress,
) -> Result<Run, Error> {
    let steered = match who {
        Who::Native | Who::NativeAgain | Who::Outside(_) => None,
        Who::Ccplane(report) => {
            let parameters = Parameters::new().with("report", report.name());
            Some(SteeredAlgorithm::start(registry, "reno", &parameters, 0)?)
        }
    };
    let kernel_name = steered
        .as_ref()
        .map_or("reno", SteeredAlgorithm::kernel_name)
        .to_owned();
    let bpf = steered.is_some();
    let emulator = Emulator::start(path()).map_err(|e| BackendError::from_emulator(e, bpf))?;
    let idle = emulator
        .sender_ns()
        .set_sysctl("net/ipv4/tcp_slow_start_after_idle", "0");
    idle.map_err(|error| BackendError::from_host(error, bpf))?;
    let bdp = LINK.bytes_in(RTT);
    let buffer = traffic::buffer_for(bdp + bdp);
    let (senders, receivers, _) = open(
        &TrafficEnds::of(&emulator),
        &kernel_name,
        ccplane_datapath::Capabilities::default(),
        CONNECTIONS as usize,
        buffer,
    )?;
    let watch = MachineWatch::start();
    let took = replay(senders, receivers, list, progress)
        .map_err(Error::traffic("replay the list of flows", ""))?;
    let machine = watch.finish();
    emulator
        .finish()
        .map_err(|error| BackendError::from_emulator(error, bpf))?;
    let fallbacks = steered
        .map(SteeredAlgorithm::finish)
        .transpose()?
        .map_or(0, |finished| finished.counters.fallbacks);
    if progress.is_cancelled() {
        return Err(Error::Interrupted);
    }
    let took: Option<Vec<u64>> = took.into_iter().collect();
    let took = took.ok_or_else(|| {
        io::Error::other("flows did not end within two minutes of the last arrival")
    });
    let took = took.map_err(Error::traffic(
        "replay the list of flows",
        "is the machine busy?",
    ))?;
    let disturbed = machine.disturbances(longest_stall(RTT.as_secs_f64() * 1e3));
    Ok((took, disturbed, fallbacks))
}

/// The path.
fn path() -> EmuConfig {
    let there = Duration::from_nanos(RTT.as_nanos() / 2);
    EmuConfig {
        forward: LinkConfig {
            line: LineSpec::Constant(LINK),
            delay: there,
            queue: QueueSpec::ONE_BDP,
            seeds: LinkSeeds::from_seed(1),
            ..LinkConfig::default()
        },
        reverse: LinkConfig {
            line: LineSpec::Unlimited,
            delay: RTT.saturating_sub(there),
            ..LinkConfig::default()
        },
        mtu: MTU,
        ..EmuConfig::default()
    }
}

/// Sends every message at its time and sees when it has come: µs each, `None` for one that has not.
fn replay(
    senders: Vec<TcpStream>,
    receivers: Vec<TcpStream>,
    list: &[Message],
    progress: &dyn Progress,
) -> io::Result<Vec<Option<u64>>> {
    let begin = monotonic_ns() + LEAD.as_nanos();
    let span = list.last().map_or(Duration::ZERO, |message| message.at);
    let (stop, open) = (AtomicBool::new(false), AtomicUsize::new(receivers.len()));
    let of = |connection: usize| -> Vec<(usize, Message)> {
        let mine = list
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, m)| m.connection as usize == connection);
        mine.collect()
    };
    let mut took = vec![None; list.len()];
    thread::scope(|scope| {
        let (stop, open) = (&stop, &open);
        let mut readers = Vec::new();
        for (n, stream) in receivers.into_iter().enumerate() {
            let mine = of(n);
            let body = move || {
                let done = receive(stream, &mine, begin, stop);
                open.fetch_sub(1, Ordering::Relaxed);
                done
            };
            readers.push(
                thread::Builder::new()
                    .name("lab-receive".into())
                    .spawn_scoped(scope, body)?,
            );
        }
        for (n, stream) in senders.into_iter().enumerate() {
            let mine = of(n);
            let body = move || send(stream, &mine, begin, stop);
            thread::Builder::new()
                .name("lab-send".into())
                .spawn_scoped(scope, body)?;
        }
        while open.load(Ordering::Relaxed) > 0 {
            let gone = Duration::from_nanos(monotonic_ns().saturating_sub(begin));
            progress.on_progress(gone.as_secs_f64() / span.as_secs_f64().max(0.1), "");
            if progress.is_cancelled() || gone > span + PATIENCE {
                break;
            }
            wait_until(monotonic_ns() + 100_000_000);
        }
        stop.store(true, Ordering::Relaxed);
        for reader in readers {
            let done = reader
                .join()
                .map_err(|_| io::Error::other("a receiving thread panicked"))?;
            for (index, us) in done? {
                if let Some(place) = took.get_mut(index) {
                    *place = Some(us);
                }
            }
        }
        Ok(took)
    })
}

/// Writes each message at its time, or as soon after it as the one before is written.
fn send(mut stream: TcpStream, mine: &[(usize, Message)], begin: u64, stop: &AtomicBool) {
    // Without the permission it runs as an ordinary thread does; the emulator's audit tells what
    // came of it.
    let _ = ccplane_host::raise_priority();
    let block = vec![0x5a; 128 << 10];
    if stream
        .set_nodelay(true)
        .and(stream.set_write_timeout(Some(LOOK)))
        .is_err()
    {
        return;
    }
    for (_, message) in mine {
        wait_until(begin + message.at.as_nanos());
        let mut left = message.bytes;
        while left > 0 {
            let now = block
                .get(..usize::try_from(left).unwrap_or(usize::MAX))
                .unwrap_or(&block);
            match stream.write(now) {
                _ if stop.load(Ordering::Relaxed) => return,
                Ok(written) => left -= written as u64,
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                Err(_) => return, // broken: what was to come is missed at the receiver
            }
        }
    }
}

/// Reads, and notes when the last byte of each message has come.
fn receive(
    mut stream: TcpStream,
    mine: &[(usize, Message)],
    begin: u64,
    stop: &AtomicBool,
) -> io::Result<Vec<(usize, u64)>> {
    let _ = ccplane_host::raise_priority();
    stream.set_read_timeout(Some(LOOK))?;
    let mut block = vec![0; 128 << 10];
    let (mut received, mut end) = (0, 0);
    let mut done = Vec::with_capacity(mine.len());
    for (index, message) in mine {
        end += message.bytes;
        while received < end {
            if stop.load(Ordering::Relaxed) {
                return Ok(done);
            }
            match stream.read(&mut block) {
                Ok(0) => return Ok(done),
                Ok(n) => received += n as u64,
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                    ) => {}
                Err(e) => return Err(e),
            }
        }
        let took = monotonic_ns().saturating_sub(begin + message.at.as_nanos());
        done.push((*index, took / 1_000));
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use ccplane_lab::NoProgress;

    use super::*;

    /// Over loopback, so that it needs no privileges.
    #[test]
    fn every_message_arrives_and_is_timed() {
        let listener = traffic::listen(IpAddr::from([127, 0, 0, 1]), 4 << 20).unwrap();
        let to = listener.local_addr().unwrap();
        let senders: Vec<_> = (0..2)
            .map(|_| traffic::connect(to, "reno", 4 << 20).unwrap())
            .collect();
        let receivers = traffic::accept(&listener, &senders).unwrap();
        let message = |ms, connection, bytes| Message {
            at: Duration::from_millis(ms),
            connection,
            bytes,
        };
        let list = [
            message(0, 0, 10),
            message(5, 1, 3_000_000),
            message(10, 0, 1),
            message(20, 1, 77),
        ];
        let took = replay(senders, receivers, &list, &NoProgress).unwrap();
        assert!(
            took.iter().all(|us| us.is_some_and(|us| us < 5_000_000)),
            "{took:?}"
        );
    }
}
