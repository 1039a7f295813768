//! Helpers of the tests on real packets: a Reno in the agent, connections with a given congestion
//! control, and a lock, since names of congestion controls are global to the host.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]
#![allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses a part of it"
)]

pub mod direct;
pub mod stamped;
#[path = "../../src/testing.rs"]
mod testing;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as StdDuration, Instant};

use ccplane_agent::{Agent, AgentOptions, Algorithm, Control, FlowInfo, Programs, Report};
use ccplane_emu::Emulator;
use ccplane_linux::{AlgorithmSpec, Kernel, RegistrationOptions, run_agent};
use ccplane_units::{Bytes, Duration};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

pub use testing::lock_host;

/// Detaches a name when dropped, however the test ends.
pub struct DetachOnDrop(pub &'static str);

impl Drop for DetachOnDrop {
    fn drop(&mut self) {
        let _ = ccplane_linux::detach(Some(self.0));
    }
}

/// Returns true if this host can run the test; otherwise reports that it is skipped.
pub fn can_run(test: &str) -> bool {
    match testing::missing_requirement() {
        None => true,
        Some(lacks) => {
            testing::skip(test, &lacks);
            false
        }
    }
}

/// Returns true if IPv6 works over loopback; otherwise reports that the test is skipped. If no test
/// may be skipped, a kernel built without IPv6 is excused, but one that has it disabled is not.
pub fn has_ipv6(test: &str) -> bool {
    // Loads the module if IPv6 is one.
    let Err(error) = TcpListener::bind("[::1]:0") else {
        return true;
    };
    let built_in = std::path::Path::new("/sys/module/ipv6").exists();
    assert!(
        !(built_in && testing::must_run()),
        "SKIPPED: {test}: this kernel has IPv6, but ::1 cannot be used: {error} \
         (net.ipv6.conf.lo.disable_ipv6, ipv6.disable)"
    );
    let why = if built_in {
        "IPv6 is disabled"
    } else {
        "the kernel has no IPv6"
    };
    eprintln!("SKIPPED: {test}: needs IPv6 over loopback, but {why}: {error}");
    false
}

/// Returns true on a CPU emulated in software, where everything works but nothing is fast enough
/// for comparisons.
pub fn emulated() -> bool {
    std::env::var_os("CCPLANE_EMULATED").is_some()
}

/// A minimal NewReno in the agent, driven by the bytes acknowledged since the last report.
pub struct Reno {
    pub name: &'static str,
    pub interval_us: u64,
}

const RENO_PROGRAM: &str = "
(def (Report (volatile acked 0) (volatile lost 0) (volatile timeout false) (volatile undone false)
    (rtt 0)) (interval 1000))
(when true
  (:= Report.acked (+ Report.acked Ack.bytes_acked))
  (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
  (:= Report.timeout (|| Report.timeout Flow.was_timeout))
  (:= Report.undone (|| Report.undone Flow.undone))
  (:= Report.rtt Flow.rtt_sample_us)
  (fallthrough))
(when (|| Report.timeout (|| Report.undone (> Ack.lost_pkts_sample 0))) (:= Micros 0) (report))
(when (> Micros interval) (:= Micros 0) (report))
";

pub struct RenoFlow {
    pub cwnd: u64,
    pub ssthresh: u64,
    mss: u64,
    /// No second reduction until this many more bytes are acknowledged.
    holds: u64,
}

impl Algorithm for Reno {
    type Flow = RenoFlow;

    fn name(&self) -> &str {
        self.name
    }

    fn programs(&self) -> Programs {
        Programs::new().with("fold", RENO_PROGRAM)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control) -> RenoFlow {
        control.set_program("fold", &[("interval", self.interval_us)]);
        RenoFlow {
            cwnd: info.cwnd.get(),
            ssthresh: info.ssthresh.get(),
            mss: info.mss.get().max(1),
            holds: 0,
        }
    }

    fn on_report(&mut self, flow: &mut RenoFlow, report: &Report, control: &mut Control) {
        let field = |name| report.get(name).unwrap_or(0);
        let acked = field("acked");
        flow.holds = flow.holds.saturating_sub(acked);
        if field("timeout") > 0 {
            flow.ssthresh = (flow.cwnd / 2).max(2 * flow.mss);
            flow.cwnd = flow.mss;
            flow.holds = 0;
        } else if field("lost") > 0 && flow.holds == 0 {
            flow.ssthresh = (flow.cwnd / 2).max(2 * flow.mss);
            flow.cwnd = flow.ssthresh;
            flow.holds = flow.cwnd;
        } else if flow.cwnd < flow.ssthresh {
            flow.cwnd += acked;
        } else {
            flow.cwnd += flow.mss * acked / flow.cwnd;
        }
        control.set_cwnd(Bytes::new(flow.cwnd));
        control.set_ssthresh(Bytes::new(flow.ssthresh));
    }
}

pub fn agent_of(name: &'static str, interval_us: u64) -> Agent {
    let mut agent = Agent::new(AgentOptions::default());
    agent
        .add(Reno { name, interval_us })
        .expect("its program compiles");
    agent
}

pub fn specs(agent: &Agent) -> Vec<AlgorithmSpec> {
    agent
        .hosted_algorithms()
        .map(|hosted| AlgorithmSpec::from(&**hosted))
        .collect()
}

/// An agent in a thread of its own, over a kernel registration.
pub struct RunningAgent {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<Kernel>>,
}

impl RunningAgent {
    pub fn start(mut kernel: Kernel, mut agent: Agent) -> RunningAgent {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = std::thread::spawn(move || {
            run_agent(&mut kernel, &mut agent, &seen, &mut ());
            kernel
        });
        RunningAgent {
            stop,
            thread: Some(thread),
        }
    }

    pub fn stop(mut self) -> Kernel {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .take()
            .expect("stopped once")
            .join()
            .expect("the agent does not panic")
    }
}

impl Drop for RunningAgent {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub fn load(agent: &Agent, options: &RegistrationOptions) -> Kernel {
    match Kernel::load(&specs(agent), options) {
        Ok(kernel) => kernel,
        Err(error) => panic!("{error}"),
    }
}

/// Sets the congestion control of a socket.
pub fn choose(socket: &impl AsRawFd, name: &str) -> std::io::Result<()> {
    // SAFETY: the name and its length are valid for the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// A sink that counts bytes, for bulk senders.
pub struct Sink {
    pub address: std::net::SocketAddr,
    received: Arc<std::sync::atomic::AtomicU64>,
    accepted: Arc<std::sync::atomic::AtomicUsize>,
    ended: Arc<AtomicBool>,
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

impl Sink {
    /// Listens at the receiver's end of an emulated path.
    pub fn behind(emulator: &Emulator) -> Sink {
        let address = emulator.receiver_addr().to_string();
        let start = || Sink::start(&address);
        emulator.receiver_ns().run(start).expect("inside")
    }

    /// Listens on `address` in this thread's namespace, on a port chosen by the kernel. A single
    /// thread serves all connections, so that many of them do not starve the agent on a small
    /// machine.
    pub fn start(address: &str) -> Sink {
        let listener = TcpListener::bind((address, 0)).expect("an address of this namespace");
        listener.set_nonblocking(true).expect("a socket");
        let address = listener.local_addr().expect("bound");
        let received = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let ended = Arc::new(AtomicBool::new(false));
        let accepted = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let (sum, count, end) = (received.clone(), accepted.clone(), ended.clone());
        std::thread::spawn(move || {
            let mut streams: Vec<TcpStream> = Vec::new();
            let mut buffer = vec![0; 1 << 18];
            while !end.load(Ordering::Relaxed) {
                let mut fds = vec![PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
                fds.extend(
                    streams
                        .iter()
                        .map(|s| PollFd::new(s.as_fd(), PollFlags::POLLIN)),
                );
                poll(&mut fds, PollTimeout::from(100u8)).expect("it polls");
                drop(fds);
                while let Ok((stream, _)) = listener.accept() {
                    stream.set_nonblocking(true).expect("a socket");
                    streams.push(stream);
                    count.fetch_add(1, Ordering::Relaxed);
                }
                streams.retain_mut(|stream| match stream.read(&mut buffer) {
                    Ok(0) => false,
                    Ok(n) => {
                        sum.fetch_add(n as u64, Ordering::Relaxed);
                        true
                    }
                    Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
                });
            }
        });
        Sink {
            address,
            received,
            accepted,
            ended,
        }
    }

    pub fn connections(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

/// Sends `bytes` (or until `stop`) with the congestion control `name`, and waits until they are
/// acknowledged.
pub fn send(
    address: std::net::SocketAddr,
    name: &str,
    bytes: u64,
    stop: &AtomicBool,
) -> std::io::Result<u64> {
    let mut stream = TcpStream::connect(address)?;
    choose(&stream, name)?;
    let chunk = vec![0x55; 1 << 16];
    let mut sent = 0;
    while sent < bytes && !stop.load(Ordering::Relaxed) {
        let n = chunk.len().min((bytes - sent) as usize);
        stream.write_all(&chunk[..n])?;
        sent += n as u64;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    // The sink closes after it has read everything.
    let _end = stream.read(&mut [0])?;
    Ok(sent)
}

/// Makes close send RST without waiting.
pub fn reset_on_close(socket: &impl AsRawFd) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: the option's value is `linger`, which outlives the call, with its size.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of_val(&linger) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "SO_LINGER of a socket");
}

/// Returns the connection's TCP_INFO.
pub fn tcp_info(socket: &impl AsRawFd) -> libc::tcp_info {
    // SAFETY: `tcp_info` consists of integers, for which zeroes are valid.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `info`, which outlives the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &raw mut len,
        )
    };
    assert_eq!(result, 0, "TCP_INFO of a connected socket");
    info
}

/// Waits until `holds` returns true. Fails if that takes longer than `limit`.
pub fn eventually(limit: StdDuration, what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < limit, "timeout after {limit:?}: {what}");
        std::thread::sleep(StdDuration::from_millis(2));
    }
}

pub fn pause(ms: u64) {
    std::thread::sleep(StdDuration::from_millis(ms));
}

/// Returns the root of the cgroup hierarchy.
pub fn cgroup_root() -> std::path::PathBuf {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("a mounted /proc");
    let root = mounts
        .lines()
        .find_map(|line| line.split_once(" cgroup2 ")?.0.split(' ').nth(1));
    root.expect("a mounted cgroup2").into()
}

pub fn available(name: &str) -> bool {
    std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
        .is_ok_and(|names| names.split_whitespace().any(|n| n == name))
}

/// Options for tests in which no flow may fall back, even if the host pauses for a while.
pub fn patient() -> RegistrationOptions {
    options(10_000)
}

pub fn options(fallback_ms: u64) -> RegistrationOptions {
    let mut options = RegistrationOptions::default();
    options.limits.agent_timeout = Duration::from_millis(fallback_ms);
    options
}
