//! A flow that its agent releases runs NewReno in the kernel, alone, until a program is set again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};
use std::time::Duration as StdDuration;

use crate::common::direct::Sender;
use crate::common::*;
use ccplane_agent::{
    Agent, AgentOptions, Algorithm, Control, FlowId, FlowInfo, Programs, Refusal, Report,
};
use ccplane_link::{AgentAddress, AgentThread, Local};
use ccplane_linux::{FlowView, Flows, Kernel, run_relay};
use ccplane_units::Duration;

/// Keeps ten segments in flight, which NewReno would not on this path.
const TEN_SEGMENTS_PROGRAM: &str = "
(def (Report (volatile acked 0)))
(when true (:= Report.acked (+ Report.acked Ack.bytes_acked)) (:= Cwnd (* 10 Flow.mss))
    (fallthrough))
(when (> Micros 1000) (:= Micros 0) (report))
";

/// Requests of the test to the algorithm, and its results.
#[derive(Default)]
struct ReleaseScript {
    /// Local port of the flow to release; 0: none.
    give_up: AtomicU16,
    /// Makes all flows run the program again.
    again: AtomicBool,
    refused: AtomicBool,
}

struct GivesUp {
    name: &'static str,
    asked: Arc<ReleaseScript>,
    flows: Vec<FlowId>,
}

impl Algorithm for GivesUp {
    type Flow = u16;

    fn name(&self) -> &str {
        self.name
    }

    fn programs(&self) -> Programs {
        Programs::new().with("ten", TEN_SEGMENTS_PROGRAM)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control) -> u16 {
        self.flows.extend(control.flow_id());
        control.set_program("ten", &[]);
        control.set_timer(Duration::from_millis(5));
        info.local.port()
    }

    fn on_report(&mut self, port: &mut u16, _report: &Report, control: &mut Control) {
        if *port == self.asked.give_up.load(Relaxed) {
            control.release();
        }
    }

    fn on_timer(&mut self, control: &mut Control) {
        control.set_timer(Duration::from_millis(5));
        if self.asked.again.swap(false, Relaxed) {
            for id in &self.flows {
                if let Some(mut flow) = control.flow(*id) {
                    flow.set_program("ten", &[]);
                }
            }
        }
    }

    fn on_refused(&mut self, _port: &mut u16, _why: &Refusal, _control: &mut Control) {
        self.asked.refused.store(true, Relaxed);
    }
}

fn agent(name: &'static str, asked: &Arc<ReleaseScript>) -> Agent {
    let mut agent = Agent::new(AgentOptions::default());
    let algorithm = GivesUp {
        name,
        asked: asked.clone(),
        flows: Vec::new(),
    };
    agent.add(algorithm).expect("its program compiles");
    agent
}

/// Releases and takes back one of two flows of an attached algorithm.
fn one_of_two(name: &'static str, watch: &Flows, asked: &ReleaseScript) {
    let limit = StdDuration::from_secs(20);
    let sink = Sink::start("127.0.0.1");
    let kernel_name = format!("ccp_{name}");
    let senders = [(); 2].map(|()| Sender::start(sink.address, &kernel_name));
    let ten = |flow: &FlowView| {
        flow.agent_controlled && !flow.in_fallback && flow.cwnd.get() == 10 * flow.mss.get()
    };
    eventually(limit, "both run the program", || {
        watch.live().filter(ten).count() == 2
    });
    let victim = watch.live().next().expect("both live").flow;
    let of = |which: bool| {
        let mut flows = watch.live();
        flows
            .find(|flow| (flow.flow == victim) == which)
            .expect("both live")
    };
    asked.give_up.store(of(true).local.port(), Relaxed);
    // Reports in transit do not take it back, and NewReno opens the window.
    eventually(limit, "NewReno controls the released flow", || {
        let flow = of(true);
        flow.in_fallback
            && !flow.agent_controlled
            && flow.program.is_none()
            && flow.cwnd.get() > 20 * flow.mss.get()
    });
    let reports = of(true).reports;
    let before = of(false);
    pause(200);
    let (one, other) = (of(true), of(false));
    assert_eq!(
        (one.reports, one.fallbacks),
        (reports, 1),
        "no more reports: {one:?}"
    );
    assert!(one.in_fallback, "{one:?}");
    assert!(ten(&other) && other.fallbacks == 0, "{other:?}");
    assert!(
        other.reports > before.reports,
        "the agent is alive: {before:?} {other:?}"
    );

    asked.give_up.store(0, Relaxed);
    asked.again.store(true, Relaxed);
    eventually(limit, "the flow is steered again", || ten(&of(true)));
    assert_eq!(of(true).fallbacks, 1);
    assert!(!asked.refused.load(Relaxed));
    for sender in senders {
        sender.join();
    }
}

#[test]
fn a_released_flow_runs_newreno_and_others_are_unaffected() {
    if !can_run("a_released_flow_runs_newreno_and_others_are_unaffected") {
        return;
    }
    let _host = lock_host();
    let asked = Arc::default();
    let agent = agent("t_giveup", &asked);
    let kernel = load(&agent, &patient());
    let watch = kernel.observe_flows();
    let running = RunningAgent::start(kernel, agent);
    one_of_two("t_giveup", &watch, &asked);
    let kernel = running.stop();
    let (_, _, counters) = kernel.counters().next().expect("it is registered");
    assert_eq!(counters.fallbacks, 1);
}

#[test]
fn an_agent_behind_the_relay_can_release_a_flow() {
    if !can_run("an_agent_behind_the_relay_can_release_a_flow") {
        return;
    }
    let _host = lock_host();
    let asked = Arc::default();
    let path = std::env::temp_dir().join(format!("ccplane-giveup-{}", std::process::id()));
    let link = Local::bind(&path).expect("a free path");
    let mut kernel = load(&agent("t_relayed", &asked), &patient());
    let served = AgentThread::start("t-agent", agent("t_relayed", &asked), link).expect("a thread");
    let address: AgentAddress = format!("unix:{}", path.display()).parse().expect("a path");
    let watch = kernel.observe_flows();
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    let relay = std::thread::spawn(move || -> Kernel {
        let mut remote = address.connection("t_relayed");
        run_relay(&mut kernel, &mut *remote, &seen, &mut ());
        kernel
    });
    // Ends the relay even if the test fails.
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        one_of_two("t_relayed", &watch, &asked)
    }));
    stop.store(true, Relaxed);
    let kernel = relay.join().expect("no panic");
    served.stop_and_join(Duration::from_secs(1));
    if let Err(why) = ended {
        std::panic::resume_unwind(why);
    }
    let (_, _, counters) = kernel.counters().next().expect("it is registered");
    assert_eq!(counters.fallbacks, 1);
}
