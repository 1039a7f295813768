//! An agent that dies (SIGKILL) or hangs (SIGSTOP) under load: every transfer completes, every flow
//! runs the fallback at its first ACK after the agent timeout, a new agent takes over the live
//! flows, and `detach` leaves nothing behind.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration as StdDuration, Instant};

use crate::common::*;
use ccplane_linux::{FlowView, Kernel, Observer, PinnedView, attached, detach, run_agent};
use ccplane_units::{Duration, Time};
use ccplane_wire::WireEvent;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const FALLBACK_MS: u64 = 150;
const EVENT_TIMEOUT: StdDuration = StdDuration::from_secs(10);

/// Not a test: the body of the agent's process, which runs this binary again.
#[test]
#[ignore = "child: the process of the agent"]
fn agent_process() {
    let Ok(name) = std::env::var("CCPLANE_TEST_AGENT") else {
        return;
    };
    let name: &'static str = name.leak();
    let mut agent = agent_of(name, 1000);
    let mut options = options(FALLBACK_MS);
    options.pin = std::env::var_os("CCPLANE_TEST_RUN").is_none();
    let mut kernel = load(&agent, &options);
    run_agent(&mut kernel, &mut agent, &AtomicBool::new(false), &mut ());
}

/// The agent's process. Dropping it ends the process and detaches its registration.
struct AgentProcess {
    child: Child,
    kernel_name: String,
}

impl AgentProcess {
    /// Starts an agent that pins its registration.
    fn attach(name: &str) -> AgentProcess {
        let process = AgentProcess::start(name, &[]);
        eventually(EVENT_TIMEOUT, "the agent attaches", || {
            PinnedView::open(&process.kernel_name).is_ok()
        });
        process
    }

    /// Starts an agent whose registration ends with it.
    fn run(name: &str) -> AgentProcess {
        let process = AgentProcess::start(name, &[("CCPLANE_TEST_RUN", "1")]);
        eventually(EVENT_TIMEOUT, "the agent registers", || {
            available(&process.kernel_name)
        });
        process
    }

    fn start(name: &str, more: &[(&str, &str)]) -> AgentProcess {
        let child = Command::new(std::env::current_exe().expect("this binary"))
            .args([
                "--exact",
                "kill::agent_process",
                "--ignored",
                "--nocapture",
                "--test-threads=1",
            ])
            .env("CCPLANE_TEST_AGENT", name)
            .envs(more.iter().copied())
            .stdout(Stdio::null())
            .spawn()
            .expect("it starts");
        AgentProcess {
            child,
            kernel_name: format!("ccp_{name}"),
        }
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("the process is our child");
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = detach(Some(&self.kernel_name));
    }
}

/// Connections that send until stopped, and then complete their transfers.
struct Load {
    stop: Arc<AtomicBool>,
    sender: Option<std::thread::JoinHandle<u64>>,
    sink: Sink,
}

impl Load {
    fn start(flows: usize, kernel_name: &str) -> Load {
        let sink = Sink::start("127.0.0.1");
        let streams: Vec<TcpStream> = (0..flows)
            .map(|n| {
                let stream = TcpStream::connect(sink.address).expect("it listens");
                // One at a time, so that the listener's backlog suffices.
                eventually(EVENT_TIMEOUT, "the connection is accepted", || {
                    sink.connections() > n
                });
                choose(&stream, kernel_name).expect("registered");
                stream.set_nonblocking(true).expect("a socket");
                stream
            })
            .collect();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let sender = std::thread::spawn(move || send_over(streams, &seen));
        Load {
            stop,
            sender: Some(sender),
            sink,
        }
    }

    /// Checks that every transfer completes.
    fn finish(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let total = self
            .sender
            .take()
            .expect("finished once")
            .join()
            .expect("every transfer completes");
        eventually(EVENT_TIMEOUT, "every byte arrives", || {
            self.sink.received() == total
        });
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Sends small chunks over each stream in turn until `stop`, then waits until the peers have read
/// everything. Returns the number of bytes sent.
fn send_over(mut streams: Vec<TcpStream>, stop: &AtomicBool) -> u64 {
    let chunk = vec![0x55; 8 << 10];
    let mut total = 0;
    while !stop.load(Ordering::Relaxed) {
        for stream in &mut streams {
            match stream.write(&chunk) {
                Ok(n) => total += n as u64,
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}"),
            }
        }
        std::thread::sleep(StdDuration::from_millis(2));
    }
    for stream in &mut streams {
        stream
            .shutdown(std::net::Shutdown::Write)
            .expect("connected");
        stream.set_nonblocking(false).expect("a socket");
        // The peer closes after it has read everything.
        assert_eq!(
            stream
                .read(&mut [0])
                .expect("the flow ends without an error"),
            0
        );
    }
    total
}

/// Checks all flows of our senders (the other ends use the host's default).
fn all(watch: &PinnedView, flows: usize, is: impl Fn(&FlowView) -> bool) -> bool {
    watch.flows().count() == flows && watch.flows().all(|flow| is(&flow))
}

#[derive(Default)]
struct Openings {
    live: AtomicU64,
}

impl Observer for &Openings {
    fn on_event(&mut self, _now: Time, event: &WireEvent<'_>) {
        if let WireEvent::FlowOpened { info, .. } = event {
            self.live.fetch_add(u64::from(info.live), Ordering::Relaxed);
        }
    }
}

fn falls_back_in_time(watch: &PinnedView, flows: usize) {
    eventually(EVENT_TIMEOUT, "every flow falls back", || {
        all(watch, flows, |flow| flow.in_fallback)
    });
    let heartbeat = watch.last_heartbeat();
    for flow in watch.flows() {
        let at = flow.fallback_at.expect("the flow fell back");
        // The kernel's timestamps have a resolution of 1 µs.
        let waited = at.since(heartbeat) + Duration::from_micros(1);
        assert!(
            waited >= Duration::from_millis(FALLBACK_MS),
            "{waited:?} is too soon"
        );
        assert!(flow.last_activity >= at);
    }
    let acked = |watch: &PinnedView| watch.flows().map(|flow| flow.acked.get()).sum::<u64>();
    let before = acked(watch);
    eventually(
        EVENT_TIMEOUT,
        "the flows continue under the fallback",
        || acked(watch) > before + 10_000 * flows as u64,
    );
}

fn killed_with(flows: usize, name: &'static str) {
    let mut process = AgentProcess::attach(name);
    let kernel_name = process.kernel_name.clone();
    let watch = PinnedView::open(&kernel_name).expect("attached");
    let load = Load::start(flows, &kernel_name);
    eventually(EVENT_TIMEOUT, "the agent steers every flow", || {
        all(&watch, flows, |flow| flow.agent_controlled)
    });

    process.signal(Signal::SIGKILL);
    process.child.wait().expect("our child");
    assert!(available(&kernel_name), "pinned, so it outlives its agent");
    falls_back_in_time(&watch, flows);

    let mut agent = agent_of(name, 1000);
    let limits = options(500).limits;
    let mut kernel =
        Kernel::adopt(&specs(&agent), &limits).unwrap_or_else(|error| panic!("{error}"));
    let before: Vec<FlowView> = watch.flows().collect();
    let fallbacks = watch.counters().fallbacks;
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    let openings = Arc::new(Openings::default());
    let counted = openings.clone();
    let thread =
        std::thread::spawn(move || run_agent(&mut kernel, &mut agent, &seen, &mut &*counted));
    eventually(EVENT_TIMEOUT, "the new agent steers every flow", || {
        all(&watch, flows, |flow| {
            flow.agent_controlled && !flow.in_fallback
        })
    });
    // Each flow was announced once, and again if a slow machine kept the new agent silent for too
    // long.
    let announced = openings.live.load(Ordering::Relaxed);
    let again = watch.counters().fallbacks - fallbacks;
    assert!(
        (flows as u64..=flows as u64 + again).contains(&announced),
        "{announced} announced, {again} reannounced"
    );
    assert_eq!(before.len(), flows);
    let reports = watch.counters().reports;
    eventually(EVENT_TIMEOUT, "reports arrive again", || {
        watch.counters().reports > reports + 10
    });
    load.finish();
    stop.store(true, Ordering::Relaxed);
    thread.join().expect("no panic");

    assert_eq!(
        detach(Some(&kernel_name)).expect("it works"),
        std::slice::from_ref(&kernel_name)
    );
    nothing_is_left(&kernel_name);
}

fn nothing_is_left(kernel_name: &str) {
    eventually(EVENT_TIMEOUT, "it is unregistered", || {
        !available(kernel_name)
    });
    assert!(!attached().iter().any(|name| name == kernel_name));
    assert!(PinnedView::open(kernel_name).is_err());
    assert!(!std::path::Path::new(&format!("/run/ccplane/{kernel_name}.lock")).exists());
}

#[test]
fn an_agent_is_killed_with_one_flow() {
    if can_run("an_agent_is_killed_with_one_flow") {
        let _host = lock_host();
        killed_with(1, "t_kill1");
    }
}

#[test]
fn an_agent_is_killed_with_200_flows() {
    if can_run("an_agent_is_killed_with_200_flows") {
        let _host = lock_host();
        killed_with(200, "t_kill200");
    }
}

#[test]
fn an_agent_that_hangs_loses_its_flows_and_gets_them_back() {
    if !can_run("an_agent_that_hangs_loses_its_flows_and_gets_them_back") {
        return;
    }
    let _host = lock_host();
    const FLOW_COUNT: usize = 8;
    let process = AgentProcess::attach("t_hang");
    let watch = PinnedView::open(&process.kernel_name).expect("attached");
    let load = Load::start(FLOW_COUNT, &process.kernel_name);
    eventually(EVENT_TIMEOUT, "the agent steers every flow", || {
        all(&watch, FLOW_COUNT, |flow| flow.agent_controlled)
    });

    process.signal(Signal::SIGSTOP);
    falls_back_in_time(&watch, FLOW_COUNT);

    process.signal(Signal::SIGCONT);
    eventually(EVENT_TIMEOUT, "the agent steers the flows again", || {
        all(&watch, FLOW_COUNT, |flow| {
            flow.agent_controlled && !flow.in_fallback
        })
    });
    load.finish();
    // Killed without notice: detach works nevertheless.
    let kernel_name = process.kernel_name.clone();
    process.signal(Signal::SIGKILL);
    let started = Instant::now();
    drop(process);
    nothing_is_left(&kernel_name);
    assert!(started.elapsed() < EVENT_TIMEOUT);
}

#[test]
fn leftovers_of_a_killed_run_do_not_block_the_next() {
    if !can_run("leftovers_of_a_killed_run_do_not_block_the_next") {
        return;
    }
    let _host = lock_host();
    let mut process = AgentProcess::run("t_left");
    let kernel_name = process.kernel_name.clone();
    let load = Load::start(4, &kernel_name);
    process.signal(Signal::SIGKILL);
    process.child.wait().expect("our child");
    // With links the kernel unregisters; before Linux 6.4 the next start does. Live flows prevent
    // neither.
    let agent = agent_of("t_left", 1000);
    let kernel = crate::common::load(&agent, &patient());
    assert!(available(&kernel_name));
    let running = RunningAgent::start(kernel, agent);
    let sink = Sink::start("127.0.0.1");
    send(sink.address, &kernel_name, 1 << 20, &AtomicBool::new(false)).expect(
        "the new \
        registration works",
    );
    let kernel = running.stop();
    let (_, _, counters) = kernel.counters().next().expect("one");
    assert_eq!(
        counters.opened, 1,
        "the old flows keep the old registration"
    );
    load.finish();
    drop(kernel);
    nothing_is_left(&kernel_name);
}
