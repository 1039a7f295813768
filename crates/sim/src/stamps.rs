//! Host clocks as seen in timestamps: stack noise, batching, offset and drift.
//!
//! The timestamps t1 to t4 of a connection are exact unless its host has a [`StampModel`]. A model
//! changes timestamps only, never the schedule: with and without it, the same packets are sent at
//! the same times, unless the congestion control uses timestamps.
//!
//! A timestamp is made in four steps. First, batching: departures within
//! [`batch`](StampModel::batch) share the time of the first, as a stack hands over a burst at once
//! (DX, slide 14). Arrivals share the end of the batch, as a NIC coalesces interrupts with a timer
//! that the first packet starts (slide 16). Second, [`jitter`](StampModel::jitter), drawn once per
//! batch, or per packet without batching. Third, the host's clock with its offset and drift. Last,
//! [`calibrate`](StampModel::calibrate) spreads the packets of a burst over their transmission
//! times on the host's link ([`ccplane_datapath::burst`]). Departures are spread completely,
//! arrivals only within a batch, since each is acknowledged before the rest of its batch has
//! arrived.

use ccplane_datapath::burst::StampCalibrator;
use ccplane_network::{
    LinkId, NodeId,
    random::{self, Purpose},
};
use ccplane_units::{Duration, Rate, Time};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use crate::{SimError, World};

/// Error model of a host's timestamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StampModel {
    /// Standard deviation of the errors caused by the stack, interrupts and the scheduler. Draws
    /// are independent, so long pauses that shift many packets together are not modelled.
    pub jitter: Duration,
    /// Distribution of the jitter.
    pub shape: JitterShape,
    /// Packets within this time of the first one of a batch share its timestamp; zero disables
    /// batching.
    pub batch: Duration,
    /// Initial clock offset, ns; positive if the clock is ahead.
    pub offset_ns: i64,
    /// Clock drift, parts in 10^9; positive if the clock is fast.
    pub drift_ppb: i64,
    /// Applies burst calibration, at the rate of the host's link.
    pub calibrate: bool,
}

/// Distribution of timestamp jitter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JitterShape {
    /// Exponential and one-sided, with a mean equal to the standard deviation: packets leave after
    /// they were stamped, and are stamped after they arrived. The median is 0.69 times the mean,
    /// the 99th percentile 4.6, the maximum 37.
    #[default]
    Exponential,
    /// Normal, two-sided.
    Normal,
}

impl StampModel {
    /// Exact timestamps.
    pub const EXACT: StampModel = StampModel {
        jitter: Duration::ZERO,
        shape: JitterShape::Exponential,
        batch: Duration::ZERO,
        offset_ns: 0,
        drift_ppb: 0,
        calibrate: false,
    };
}

impl World {
    /// Sets the error model of a host's timestamps.
    pub fn set_stamps(&mut self, host: NodeId, model: StampModel) -> Result<(), SimError> {
        let node = self.host_index(host)?;
        let rate = |link: LinkId| self.links.rate(link.0).unwrap_or_default();
        let all = || self.network.links();
        let out = all()
            .filter(|link| self.ends_of(link.0).0 == host)
            .map(rate);
        let into = all()
            .filter(|link| self.ends_of(link.0).1 == host)
            .map(rate);
        // With several links the fastest rate is used, a bound that holds for all of them.
        let rates = [out.max(), into.max()].map(Option::unwrap_or_default);
        let clock = StampClock::new(model, self.options.seed, node, rates);
        if self.clocks.hosts.is_empty() {
            self.clocks
                .hosts
                .resize_with(self.network.nodes().len(), || None);
            let from = |nic: &crate::host::Nic| self.ends_of(nic.link).0.0;
            self.clocks.host_of_nic = self.nics.iter().map(from).collect();
        }
        self.clocks.hosts[node as usize] = Some(Box::new(clock));
        Ok(())
    }
}

/// Clocks of the hosts that have a model; empty if none has.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    hosts: Vec<Option<Box<StampClock>>>,
    /// Host of each interface.
    host_of_nic: Vec<u32>,
}

impl Clocks {
    /// Returns true if no host has a model.
    #[inline(always)]
    pub fn is_exact(&self) -> bool {
        self.hosts.is_empty()
    }

    /// Returns the timestamp of a packet that departs on this interface.
    #[cold]
    #[inline(never)]
    pub fn departure(&mut self, nic: u32, now: Time, bytes: u32) -> Time {
        let host = self
            .host_of_nic
            .get(nic as usize)
            .copied()
            .unwrap_or(u32::MAX);
        self.host(host)
            .map_or(now, |clock| clock.departure(now, bytes))
    }

    /// Returns the timestamp of a packet that arrived at this host.
    #[cold]
    #[inline(never)]
    pub fn arrival(&mut self, host: u32, now: Time, bytes: u32) -> Time {
        self.host(host)
            .map_or(now, |clock| clock.arrival(now, bytes))
    }

    fn host(&mut self, host: u32) -> Option<&mut StampClock> {
        self.hosts.get_mut(host as usize)?.as_deref_mut()
    }

    /// Returns the heap memory, bytes.
    pub fn heap_bytes(&self) -> usize {
        let own = self.hosts.iter().flatten().count() * size_of::<StampClock>();
        own + self.hosts.capacity() * size_of::<Option<Box<StampClock>>>()
            + self.host_of_nic.capacity() * size_of::<u32>()
    }
}

/// Clock of a host. The true times of successive calls must not decrease.
#[derive(Debug)]
pub struct StampClock {
    model: StampModel,
    /// Departures and arrivals.
    directions: [StampDirection; 2],
}

impl StampClock {
    /// Creates the clock of the host with index `which`. `rates` are the rates of its outgoing and
    /// incoming link, 0 if there is none.
    pub fn new(model: StampModel, seed: u64, which: u32, rates: [Rate; 2]) -> StampClock {
        let seed = random::seed(seed, Purpose::Stamps, 0);
        let way = |way: u8, rate| {
            StampDirection::new(seed, u128::from(which) * 2 + u128::from(way), rate)
        };
        let [out, into] = rates;
        StampClock {
            model,
            directions: [way(0, out), way(1, into)],
        }
    }

    /// Returns the timestamp of a departing packet.
    pub fn departure(&mut self, now: Time, bytes: u32) -> Time {
        let [way, _] = &mut self.directions;
        let (begins, jitter) = way.next_batch(&self.model, now);
        let stamp = clock_reading(&self.model, shift(begins, -jitter));
        match self.model.calibrate {
            true => way.forward.calibrate(stamp, bytes, way.rate),
            false => stamp,
        }
    }

    /// Returns the timestamp of an arriving packet.
    pub fn arrival(&mut self, now: Time, bytes: u32) -> Time {
        let [_, way] = &mut self.directions;
        let (begins, jitter) = way.next_batch(&self.model, now);
        let stamp = clock_reading(&self.model, shift(begins + self.model.batch, jitter));
        match self.model.calibrate {
            true => way.forward.spread(stamp, bytes, way.rate),
            false => stamp,
        }
    }
}

/// Timestamp state of one direction of a host's link.
#[derive(Debug)]
struct StampDirection {
    random: Pcg64,
    rate: Rate,
    /// Start of the current batch, and its jitter in ns.
    batch: Option<(Time, i64)>,
    forward: StampCalibrator,
}

impl StampDirection {
    fn new(seed: u64, stream: u128, rate: Rate) -> StampDirection {
        StampDirection {
            random: Pcg64::new(u128::from(seed), stream),
            rate,
            batch: None,
            forward: StampCalibrator::default(),
        }
    }

    /// Returns the start of the packet's batch and its jitter.
    fn next_batch(&mut self, model: &StampModel, now: Time) -> (Time, i64) {
        let open = self
            .batch
            .filter(|(begins, _)| now.since(*begins) < model.batch);
        let batch = open.unwrap_or_else(|| (now, self.draw_jitter(model)));
        self.batch = Some(batch);
        batch
    }

    fn draw_jitter(&mut self, model: &StampModel) -> i64 {
        let deviation = model.jitter.as_nanos() as f64;
        if deviation == 0.0 {
            return 0;
        }
        let drawn = match model.shape {
            JitterShape::Exponential => -libm::log(self.draw_uniform()),
            // Box and Muller 1958.
            JitterShape::Normal => {
                let (radius, angle) = (-2.0 * libm::log(self.draw_uniform()), self.draw_uniform());
                libm::sqrt(radius) * libm::cos(2.0 * std::f64::consts::PI * angle)
            }
        };
        libm::round(deviation * drawn) as i64
    }

    /// Draws uniformly from (0, 1].
    fn draw_uniform(&mut self) -> f64 {
        ((self.random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

/// Returns the clock reading at a true time. It may wrap, as timestamps do.
fn clock_reading(model: &StampModel, at: Time) -> Time {
    let gained = i128::from(at.as_nanos()) * i128::from(model.drift_ppb) / 1_000_000_000;
    shift(at, model.offset_ns.wrapping_add(gained as i64))
}

/// Returns the later of two timestamps that may have wrapped.
pub(crate) fn later_stamp(a: Time, b: Time) -> Time {
    let ahead = a.as_nanos().wrapping_sub(b.as_nanos()) as i64;
    if ahead >= 0 { a } else { b }
}

fn shift(at: Time, by: i64) -> Time {
    Time::from_nanos(at.as_nanos().wrapping_add_signed(by))
}
