//! Probes: periodic samples of links and flows while a simulation runs.
//!
//! A probe is an application. Each sample is one event and has no effect on the rest of the
//! simulation. Samples are stored in columns. Counters are stored as running totals, so that every
//! second sample can be discarded without losing counts: when its memory is full, a probe does so
//! and halves its sampling rate.

mod sojourns;

use ccplane_units::{Duration, Time};

pub use sojourns::Sojourns;

use crate::app::{App, AppId, WakeReason};
use crate::{FlowId, LinkId, SimError, World};

/// Description of a probe.
#[derive(Clone, Debug)]
pub struct ProbeSpec {
    /// Sampling interval. The first sample is taken one interval after the probe is added.
    pub interval: Duration,
    /// Sampled links.
    pub links: Vec<LinkId>,
    /// Sampled flows.
    pub flows: ProbeTarget,
    /// Memory limit of the columns, bytes. A low limit gives few samples. The memory is allocated
    /// as needed.
    pub memory_limit: u64,
}

/// Flows sampled by a probe.
#[derive(Clone, Debug)]
pub enum ProbeTarget {
    /// Listed flows.
    List(Vec<FlowId>),
    /// The first flows of the simulation, up to this number, as they are added.
    First(usize),
}

/// Default memory limit of a probe, bytes.
const MEMORY_LIMIT_DEFAULT_BYTES: u64 = 64_000_000;

/// Minimum number of samples. A probe whose memory is too small for them is rejected.
const SAMPLES_MIN: u64 = 16;

impl ProbeSpec {
    /// Creates a probe without links and flows, with a memory limit of 64 MB.
    pub fn new(every: Duration) -> ProbeSpec {
        ProbeSpec {
            interval: every,
            links: Vec::new(),
            flows: ProbeTarget::List(Vec::new()),
            memory_limit: MEMORY_LIMIT_DEFAULT_BYTES,
        }
    }

    /// Adds a link.
    #[must_use]
    pub fn link(mut self, link: LinkId) -> ProbeSpec {
        self.links.push(link);
        self
    }

    /// Sets the flows.
    #[must_use]
    pub fn flows(self, flows: ProbeTarget) -> ProbeSpec {
        ProbeSpec { flows, ..self }
    }
}

/// Time series of a link. All columns have one value per sample; counters start at the beginning of
/// the simulation.
#[derive(Clone, Debug)]
pub struct LinkSeries {
    /// Sampled link.
    pub link: LinkId,
    /// Times of the samples, ns.
    pub time: Vec<u64>,
    /// Queue backlog in bytes, including the packet in transmission.
    pub backlog_bytes: Vec<u64>,
    /// Queue backlog in packets.
    pub backlog_packets: Vec<u64>,
    /// Packets accepted so far.
    pub accepted: Vec<u64>,
    /// Bytes that have departed so far.
    pub departed_bytes: Vec<u64>,
    /// Packets dropped or lost so far.
    pub dropped: Vec<u64>,
    /// Packets marked so far.
    pub marked: Vec<u64>,
    /// Sum of the sojourn times so far, ns.
    pub sojourn_sum: Vec<u64>,
    /// Rate of the line at the time of the sample, bytes/s; 0 without a limit.
    pub rate: Vec<u64>,
}

/// Time series of a flow, from the first sample after its start to the first after its end.
#[derive(Clone, Debug)]
pub struct FlowSeries {
    /// Sampled flow.
    pub flow: FlowId,
    /// Times of the samples, ns.
    pub time: Vec<u64>,
    /// Bytes received in order so far.
    pub received: Vec<u64>,
    /// Congestion window, bytes.
    pub cwnd: Vec<u64>,
    /// Packets in flight, by the sender's estimate.
    pub in_flight: Vec<u64>,
    /// Smoothed RTT, ns; 0 before the first sample.
    pub srtt: Vec<u64>,
    /// Pacing rate, bytes/s; 0 without pacing.
    pub rate: Vec<u64>,
    /// Segments retransmitted so far.
    pub retransmitted: Vec<u64>,
    is_finished: bool,
}

impl LinkSeries {
    /// Returns the utilisation of the line in each interval between samples, relative to its rate
    /// at the end of the interval. `None` without a rate.
    pub fn utilisation(&self) -> impl Iterator<Item = Option<f64>> + '_ {
        let rates = self.rate.iter().skip(1).map(|rate| *rate as f64);
        per_second(&self.time, &self.departed_bytes)
            .zip(rates)
            .map(|(used, rate)| (rate > 0.0).then(|| used / rate))
    }

    /// Returns the mean sojourn time of the packets accepted in each interval between samples, ns.
    /// `None` if there were none.
    pub fn mean_sojourn(&self) -> impl Iterator<Item = Option<f64>> + '_ {
        let sums = self.sojourn_sum.windows(2).map(growth);
        let packets = self.accepted.windows(2).map(growth);
        sums.zip(packets)
            .map(|(sum, packets)| (packets > 0.0).then(|| sum / packets))
    }
}

impl FlowSeries {
    /// Returns the bytes per second received in order in each interval between samples.
    pub fn goodput(&self) -> impl Iterator<Item = f64> + '_ {
        per_second(&self.time, &self.received)
    }
}

/// Returns the growth of a counter per second in each interval.
fn per_second<'a>(time: &'a [u64], count: &'a [u64]) -> impl Iterator<Item = f64> + 'a {
    let times = time.windows(2).map(growth);
    let counts = count.windows(2).map(growth);
    counts.zip(times).map(|(count, time)| count * 1e9 / time)
}

fn growth(pair: &[u64]) -> f64 {
    match pair {
        [before, after] => after.saturating_sub(*before) as f64,
        _ => 0.0,
    }
}

/// Number of columns of a link, and of a flow.
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
            departed_bytes: Vec::new(),
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
            &mut self.departed_bytes,
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
            is_finished: false,
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

/// Probe with its samples.
#[derive(Debug)]
pub struct Probe {
    /// Time at which the probe was added.
    start: Time,
    interval: Duration,
    /// Number of samples since `start` at the current interval.
    samples: u64,
    /// Maximum number of rows of a series.
    rows: u64,
    links: Vec<LinkSeries>,
    flows: Vec<FlowSeries>,
    /// Number of flows to be sampled under [`ProbeTarget::First`]; those already added are in
    /// `flows`.
    flow_limit: usize,
}

impl Probe {
    /// Returns the current sampling interval: the requested one, doubled each time the memory was
    /// full.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// Returns the links, in the order of the description.
    pub fn links(&self) -> &[LinkSeries] {
        &self.links
    }

    /// Returns the flows, in the order of the description or of their numbers.
    pub fn flows(&self) -> &[FlowSeries] {
        &self.flows
    }

    fn sample(&mut self, world: &World) {
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
        if followed < self.flow_limit {
            let new = world
                .flows()
                .skip(followed)
                .take(self.flow_limit - followed);
            self.flows.extend(new.map(FlowSeries::new));
        }
        for series in self.flows.iter_mut().filter(|series| !series.is_finished) {
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
            series.is_finished = view.finished.is_some() || view.failure.is_some();
        }
    }

    /// Discards every second sample and doubles the interval.
    fn halve_samples(&mut self) {
        self.interval = self.interval * 2;
        self.samples /= 2;
        let (start, every) = (self.start.as_nanos(), self.interval.as_nanos());
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

/// Appends a row. Columns grow by doubling, up to `rows`.
fn push<const N: usize>(columns: [&mut Vec<u64>; N], row: [u64; N], rows: u64) {
    for (column, value) in columns.into_iter().zip(row) {
        if column.len() == column.capacity() {
            let room = (rows as usize).saturating_sub(column.len()).max(1);
            column.reserve_exact(column.len().max(SAMPLES_MIN as usize).min(room));
        }
        column.push(value);
    }
}

fn retain(column: &mut Vec<u64>, kept: &[bool]) {
    let mut kept = kept.iter();
    column.retain(|_| kept.next().copied().unwrap_or(false));
}

impl App for Probe {
    fn wake(
        &mut self,
        _now: Time,
        _me: AppId,
        cause: WakeReason,
        world: &mut World,
    ) -> Option<Time> {
        if cause != WakeReason::Timer {
            return None;
        }
        self.sample(world);
        self.samples += 1;
        if self.samples >= self.rows {
            self.halve_samples();
        }
        Some(self.start + self.interval * (self.samples + 1))
    }
}

impl World {
    /// Adds a probe; [`World::probe`] returns its samples.
    pub fn add_probe(&mut self, spec: ProbeSpec) -> Result<AppId, SimError> {
        if spec.interval == Duration::ZERO {
            return Err(SimError::Probe("its interval is 0; give a time above 0"));
        }
        for link in &spec.links {
            self.check_link(*link)?;
        }
        let (flows, first) = match spec.flows {
            ProbeTarget::List(flows) => (flows, 0),
            ProbeTarget::First(count) => (Vec::new(), count),
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
        if rows < SAMPLES_MIN {
            return Err(SimError::TooLarge {
                what: format!(
                    "a probe of {} links and {} flows",
                    spec.links.len(),
                    flows.len() + first
                ),
                needed: (row * SAMPLES_MIN).div_ceil(1_000_000),
                limit: spec.memory_limit / 1_000_000,
            });
        }
        let probe = Probe {
            start: self.now(),
            interval: spec.interval,
            samples: 0,
            rows,
            links: spec.links.into_iter().map(LinkSeries::new).collect(),
            flows: flows.into_iter().map(FlowSeries::new).collect(),
            flow_limit: first,
        };
        let first = self.now() + spec.interval;
        Ok(self.add_app(Box::new(probe), first))
    }

    /// Returns a probe, or `None` if the application is something else.
    pub fn probe(&self, id: AppId) -> Option<&Probe> {
        self.app(id)
    }
}
