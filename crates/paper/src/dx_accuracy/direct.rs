//! Slides 7 to 17 on real packets: a pair of devices between two namespaces, no bottleneck, and a
//! TCP connection over it that is not idle. How far does the round trip of its stack spread, and
//! how far that of packets stamped lower and lower?

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration as StdDuration;

use ccplane_lab::Error;
use ccplane_testbed::BackendError;
use ccplane_testbed::wire;
use ccplane_units::Duration;
use serde::{Deserialize, Serialize};

use super::ladder::Spread;
use super::stamped::{Arrived, Datagrams, What, clock, stamp_writes, told, until};

/// What the connection writes at once, and how often: 1 Gbit/s, far below what the devices carry.
const WRITE: usize = 16 << 10;
const EVERY_NS: u64 = 131_072;
/// Bytes of a datagram: with its headers a full packet.
const PACKET: usize = 1_472;
/// Datagrams that are sent at once where they are not paced, and how far apart paced ones and
/// bursts are.
const BURST: u64 = 16;
const APART_NS: u64 = 200_000;

/// What was measured, µs. Spreads are above the least.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Direct {
    /// The stack's round trips as the kernel stamps them: from TCP to its acknowledgement.
    pub stack: Vec<f64>,
    /// Of the ladder's steps, p50 and p99; `None` for one that these devices do not have.
    pub steps: [Option<(f64, f64)>; 6],
    /// Writes and packets that are in it.
    pub writes: usize,
    pub packets: usize,
}

/// Measures so long each: the connection alone, bursts beside it, paced packets beside it.
pub(super) fn measure(length: Duration) -> Result<Direct, Error> {
    let ends = wire::make(None)?;
    let fail = || Error::traffic("stamp packets between two namespaces", "");
    let inside = |error| BackendError::from_host(error, true);
    let (here, there) = (IpAddr::from(wire::SENDER_ADDRESS), ends.address);
    let listener = ends
        .receiver
        .run(|| TcpListener::bind((there, 0)))
        .map_err(inside)?;
    let listener = listener.map_err(fail())?;
    let to = listener.local_addr().map_err(fail())?;
    let sender = ends.sender.run(|| TcpStream::connect(to)).map_err(inside)?;
    let sender = sender.map_err(fail())?;
    let (receiver, _) = listener.accept().map_err(fail())?;
    let patience = StdDuration::from_millis(20);
    let open = |address| Datagrams::bind(address, patience);
    let asks = ends
        .sender
        .run(|| open(here))
        .map_err(inside)?
        .map_err(fail())?;
    let answers = ends
        .receiver
        .run(|| open(there))
        .map_err(inside)?
        .map_err(fail())?;

    let (stop, quiet) = (AtomicBool::new(false), AtomicBool::new(false));
    let length = length.as_nanos();
    let seen = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        let writer = scope.spawn(|| write(&sender, &stop, &quiet));
        scope.spawn(|| drain(&receiver));
        let echo = scope.spawn(|| echo(&answers, &stop, &seen));
        until(clock() + length);
        quiet.store(true, Ordering::Relaxed);
        let bursts = ask(&asks, &answers, length, BURST, 0);
        let next = bursts.as_ref().map_or(0, |bursts| bursts.next);
        let paced = bursts.and_then(|bursts| Ok((bursts, ask(&asks, &answers, length, 1, next)?)));
        stop.store(true, Ordering::Relaxed);
        let stack = writer
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
        let echoed = echo
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
        // The reader ends with the connection.
        let _ = sender.shutdown(std::net::Shutdown::Both);
        let (stack, (bursts, paced)) = (stack.map_err(fail())?, paced.map_err(fail())?);
        echoed.map_err(fail())?;
        let seen = seen
            .lock()
            .map_err(|_| fail()(io::Error::other("a thread panicked")))?;
        Ok(together(stack, &bursts.exchanges, &paced.exchanges, &seen))
    })
}

/// A datagram and its answer at who asks, ns.
#[derive(Clone, Copy, Debug, Default)]
struct Asked {
    user_sent: u64,
    kernel_sent: u64,
    kernel_heard: u64,
    user_heard: u64,
}

/// The same at who answers.
#[derive(Clone, Copy, Debug, Default)]
struct Answered {
    heard: u64,
    sent: u64,
}

struct Asks {
    exchanges: BTreeMap<u64, Asked>,
    /// The number after the last.
    next: u64,
}

/// Bursts of so many datagrams, at even intervals of each datagram, for so long, from this number
/// on.
fn ask(
    asks: &Datagrams,
    answers: &Datagrams,
    length: u64,
    burst: u64,
    first: u64,
) -> io::Result<Asks> {
    let to = answers.address()?;
    let mut exchanges: BTreeMap<u64, Asked> = BTreeMap::new();
    let (begun, mut next) = (clock(), first);
    while clock().wrapping_sub(begun) < length {
        until(begun + (next - first) * APART_NS);
        let last = next + burst;
        while next < last {
            let user_sent = asks.send(to, next, PACKET)?;
            exchanges.insert(
                next,
                Asked {
                    user_sent,
                    ..Asked::default()
                },
            );
            next += 1;
        }
        for _ in 0..burst {
            let Some(Arrived {
                number,
                kernel,
                user,
                ..
            }) = asks.receive()?
            else {
                break;
            };
            if let Some(asked) = exchanges.get_mut(&number) {
                (asked.kernel_heard, asked.user_heard) = (kernel, user);
            }
        }
        asks.departures(|number, ns| {
            if let Some(asked) = exchanges.get_mut(&number) {
                asked.kernel_sent = ns;
            }
        });
    }
    Ok(Asks { exchanges, next })
}

/// Answers each datagram until told to stop.
fn echo(
    socket: &Datagrams,
    stop: &AtomicBool,
    seen: &Mutex<BTreeMap<u64, Answered>>,
) -> io::Result<()> {
    let mut numbers = Vec::new();
    let note = |numbers: &[u64]| {
        let Ok(mut seen) = seen.lock() else { return };
        socket.departures(|count, ns| {
            let number = numbers.get(count as usize);
            if let Some(answered) = number.and_then(|number| seen.get_mut(number)) {
                answered.sent = ns;
            }
        });
    };
    while !stop.load(Ordering::Relaxed) {
        let Some(arrived) = socket.receive()? else {
            continue;
        };
        if let Ok(mut seen) = seen.lock() {
            let answered = Answered {
                heard: arrived.kernel,
                sent: 0,
            };
            seen.insert(arrived.number, answered);
        }
        numbers.push(arrived.number);
        socket.send(arrived.from, arrived.number, PACKET)?;
        note(&numbers);
    }
    note(&numbers);
    Ok(())
}

/// Writes at a steady rate; the round trips of the writes while nobody else sends, µs.
fn write(stream: &TcpStream, stop: &AtomicBool, quiet: &AtomicBool) -> io::Result<Vec<f64>> {
    stamp_writes(stream)?;
    let block = vec![0; WRITE];
    let mut scheduled: BTreeMap<u32, u64> = BTreeMap::new();
    let mut trips = Vec::new();
    let mut next = clock();
    let mut writer = stream;
    while !stop.load(Ordering::Relaxed) {
        writer.write_all(&block)?;
        told(stream, |what, place, ns| match what {
            What::Scheduled => {
                // Sent again, its first time counts.
                scheduled.entry(place).or_insert(ns);
            }
            What::Acknowledged => {
                if let Some(begun) = scheduled.remove(&place)
                    && !quiet.load(Ordering::Relaxed)
                {
                    trips.push(ns.saturating_sub(begun) as f64 / 1e3);
                }
            }
            What::Sent => {}
        });
        // Behind by much, it does not catch up by a burst.
        next = (next + EVERY_NS).max(clock().saturating_sub(EVERY_NS));
        until(next);
    }
    Ok(trips)
}

fn drain(stream: &TcpStream) {
    let mut reader = stream;
    let mut buffer = vec![0; 1 << 20];
    while reader.read(&mut buffer).is_ok_and(|count| count > 0) {}
}

fn together(
    stack: Vec<f64>,
    bursts: &BTreeMap<u64, Asked>,
    paced: &BTreeMap<u64, Asked>,
    seen: &BTreeMap<u64, Answered>,
) -> Direct {
    let whole = |asked: &BTreeMap<u64, Asked>| -> Vec<(Asked, Answered)> {
        let both = asked
            .iter()
            .filter_map(|(number, asked)| Some((*asked, *seen.get(number)?)));
        let all = both.filter(|(asked, answered)| {
            ![
                asked.kernel_sent,
                asked.kernel_heard,
                answered.heard,
                answered.sent,
            ]
            .contains(&0)
        });
        all.collect()
    };
    let (bursts, paced) = (whole(bursts), whole(paced));
    let spread = |exchanges: &[(Asked, Answered)], value: fn(&Asked, &Answered) -> i64| {
        let spread = Spread::of(
            exchanges
                .iter()
                .map(|(asked, answered)| value(asked, answered)),
        );
        (!exchanges.is_empty()).then_some((spread.p50, spread.p99))
    };
    let between = |asked: &Asked, answered: &Answered| {
        (asked.kernel_heard as i64 - asked.kernel_sent as i64)
            - (answered.sent as i64 - answered.heard as i64)
    };
    Direct {
        writes: stack.len(),
        stack,
        steps: [
            spread(&bursts, |asked, _| {
                asked.user_heard as i64 - asked.user_sent as i64
            }),
            spread(&bursts, |asked, _| {
                asked.kernel_heard as i64 - asked.kernel_sent as i64
            }),
            spread(&bursts, between),
            spread(&paced, between),
            None,
            spread(&paced, |asked, answered| {
                answered.heard as i64 - asked.kernel_sent as i64
            }),
        ],
        packets: bursts.len() + paced.len(),
    }
}

/// Interfaces of this host that stamp every packet in hardware, by name, and if that is switched
/// on.
pub(super) fn hardware_stamps() -> Vec<(String, bool)> {
    let devices = std::fs::read_dir("/sys/class/net")
        .into_iter()
        .flatten()
        .flatten();
    let stamping = devices.filter_map(|device| {
        let name = device.file_name().into_string().ok()?;
        let can = ccplane_host::timestamping(&name).ok()?;
        (can.sends_hardware && can.receives_hardware).then_some((name, can.hardware_on))
    });
    let mut all: Vec<(String, bool)> = stamping.collect();
    all.sort();
    all
}
