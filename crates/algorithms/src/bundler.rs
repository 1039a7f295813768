//! Bundler, the control of a gateway's site-to-site aggregate (Cangialosi, Narayan, Goyal, Mittal,
//! Alizadeh, Balakrishnan, "Site-to-Site Internet Traffic Control", EuroSys 2021), built from
//! Nimbus' components.
//!
//! A bundle is a flow whose datapath, the gateway, has its own queue. In delay mode a control law
//! keeps the queue in the network short, so that the queue builds up in the gateway, which
//! schedules it. Next to buffer-filling flows, delay control would yield the link to them, so the
//! gateway lets traffic pass. It then keeps a queue of 8.5 ms of the link rate, enough for the
//! pulse that detects whether the buffer-filling flows are still there.
//!
//! The gateway decides whether to limit at all. Until it does, `Rate` is 0, and the algorithm only
//! measures.
//!
//! `rules=paper` has the published constants of traffic-passing mode, and Nimbus' η decides the
//! mode. The default decides by the response of cross traffic instead.

mod cross_traffic;
mod delay_law;
mod election;
mod flow;
mod pass_through;
mod path_estimate;
mod program;

use ccplane_agent::rng::{self, SplitMix64, finalize, mix};
use ccplane_agent::{Algorithm, Control, DynAlgorithm, FlowInfo, Programs, Report, box_algorithm};
use ccplane_datapath::{Capabilities, INFINITY};
use ccplane_units::{Duration, Time};

use crate::nimbus::{
    Capacity, DelayMode, Fourier, NimbusMode, PULSE_BAND_HALF_WIDTH_HZ, PULSE_SIZE, Reading,
    SAMPLE_INTERVAL, WINDOW_SAMPLES,
};
use crate::rules::Rules;
use crate::{AlgorithmDoc, BadParameter, ParameterDoc, Parameters};

use delay_law::RATE_BYTES_PER_SECOND_MIN;
use election::{DETECTION_SAMPLES, Election, Role};
pub use flow::BundlerFlow;
use flow::{PASSING_RATE_AGE_SAMPLES, Tick};
use pass_through::{PassThrough, RESPONSE_SAMPLES};

pub(crate) const DOC: AlgorithmDoc = AlgorithmDoc {
    name: "bundler",
    doc: "Bundler (EuroSys 2021), for gateways: moves a site's queue to where it can be \
        scheduled; passes traffic through while others fill the network's queue",
    parameters: &[
        ParameterDoc {
            name: "law",
            default: "copa",
            values: "copa | basic",
            doc: "control law that keeps the network's queue short: a Copa-like window, or \
                BasicDelay",
        },
        ParameterDoc {
            name: "pulse",
            default: "auto",
            values: "auto | always | off",
            doc: "pulses that detect elastic cross traffic; auto: only while there may be some",
        },
        ParameterDoc {
            name: "switching",
            default: "on",
            values: "on | off",
            doc: "pass traffic through next to elastic cross traffic; off: always stay in the \
                initial mode",
        },
        ParameterDoc {
            name: "election",
            default: "on",
            values: "on | off",
            doc: "of several bundles at one bottleneck, one pulses and the others follow it",
        },
        ParameterDoc {
            name: "start",
            default: "delay",
            values: "delay | passing",
            doc: "initial mode of a limit",
        },
        ParameterDoc {
            name: "target",
            default: "8.5ms",
            values: "a duration of 1ms to 1s",
            doc: "target queue in the gateway while traffic passes, in time at the full link \
                rate; the pulse needs 8 ms",
        },
        ParameterDoc {
            name: "capacity",
            default: "auto",
            values: "auto | a rate such as 96mbit",
            doc: "rate of the slowest link; auto: measured",
        },
        ParameterDoc {
            name: "rules",
            default: "extended",
            values: "extended | paper",
            doc: "decision and queue controller of traffic-passing mode; paper: Nimbus' eta and \
                published constants, with defaults of pulse=always,target=10ms,election=off; \
                extended: with our additions",
        },
        ParameterDoc {
            name: "seed",
            default: "0",
            values: "a number",
            doc: "seed for the election's random numbers, in addition to the flow's number and \
                measurements",
        },
    ],
};

pub(crate) fn make(parameters: &Parameters) -> Result<Box<dyn DynAlgorithm>, BadParameter> {
    let on_off = &[("on", true), ("off", false)];
    let rules = parameters.choice("rules", Rules::Extended, &Rules::WORDS)?;
    let (pulses, election, target) = match rules {
        Rules::Extended => (Pulses::Auto, true, QUEUE_TARGET),
        Rules::Paper => (Pulses::Always, false, PAPER_QUEUE_TARGET),
    };
    let target = parameters.read("target", target)?;
    if !(Duration::from_millis(1)..=Duration::from_secs(1)).contains(&target) {
        return Err(BadParameter::value(
            "target",
            target.to_string(),
            "1ms to 1s",
        ));
    }
    let capacity = parameters.rate_or("capacity", "auto")?;
    if let Some(rate) = capacity.filter(|rate| rate.bytes_per_sec() == 0) {
        return Err(BadParameter::value(
            "capacity",
            rate.to_string(),
            "at least 8bit",
        ));
    }
    Ok(box_algorithm(Bundler {
        rules,
        delay_mode: parameters.choice(
            "law",
            DelayMode::Copa,
            &[("copa", DelayMode::Copa), ("basic", DelayMode::Basic)],
        )?,
        pulses: parameters.choice(
            "pulse",
            pulses,
            &[
                ("auto", Pulses::Auto),
                ("always", Pulses::Always),
                ("off", Pulses::Off),
            ],
        )?,
        switching: parameters.choice("switching", true, on_off)?,
        election: parameters.choice("election", election, on_off)?,
        initial_mode: parameters.choice(
            "start",
            NimbusMode::Delay,
            &[
                ("delay", NimbusMode::Delay),
                ("passing", NimbusMode::Competitive),
            ],
        )?,
        target: target.as_secs_f64(),
        capacity: capacity.map(|rate| rate.bytes_per_sec() as f64),
        seed: parameters.read("seed", 0)?,
        fourier: Fourier::new(),
    }))
}

/// Queue of the gateway in traffic-passing mode, as time of the whole link: the volume of a pulse
/// of a quarter of the link at 4.7 Hz, the lowest tone. With 85 % of the link, packets wait 10 ms
/// for it, the Bundler paper's q_T (section 5.1). A shorter queue truncates the pulse. A longer one
/// only adds delay.
const QUEUE_TARGET: Duration = Duration::from_micros(8_500);
/// The paper's q_T (section 5.1).
const PAPER_QUEUE_TARGET: Duration = Duration::from_millis(10);
/// Samples between two spectra: η changes over seconds.
const SPECTRUM_INTERVAL_SAMPLES: u32 = 10;
/// Half-width of the pulse's band in delay mode, Hz: one bin on each side. The next tone is two
/// bins away and is not a response. In traffic-passing mode larger RTT variation spreads the
/// response, so [`PULSE_BAND_HALF_WIDTH_HZ`] applies there.
const DELAY_BAND_HALF_WIDTH_HZ: f64 = 0.2;
/// Fraction of the previous capacity estimate below which a flat R is taken for the capacity in
/// traffic-passing mode.
const CAPACITY_DROP_RATIO: f64 = 0.7;
/// Time until the window holds only pulsed samples.
const WINDOW_FILL_TIME: Duration = Duration::from_millis(5_120);
/// Maximum time of the initial pulse, seconds. When a limit begins, µ is the receive rate, which is
/// only a share next to other flows. The bundle therefore pulses until the pulse has shown µ.
/// Filling the window and three seconds of agreeing readings take half of this time.
const INITIAL_PULSE_SECONDS_MAX: f64 = 16.0;
/// Window of a transport as a multiple of rate · RTT, so that the rate is the limit.
const WINDOW_BDPS: f64 = 2.0;
/// Minimum window, segments.
const WINDOW_SEGMENTS_MIN: f64 = 10.0;
/// Maximum rate, bytes/s, and maximum window, bytes: beyond every link.
const RATE_BYTES_PER_SECOND_MAX: f64 = 1e15;

/// Schedule of pulses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pulses {
    /// Pulses while there may be cross traffic to detect.
    Auto,
    Always,
    Off,
}

/// Bundler.
pub struct Bundler {
    /// Decision about the mode, and queue controller. By default the response of cross traffic
    /// decides, with constants that were tuned for it. By the paper's rules Nimbus' η decides, with
    /// the paper's constants. Everything else is equal.
    rules: Rules,
    delay_mode: DelayMode,
    pulses: Pulses,
    switching: bool,
    election: bool,
    initial_mode: NimbusMode,
    /// Seconds.
    target: f64,
    /// Configured µ, bytes/s.
    capacity: Option<f64>,
    seed: u64,
    fourier: Fourier,
}

impl Bundler {
    /// Returns true if this bundle should probe the elasticity of the cross traffic.
    fn should_probe(&self, flow: &BundlerFlow, now: Time) -> bool {
        let asked = match self.pulses {
            Pulses::Off => false,
            Pulses::Always => true,
            Pulses::Auto => {
                let looks =
                    !flow.is_capacity_known && flow.probe_seconds < INITIAL_PULSE_SECONDS_MAX;
                looks
                    || flow.cross_traffic.needs_pulses(now)
                    || flow.pass_through.mode() == NimbusMode::Competitive
            }
        };
        asked && self.switching && !flow.is_transport_flow
    }

    /// Evaluates the spectra of the last samples, every 100 ms.
    fn evaluate_spectra(&mut self, flow: &mut BundlerFlow, tick: &Tick) {
        let (now, count) = (tick.now, flow.unread_samples);
        flow.unread_samples = 0;
        let capacity = flow.capacity(tick);
        let mode = flow.pass_through.mode();
        let frequency = flow.election.frequency(mode);
        if flow.election.role() == Role::Pulser
            && self.election
            && let Some(spectra) =
                flow.detector
                    .spectra(&mut self.fourier, capacity, DETECTION_SAMPLES)
        {
            flow.election.update_pulser(now, &spectra, mode, count);
        }
        let width = match mode {
            NimbusMode::Delay => DELAY_BAND_HALF_WIDTH_HZ,
            NimbusMode::Competitive => PULSE_BAND_HALF_WIDTH_HZ,
        };
        let reading = flow.detector.evaluate_within(
            &mut self.fourier,
            capacity,
            frequency,
            width,
            WINDOW_SAMPLES,
        );
        if let Some(reading) = reading {
            let shows = flow.election.pulsing_time(now) >= WINDOW_FILL_TIME
                && !flow.election.has_other_pulser();
            let shown = match reading.capacity {
                Capacity::Shared(_) if !shows => Capacity::Unknown,
                // Next to little elastic traffic R is nearly flat, too. Only a much lower R
                // indicates a slower link.
                Capacity::Alone(rate)
                    if mode == NimbusMode::Competitive && rate > CAPACITY_DROP_RATIO * capacity =>
                {
                    Capacity::Unknown
                }
                shown => shown,
            };
            flow.is_capacity_known |= flow.capacity.learn(shown);
        }
        match flow.election.role() {
            Role::Pulser => self.check_pass_through(flow, tick, reading, count),
            Role::Watcher => self.follow_or_pulse(flow, tick, count),
        }
    }

    /// Decides whether a pulser in traffic-passing mode leaves it. With the paper's rules, decides
    /// its mode.
    fn check_pass_through(
        &mut self,
        flow: &mut BundlerFlow,
        tick: &Tick,
        reading: Option<Reading>,
        count: u32,
    ) {
        if !self.should_probe(flow, tick.now) {
            flow.election.become_watcher(tick.now);
            return;
        }
        let capacity = flow.capacity(tick);
        if let Some(switch) = &mut flow.eta_switch {
            if reading.is_some_and(|reading| switch.update(tick.now, &reading, count, capacity)) {
                let next = switch.mode();
                flow.switch_mode(tick, next, self.delay_mode);
            }
            return;
        }
        let Some(reading) = reading.filter(|_| flow.pass_through.mode() == NimbusMode::Competitive)
        else {
            return;
        };
        // All of these samples carry only this bundle's tone.
        let ripe = flow.election.pulsing_time(tick.now)
            >= SAMPLE_INTERVAL * RESPONSE_SAMPLES as u64
            && !flow.election.has_other_pulser();
        let frequency = flow.election.frequency(NimbusMode::Competitive);
        let lately = match ripe {
            true => flow.detector.evaluate_within(
                &mut self.fourier,
                capacity,
                frequency,
                PULSE_BAND_HALF_WIDTH_HZ,
                RESPONSE_SAMPLES,
            ),
            false => None,
        };
        let leaves = lately.is_some_and(|lately| {
            flow.pass_through
                .should_leave(&reading, &lately, capacity, count)
        });
        if leaves || PassThrough::is_over(&reading) {
            flow.switch_mode(tick, NimbusMode::Delay, self.delay_mode);
        }
    }

    /// Follows a detected pulse, or starts to pulse.
    fn follow_or_pulse(&mut self, flow: &mut BundlerFlow, tick: &Tick, count: u32) {
        if flow.is_transport_flow {
            return;
        }
        let (now, capacity) = (tick.now, flow.capacity(tick));
        let wants = self.should_probe(flow, now);
        if !self.election {
            if wants {
                flow.election.become_pulser(now);
            }
            return;
        }
        let rtt = Duration::from_nanos((tick.rtt.min(10.0) * 1e9) as u64);
        if !flow.election.can_detect(now, rtt) {
            return;
        }
        let mode = flow.pass_through.mode();
        if let Some(spectra) = flow
            .detector
            .spectra(&mut self.fourier, capacity, DETECTION_SAMPLES)
        {
            let turned =
                flow.election
                    .update_watcher(&spectra, mode, tick.received / capacity, count);
            // Do not follow another bundle into traffic-passing mode without cross traffic to
            // compete with.
            let turned = turned.filter(|next| {
                *next == NimbusMode::Delay || flow.cross_traffic.has_cross_traffic()
            });
            if let Some(next) = turned.filter(|_| self.switching) {
                flow.switch_mode(tick, next, self.delay_mode);
            }
        }
        // A watcher whose law cannot shorten the queue does not rely on the detected pulse.
        let free = !flow.election.detects_pulse()
            || (mode == NimbusMode::Delay && flow.cross_traffic.has_excessive_queue(now));
        let measured =
            finalize(tick.sent.to_bits()) ^ finalize(tick.received.to_bits()) ^ tick.rtt.to_bits();
        // Rate before the cross traffic started, which may have taken it by now.
        let had = tick.sent.max(f64::from(
            flow.detector.sample_ago(PASSING_RATE_AGE_SAMPLES).r,
        ));
        let urgent = flow.cross_traffic.needs_pulses(now) || mode == NimbusMode::Competitive;
        if wants
            && free
            && flow
                .election
                .starts_pulsing(had / capacity, urgent, count, measured)
        {
            flow.election.become_pulser(now);
        }
    }

    fn rng(&self, control: &Control<'_>) -> SplitMix64 {
        let flow = control.flow_id().map_or(0, |id| rng::for_flow(id).0);
        SplitMix64(mix(flow) ^ finalize(self.seed))
    }

    fn order(&self, flow: &mut BundlerFlow, tick: &Tick, control: &mut Control<'_>) {
        let capacity = flow.capacity(tick);
        let rate = flow.delay_mode_rate(tick, capacity);
        if flow.pass_through.should_enter(tick.now) {
            flow.switch_mode(tick, NimbusMode::Competitive, self.delay_mode);
        }
        let pulse = flow.pulse(tick, capacity);
        let passes = flow.pass_through.mode() == NimbusMode::Competitive;
        let bytes = |value: f64| value.clamp(0.0, RATE_BYTES_PER_SECOND_MAX) as u64;
        let most = delay_law::max_rate(capacity);
        // A gateway has no window.
        let window = match flow.is_transport_flow {
            true => (WINDOW_BDPS * (most + PULSE_SIZE * capacity) * tick.rtt)
                .max(WINDOW_SEGMENTS_MIN * flow.mss),
            false => 0.0,
        };
        for (name, value) in [
            ("passing", u64::from(passes)),
            ("calm", u64::from(flow.election.follows_pulse())),
            ("from", bytes(flow.initial_rate)),
            ("delay", bytes(rate).max(1)),
            ("up", bytes(pulse)),
            ("down", bytes(-pulse)),
            ("goal", bytes(self.target * capacity)),
            ("least", bytes(RATE_BYTES_PER_SECOND_MIN)),
            ("most", bytes(most)),
            ("window", bytes(window)),
        ] {
            control.set_variable(name, value);
        }
    }

    /// Exports gauges for monitoring.
    fn export_gauges(&self, flow: &BundlerFlow, tick: &Tick, control: &mut Control<'_>) {
        let capacity = flow.capacity(tick);
        let passes = flow.pass_through.mode() == NimbusMode::Competitive;
        let truth = |value: bool| f64::from(u8::from(value));
        control.gauge("mode", truth(passes));
        control.gauge("pulser", truth(flow.election.role() == Role::Pulser));
        let eta = flow.eta_switch.map(|switch| switch.eta());
        control.gauge("eta", eta.unwrap_or_else(|| flow.pass_through.response()));
        control.gauge("cross", flow.cross_traffic.cross() * capacity);
        control.gauge("capacity", capacity);
        control.gauge(
            "target",
            if passes {
                self.target
            } else {
                flow.queue_target(tick.now, capacity)
            },
        );
    }
}

impl Algorithm for Bundler {
    type Flow = BundlerFlow;

    fn name(&self) -> &str {
        DOC.name
    }

    fn programs(&self) -> Programs {
        Programs::new().with("bundler", program::program(self.rules))
    }

    fn required_capabilities(&self) -> Capabilities {
        let rates = Capabilities::PACING.union(Capabilities::DELIVERY_RATE);
        Capabilities::CWND.union(Capabilities::RTT).union(rates)
    }

    fn open(&mut self, info: &FlowInfo, control: &mut Control<'_>) -> BundlerFlow {
        let now = control.now();
        let own = control.capabilities().contains(Capabilities::RECOVERY);
        control.set_program("bundler", &[]);
        let election = Election::new(now, self.rng(control), self.election && !own);
        let mss = info.mss.get().max(1) as f64;
        let mut flow = BundlerFlow::new(now, mss, own, election, self.delay_mode);
        flow.configured_capacity = self.capacity;
        flow
    }

    fn on_report(
        &mut self,
        flow: &mut BundlerFlow,
        report: &Report<'_>,
        control: &mut Control<'_>,
    ) {
        let &[acked, lost, sent, received, rtt, base, limited, open] = report.fields() else {
            return;
        };
        if rtt >= INFINITY || base >= INFINITY || sent == 0 || received == 0 {
            return;
        }
        let now = control.now();
        let tick = Tick {
            now,
            elapsed: now.since(flow.last_report).as_secs_f64(),
            acked: acked as f64,
            lost: lost as f64,
            sent: sent as f64,
            received: received as f64,
            rtt: rtt.max(1) as f64 / 1e6,
            limited: limited != 0,
        };
        flow.last_report = now;
        if acked > 0 {
            flow.last_delivery = now;
            flow.path.add_sample(tick.rtt, tick.elapsed);
        }
        if open != 0 {
            flow.path.update_unlimited(now, base.max(1) as f64 / 1e6);
            if !flow.is_unlimited {
                flow.end(now);
                // Mode in which the next limit begins.
                let passes =
                    self.initial_mode == NimbusMode::Competitive && !flow.is_transport_flow;
                control.gauge("mode", f64::from(u8::from(passes)));
                control.gauge("pulser", 0.0);
            }
            flow.store_samples(&tick);
            flow.unread_samples = 0;
            control.gauge("capacity", flow.capacity(&tick));
            return;
        }
        if flow.is_unlimited {
            if flow.path.base() == 0.0 {
                flow.path.update_unlimited(now, base.max(1) as f64 / 1e6);
            }
            flow.begin(&tick, self, self.rng(control));
        }
        if !flow.idle(&tick) {
            let delays = flow.pass_through.mode() == NimbusMode::Delay;
            flow.path.update_limited(
                now,
                !tick.limited,
                !flow.cross_traffic.has_cross_traffic(),
                delays,
            );
        }
        flow.store_samples(&tick);
        if flow.unread_samples >= SPECTRUM_INTERVAL_SAMPLES {
            self.evaluate_spectra(flow, &tick);
        }
        self.order(flow, &tick, control);
        self.export_gauges(flow, &tick, control);
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
