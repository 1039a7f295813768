//! Election of the pulser among the bundles at a bottleneck.
//!
//! Bundles that pulse at the same bottleneck mistake each other's pulses for elastic traffic. Each
//! would yield, and the queue that they should move would remain in the network. Therefore one
//! bundle pulses, the pulser, and the others are watchers (Nimbus paper, section 5; constants from
//! the reference's branch master, `switch_to_master` and `switch_to_slave`, unless noted). Bundles
//! exchange no messages: a pulse is detected in R.
//!
//! Three rules are not the reference's. Its own rules were never evaluated (its evaluation disabled
//! them), and they cannot distinguish two bundles that pulse at the same frequency and out of phase
//! from elastic traffic.
//!
//! * *Listen first.* A bundle starts as a watcher, and returns to that role when it needs no pulse.
//! * *Tones.* A new pulser draws one of three frequencies near the frequency of its mode, each a
//!   whole number of bins of half a window, so that none leaks into another. A peak of ẑ at a
//!   frequency without S is another bundle's pulse, never a response, because a response has the
//!   pulse's frequency.
//! * *Rank.* A pulser in traffic-passing mode stays. Within a mode, the higher tone stays. Both
//!   pulsers detect the other's tone, so they agree at once which one becomes a watcher.

use ccplane_agent::rng::{SplitMix64, finalize};
use ccplane_units::{Duration, Time};

use crate::nimbus::{BINS_PER_HZ, NimbusMode, Spectra, SpectrumKind, band};

/// Samples in which other bundles are detected (reference: 2.5 s).
pub(super) const DETECTION_SAMPLES: usize = 256;
/// Magnitude in their spectrum of an oscillation with amplitude 1.
const UNIT_AMPLITUDE_MAGNITUDE: f64 = DETECTION_SAMPLES as f64 / 2.0;
/// Duration of these samples. A former pulser cannot detect others for this long because the
/// samples contain its own pulse.
const DETECTION_HOLD_OFF: Duration = Duration::from_millis(2_560);
/// Tones, as bins of the whole window, around 6 Hz (5.66, 6.05, 6.45) and 5 Hz (4.69, 5.08, 5.47).
const DELAY_TONE_BINS: [usize; 3] = [29, 31, 33];
const PASSING_TONE_BINS: [usize; 3] = [24, 26, 28];
/// Band of all tones, Hz (reference).
const TONE_BAND_HZ_MIN: f64 = 4.5;
const TONE_BAND_HZ_MAX: f64 = 6.5;
/// Bands on both sides without tones or their harmonics, Hz. The reference uses 7 to 15, which
/// includes the second harmonic of every pulse, and no lower band, where the spectrum is higher
/// whenever traffic starts or ends.
const UPPER_REFERENCE_BAND_HZ: (f64, f64) = (7.5, 9.0);
const LOWER_REFERENCE_BAND_HZ: (f64, f64) = (2.9, 4.1);
/// Ratio |ẑ|/|R| above which a peak is another bundle's pulse and not a response (reference). Ideal
/// ACK-clocked traffic responds with 1: it loses what this bundle gains.
const FOREIGN_PULSE_RATIO: f64 = 2.0;
/// Another bundle's tone counts only if it exceeds the neighbouring spectrum by this factor,
/// because bursty traffic has peaks everywhere. Not in the reference.
const TONE_PROMINENCE_MIN: f64 = 3.0;
/// R at a pulse frequency over the neighbouring R above which there is a pulser (reference).
const PULSER_PROMINENCE_MIN: f64 = 1.5;
/// Minimum relative amplitude, of R for pulses in R and of µ for those in ẑ. A pulse amounts to
/// about 15 % of either for any shares. Without it, rounding noise on a quiet link is detected. Not
/// in the reference.
const PULSE_AMPLITUDE_MIN: f64 = 0.02;
/// R at the other mode's frequencies over R at its own above which a watcher changes its mode
/// (reference).
const MODE_CHANGE_RATIO: f64 = 1.25;
/// Gains of the moving averages per sample (reference).
const SPECTRUM_GAIN: f64 = 0.02;
const PULSER_GAIN: f64 = 0.01;
/// Probability per sample that a pulser yields when it detects another one at its own tone
/// (reference). Low, because both may yield.
const TIE_YIELD_PROBABILITY: f64 = 0.005;
/// Probability per sample of yielding if the tones determine which pulser must yield. Not in the
/// reference.
const YIELD_PROBABILITY: f64 = 0.02;
/// Probability per sample that a watcher that detects no pulse starts to pulse, multiplied by S/µ,
/// so that larger bundles, whose pulses are stronger, are preferred. With the reference's 0.005, a
/// bundle with half of the link would wait 4 of the 5 s in which cross traffic should be detected.
/// With 0.02 it waits 1 s. In one of three cases, two such bundles start within the 0.7 s that they
/// need to detect each other; their tones resolve that.
const PULSE_START_PROBABILITY: f64 = 0.02;
/// Probability per sample of starting to pulse only to measure µ. It is not urgent, and two that
/// start together with the same tone mistake each other for elastic traffic. Not in the reference.
const CAPACITY_PROBE_PROBABILITY: f64 = 0.002;
/// Time after which the bundle that should stay yields as well, because the other one may not
/// detect it.
const YIELD_TIMEOUT: Duration = Duration::from_secs(10);

/// Role of a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Carries the pulse in its rate. Its findings apply to all bundles.
    Pulser,
    /// Listens, and filters the pulse out of its rate.
    Watcher,
}

/// Election state of one bundle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Election {
    role: Role,
    /// False if the bundle takes no part in the election and detects no other.
    participates: bool,
    /// Start of the role, or of the tones of its mode.
    role_since: Time,
    /// Last time that its rate carried its own pulse.
    last_pulse: Option<Time>,
    tone: usize,
    /// Pulser: confidence that another bundle pulses, 0 to 1; detected in the last reading.
    foreign_confidence: f64,
    hears_other_tone: bool,
    /// The other pulser is the one that must yield.
    must_other_yield: bool,
    quiet_since: Time,
    /// Watcher: averaged R at pulse frequencies over neighbouring R.
    pulse_ratio: f64,
    /// Watcher: averaged R at the other mode's frequencies over R at its own.
    other_mode_ratio: f64,
    rng: SplitMix64,
}

impl Election {
    /// Creates a watcher; `listens` is false to take no part in the election.
    pub fn new(now: Time, dice: SplitMix64, listens: bool) -> Election {
        Election {
            role: Role::Watcher,
            participates: listens,
            role_since: now,
            last_pulse: Some(now),
            tone: 1,
            foreign_confidence: 0.0,
            hears_other_tone: false,
            must_other_yield: false,
            quiet_since: now,
            pulse_ratio: 2.0 * PULSER_PROMINENCE_MIN,
            other_mode_ratio: 0.0,
            rng: dice,
        }
    }

    /// Returns the role.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the time it has pulsed at these tones.
    pub fn pulsing_time(&self, now: Time) -> Duration {
        match self.role {
            Role::Pulser => now.since(self.role_since),
            Role::Watcher => Duration::default(),
        }
    }

    /// Returns the frequency of its pulse, Hz.
    pub fn frequency(&self, mode: NimbusMode) -> f64 {
        tones(mode)[self.tone] as f64 / BINS_PER_HZ
    }

    /// Returns true if another bundle pulses as well, so that nothing can be taken for a response.
    pub fn has_other_pulser(&self) -> bool {
        self.role == Role::Pulser && (self.hears_other_tone || self.foreign_confidence > 0.25)
    }

    /// Becomes the pulser unconditionally.
    pub fn become_pulser(&mut self, now: Time) {
        if self.role == Role::Watcher {
            self.tone = self.rng.below(DELAY_TONE_BINS.len() as u64) as usize;
            self.set_role(now, Role::Pulser);
        }
    }

    /// Becomes a watcher unconditionally.
    pub fn become_watcher(&mut self, now: Time) {
        if self.role == Role::Pulser {
            self.last_pulse = Some(now);
            self.set_role(now, Role::Watcher);
        }
    }

    /// Switches to the tones of a new mode. The tone is drawn anew: two bundles with the same tone
    /// mistake each other for elastic traffic.
    pub fn retune(&mut self, now: Time) {
        (self.role_since, self.quiet_since) = (now, now);
        (self.foreign_confidence, self.hears_other_tone) = (0.0, false);
        self.other_mode_ratio = 0.0;
        self.tone = self.rng.below(DELAY_TONE_BINS.len() as u64) as usize;
    }

    fn set_role(&mut self, now: Time, role: Role) {
        self.role = role;
        (self.role_since, self.quiet_since) = (now, now);
        (self.foreign_confidence, self.hears_other_tone) = (0.0, false);
        // Assumes a pulser until the samples show none.
        (self.pulse_ratio, self.other_mode_ratio) = (2.0 * PULSER_PROMINENCE_MIN, 0.0);
    }

    /// Returns true if a watcher can detect others: its samples no longer contain its own pulse.
    pub fn can_detect(&self, now: Time, rtt: Duration) -> bool {
        self.role == Role::Watcher
            && self
                .last_pulse
                .is_none_or(|last| now.since(last) > DETECTION_HOLD_OFF + rtt)
    }

    /// Returns true if a watcher detects a pulse.
    pub fn detects_pulse(&self) -> bool {
        self.participates && self.pulse_ratio >= PULSER_PROMINENCE_MIN
    }

    /// Returns true if the bundle watches another's pulse, which it must filter out of its rate.
    pub fn follows_pulse(&self) -> bool {
        self.role == Role::Watcher && self.detects_pulse()
    }

    /// Evaluates the last [`DETECTION_SAMPLES`] samples, of which `count` are new, as a pulser. May
    /// yield the role.
    pub fn update_pulser(
        &mut self,
        now: Time,
        spectra: &Spectra<'_>,
        mode: NimbusMode,
        count: u32,
    ) {
        let mine = tones(mode)[self.tone];
        let all = band(TONE_BAND_HZ_MIN, TONE_BAND_HZ_MAX);
        let least = (TONE_PROMINENCE_MIN * peak_outside_tones(spectra, SpectrumKind::Cross))
            .max(PULSE_AMPLITUDE_MIN * UNIT_AMPLITUDE_MAGNITUDE);
        let strength = |bin: usize| spectra.strength(SpectrumKind::Cross, bin);
        // In half a window, this bundle's own pulse spreads over less than two bins.
        let stranger = all
            .filter(|bin| bin.abs_diff(mine) >= 2)
            .max_by(|a, b| strength(*a).total_cmp(&strength(*b)))
            .filter(|bin| {
                strength(*bin) >= least
                    && strength(*bin)
                        > FOREIGN_PULSE_RATIO * spectra.strength(SpectrumKind::Sent, *bin)
            });
        let same = strength(mine) >= least
            && strength(mine)
                > FOREIGN_PULSE_RATIO * spectra.strength(SpectrumKind::Received, mine);
        self.hears_other_tone = stranger.is_some() || same;
        let outranks = |bin: usize| match (mode, bin <= PASSING_TONE_BINS[2]) {
            (NimbusMode::Competitive, false) => true,
            (NimbusMode::Delay, true) => false,
            _ => bin < mine,
        };
        self.must_other_yield = stranger.is_some_and(outranks) && !same;
        self.foreign_confidence += weight(SPECTRUM_GAIN, count)
            * (f64::from(u8::from(self.hears_other_tone)) - self.foreign_confidence);
        if self.foreign_confidence < 0.25 {
            self.quiet_since = now;
        }
        let stays = self.must_other_yield && now.since(self.quiet_since) < YIELD_TIMEOUT;
        let chance = if stranger.is_some() {
            YIELD_PROBABILITY
        } else {
            TIE_YIELD_PROBABILITY
        };
        if self.foreign_confidence > 0.5 && !stays && self.draw(chance, count) {
            self.become_watcher(now);
        }
    }

    /// Evaluates the samples as a watcher. Returns the mode to switch to, if any. `part` is R over
    /// the capacity.
    pub fn update_watcher(
        &mut self,
        spectra: &Spectra<'_>,
        mode: NimbusMode,
        part: f64,
        count: u32,
    ) -> Option<NimbusMode> {
        let (own, other) = match mode {
            NimbusMode::Delay => (DELAY_TONE_BINS, PASSING_TONE_BINS),
            NimbusMode::Competitive => (PASSING_TONE_BINS, DELAY_TONE_BINS),
        };
        let at =
            |tones: [usize; 3]| spectra.peak(SpectrumKind::Received, &(tones[0]..tones[2] + 1));
        let loud = PULSE_AMPLITUDE_MIN * part * UNIT_AMPLITUDE_MAGNITUDE;
        let pulse = spectra.peak(
            SpectrumKind::Received,
            &band(TONE_BAND_HZ_MIN, TONE_BAND_HZ_MAX),
        );
        let ratio = if pulse < loud {
            0.0
        } else {
            (pulse / peak_outside_tones(spectra, SpectrumKind::Received).max(loud / 10.0)).min(4.0)
        };
        self.pulse_ratio += weight(PULSER_GAIN, count) * (ratio - self.pulse_ratio);
        let change = if ratio < PULSER_PROMINENCE_MIN {
            0.0
        } else {
            (at(other) / at(own).max(loud / 10.0)).min(2.0)
        };
        self.other_mode_ratio += weight(SPECTRUM_GAIN, count) * (change - self.other_mode_ratio);
        if !self.detects_pulse() || self.other_mode_ratio <= MODE_CHANGE_RATIO {
            return None;
        }
        self.other_mode_ratio = 0.0;
        Some(match mode {
            NimbusMode::Delay => NimbusMode::Competitive,
            NimbusMode::Competitive => NimbusMode::Delay,
        })
    }

    /// Decides whether a watcher that may start to pulse does so, given its share of the link. Two
    /// hosts may have equal flow identifiers and seeds; their measurements make the random
    /// sequences differ.
    pub fn starts_pulsing(&mut self, share: f64, urgent: bool, count: u32, measured: u64) -> bool {
        self.rng.0 ^= finalize(measured);
        let chance = if urgent {
            PULSE_START_PROBABILITY
        } else {
            CAPACITY_PROBE_PROBABILITY
        };
        self.draw(chance * share.clamp(0.0, 1.0), count)
    }

    fn draw(&mut self, chance: f64, count: u32) -> bool {
        (self.rng.below(1 << 32) as f64) < weight(chance, count) * (1u64 << 32) as f64
    }
}

/// Returns the maximum of the spectrum outside of all tones.
fn peak_outside_tones(spectra: &Spectra<'_>, part: SpectrumKind) -> f64 {
    let peak = |(low, high): (f64, f64)| spectra.peak(part, &band(low, high));
    peak(UPPER_REFERENCE_BAND_HZ).max(peak(LOWER_REFERENCE_BAND_HZ))
}

fn tones(mode: NimbusMode) -> [usize; 3] {
    match mode {
        NimbusMode::Delay => DELAY_TONE_BINS,
        NimbusMode::Competitive => PASSING_TONE_BINS,
    }
}

/// Converts a gain per sample to a gain per `count` samples.
fn weight(gain: f64, count: u32) -> f64 {
    1.0 - libm::pow(1.0 - gain, f64::from(count))
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use super::*;
    use crate::nimbus::{Detector, Fourier, Sample};

    const MU: f64 = 12e6;

    /// Half of the link: S with tone `mine`, and cross traffic with tone `others`, both in bins.
    fn detector(mine: Option<usize>, others: Option<usize>, phase: f64) -> Detector {
        let mut detector = Detector::new();
        let swing = |bin: Option<usize>, i: usize, phase: f64| {
            bin.map_or(0.0, |bin| {
                0.15 * libm::sin(TAU * bin as f64 * i as f64 / 512.0 + phase)
            })
        };
        for i in 0..512 {
            let sent = MU * (0.5 + swing(mine, i, 0.0));
            let cross = MU * (0.5 + swing(others, i, phase));
            detector.push(Sample {
                s: sent as f32,
                r: (MU * sent / (sent + cross)) as f32,
                queueing: 0.01,
            });
        }
        detector
    }

    fn pulser(tone: usize) -> Election {
        let mut election = Election::new(Time::ZERO, SplitMix64(7), true);
        election.become_pulser(Time::ZERO);
        election.tone = tone;
        election
    }

    /// Returns when a pulser with this tone yields, within `seconds`.
    fn gives_up(tone: usize, others: Option<usize>, phase: f64, seconds: u64) -> Option<f64> {
        let detector = detector(Some(DELAY_TONE_BINS[tone]), others, phase);
        let (mut fourier, mut election) = (Fourier::new(), pulser(tone));
        (0..seconds * 10).find_map(|i| {
            let now = Time::ZERO + Duration::from_millis(i * 100);
            let spectra = detector
                .spectra(&mut fourier, MU, DETECTION_SAMPLES)
                .expect("the window of samples is full");
            election.update_pulser(now, &spectra, NimbusMode::Delay, 10);
            assert!(
                election.role == Role::Watcher || election.has_other_pulser() == (others.is_some()),
                "{others:?}"
            );
            (election.role() == Role::Watcher).then(|| now.as_secs_f64())
        })
    }

    #[test]
    fn of_two_tones_the_higher_stays() {
        for phase in [0.0, 1.0, 2.0, 3.0, 5.0] {
            assert!(gives_up(0, Some(DELAY_TONE_BINS[1]), phase, 20).is_some());
            assert_eq!(gives_up(1, Some(DELAY_TONE_BINS[0]), phase, 9), None);
            assert!(gives_up(1, Some(DELAY_TONE_BINS[2]), phase, 20).is_some());
            // A pulser in traffic-passing mode and one in delay mode detect each other as well, and
            // the latter yields.
            assert!(gives_up(1, Some(PASSING_TONE_BINS[1]), phase, 20).is_some());
        }
        // But not forever: the other may not detect this one.
        assert!(gives_up(2, Some(DELAY_TONE_BINS[0]), 0.0, 60).is_some_and(|at| at > 10.0));
    }

    #[test]
    fn a_lone_pulser_keeps_pulsing() {
        assert_eq!(gives_up(1, None, 0.0, 60), None);
    }

    #[test]
    fn responses_are_not_taken_for_other_pulsers() {
        // ẑ responds to S at maximum strength, a quarter of a period late.
        let mut detector = Detector::new();
        for i in 0..512 {
            let swing = |lag: usize| {
                libm::sin(TAU * DELAY_TONE_BINS[1] as f64 * (i as f64 - lag as f64) / 512.0)
            };
            let (sent, cross) = (MU * (0.5 + 0.15 * swing(0)), MU * (0.5 - 0.1 * swing(4)));
            detector.push(Sample {
                s: sent as f32,
                r: (MU * sent / (sent + cross)) as f32,
                queueing: 0.01,
            });
        }
        let (mut fourier, mut election) = (Fourier::new(), pulser(1));
        for i in 0..600 {
            let spectra = detector
                .spectra(&mut fourier, MU, DETECTION_SAMPLES)
                .expect("the window of samples is full");
            election.update_pulser(
                Time::ZERO + Duration::from_millis(i * 100),
                &spectra,
                NimbusMode::Delay,
                10,
            );
        }
        assert!(election.role() == Role::Pulser && !election.has_other_pulser());
    }

    /// Returns what a watcher in this mode has detected after `tenths` of a second.
    fn watches(mode: NimbusMode, others: Option<usize>, tenths: u64) -> (bool, Option<NimbusMode>) {
        let detector = detector(None, others, 0.0);
        let (mut fourier, mut election) = (
            Fourier::new(),
            Election::new(Time::ZERO, SplitMix64(7), true),
        );
        let changed = (0..tenths).filter_map(|_| {
            let spectra = detector
                .spectra(&mut fourier, MU, DETECTION_SAMPLES)
                .expect("the window of samples is full");
            election.update_watcher(&spectra, mode, 0.5, 10)
        });
        let changed = changed.collect::<Vec<_>>().first().copied();
        (election.detects_pulse(), changed)
    }

    #[test]
    fn a_watcher_follows_the_pulsers_mode() {
        for tone in DELAY_TONE_BINS {
            assert_eq!(watches(NimbusMode::Delay, Some(tone), 50), (true, None));
            assert_eq!(
                watches(NimbusMode::Competitive, Some(tone), 50),
                (true, Some(NimbusMode::Delay))
            );
        }
        for tone in PASSING_TONE_BINS {
            assert_eq!(
                watches(NimbusMode::Competitive, Some(tone), 50),
                (true, None)
            );
            assert_eq!(
                watches(NimbusMode::Delay, Some(tone), 50),
                (true, Some(NimbusMode::Competitive))
            );
        }
        assert_eq!(watches(NimbusMode::Delay, None, 50), (false, None));
        // 8 Hz is no bundle's tone.
        assert_eq!(watches(NimbusMode::Delay, Some(41), 50), (false, None));
    }

    #[test]
    fn larger_bundles_start_pulsing_first() {
        let begins = |share: f64, other: u64| {
            let mut election = Election::new(Time::ZERO, SplitMix64(7), true);
            (0..10_000u64)
                .find(|i| election.starts_pulsing(share, true, 10, i * 1_000 + other))
                .unwrap_or(10_000)
        };
        let mean =
            |share: f64| (0..200).map(|other| begins(share, other)).sum::<u64>() as f64 / 200.0;
        // 0.02 per sample: 0.18 per reading of ten samples with the whole link.
        assert!((3.0..6.5).contains(&mean(1.0)), "{}", mean(1.0));
        assert!((35.0..65.0).contains(&mean(0.1)), "{}", mean(0.1));
        assert!((0..20).any(|other| begins(0.5, other) != begins(0.5, other + 1)));
    }

    #[test]
    fn a_pulser_that_never_listens_detects_nobody() {
        let mut election = Election::new(Time::ZERO, SplitMix64(7), false);
        assert!(!election.detects_pulse());
        election.become_pulser(Time::ZERO);
        election.become_watcher(Time::ZERO);
        assert!(!election.detects_pulse());
        assert!(
            Election::new(Time::ZERO, SplitMix64(7), true).detects_pulse(),
            "until the contrary has been heard"
        );
    }

    #[test]
    fn a_pulser_ignores_signals_until_its_pulse_is_over() {
        let mut election = pulser(1);
        let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
        let rtt = Duration::from_millis(50);
        assert!(!election.can_detect(at(0), rtt));
        election.become_watcher(at(1_000));
        assert!(!election.can_detect(at(3_600), rtt) && election.can_detect(at(3_620), rtt));
    }
}
