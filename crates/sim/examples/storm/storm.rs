//! Run of a plan, with all checks after every event.

use std::sync::Arc;

use ccplane_qdisc::{DelayModel, LineSpec, LossModel};
use ccplane_sim::{
    FlowControl, FlowId, FlowSpec, NetworkChange, SimError, SimOptions, Simulation, SteerOptions,
};
use ccplane_transport::ConnectionState;
use ccplane_units::{Duration, Probability, Rate, Time};

use crate::channel::Line;
use crate::check::stream::{Stream, Streams};
use crate::check::{Violation, counters, end, limits};
use crate::disk::{self, Recorder};
use crate::plan::{FaultKind, Plan};

/// Time for flows to complete after the calm; most take some seconds. Afterwards, flows of
/// algorithms that crawl on such paths ([`Plan::crawls`]) are aborted if they progress; any other
/// incomplete flow is a failure.
const COMPLETION_TIMEOUT: Duration = Duration::from_secs(300);
/// A flow that has received nothing for this long is stuck: far longer than the longest RTO, or
/// than a segment takes at 100 bytes/s.
const STUCK_FLOW_TIMEOUT: Duration = Duration::from_secs(100);
/// Time after the close of the last flow for packets and messages in flight.
const DRAIN_TIME: Duration = Duration::from_secs(2);
/// Events between two checks of all link counters, which take longer than an event.
const LINK_CHECK_PERIOD_EVENTS: u64 = 64;
/// Maximum number of events at one time, for a simulation to count as stalled.
const EVENTS_PER_INSTANT_MAX: u64 = 200_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Digest of the simulation.
    pub digest: u64,
    pub events: u64,
    pub messages: u64,
    pub harmed: u64,
}

/// Violated invariant, with its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub at: Time,
    pub what: Violation,
}

struct Storm<'a> {
    plan: &'a Plan,
    sim: Simulation<Recorder>,
    line: Line,
    streams: Streams,
    flows: Vec<FlowId>,
    /// Flows were aborted, so not every byte has to arrive.
    given_up: bool,
}

pub fn run(plan: &Plan) -> Result<Outcome, Failure> {
    disk::run_with_log(plan.disk, || {
        let mut storm = Storm::new(plan).map_err(|error| Failure {
            at: Time::ZERO,
            what: error.to_string(),
        })?;
        let outcome = storm.run();
        let at = storm.sim.now();
        let recorded = storm.sim.into_tracer().check();
        outcome
            .and_then(|outcome| recorded.map(|()| outcome))
            .map_err(|what| Failure { at, what })
    })
}

impl<'a> Storm<'a> {
    fn new(plan: &'a Plan) -> Result<Storm<'a>, SimError> {
        let network = plan.network()?;
        let streams = Streams::new(&network, plan.flows.len());
        let line = Line::new(&Arc::new(plan.clone()));
        let hosts: Vec<_> = plan
            .flows
            .iter()
            .filter_map(|flow| plan.hosts(flow, &network))
            .collect();
        let bottleneck = network.find_link(plan.bottleneck());
        let bottleneck = bottleneck.ok_or_else(|| {
            SimError::InvalidTopology(format!("there is no link `{}`", plan.bottleneck()))
        })?;
        let recorder = Recorder::new(streams.clone(), &network, bottleneck, plan.disk);
        let mut sim = Simulation::with_tracer(network, SimOptions::seeded(plan.seed), recorder)?;
        let options = SteerOptions {
            limits: plan.limits,
            ..SteerOptions::default()
        };
        let agent = sim.host_behind_channel(Box::new(line.clone()), options);
        for (flow, (from, to)) in plan.flows.iter().zip(hosts) {
            let spec = FlowSpec::new(from, to)
                .starting_at(flow.start)
                .with_bytes(flow.bytes);
            sim.add_flow(
                spec.with_congestion(FlowControl::Steered(agent, "".into()))
                    .with_transport(plan.config.clone()),
            )?;
        }
        let flows = sim.flows().collect();
        let mut storm = Storm {
            plan,
            sim,
            line,
            streams,
            flows,
            given_up: false,
        };
        storm.schedule()?;
        Ok(storm)
    }

    /// Schedules the faults of the network.
    fn schedule(&mut self) -> Result<(), SimError> {
        let plan = self.plan;
        let Some(link) = self.sim.network().find_link(plan.bottleneck()) else {
            return Err(SimError::InvalidTopology(format!(
                "there is no link `{}`",
                plan.bottleneck()
            )));
        };
        for fault in &plan.faults {
            let share = |thousandth: u64| Probability::from_parts((thousandth << 32) / 1_000);
            let (worse, better) = match fault.what {
                FaultKind::Down => (NetworkChange::Down(link), NetworkChange::Up(link)),
                FaultKind::Slow(percent) => {
                    let slow = Rate::from_bytes_per_sec(
                        (plan.rate.bytes_per_sec() * percent / 100).max(1_000),
                    );
                    let line = LineSpec::Constant;
                    (
                        NetworkChange::Line(link, line(slow)),
                        NetworkChange::Line(link, line(plan.rate)),
                    )
                }
                FaultKind::Loss(thousandth) => {
                    let loss = LossModel::Bernoulli(share(thousandth));
                    (
                        NetworkChange::Loss(link, loss),
                        NetworkChange::Loss(link, LossModel::NONE),
                    )
                }
                FaultKind::Reorder(percent) => (
                    NetworkChange::Delay(link, plan.jitter(percent)),
                    NetworkChange::Delay(link, DelayModel::Fixed(plan.delay)),
                ),
                _ => continue,
            };
            self.sim.schedule(fault.at, worse)?;
            self.sim.schedule(fault.end(), better)?;
        }
        Ok(())
    }

    fn run(&mut self) -> Result<Outcome, Violation> {
        let lies = self.plan.lies();
        let (mut events, mut at_once, mut moment) = (0_u64, 0_u64, Time::ZERO);
        let (patient, last) = (
            self.plan.calm + COMPLETION_TIMEOUT,
            self.plan.calm + COMPLETION_TIMEOUT * 2,
        );
        while self.step(last)? {
            events += 1;
            self.look(lies)?;
            if events.is_multiple_of(LINK_CHECK_PERIOD_EVENTS) {
                self.check_periodically()?;
                if self.all_ended() {
                    break;
                }
            }
            at_once = if self.sim.now() == moment {
                at_once + 1
            } else {
                0
            };
            moment = self.sim.now();
            if at_once > EVENTS_PER_INSTANT_MAX {
                return Err(format!(
                    "more than {EVENTS_PER_INSTANT_MAX} events at one instant"
                ));
            }
            let late = moment >= patient;
            if !self.given_up && (late || lies && moment >= self.plan.calm) {
                self.give_up(late && !lies)?;
            }
        }
        if !self.all_ended() {
            return Err(format!(
                "flows still open long after the last fault: {}",
                self.living().join("; ")
            ));
        }
        // Behind a cut, the agent is notified of a flow's end only when the network is restored.
        let is_far = self
            .plan
            .faults
            .iter()
            .any(|fault| fault.what == FaultKind::Cut);
        let back = if is_far { self.plan.calm } else { Time::ZERO };
        let until = self.sim.now().max(back) + DRAIN_TIME;
        while self.step(until)? {
            events += 1;
        }
        self.check_all_received()?;
        end::check(&self.sim, &self.line, lies)?;
        let line = self.line.inner();
        Ok(Outcome {
            digest: self.sim.digest(),
            events,
            messages: line.messages,
            harmed: line.harmed,
        })
    }

    /// Aborts incomplete flows; a stuck flow is a failure.
    fn give_up(&mut self, moving: bool) -> Result<(), Violation> {
        self.given_up = true;
        let streams = self.streams.inner();
        let crawls = self.plan.crawls();
        let still =
            |stream: &Stream| !crawls || stream.latest + STUCK_FLOW_TIMEOUT < self.sim.now();
        for (index, flow) in self.flows.iter().enumerate() {
            if moving && self.sim.connections(*flow).is_some() && still(&streams.flows[index]) {
                return Err(format!("flows are stuck: {}", self.living().join("; ")));
            }
        }
        drop(streams);
        for flow in &self.flows {
            self.sim.abort(*flow);
        }
        Ok(())
    }

    /// Describes the open flows.
    fn living(&self) -> Vec<String> {
        let living = self
            .flows
            .iter()
            .filter(|flow| self.sim.connections(**flow).is_some());
        living
            .filter_map(|flow| {
                Some(format!(
                    "flow {}: {:?}",
                    flow.index(),
                    self.sim.flow(*flow)?
                ))
            })
            .collect()
    }

    fn step(&mut self, until: Time) -> Result<bool, Violation> {
        let more = self.sim.step(until).map_err(|error| error.to_string())?;
        if let Some(wrong) = self.line.inner().wrong.take() {
            return Err(wrong);
        }
        if let Some(wrong) = self.streams.inner().wrong.take() {
            return Err(wrong);
        }
        Ok(more)
    }

    /// Runs the checks of every event.
    fn look(&self, lies: bool) -> Result<(), Violation> {
        let Storm { plan, sim, .. } = self;
        let streams = self.streams.inner();
        let mut line = self.line.inner();
        let only_hostile = plan.only_hostile();
        let initial = u64::from(plan.config.initial_window) * u64::from(plan.config.mss);
        for (index, flow) in self.flows.iter().enumerate() {
            let Some((sender, receiver)) = sim.connections(*flow) else {
                continue;
            };
            let of = |wrong: Violation| format!("flow {index}: {wrong}");
            let stats = sender.stats();
            let received = receiver.map_or(0, |receiver| receiver.received());
            streams.flows[index]
                .check(received, stats.acked)
                .map_err(of)?;
            if sender.state() != ConnectionState::Open {
                continue;
            }
            limits::check(&plan.limits, initial, stats.acked > 0, sender).map_err(of)?;
            let falls_back = sim.in_fallback(*flow).unwrap_or_default();
            if falls_back && only_hostile {
                return Err(of(
                    "the flow is in fallback because of a hostile tenant".to_owned()
                ));
            }
            let state = (falls_back, stats.acked);
            line.model
                .check(
                    sim.now(),
                    index as u64,
                    plan.flows[index].start,
                    state,
                    lies,
                )
                .map_err(of)?;
        }
        Ok(())
    }

    /// Runs the slower checks.
    fn check_periodically(&self) -> Result<(), Violation> {
        let streams = self.streams.inner();
        for (index, flow) in self.flows.iter().enumerate() {
            if let Some((sender, _)) = self.sim.connections(*flow) {
                counters::check(sender, &streams.flows[index])
                    .map_err(|wrong| format!("flow {index}: {wrong}"))?;
            }
        }
        self.sim.check().map_err(|error| error.to_string())
    }

    /// Returns true if every flow has started and ended.
    fn all_ended(&self) -> bool {
        let mut flows = self.plan.flows.iter().zip(&self.flows);
        flows.all(|(plan, flow)| {
            plan.start < self.sim.now() && self.sim.connections(*flow).is_none()
        }) && self.sim.resources_in_use()[1].1 == 0
    }

    /// Checks that every byte arrived, unless flows were aborted.
    fn check_all_received(&self) -> Result<(), Violation> {
        let streams = self.streams.inner();
        for (index, (plan, flow)) in self.plan.flows.iter().zip(&self.flows).enumerate() {
            let Some(view) = self.sim.flow(*flow) else {
                continue;
            };
            let whole = streams.flows[index].whole;
            if !self.given_up && (view.received, whole) != (plan.bytes, plan.bytes) {
                return Err(format!(
                    "flow {index}: received {} of {} bytes, {whole} arrived ({:?})",
                    view.received, plan.bytes, view.failure
                ));
            }
        }
        Ok(())
    }
}
