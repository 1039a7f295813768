//! The datapath without an agent: a registration that collects its events, and senders over it.
#![expect(clippy::disallowed_methods, reason = "tests in real time")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration as StdDuration, Instant};

use ccplane_datapath::{Capabilities, Program, Update};
use ccplane_emu::qdisc::{LineSpec, QueueSpec};
use ccplane_emu::{EmuConfig, Emulator, LinkConfig};
use ccplane_lang::ProgramLimits;
use ccplane_linux::{AlgorithmSpec, Kernel, RegistrationOptions};
use ccplane_units::{Duration, Rate};
use ccplane_wire::{FlowInfo, Refusal, WireCommand, WireEvent};

use super::{Sink, send};

/// Sums, maxima and last values, sent every 10 ms, and immediately on a timeout or an undo.
pub const WATCHER_PROGRAM: &str = "
(def (Report (volatile acked 0) (volatile lost 0) (in 0) (out 0) (rtt 0) (minrtt +infinity)
            (srtt 0) (mss 0)
             (volatile timeout false) (volatile undone false) (window 0)) (interval 10000))
(when true
  (:= Report.acked (+ Report.acked Ack.bytes_acked))
  (:= Report.lost (+ Report.lost Ack.lost_pkts_sample))
  (:= Report.in (max Report.in Flow.rate_incoming))
  (:= Report.out (max Report.out Flow.rate_outgoing))
  (:= Report.rtt Flow.rtt_sample_us)
  (:= Report.minrtt (min Report.minrtt Flow.min_rtt_us))
  (:= Report.srtt Flow.srtt_us)
  (:= Report.mss Flow.mss)
  (:= Report.timeout (|| Report.timeout Flow.was_timeout))
  (:= Report.undone (|| Report.undone Flow.undone))
  (:= Report.window Cwnd)
  (fallthrough))
(when (|| Report.timeout Report.undone (> Micros interval)) (:= Micros 0) (report))
";
pub const ACKED_FIELD: usize = 0;
pub const LOST_FIELD: usize = 1;
pub const RATE_IN_FIELD: usize = 2;
pub const RATE_OUT_FIELD: usize = 3;
pub const MIN_RTT_FIELD: usize = 5;
pub const SRTT_FIELD: usize = 6;
pub const MSS_FIELD: usize = 7;
pub const TIMEOUT_FIELD: usize = 8;
pub const UNDONE_FIELD: usize = 9;
pub const WINDOW_FIELD: usize = 10;
/// Index of the control variable `interval`.
pub const INTERVAL_INDEX: u8 = 11;

pub fn program(uid: u32, source: &str) -> Arc<Program> {
    match ccplane_lang::compile(source, &ProgramLimits::default()) {
        Ok(program) => Arc::new(program.code().with_uid(uid)),
        Err(diagnostics) => panic!("{diagnostics:#}"),
    }
}

pub fn spec(name: &str, programs: Vec<Arc<Program>>) -> AlgorithmSpec {
    AlgorithmSpec {
        name: name.into(),
        kernel_name: format!("ccp_{name}"),
        programs,
        latency: Duration::from_millis(1),
        needs: Capabilities::CWND,
        wants: Capabilities::CWND,
        standalone: None,
    }
}

/// A received report: flow, program, urgent, fields.
pub type DirectReport = (u64, u32, bool, Vec<u64>);

/// A registration that collects its events. Every flow that opens gets `answer`.
pub struct Direct {
    pub kernel: Kernel,
    pub name: String,
    pub uid: u32,
    pub updates: Vec<Update>,
    pub opened: Vec<(u64, FlowInfo)>,
    pub reports: Vec<DirectReport>,
    pub closed: Vec<(u64, ccplane_wire::FlowStats)>,
    pub refused: Vec<Refusal>,
}

impl Direct {
    pub fn new(
        name: &str,
        programs: Vec<Arc<Program>>,
        uid: u32,
        options: &RegistrationOptions,
    ) -> Direct {
        let kernel = Kernel::load(&[spec(name, programs)], options)
            .unwrap_or_else(|error| panic!("{error}"));
        Direct::over(kernel, name, uid)
    }

    pub fn over(kernel: Kernel, name: &str, uid: u32) -> Direct {
        Direct {
            kernel,
            name: name.to_owned(),
            uid,
            updates: Vec::new(),
            opened: Vec::new(),
            reports: Vec::new(),
            closed: Vec::new(),
            refused: Vec::new(),
        }
    }

    pub fn kernel_name(&self) -> String {
        format!("ccp_{}", self.name)
    }

    /// Runs one iteration of an agent's loop.
    pub fn turn(&mut self) {
        self.kernel.heartbeat(&self.name);
        let mut commands = Vec::new();
        self.kernel.poll(Duration::from_millis(2), &mut |events| {
            for event in events {
                match event {
                    WireEvent::FlowOpened { flow, info } => {
                        self.opened.push((flow, info));
                        commands.push(WireCommand::SetProgram {
                            flow,
                            uid: self.uid,
                            updates: self.updates.iter().copied().collect(),
                        });
                    }
                    WireEvent::Report {
                        flow,
                        program,
                        urgent,
                        fields,
                    } => self.reports.push((flow, program, urgent, fields.to_vec())),
                    WireEvent::FlowClosed { flow, stats } => self.closed.push((flow, stats)),
                    WireEvent::Refused { why, .. } => self.refused.push(why),
                    WireEvent::Installed { .. } | WireEvent::Ready { .. } => {}
                }
            }
        });
        for command in commands {
            self.kernel.apply(&command);
        }
    }

    pub fn turn_until(&mut self, what: &str, mut holds: impl FnMut(&mut Direct) -> bool) {
        let started = Instant::now();
        while !holds(self) {
            assert!(
                started.elapsed() < StdDuration::from_secs(30),
                "timeout after 30 s: {what}"
            );
            self.turn();
        }
    }

    pub fn turn_for(&mut self, ms: u64) {
        let started = Instant::now();
        while started.elapsed() < StdDuration::from_millis(ms) {
            self.turn();
        }
    }

    /// Starts a [`link`] and a connection over it that sends until [`end`](Direct::end).
    pub fn send_over_link(&self) -> (Emulator, Sink, Sender) {
        let emulator = Emulator::start(link()).expect("it starts");
        let sink = Sink::behind(&emulator);
        let name = self.kernel_name();
        let start = || Sender::start(sink.address, &name);
        let sender = emulator.sender_ns().run(start).expect("inside");
        (emulator, sink, sender)
    }

    /// Polls until everything that `sender` sent has arrived. Returns the number of bytes.
    pub fn end(&mut self, sender: Sender) -> u64 {
        sender.tell();
        self.turn_until("the transfer ends", |_| sender.is_done());
        sender.join()
    }

    pub fn sum(&self, field: usize) -> u64 {
        self.reports
            .iter()
            .map(|(_, _, _, fields)| fields[field])
            .sum()
    }

    pub fn last(&self, field: usize) -> u64 {
        self.reports
            .last()
            .map_or(0, |(_, _, _, fields)| fields[field])
    }
}

/// Sends until stopped.
pub struct Sender {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<u64>>,
}

impl Sender {
    pub fn start(address: std::net::SocketAddr, name: &str) -> Sender {
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, name) = (stop.clone(), name.to_owned());
        let thread = std::thread::spawn(move || {
            send(address, &name, u64::MAX, &seen).expect("it completes")
        });
        Sender {
            stop,
            thread: Some(thread),
        }
    }

    pub fn is_done(&self) -> bool {
        self.thread
            .as_ref()
            .is_none_or(|thread| thread.is_finished())
    }

    pub fn tell(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    pub fn join(mut self) -> u64 {
        self.tell();
        self.thread
            .take()
            .expect("joined once")
            .join()
            .expect("no panic")
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.tell();
    }
}

pub fn link() -> EmuConfig {
    let way = || LinkConfig {
        line: LineSpec::Constant(Rate::from_bits_per_sec(20_000_000)),
        delay: Duration::from_millis(10),
        queue: QueueSpec::ONE_BDP,
        ..LinkConfig::default()
    };
    EmuConfig {
        forward: way(),
        reverse: way(),
        ..EmuConfig::default()
    }
}
