//! The datapath's side of version 1: messages for a CCP agent, and the effects of its replies.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ccplane_agent::{
    Agent, AgentOptions, Algorithm, Control, DatapathInfo, FlowInfo, Programs, Report,
};
use ccplane_datapath::Capabilities;
use ccplane_link::{
    AgentConnection, CcpAddress, CcpUplink, Datagram, SendOutcome, ThreadClock, WaitStrategy, serve,
};
use ccplane_units::{Bytes, Duration, Time};
use ccplane_wire::{WireCommand, WireEvent};

const PROGRAM: &str = "(def (Report (volatile acked 0) (lost 0)) (gain 1) (volatile pace 2))
    (when true (:= Report.acked (+ Report.acked (* gain Ack.bytes_acked))) \
    (:= Report.lost pace) (report))";

fn ready(fallback_after: Option<Duration>) -> WireEvent<'static> {
    WireEvent::Ready {
        datapath: DatapathInfo {
            id: 9,
            kind: "test".to_owned(),
            capabilities: Capabilities::CWND,
            max_programs: 8,
            max_instrs: 256,
            max_vars: 32,
            agent_timeout: fallback_after,
        },
    }
}

fn opened(flow: u64, cwnd: u64) -> WireEvent<'static> {
    let info = FlowInfo {
        algorithm: "reno".to_owned(),
        init_cwnd: Bytes::new(10_000),
        cwnd: Bytes::new(cwnd),
        mss: Bytes::new(1000),
        local: "[2001:db8::1]:80".parse().expect("an address"),
        ..FlowInfo::default()
    };
    WireEvent::FlowOpened { flow, info }
}

struct Echo;

impl Algorithm for Echo {
    type Flow = ();
    fn name(&self) -> &str {
        "echo"
    }
    fn programs(&self) -> Programs {
        Programs::new().with("fold", PROGRAM)
    }
    fn open(&mut self, _info: &FlowInfo, control: &mut Control<'_>) {
        control.set_program("fold", &[("gain", 3)]);
    }
    fn on_report(&mut self, _flow: &mut (), report: &Report<'_>, control: &mut Control<'_>) {
        control.set_cwnd(Bytes::new(50_000 + report.get("acked").unwrap_or(0)));
    }
}

/// An agent that serves version 1 until it is dropped.
struct Serving {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Serving {
    fn at(path: &std::path::Path) -> Serving {
        let mut link = Datagram::bind(path).expect("a path of its own");
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut agent = Agent::new(AgentOptions::default());
            agent.add(Echo).expect("it compiles");
            serve(&mut agent, &mut [&mut link], WaitStrategy::default(), &seen).expect("it serves");
        });
        Serving {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Receives commands until one matches.
fn until(
    uplink: &mut CcpUplink,
    clock: ThreadClock,
    wanted: impl Fn(&WireCommand) -> bool,
) -> WireCommand {
    let mut found = None;
    while found.is_none() {
        assert!(
            clock.now() < Time::ZERO + Duration::from_secs(20),
            "timeout waiting for a reply"
        );
        uplink.receive(clock.now(), &mut |command| {
            if wanted(&command) {
                found = Some(command);
            }
        });
        std::thread::yield_now();
    }
    found.expect("the loop's end")
}

#[test]
fn a_restarted_agent_on_the_socket_is_told_of_all_flows() {
    let path: PathBuf =
        std::env::temp_dir().join(format!("ccplane-foreign-{}", std::process::id()));
    let clock = ThreadClock::new();
    let mut uplink = CcpUplink::new(
        &CcpAddress {
            path: path.clone(),
            timeout: None,
        },
        "echo",
    );
    assert!(uplink.connect(clock.now()).is_err(), "no agent");
    assert_eq!(uplink.queue_event(&ready(None)), SendOutcome::NoAgent);
    for round in 0..2 {
        let serving = Serving::at(&path);
        // Not immediately: the uplink backs off after a failed attempt.
        while uplink.connect(clock.now()).is_err() {
            assert!(
                clock.now() < Time::ZERO + Duration::from_secs(20),
                "it exists"
            );
            std::thread::yield_now();
        }
        assert_eq!(uplink.queue_event(&ready(None)), SendOutcome::Queued);
        assert_eq!(uplink.queue_event(&opened(40, 10_000)), SendOutcome::Queued);
        assert!(uplink.flush());
        let set = until(&mut uplink, clock, |command| {
            matches!(command, WireCommand::SetProgram { .. })
        });
        let WireCommand::SetProgram {
            flow: 40,
            uid,
            updates,
        } = set
        else {
            panic!("{set:?}")
        };
        assert_eq!(updates.as_slice()[0].value, 3);
        let report = WireEvent::Report {
            flow: 40,
            program: uid,
            urgent: false,
            fields: &[77 + round, 0],
        };
        assert_eq!(uplink.queue_event(&report), SendOutcome::Queued);
        assert!(uplink.flush());
        let update = until(&mut uplink, clock, |command| {
            matches!(command, WireCommand::Update { .. })
        });
        let WireCommand::Update { flow: 40, updates } = update else {
            panic!("{update:?}")
        };
        assert_eq!(updates.as_slice()[0].value, 50_077 + round);

        drop(serving);
        // The next send detects the loss.
        while uplink.is_connected() {
            let _ = uplink.queue_event(&report);
            uplink.flush();
        }
    }
}
