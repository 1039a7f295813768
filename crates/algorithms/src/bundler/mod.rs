//! Bundler: what a gateway runs for all that its site sends to another (Cangialosi, Narayan, Goyal, Mittal, Alizadeh, Balakrishnan,
//! "Site-to-Site Internet Traffic Control", EuroSys 2021), of Nimbus' parts.
//!
//! A bundle is a flow whose datapath, the gateway, has a queue of its own. In delay mode a law keeps the queue in the network short, so that
//! the queue stands in the gateway, which schedules it. Beside others who fill the network's queue that would give them the link; there the
//! gateway lets traffic pass. It keeps 10 ms, which is what the pulse needs that shows whether those others are still there.
//!
//! When to limit at all is the gateway's own decision: until it does, `Rate` is 0, the algorithm only watches, and nothing that it says has
//! an effect.

mod election;
mod law;
mod need;
mod passage;
mod path;
mod program;

use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, boxed};
use ccplane_datapath::{Capabilities, INFINITY};
use ccplane_units::{Duration, Time};

use crate::dice::{Dice, scatter};
use crate::nimbus::{
    Capacity, DelayMode, Detector, Estimate, Fourier, HEIGHT, INTERVAL, Mode, Now, Pulse, Reading, Sample, WIDE, WINDOW,
};
use crate::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters};

use election::{Election, LISTENS, Role};
use law::{FLOOR, Law};
use need::Need;
use passage::Passage;
use path::Path;

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "bundler",
    doc: "Bundler (EuroSys 2021), for gateways: moves a site's queue to where it can be scheduled, and passes where others fill it",
    parameters: &[
        ParameterDoc {
            name: "law",
            default: "copa",
            values: "copa | basic",
            doc: "what keeps the network's queue short: the window of Copa's form, or BasicDelay",
        },
        ParameterDoc {
            name: "pulse",
            default: "auto",
            values: "auto | always | off",
            doc: "the pulse that finds elastic cross traffic; auto: only while there may be some",
        },
        ParameterDoc {
            name: "switching",
            default: "on",
            values: "on | off",
            doc: "let traffic pass beside elastic cross traffic; off: the mode that it starts in, always",
        },
        ParameterDoc {
            name: "election",
            default: "on",
            values: "on | off",
            doc: "of several bundles at one bottleneck one pulses and the others follow it",
        },
        ParameterDoc {
            name: "start",
            default: "delay",
            values: "delay | passing",
            doc: "the mode in which a limit begins",
        },
        ParameterDoc {
            name: "target",
            default: "10ms",
            values: "a duration of 1ms to 1s",
            doc: "the gateway's own queue while traffic passes; the pulse needs 8 ms",
        },
        ParameterDoc {
            name: "seed",
            default: "0",
            values: "a number",
            doc: "sets the draws of the election apart, beside the flow's number and what it measures",
        },
    ],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    let on_off = &[("on", true), ("off", false)];
    let target = parameters.read("target", TARGET)?;
    if !(Duration::from_millis(1)..=Duration::from_secs(1)).contains(&target) {
        return Err(BadParameter::value("target", target.to_string(), "1ms to 1s"));
    }
    Ok(boxed(Bundler {
        law: parameters.choice(
            "law",
            DelayMode::Copa,
            &[("copa", DelayMode::Copa), ("basic", DelayMode::Basic)],
        )?,
        pulses: parameters.choice(
            "pulse",
            Pulses::Auto,
            &[("auto", Pulses::Auto), ("always", Pulses::Always), ("off", Pulses::Off)],
        )?,
        switching: parameters.choice("switching", true, on_off)?,
        election: parameters.choice("election", true, on_off)?,
        start: parameters.choice(
            "start",
            Mode::Delay,
            &[("delay", Mode::Delay), ("passing", Mode::Competitive)],
        )?,
        target: target.as_secs_f64(),
        seed: parameters.read("seed", 0)?,
        fourier: Fourier::new(),
    }))
}

/// The gateway's queue while traffic passes (the Bundler paper's q_T, section 5.1): 8 ms that a pulse of a quarter of the link takes at 5 Hz,
/// and 2 ms more. Shorter and the pulse ends with the queue, longer and everybody waits for nothing.
const TARGET: Duration = Duration::from_millis(10);
/// Samples between two spectra: η moves over seconds.
const READ_EVERY: u32 = 10;
/// Intervals to which a bundle goes back for the rate at which it begins to pass: before the spectrum could show that others came
/// (reference: 5 s).
const BEFORE: usize = 500;
/// How far from its frequency the pulse counts in delay mode, Hz: a bin on either side. The next tone is two away, and is no answer. In
/// passing the RTT moves by more and spreads the answer, and there it is [`WIDE`].
const NARROW: f64 = 0.2;
/// While it passes, a flat R is the capacity only below this part of what that was.
const SLOWER: f64 = 0.7;
/// Pulses of less than this do not fill the window yet: what it shows is of before as well.
const FULL: Duration = Duration::from_millis(5_120);
/// When a limit begins, µ is what arrives, and beside others that is a share. So it pulses first, until the pulse has shown µ, but no longer
/// than this, seconds: a window to fill and three seconds in which readings agree, and as much again.
const LOOKS: f64 = 16.0;
/// Without an acknowledged byte for so long there is no queue to look at, seconds, or two RTTs.
const IDLE: f64 = 0.25;
/// The window is more than the rate needs, so that the rate is what limits; the sendbox takes the smaller of the rate and window/RTT.
const ROOM: f64 = 2.0;
/// Least window, segments.
const LEAST_SEGMENTS: f64 = 10.0;
/// A watcher's rate is low-passed at 4 Hz (ours), or the pulse, which moves its RTT, would come back in its rate and look like an answer. Two
/// such filters in a row leave 0.3 of 6 Hz and 0.4 of 5 Hz; lower, and the law is late.
const LOW_PASS_HZ: f64 = 4.0;
/// Most rate, bytes/s, and most window, bytes: beyond every link.
const MOST_RATE: f64 = 1e15;

/// When to pulse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pulses {
    /// While there may be somebody to find.
    Auto,
    Always,
    Off,
}

/// The algorithm.
pub struct Bundler {
    law: DelayMode,
    pulses: Pulses,
    switching: bool,
    election: bool,
    start: Mode,
    /// Seconds.
    target: f64,
    seed: u64,
    fourier: Fourier,
}

/// State of a bundle: 6 KiB of samples and less than 1 KiB beside.
pub struct Flow {
    mss: f64,
    /// It is a transport's own flow, which repairs its losses and has no queue of others.
    own: bool,
    last: Time,
    /// When the next sample is due.
    due: Time,
    unread: u32,
    /// When something arrived last.
    heard: Time,
    open: bool,
    /// No pulse will say what others are, nor what µ is.
    blind: bool,
    path: Path,
    detector: Detector,
    capacity: Estimate,
    /// A pulse has shown µ since the limit began; how long it has been looked for, seconds.
    known: bool,
    looked: f64,
    need: Need,
    passage: Passage,
    election: Election,
    law: Law,
    /// Of the delay mode, without the pulse, bytes/s.
    rate: f64,
    /// The low-passes of a watcher, bytes/s.
    smooth: [f64; 2],
    /// Of the pulse, in periods.
    phase: f64,
    /// Where passing begins, bytes/s.
    from: f64,
}

/// A report, in seconds and bytes.
struct Tick {
    now: Time,
    elapsed: f64,
    acked: f64,
    lost: f64,
    sent: f64,
    received: f64,
    rtt: f64,
    limited: bool,
}

impl Flow {
    fn capacity(&self, tick: &Tick) -> f64 {
        self.capacity.get().max(self.mss / tick.rtt)
    }

    /// ẑ = µ·S/R − S, bytes/s.
    fn cross(&self, tick: &Tick, capacity: f64) -> f64 {
        capacity * tick.sent / tick.received - tick.sent
    }

    /// Nothing arrives, and the RTT is of before.
    fn idle(&self, tick: &Tick) -> bool {
        tick.now.since(self.heard).as_secs_f64() > IDLE.max(2.0 * tick.rtt)
    }

    /// The queue in the network, seconds; none where nothing arrives.
    fn queueing(&self, tick: &Tick) -> f64 {
        if self.idle(tick) {
            0.0
        } else {
            (tick.rtt - self.path.base()).max(0.0)
        }
    }

    /// A limit is in force from now on: there is a queue to move.
    fn begin(&mut self, tick: &Tick, algorithm: &Bundler, dice: Dice) {
        self.open = false;
        self.blind = self.own || !algorithm.switching || algorithm.pulses == Pulses::Off;
        self.rate = tick.received;
        self.smooth = [self.rate; 2];
        self.law = Law::at(algorithm.law, self.rate, tick.rtt, self.path.base());
        (self.known, self.looked) = (false, 0.0);
        self.need = Need::since(tick.now);
        self.election = Election::new(tick.now, dice, algorithm.election && !self.own);
        let mode = if self.own { Mode::Delay } else { algorithm.start };
        self.passage = Passage::of(mode);
        self.from = tick.received;
    }

    /// Nothing is limited from now on: no mode is in force, and nobody pulses.
    fn end(&mut self, now: Time) {
        self.open = true;
        self.passage = Passage::of(Mode::Delay);
        self.election.stop(now);
    }

    /// The mode is another from now on.
    fn change(&mut self, tick: &Tick, next: Mode, law: DelayMode) {
        self.passage = Passage::of(next);
        self.election.retune(tick.now);
        match next {
            Mode::Competitive => self.from = f64::from(self.detector.ago(BEFORE).received),
            Mode::Delay => {
                self.rate = tick.received;
                self.smooth = [self.rate; 2];
                self.law = Law::at(law, self.rate, tick.rtt, self.path.base());
            }
        }
    }

    /// The samples of this tick into everything that keeps them.
    fn keep(&mut self, tick: &Tick) {
        let queueing = self.queueing(tick);
        let sample = Sample {
            sent: tick.sent as f32,
            received: tick.received as f32,
            queueing: queueing as f32,
        };
        // After a silence the old samples are not of the same time.
        if tick.now.since(self.due) > INTERVAL * (WINDOW as u64 / 4) {
            self.detector.clear();
            self.due = tick.now;
        }
        // Beside others what arrives is a share, and says nothing of the link. While nothing is limited it is what the site sends.
        // Without a pulse nothing tells others from a µ that is too large, which would then be too large for ever.
        let ages = self.open || self.blind || (self.passage.mode() == Mode::Delay && !self.need.somebody());
        while self.due <= tick.now {
            self.due += INTERVAL;
            self.detector.push(sample);
            self.capacity.push(tick.now, f64::from(sample.received), ages);
            self.unread += 1;
        }
        let capacity = self.capacity(tick);
        let (cross, aim) = (self.cross(tick, capacity) / capacity, self.aim(capacity));
        self.need.seen(tick.now, tick.elapsed, (cross, tick.rtt), queueing, aim);
    }

    /// The queue that the law aims at, seconds.
    fn aim(&self, capacity: f64) -> f64 {
        let base = self.path.base();
        self.law.aim(base, Law::bounds(capacity, self.mss, base))
    }

    /// The rate of the delay mode from what was measured, bytes/s.
    fn steer(&mut self, tick: &Tick, capacity: f64) -> f64 {
        if self.path.drains() {
            return (path::LEFT * self.rate).max(law::floor(capacity));
        }
        let seen = Now {
            sent: tick.sent,
            cross: self.cross(tick, capacity),
            capacity,
            rtt: tick.rtt,
            base: self.path.base(),
            acked: tick.acked,
            mss: self.mss,
            aim: Law::bounds(capacity, self.mss, self.path.base()),
        };
        let lost = tick.lost * self.mss;
        self.rate = self.law.rate(&seen, tick.elapsed, lost, tick.limited, self.rate);
        if self.passage.mode() == Mode::Delay {
            self.keep_part(tick, capacity);
        }
        // x/(1 + x) of the way for x = 2πf·t is this filter's step.
        let step = std::f64::consts::TAU * LOW_PASS_HZ * tick.elapsed;
        let gain = step / (1.0 + step);
        self.smooth[0] += gain * (self.rate - self.smooth[0]);
        self.smooth[1] += gain * (self.smooth[0] - self.smooth[1]);
        if self.election.hears() && self.election.role() == Role::Watcher {
            self.smooth[1]
        } else {
            self.rate
        }
    }

    /// Beside others the law does not leave everything at once: until it is known whether they answer.
    fn keep_part(&mut self, tick: &Tick, capacity: f64) {
        let hinders = !self.blind && self.need.pulses(tick.now);
        let least = match hinders {
            true => Passage::keeps(f64::from(self.detector.ago(BEFORE).received), capacity),
            false => 0.0,
        };
        let wants_less = self.rate < least;
        if wants_less {
            self.rate = least;
            self.law.hold(least, tick.rtt);
        }
        let queue = if hinders { self.queueing(tick) } else { 0.0 };
        self.passage.seen(tick.now, queue, self.aim(capacity), wants_less);
    }

    /// What the pulse adds now, bytes/s.
    fn pulse(&mut self, tick: &Tick, capacity: f64) -> f64 {
        if self.election.role() == Role::Watcher {
            self.phase = 0.0;
            return 0.0;
        }
        self.looked += tick.elapsed;
        self.phase += tick.elapsed * self.election.frequency(self.passage.mode());
        HEIGHT * capacity * Pulse::at(self.phase)
    }
}

impl Bundler {
    /// Whether this bundle is to find out what others are.
    fn wants(&self, flow: &Flow, now: Time) -> bool {
        let asked = match self.pulses {
            Pulses::Off => false,
            Pulses::Always => true,
            Pulses::Auto => {
                let looks = !flow.known && flow.looked < LOOKS;
                looks || flow.need.pulses(now) || flow.passage.mode() == Mode::Competitive
            }
        };
        asked && self.switching && !flow.own
    }

    /// What the spectra of the last samples say, each tenth of a second.
    fn read(&mut self, flow: &mut Flow, tick: &Tick) {
        let (now, count) = (tick.now, flow.unread);
        flow.unread = 0;
        let capacity = flow.capacity(tick);
        let mode = flow.passage.mode();
        let frequency = flow.election.frequency(mode);
        if flow.election.role() == Role::Pulser
            && self.election
            && let Some(spectra) = flow.detector.spectra(&mut self.fourier, capacity, LISTENS)
        {
            flow.election.as_pulser(now, &spectra, mode, count);
        }
        let width = match mode {
            Mode::Delay => NARROW,
            Mode::Competitive => WIDE,
        };
        let reading = flow.detector.read_within(&mut self.fourier, capacity, frequency, width);
        if let Some(reading) = reading {
            let shows = flow.election.pulsing(now) >= FULL && !flow.election.is_foreign();
            let shown = match reading.capacity {
                Capacity::Shared(_) if !shows => Capacity::Unknown,
                // Beside little elastic traffic R is nearly flat, too. A link that became slower is much slower.
                Capacity::Alone(rate) if mode == Mode::Competitive && rate > SLOWER * capacity => Capacity::Unknown,
                shown => shown,
            };
            flow.known |= flow.capacity.learn(shown);
        }
        match flow.election.role() {
            Role::Pulser => self.judge(flow, tick, reading, count),
            Role::Watcher => self.watch(flow, tick, count),
        }
    }

    /// A pulser that passes finds out whether others still answer.
    fn judge(&mut self, flow: &mut Flow, tick: &Tick, reading: Option<Reading>, count: u32) {
        if !self.wants(flow, tick.now) {
            flow.election.stop(tick.now);
            return;
        }
        let Some(reading) = reading.filter(|_| flow.passage.mode() == Mode::Competitive) else {
            return;
        };
        // The window is of its own tone alone, and of nobody else's.
        let ripe = flow.election.pulsing(tick.now) >= FULL && !flow.election.is_foreign();
        let capacity = flow.capacity(tick);
        if Passage::is_over(&reading) || (ripe && flow.passage.leaves(&reading, capacity, count)) {
            flow.change(tick, Mode::Delay, self.law);
        }
    }

    /// A watcher follows the pulse that it hears, or begins one.
    fn watch(&mut self, flow: &mut Flow, tick: &Tick, count: u32) {
        if flow.own {
            return;
        }
        let (now, capacity) = (tick.now, flow.capacity(tick));
        let wants = self.wants(flow, now);
        if !self.election {
            if wants {
                flow.election.begin(now);
            }
            return;
        }
        let rtt = Duration::from_nanos((tick.rtt.min(10.0) * 1e9) as u64);
        if !flow.election.listens(now, rtt) {
            return;
        }
        let mode = flow.passage.mode();
        if let Some(spectra) = flow.detector.spectra(&mut self.fourier, capacity, LISTENS) {
            let turned = flow
                .election
                .as_watcher(&spectra, mode, tick.received / capacity, count);
            // What nobody is there to compete for, no pulse of others makes worth it.
            let turned = turned.filter(|next| *next == Mode::Delay || flow.need.somebody());
            if let Some(next) = turned.filter(|_| self.switching) {
                flow.change(tick, next, self.law);
            }
        }
        // One whose queue its law does not move does not trust what it hears.
        let free = !flow.election.hears() || (mode == Mode::Delay && flow.need.suffers(now));
        let measured = scatter(tick.sent.to_bits()) ^ scatter(tick.received.to_bits()) ^ tick.rtt.to_bits();
        // What it had before the others came: by now they may have taken it.
        let had = tick.sent.max(f64::from(flow.detector.ago(BEFORE).received));
        let urgent = flow.need.pulses(now) || mode == Mode::Competitive;
        if wants && free && flow.election.begins(had / capacity, urgent, count, measured) {
            flow.election.begin(now);
        }
    }

    fn dice(&self, control: &Control<'_>) -> Dice {
        let flow = control.this().map_or(0, |id| Dice::of(id).0);
        Dice(scatter(flow.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ scatter(self.seed))
    }

    fn order(&self, flow: &mut Flow, tick: &Tick, control: &mut Control<'_>) {
        let capacity = flow.capacity(tick);
        let rate = flow.steer(tick, capacity);
        if flow.passage.enters(tick.now) {
            flow.change(tick, Mode::Competitive, self.law);
        }
        let pulse = flow.pulse(tick, capacity);
        let passes = flow.passage.mode() == Mode::Competitive;
        let bytes = |value: f64| value.clamp(0.0, MOST_RATE) as u64;
        let most = law::most(capacity);
        let window = (ROOM * (most + HEIGHT * capacity) * tick.rtt).max(LEAST_SEGMENTS * flow.mss);
        for (name, value) in [
            ("passing", u64::from(passes)),
            ("from", bytes(flow.from)),
            ("delay", bytes(rate).max(1)),
            ("up", bytes(pulse)),
            ("down", bytes(-pulse)),
            ("goal", bytes(self.target * capacity)),
            ("least", bytes(FLOOR)),
            ("most", bytes(most)),
            ("window", bytes(window)),
        ] {
            control.set(name, value);
        }
    }

    /// For people.
    fn tell(&self, flow: &Flow, tick: &Tick, control: &mut Control<'_>) {
        let capacity = flow.capacity(tick);
        let passes = flow.passage.mode() == Mode::Competitive;
        let truth = |value: bool| f64::from(u8::from(value));
        control.gauge("mode", truth(passes));
        control.gauge("pulser", truth(flow.election.role() == Role::Pulser));
        control.gauge("eta", flow.passage.answer());
        control.gauge("cross", flow.need.cross() * capacity);
        control.gauge("capacity", capacity);
        control.gauge("target", if passes { self.target } else { flow.aim(capacity) });
    }
}

impl Algorithm for Bundler {
    type Flow = Flow;

    fn name(&self) -> &str {
        DOC.name
    }

    fn programs(&self) -> Programs {
        Programs::new().with("bundler", program::PROGRAM)
    }

    fn needs(&self) -> Capabilities {
        let rates = Capabilities::PACING.with(Capabilities::DELIVERY_RATE);
        Capabilities::CWND.with(Capabilities::RTT).with(rates)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> Flow {
        let now = control.now();
        let own = control.capabilities().contains(Capabilities::RECOVERY);
        control.program("bundler", &[]);
        Flow {
            mss: info.mss.get().max(1) as f64,
            own,
            last: now,
            due: now,
            unread: 0,
            heard: now,
            open: true,
            blind: false,
            path: Path::default(),
            detector: Detector::new(),
            capacity: Estimate::default(),
            known: false,
            looked: 0.0,
            need: Need::since(now),
            passage: Passage::of(Mode::Delay),
            election: Election::new(now, self.dice(control), self.election && !own),
            law: Law::at(self.law, 0.0, 1.0, 1.0),
            rate: 0.0,
            smooth: [0.0; 2],
            phase: 0.0,
            from: 0.0,
        }
    }

    fn on_report(&mut self, flow: &mut Flow, report: &Report<'_>, control: &mut Control<'_>) {
        let &[acked, lost, sent, received, rtt, base, limited, open] = report.fields() else {
            return;
        };
        if rtt >= INFINITY || base >= INFINITY || sent == 0 || received == 0 {
            return;
        }
        let now = control.now();
        let tick = Tick {
            now,
            elapsed: now.since(flow.last).as_secs_f64(),
            acked: acked as f64,
            lost: lost as f64,
            sent: sent as f64,
            received: received as f64,
            rtt: rtt.max(1) as f64 / 1e6,
            limited: limited != 0,
        };
        flow.last = now;
        if acked > 0 {
            flow.heard = now;
        }
        if open != 0 {
            flow.path.free(now, tick.rtt, base.max(1) as f64 / 1e6);
            if !flow.open {
                flow.end(now);
                // What the next limit begins with.
                let passes = self.start == Mode::Competitive && !flow.own;
                control.gauge("mode", f64::from(u8::from(passes)));
                control.gauge("pulser", 0.0);
            }
            flow.keep(&tick);
            flow.unread = 0;
            control.gauge("capacity", flow.capacity(&tick));
            return;
        }
        if flow.open {
            if flow.path.base() == 0.0 {
                flow.path.free(now, tick.rtt, base.max(1) as f64 / 1e6);
            }
            flow.begin(&tick, self, self.dice(control));
        }
        if !flow.idle(&tick) {
            let delays = flow.passage.mode() == Mode::Delay;
            flow.path.seen(now, tick.rtt, !flow.need.somebody(), delays);
        }
        flow.keep(&tick);
        if flow.unread >= READ_EVERY {
            self.read(flow, &tick);
        }
        self.order(flow, &tick, control);
        self.tell(flow, &tick, control);
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
