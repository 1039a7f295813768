//! Report and update over ccplane's own local link, a packet socket with version 2 of the messages.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ccplane_agent::{Agent, Algorithm, Control, DatapathInfo, FlowInfo, Programs, Report};
use ccplane_datapath::Capabilities;
use ccplane_lab::Error;
use ccplane_link::{Local, SendOutcome, Uplink, WaitStrategy, serve};
use ccplane_testbed::traffic::monotonic_ns;
use ccplane_units::Bytes;
use ccplane_wire::{WireCommand, WireEvent};

use super::next_to_busy_threads;

/// Answers every report with a window.
struct Answer;

impl Algorithm for Answer {
    type Flow = ();

    fn name(&self) -> &str {
        "answer"
    }

    fn programs(&self) -> Programs {
        let program =
            "(def (Report (acked 0) (lost 0) (rtt 0) (rate 0) (inflight 0) (timeout false)))
             (when true (:= Report.acked Ack.bytes_acked) (report))";
        Programs::new().with("answer", program)
    }

    fn open(&mut self, _info: &FlowInfo, control: &mut Control<'_>) {
        control.set_program("answer", &[]);
    }

    fn on_report(&mut self, (): &mut (), report: &Report<'_>, control: &mut Control<'_>) {
        control.set_cwnd(Bytes::new(report.get("acked").unwrap_or(0)));
    }
}

/// Exchanges before the measurement.
const WARM_UP: usize = 500;
/// Polls, a system call each, before the thread yields: some 20 µs. With fewer, the latency of an
/// idle machine is the scheduler's.
const POLLS_PER_YIELD: u32 = 100;
/// Timeout after which the agent counts as gone.
const PATIENCE_NS: u64 = 5_000_000_000;

pub(super) fn times(exchanges: usize, busy_threads: usize) -> Result<Vec<Duration>, Error> {
    next_to_busy_threads(busy_threads, || measure(exchanges))
        .map_err(Error::traffic("time the local link", ""))
}

fn measure(exchanges: usize) -> io::Result<Vec<Duration>> {
    let path = std::env::temp_dir().join(format!("ccplane-ipc-{}.sock", std::process::id()));
    let mut link = Local::bind(&path).map_err(io::Error::other)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let agent = scope.spawn(|| {
            let mut agent = Agent::new(ccplane_agent::AgentOptions::default());
            agent.add(Answer).map_err(io::Error::other)?;
            serve(&mut agent, &mut [&mut link], WaitStrategy::default(), &stop)
                .map_err(io::Error::other)
        });
        let times = exchange(&path, exchanges);
        stop.store(true, Ordering::Relaxed);
        match agent.join() {
            Ok(served) => served.and(times),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Runs the datapath's side.
fn exchange(path: &std::path::Path, exchanges: usize) -> io::Result<Vec<Duration>> {
    let mut uplink = Uplink::new(path);
    uplink.connect().map_err(io::Error::other)?;
    let datapath = DatapathInfo {
        id: 1,
        kind: "bench".to_owned(),
        capabilities: Capabilities::CWND,
        max_programs: 8,
        max_instrs: 256,
        max_vars: 16,
        agent_timeout: None,
    };
    send(&mut uplink, &WireEvent::Ready { datapath })?;
    let mut program = 0;
    wait(&mut uplink, &mut |command| {
        if let WireCommand::Install {
            program: installed, ..
        } = command
        {
            program = installed.uid();
            return true;
        }
        false
    })?;
    send(&mut uplink, &WireEvent::Installed { program })?;
    let info = FlowInfo {
        algorithm: "answer".to_owned(),
        ..FlowInfo::default()
    };
    send(&mut uplink, &WireEvent::FlowOpened { flow: 1, info })?;
    wait(&mut uplink, &mut |command| {
        matches!(command, WireCommand::SetProgram { .. })
    })?;
    let mut times = Vec::with_capacity(exchanges);
    for n in 0..WARM_UP + exchanges {
        let begun = monotonic_ns();
        let report = WireEvent::Report {
            flow: 1,
            program,
            urgent: true,
            fields: &[100_000 + n as u64, 0, 20_000, 1_000_000, 10, 0],
        };
        send(&mut uplink, &report)?;
        wait(&mut uplink, &mut |command| {
            matches!(command, WireCommand::Update { .. })
        })?;
        if n >= WARM_UP {
            times.push(Duration::from_nanos(monotonic_ns() - begun));
        }
    }
    Ok(times)
}

fn send(uplink: &mut Uplink, event: &WireEvent<'_>) -> io::Result<()> {
    match uplink.event(event) {
        SendOutcome::Queued if uplink.flush() => Ok(()),
        sent => Err(io::Error::other(format!(
            "the agent does not take messages: {sent:?}"
        ))),
    }
}

/// Polls until the wanted command arrives, and yields now and then.
fn wait(uplink: &mut Uplink, wanted: &mut dyn FnMut(WireCommand) -> bool) -> io::Result<()> {
    let begun = monotonic_ns();
    let (mut arrived, mut polls) = (false, 0u32);
    loop {
        uplink.receive(&mut |command| arrived |= wanted(command));
        if arrived {
            return Ok(());
        }
        polls += 1;
        if polls.is_multiple_of(POLLS_PER_YIELD) {
            if !uplink.is_connected() || monotonic_ns() - begun > PATIENCE_NS {
                return Err(io::Error::other("the agent does not answer"));
            }
            thread::yield_now();
        }
    }
}
