//! Report and update over ccplane's own local link: a socket of packets, version 2 of the messages.

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

use super::beside_hogs;

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

/// Exchanges that are not counted.
const WARM_UP: usize = 500;
/// Looks, a system call each, before it makes way: some 20 µs. Fewer, and an idle machine's latency
/// is the scheduler's.
const LOOKS: u32 = 100;
/// Longer and the agent is gone.
const PATIENCE_NS: u64 = 5_000_000_000;

pub(super) fn times(exchanges: usize, hogs: usize) -> Result<Vec<Duration>, Error> {
    beside_hogs(hogs, || measure(exchanges)).map_err(Error::traffic("time the local link", ""))
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

/// The datapath's side.
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
    tell(&mut uplink, &WireEvent::Ready { datapath })?;
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
    tell(&mut uplink, &WireEvent::Installed { program })?;
    let info = FlowInfo {
        algorithm: "answer".to_owned(),
        ..FlowInfo::default()
    };
    tell(&mut uplink, &WireEvent::FlowOpened { flow: 1, info })?;
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
        tell(&mut uplink, &report)?;
        wait(&mut uplink, &mut |command| {
            matches!(command, WireCommand::Update { .. })
        })?;
        if n >= WARM_UP {
            times.push(Duration::from_nanos(monotonic_ns() - begun));
        }
    }
    Ok(times)
}

fn tell(uplink: &mut Uplink, event: &WireEvent<'_>) -> io::Result<()> {
    match uplink.event(event) {
        SendOutcome::Queued if uplink.flush() => Ok(()),
        sent => Err(io::Error::other(format!(
            "the agent does not take messages: {sent:?}"
        ))),
    }
}

/// Looks until a command comes that is wanted, and makes way for others between looks now and then.
fn wait(uplink: &mut Uplink, wanted: &mut dyn FnMut(WireCommand) -> bool) -> io::Result<()> {
    let begun = monotonic_ns();
    let (mut came, mut looks) = (false, 0u32);
    loop {
        uplink.receive(&mut |command| came |= wanted(command));
        if came {
            return Ok(());
        }
        looks += 1;
        if looks.is_multiple_of(LOOKS) {
            if !uplink.is_connected() || monotonic_ns() - begun > PATIENCE_NS {
                return Err(io::Error::other("the agent does not answer"));
            }
            thread::yield_now();
        }
    }
}
