//! Clocks of hosts, as their time stamps show them: noise of the stack, batches, offset and drift.
//!
//! The stamps t1 to t4 of a connection are exact unless its host has a [`StampModel`]. A model
//! changes what is stamped, and never when anything moves: with and without it the same packets
//! pass at the same times, as long as the congestion control does not look at stamps.
//!
//! A stamp is made in four steps. First batching: departures within [`batch`](StampModel::batch)
//! share the time of the first, as a stack hands over a burst at once (DX, slide 14). Arrivals
//! share the batch's end, as a NIC reports several together (slide 16, and the interrupt timer of
//! every NIC, which the first packet starts). Then [`jitter`](StampModel::jitter), drawn once for a
//! batch, or for each packet without one. Then the host's clock, with its offset and drift. At last
//! [`calibrate`](StampModel::calibrate) spreads the packets of a burst over the time that they take
//! on the host's link ([`ccplane_datapath::burst`]). Departures are spread in full. Arrivals are
//! spread only within a batch, as each is acknowledged before the rest of its batch has arrived.

use ccplane_datapath::burst::Forward;
use ccplane_units::{Duration, Rate, Time};
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use crate::network::NodeId;
use crate::random::{self, Purpose};
use crate::{SimError, World};

/// How a host's time stamps differ from the truth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StampModel {
    /// How far stamps are from the truth, by the stack, the interrupts, the scheduler: a standard
    /// deviation. Each is drawn for itself, so that long pauses, which shift many packets together,
    /// are not in it.
    pub jitter: Duration,
    /// How that is distributed.
    pub shape: JitterShape,
    /// Packets within so long of the first of a batch share its stamp; zero: each has its own.
    pub batch: Duration,
    /// How far the clock is ahead, ns, at the beginning.
    pub offset_ns: i64,
    /// How much too fast it is, parts in 10^9.
    pub drift_ppb: i64,
    /// Whether burst calibration is applied, with the rate of the host's link.
    pub calibrate: bool,
}

/// How jitter is distributed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JitterShape {
    /// Exponentially, the standard deviation being the mean, and to one side: packets leave after
    /// they were stamped, and are stamped after they arrived. p50 is 0.69 of the mean, p99 4.6, at
    /// most 37.
    #[default]
    Exponential,
    /// Normally, to both sides.
    Normal,
}

impl StampModel {
    /// Stamps that are true.
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
    /// What a host's time stamps are like from now on.
    pub fn set_stamps(&mut self, host: NodeId, model: StampModel) -> Result<(), SimError> {
        let node = self.host_of(host)?;
        let rate = |link: usize| self.links.rate(link as u32).unwrap_or_default();
        let all = || self.network.links.iter().enumerate();
        let out = all()
            .filter(|(_, wire)| wire.from == node)
            .map(|(link, _)| rate(link));
        let into = all()
            .filter(|(_, wire)| wire.to == node)
            .map(|(link, _)| rate(link));
        // Of several links the fastest: a bound that holds for all of them.
        let rates = [out.max(), into.max()].map(Option::unwrap_or_default);
        let clock = StampClock::new(model, self.options.seed, node, rates);
        if self.clocks.hosts.is_empty() {
            self.clocks
                .hosts
                .resize_with(self.network.nodes.len(), || None);
            let from = |nic: &crate::host::Nic| self.network.links[nic.link as usize].from;
            self.clocks.of_nic = self.nics.iter().map(from).collect();
        }
        self.clocks.hosts[node as usize] = Some(Box::new(clock));
        Ok(())
    }
}

/// The clocks of all hosts that have one of their own; empty where none has.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    hosts: Vec<Option<Box<StampClock>>>,
    /// The host of each host's link.
    of_nic: Vec<u32>,
}

impl Clocks {
    /// No host has one.
    #[inline(always)]
    pub fn exact(&self) -> bool {
        self.hosts.is_empty()
    }

    /// The stamp of a packet of so many bytes that leaves by this link.
    #[cold]
    #[inline(never)]
    pub fn departure(&mut self, nic: u32, now: Time, bytes: u32) -> Time {
        let host = self.of_nic.get(nic as usize).copied().unwrap_or(u32::MAX);
        self.host(host)
            .map_or(now, |clock| clock.departure(now, bytes))
    }

    /// The stamp of a packet that has come to this host.
    #[cold]
    #[inline(never)]
    pub fn arrival(&mut self, host: u32, now: Time, bytes: u32) -> Time {
        self.host(host)
            .map_or(now, |clock| clock.arrival(now, bytes))
    }

    fn host(&mut self, host: u32) -> Option<&mut StampClock> {
        self.hosts.get_mut(host as usize)?.as_deref_mut()
    }

    /// Bytes on the heap.
    pub fn heap_bytes(&self) -> usize {
        let own = self.hosts.iter().flatten().count() * size_of::<StampClock>();
        own + self.hosts.capacity() * size_of::<Option<Box<StampClock>>>()
            + self.of_nic.capacity() * size_of::<u32>()
    }
}

/// The clock of a host: what it stamps at the true times that it is asked for, in their order.
#[derive(Debug)]
pub struct StampClock {
    model: StampModel,
    /// Departures, arrivals.
    ways: [Way; 2],
}

impl StampClock {
    /// Of the `which`-th host with this seed; its links out and in have these rates, 0 where there
    /// is none.
    pub fn new(model: StampModel, seed: u64, which: u32, rates: [Rate; 2]) -> StampClock {
        let seed = random::seed(seed, Purpose::Stamps, 0);
        let way = |way: u8, rate| Way::new(seed, u128::from(which) * 2 + u128::from(way), rate);
        let [out, into] = rates;
        StampClock {
            model,
            ways: [way(0, out), way(1, into)],
        }
    }

    /// The stamp of a packet of so many bytes that leaves.
    pub fn departure(&mut self, now: Time, bytes: u32) -> Time {
        let [way, _] = &mut self.ways;
        let (begins, jitter) = way.batch(&self.model, now);
        let stamp = shown(&self.model, moved(begins, -jitter));
        match self.model.calibrate {
            true => way.forward.calibrate(stamp, bytes, way.rate),
            false => stamp,
        }
    }

    /// The stamp of one that has come.
    pub fn arrival(&mut self, now: Time, bytes: u32) -> Time {
        let [_, way] = &mut self.ways;
        let (begins, jitter) = way.batch(&self.model, now);
        let stamp = shown(&self.model, moved(begins + self.model.batch, jitter));
        match self.model.calibrate {
            true => way.forward.spread(stamp, bytes, way.rate),
            false => stamp,
        }
    }
}

/// One direction of a host's link.
#[derive(Debug)]
struct Way {
    random: Pcg64,
    rate: Rate,
    /// When the batch began, and what is added to its stamp, ns.
    batch: Option<(Time, i64)>,
    forward: Forward,
}

impl Way {
    fn new(seed: u64, stream: u128, rate: Rate) -> Way {
        Way {
            random: Pcg64::new(u128::from(seed), stream),
            rate,
            batch: None,
            forward: Forward::default(),
        }
    }

    /// When the batch of a packet began, and its jitter.
    fn batch(&mut self, model: &StampModel, now: Time) -> (Time, i64) {
        let open = self
            .batch
            .filter(|(begins, _)| now.since(*begins) < model.batch);
        let batch = open.unwrap_or_else(|| (now, self.jitter(model)));
        self.batch = Some(batch);
        batch
    }

    fn jitter(&mut self, model: &StampModel) -> i64 {
        let deviation = model.jitter.as_nanos() as f64;
        if deviation == 0.0 {
            return 0;
        }
        let drawn = match model.shape {
            JitterShape::Exponential => -libm::log(self.uniform()),
            // Box and Muller 1958.
            JitterShape::Normal => {
                let (radius, angle) = (-2.0 * libm::log(self.uniform()), self.uniform());
                libm::sqrt(radius) * libm::cos(2.0 * std::f64::consts::PI * angle)
            }
        };
        libm::round(deviation * drawn) as i64
    }

    /// A draw from (0, 1].
    fn uniform(&mut self) -> f64 {
        ((self.random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

/// What the clock shows at a time. It wraps, as stamps may.
fn shown(model: &StampModel, at: Time) -> Time {
    let gained = i128::from(at.as_nanos()) * i128::from(model.drift_ppb) / 1_000_000_000;
    moved(at, model.offset_ns.wrapping_add(gained as i64))
}

/// The later of two stamps.
pub(crate) fn later(a: Time, b: Time) -> Time {
    let ahead = a.as_nanos().wrapping_sub(b.as_nanos()) as i64;
    if ahead >= 0 { a } else { b }
}

fn moved(at: Time, by: i64) -> Time {
    Time::from_nanos(at.as_nanos().wrapping_add_signed(by))
}
