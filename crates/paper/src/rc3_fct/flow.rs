//! One flow through the emulated path, timed like those of the repeated testbed: from the first
//! byte written to the receiving application's answer of one byte to the last.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ccplane_emu::{EmuConfig, Emulator, LinkConfig, Timing};
use ccplane_qdisc::{LineSpec, LinkSeeds, QueueSpec, Size};
use ccplane_testbed::BackendError;
use ccplane_transport::{Native, Rc3, TransportConfig};
use ccplane_udp::{Stamping, UdpCongestion, UdpHost, UdpOptions};
use ccplane_units::{Duration, Rate};

use ccplane_lab::Error;
use ccplane_testbed::ends::inside;
use ccplane_testbed::traffic::{self, monotonic_ns};

/// Sender of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    /// The kernel's TCP under this congestion control.
    Kernel(&'static str),
    /// Our transport over UDP under its own congestion control, with RC3's second loop or without.
    Transport { first_loop: FirstLoop, rc3: bool },
}

/// Congestion control of our transport's first loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstLoop {
    Cubic,
    NewReno,
}

impl FirstLoop {
    fn congestion_control(self) -> Native {
        match self {
            FirstLoop::Cubic => Native::cubic(),
            FirstLoop::NewReno => Native::new_reno(),
        }
    }
}

impl Sender {
    pub const ALL: [Sender; 5] = [
        Sender::Kernel("cubic"),
        Sender::Kernel("reno"),
        Sender::Transport {
            first_loop: FirstLoop::Cubic,
            rc3: false,
        },
        Sender::Transport {
            first_loop: FirstLoop::Cubic,
            rc3: true,
        },
        Sender::Transport {
            first_loop: FirstLoop::NewReno,
            rc3: true,
        },
    ];

    /// Returns its name in the tables.
    pub fn name(self) -> &'static str {
        match self {
            Sender::Kernel("cubic") => "kernel_cubic",
            Sender::Kernel(_) => "kernel_reno",
            Sender::Transport { rc3: false, .. } => "udp_tcp",
            Sender::Transport {
                first_loop: FirstLoop::Cubic,
                ..
            } => "udp",
            Sender::Transport {
                first_loop: FirstLoop::NewReno,
                ..
            } => "udp_reno",
        }
    }

    /// Returns the MTU at which a packet carries 1,460 bytes of payload, as in the repeated
    /// testbed: our headers have at most 79 bytes, TCP's without time stamps 40.
    fn mtu(self) -> u32 {
        match self {
            Sender::Kernel(_) => 1_500,
            Sender::Transport { .. } => 1_539,
        }
    }
}

/// Path between the hosts. Its queues have a band for each class, and one bandwidth-delay product
/// of space for all bands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub rate: Rate,
    /// One-way delay.
    pub delay: Duration,
}

/// Emulated path for one sender, with a namespace at each end.
pub(super) struct Testbed {
    emulator: Emulator,
    sender: Sender,
    path: Path,
}

impl Testbed {
    pub fn start(path: Path, sender: Sender) -> Result<Testbed, Error> {
        let link = LinkConfig {
            line: LineSpec::Constant(path.rate),
            delay: path.delay,
            queue: QueueSpec::Prio {
                bands: 6,
                shared: true,
                limit: Size::MilliBdp(1_000),
            },
            ..LinkConfig::default()
        };
        let config = EmuConfig {
            forward: link.clone(),
            reverse: LinkConfig {
                seeds: LinkSeeds::from_seed(1),
                ..link
            },
            timing: Timing::Balanced,
            mtu: sender.mtu(),
            log_records: 0,
            ..EmuConfig::default()
        };
        let emulator =
            Emulator::start(config).map_err(|error| BackendError::from_emulator(error, false))?;
        for namespace in [emulator.sender_ns(), emulator.receiver_ns()] {
            // As in the repeated testbed. Metrics of earlier flows would change the start of a
            // flow.
            for (variable, value) in [("tcp_timestamps", "0"), ("tcp_no_metrics_save", "1")] {
                let set = namespace.set_sysctl(&format!("net/ipv4/{variable}"), value);
                set.map_err(|error| BackendError::from_host(error, false))?;
            }
        }
        Ok(Testbed {
            emulator,
            sender,
            path,
        })
    }

    /// Sends `count` flows of this size one after the other. Returns the time of each from the
    /// first byte written to the answer.
    pub fn flows(
        &self,
        bytes: u64,
        count: usize,
        stop: &AtomicBool,
    ) -> Result<Vec<Duration>, Error> {
        let flow = |_| {
            let took = match self.sender {
                Sender::Kernel(congestion) => self.over_tcp(congestion, bytes, stop),
                Sender::Transport { first_loop, rc3 } => {
                    self.over_udp(first_loop, rc3, bytes, stop)
                }
            };
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Interrupted);
            }
            took
        };
        (0..count).map(flow).collect()
    }

    /// Stops the emulator. Returns true if it was on time.
    pub fn finish(self) -> Result<bool, Error> {
        let report = self
            .emulator
            .finish()
            .map_err(|error| BackendError::from_emulator(error, false))?;
        Ok(report.audit.passed)
    }

    fn over_tcp(&self, congestion: &str, bytes: u64, stop: &AtomicBool) -> Result<Duration, Error> {
        let buffer = traffic::buffer_for(self.path.rate.bytes_in(self.path.delay * 4));
        let (here, there) = (self.emulator.sender_ns(), self.emulator.receiver_addr());
        let listener = inside(self.emulator.receiver_ns(), "listen", || {
            traffic::listen(there, buffer)
        })?;
        let work = || -> io::Result<_> {
            let stream = traffic::connect(listener.local_addr()?, congestion, buffer)?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let mut stream = inside(here, "connect", work)?;
        let broken = Error::traffic("time a flow", "is the machine busy?");
        let senders = [stream.try_clone()]
            .into_iter()
            .collect::<io::Result<Vec<_>>>();
        let timed = senders.and_then(|senders| {
            let receiver = traffic::accept(&listener, &senders)?.pop();
            let mut receiver =
                receiver.ok_or_else(|| io::Error::other("no connection was accepted"))?;
            receiver.set_nodelay(true)?;
            thread::scope(|scope| {
                let answering = scope.spawn(move || -> io::Result<()> {
                    let mut left = bytes;
                    let mut block = vec![0; 256 << 10];
                    while left > 0 {
                        match receiver.read(&mut block)? {
                            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                            read => left = left.saturating_sub(read as u64),
                        }
                    }
                    receiver.write_all(b"$")
                });
                let text = vec![0x5a; bytes as usize];
                let begun = monotonic_ns();
                stream.write_all(&text)?;
                let answered = await_byte(&mut stream, stop);
                let took = monotonic_ns().saturating_sub(begun);
                // Ends the receiver if it still reads.
                let _ = stream.shutdown(Shutdown::Both);
                answering
                    .join()
                    .map_err(|_| io::Error::other("the receiver panicked"))??;
                answered.map(|()| Duration::from_nanos(took))
            })
        });
        timed.map_err(broken)
    }

    fn over_udp(
        &self,
        first_loop: FirstLoop,
        rc3: bool,
        bytes: u64,
        stop: &AtomicBool,
    ) -> Result<Duration, Error> {
        let bind = |namespace, local: SocketAddr| {
            let options = UdpOptions {
                local,
                datagram_bytes: self.sender.mtu() as usize - 28,
                // Not larger than needed: the receiver zeroes a connection's memory when it accepts
                // it, which counts.
                window: (bytes as usize).next_power_of_two().max(1 << 16),
                tls: None,
                dscp: 0,
                config: TransportConfig {
                    rc3: rc3.then(Rc3::default),
                    // The longest RTT is 2 s. A shorter timeout would resend the handshake.
                    initial_rto: Duration::from_secs(5),
                    ..TransportConfig::default()
                },
                stamping: Stamping::Off,
                link_rate: None,
                accept_congestion: Native::cubic(),
            };
            inside(namespace, "open a socket", || {
                UdpHost::bind(options).map_err(io::Error::other)
            })
        };
        let (emulator, broken) = (
            &self.emulator,
            Error::traffic("time a flow", "is the machine busy?"),
        );
        let mut server = bind(
            emulator.receiver_ns(),
            SocketAddr::new(emulator.receiver_addr(), 0),
        )?;
        let mut client = bind(
            emulator.sender_ns(),
            SocketAddr::new(emulator.sender_addr(), 0),
        )?;
        let to = server.local();
        let over = AtomicBool::new(false);
        let timed = thread::scope(|scope| {
            let over = &over;
            let answering = scope.spawn(move || {
                let answered = answer(&mut server, bytes, over);
                over.store(true, Ordering::Relaxed);
                answered
            });
            let timed = time(&mut client, to, first_loop, bytes, &[stop, over]);
            over.store(true, Ordering::Relaxed);
            // If both failed, the receiver failed first.
            answering
                .join()
                .map_err(|_| io::Error::other("the receiver panicked"))??;
            timed
        });
        timed.map_err(broken)
    }
}

/// Interval at which waiting hosts check whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A flow that takes longer fails.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Receives this number of bytes, and answers with one byte.
fn answer(host: &mut UdpHost, bytes: u64, stop: &AtomicBool) -> io::Result<()> {
    host.listen(1).map_err(io::Error::other)?;
    let (mut flow, mut received) = (None, 0);
    while !stop.load(Ordering::Relaxed) {
        host.poll(POLL_INTERVAL).map_err(io::Error::other)?;
        flow = flow.or_else(|| host.accept());
        let Some(id) = flow else { continue };
        let (first, second) = host.received(id);
        let taken = first.len() + second.len();
        host.consume(id, taken);
        let before = received;
        received += taken as u64;
        if before < bytes && received >= bytes {
            if let Some(place) = host.write_buffer(id).first_mut() {
                *place = b'$';
            }
            host.commit_write(id, 1);
            // Sends it now, not at the next poll.
            host.poll(Duration::ZERO).map_err(io::Error::other)?;
        }
    }
    Ok(())
}

/// Waits for one byte, or for `stop`.
fn await_byte(stream: &mut TcpStream, stop: &AtomicBool) -> io::Result<()> {
    stream.set_read_timeout(Some(std::time::Duration::from_nanos(
        POLL_INTERVAL.as_nanos(),
    )))?;
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut [0]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(()),
            Err(why)
                if matches!(
                    why.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) => {}
            Err(why) => return Err(why),
        }
    }
    Err(io::ErrorKind::Interrupted.into())
}

/// Sends a flow over a new connection. Returns the time from the first byte written on the open
/// connection to the answer. A flag in `stop` interrupts it.
fn time(
    host: &mut UdpHost,
    to: SocketAddr,
    first_loop: FirstLoop,
    bytes: u64,
    stop: &[&AtomicBool],
) -> io::Result<Duration> {
    let failed = |why: ccplane_udp::UdpError| io::Error::other(why);
    let id = host
        .connect(to, UdpCongestion::Native(first_loop.congestion_control()))
        .map_err(failed)?;
    let late = monotonic_ns() + TIMEOUT.as_nanos();
    let mut begun = None;
    loop {
        let Some(connection) = host.connection(id) else {
            return Err(io::Error::other("the connection is gone"));
        };
        if let Some(why) = connection.failure() {
            return Err(io::Error::other(why));
        }
        if connection.readable() > 0 {
            break;
        }
        if begun.is_none() && connection.srtt() > Duration::ZERO {
            begun = Some(monotonic_ns());
            let mut left = bytes as usize;
            while left > 0 {
                let room = host.write_buffer(id);
                let part = room.len().min(left);
                if part == 0 {
                    return Err(io::Error::other("the window is smaller than the flow"));
                }
                room[..part].fill(0x5a);
                host.commit_write(id, part);
                left -= part;
            }
        }
        host.poll(POLL_INTERVAL).map_err(failed)?;
        if stop.iter().any(|stop| stop.load(Ordering::Relaxed)) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if monotonic_ns() > late {
            return Err(io::Error::other("no answer within two minutes"));
        }
    }
    let took = monotonic_ns().saturating_sub(begun.unwrap_or_default());
    host.abort(id).map_err(failed)?;
    Ok(Duration::from_nanos(took))
}
