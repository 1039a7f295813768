//! Probes: links and flows, looked at again and again while a simulation runs.
//!
//! A probe is an application: each look is one event, and nothing else in the simulation knows of
//! it. What it sees goes into columns. Counts are kept as they are, running, so that every second
//! look can be left out without losing anything: when a probe's memory is full it does so, and
//! looks half as often from then on.

mod sojourns;

use ccplane_units::{Duration, Time};

pub use sojourns::Sojourns;

use crate::app::{App, AppId, Cause};
use crate::{FlowId, LinkId, SimError, World};

/// What a probe looks at, and how often.
#[derive(Clone, Debug)]
pub struct ProbeSpec {
    /// Between two looks. The first is one of these after the probe was added.
    pub every: Duration,
    /// Links to look at.
    pub links: Vec<LinkId>,
    /// Flows to look at.
    pub flows: Followed,
    /// Bytes that the columns may take. Too little, and there are few looks; it is not taken before
    /// it is needed.
    pub memory_limit: u64,
}

/// Flows that a probe looks at.
#[derive(Clone, Debug)]
pub enum Followed {
    /// These.
    These(Vec<FlowId>),
    /// The first so many of the simulation, from when they exist.
    First(usize),
}

/// A probe's memory unless its owner says otherwise: 64 MB.
const MEMORY: u64 = 64_000_000;

/// Fewer looks than these make no series; a probe whose memory is too small for them is refused.
const FEWEST: u64 = 16;

impl ProbeSpec {
    /// Looks at nothing yet, every so often, in 64 MB.
    pub fn new(every: Duration) -> ProbeSpec {
        ProbeSpec {
            every,
            links: Vec::new(),
            flows: Followed::These(Vec::new()),
            memory_limit: MEMORY,
        }
    }

    /// The same at this link too.
    #[must_use]
    pub fn link(mut self, link: LinkId) -> ProbeSpec {
        self.links.push(link);
        self
    }

    /// The same at these flows.
    #[must_use]
    pub fn flows(self, flows: Followed) -> ProbeSpec {
        ProbeSpec { flows, ..self }
    }
}

/// Columns of one link. All have a value for every look; counts run from the simulation's
/// beginning.
#[derive(Clone, Debug)]
pub struct LinkSeries {
    /// The link.
    pub link: LinkId,
    /// When it was looked at, ns.
    pub time: Vec<u64>,
    /// Bytes that have not left the queue, the packet being sent included.
    pub backlog_bytes: Vec<u64>,
    /// Packets that have not left it.
    pub backlog_packets: Vec<u64>,
    /// Packets let in, so far.
    pub accepted: Vec<u64>,
    /// Bytes that have left the queue, so far.
    pub left_bytes: Vec<u64>,
    /// Packets dropped or lost, so far.
    pub dropped: Vec<u64>,
    /// Packets marked, so far.
    pub marked: Vec<u64>,
    /// Sum of the packets' times from coming to having left, so far, ns.
    pub sojourn_sum: Vec<u64>,
    /// Bytes a second that the line could carry then; 0 without a limit.
    pub rate: Vec<u64>,
}

/// Columns of one flow, from the first look that found it begun to the first that found it over.
#[derive(Clone, Debug)]
pub struct FlowSeries {
    /// The flow.
    pub flow: FlowId,
    /// When it was looked at, ns.
    pub time: Vec<u64>,
    /// Bytes that have arrived in order, so far.
    pub received: Vec<u64>,
    /// The window, bytes.
    pub cwnd: Vec<u64>,
    /// Packets on their way, as far as the sender knows.
    pub in_flight: Vec<u64>,
    /// Smoothed RTT, ns; 0 before the first sample.
    pub srtt: Vec<u64>,
    /// The pacing rate, bytes/s; 0 when not paced.
    pub rate: Vec<u64>,
    /// Segments sent again, so far.
    pub retransmitted: Vec<u64>,
    over: bool,
}

impl LinkSeries {
    /// The share of the line's rate that was used before each look but the first; of a line that
    /// changes, by its rate at the look. `None` where the line has no rate.
    pub fn utilisation(&self) -> impl Iterator<Item = Option<f64>> + '_ {
        let rates = self.rate.iter().skip(1).map(|rate| *rate as f64);
        per_second(&self.time, &self.left_bytes)
            .zip(rates)
            .map(|(used, rate)| (rate > 0.0).then(|| used / rate))
    }

    /// The mean time from coming to having left before each look but the first, ns: what the sum
    /// grew by, over the packets let in. `None` where none was.
    pub fn mean_sojourn(&self) -> impl Iterator<Item = Option<f64>> + '_ {
        let sums = self.sojourn_sum.windows(2).map(grown);
        let packets = self.accepted.windows(2).map(grown);
        sums.zip(packets)
            .map(|(sum, packets)| (packets > 0.0).then(|| sum / packets))
    }
}

impl FlowSeries {
    /// Bytes a second that arrived in order before each look but the first.
    pub fn goodput(&self) -> impl Iterator<Item = f64> + '_ {
        per_second(&self.time, &self.received)
    }
}

/// Growth of a count between looks, a second.
fn per_second<'a>(time: &'a [u64], count: &'a [u64]) -> impl Iterator<Item = f64> + 'a {
    let times = time.windows(2).map(grown);
    let counts = count.windows(2).map(grown);
    counts.zip(times).map(|(count, time)| count * 1e9 / time)
}

fn grown(pair: &[u64]) -> f64 {
    match pair {
        [before, after] => after.saturating_sub(*before) as f64,
        _ => 0.0,
    }
}

/// Columns of a link, and of a flow.
const LINK_COLUMNS: usize = 9;
const FLOW_COLUMNS: usize = 7;

impl LinkSeries {
    fn new(link: LinkId) -> LinkSeries {
        LinkSeries {
            link,
            time: Vec::new(),
            backlog_bytes: Vec::new(),
            backlog_packets: Vec::new(),
            accepted: Vec::new(),
            left_bytes: Vec::new(),
            dropped: Vec::new(),
            marked: Vec::new(),
            sojourn_sum: Vec::new(),
            rate: Vec::new(),
        }
    }

    fn columns(&mut self) -> [&mut Vec<u64>; LINK_COLUMNS] {
        [
            &mut self.time,
            &mut self.backlog_bytes,
            &mut self.backlog_packets,
            &mut self.accepted,
            &mut self.left_bytes,
            &mut self.dropped,
            &mut self.marked,
            &mut self.sojourn_sum,
            &mut self.rate,
        ]
    }
}

impl FlowSeries {
    fn new(flow: FlowId) -> FlowSeries {
        FlowSeries {
            flow,
            time: Vec::new(),
            received: Vec::new(),
            cwnd: Vec::new(),
            in_flight: Vec::new(),
            srtt: Vec::new(),
            rate: Vec::new(),
            retransmitted: Vec::new(),
            over: false,
        }
    }

    fn columns(&mut self) -> [&mut Vec<u64>; FLOW_COLUMNS] {
        [
            &mut self.time,
            &mut self.received,
            &mut self.cwnd,
            &mut self.in_flight,
            &mut self.srtt,
            &mut self.rate,
            &mut self.retransmitted,
        ]
    }
}

/// A probe of a simulation, and what it has seen.
#[derive(Debug)]
pub struct Probe {
    /// When it was added.
    start: Time,
    every: Duration,
    /// Looks since then at that interval.
    looks: u64,
    /// The most rows that a series may have.
    rows: u64,
    links: Vec<LinkSeries>,
    flows: Vec<FlowSeries>,
    /// Of the simulation's first so many flows, those that exist are in `flows`.
    first: usize,
}

impl Probe {
    /// Between two looks, now: twice, four times … what was asked for once its memory was full.
    pub fn every(&self) -> Duration {
        self.every
    }

    /// Its links, in the order of the specification.
    pub fn links(&self) -> &[LinkSeries] {
        &self.links
    }

    /// Its flows, in the order of the specification or of their numbers.
    pub fn flows(&self) -> &[FlowSeries] {
        &self.flows
    }

    fn look(&mut self, world: &World) {
        let time = world.now().as_nanos();
        for series in &mut self.links {
            let Some(view) = world.link(series.link) else {
                continue;
            };
            let row = [
                time,
                view.backlog.bytes,
                view.backlog.packets,
                view.accepted,
                view.accepted_bytes.saturating_sub(view.backlog.bytes),
                view.queue_drops + view.losses,
                view.marked,
                view.sojourn_sum.as_nanos(),
                view.rate.unwrap_or(0),
            ];
            push(series.columns(), row, self.rows);
        }
        let followed = self.flows.len();
        if followed < self.first {
            let new = world.flows().skip(followed).take(self.first - followed);
            self.flows.extend(new.map(FlowSeries::new));
        }
        for series in self.flows.iter_mut().filter(|series| !series.over) {
            let Some(view) = world
                .flow(series.flow)
                .filter(|view| view.started < world.now())
            else {
                continue;
            };
            let row = [
                time,
                view.received,
                view.cwnd,
                u64::from(view.in_flight),
                view.srtt.as_nanos(),
                view.rate,
                view.retransmitted,
            ];
            push(series.columns(), row, self.rows);
            series.over = view.finished.is_some() || view.failure.is_some();
        }
    }

    /// Leaves out every second look.
    fn thin(&mut self) {
        self.every = self.every * 2;
        self.looks /= 2;
        let (start, every) = (self.start.as_nanos(), self.every.as_nanos());
        let kept = |time: &[u64]| -> Vec<bool> {
            time.iter()
                .map(|at| (at - start).is_multiple_of(every))
                .collect()
        };
        for series in &mut self.links {
            let kept = kept(&series.time);
            series
                .columns()
                .into_iter()
                .for_each(|column| retain(column, &kept));
        }
        for series in &mut self.flows {
            let kept = kept(&series.time);
            series
                .columns()
                .into_iter()
                .for_each(|column| retain(column, &kept));
        }
    }
}

/// Adds a row. Columns grow by doubling, but never beyond so many rows.
fn push<const N: usize>(columns: [&mut Vec<u64>; N], row: [u64; N], rows: u64) {
    for (column, value) in columns.into_iter().zip(row) {
        if column.len() == column.capacity() {
            let room = (rows as usize).saturating_sub(column.len()).max(1);
            column.reserve_exact(column.len().max(FEWEST as usize).min(room));
        }
        column.push(value);
    }
}

fn retain(column: &mut Vec<u64>, kept: &[bool]) {
    let mut kept = kept.iter();
    column.retain(|_| kept.next().copied().unwrap_or(false));
}

impl App for Probe {
    fn wake(&mut self, _now: Time, _me: AppId, cause: Cause, world: &mut World) -> Option<Time> {
        if cause != Cause::Time {
            return None;
        }
        self.look(world);
        self.looks += 1;
        if self.looks >= self.rows {
            self.thin();
        }
        Some(self.start + self.every * (self.looks + 1))
    }
}

impl World {
    /// Adds a probe; see [`World::probe`] for what it has seen.
    pub fn add_probe(&mut self, spec: ProbeSpec) -> Result<AppId, SimError> {
        if spec.every == Duration::ZERO {
            return Err(SimError::Probe(
                "it looks at no interval; give a time above 0",
            ));
        }
        for link in &spec.links {
            self.known_link(*link)?;
        }
        let (flows, first) = match spec.flows {
            Followed::These(flows) => (flows, 0),
            Followed::First(count) => (Vec::new(), count),
        };
        let count = self.flows().len();
        if let Some(flow) = flows.iter().find(|flow| flow.index() >= count) {
            return Err(SimError::Unknown {
                what: "flow",
                number: flow.0,
                count,
            });
        }
        let row = 8
            * (spec.links.len() * LINK_COLUMNS + (flows.len() + first) * FLOW_COLUMNS).max(1)
                as u64;
        let rows = spec.memory_limit / row;
        if rows < FEWEST {
            return Err(SimError::TooLarge {
                what: format!(
                    "a probe of {} links and {} flows",
                    spec.links.len(),
                    flows.len() + first
                ),
                needed: (row * FEWEST).div_ceil(1_000_000),
                limit: spec.memory_limit / 1_000_000,
            });
        }
        let probe = Probe {
            start: self.now(),
            every: spec.every,
            looks: 0,
            rows,
            links: spec.links.into_iter().map(LinkSeries::new).collect(),
            flows: flows.into_iter().map(FlowSeries::new).collect(),
            first,
        };
        let first = self.now() + spec.every;
        Ok(self.add_app(Box::new(probe), first))
    }

    /// A probe; `None` where the application is something else.
    pub fn probe(&self, id: AppId) -> Option<&Probe> {
        self.app(id)
    }
}
