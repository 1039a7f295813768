//! Flows of any number of hosts that share one rate limit, or one fair share of a bottleneck.
//!
//! Only an agent off the datapath can provide this: CCP's authors expect it to enable "control
//! policies across groups of hosts" (Narayan et al., SIGCOMM 2018). The agent receives reports from
//! all members, on any datapath, and assigns each its part by weight.
//!
//! With `as=K` the group has the window of K Cubic flows ([`window`]), for any number of members.
//! With `rate` it has one rate, which the members share by pacing; each also has its own Cubic
//! window, unless `as` is set. What a member cannot use goes to the others ([`share`]).

mod matching;
mod member;
mod program;
mod share;
#[cfg(test)]
mod tests;
mod window;

use std::collections::BTreeMap;
use std::sync::Arc;

use ccplane_agent::{
    Algorithm, Control, DynAlgorithm, FlowId, FlowInfo, FlowStats, Programs, Report, ReportBatch,
    box_algorithm,
};
use ccplane_datapath::{Capabilities, INFINITY};
use ccplane_units::{Bytes, Duration, Rate, Time};

use self::matching::{Prefixes, TagPattern, Weights};
use self::member::{Member, MemberReport};
use self::share::{MemberShare, Owner};
use self::window::GroupWindow;
use crate::window::REPORT_INTERVAL;
use crate::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters, Reporting, WindowOptions};

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "group",
    doc: "flows of several hosts share one limit, or one fair share, by weight",
    parameters: &[
        ParameterDoc {
            name: "as",
            default: "auto",
            values: "auto | off | a whole number from 1 to 64",
            doc: "number of Cubic flows that the whole group counts as; off: each member counts \
                as one; auto: off with a rate, otherwise 1",
        },
        ParameterDoc {
            name: "rate",
            default: "off",
            values: "off | a rate such as 1gbit",
            doc: "maximum payload rate of all members together",
        },
        ParameterDoc {
            name: "prefix",
            default: "any",
            values: "any | prefixes such as 10.1.0.0/16, separated by `;`",
            doc: "senders that are members; others run as independent Cubic flows",
        },
        ParameterDoc {
            name: "to",
            default: "any",
            values: "any | prefixes such as 10.9.0.0/16, separated by `;`",
            doc: "receivers whose flows are members",
        },
        ParameterDoc {
            name: "tag",
            default: "any",
            values: "any | tags such as site=paris, separated by `;`",
            doc: "members are flows with one of these tags, which `attach --tag` sets",
        },
        ParameterDoc {
            name: "weights",
            default: "equal",
            values: "equal | rules such as 10.1.0.0/16=3, site=paris=3 or @web1=3, separated by \
                `;`",
            doc: "weight of a member within its TLS key, and of a key by its name (@); the first \
                matching rule applies, otherwise 1",
        },
        ParameterDoc {
            default: "auto",
            ..WindowOptions::REPORT
        },
    ],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    Ok(box_algorithm(Group::read(parameters)?))
}

/// Maximum of `as`: each flow costs work at every report.
const FLOWS_MAX: u32 = 64;
/// Default of `report`, as Cubic's.
const REPORT_DEFAULT: Reporting = Reporting::AtMost(REPORT_INTERVAL);
/// Minimum window of a member, segments: with one, every segment would wait for the delayed-ACK
/// timer (RFC 5681, 4.2).
const MEMBER_WINDOW_SEGMENTS_MIN: f64 = 2.0;
/// Average number of segments per flow that have arrived but are not yet acknowledged, because a
/// receiver may delay the ACK of every other segment (RFC 5681, 4.2). Eight members have eight such
/// halves; the single flow that they stand for has one. Without the correction they had 0.951
/// [0.925, 0.979] of the throughput of a competing flow at 150 segments each, and 0.985 [0.952,
/// 1.020] with a half (seeds 1 to 10). With more, or if every segment is acknowledged, the group
/// gets more than one flow.
const DELAYED_ACK_SEGMENTS: f64 = 0.5;
/// Maximum window of a group, segments: beyond every path, and small enough that the f64 arithmetic
/// is exact to a segment.
const GROUP_WINDOW_SEGMENTS_MAX: f64 = 1e8;
/// Segments per round trip that a member that does not use its part may always send. It starts
/// again with them, in excess of the limit until the agent learns of it. Linux sends two packets
/// and then waits for their time at the old pacing rate. With fewer, that wait exceeds a round
/// trip, and the member appears idle again. With more, many members that start at once exceed the
/// limit by more until they are updated.
const RESTART_SEGMENTS_PER_RTT: f64 = 2.0;
/// RTT assumed for a member without a sample, seconds. A shorter one lets many new members send
/// more. A longer one delays the first.
const INITIAL_RTT_SECONDS: f64 = 0.1;
/// Minimum rate of a member, bytes/s: a segment per second. With less, its retransmission timer
/// expires for lack of ACKs (RFC 6298, 2.4).
const MEMBER_RATE_BYTES_PER_SECOND_MIN: f64 = 1_448.0;
/// Time after the group's start in which live flows contribute their windows. With less, flows of a
/// host that connects later contribute none. With more, a flow that moves from another agent adds
/// to a window that has grown meanwhile.
const WINDOW_INHERITANCE_PERIOD: Duration = Duration::from_secs(1);
/// Minimum and maximum interval of the checks for idle members. A shorter interval wastes work. A
/// longer one wastes the part of an idle member for longer.
const IDLE_CHECK_INTERVAL_BOUNDS: (Duration, Duration) =
    (Duration::from_millis(5), Duration::from_millis(100));

/// Maximum members per TLS key. Each costs time in every division, and a key can have any number of
/// flows. Flows beyond the maximum get the minimum of a member.
const KEY_MEMBERS_MAX: usize = 1_024;
/// Members processed per timestamp before further divisions are deferred to the end of that
/// timestamp. A smaller number changes the results of groups of a few dozen members. A larger one
/// lets the reports of one key delay the flows of others.
const IDLE_CHECKS_PER_TIMESTAMP_MAX: usize = 4_096;

/// Group of flows.
pub struct Group {
    senders: Prefixes,
    receivers: Prefixes,
    tagged: TagPattern,
    weights: Weights,
    report: Reporting,
    limit: Option<Rate>,
    /// Number of Cubic flows that the group's window stands for.
    virtual_flows: Option<u32>,
    /// Window of the group, while it has members.
    window: Option<GroupWindow>,
    /// Members by flow identifier, so that a run is deterministic. Includes flows outside of the
    /// group.
    members: BTreeMap<FlowId, Member>,
    /// Time at which the first member joined.
    began: Time,
    timer: Option<Time>,
    /// A warning about too many members was logged, for the window and for the rate.
    has_warned: [bool; 2],
    /// Owner index by key, `None` for datapaths without one. Never removed: their number is bounded
    /// by the number of keys.
    owner_indices: BTreeMap<Option<Arc<str>>, usize>,
    owners: Vec<Owner>,
    /// Timestamp of the last division, and the members processed at it.
    last_division: (Time, usize),
}

/// The members' minimum exceeds the window or the rate.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
enum GroupFull {
    #[error(
        "{members} members of at least {MEMBER_WINDOW_SEGMENTS_MIN} segments each exceed the \
         group's window of {window:.0} segments, so the group takes more than its share; reduce \
         the number of members, or let the group count as more flows (`as`)"
    )]
    Window { members: usize, window: f64 },
    #[error(
        "{members} members of at least {MEMBER_RATE_BYTES_PER_SECOND_MIN} bytes/s each exceed the \
         group's limit of {limit}, so they get less and will time out; reduce the number of \
         members, or raise `rate`"
    )]
    Rate { members: usize, limit: Rate },
}

impl Group {
    fn read(parameters: &Parameters) -> Result<Group, BadParameter> {
        let limit = parameters.rate_or("rate", "off")?;
        let flows = match (parameters.get("as").unwrap_or("auto"), limit) {
            ("off", _) | ("auto", Some(_)) => None,
            ("auto", None) => Some(1),
            (number, _) => match number.parse() {
                Ok(flows) if (1..=FLOWS_MAX).contains(&flows) => Some(flows),
                _ => {
                    let expected =
                        format!("expected `auto`, `off` or a whole number from 1 to {FLOWS_MAX}");
                    return Err(BadParameter::value("as", number, expected));
                }
            },
        };
        Ok(Group {
            senders: parameters.read("prefix", Prefixes::default())?,
            receivers: parameters.read("to", Prefixes::default())?,
            tagged: parameters.read("tag", TagPattern::default())?,
            weights: parameters.read("weights", Weights::default())?,
            report: parameters.read("report", REPORT_DEFAULT)?,
            limit,
            virtual_flows: flows,
            window: None,
            members: BTreeMap::new(),
            began: Time::ZERO,
            timer: None,
            has_warned: [false; 2],
            owner_indices: BTreeMap::new(),
            owners: Vec::new(),
            last_division: (Time::ZERO, 0),
        })
    }

    /// Processes a member's report.
    fn on_member_report(&mut self, now: Time, id: FlowId, report: &Report<'_>) {
        let Some(heard) = MemberReport::read(report.fields()) else {
            return;
        };
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        let cut = member.on_report(now, &heard);
        let own = member.own_window.is_some();
        let starting = member
            .own_window
            .as_ref()
            .or(self.window.as_ref())
            .is_some_and(GroupWindow::is_starting);
        // Both sum over all members, so they are computed only when slow start ends or a timer
        // expired.
        let begins = match (starting && !heard.in_slow_start, own) {
            (false, _) => None,
            (true, true) => Some(member.segments()),
            (true, false) => Some(self.sum() - self.unacked_segments()),
        };
        let timed_out = heard.timeouts > 0 && (own || self.group_members().nth(1).is_none());
        let Some(member) = self.members.get_mut(&id) else {
            return;
        };
        let Some(window) = member.own_window.as_mut().or(self.window.as_mut()) else {
            return;
        };
        match begins {
            Some(segments) => window.begin(segments),
            None if starting => {}
            None => window.add_acked(
                heard.acked as f64 / member.mss,
                heard.counted as f64 / member.mss,
            ),
        }
        let packets = heard.lost.saturating_add(heard.late).max(u64::from(cut));
        window.on_losses(packets, heard.epoch, cut, timed_out);
        if heard.undos > 0 {
            window.undo(heard.epoch);
        }
    }

    fn group_members(&self) -> impl Iterator<Item = &Member> {
        self.members.values().filter(|member| member.in_group)
    }

    /// Returns the sum of the members' windows, segments.
    fn sum(&self) -> f64 {
        self.group_members().map(Member::segments).sum()
    }

    /// Returns the segments that have arrived but are not yet acknowledged, beyond the number that
    /// the flows of the group's window would have.
    fn unacked_segments(&self) -> f64 {
        let sending = self.group_members().filter(|member| !member.idle).count();
        let flows = self.window.as_ref().map_or(sending, GroupWindow::flows);
        DELAYED_ACK_SEGMENTS * sending.saturating_sub(flows) as f64
    }

    /// Divides the window and the rate, and updates members whose part changed. If this timestamp
    /// has exhausted its work limit, that is deferred to a timer at the end of the timestamp.
    fn divide_and_send(&mut self, control: &mut Control<'_>) {
        if self.may_divide(control.now()) {
            self.divide(control.now());
            self.send_changes(control);
        } else {
            self.defer(control);
        }
    }

    fn may_divide(&mut self, now: Time) -> bool {
        if self.last_division.0 != now {
            self.last_division = (now, 0);
        }
        self.last_division.1 += self.members.len();
        self.last_division.1 <= IDLE_CHECKS_PER_TIMESTAMP_MAX.max(self.members.len())
    }

    fn defer(&mut self, control: &mut Control<'_>) {
        self.timer = Some(control.now());
        control.set_timer(Duration::ZERO);
    }

    /// Returns the index of the owner of this key's flows.
    fn owner(&mut self, key: Option<Arc<str>>) -> usize {
        let Group {
            owner_indices: owners,
            owners: shares,
            weights,
            ..
        } = self;
        let weight = weights.weight_of_key(key.as_deref());
        *owners.entry(key).or_insert_with(|| {
            shares.push(Owner::new(weight));
            shares.len() - 1
        })
    }

    /// Updates members whose part changed, and schedules the next check for idle members.
    fn send_changes(&mut self, control: &mut Control<'_>) {
        let count = self.group_members().count() as f64;
        let total = self
            .window
            .as_ref()
            .filter(|window| !window.is_starting())
            .map(GroupWindow::total);
        for (id, member) in &mut self.members {
            let Some(order) = member.take_changed_order() else {
                continue;
            };
            let Some(mut control) = control.flow(*id) else {
                continue;
            };
            for (name, value) in order.values_by_name() {
                control.set_variable(name, value);
            }
            member.export_gauges(count, total, &mut control);
        }
        if self.timer.is_none() && !self.members.is_empty() {
            let slowest = self
                .members
                .values()
                .map(|member| member.rtt)
                .fold(0.0, f64::max);
            let after = Duration::from_nanos((slowest.min(1.0) * 1e9) as u64)
                .clamp(IDLE_CHECK_INTERVAL_BOUNDS.0, IDLE_CHECK_INTERVAL_BOUNDS.1);
            self.timer = Some(control.now() + after);
            control.set_timer(after);
        }
    }

    fn divide(&mut self, now: Time) {
        for member in self.members.values_mut() {
            if let Some(window) = &mut member.own_window {
                window.grow(now, member.rtt);
                let (starting, total, epoch) =
                    (window.is_starting(), window.total(), window.epoch());
                member.set_share(starting, total.floor(), epoch);
            }
        }
        let crowded = [self.divide_window(now), self.divide_rate()];
        self.warn_if_full(crowded);
    }

    /// Divides the window in proportion to weight and RTT, so that rates are in proportion to the
    /// weights. Returns an error if the members' minimum exceeds the window.
    fn divide_window(&mut self, now: Time) -> Option<GroupFull> {
        let unsaid = self.unacked_segments();
        let window = self.window.as_mut()?;
        let inside = || self.members.values().filter(|member| member.in_group);
        let (mut weights, mut rtts) = (0.0, 0.0);
        for member in inside().filter(|member| member.rtt > 0.0) {
            weights += member.weight;
            rtts += member.weight * member.rtt;
        }
        // RTT of the flow that the group stands for; 0 before the first sample.
        let rtt = if weights > 0.0 { rtts / weights } else { 0.0 };
        window.grow(now, rtt);
        self.owners.iter_mut().for_each(Owner::clear);
        for member in inside() {
            let own = [member.rtt, rtt, 1.0]
                .into_iter()
                .find(|rtt| *rtt > 0.0)
                .unwrap_or(1.0);
            let part = MemberShare {
                weight: member.weight * own,
                demand: member.demand_segments,
                min: MEMBER_WINDOW_SEGMENTS_MIN,
                previous: member.share,
                ..MemberShare::default()
            };
            self.owners[member.owner].push(member.weight, part);
        }
        let total = (window.total() + unsaid).min(GROUP_WINDOW_SEGMENTS_MAX);
        // The remainder goes to different members after each reduction.
        let (starting, epoch) = (window.is_starting(), window.epoch());
        let fits = starting || share::divide_among(total, &mut self.owners, Some(epoch as usize));
        let crowded = self
            .owners
            .iter()
            .filter(|owner| !owner.fits)
            .max_by_key(|owner| owner.shares.len());
        let crowded = crowded.filter(|_| !fits).map(|owner| GroupFull::Window {
            members: owner.shares.len(),
            window: owner.allocation,
        });
        let mut next = vec![0; self.owners.len()];
        for member in self.members.values_mut().filter(|member| member.in_group) {
            let at = &mut next[member.owner];
            let part = self.owners[member.owner]
                .shares
                .get(*at)
                .copied()
                .unwrap_or_default();
            *at += 1;
            member.set_share(starting, part.allocation, epoch);
        }
        crowded
    }

    /// Divides the rate, like [`Group::divide_window`].
    fn divide_rate(&mut self) -> Option<GroupFull> {
        let limit = self.limit?;
        let total = limit.bytes_per_sec() as f64;
        let inside = || self.members.values().filter(|member| member.in_group);
        self.owners.iter_mut().for_each(Owner::clear);
        for member in inside() {
            let part = MemberShare {
                weight: member.weight,
                demand: if member.idle { 0.0 } else { member.demand_rate },
                min: MEMBER_RATE_BYTES_PER_SECOND_MIN,
                ..MemberShare::default()
            };
            self.owners[member.owner].push(member.weight, part);
        }
        let fits = share::divide_among(total, &mut self.owners, None);
        let mut next = vec![0; self.owners.len()];
        for member in self.members.values_mut().filter(|member| member.in_group) {
            let (at, owner) = (&mut next[member.owner], &self.owners[member.owner]);
            let part = owner.shares.get(*at).copied().unwrap_or_default();
            *at += 1;
            // The limit is strict: if it is less than the sum of the minimums, each gets less.
            let scale = match owner.fits {
                true => 1.0,
                false => {
                    owner.allocation
                        / (MEMBER_RATE_BYTES_PER_SECOND_MIN * owner.shares.len() as f64)
                }
            };
            let rtt = if member.rtt > 0.0 {
                member.rtt
            } else {
                INITIAL_RTT_SECONDS
            };
            let begins = match owner.fits && member.demand_rate < f64::INFINITY {
                true => (RESTART_SEGMENTS_PER_RTT * member.mss / rtt).min(total),
                false => 0.0,
            };
            member.pacing_rate = (part.allocation * scale).max(begins).max(1.0) as u64;
        }
        let crowded = self
            .owners
            .iter()
            .filter(|owner| !owner.fits)
            .max_by_key(|owner| owner.shares.len());
        crowded.filter(|_| !fits).map(|owner| GroupFull::Rate {
            members: owner.shares.len(),
            limit: Rate::from_bytes_per_sec(owner.allocation as u64),
        })
    }

    /// Logs a warning when the window or the rate becomes too small for the members.
    fn warn_if_full(&mut self, crowded: [Option<GroupFull>; 2]) {
        for (crowded, said) in crowded.into_iter().zip(&mut self.has_warned) {
            if let Some(why) = crowded.filter(|_| !*said) {
                tracing::warn!("{why}");
            }
            *said = crowded.is_some();
        }
    }

    /// Opens a flow of a key that has the maximum number of members. Inside the group it gets a
    /// member's minimum, so that the limit holds. Outside, it stays with its datapath's fallback.
    fn open_excess(&mut self, info: &FlowInfo, inside: bool, control: &mut Control<'_>) {
        if !inside {
            return;
        }
        let window = MEMBER_WINDOW_SEGMENTS_MIN as u64 * info.mss.get().max(1);
        let pace = if self.limit.is_some() {
            MEMBER_RATE_BYTES_PER_SECOND_MIN as u64
        } else {
            0
        };
        let variables = [("wish", window), ("stamp", 0), ("seen", 0), ("pace", pace)];
        control.set_program("member", &variables);
        if pace > 0 {
            control.set_rate(Rate::from_bytes_per_sec(pace));
        }
    }

    /// Continues a live flow with the window it had under another agent.
    fn take_over(&mut self, now: Time, member: &mut Member, info: &FlowInfo) {
        let slow = info.ssthresh.get() >= INFINITY;
        if !info.live || slow {
            return;
        }
        let segments = info.cwnd.get() as f64 / member.mss;
        match (&mut member.own_window, &mut self.window) {
            (Some(own), _) => own.begin(segments),
            (None, Some(shared)) if shared.is_starting() => shared.begin(segments),
            (None, Some(shared)) if now < self.began + WINDOW_INHERITANCE_PERIOD => {
                let others = self.members.values().filter(|member| member.in_group);
                let unsaid = if others.take(shared.flows()).count() < shared.flows() {
                    0.0
                } else {
                    DELAYED_ACK_SEGMENTS
                };
                shared.add(segments - unsaid);
            }
            _ => {}
        }
    }
}

impl Algorithm for Group {
    type Flow = FlowId;

    fn name(&self) -> &str {
        DOC.name
    }

    fn programs(&self) -> Programs {
        Programs::new().with(
            "member",
            program::program_source(self.report, self.limit.is_some()),
        )
    }

    fn required_capabilities(&self) -> Capabilities {
        let needs = Capabilities::CWND
            .union(Capabilities::RTT)
            .union(Capabilities::RECOVERY);
        match self.limit {
            Some(_) => needs.union(Capabilities::PACING),
            None => needs,
        }
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> FlowId {
        let (now, id) = (control.now(), control.flow_id().unwrap_or_default());
        let addressed =
            self.senders.contains(info.local.ip()) && self.receivers.contains(info.peer.ip());
        let inside = addressed && self.tagged.matches(info);
        let key = control.tenant();
        let has_key = key.is_some();
        let owner = self.owner(key);
        if has_key && self.owners[owner].members >= KEY_MEMBERS_MAX {
            self.open_excess(info, inside, control);
            return id;
        }
        self.owners[owner].members += 1;
        let mut member = Member::new(now, info, inside, owner, self.weights.weight_of(info));
        match self.virtual_flows.filter(|_| inside) {
            None => member.own_window = Some(GroupWindow::new(1)),
            Some(_) if self.window.is_some() => {}
            Some(flows) => (self.window, self.began) = (Some(GroupWindow::new(flows)), now),
        }
        self.take_over(now, &mut member, info);
        // A member that joins a group in slow start begins with a part of the group's window
        // instead of adding to it.
        let joins = member.own_window.is_none() && !info.live;
        if joins && self.window.as_ref().is_some_and(GroupWindow::is_starting) {
            let (had, others) = (self.sum(), self.group_members().count());
            if others > 0 {
                let part = (had / (others + 1) as f64).max(MEMBER_WINDOW_SEGMENTS_MIN) * member.mss;
                member.cwnd = member.cwnd.min(part.floor());
                control.set_cwnd(Bytes::new(member.cwnd as u64));
            }
        }
        let divides = self.may_divide(now);
        if !divides {
            // Applies until the division at the end of this timestamp.
            member.pacing_rate = if inside && self.limit.is_some() {
                MEMBER_RATE_BYTES_PER_SECOND_MIN as u64
            } else {
                0
            };
        }
        self.members.insert(id, member);
        if divides {
            self.divide(now);
        }
        if let Some(order) = self.members.get_mut(&id).map(Member::take_order) {
            let mut variables = order.values_by_name().to_vec();
            variables.push(("recovering", u64::from(info.live)));
            control.set_program("member", &variables);
            if order.pace > 0 {
                control.set_rate(Rate::from_bytes_per_sec(order.pace));
            }
        }
        match divides {
            true => self.send_changes(control),
            false => self.defer(control),
        }
        id
    }

    fn on_report(&mut self, id: &mut FlowId, report: &Report<'_>, control: &mut Control<'_>) {
        self.on_member_report(control.now(), *id, report);
        self.divide_and_send(control);
    }

    fn on_reports(&mut self, batch: &mut ReportBatch<'_, FlowId>, control: &mut Control<'_>) {
        while let Some((id, report)) = batch.next(control) {
            let id = *id;
            self.on_member_report(control.now(), id, &report);
        }
        self.divide_and_send(control);
    }

    fn on_timer(&mut self, control: &mut Control<'_>) {
        self.timer = None;
        let every = match self.report {
            Reporting::Every(interval) | Reporting::AtMost(interval) => interval.as_secs_f64(),
            Reporting::Ack | Reporting::Rtt => 0.0,
        };
        let now = control.now();
        self.members
            .values_mut()
            .for_each(|member| member.check_idle(now, every));
        self.divide(now);
        self.send_changes(control);
    }

    fn on_close(&mut self, id: FlowId, _last: &FlowStats) {
        if let Some(member) = self.members.remove(&id) {
            self.owners[member.owner].members -= 1;
        }
        if self.group_members().next().is_none() {
            (self.window, self.has_warned) = (None, [false; 2]);
        }
    }
}
