//! A group behind an agent, with members on several datapaths that the tests simulate.

use std::collections::BTreeMap;

use ccplane_agent::{Agent, AgentOptions, DatapathId, DatapathInfo, FlowId, FlowInfo, FlowStats};
use ccplane_datapath::{CommandTarget, INFINITY};
use ccplane_units::{Bytes, Duration, Time};
use ccplane_wire::{WireCommand, WireEvent};
use proptest::prelude::*;

use crate::script::everything;
use crate::{Parameters, Registry};

const MSS: u64 = 1_000;
const RTT: Duration = Duration::from_millis(20);
/// Pacing rate of an idle member, two segments per round trip, bytes/s, and of one without an RTT
/// sample.
const RESTART_RATE: u64 = 2 * MSS * 50;
const UNMEASURED_RTT_RATE: u64 = 2 * MSS * 10;

/// Values last sent to a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LastOrder {
    wish: u64,
    stamp: u64,
    seen: u64,
    pace: u64,
    cwnd: u64,
}

/// Report of a member, in segments.
#[derive(Clone, Copy, Debug)]
struct MemberLog {
    segments: u64,
    counted: u64,
    busy: u64,
    lost: u64,
    flight: u64,
    cwnd: u64,
    cuts: u64,
    epoch: u64,
    slow: bool,
    timeouts: u64,
    undos: u64,
}

/// Report of a member that uses a window of this many segments.
fn busy(cwnd: u64) -> MemberLog {
    MemberLog {
        segments: cwnd,
        counted: cwnd,
        busy: cwnd,
        lost: 0,
        flight: cwnd,
        cwnd,
        cuts: 0,
        epoch: 0,
        slow: false,
        timeouts: 0,
        undos: 0,
    }
}

struct Hosts {
    agent: Agent,
    now: Time,
    told: BTreeMap<FlowId, LastOrder>,
    variables: Vec<String>,
    program: u32,
}

fn id(host: u32, flow: u64) -> FlowId {
    FlowId {
        datapath: DatapathId(host),
        flow,
    }
}

impl Hosts {
    /// Creates an agent with this algorithm and two hosts, 10.1.0.1 and 10.2.0.1.
    fn new(parameters: &str) -> Hosts {
        let mut agent = Agent::new(AgentOptions::default());
        let parameters: Parameters = parameters.parse().expect("well-formed");
        let made = Registry::builtin().by_name("group", &parameters);
        agent
            .add_boxed(made.unwrap_or_else(|why| panic!("{why}")))
            .expect("it compiles");
        let hosted = agent.hosted_algorithms().next().expect("added").clone();
        let program = &hosted.programs[0];
        let names = ["wish", "stamp", "seen", "pace"];
        let control = |name: &str| {
            format!(
                "{:?}",
                CommandTarget::Var(program.control(name).expect("its name"))
            )
        };
        let mut hosts = Hosts {
            agent,
            now: Time::from_micros(1_000_000),
            told: BTreeMap::new(),
            variables: names.map(control).into(),
            program: program.uid,
        };
        for host in 1..=2 {
            let datapath = DatapathInfo {
                id: host,
                kind: "test".to_owned(),
                capabilities: everything(),
                max_programs: 8,
                max_instrs: 256,
                max_vars: 32,
                agent_timeout: None,
            };
            hosts
                .agent
                .handle(hosts.now, DatapathId(host), WireEvent::Ready { datapath });
        }
        hosts.obey();
        hosts
    }

    fn obey(&mut self) {
        while let Some((datapath, command)) = self.agent.poll() {
            let (flow, updates) = match &command {
                WireCommand::SetProgram { flow, updates, .. }
                | WireCommand::Update { flow, updates } => (*flow, updates),
                _ => continue,
            };
            let told = self.told.entry(FlowId { datapath, flow }).or_default();
            for update in updates.as_slice() {
                let name = format!("{:?}", update.target);
                match self.variables.iter().position(|known| *known == name) {
                    Some(0) => told.wish = update.value,
                    Some(1) => told.stamp = update.value,
                    Some(2) => told.seen = update.value,
                    Some(3) => told.pace = update.value,
                    _ if update.target == CommandTarget::Cwnd => told.cwnd = update.value,
                    _ => {}
                }
            }
        }
    }

    fn open(&mut self, host: u32, flow: u64) {
        let info = FlowInfo {
            mss: Bytes::new(MSS),
            init_cwnd: Bytes::new(10 * MSS),
            cwnd: Bytes::new(10 * MSS),
            local: ([10, host as u8, 0, 1], 1_000 + flow as u16).into(),
            ..FlowInfo::default()
        };
        self.open_as(host, flow, info);
    }

    fn open_as(&mut self, host: u32, flow: u64, info: FlowInfo) {
        self.agent.handle(
            self.now,
            DatapathId(host),
            WireEvent::FlowOpened { flow, info },
        );
        self.obey();
    }

    fn close(&mut self, host: u32, flow: u64) {
        let stats = FlowStats::default();
        self.agent.handle(
            self.now,
            DatapathId(host),
            WireEvent::FlowClosed { flow, stats },
        );
        self.told.remove(&id(host, flow));
        self.obey();
    }

    fn say(&mut self, host: u32, flow: u64, said: MemberLog) {
        let bytes = |segments: u64| segments * MSS;
        let fields = [
            bytes(said.segments),
            bytes(said.counted),
            bytes(said.busy),
            said.lost,
            0,
            bytes(said.flight),
            said.timeouts,
            said.undos,
            RTT.as_micros(),
            bytes(said.cwnd),
            said.cuts,
            said.epoch,
            u64::from(said.slow),
        ];
        let report = WireEvent::Report {
            flow,
            program: self.program,
            urgent: said.lost > 0,
            fields: &fields,
        };
        self.agent.handle(self.now, DatapathId(host), report);
        self.obey();
    }

    fn wait(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(due) = self.agent.next_deadline().filter(|due| *due <= until) {
            self.now = due;
            self.agent.on_deadline(due);
            self.obey();
        }
        self.now = until;
    }

    /// Runs a round trip in which these members use their parts.
    fn round(&mut self, members: &[(u32, u64)]) {
        self.wait(RTT);
        for (host, flow) in members {
            let told = self.told[&id(*host, *flow)];
            let used = if told.pace > 0 {
                told.pace / 50 / MSS
            } else {
                told.wish / MSS
            };
            self.say(
                *host,
                *flow,
                MemberLog {
                    cuts: told.seen,
                    epoch: told.stamp,
                    ..busy(used.min(10_000))
                },
            );
        }
    }

    fn wishes(&self) -> Vec<u64> {
        self.told.values().map(|told| told.wish / MSS).collect()
    }

    fn paces(&self) -> Vec<u64> {
        self.told.values().map(|told| told.pace).collect()
    }
}

const FOUR_FLOWS: [(u32, u64); 4] = [(1, 1), (1, 2), (2, 1), (2, 2)];

/// Returns four members on two hosts that have left slow start with 40 segments each.
fn four(parameters: &str) -> Hosts {
    let mut hosts = Hosts::new(parameters);
    for (host, flow) in FOUR_FLOWS {
        hosts.open(host, flow);
    }
    hosts.wait(RTT);
    for (host, flow) in FOUR_FLOWS {
        hosts.say(
            host,
            flow,
            MemberLog {
                slow: true,
                ..busy(40)
            },
        );
    }
    hosts.wait(RTT);
    hosts.say(1, 1, busy(40));
    hosts
}

#[test]
fn groups_in_slow_start_have_no_shares_and_newcomers_start_smaller() {
    let mut hosts = Hosts::new("");
    for (host, flow) in FOUR_FLOWS {
        hosts.open(host, flow);
    }
    assert!(hosts.told.values().all(|told| told.wish == INFINITY));
    let windows: Vec<u64> = hosts.told.values().map(|told| told.cwnd).collect();
    assert_eq!(
        windows,
        [0, 5_000, 5_000, 5_000],
        "0 is as it comes: ten segments"
    );
}

#[test]
fn one_member_ends_slow_start_for_all() {
    let hosts = four("");
    assert_eq!(hosts.wishes(), [40; 4]);
}

#[test]
fn half_a_segment_of_each_member_waits_for_its_acknowledgement_and_of_one_flow_one_half() {
    let mut hosts = four("");
    assert_eq!(hosts.wishes().iter().sum::<u64>(), 160, "what they had");
    for (host, flow) in &FOUR_FLOWS[1..] {
        hosts.close(*host, *flow);
    }
    hosts.say(
        1,
        1,
        MemberLog {
            counted: 0,
            ..busy(40)
        },
    );
    assert_eq!(
        hosts.wishes(),
        [158],
        "160 less three halves, in whole segments"
    );
    // Four members that stand for two flows have two halves too many.
    let mut hosts = four("as=2");
    for (host, flow) in &FOUR_FLOWS[1..] {
        hosts.close(*host, *flow);
    }
    hosts.say(
        1,
        1,
        MemberLog {
            counted: 0,
            ..busy(40)
        },
    );
    assert_eq!(hosts.wishes(), [159]);
}

#[test]
fn a_loss_reduces_all_members_once_per_round_trip() {
    let mut hosts = four("");
    let lost = MemberLog {
        counted: 0,
        lost: 3,
        cuts: 1,
        ..busy(40)
    };
    hosts.say(1, 1, lost);
    assert_eq!(hosts.wishes(), [28; 4]);
    assert_eq!(
        (hosts.told[&id(1, 1)].stamp, hosts.told[&id(1, 1)].seen),
        (1, 1)
    );
    hosts.say(2, 2, lost);
    hosts.say(2, 1, lost);
    assert_eq!(hosts.wishes(), [28; 4]);
    assert_eq!(
        hosts.told[&id(2, 2)].seen,
        1,
        "it hears that its cut was seen"
    );
    // In the next round trip it counts again.
    hosts.say(1, 2, MemberLog { epoch: 1, ..lost });
    assert!(
        hosts.wishes().iter().sum::<u64>() <= 79,
        "{:?}",
        hosts.wishes()
    );
}

#[test]
fn a_spurious_reduction_returns() {
    let mut hosts = four("");
    let seen = MemberLog {
        counted: 0,
        cuts: 1,
        ..busy(40)
    };
    hosts.say(1, 1, MemberLog { lost: 1, ..seen });
    assert_eq!(hosts.wishes(), [28; 4]);
    hosts.say(1, 1, MemberLog { undos: 1, ..seen });
    assert_eq!(hosts.wishes(), [40; 4]);
}

#[test]
fn weights_divide() {
    let hosts = four("weights=10.1.0.0/16=3");
    assert_eq!(hosts.wishes(), [60, 60, 20, 20]);
    let hosts = four("rate=80mbit,weights=10.2.0.0/16=4");
    assert_eq!(hosts.paces(), [1_000_000, 1_000_000, 4_000_000, 4_000_000]);
}

#[test]
fn non_members_are_independent_flows() {
    let mut hosts = four("prefix=10.1.0.0/16");
    assert_eq!(
        hosts.told[&id(2, 1)].wish,
        INFINITY,
        "still in its own slow start"
    );
    hosts.say(2, 1, busy(50));
    // The group's window is 80 segments, the sum of its two members.
    assert_eq!(hosts.wishes(), [40, 40, 50, INFINITY / MSS]);
    let mut hosts = four("to=10.9.0.0/16");
    hosts.say(2, 2, busy(30));
    assert_eq!(hosts.told[&id(2, 2)].wish, 30 * MSS);
}

#[test]
fn silent_members_release_and_regain_their_share() {
    let mut hosts = four("");
    for _ in 0..8 {
        hosts.round(&FOUR_FLOWS[..3]);
    }
    let wishes = hosts.wishes();
    assert_eq!(wishes[3], 2, "{wishes:?}");
    assert!(wishes[..3].iter().all(|wish| *wish >= 52), "{wishes:?}");
    hosts.say(2, 2, busy(2));
    let wishes = hosts.wishes();
    assert!(
        wishes
            .iter()
            .all(|wish| (40..=wishes[3] + 1).contains(wish)),
        "{wishes:?}"
    );
}

#[test]
fn application_limited_members_leave_the_rest() {
    let mut hosts = four("");
    for _ in 0..4 {
        hosts.round(&FOUR_FLOWS[..3]);
        let little = MemberLog {
            counted: 0,
            busy: 0,
            ..busy(8)
        };
        hosts.say(2, 2, little);
    }
    let wishes = hosts.wishes();
    assert_eq!(
        wishes[3], 12,
        "a quarter more than it used, and two segments: {wishes:?}"
    );
    assert!(wishes[..3].iter().all(|wish| *wish >= 49), "{wishes:?}");
}

/// Returns two members of one key on host 1, and `crowd` members of another key on host 2. The
/// limit is 12.5 MB/s with `rate=100mbit`.
fn next_to_a_crowd(parameters: &str, crowd: u64) -> Hosts {
    let mut hosts = Hosts::new(parameters);
    hosts.agent.set_tenant(DatapathId(1), "good".into());
    hosts.agent.set_tenant(DatapathId(2), "bad".into());
    for flow in 0..2 {
        hosts.open(1, flow);
    }
    for flow in 0..crowd {
        hosts.open(2, flow);
    }
    hosts.wait(RTT);
    for flow in 0..crowd.min(3) {
        hosts.say(2, flow, busy(40));
    }
    for flow in 0..2 {
        hosts.say(1, flow, busy(40));
    }
    hosts.wait(RTT);
    hosts
}

#[test]
fn members_that_one_key_invents_leave_another_key_its_share() {
    let of_good = |hosts: &Hosts| {
        (0..2)
            .map(|flow| hosts.told[&id(1, flow)].pace)
            .sum::<u64>()
    };
    for (parameters, share) in [
        ("rate=100mbit", 6_250_000),
        ("rate=100mbit,weights=@good=3", 9_375_000),
        // Weights of the other key's flows apply only within that key.
        ("rate=100mbit,weights=10.2.0.0/16=1000", 6_250_000),
    ] {
        let few = of_good(&next_to_a_crowd(parameters, 1));
        let many = of_good(&next_to_a_crowd(parameters, 2_000));
        assert!(
            few >= share && many >= share && many <= share + share / 100,
            "{parameters}: {few} {many}"
        );
    }
    // A window is divided in the same way.
    let hosts = next_to_a_crowd("", 2_000);
    let window = |host: u32, flows: u64| {
        (0..flows)
            .map(|flow| hosts.told[&id(host, flow)].wish / MSS)
            .sum::<u64>()
    };
    let (good, bad) = (window(1, 2), window(2, 1_024));
    assert!(good.abs_diff(bad) <= 2, "{good} {bad}");
}

#[test]
fn a_key_has_1024_members_and_further_ones_get_the_least() {
    let hosts = next_to_a_crowd("rate=100mbit", 2_000);
    let paces: Vec<u64> = (0..2_000)
        .map(|flow| hosts.told[&id(2, flow)].pace)
        .collect();
    assert!(
        paces[1_024..].iter().all(|pace| *pace == 1_448),
        "{:?}",
        &paces[1_024..1_030]
    );
    assert!(
        paces[..1_024].iter().all(|pace| *pace > 1_448),
        "{:?}",
        &paces[..8]
    );
}

/// Counts the commands caused by divisions.
#[test]
fn many_reports_at_one_moment_are_answered_together() {
    let mut hosts = Hosts::new("rate=100mbit");
    for flow in 0..1_000 {
        hosts.open(1, flow);
    }
    hosts.wait(RTT);
    let before = hosts.agent.work_units();
    let fields = [
        40_000,
        40_000,
        40_000,
        0,
        0,
        40_000,
        0,
        0,
        RTT.as_micros(),
        40_000,
        0,
        0,
        0,
    ];
    for flow in 0..1_000 {
        let report = WireEvent::Report {
            flow,
            program: hosts.program,
            urgent: false,
            fields: &fields,
        };
        hosts.agent.handle(hosts.now, DatapathId(1), report);
    }
    assert_eq!(
        hosts.agent.next_deadline(),
        Some(hosts.now),
        "the rest is done at the end of this moment"
    );
    hosts.wait(Duration::ZERO);
    // A division may change every part: at worst five commands per member, plus one report each.
    let work = hosts.agent.work_units() - before;
    assert!(work <= 6_000, "{work}");
}

#[test]
fn members_come_and_go() {
    let mut hosts = four("");
    hosts.open(2, 3);
    assert_eq!(hosts.wishes(), [32; 5]);
    hosts.close(2, 3);
    hosts.close(1, 1);
    hosts.round(&FOUR_FLOWS[1..]);
    assert!(
        hosts.wishes().iter().all(|wish| *wish >= 53),
        "{:?}",
        hosts.wishes()
    );
    for (host, flow) in &FOUR_FLOWS[1..] {
        hosts.close(*host, *flow);
    }
    // The next group starts anew.
    hosts.open(1, 9);
    assert_eq!(hosts.told[&id(1, 9)].wish, INFINITY);
}

#[test]
fn a_host_that_is_gone_leaves_its_part() {
    let mut hosts = four("rate=80mbit");
    hosts.agent.on_disconnect(DatapathId(2));
    hosts.told.retain(|id, _| id.datapath == DatapathId(1));
    hosts.round(&FOUR_FLOWS[..2]);
    assert_eq!(hosts.paces(), [5_000_000; 2]);
}

#[test]
fn a_restarted_agent_continues_from_the_members_state() {
    let mut hosts = Hosts::new("");
    for (host, flow) in FOUR_FLOWS {
        let info = FlowInfo {
            mss: Bytes::new(MSS),
            cwnd: Bytes::new(25 * MSS),
            ssthresh: Bytes::new(25 * MSS),
            live: true,
            ..FlowInfo::default()
        };
        hosts.open_as(host, flow, info);
    }
    assert_eq!(hosts.wishes(), [25; 4]);
}

#[test]
fn a_limit_is_shared_and_what_a_member_cannot_use_goes_to_the_others() {
    let mut hosts = four("rate=80mbit");
    assert_eq!(hosts.paces(), [2_500_000; 4]);
    // One member achieves only a tenth of its part.
    for _ in 0..30 {
        hosts.round(&FOUR_FLOWS[..3]);
        hosts.say(2, 2, busy(5));
    }
    let paces = hosts.paces();
    assert!((300_000..400_000).contains(&paces[3]), "{paces:?}");
    assert!(paces[..3].iter().all(|pace| *pace > 3_100_000), "{paces:?}");
    // It becomes idle: the others get all of it, and it starts again with two segments per round
    // trip.
    for _ in 0..8 {
        hosts.round(&FOUR_FLOWS[..3]);
    }
    let paces = hosts.paces();
    assert_eq!(paces[3], RESTART_RATE, "{paces:?}");
    assert!(paces[..3].iter().all(|pace| *pace > 3_332_000), "{paces:?}");
    hosts.say(2, 2, busy(1));
    assert_eq!(hosts.paces(), [2_500_000; 4]);
    // The same if its first data is counted as application-limited: that data and the idle period
    // carry no information.
    for _ in 0..20 {
        hosts.round(&FOUR_FLOWS[..3]);
    }
    assert_eq!(hosts.paces()[3], RESTART_RATE);
    let little = MemberLog {
        counted: 0,
        busy: 0,
        ..busy(2)
    };
    hosts.say(2, 2, little);
    assert_eq!(hosts.paces(), [2_500_000; 4]);
    // A member with little traffic keeps the minimum pacing rate. With almost none, its host would
    // send nothing for seconds.
    for _ in 0..4 {
        hosts.round(&FOUR_FLOWS[..3]);
        hosts.say(
            2,
            2,
            MemberLog {
                segments: 1,
                ..little
            },
        );
    }
    assert!(hosts.paces()[3] >= RESTART_RATE, "{:?}", hosts.paces());
}

#[test]
fn excessive_demands_are_reported_and_capped() {
    // 8 kbit/s is 1,000 bytes/s: less than a segment per second for one member, let alone four.
    let hosts = four("rate=8kbit");
    assert_eq!(hosts.paces(), [250; 4]);
    let why = super::GroupFull::Rate {
        members: 4,
        limit: "8kbit".parse().expect("a rate"),
    };
    let said = why.to_string();
    assert!(
        said.starts_with("4 members of at least 1448 bytes/s") && said.contains("raise `rate`"),
        "{said}"
    );
    let why = super::GroupFull::Window {
        members: 100,
        window: 50.4,
    };
    let said = why.to_string();
    assert!(
        said.contains("window of 50 segments") && said.contains("number of members"),
        "{said}"
    );
}

#[test]
fn complaints_are_made_once() {
    let parameters: Parameters = "rate=80mbit,as=1".parse().expect("well-formed");
    let mut group = super::Group::read(&parameters).expect("valid parameters");
    let mut window = super::GroupWindow::new(1);
    window.begin(10.0);
    group.window = Some(window);
    group.owner(None);
    for flow in 0..20 {
        let member = super::Member::new(Time::ZERO, &FlowInfo::default(), true, 0, 1.0);
        group.members.insert(id(1, flow), member);
    }
    for _ in 0..2 {
        group.divide(Time::ZERO);
        assert_eq!(group.has_warned, [true, false]);
    }
}

#[test]
fn a_value_without_sense_is_told() {
    for (parameters, expected) in [
        ("rate=0mbit", "a rate of zero sends nothing"),
        ("as=0", "a whole number from 1 to 64"),
        ("as=65", "a whole number from 1 to 64"),
        ("as=half", "`auto`, `off` or a whole number"),
        ("prefix=10.1.0.0/40", "0 to 32"),
        ("to=somewhere", "is not a prefix"),
        ("tag=paris", "KEY=VALUE"),
        ("weights=10.1.0.0/16=0", "would starve"),
        ("weights=3", "members and their weights"),
    ] {
        let parameters = parameters.parse().expect("well-formed");
        match Registry::builtin().by_name("group", &parameters) {
            Ok(_) => panic!("{parameters:?} was accepted"),
            Err(why) => assert!(why.to_string().contains(expected), "{why}"),
        }
    }
}

#[test]
fn a_datapath_without_loss_recovery_is_refused() {
    use crate::script::Script;
    use ccplane_datapath::Capabilities as C;
    let least = C::CWND.union(C::RTT).union(C::RECOVERY);
    assert!(Script::on(least, "group", "").is_some());
    assert!(
        Script::on(least, "group", "rate=1gbit").is_none(),
        "no pacing"
    );
    assert!(Script::on(C::CWND.union(C::RTT), "group", "").is_none());
}

/// Event of a group.
#[derive(Clone, Copy, Debug)]
enum Step {
    Open(u32, u64),
    Close(u32, u64),
    Say(u32, u64, u64, bool),
    Lose(u32, u64),
    Wait(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    let who = || (1..=2u32, 0..6u64);
    prop_oneof![
        who().prop_map(|(host, flow)| Step::Open(host, flow)),
        who().prop_map(|(host, flow)| Step::Close(host, flow)),
        (who(), 0..200u64, any::<bool>())
            .prop_map(|((host, flow), n, busy)| Step::Say(host, flow, n, busy)),
        who().prop_map(|(host, flow)| Step::Lose(host, flow)),
        (0..200u64).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The parts keep to the limit, and every part is above zero.
    #[test]
    fn the_sum_of_members_stays_within_the_limit(
        steps in prop::collection::vec(any_step(), 1..80),
    ) {
        const RATE_LIMIT: u64 = 10_000_000;
        let mut hosts = Hosts::new("rate=80mbit,as=2");
        for step in steps {
            let is_open = |hosts: &Hosts, host, flow| hosts.told.contains_key(&id(host, flow));
            match step {
                Step::Open(host, flow) if !is_open(&hosts, host, flow) => hosts.open(host, flow),
                Step::Close(host, flow) if is_open(&hosts, host, flow) => hosts.close(host, flow),
                Step::Say(host, flow, n, all) if is_open(&hosts, host, flow) => {
                    let told = hosts.told[&id(host, flow)];
                    let used = if all { n } else { 0 };
                    hosts.say(
                        host,
                        flow,
                        MemberLog {
                            counted: used,
                            busy: used,
                            epoch: told.stamp,
                            cuts: told.seen,
                            ..busy(n)
                        },
                    );
                }
                Step::Lose(host, flow) if is_open(&hosts, host, flow) => {
                    let told = hosts.told[&id(host, flow)];
                    hosts.say(
                        host,
                        flow,
                        MemberLog {
                            lost: 1,
                            epoch: told.stamp,
                            cuts: told.seen + 1,
                            ..busy(20)
                        },
                    );
                }
                Step::Wait(ms) => hosts.wait(Duration::from_millis(ms)),
                _ => {}
            }
            let paces = hosts.paces();
            // A member that does not use its part counts with its minimum, because the segments
            // with which it starts again exceed the limit.
            let counts = |pace: &u64| {
                if [RESTART_RATE, UNMEASURED_RTT_RATE].contains(pace) {
                    1_448
                } else {
                    *pace
                }
            };
            prop_assert!(
                paces.iter().map(counts).sum::<u64>() <= RATE_LIMIT,
                "{paces:?}"
            );
            prop_assert!(paces.iter().all(|pace| *pace >= 1_448), "{paces:?}");
            prop_assert!(
                hosts.told.values().all(|told| told.wish >= 2 * MSS),
                "{:?}",
                hosts.told
            );
        }
    }
}
