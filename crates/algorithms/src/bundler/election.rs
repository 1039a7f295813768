//! Election: which of several bundles at a bottleneck pulses.
//!
//! Bundles that pulse at one bottleneck take each other's pulses for answers. Each finds the others
//! elastic and gives in, and the queue that all of them were to move stands in the network. So one
//! pulses and the others watch (section 5 of the Nimbus paper; constants of the reference's branch
//! master, `switch_to_master` and `switch_to_slave`, unless said). Nobody sends a message: a pulse
//! is heard in R.
//!
//! Three things are ours, because the reference's rules were never evaluated (its evaluation had
//! them off) and two that pulse at the same frequency and not in phase are not told from elastic
//! traffic by them.
//!
//! * *Listen first.* A bundle begins as a watcher, and one that needs no pulse is one again.
//! * *A tone.* Who begins to pulse draws one of three frequencies near that of its mode, a whole
//!   number of bins of half a window, so that none leaks into another. A peak of ẑ where S has none
//!   is another's pulse, never an answer, since an answer has the pulse's frequency.
//! * *Who passes stays, and of one mode the higher tone.* Both of two pulsers hear the other's
//!   tone, so they agree at once which of them is to watch.

use ccplane_agent::dice::{Dice, scatter};
use ccplane_units::{Duration, Time};

use crate::nimbus::{BINS_PER_HZ, Mode, Part, Spectra, band};

/// Samples in which others are listened to (reference: 2.5 s).
pub(super) const LISTENS: usize = 256;
/// What a swing of amplitude 1 is in their spectrum.
const HALF: f64 = LISTENS as f64 / 2.0;
/// Their time: whoever pulsed is deaf for as long, since it hears itself.
const DEAF: Duration = Duration::from_millis(2_560);
/// Tones, in bins of the whole window, around 6 Hz (5.66, 6.05, 6.45) and around 5 Hz (4.69, 5.08,
/// 5.47).
const DELAY: [usize; 3] = [29, 31, 33];
const PASSING: [usize; 3] = [24, 26, 28];
/// Frequencies of all of them, Hz (reference).
const LOW: f64 = 4.5;
const HIGH: f64 = 6.5;
/// Where no tone and none of their harmonics is, on both sides, Hz (reference: 7 to 15, which has
/// the second harmonic of every pulse, and nothing below, where all is louder when others come or
/// go).
const ABOVE: (f64, f64) = (7.5, 9.0);
const BELOW: (f64, f64) = (2.9, 4.1);
/// |ẑ| over |R| above which it is another's pulse and no answer (reference). Pure ACK clocks answer with 1: what arrives of us is what
/// they do not get.
const FOREIGN: f64 = 2.0;
/// Another bundle's tone counts only where it is so many times higher than the spectrum beside it
/// (ours): bursty traffic has peaks everywhere.
const PROMINENT: f64 = 3.0;
/// R at a pulse over R beside, above which somebody pulses (reference).
const HEARD: f64 = 1.5;
/// And so large a part has to swing, of R where R is heard, of µ where ẑ is: a pulse makes about 15
/// % of either, whatever the shares (ours). Less, and the last bits of a quiet link are heard.
const LOUD: f64 = 0.02;
/// R at the other mode's frequencies over R at its own above which a watcher changes (reference).
const OTHER: f64 = 1.25;
/// Weights of a new reading for each sample (reference).
const GAIN: f64 = 0.02;
const GAIN_HEARD: f64 = 0.01;
/// Chance that a pulser which hears its own tone from another gives up, for each sample
/// (reference): both may, so it is small.
const GIVES_UP: f64 = 0.005;
/// The same where the tones say which of the two it has to be (ours).
const YIELDS: f64 = 0.02;
/// Chance that a watcher which hears nobody begins, for each sample, times S/µ, so that the larger
/// bundle, whose pulse arrives better, is more often the one. The reference has 0.005: at half of
/// the link it would wait 4 s of the 5 in which cross traffic is to be found. With 0.02 it waits
/// one, and two of half of the link begin within what they need to hear each other, 0.7 s, in every
/// third case; by their tones they end that.
const BEGINS: f64 = 0.02;
/// The same of one that has no need, and only wants to know its µ: there is time, and two that
/// begin together take each other for elastic where their tones are the same (ours).
const LOOKS: f64 = 0.002;
/// The other one, too, gives up when the other has stayed for so long: it may not hear us.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a bundle does in the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Its rate carries the pulse, and what it finds holds for all.
    Pulser,
    /// It listens, and has no echo of the pulse in its rate.
    Watcher,
}

/// The state of one bundle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Election {
    role: Role,
    /// It listens at all: one that never does hears nobody.
    listens: bool,
    /// When it took the role, or the tones of its mode.
    since: Time,
    /// When its own pulse was in its rate last.
    pulsed: Option<Time>,
    tone: usize,
    /// How sure a pulser is that another pulses too, 0 to 1; whether it heard so just now; since
    /// when.
    foreign: f64,
    hears_tone: bool,
    /// That one is to give way.
    lower: bool,
    quiet: Time,
    /// R at pulses over R beside, averaged, of a watcher.
    heard: f64,
    /// R at the other mode's frequencies over that at its own, averaged, of a watcher.
    other: f64,
    dice: Dice,
}

impl Election {
    /// A watcher, which listens first, if it ever does.
    pub fn new(now: Time, dice: Dice, listens: bool) -> Election {
        Election {
            role: Role::Watcher,
            listens,
            since: now,
            pulsed: Some(now),
            tone: 1,
            foreign: 0.0,
            hears_tone: false,
            lower: false,
            quiet: now,
            heard: 2.0 * HEARD,
            other: 0.0,
            dice,
        }
    }

    /// Its role.
    pub fn role(&self) -> Role {
        self.role
    }

    /// How long it has pulsed at these tones.
    pub fn pulsing(&self, now: Time) -> Duration {
        match self.role {
            Role::Pulser => now.since(self.since),
            Role::Watcher => Duration::default(),
        }
    }

    /// The frequency of its pulse, Hz.
    pub fn frequency(&self, mode: Mode) -> f64 {
        tones(mode)[self.tone] as f64 / BINS_PER_HZ
    }

    /// Another pulses, too: nothing that looks like an answer is one.
    pub fn is_foreign(&self) -> bool {
        self.role == Role::Pulser && (self.hears_tone || self.foreign > 0.25)
    }

    /// Takes the role of a pulser, without asking.
    pub fn begin(&mut self, now: Time) {
        if self.role == Role::Watcher {
            self.tone = self.dice.below(DELAY.len() as u64) as usize;
            self.turn(now, Role::Pulser);
        }
    }

    /// Takes the role of a watcher, without asking.
    pub fn stop(&mut self, now: Time) {
        if self.role == Role::Pulser {
            self.pulsed = Some(now);
            self.turn(now, Role::Watcher);
        }
    }

    /// The mode is another from now on, and so are the tones. The one of this bundle is drawn anew:
    /// of two that have the same, each takes the other for an answer.
    pub fn retune(&mut self, now: Time) {
        (self.since, self.quiet) = (now, now);
        (self.foreign, self.hears_tone) = (0.0, false);
        self.other = 0.0;
        self.tone = self.dice.below(DELAY.len() as u64) as usize;
    }

    fn turn(&mut self, now: Time, role: Role) {
        self.role = role;
        (self.since, self.quiet) = (now, now);
        (self.foreign, self.hears_tone) = (0.0, false);
        // Somebody pulses until the contrary has been heard.
        (self.heard, self.other) = (2.0 * HEARD, 0.0);
    }

    /// Whether a watcher can hear others: its own pulse is no longer in what it listens to.
    pub fn listens(&self, now: Time, rtt: Duration) -> bool {
        self.role == Role::Watcher && self.pulsed.is_none_or(|last| now.since(last) > DEAF + rtt)
    }

    /// Whether a watcher hears a pulse.
    pub fn hears(&self) -> bool {
        self.listens && self.heard >= HEARD
    }

    /// Whether it watches the pulse of another, which is not to come back in its rate.
    pub fn follows(&self) -> bool {
        self.role == Role::Watcher && self.hears()
    }

    /// What the last [`LISTENS`] samples, of which `count` are new, say to a pulser, and whether it
    /// gives up.
    pub fn as_pulser(&mut self, now: Time, spectra: &Spectra<'_>, mode: Mode, count: u32) {
        let mine = tones(mode)[self.tone];
        let all = band(LOW, HIGH);
        let least = (PROMINENT * beside(spectra, Part::Cross)).max(LOUD * HALF);
        let strength = |bin: usize| spectra.strength(Part::Cross, bin);
        // Two bins are where our own pulse ends in half a window.
        let stranger = all
            .filter(|bin| bin.abs_diff(mine) >= 2)
            .max_by(|a, b| strength(*a).total_cmp(&strength(*b)))
            .filter(|bin| {
                strength(*bin) >= least
                    && strength(*bin) > FOREIGN * spectra.strength(Part::Sent, *bin)
            });
        let same = strength(mine) >= least
            && strength(mine) > FOREIGN * spectra.strength(Part::Received, mine);
        self.hears_tone = stranger.is_some() || same;
        let outranks = |bin: usize| match (mode, bin <= PASSING[2]) {
            (Mode::Competitive, false) => true,
            (Mode::Delay, true) => false,
            _ => bin < mine,
        };
        self.lower = stranger.is_some_and(outranks) && !same;
        self.foreign += weight(GAIN, count) * (f64::from(u8::from(self.hears_tone)) - self.foreign);
        if self.foreign < 0.25 {
            self.quiet = now;
        }
        let stays = self.lower && now.since(self.quiet) < PATIENCE;
        let chance = if stranger.is_some() { YIELDS } else { GIVES_UP };
        if self.foreign > 0.5 && !stays && self.draw(chance, count) {
            self.stop(now);
        }
    }

    /// What they say to a watcher; the mode that it is to take where that is another. `part` is R
    /// over the capacity.
    pub fn as_watcher(
        &mut self,
        spectra: &Spectra<'_>,
        mode: Mode,
        part: f64,
        count: u32,
    ) -> Option<Mode> {
        let (own, other) = match mode {
            Mode::Delay => (DELAY, PASSING),
            Mode::Competitive => (PASSING, DELAY),
        };
        let at = |tones: [usize; 3]| spectra.peak(Part::Received, &(tones[0]..tones[2] + 1));
        let loud = LOUD * part * HALF;
        let pulse = spectra.peak(Part::Received, &band(LOW, HIGH));
        let ratio = if pulse < loud {
            0.0
        } else {
            (pulse / beside(spectra, Part::Received).max(loud / 10.0)).min(4.0)
        };
        self.heard += weight(GAIN_HEARD, count) * (ratio - self.heard);
        let change = if ratio < HEARD {
            0.0
        } else {
            (at(other) / at(own).max(loud / 10.0)).min(2.0)
        };
        self.other += weight(GAIN, count) * (change - self.other);
        if !self.hears() || self.other <= OTHER {
            return None;
        }
        self.other = 0.0;
        Some(match mode {
            Mode::Delay => Mode::Competitive,
            Mode::Competitive => Mode::Delay,
        })
    }

    /// Whether a watcher that may begin does, at a share of so much of the link. Two hosts may give
    /// their flows the same numbers and seeds: what they measured sets their dice apart.
    pub fn begins(&mut self, share: f64, urgent: bool, count: u32, measured: u64) -> bool {
        self.dice.0 ^= scatter(measured);
        let chance = if urgent { BEGINS } else { LOOKS };
        self.draw(chance * share.clamp(0.0, 1.0), count)
    }

    fn draw(&mut self, chance: f64, count: u32) -> bool {
        (self.dice.below(1 << 32) as f64) < weight(chance, count) * (1u64 << 32) as f64
    }
}

/// The strongest beside all tones.
fn beside(spectra: &Spectra<'_>, part: Part) -> f64 {
    let peak = |(low, high): (f64, f64)| spectra.peak(part, &band(low, high));
    peak(ABOVE).max(peak(BELOW))
}

fn tones(mode: Mode) -> [usize; 3] {
    match mode {
        Mode::Delay => DELAY,
        Mode::Competitive => PASSING,
    }
}

/// What a weight for one sample is for so many.
fn weight(gain: f64, count: u32) -> f64 {
    1.0 - libm::pow(1.0 - gain, f64::from(count))
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use super::*;
    use crate::nimbus::{Detector, Fourier, Sample};

    const MU: f64 = 12e6;

    /// Half of the link: S with its tone, and the rest, which swings with another, both in bins.
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
                sent: sent as f32,
                received: (MU * sent / (sent + cross)) as f32,
                queueing: 0.01,
            });
        }
        detector
    }

    fn pulser(tone: usize) -> Election {
        let mut election = Election::new(Time::ZERO, Dice(7), true);
        election.begin(Time::ZERO);
        election.tone = tone;
        election
    }

    /// When a pulser of this tone gave up, in seconds of at most so many.
    fn gives_up(tone: usize, others: Option<usize>, phase: f64, seconds: u64) -> Option<f64> {
        let detector = detector(Some(DELAY[tone]), others, phase);
        let (mut fourier, mut election) = (Fourier::new(), pulser(tone));
        (0..seconds * 10).find_map(|i| {
            let now = Time::ZERO + Duration::from_millis(i * 100);
            let spectra = detector
                .spectra(&mut fourier, MU, LISTENS)
                .expect("it is full");
            election.as_pulser(now, &spectra, Mode::Delay, 10);
            assert!(
                election.role == Role::Watcher || election.is_foreign() == (others.is_some()),
                "{others:?}"
            );
            (election.role() == Role::Watcher).then(|| now.as_secs_f64())
        })
    }

    #[test]
    fn of_two_tones_the_higher_stays() {
        for phase in [0.0, 1.0, 2.0, 3.0, 5.0] {
            assert!(gives_up(0, Some(DELAY[1]), phase, 20).is_some());
            assert_eq!(gives_up(1, Some(DELAY[0]), phase, 9), None);
            assert!(gives_up(1, Some(DELAY[2]), phase, 20).is_some());
            // One that passes and one that does not hear each other as well: the latter gives way.
            assert!(gives_up(1, Some(PASSING[1]), phase, 20).is_some());
        }
        // But not for ever: the other may not hear us.
        assert!(gives_up(2, Some(DELAY[0]), 0.0, 60).is_some_and(|at| at > 10.0));
    }

    #[test]
    fn nobody_else_is_no_reason_to_give_up() {
        assert_eq!(gives_up(1, None, 0.0, 60), None);
    }

    #[test]
    fn an_answer_is_no_tone_of_another() {
        // ẑ gives way to S, a quarter of a period late and as much as it can.
        let mut detector = Detector::new();
        for i in 0..512 {
            let swing =
                |lag: usize| libm::sin(TAU * DELAY[1] as f64 * (i as f64 - lag as f64) / 512.0);
            let (sent, cross) = (MU * (0.5 + 0.15 * swing(0)), MU * (0.5 - 0.1 * swing(4)));
            detector.push(Sample {
                sent: sent as f32,
                received: (MU * sent / (sent + cross)) as f32,
                queueing: 0.01,
            });
        }
        let (mut fourier, mut election) = (Fourier::new(), pulser(1));
        for i in 0..600 {
            let spectra = detector
                .spectra(&mut fourier, MU, LISTENS)
                .expect("it is full");
            election.as_pulser(
                Time::ZERO + Duration::from_millis(i * 100),
                &spectra,
                Mode::Delay,
                10,
            );
        }
        assert!(election.role() == Role::Pulser && !election.is_foreign());
    }

    /// What a watcher in this mode hears after so many tenths of a second.
    fn watches(mode: Mode, others: Option<usize>, tenths: u64) -> (bool, Option<Mode>) {
        let detector = detector(None, others, 0.0);
        let (mut fourier, mut election) =
            (Fourier::new(), Election::new(Time::ZERO, Dice(7), true));
        let changed = (0..tenths).filter_map(|_| {
            let spectra = detector
                .spectra(&mut fourier, MU, LISTENS)
                .expect("it is full");
            election.as_watcher(&spectra, mode, 0.5, 10)
        });
        let changed = changed.collect::<Vec<_>>().first().copied();
        (election.hears(), changed)
    }

    #[test]
    fn a_watcher_hears_a_pulse_and_takes_its_mode() {
        for tone in DELAY {
            assert_eq!(watches(Mode::Delay, Some(tone), 50), (true, None));
            assert_eq!(
                watches(Mode::Competitive, Some(tone), 50),
                (true, Some(Mode::Delay))
            );
        }
        for tone in PASSING {
            assert_eq!(watches(Mode::Competitive, Some(tone), 50), (true, None));
            assert_eq!(
                watches(Mode::Delay, Some(tone), 50),
                (true, Some(Mode::Competitive))
            );
        }
        assert_eq!(watches(Mode::Delay, None, 50), (false, None));
        // 8 Hz are nobody's.
        assert_eq!(watches(Mode::Delay, Some(41), 50), (false, None));
    }

    #[test]
    fn the_larger_begins_sooner_and_equal_seeds_do_not_begin_together() {
        let begins = |share: f64, other: u64| {
            let mut election = Election::new(Time::ZERO, Dice(7), true);
            (0..10_000u64)
                .find(|i| election.begins(share, true, 10, i * 1_000 + other))
                .unwrap_or(10_000)
        };
        let mean =
            |share: f64| (0..200).map(|other| begins(share, other)).sum::<u64>() as f64 / 200.0;
        // 0.02 a sample: 0.18 a reading of ten at all of the link.
        assert!((3.0..6.5).contains(&mean(1.0)), "{}", mean(1.0));
        assert!((35.0..65.0).contains(&mean(0.1)), "{}", mean(0.1));
        assert!((0..20).any(|other| begins(0.5, other) != begins(0.5, other + 1)));
    }

    #[test]
    fn who_never_listens_hears_nobody() {
        let mut election = Election::new(Time::ZERO, Dice(7), false);
        assert!(!election.hears());
        election.begin(Time::ZERO);
        election.stop(Time::ZERO);
        assert!(!election.hears());
        assert!(
            Election::new(Time::ZERO, Dice(7), true).hears(),
            "until the contrary has been heard"
        );
    }

    #[test]
    fn who_pulsed_is_deaf_until_its_pulse_has_gone() {
        let mut election = pulser(1);
        let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
        let rtt = Duration::from_millis(50);
        assert!(!election.listens(at(0), rtt));
        election.stop(at(1_000));
        assert!(!election.listens(at(3_600), rtt) && election.listens(at(3_620), rtt));
    }
}
