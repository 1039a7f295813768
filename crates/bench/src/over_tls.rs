//! An agent over TLS on loopback, and a datapath without traffic: what `bench control-loop` and
//! `bench agent` measure of it.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use ccplane_agent::{DatapathInfo, FlowInfo};
use ccplane_datapath::Capabilities;
use ccplane_link::{
    AgentConnection, LinkError, SendOutcome, Spinner, ThreadClock, TlsAddress, TlsLink, TlsUplink,
    WaitStrategy, connect_blocking, make_keys,
};
use ccplane_testbed::control_loop::{LoopError, ServeStats, fresh_path, serving};
use ccplane_wire::{WireCommand, WireEvent};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Flows of the throughput's run. More would only announce more.
const FLOWS: u64 = 100;
/// Reports between two looks for what came back, as a ring's.
const LOOK_EVERY: u64 = 512;

/// Times report → algorithm → update and back, of so many exchanges, after a tenth as many that are
/// not counted.
pub fn times(exchanges: usize) -> Result<Vec<Duration>, LoopError> {
    let (times, _) = with_datapath(true, |datapath| {
        datapath.open(1)?;
        let mut times = Vec::with_capacity(exchanges);
        for exchange in 0..exchanges + exchanges / 10 {
            let start = Instant::now();
            datapath.report(1);
            datapath.uplink.flush();
            datapath.wait(|command| matches!(command, WireCommand::Update { .. }))?;
            if exchange >= exchanges / 10 {
                times.push(start.elapsed());
            }
        }
        Ok(times)
    })?;
    Ok(times)
}

/// Reports that the algorithm gets, a second, when the datapath makes as many as the agent takes.
pub fn reports_per_s(duration: Duration) -> Result<f64, LoopError> {
    let (elapsed, served) = with_datapath(false, |datapath| {
        (1..=FLOWS).try_for_each(|flow| datapath.open(flow))?;
        let (start, mut made) = (Instant::now(), 0);
        while start.elapsed() < duration {
            for _ in 0..LOOK_EVERY {
                if datapath.report(made % FLOWS + 1) {
                    made += 1;
                }
            }
            datapath.uplink.flush();
            datapath.uplink.receive(datapath.clock.now(), &mut |_| ());
        }
        Ok(start.elapsed().as_secs_f64())
    })?;
    Ok(served.stats.reports as f64 / elapsed)
}

struct Datapath {
    uplink: TlsUplink,
    clock: ThreadClock,
    spinner: Spinner,
    program: u32,
}

/// Keys that are gone in the end.
struct Keys(PathBuf);

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn with_datapath<T>(
    updates: bool,
    run: impl FnOnce(&mut Datapath) -> Result<T, LoopError>,
) -> Result<(T, ServeStats), LoopError> {
    let keys = Keys(fresh_path("keys"));
    make_keys(&keys.0, &["bench".to_owned()], SystemTime::now()).map_err(LinkError::from)?;
    let mut link = TlsLink::bind(([127, 0, 0, 1], 0).into(), &keys.0)?;
    let address = TlsAddress {
        host: "127.0.0.1".to_owned(),
        port: link.address()?.port(),
        keys: Some(keys.0.clone()),
    };
    serving(&mut link, updates, WaitStrategy::default(), || {
        let mut datapath = Datapath {
            uplink: TlsUplink::new(&address),
            clock: ThreadClock::new(),
            spinner: Spinner::new(WaitStrategy::default()),
            program: 0,
        };
        connect_blocking(&mut datapath.uplink, datapath.clock.now())?;
        datapath.begin()?;
        run(&mut datapath)
    })
}

impl Datapath {
    fn begin(&mut self) -> Result<(), LoopError> {
        let datapath = DatapathInfo {
            id: 1,
            kind: "bench".to_owned(),
            capabilities: Capabilities::CWND,
            max_programs: 8,
            max_instrs: 256,
            max_vars: 64,
            agent_timeout: None,
        };
        self.tell(&WireEvent::Ready { datapath })?;
        let mut program = 0;
        self.wait(|command| match command {
            WireCommand::Install {
                program: installed, ..
            } => {
                program = installed.uid();
                true
            }
            _ => false,
        })?;
        self.program = program;
        Ok(())
    }

    fn open(&mut self, flow: u64) -> Result<(), LoopError> {
        let info = FlowInfo::default();
        self.tell(&WireEvent::FlowOpened { flow, info })?;
        self.wait(|command| matches!(command, WireCommand::SetProgram { .. }))
    }

    fn tell(&mut self, event: &WireEvent<'_>) -> Result<(), LoopError> {
        match self.uplink.queue_event(event) {
            SendOutcome::Queued => {
                self.uplink.flush();
                Ok(())
            }
            _ => Err(io::Error::other("the agent takes nothing").into()),
        }
    }

    /// Whether there was room for it.
    fn report(&mut self, flow: u64) -> bool {
        let report = WireEvent::Report {
            flow,
            program: self.program,
            urgent: false,
            fields: &[1448, 0, 0, 0, 20_000, 10],
        };
        self.uplink.queue_event(&report) == SendOutcome::Queued
    }

    fn wait(&mut self, mut so: impl FnMut(&WireCommand) -> bool) -> Result<(), LoopError> {
        let start = Instant::now();
        loop {
            let mut found = false;
            let now = self.clock.now();
            self.uplink
                .receive(now, &mut |command| found |= so(&command));
            if found {
                self.spinner.should_poll(true, now);
                return Ok(());
            }
            if start.elapsed() > PATIENCE || !self.uplink.is_connected() {
                return Err(LoopError::AgentTimeout);
            }
            if !self.spinner.should_poll(false, now) {
                self.sleep();
            }
        }
    }

    fn sleep(&self) {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let mut watched: Vec<PollFd<'_>> = self
            .uplink
            .as_fd()
            .into_iter()
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        // An interruption: the next look finds out.
        let _ = poll(&mut watched, PollTimeout::from(10u16));
    }
}
