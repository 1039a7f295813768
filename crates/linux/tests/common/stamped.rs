//! Timestamps over an emulated link: a registration that reads them and reports every ACK, and its
//! connections.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as StdDuration;

use ccplane_datapath::{CommandTarget, Update};
use ccplane_emu::{DEVICE_NAME, Emulator};
use ccplane_host::Namespace;
use ccplane_linux::RegistrationOptions;
use ccplane_linux::stamp::StampPrograms;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockProtocol, SockType, SockaddrStorage, setsockopt, socket, sockopt,
};

use super::direct::*;
use super::{Sink, eventually, patient};

/// Reports every ACK with its signals.
pub const STAMP_PROGRAM: &str = "
(def (Report (owd 0) (rtt 0) (minowd 0) (minrtt 0) (queue 0) (valid 0) (acked 0)))
(when (> Ack.bytes_acked 0)
  (:= Report.owd Ack.owd_ns)
  (:= Report.rtt Ack.rtt_ns)
  (:= Report.minowd Flow.min_owd_ns)
  (:= Report.minrtt Flow.min_rtt_ns)
  (:= Report.queue Flow.queue_delay_ns)
  (:= Report.valid Flow.queue_delay_valid)
  (:= Report.acked Ack.bytes_acked)
  (report))
";
pub const OWD_FIELD: usize = 0;
pub const RTT_FIELD: usize = 1;
pub const MIN_OWD_FIELD: usize = 2;
pub const MIN_STAMPED_RTT_FIELD: usize = 3;
pub const QUEUE_DELAY_FIELD: usize = 4;
pub const VALID_FIELD: usize = 5;
pub const UNKNOWN_NS: u64 = 0xffff_ffff;
pub const EVENT_TIMEOUT: StdDuration = StdDuration::from_secs(10);

/// A registration that reads timestamps, over a link whose two ends may stamp.
pub struct Bed {
    pub direct: Direct,
    pub emulator: Emulator,
    pub stamps: StampPrograms,
    _sink: Option<Sink>,
}

impl Bed {
    /// `ends`: which namespaces stamp, the sender's first. The window is 80,000 bytes; 50,000 fill
    /// the path.
    pub fn new(name: &str, ends: [bool; 2]) -> Bed {
        let mut bed = Bed::without(name);
        let namespaces =
            [bed.emulator.sender_ns(), bed.emulator.receiver_ns()].map(Namespace::clone);
        for (namespace, _) in namespaces.iter().zip(ends).filter(|(_, stamps)| *stamps) {
            bed.stamp(namespace, DEVICE_NAME);
        }
        bed.stamp_sockets();
        bed
    }

    /// Like [`new`](Bed::new), without attachments.
    pub fn without(name: &str) -> Bed {
        let kernel_name = format!("ccp_{name}");
        let stamps =
            StampPrograms::load(&[&kernel_name], true).unwrap_or_else(|error| panic!("{error}"));
        let options = RegistrationOptions {
            stamps: Some(stamps.storage().expect("its map")),
            ..patient()
        };
        let mut direct = Direct::new(name, vec![program(7, STAMP_PROGRAM)], 7, &options);
        direct.updates = vec![Update {
            target: CommandTarget::Cwnd,
            value: 80_000,
        }];
        let mut config = link();
        // Holds a burst of a whole window.
        config.forward.queue = "droptail:4bdp".parse().expect("a queue");
        let emulator = Emulator::start(config).expect("it starts");
        Bed {
            direct,
            emulator,
            stamps,
            _sink: None,
        }
    }

    /// Attaches to a device and the sockets of this namespace.
    pub fn stamp(&mut self, namespace: &Namespace, device: &str) {
        self.stamps
            .add_namespace(namespace)
            .unwrap_or_else(|error| panic!("{error}"));
        let attached = namespace
            .run(|| self.stamps.attach_device(device))
            .expect("inside");
        attached.unwrap_or_else(|error| panic!("{error}"));
    }

    /// Attaches to the sockets, after the namespaces are set.
    pub fn stamp_sockets(&mut self) {
        self.stamps
            .attach_sockets(None)
            .unwrap_or_else(|error| panic!("{error}"));
    }

    /// Opens a connection from the sender's namespace that sends until it is joined.
    pub fn send(&mut self) -> Flow {
        self.send_to(self.emulator.receiver_addr())
    }

    pub fn send_to(&mut self, address: IpAddr) -> Flow {
        let text = address.to_string();
        let sink = self
            .emulator
            .receiver_ns()
            .run(|| Sink::start(&text))
            .expect("inside");
        let name = self.direct.kernel_name();
        let start = || Flow::start(sink.address, &name);
        let flow = self.emulator.sender_ns().run(start).expect("inside");
        self._sink = Some(sink);
        flow
    }

    /// Ends the connection and checks that everything sent has arrived.
    pub fn end(&mut self, flow: Flow) {
        flow.stop.store(true, Ordering::Relaxed);
        self.direct
            .turn_until("the transfer ends", |_| flow.thread.is_finished());
        let sent = flow.thread.join().expect("no panic");
        let sink = self._sink.as_ref().expect("the peer address is known");
        eventually(EVENT_TIMEOUT, "every byte arrives", || {
            sink.received() == sent
        });
    }

    /// Returns the known values of a field in the reports from index `from` on.
    pub fn known(&self, from: usize, field: usize) -> Vec<u64> {
        let values = self.direct.reports[from..]
            .iter()
            .map(|(.., fields)| fields[field]);
        values.filter(|value| *value != UNKNOWN_NS).collect()
    }

    pub fn valid(&self, from: usize) -> usize {
        self.direct.reports[from..]
            .iter()
            .filter(|(.., fields)| fields[VALID_FIELD] == 1)
            .count()
    }
}

/// A sender whose congestion control is set before it connects.
pub struct Flow {
    pub stop: Arc<AtomicBool>,
    pub thread: std::thread::JoinHandle<u64>,
}

impl Flow {
    pub fn start(to: SocketAddr, congestion: &str) -> Flow {
        let mut stream = connect(to, congestion);
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let body = move || {
            let (chunk, mut sent) = (vec![0x55; 1 << 14], 0);
            while !seen.load(Ordering::Relaxed) {
                stream.write_all(&chunk).expect("the flow continues");
                sent += chunk.len() as u64;
            }
            stream
                .shutdown(std::net::Shutdown::Write)
                .expect("connected");
            // The sink closes after it has read everything.
            assert_eq!(
                stream
                    .read(&mut [0])
                    .expect("the flow ends without an error"),
                0
            );
            sent
        };
        Flow {
            stop,
            thread: std::thread::spawn(body),
        }
    }
}

/// Connects a socket whose congestion control is set before.
pub fn connect(to: SocketAddr, congestion: &str) -> TcpStream {
    let family = if to.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    };
    let fd = socket(
        family,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::Tcp,
    )
    .expect("a socket");
    setsockopt(&fd, sockopt::TcpCongestion, &OsString::from(congestion)).expect("registered");
    // The backlog in the socket must not outlast the test.
    setsockopt(&fd, sockopt::SndBuf, &200_000).expect("a size");
    nix::sys::socket::connect(fd.as_raw_fd(), &SockaddrStorage::from(to)).expect("it listens");
    TcpStream::from(fd)
}
