//! Windows per round trip, in segments, in a round-based model: each round acknowledges one window,
//! two segments at a time, evenly spaced over the RTT. Events are scripted; datapath and agent are
//! the real ones.

use ccplane_agent::datapath::{Datapath, DatapathCore, InlineChannel};
use ccplane_agent::{Agent, AgentOptions, FlowInfo, ProgramTables};
use ccplane_algorithms::{Parameters, Registry};
use ccplane_datapath::{Capabilities, OperatorLimits, Outcome, Signals, SteeredFlow, Transport};
use ccplane_units::{Bytes, Duration, Time};

const MSS: u64 = 1448;
const FLOW: u64 = 7;

struct Rounds {
    datapath: Datapath<InlineChannel>,
    transport: Transport,
    /// Base RTT, and the window that fills the path; a larger window lengthens the RTT.
    base: Duration,
    bdp: u64,
    srtt_us: u64,
    /// The datapath performs loss recovery and declares it.
    repairs: bool,
    in_recovery: bool,
    /// The host paces the flow.
    paced: bool,
    windows: Vec<u64>,
}

impl Rounds {
    fn new(algorithm: &str, parameters: &str, bdp: u64) -> Rounds {
        Rounds::on(Capabilities::RECOVERY, algorithm, parameters, bdp)
    }

    fn on(repairs: Capabilities, algorithm: &str, parameters: &str, bdp: u64) -> Rounds {
        let all = [
            Capabilities::PACING,
            Capabilities::RTT,
            Capabilities::TIMERS,
            repairs,
        ];
        let capabilities = all.iter().fold(Capabilities::CWND, |all, c| all.union(*c));
        let parameters: Parameters = parameters.parse().expect("well-formed");
        let mut agent = Agent::new(AgentOptions::default());
        agent
            .add_boxed(
                Registry::builtin()
                    .by_name(algorithm, &parameters)
                    .expect("built in"),
            )
            .expect("compiles");
        let now = Time::from_micros(1_000);
        let tables = ProgramTables::new(OperatorLimits::default(), capabilities);
        let mut rounds = Rounds {
            datapath: Datapath::new(
                now,
                DatapathCore::new(1, "rounds", tables, InlineChannel::new(agent)),
            ),
            transport: Transport {
                cwnd: 10 * MSS,
                rate: 0,
                ssthresh: u64::MAX,
                now,
            },
            base: Duration::from_millis(20),
            bdp,
            srtt_us: 0,
            repairs: repairs == Capabilities::RECOVERY,
            in_recovery: false,
            paced: false,
            windows: Vec::new(),
        };
        let info = FlowInfo {
            mss: Bytes::new(MSS),
            init_cwnd: Bytes::new(10 * MSS),
            ..FlowInfo::default()
        };
        rounds.datapath.open(now, FLOW, info);
        rounds.turn();
        rounds
    }

    /// Delivers reports to the agent and commands to the datapath, which rejects none.
    fn turn(&mut self) {
        self.datapath.poll(self.transport.now);
        let agent = &self.datapath.channel().agent;
        let refusals = |name| agent.stats(name).map_or(0, |stats| stats.refusals);
        assert!(
            agent
                .hosted_algorithms()
                .all(|hosted| refusals(&hosted.name) == 0)
        );
    }

    fn call(&mut self, signals: Signals) -> Outcome {
        self.turn();
        let mut flow = self.datapath.flow(FLOW).expect("the flow is open");
        let outcome = flow.on_ack(&self.transport, &signals);
        assert!(!outcome.fallback, "the agent is alive");
        self.transport.ssthresh = outcome.ssthresh.unwrap_or(self.transport.ssthresh);
        // Whole segments, as in Linux.
        self.transport.cwnd = outcome.cwnd.unwrap_or(self.transport.cwnd) / MSS * MSS;
        self.turn();
        outcome
    }

    fn signals(&self) -> Signals {
        Signals {
            bytes_in_flight: self.transport.cwnd,
            packets_in_flight: self.transport.cwnd / MSS,
            srtt_us: self.srtt_us,
            min_rtt_us: self.base.as_micros(),
            mss: MSS,
            in_recovery: u64::from(self.in_recovery),
            cwnd_limited: 1,
            paced: u64::from(self.paced),
            ..Signals::default()
        }
    }

    fn rtt(&self) -> Duration {
        let queue = (self.transport.cwnd / MSS).saturating_sub(self.bdp);
        self.base + self.base * queue / self.bdp
    }

    /// Runs a round in which every segment arrives. `limited`: the flow is cwnd-limited instead of
    /// application-limited.
    fn round(&mut self, limited: bool) {
        let (rtt, packets) = (self.rtt(), self.transport.cwnd / MSS);
        let acks = packets.div_ceil(2);
        for ack in 0..acks {
            let segments = if ack + 1 == acks && packets % 2 == 1 {
                1
            } else {
                2
            };
            self.transport.now += rtt / acks;
            self.srtt_us = if self.srtt_us == 0 {
                rtt.as_micros()
            } else {
                (7 * self.srtt_us + rtt.as_micros()) / 8
            };
            let signals = Signals {
                bytes_acked: segments * MSS,
                packets_acked: segments,
                rtt_sample_us: rtt.as_micros(),
                cwnd_limited: u64::from(limited),
                bytes_in_flight: if limited {
                    self.transport.cwnd
                } else {
                    self.transport.cwnd / 4
                },
                ..self.signals()
            };
            let before = self.transport.cwnd;
            let _ = self.call(signals);
            assert!(
                limited || self.transport.cwnd == before,
                "grew although the application limits sending"
            );
        }
        self.windows.push(self.transport.cwnd / MSS);
    }

    fn rounds(&mut self, n: usize) -> &mut Rounds {
        (0..n).for_each(|_| self.round(true));
        self
    }

    /// Loses a segment: a round of recovery, at whose end the transport's window equals ssthresh.
    fn loss(&mut self) -> &mut Rounds {
        if !self.repairs {
            return self.loss_that_the_program_repairs();
        }
        self.in_recovery = true;
        let lost = Signals {
            lost_pkts_sample: 1,
            bytes_misordered: MSS,
            packets_misordered: 1,
            ..self.signals()
        };
        let outcome = self.call(lost);
        assert!(
            outcome.ssthresh.is_some() && outcome.cwnd.is_none(),
            "ssthresh at once, the window is the transport's"
        );
        self.transport.now += self.rtt() / 2;
        let again = Signals {
            lost_pkts_sample: 3,
            ..self.signals()
        };
        assert_eq!(
            self.call(again).ssthresh,
            None,
            "one reduction in a recovery"
        );
        self.transport.now += self.rtt() / 2;
        self.transport.cwnd = self.transport.ssthresh / MSS * MSS;
        self.in_recovery = false;
        let _ = self.call(Signals {
            bytes_acked: 10 * MSS,
            packets_acked: 10,
            ..self.signals()
        });
        self.windows.push(self.transport.cwnd / MSS);
        self
    }

    /// Loses a segment on a datapath without loss recovery: the window is reduced at once, and only
    /// once.
    fn loss_that_the_program_repairs(&mut self) -> &mut Rounds {
        let before = self.transport.cwnd;
        let lost = Signals {
            lost_pkts_sample: 1,
            ..self.signals()
        };
        let _ = self.call(lost);
        let after = self.transport.cwnd;
        assert!(after < before);
        let again = Signals {
            lost_pkts_sample: 3,
            bytes_acked: before / 2,
            ..self.signals()
        };
        let _ = self.call(again);
        assert_eq!(self.transport.cwnd, after, "one reduction in a recovery");
        self.transport.now += self.rtt();
        let _ = self.call(Signals {
            bytes_acked: before / 2 + MSS,
            ..self.signals()
        });
        self.windows.push(self.transport.cwnd / MSS);
        self
    }

    /// Runs a retransmission timeout: the transport goes to one segment and recovers for `rounds`
    /// rounds.
    fn timeout(&mut self, rounds: usize) -> &mut Rounds {
        self.in_recovery = self.repairs;
        self.transport.now += Duration::from_millis(200);
        self.transport.cwnd = MSS;
        let _ = self.call(Signals {
            was_timeout: 1,
            ..self.signals()
        });
        self.rounds(rounds);
        self.in_recovery = false;
        self
    }

    /// Undoes the last reduction as spurious: the transport restores window and ssthresh.
    fn undo(&mut self, cwnd: u64, ssthresh: u64) -> &mut Rounds {
        self.in_recovery = false;
        (self.transport.cwnd, self.transport.ssthresh) = (cwnd * MSS, ssthresh * MSS);
        let _ = self.call(Signals {
            undone: 1,
            ..self.signals()
        });
        self
    }

    fn take(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.windows)
    }

    fn ssthresh(&self) -> u64 {
        self.transport.ssthresh / MSS
    }
}

/// Returns the windows of a scripted flow: slow start, loss, growth, timeout, undo, and an
/// application-limited period.
fn life(repairs: Capabilities, algorithm: &str, parameters: &str) -> String {
    let mut rounds = Rounds::on(repairs, algorithm, parameters, 200);
    let mut lines = vec![format!("slow start        {:?}", rounds.rounds(5).take())];
    lines.push(format!(
        "loss, growth      {:?}",
        rounds.loss().rounds(40).take()
    ));
    lines.push(format!(
        "early loss        {:?}",
        rounds.loss().rounds(40).take()
    ));
    if rounds.repairs {
        let (cwnd, ssthresh) = (rounds.transport.cwnd / MSS, rounds.ssthresh());
        let windows = rounds.loss().undo(cwnd, ssthresh).rounds(40).take();
        lines.push(format!("spurious loss     {windows:?}"));
    }
    lines.push(format!(
        "timeout           {:?}",
        rounds.timeout(8).rounds(30).take()
    ));
    (0..20).for_each(|_| rounds.round(false));
    lines.push(format!("limited, then not {:?}", rounds.rounds(20).take()));
    lines.join("\n")
}

macro_rules! lives {
    ($($test:ident: $repairs:expr, $algorithm:literal, $parameters:literal;)*) => {$(
        #[test]
        fn $test() {
            insta::assert_snapshot!(life($repairs, $algorithm, $parameters));
        }
    )*};
}

lives! {
    reno: Capabilities::RECOVERY, "reno", "";
    reno_by_ack: Capabilities::RECOVERY, "reno", "report=ack";
    reno_by_interval: Capabilities::RECOVERY, "reno", "report=10ms";
    reno_slow_start_in_the_agent: Capabilities::RECOVERY, "reno", "slow_start=agent";
    reno_portable: Capabilities::ECN, "reno", "";
    cubic: Capabilities::RECOVERY, "cubic", "";
    cubic_by_ack: Capabilities::RECOVERY, "cubic", "report=ack";
    cubic_without_hystart: Capabilities::RECOVERY, "cubic", "hystart=off";
    cubic_with_hystart_plus_plus: Capabilities::RECOVERY, "cubic", "hystart=rfc9406";
    cubic_portable: Capabilities::ECN, "cubic", "";
    dx_by_rtt: Capabilities::RECOVERY, "dx", "rate=120mbit";
}

#[test]
fn reno_doubles_then_adds_one_then_halves_once() {
    let mut rounds = Rounds::new("reno", "", 1_000);
    assert_eq!(rounds.rounds(4).take(), [20, 40, 80, 160]);
    assert_eq!(rounds.loss().take(), [80]);
    let windows = rounds.rounds(20).take();
    let grown = windows[19] - 80;
    assert!((19..=21).contains(&grown), "a segment an RTT: {windows:?}");
}

/// Slide 22 has one packet per RTT; the extended rules decide every two RTTs.
#[test]
fn dx_adds_a_packet_per_rtt_by_the_papers_rules() {
    for (rules, expected) in [("paper", 18..=20), ("extended", 8..=10)] {
        let mut rounds = Rounds::new("dx", &format!("rate=10gbit,rules={rules}"), 1_000);
        let before = rounds.rounds(4).loss().take();
        let windows = rounds.rounds(20).take();
        let grown = windows[19] - before.last().expect("a window");
        // A round after the loss is recovery.
        assert!(expected.contains(&grown), "{rules}: {windows:?}");
    }
}

#[test]
fn cubic_is_back_at_the_old_window_after_k() {
    let mut rounds = Rounds::new("cubic", "hystart=off", 10_000);
    rounds.base = Duration::from_millis(100);
    rounds.rounds(5).loss().take();
    assert_eq!(rounds.ssthresh(), 224, "0.7 of 320");
    // RFC 9438, equation 2: K = cbrt((320 − 224) / 0.4) = 6.2 s = 62 RTTs, when Reno would be at
    // 224 + 62 · 0.53.
    let windows = rounds.rounds(80).take();
    assert_eq!(windows[62], 320, "{windows:?}");
    assert!(windows[20] > 224 + 2 * 20, "fast at first: {windows:?}");
    assert!(windows[70] < 323, "a plateau: {windows:?}");
}

#[test]
fn cubic_keeps_reno_s_pace_where_that_is_faster() {
    // RFC 9438, 4.3: 3 · (1 − 0.7) / (1 + 0.7) = 0.53 per round up to the old window, 24 more; then
    // the same, or 1.
    for (friendly, expected) in [("linux", 32), ("rfc9438", 24 + (60 - 45))] {
        let mut rounds = Rounds::new("cubic", &format!("hystart=off,friendly={friendly}"), 10_000);
        rounds.base = Duration::from_millis(5);
        rounds.rounds(3).loss().take();
        let start = rounds.ssthresh();
        let grown = rounds.rounds(60).take()[59] - start;
        assert!(
            grown.abs_diff(expected) <= 3,
            "{friendly}: {grown} against {expected}"
        );
    }
}

#[test]
fn fast_convergence_remembers_less_after_an_early_loss() {
    let back_after_early_loss = |parameters: &str| {
        let mut rounds = Rounds::new("cubic", parameters, 10_000);
        rounds.base = Duration::from_millis(100);
        rounds.rounds(5).loss().rounds(5).loss().take();
        rounds.rounds(60).take()[59]
    };
    let (with, without) = (
        back_after_early_loss("hystart=off"),
        back_after_early_loss("hystart=off,fast_convergence=false"),
    );
    assert!(with + 20 < without, "{with} {without}");
}

#[test]
fn hystart_leaves_slow_start_when_the_delay_rises() {
    for (parameters, most) in [("hystart=linux", 220), ("hystart=rfc9406", 450)] {
        let mut rounds = Rounds::new("cubic", parameters, 100);
        // ACKs are too far apart to form a train.
        rounds.base = Duration::from_millis(400);
        rounds.rounds(30).take();
        assert!(
            (100..=most).contains(&rounds.ssthresh()),
            "{parameters}: {}",
            rounds.ssthresh()
        );
    }
    let mut rounds = Rounds::new("cubic", "hystart=off", 100);
    rounds.rounds(8);
    assert_eq!(rounds.transport.ssthresh, u64::MAX);
}

#[test]
fn hystart_ends_slow_start_after_a_train_of_half_the_minimum_rtt_or_a_whole_one_if_paced() {
    for algorithm in ["cubic", "group"] {
        let left = |paced: bool| {
            let mut rounds = Rounds::new(algorithm, "", 10_000);
            rounds.paced = paced;
            rounds.rounds(6);
            rounds.transport.ssthresh / MSS
        };
        // From 17 segments on, in ACKs of two per 2.2 ms or less: the train of the second round
        // exceeds 10 ms.
        assert!(
            (16..=40).contains(&left(false)),
            "{algorithm}: {}",
            left(false)
        );
        // A round's ACKs span at most one round trip.
        assert!(left(true) > 10_000, "{algorithm}: {}", left(true));
    }
}

#[test]
fn an_undo_restores_the_plateau() {
    let windows = |spurious: bool| {
        let mut rounds = Rounds::new("cubic", "hystart=off", 10_000);
        rounds.base = Duration::from_millis(100);
        rounds.rounds(5).loss().rounds(20);
        if spurious {
            let (cwnd, ssthresh) = (rounds.transport.cwnd / MSS, rounds.ssthresh());
            rounds.loss().undo(cwnd, ssthresh);
        }
        rounds.rounds(60).take().last().copied().expect("60 rounds")
    };
    assert!(
        windows(true).abs_diff(windows(false)) <= 6,
        "{} {}",
        windows(true),
        windows(false)
    );
}
