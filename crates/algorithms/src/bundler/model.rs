//! Fluid model of a bottleneck with bundles and cross traffic, in steps of a tick, that runs the
//! program and the agent together.
//!
//! The bottleneck is a FIFO: the arrivals of a tick leave after the backlog, in the proportion in
//! which they arrived. Each bundle's gateway has a queue that its site fills, and measures what a
//! real one would: S and R of the same bytes over an RTT, the RTT, and its own queue. Cross traffic
//! is a constant rate, or Cubic-like flows with an ACK-clocked window that grows and is reduced at
//! a loss.

use std::collections::VecDeque;

use ccplane_datapath::{Capabilities, Signals};
use ccplane_units::{Duration, stats};

use crate::script::{Script, everything};

pub(super) const TICK_SECONDS: f64 = 0.01;
/// Pacing of cross traffic as a multiple of window/RTT, as in Linux. Without it, the gap left by a
/// loss would recur forever.
const CROSS_PACING_GAIN: f64 = 1.2;
/// Segment size of a bundle's datapath.
const SEGMENT_BYTES: f64 = 1_500.0;

/// Returns the capabilities of a gateway's datapath: all but loss recovery.
fn gateway() -> Capabilities {
    Capabilities(everything().0 & !Capabilities::RECOVERY.0)
}

/// Data sent in one tick: bytes that arrive, and the times at which the last left the gateway, left
/// the bottleneck and was acknowledged.
#[derive(Clone, Copy)]
struct ModelBatch {
    bytes: f64,
    sent: f64,
    out: f64,
    back: f64,
    rtt: f64,
}

/// Traffic of a site.
pub(super) enum SiteLoad {
    /// Constant rate, bytes/s.
    Constant(f64),
    /// Cubic-like flow, with its bytes in flight.
    Elastic(CubicWindow, f64),
}

/// One bundle.
pub(super) struct ModelBundle {
    pub script: Script,
    pub site: SiteLoad,
    /// Gateway's queue and its capacity, bytes.
    pub queue: f64,
    room: f64,
    /// The gateway limits. Starts when there is a queue in the network.
    pub limits: bool,
    /// Batches in flight, and batches acknowledged within the last RTT.
    flying: VecDeque<ModelBatch>,
    back: VecDeque<ModelBatch>,
    shortest: f64,
    /// Total bytes delivered.
    pub delivered: f64,
    /// Gateway's queue at each tick, as time of the link.
    pub own: Vec<f64>,
    /// Traffic-passing mode and pulser role at each tick.
    pub passed: Vec<bool>,
    pub pulsed: Vec<bool>,
}

impl ModelBundle {
    pub fn new(parameters: &str, site: SiteLoad) -> ModelBundle {
        let mut script = Script::on(gateway(), "bundler", parameters).expect("a gateway suffices");
        script.usual = Signals {
            mss: SEGMENT_BYTES as u64,
            ..Signals::default()
        };
        ModelBundle {
            script,
            site,
            queue: 0.0,
            room: 1_875_000.0,
            limits: false,
            flying: VecDeque::new(),
            back: VecDeque::new(),
            shortest: f64::INFINITY,
            delivered: 0.0,
            own: Vec::new(),
            passed: Vec::new(),
            pulsed: Vec::new(),
        }
    }

    /// Returns the bytes sent in a tick, and whether the queue was empty at some time.
    fn sends(&mut self) -> (f64, bool) {
        let comes = match &mut self.site {
            SiteLoad::Constant(rate) => *rate * TICK_SECONDS,
            SiteLoad::Elastic(window, under_way) => {
                let comes = (window.bytes - *under_way).max(0.0);
                *under_way += comes;
                comes
            }
        };
        let has = self.queue + comes;
        let may = if self.limits {
            self.script.transport.rate as f64 * TICK_SECONDS
        } else {
            has
        };
        let sent = has.min(may);
        let over = (has - sent - self.room).max(0.0);
        self.queue = has - sent - over;
        self.is_lost(over);
        (sent, has <= may)
    }

    /// Removes lost bytes of the site.
    fn is_lost(&mut self, bytes: f64) {
        if let SiteLoad::Elastic(window, under_way) = &mut self.site {
            *under_way -= bytes;
            if bytes > 0.0 {
                window.cut();
            }
        }
    }
}

/// Cubic-like window.
pub(super) struct CubicWindow {
    bytes: f64,
    /// Window before the last reduction, bytes, and seconds since then.
    before: f64,
    since: f64,
    /// Target of the reduction, approached by three tenths of the data delivered (as RFC 9937;
    /// otherwise a gap would recur).
    cut: f64,
}

impl CubicWindow {
    pub fn new() -> CubicWindow {
        CubicWindow {
            bytes: 30_000.0,
            before: f64::INFINITY,
            since: 0.0,
            cut: f64::INFINITY,
        }
    }

    /// Grows the window: slow start, then the cubic function around the window before the
    /// reduction.
    fn acked(&mut self, bytes: f64) {
        if self.bytes > self.cut {
            self.bytes = (self.bytes - 0.3 * bytes).max(self.cut);
            return;
        }
        self.cut = f64::INFINITY;
        self.bytes += if self.before.is_infinite() {
            bytes
        } else {
            let k = libm::cbrt(self.before * 0.3 / SEGMENT_BYTES / 0.4);
            let target = self.before + SEGMENT_BYTES * 0.4 * libm::pow(self.since - k, 3.0);
            ((target - self.bytes).max(0.0) * bytes / self.bytes).min(bytes * 0.5)
        };
    }

    /// Reduces the window at a loss, at most once per 200 ms.
    fn cut(&mut self) {
        if self.since > 0.2 {
            self.before = self.bytes;
            self.cut = (self.bytes * 0.7).max(2.0 * SEGMENT_BYTES);
            self.since = 0.0;
        }
    }
}

/// Cross-traffic flow.
pub(super) struct Elastic {
    window: CubicWindow,
    /// RTT in addition to the bundles', seconds.
    farther: f64,
    flying: VecDeque<(f64, f64)>,
}

impl Elastic {
    pub fn new(farther: f64) -> Elastic {
        Elastic {
            window: CubicWindow::new(),
            farther,
            flying: VecDeque::new(),
        }
    }
}

/// The bottleneck and all its traffic.
pub(super) struct ModelLink {
    pub rate: f64,
    pub rtt: f64,
    pub buffer: f64,
    pub bundles: Vec<ModelBundle>,
    pub elastic: Vec<Elastic>,
    /// Constant cross traffic, bytes/s.
    pub constant: f64,
    /// Maximum deviation of the delay per direction due to jitter, seconds; order is preserved.
    pub jitter: f64,
    draws: u64,
    now: f64,
    backlog: f64,
    /// Queue in the network at each tick, seconds.
    pub queue: Vec<f64>,
}

impl ModelLink {
    /// 96 Mbit/s and 50 ms, with a buffer of 100 ms.
    pub fn new(bundles: Vec<ModelBundle>) -> ModelLink {
        ModelLink {
            rate: 12e6,
            rtt: 0.05,
            buffer: 0.1,
            bundles,
            elastic: Vec::new(),
            constant: 0.0,
            jitter: 0.0,
            draws: 1,
            now: 0.0,
            backlog: 0.0,
            queue: Vec::new(),
        }
    }

    pub fn run(&mut self, seconds: f64) {
        for _ in 0..(seconds / TICK_SECONDS).round() as u64 {
            self.tick();
        }
    }

    /// Returns the jitter delay, above the minimum, of a direction whose packets are `gap` seconds
    /// apart. With order preserved, a packet waits for the slowest of those just before it: the
    /// delay is below the maximum, 2 J, by more than x with probability exp(−x² / 4 J g).
    fn delayed(&mut self, gap: f64) -> f64 {
        self.draws = ccplane_agent::rng::finalize(self.draws);
        let part = (self.draws >> 11) as f64 / (1_u64 << 53) as f64;
        (2.0 * self.jitter - libm::sqrt(-4.0 * self.jitter * gap * libm::log(part.max(1e-9))))
            .max(0.0)
    }

    /// Returns the mean over the last `seconds` of a time series.
    pub fn lately<T: Copy>(course: &[T], seconds: f64, value: impl Fn(T) -> f64) -> f64 {
        let last =
            &course[course.len() - ((seconds / TICK_SECONDS).round() as usize).min(course.len())..];
        stats::mean(last.iter().map(|v| value(*v))).unwrap_or(0.0)
    }

    fn tick(&mut self) {
        self.now += TICK_SECONDS;
        let now = self.now;
        // All senders send.
        let sent: Vec<(f64, bool)> = self.bundles.iter_mut().map(ModelBundle::sends).collect();
        for flow in &mut self.elastic {
            while flow.flying.front().is_some_and(|(at, _)| *at <= now) {
                let (_, bytes) = flow.flying.pop_front().unwrap_or_default();
                flow.window.acked(bytes);
            }
            flow.window.since += TICK_SECONDS;
        }
        let others: Vec<f64> = self
            .elastic
            .iter()
            .map(|flow| {
                let under_way = flow.flying.iter().map(|(_, bytes)| bytes).sum::<f64>();
                let paced = CROSS_PACING_GAIN * flow.window.bytes * TICK_SECONDS
                    / (self.rtt + flow.farther + self.backlog / self.rate);
                (flow.window.bytes - under_way).clamp(0.0, paced)
            })
            .collect();
        let all = sent.iter().map(|(bytes, _)| bytes).sum::<f64>()
            + others.iter().sum::<f64>()
            + self.constant * TICK_SECONDS;
        // FIFO: this tick's arrivals have left when the backlog before them and they themselves
        // have.
        let over = self.backlog + all - self.rate * self.buffer;
        let lost = if over > 0.0 {
            (over / all).min(1.0)
        } else {
            0.0
        };
        let kept = all * (1.0 - lost);
        // Arrivals are spread over the tick, and the last of them leaves when the data before it
        // has.
        let first = now - TICK_SECONDS + self.backlog / self.rate;
        self.backlog = (self.backlog + kept - self.rate * TICK_SECONDS).max(0.0);
        let out = now + self.backlog / self.rate;
        self.queue.push(self.backlog / self.rate);
        let late: Vec<(f64, f64)> = sent
            .iter()
            .map(|(bytes, _)| match self.jitter > 0.0 && *bytes > 0.0 {
                true => (
                    self.delayed(SEGMENT_BYTES / bytes * TICK_SECONDS),
                    self.delayed((SEGMENT_BYTES / bytes * TICK_SECONDS).max(0.002)),
                ),
                false => (0.0, 0.0),
            })
            .collect();
        for ((bundle, (bytes, empty)), (there, here)) in
            self.bundles.iter_mut().zip(&sent).zip(late)
        {
            if *bytes > 0.0 {
                let last = bundle
                    .flying
                    .back()
                    .map_or((0.0, 0.0), |last| (last.out, last.back));
                let out = (out + there).max(last.0);
                let back = (out + self.rtt + here).max(last.1);
                bundle.flying.push_back(ModelBatch {
                    bytes: bytes * (1.0 - lost),
                    sent: now,
                    out,
                    back,
                    rtt: back - now,
                });
            }
            bundle.tick(now, self.rtt, self.rate, lost * bytes, *empty);
        }
        for (flow, bytes) in self.elastic.iter_mut().zip(&others) {
            // The ACKs arrive as spread out as the data left.
            let ticks = ((out - first) / TICK_SECONDS).round().max(1.0);
            for tick in 1..=(ticks as u32) {
                let at = first + (out - first) * f64::from(tick) / ticks + self.rtt + flow.farther;
                if *bytes > 0.0 {
                    flow.flying.push_back((at, bytes * (1.0 - lost) / ticks));
                }
            }
            if lost > 0.0 && *bytes > 0.0 {
                flow.window.cut();
            }
        }
    }
}

impl ModelBundle {
    /// Runs the gateway's tick: processes the batches acknowledged by now, then the program.
    fn tick(&mut self, now: f64, path: f64, link: f64, lost: f64, empty: bool) {
        let mut bytes = 0.0;
        while self.flying.front().is_some_and(|batch| batch.back <= now) {
            if let Some(batch) = self.flying.pop_front() {
                bytes += batch.bytes;
                self.back.push_back(batch);
            }
        }
        // Rates between batches one RTT apart: the bytes after the first, over the time between the
        // two at either end.
        while self.back.len() > 2
            && self
                .back
                .get(1)
                .is_some_and(|batch| batch.back <= now - path)
        {
            self.back.pop_front();
        }
        self.delivered += bytes;
        self.is_lost(lost);
        if let SiteLoad::Elastic(window, under_way) = &mut self.site {
            *under_way -= bytes;
            window.acked(bytes);
            window.since += TICK_SECONDS;
        }
        let ends = self.back.front().copied().zip(self.back.back().copied());
        let signals = match ends.filter(|_| self.back.len() > 1) {
            None => self.script.usual,
            Some((first, last)) => {
                let arrived = self
                    .back
                    .iter()
                    .skip(1)
                    .map(|batch| batch.bytes)
                    .sum::<f64>();
                let rate = |time: f64| (arrived / time.max(0.001)) as u64;
                let rtt = last.rtt;
                self.shortest = self.shortest.min(rtt);
                let us = |seconds: f64| (seconds * 1e6).max(1.0) as u64;
                Signals {
                    bytes_acked: bytes as u64,
                    packets_acked: (bytes / SEGMENT_BYTES) as u64,
                    lost_pkts_sample: (lost / SEGMENT_BYTES) as u64,
                    rate_outgoing: rate(last.sent - first.sent),
                    rate_incoming: rate(last.out - first.out),
                    rtt_sample_us: us(rtt),
                    srtt_us: us(rtt),
                    min_rtt_us: us(self.shortest),
                    bytes_pending: self.queue as u64,
                    app_limited: u64::from(empty),
                    cwnd_limited: u64::from(self.limits && self.queue > 0.0),
                    ..self.script.usual
                }
            }
        };
        // The gateway limits once the RTT shows a queue; until then, commands have no effect.
        let queue = signals.rtt_sample_us as f64 > 1.25 * signals.min_rtt_us as f64 + 500.0;
        if !self.limits && queue {
            self.limits = true;
            self.script.transport.rate = signals.rate_incoming;
            self.script.transport.cwnd = signals.rate_incoming * signals.rtt_sample_us / 1_000_000;
        }
        let _ = self.script.call(Duration::from_millis(10), &signals);
        if !self.limits {
            self.script.transport.rate = 0;
        }
        self.own.push(self.queue / link);
        self.passed.push(self.script.gauge("mode") == Some(1.0));
        self.pulsed.push(self.script.gauge("pulser") == Some(1.0));
    }
}
