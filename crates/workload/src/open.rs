//! Open-loop workloads, whose flows start at times independent of earlier flows: bulk, Poisson
//! arrivals, bursts, lists and traces.

use std::collections::BTreeSet;

use ccplane_units::{Bytes, Duration, Time};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use super::draw::draw_exponential;
use super::flow_times::FlowTimes;
use super::{Action, ActiveTime, Arrivals, Pairs, SizeTable, TraceFlow, Workload};

/// Open-loop generator of flows.
#[derive(Debug)]
pub(super) struct OpenLoop {
    plan: ArrivalPlan,
    span: ActiveTime,
    random: Pcg64,
    /// Start time of the next flow.
    next: Option<Time>,
    /// Number of flows started.
    count: u64,
    /// Abort times and slots of the flows without a size.
    abort_times: BTreeSet<(Time, u32)>,
    slots: u32,
}

#[derive(Debug)]
enum ArrivalPlan {
    Bulk {
        /// Total number of starts.
        flows: u64,
        bytes: Option<u64>,
        flow_times: FlowTimes,
        /// With `spread`: the place and start time of each flow, in order of start.
        drawn_starts: Option<Vec<(u64, Time)>>,
    },
    Poisson {
        /// Mean interval between arrivals, ns.
        mean_interval_ns: f64,
        sizes: SizeTable,
        flows: u64,
    },
    Bursts {
        sizes: SizeTable,
        interval: Duration,
        /// Flows per burst, and in total.
        flows_per_burst: u64,
        flows: u64,
    },
    List {
        flows: Vec<(Duration, Bytes)>,
        /// Flows per list entry, one per pair.
        flows_per_entry: u64,
    },
    Trace(Vec<TraceFlow>),
}

impl OpenLoop {
    pub fn new(
        kind: Workload,
        pairs: &Pairs,
        span: ActiveTime,
        random: Pcg64,
        mut late: Pcg64,
    ) -> Result<OpenLoop, &'static str> {
        let places = pairs.position_count() as u64;
        let plan = match kind {
            Workload::Bulk { flows: 0, .. } => return Err("it has no flows; give at least one"),
            Workload::Bulk {
                bytes: Some(none), ..
            } if none.get() == 0 => {
                return Err(
                    "its flows have no bytes; give a size above 0, or omit it for flows without \
                     end",
                );
            }
            Workload::Bulk {
                bytes: Some(_),
                lifetime: Some(_),
                ..
            } => return Err("its flows end after a number of bytes; do not set a lifetime too"),
            Workload::Bulk {
                lifetime: Some(lasts),
                ..
            } if lasts == Duration::ZERO => {
                return Err("the lifetime of its flows is 0; give a time above 0");
            }
            Workload::Bulk {
                flows,
                bytes,
                stagger,
                spread,
                lifetime: lasts,
            } => {
                let flows = places * u64::from(flows);
                let planned = FlowTimes::new(span, stagger, lasts);
                let drawn = (spread > Duration::ZERO).then(|| {
                    let mut later = || Duration::from_nanos(late.next_u64() % spread.as_nanos());
                    let mut starts: Vec<(u64, Time)> = (0..flows)
                        .map(|n| (n, planned.start_time(n) + later()))
                        .collect();
                    starts.sort_by_key(|(_, at)| *at);
                    starts
                });
                ArrivalPlan::Bulk {
                    flows,
                    bytes: bytes.map(|bytes| bytes.get()),
                    flow_times: planned,
                    drawn_starts: drawn,
                }
            }
            Workload::Poisson {
                arrivals,
                sizes,
                flows,
            } => ArrivalPlan::Poisson {
                mean_interval_ns: gap(arrivals, &sizes)?,
                sizes,
                flows: flows.unwrap_or(u64::MAX),
            },
            Workload::Bursts {
                interval: every, ..
            } if every == Duration::ZERO => {
                return Err("the interval between its bursts is 0; give a time above 0");
            }
            Workload::Bursts {
                sizes,
                interval: every,
                bursts,
            } => ArrivalPlan::Bursts {
                sizes,
                interval: every,
                flows_per_burst: places.max(1),
                flows: bursts.map_or(u64::MAX, |bursts| bursts.saturating_mul(places)),
            },
            Workload::List { flows } if flows.is_empty() => {
                return Err("its list is empty; give a time and a size");
            }
            Workload::List { flows } if flows.iter().any(|(_, bytes)| bytes.get() == 0) => {
                return Err("a flow of its list has no bytes; remove it");
            }
            Workload::List { flows } => ArrivalPlan::List {
                flows,
                flows_per_entry: places.max(1),
            },
            Workload::Trace { flows } if flows.is_empty() => {
                return Err("its trace is empty; give a time, two hosts and a size");
            }
            Workload::Trace { flows } if flows.iter().any(|flow| flow.bytes.get() == 0) => {
                return Err("a flow of its trace has no bytes; remove it");
            }
            Workload::Trace { flows } => ArrivalPlan::Trace(flows),
            Workload::Paced { .. } | Workload::Requests { .. } | Workload::Messages { .. } => {
                return Err("it opens no flows by itself");
            }
        };
        let mut open = OpenLoop {
            plan,
            span,
            random,
            next: Some(span.start),
            count: 0,
            abort_times: BTreeSet::new(),
            slots: 0,
        };
        open.next = open.next_start(span.start);
        Ok(open)
    }

    pub fn next_time(&self) -> Option<Time> {
        let leaves = self.abort_times.first().map(|(at, _)| *at);
        match (self.next.filter(|at| !self.span.is_over(*at)), leaves) {
            (Some(next), Some(leaves)) => Some(next.min(leaves)),
            (next, leaves) => next.or(leaves),
        }
    }

    /// Returns true if no more flows will start.
    pub fn has_ended(&self) -> bool {
        self.next.is_none_or(|at| self.span.is_over(at))
    }

    pub fn poll(&mut self, now: Time, pairs: &Pairs) -> Option<Action> {
        // Actions are returned in the order in which they were due; at equal times, starts go
        // before aborts.
        loop {
            let starts = self.next.filter(|at| *at <= now && !self.span.is_over(*at));
            let leaves = self
                .abort_times
                .first()
                .copied()
                .filter(|(at, _)| *at <= now);
            match (starts, leaves) {
                (Some(at), leaves) if leaves.is_none_or(|(leaves, _)| at <= leaves) => {
                    let action = self.open_flow(pairs);
                    self.count += 1;
                    self.next = self.next_start(at);
                    if action.is_some() {
                        return action;
                    }
                }
                (_, Some(due)) => {
                    self.abort_times.remove(&due);
                    return Some(Action::Abort { slot: due.1 });
                }
                _ => return None,
            }
        }
    }

    /// Returns the start time of the flow after the last one, which started at `at`.
    fn next_start(&mut self, at: Time) -> Option<Time> {
        let (count, start) = (self.count, self.span.start);
        match &self.plan {
            ArrivalPlan::Bulk {
                drawn_starts: Some(drawn),
                ..
            } => drawn.get(usize::try_from(count).ok()?).map(|(_, at)| *at),
            ArrivalPlan::Bulk {
                flows,
                flow_times: planned,
                ..
            } => (count < *flows).then(|| planned.start_time(count)),
            ArrivalPlan::Poisson {
                mean_interval_ns: gap,
                flows,
                ..
            } => (count < *flows).then(|| at + draw_exponential(&mut self.random, *gap)),
            ArrivalPlan::Bursts {
                interval: every,
                flows_per_burst: burst,
                flows,
                ..
            } => (count < *flows).then(|| start + *every * (count / burst)),
            ArrivalPlan::List {
                flows,
                flows_per_entry: each,
            } => {
                let (after, _) = flows.get(usize::try_from(count / each).ok()?)?;
                Some(start + *after)
            }
            ArrivalPlan::Trace(flows) => flows
                .get(usize::try_from(count).ok()?)
                .map(|flow| start + flow.at),
        }
    }

    /// Returns the action that starts the next flow; `None` if its place holds no pair.
    fn open_flow(&mut self, pairs: &Pairs) -> Option<Action> {
        let number = match &self.plan {
            ArrivalPlan::Bulk {
                drawn_starts: Some(drawn),
                ..
            } => drawn.get(usize::try_from(self.count).ok()?)?.0,
            _ => self.count,
        };
        let place = (number % pairs.position_count().max(1) as u64) as usize;
        let (from, to, bytes) = match &self.plan {
            ArrivalPlan::Bulk { bytes, .. } => {
                let (from, to) = pairs.get(place)?;
                (from, to, *bytes)
            }
            ArrivalPlan::Poisson { sizes, .. } => {
                let (_, (from, to)) = pairs.draw(&mut self.random)?;
                (from, to, Some(sizes.draw(&mut self.random).get()))
            }
            ArrivalPlan::Bursts { sizes, .. } => {
                let (from, to) = pairs.get(place)?;
                (from, to, Some(sizes.draw(&mut self.random).get()))
            }
            ArrivalPlan::List {
                flows,
                flows_per_entry: each,
            } => {
                let (from, to) = pairs.get(place)?;
                let (_, bytes) = flows.get(usize::try_from(self.count / each).ok()?)?;
                (from, to, Some(bytes.get()))
            }
            ArrivalPlan::Trace(flows) => {
                let flow = flows.get(usize::try_from(self.count).ok()?)?;
                (flow.from, flow.to, Some(flow.bytes.get()))
            }
        };
        let leaves = match &self.plan {
            ArrivalPlan::Bulk {
                bytes: None,
                flow_times: planned,
                ..
            } => planned.abort_time(number),
            _ => None,
        };
        if let Some(at) = leaves {
            // A flow whose start is late by more than its duration is aborted when it starts.
            let at = self.next.map_or(at, |starts| at.max(starts));
            self.abort_times.insert((at, self.slots));
            self.slots += 1;
        }
        Some(Action::Open {
            from,
            to,
            bytes,
            finish: bytes.is_some(),
            follow: leaves.is_some(),
        })
    }
}

/// Returns the mean interval between arrivals, ns.
pub(crate) fn gap(arrivals: Arrivals, sizes: &SizeTable) -> Result<f64, &'static str> {
    let rate = match arrivals {
        Arrivals::PerSecond(rate) => rate,
        Arrivals::Rate(rate) => rate.bytes_per_sec() as f64 / sizes.mean(),
        Arrivals::Load {
            share,
            link_rate: of,
        } => share * of.bytes_per_sec() as f64 / sizes.mean(),
        Arrivals::Once { .. } => return Err("its arrivals have no rate; give one"),
    };
    if rate.is_finite() && rate > 0.0 {
        Ok(1e9 / rate)
    } else {
        Err("its flows never arrive; give a rate, a load or a number per second above 0")
    }
}
