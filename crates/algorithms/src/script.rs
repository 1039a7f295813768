//! Test harness: one algorithm on its own agent and datapath, driven ACK by ACK with scripted
//! signals.

use std::collections::BTreeMap;

use ccplane_agent::{
    Agent, AgentOptions, DatapathId, DatapathInfo, DynAlgorithm, FlowId, FlowInfo,
};
use ccplane_datapath::{
    self as datapath, Capabilities, CommandTarget, OperatorLimits, Outcome, ProgramTable, Signals,
    Transport,
};
use ccplane_units::{Bytes, Duration, Time};
use ccplane_wire::{WireCommand, WireEvent};

use crate::{Parameters, Registry};

pub(crate) const MSS: u64 = 1_000;
const DATAPATH_ID: DatapathId = DatapathId(0);
const FLOW_ID: u64 = 1;

/// Returns all capabilities that a datapath can have.
pub(crate) fn everything() -> Capabilities {
    use Capabilities as C;
    [
        C::PACING,
        C::RTT,
        C::DELIVERY_RATE,
        C::ECN,
        C::TIMERS,
        C::RECOVERY,
        C::ONE_WAY_DELAY,
    ]
    .into_iter()
    .fold(C::CWND, Capabilities::union)
}

/// Requests of the flow to its transport.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ScriptCommand {
    pub cwnd: Option<u64>,
    pub ssthresh: Option<u64>,
    pub report: Option<datapath::Urgency>,
}

/// One flow. Its transport applies every request and performs no loss recovery.
pub(crate) struct Script {
    agent: Agent,
    programs: ProgramTable<8>,
    flow: datapath::Flow<32>,
    pub transport: Transport,
    /// Default signals of an ACK.
    pub usual: Signals,
    /// Values that the agent set since the last ACK: program variables by number, others by name.
    pub orders: BTreeMap<String, u64>,
    pub reports: usize,
    /// A program exceeds the capabilities of the datapath.
    refused: bool,
}

impl Script {
    /// Creates a flow with a window of ten segments of [`MSS`].
    pub fn new(algorithm: &str, parameters: &str) -> Script {
        Script::on(everything(), algorithm, parameters)
            .expect("a datapath that can do everything suffices")
    }

    /// Creates a flow on a datapath with these capabilities; `None` if the algorithm rejects them.
    pub fn on(capabilities: Capabilities, algorithm: &str, parameters: &str) -> Option<Script> {
        let parameters: Parameters = parameters.parse().expect("well-formed");
        let made = Registry::builtin().by_name(algorithm, &parameters);
        Script::with(capabilities, made.unwrap_or_else(|why| panic!("{why}")))
    }

    /// Creates a flow of this algorithm on a datapath with all capabilities.
    pub fn of(algorithm: Box<dyn DynAlgorithm>) -> Option<Script> {
        Script::with(everything(), algorithm)
    }

    fn with(capabilities: Capabilities, algorithm: Box<dyn DynAlgorithm>) -> Option<Script> {
        let mut agent = Agent::new(AgentOptions::default());
        agent.add_boxed(algorithm).expect("it compiles");
        let limits = OperatorLimits {
            max_cwnd: 1 << 40,
            agent_timeout: Duration::from_secs(1 << 30),
            ..OperatorLimits::default()
        };
        let info = DatapathInfo {
            id: 0,
            kind: "script".to_owned(),
            capabilities,
            max_programs: 8,
            max_instrs: datapath::INSTRS_MAX as u32,
            max_vars: 32,
            agent_timeout: Some(limits.agent_timeout),
        };
        let now = Time::from_micros(1_000_000);
        let mut script = Script {
            agent,
            programs: ProgramTable::new(limits, capabilities),
            flow: datapath::Flow::new(now, 10 * MSS),
            transport: Transport {
                cwnd: 10 * MSS,
                rate: 0,
                ssthresh: u64::MAX,
                now,
            },
            usual: Signals {
                bytes_acked: MSS,
                packets_acked: 1,
                rtt_sample_us: 20_000,
                srtt_us: 20_000,
                min_rtt_us: 20_000,
                bytes_in_flight: 10 * MSS,
                mss: MSS,
                cwnd_limited: 1,
                ..Signals::default()
            },
            orders: BTreeMap::new(),
            reports: 0,
            refused: false,
        };
        script
            .agent
            .handle(now, DATAPATH_ID, WireEvent::Ready { datapath: info });
        script.obey();
        if script.refused {
            return None;
        }
        let info = FlowInfo {
            mss: Bytes::new(MSS),
            init_cwnd: Bytes::new(10 * MSS),
            cwnd: Bytes::new(10 * MSS),
            ..FlowInfo::default()
        };
        script.agent.handle(
            now,
            DATAPATH_ID,
            WireEvent::FlowOpened {
                flow: FLOW_ID,
                info,
            },
        );
        script.obey();
        script.flow.program_uid().map(|_| script)
    }

    fn obey(&mut self) {
        let now = self.transport.now;
        while let Some((_, command)) = self.agent.poll() {
            let (command, updates) = match &command {
                WireCommand::Offer(_) => continue,
                WireCommand::Install { program, .. } => {
                    let why = self.programs.install(program.as_ref().clone()).err();
                    self.refused |= why.is_some();
                    continue;
                }
                WireCommand::Heartbeat { .. } => {
                    self.programs.record_heartbeat(now);
                    continue;
                }
                WireCommand::SetProgram { uid, updates, .. } => {
                    let (uid, updates) = (*uid, updates.as_slice());
                    (datapath::Command::SetProgram { uid, updates }, updates)
                }
                WireCommand::Update { updates, .. } => (
                    datapath::Command::Update(updates.as_slice()),
                    updates.as_slice(),
                ),
                WireCommand::Release { .. } => (datapath::Command::Release, &[][..]),
            };
            for update in updates {
                let target = match update.target {
                    CommandTarget::Var(index) => format!("var{index}"),
                    other => format!("{other:?}").to_lowercase(),
                };
                self.orders.insert(target, update.value);
            }
            self.flow
                .apply(now, &command, &self.programs)
                .expect("accepted");
        }
    }

    /// Runs the program on one ACK with these signals, `after` the last run.
    pub fn call(&mut self, after: Duration, signals: &Signals) -> ScriptCommand {
        self.transport.now += after;
        let outcome = self.flow.on_ack(&self.transport, signals, &self.programs);
        self.carry(outcome)
    }

    /// Runs the program by timer, `after` the last run.
    #[cfg(test)]
    pub fn timer(&mut self, after: Duration) -> ScriptCommand {
        self.transport.now += after;
        let outcome = self.flow.on_deadline(&self.transport, &self.programs);
        self.carry(outcome)
    }

    /// Applies the requests of a run, sends its report to the agent and applies the agent's
    /// commands.
    fn carry(&mut self, outcome: Outcome) -> ScriptCommand {
        let now = self.transport.now;
        self.transport.cwnd = outcome.cwnd.unwrap_or(self.transport.cwnd);
        self.transport.rate = outcome.rate.unwrap_or(self.transport.rate);
        self.transport.ssthresh = outcome.ssthresh.unwrap_or(self.transport.ssthresh);
        self.orders.clear();
        if let Some(urgency) = outcome.report {
            self.reports += 1;
            let fields = self.flow.report(&self.programs).to_vec();
            let event = WireEvent::Report {
                flow: FLOW_ID,
                program: self.flow.program_uid().unwrap_or(0),
                urgent: urgency == datapath::Urgency::Urgent,
                fields: &fields,
            };
            self.agent.handle(now, DATAPATH_ID, event);
            self.flow.report_queued(&self.programs);
            self.obey();
        }
        ScriptCommand {
            cwnd: outcome.cwnd,
            ssthresh: outcome.ssthresh,
            report: outcome.report,
        }
    }

    /// Runs the program on one ACK with the default signals, modified by `change`.
    pub fn ack(&mut self, after: Duration, change: impl FnOnce(&mut Signals)) -> ScriptCommand {
        let mut signals = self.usual;
        change(&mut signals);
        self.call(after, &signals)
    }

    /// Runs one round trip of length `rtt`: one ACK per segment of the window, evenly spaced.
    pub fn round(&mut self, rtt: Duration) {
        let acks = (self.transport.cwnd / MSS).max(1);
        for _ in 0..acks {
            let cwnd = self.transport.cwnd;
            self.ack(rtt / acks, |s| {
                s.rtt_sample_us = rtt.as_micros();
                s.srtt_us = rtt.as_micros();
                s.bytes_in_flight = cwnd - MSS.min(cwnd);
            });
        }
    }

    /// Window in segments, rounded down.
    pub fn window(&self) -> u64 {
        self.transport.cwnd / MSS
    }

    /// Returns the current report variables.
    #[cfg(test)]
    pub fn report(&self) -> Vec<u64> {
        self.flow.report(&self.programs).to_vec()
    }

    pub fn faults(&self) -> u32 {
        self.flow.faults()
    }

    /// Returns the algorithm's gauge of this name.
    pub fn gauge(&self, name: &str) -> Option<f64> {
        let id = FlowId {
            datapath: DATAPATH_ID,
            flow: FLOW_ID,
        };
        let said = self
            .agent
            .gauges(id)
            .iter()
            .find(|(known, _)| *known == name);
        said.map(|(_, value)| *value)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Upper bound of an agent's rate, bytes/s: eight times a petabit link.
    const RATE_BYTES_PER_SECOND_MAX: u64 = 1 << 50;

    /// Small numbers, large ones, and limits.
    fn any_number() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..3_000u64,
            0..10_000_000u64,
            0..50_000_000u64,
            any::<u64>(),
            Just(0),
            Just(u64::MAX)
        ]
    }

    pub(crate) fn any_signals() -> impl Strategy<Value = Signals> {
        let numbers = prop::array::uniform20(any_number());
        let truths = prop::array::uniform6(0..2u64);
        (numbers, truths).prop_map(|(n, t)| Signals {
            bytes_acked: n[0],
            bytes_misordered: n[1],
            ecn_bytes: n[2],
            ecn_packets: n[3],
            lost_pkts_sample: n[4],
            packets_acked: n[5],
            bytes_in_flight: n[6],
            rtt_sample_us: n[7],
            srtt_us: n[8],
            min_rtt_us: n[9],
            mss: n[10],
            rate_incoming: n[11],
            rate_outgoing: n[12],
            packets_misordered: n[13],
            bytes_pending: n[14],
            owd_ns: n[15],
            rtt_ns: n[16],
            min_owd_ns: n[17],
            min_rtt_ns: n[18],
            queue_delay_ns: n[19],
            queue_delay_valid: t[5],
            was_timeout: t[0],
            in_recovery: t[1],
            undone: t[2],
            cwnd_limited: t[3],
            app_limited: t[4],
            ..Signals::default()
        })
    }

    /// Every algorithm, and variants with a different law or program.
    fn forms() -> Vec<(String, &'static str)> {
        let others = [
            ("bundler", "law=basic,pulse=always"),
            ("bundler", "start=passing,election=off,target=20ms"),
            ("constant", "rate=80mbit"),
            ("copa", "mode=default,delta=0.01"),
            ("cubic", "slow_start=agent"),
            ("cubic", "split=agent"),
            ("dx", "delay=rtt"),
            ("dx", "samples=freshest,rate=10gbit"),
            ("dx", "window=floor,headroom=2p"),
            ("group", "rate=80mbit"),
            ("group", "as=3,rate=1gbit,report=rtt"),
            ("nimbus", "delay=copa"),
            ("nimbus", "competitive=off"),
            ("reno", "split=agent"),
            ("timely", "law=patched"),
            ("vivace", "utility=loss"),
        ];
        let registry = Registry::builtin();
        let all = registry.names().map(|name| (name, ""));
        all.chain(others)
            .map(|(name, form)| (name.to_owned(), form))
            .collect()
    }

    #[test]
    fn programs_fit_every_datapath_of_ours() {
        for (algorithm, parameters) in forms() {
            let made =
                Registry::builtin().by_name(&algorithm, &parameters.parse().expect("well-formed"));
            let mut agent = Agent::new(AgentOptions::default());
            agent
                .add_boxed(made.expect("built in"))
                .expect("it compiles");
            for program in agent
                .hosted_algorithms()
                .flat_map(|hosted| &hosted.programs)
            {
                let cost = program.compiled.cost();
                println!("{algorithm} {}: {cost:?}", program.name);
                assert!(cost.vars <= 32, "{algorithm}: {cost:?}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// No signals cause a panic, and windows, rates and commands stay within bounds.
        #[test]
        fn no_signals_do_harm(
            calls in prop::collection::vec((0..100_000_000u64, any_signals()), 1..60),
        ) {
            for (algorithm, parameters) in forms() {
                let mut script = Script::new(&algorithm, parameters);
                for (after, signals) in &calls {
                    script.call(Duration::from_micros(*after), signals);
                    let cwnd = script.transport.cwnd;
                    prop_assert!((1220..=1 << 40).contains(&cwnd), "{algorithm}: {cwnd}");
                    let ordered = |what| script.orders.get(what).copied();
                    prop_assert!(ordered("cwnd") != Some(0), "{algorithm}");
                    prop_assert!(ordered("rate") != Some(0), "{algorithm}");
                    // BBR may set any rate before it has a sample of the path; the flow is then not
                    // paced.
                    let most = if algorithm.starts_with("bbr") {
                        u64::MAX
                    } else {
                        RATE_BYTES_PER_SECOND_MAX
                    };
                    prop_assert!(
                        ordered("rate").is_none_or(|rate| rate <= most),
                        "{algorithm}"
                    );
                    // Vivace's program stores the rate in a variable.
                    prop_assert!(
                        algorithm != "vivace" || script.transport.rate <= RATE_BYTES_PER_SECOND_MAX,
                        "{algorithm}"
                    );
                }
            }
        }
    }
}
