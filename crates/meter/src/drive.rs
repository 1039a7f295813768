//! The delay meter on sockets: a client that runs to its end, and a responder that runs until it is stopped.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use ccplane_agent::link::Clock;
use ccplane_units::{Duration, Rate, Time};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::client::{Client, Exchange, Tally};
use super::packet::LONGEST;
use super::responder::{Came, Counters, Responder};
use crate::key::Key;
use ccplane_udp::{Inbox, Marks, Numbered, Socket, Stamper, Stamping, UdpError, passes};

/// How long a wait lasts at most, before the flag that stops it is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// When hellos are sent, and when nobody is expected to answer any more: a person waits for it.
const HELLOS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_millis(2_500),
];
const GIVE_UP: Duration = Duration::from_secs(5);
/// How long replies to the last probes are waited for. Longer than any queue that is not broken.
const LAST: Duration = Duration::from_secs(1);
/// Datagrams whose departure the kernel may still tell, at most: of more the oldest are given up.
const MOST_UNTOLD: usize = 4096;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The responder.
    pub to: SocketAddr,
    /// Bytes of a probe, UDP payload: [`HEADER`](super::packet::HEADER) to [`LONGEST`].
    pub size: usize,
    /// Between two probes on average. Each gap is drawn between a half and one and a half of it, so that nothing periodic on the path
    /// is met always in the same phase (RFC 2330, section 11.1).
    pub interval: Duration,
    /// How many probes.
    pub count: u32,
    /// The key that both ends share, if there is one.
    pub key: Option<Key>,
    /// Whose stamps to take.
    pub stamping: Stamping,
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Every probe, in the order of sending.
    pub exchanges: Vec<Exchange>,
    /// Counts.
    pub tally: Tally,
    /// Real time less the clock of this end's times, and of the responder's, ns.
    pub real: (i64, i64),
    /// The stamps of this end, and of the responder, are network interfaces'.
    pub interface: (bool, bool),
    /// Most by which this end's stamps all together may be off, ns.
    pub error_ns: u64,
}

/// How to serve.
#[derive(Clone, Debug)]
pub struct Service {
    /// Where to listen.
    pub listen: SocketAddr,
    /// The clients' key, if they have one.
    pub key: Option<Key>,
    /// All that leaves stays below this, UDP payload.
    pub limit: Rate,
    /// Whose stamps to take.
    pub stamping: Stamping,
}

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// Nobody answers.
    #[error("no answer from {to}{}", .why.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    NoAnswer {
        /// Whom.
        to: SocketAddr,
        /// What the network said, if anything.
        why: Option<io::Error>,
    },
    /// The socket.
    #[error(transparent)]
    Socket(#[from] UdpError),
}

/// What happened on a socket.
enum Event<'a, T> {
    /// What was sent left, by the kernel's stamp.
    Left(T, Time),
    /// A datagram came.
    Came {
        now: Time,
        stamp: Option<Time>,
        interface: bool,
        from: SocketAddr,
        datagram: &'a [u8],
    },
}

/// A socket whose datagrams are stamped.
struct Meter<T> {
    socket: Socket,
    stamper: Stamper,
    clock: Clock,
    /// By the kernel's numbers: what they are here.
    sent: Numbered<T>,
    trouble: Option<io::Error>,
    interface: bool,
}

impl<T: Copy> Meter<T> {
    fn bind(local: SocketAddr, stamping: Stamping) -> Result<Meter<T>, UdpError> {
        let mut socket = Socket::bind(local).map_err(|why| UdpError::Bind { address: local, why })?;
        socket.stamp(stamping, true).map_err(UdpError::Stamps)?;
        // Probes leave when they are due, not up to 50 µs later.
        let _ = nix::sys::prctl::set_timerslack(1_000);
        let clock = Clock::new();
        Ok(Meter {
            socket,
            stamper: Stamper::new(clock),
            clock,
            sent: Numbered::new(MOST_UNTOLD),
            trouble: None,
            interface: false,
        })
    }

    /// Sends a datagram that is `what`; false where this host did not take it.
    fn send(&mut self, to: SocketAddr, datagram: &[u8], what: T) -> Result<bool, UdpError> {
        match self.socket.send_each(to, datagram, datagram.len(), Marks::default()) {
            Ok((_, number)) => {
                self.sent.sent(number, what);
                Ok(true)
            }
            Err(why) => self.hear(why, "send").map(|()| false),
        }
    }

    /// Gives what left and what came, with the kernel's stamps; whether there was anything.
    fn turn(&mut self, inbox: &mut Inbox, mut take: impl FnMut(Event<'_, T>)) -> Result<bool, UdpError> {
        let received = match self.socket.receive_each(inbox, LONGEST) {
            Ok(received) => received,
            Err(why) => return self.hear(why, "receive").map(|()| true),
        };
        let now = self.stamper.look();
        let (stamper, sent) = (&mut self.stamper, &mut self.sent);
        let trouble = self.socket.departures(|number, stamp| {
            let what = sent.of(number).copied();
            if let (Some(what), Some(at)) = (what, stamper.convert(stamp, now)) {
                take(Event::Left(what, at));
            }
        });
        self.trouble = trouble.or(self.trouble.take());
        let some = !received.is_empty();
        received.each(|from, _, stamp, datagram| {
            let interface = stamp.hardware.is_some();
            self.interface |= interface;
            take(Event::Came {
                now,
                stamp: self.stamper.convert(stamp, now),
                interface,
                from,
                datagram,
            });
        });
        Ok(some)
    }

    /// What the network says of a datagram is remembered, anything else is the end.
    fn hear(&mut self, why: io::Error, what: &'static str) -> Result<(), UdpError> {
        if why.kind() == io::ErrorKind::WouldBlock {
            return Ok(());
        }
        if !passes(&why) {
            return Err(failed(what, why));
        }
        self.trouble = Some(why);
        Ok(())
    }

    /// Waits for something to come, or to be told, until then at most.
    fn wait(&self, until: Time) -> Result<(), UdpError> {
        let longest = until.since(self.clock.now());
        let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut fds, Some(TimeSpec::from_duration(longest.to_std())), None) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(why) => Err(failed("wait", why.into())),
        }
    }
}

/// Measures, until the plan is done or `stop` is raised; `told` hears of every probe that is sent: how many so far.
pub fn measure(plan: &Plan, stop: &AtomicBool, mut told: impl FnMut(u32)) -> Result<Measured, MeasureError> {
    let any = if plan.to.is_ipv4() {
        SocketAddr::from(([0; 4], 0))
    } else {
        SocketAddr::from(([0u16; 8], 0))
    };
    let mut meter: Meter<Option<u32>> = Meter::bind(any, plan.stamping)?;
    meter
        .socket
        .hear_errors()
        .map_err(|why| failed("hear of errors", why))?;
    let mut random = Random::new()?;
    let mut client = Client::new(random.next(), plan.key.clone());
    let mut inbox = Inbox::new();
    let mut out = vec![0; plan.size];
    greet(plan, &mut meter, &mut client, &mut out, stop)?;
    let mut due = meter.clock.now();
    let mut ends = Time::MAX;
    while !stop.load(Ordering::Relaxed) {
        let turned = meter.turn(&mut inbox, |event| match event {
            Event::Left(Some(number), at) => client.left(number, at),
            Event::Left(None, _) => {}
            Event::Came {
                now, stamp, datagram, ..
            } => {
                client.handle(now, stamp, datagram);
            }
        })?;
        let now = meter.clock.now();
        let tally = client.tally();
        if tally.sent + tally.unsent < plan.count {
            if now >= due {
                if let Some(number) = client.probe(now, &mut out) {
                    if meter.send(plan.to, &out, Some(number))? {
                        told(number + 1);
                    } else {
                        client.take_back();
                    }
                }
                // One that was late is not made up for by a burst.
                let gap = plan.interval.as_nanos() / 2 + random.below(plan.interval.as_nanos().max(1));
                due = (due + Duration::from_nanos(gap)).max(now);
                ends = now + LAST;
                continue;
            }
        } else if now >= ends || tally.answered == tally.sent {
            break;
        }
        if !turned {
            meter.wait(
                due.max(now)
                    .min(now + LOOK_EVERY)
                    .min(ends.max(now + Duration::from_millis(1))),
            )?;
        }
    }
    let tally = client.tally();
    let (exchanges, theirs, interface) = client.into_parts();
    Ok(Measured {
        exchanges,
        tally,
        real: (meter.stamper.real_offset(), theirs),
        interface: (meter.interface, interface),
        error_ns: meter.stamper.error_ns(),
    })
}

/// Asks until the responder answers.
fn greet(
    plan: &Plan,
    meter: &mut Meter<Option<u32>>,
    client: &mut Client,
    out: &mut [u8],
    stop: &AtomicBool,
) -> Result<(), MeasureError> {
    let mut inbox = Inbox::new();
    let begun = meter.clock.now();
    let mut hellos = HELLOS.iter().peekable();
    while !client.is_known() && !stop.load(Ordering::Relaxed) {
        let passed = meter.clock.now().since(begun);
        let refused = matches!(&meter.trouble, Some(why) if why.kind() == io::ErrorKind::ConnectionRefused);
        if passed >= GIVE_UP || refused {
            return Err(MeasureError::NoAnswer {
                to: plan.to,
                why: meter.trouble.take(),
            });
        }
        if hellos.next_if(|at| passed >= **at).is_some() && client.hello(out) {
            meter.send(plan.to, out, None)?;
        }
        let turned = meter.turn(&mut inbox, |event| {
            if let Event::Came {
                now, stamp, datagram, ..
            } = event
            {
                client.handle(now, stamp, datagram);
            }
        })?;
        if !turned {
            let next = hellos.peek().map_or(GIVE_UP, |at| **at);
            meter.wait((begun + next).min(meter.clock.now() + LOOK_EVERY))?;
        }
    }
    Ok(())
}

/// Answers probes until `stop` is raised; `listening` hears of the address.
pub fn serve(
    service: &Service,
    stop: &AtomicBool,
    listening: impl FnOnce(SocketAddr),
) -> Result<Counters, MeasureError> {
    let mut meter: Meter<Option<(u64, u32)>> = Meter::bind(service.listen, service.stamping)?;
    let mut secret = [0; 32];
    random(&mut secret)?;
    let mut responder = Responder::new(secret, service.key.clone(), service.limit, meter.clock.now());
    let mut inbox = Inbox::new();
    // Sent when the batch is read: a socket does not lend itself while it is read.
    let mut answers: Vec<Reply> = Vec::new();
    let mut out = vec![0; LONGEST];
    let mut unsent = 0;
    listening(meter.socket.local());
    while !stop.load(Ordering::Relaxed) {
        let real = meter.stamper.real_offset();
        let turned = meter.turn(&mut inbox, |event| match event {
            Event::Left(Some(reply), at) => responder.left(reply, at),
            Event::Left(None, _) => {}
            Event::Came {
                now,
                stamp,
                interface,
                from,
                datagram,
            } => {
                let came = Came {
                    now,
                    stamp,
                    interface,
                    real,
                };
                if let Some(answer) = responder.handle(&came, from, datagram, &mut out) {
                    answers.push((from, out[..answer.length].to_vec(), answer.of));
                }
            }
        })?;
        for (to, datagram, of) in answers.drain(..) {
            // Where an answer goes is the client's to say: one that cannot be sent ends nothing.
            unsent += u64::from(!meter.send(to, &datagram, of).unwrap_or(false));
        }
        if !turned {
            meter.wait(meter.clock.now() + LOOK_EVERY)?;
        }
    }
    Ok(Counters {
        unsent,
        ..responder.counters()
    })
}

/// For whom, what, and which probe's reply it is.
type Reply = (SocketAddr, Vec<u8>, Option<(u64, u32)>);

fn failed(what: &'static str, why: io::Error) -> UdpError {
    UdpError::Socket { what, why }
}

fn random(bytes: &mut [u8]) -> Result<(), UdpError> {
    getrandom::fill(bytes).map_err(|why| UdpError::Random(io::Error::other(why)))
}

/// Gaps and the identifier; nobody is kept from guessing gaps.
struct Random(u64);

impl Random {
    fn new() -> Result<Random, UdpError> {
        let mut seed = [0; 8];
        random(&mut seed)?;
        Ok(Random(u64::from_be_bytes(seed)))
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::HEADER;
    use std::sync::mpsc;
    use std::thread;

    fn with_responder(key: Option<Key>, limit: Rate, work: impl FnOnce(SocketAddr)) -> Counters {
        let stop = AtomicBool::new(false);
        let service = Service {
            listen: "127.0.0.1:0".parse().unwrap(),
            key,
            limit,
            stamping: Stamping::Software,
        };
        thread::scope(|scope| {
            let (tell, told) = mpsc::channel();
            let (service, stopped) = (&service, &stop);
            let serving = scope.spawn(move || serve(service, stopped, |address| tell.send(address).unwrap()));
            work(told.recv().unwrap());
            stop.store(true, Ordering::Relaxed);
            serving.join().unwrap().unwrap()
        })
    }

    fn plan(to: SocketAddr) -> Plan {
        Plan {
            to,
            size: HEADER,
            interval: Duration::from_micros(500),
            count: 400,
            key: None,
            stamping: Stamping::Software,
        }
    }

    /// A datagram may come from anywhere, also from where nothing can be sent to.
    #[test]
    fn an_answer_that_cannot_be_sent_ends_nothing() {
        let mut meter: Meter<()> = Meter::bind("127.0.0.1:0".parse().unwrap(), Stamping::Software).unwrap();
        let nowhere = "127.0.0.1:0".parse().unwrap();
        assert!(!meter.send(nowhere, &[0; 100], ()).unwrap());
        assert_eq!(
            meter.trouble.as_ref().and_then(io::Error::raw_os_error),
            Some(Errno::EINVAL as i32)
        );
        let here = meter.socket.local();
        assert!(
            !meter.send(here, &[0; 65_508], ()).unwrap(),
            "longer than a datagram may be"
        );
        assert!(meter.send(here, &[0; 100], ()).unwrap());
    }

    const LIMIT: Rate = Rate::from_bits_per_sec(1_000_000_000);

    #[test]
    fn every_probe_on_loopback_has_its_four_stamps_in_order() {
        let key = || Some(Key::from_bytes([3; 32]));
        let counters = with_responder(key(), LIMIT, |to| {
            let plan = Plan {
                key: key(),
                size: 700,
                ..plan(to)
            };
            let mut told = 0;
            let measured = measure(&plan, &AtomicBool::new(false), |sent| told = sent).unwrap();
            let tally = measured.tally;
            assert_eq!((tally.sent, tally.answered, told), (400, 400, 400));
            assert_eq!((tally.lost_there(), tally.lost_back(), tally.foreign), (0, 0, 0));
            // One clock at both ends: everything is in order, the last reply's departure alone is not told.
            let base = measured.real.1 - measured.real.0;
            let mut told_of = 0;
            for exchange in &measured.exchanges {
                let theirs = |ns: u64| (ns as i64 + base) as u64;
                assert!(
                    exchange.sent <= exchange.left && exchange.arrived <= exchange.read,
                    "{exchange:?}"
                );
                assert!(
                    exchange.left <= theirs(exchange.came) + 2_000 && exchange.came <= exchange.taken,
                    "{exchange:?}"
                );
                if exchange.answer_left != 0 {
                    told_of += 1;
                    assert!(exchange.made <= exchange.answer_left, "{exchange:?}");
                    assert!(theirs(exchange.answer_left) <= exchange.arrived + 2_000, "{exchange:?}");
                }
            }
            assert!(told_of >= 390, "{told_of} departures of replies");
        });
        assert_eq!((counters.answered, counters.garbage, counters.unknown), (400, 0, 0));
    }

    #[test]
    fn a_responder_with_a_key_is_silent_to_who_has_none_and_nobody_is_told_at_once() {
        let counters = with_responder(Some(Key::from_bytes([3; 32])), LIMIT, |to| {
            let failed = measure(&plan(to), &AtomicBool::new(false), |_| ()).unwrap_err();
            assert!(matches!(failed, MeasureError::NoAnswer { why: None, .. }), "{failed}");
        });
        assert_eq!((counters.garbage, counters.hellos), (HELLOS.len() as u64, 0));
        let nobody = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let failed = measure(&plan(nobody), &AtomicBool::new(false), |_| ()).unwrap_err();
        let MeasureError::NoAnswer { why: Some(why), .. } = failed else {
            panic!("{failed}")
        };
        assert_eq!(why.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn beyond_the_limit_probes_are_refused_and_said_to_be() {
        with_responder(None, Rate::from_bits_per_sec(80_000), |to| {
            let plan = Plan {
                size: 1000,
                count: 100,
                ..plan(to)
            };
            let tally = measure(&plan, &AtomicBool::new(false), |_| ()).unwrap().tally;
            assert!(tally.refused > 0 || tally.judged < tally.sent, "{tally:?}");
            assert!(tally.answered < 30 && tally.lost_there() == 0, "{tally:?}");
        });
    }
}
