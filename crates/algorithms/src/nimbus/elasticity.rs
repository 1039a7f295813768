//! Elasticity detection: does the cross traffic at the bottleneck give way when we send more, and
//! take when we send less?
//!
//! The sender pulses its rate at a known frequency ([`super::Pulse`]). From what it sent (S) and
//! what arrived (R), measured over the same packets, the cross traffic is ẑ = µ·S/R − S (Nimbus,
//! SIGCOMM 2022 and arXiv 1802.08730, equation 1: two flows of a FIFO leave it in the proportion in
//! which they came; it holds while the queue is not empty). Traffic that answers to the queue, as
//! Cubic's ACK clock does, carries the pulse in ẑ; traffic that does not know of us has none. η is
//! how much higher the spectrum of ẑ is at the pulse than beside it.
//!
//! [`Detector`] takes samples and keeps 5.12 s of them, 12 bytes each: 6 KiB a flow, whatever its
//! age.

use ccplane_units::Duration;

use super::spectrum::{Fourier, Part, Spectra, band, over};

/// Time between samples (the reference's `measurement_interval`). Ten times faster than the pulse's
/// first harmonic; more would give rates of less than one packet at some Mbit/s.
pub const INTERVAL: Duration = Duration::from_millis(10);
/// Samples that one spectrum is made of: 5.12 s, bins of 0.195 Hz (paper: FFT over 5 s). Less and
/// noise hides the peak, more and detection takes longer.
pub const WINDOW: usize = 512;
/// One measurement, of the packets acknowledged in one interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// S: the rate at which they were sent, bytes/s.
    pub sent: f32,
    /// R: the rate at which they arrived, bytes/s.
    pub received: f32,
    /// Queueing delay, seconds.
    pub queueing: f32,
}

/// The last [`WINDOW`] samples.
#[derive(Clone, Debug)]
pub struct Detector {
    samples: Box<[Sample]>,
    /// Where the next one goes: the oldest.
    next: usize,
    filled: usize,
}

/// What a spectrum says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// η: ẑ at the pulse over ẑ beside it; below 1 where ẑ moves little. Threshold 2 in the paper.
    pub eta: f64,
    /// Mean of ẑ over the last quarter of the window, bytes/s.
    pub cross: f64,
    /// The same over all of it.
    pub standing: f64,
    /// ẑ at the pulse over R at the pulse.
    pub answer: f64,
    /// R at the pulse over R beside it.
    pub prominence: f64,
    /// The part of the window in which there was a queue. Without one ẑ is only what the link has
    /// to spare.
    pub busy: f64,
    /// The same of the last half second.
    pub busy_now: f64,
    /// The capacity as the pulse itself shows it, bytes/s; see [`Capacity`].
    pub capacity: Capacity,
}

/// What our own pulse says of the link's capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Capacity {
    /// R stays flat while S swings: the queue is ours alone, and R is the capacity.
    Alone(f64),
    /// R follows S in part, without delay: so does a FIFO shared with traffic z that does not
    /// answer, R = µ·S/(S + z), of which dR/dS is z/(S + z) of R/S; µ = R/(1 − that part).
    Shared(f64),
    /// Neither: the queue was empty at times, or others answer to us, or we did not pulse.
    Unknown,
}

/// How far from its frequency a pulse counts, Hz (reference). RTTs that change spread it.
pub const WIDE: f64 = 0.5;
/// R is flat when its standard deviation is below this part of S's (each over its mean). Alone it
/// is some percent of it (quantisation), beside traffic that does not answer it is that traffic's
/// part of the link.
const FLAT: f64 = 0.12;
/// Least relative standard deviation of S that can be told from noise; the pulse makes 0.10 of it.
const SWINGS: f64 = 0.03;
/// Largest part of S that R may follow for `Shared`: near 1 the queue is empty, and the quotient
/// all noise.
const MOST_FOLLOWED: f64 = 0.8;
/// Largest part of S that R may follow a quarter period late, which traffic that does not answer
/// would not make.
const MOST_LATE: f64 = 0.1;
/// A pulse is seen where the spectrum at it is so many times higher than beside it (the reference's
/// 2.0).
const SEEN: f64 = 2.0;
/// Queueing delay above which the link counts as busy, seconds: above what one packet's own time
/// makes at some Mbit/s.
const BUSY: f32 = 0.000_5;
/// Part of the time in which it has to be.
const MOSTLY: f64 = 0.95;
/// Samples that say whether there is a queue now.
const NOW: usize = 50;
/// Samples that say whether we are alone: half the window, so that a capacity that fell is known
/// before the spectrum of an ẑ that is wrong by it looks like an answer.
const LATELY: usize = WINDOW / 2;

impl Default for Detector {
    fn default() -> Detector {
        Detector::new()
    }
}

impl Reading {
    /// Whether the pulse is seen in what arrived. If not, nothing is known of how others answer to
    /// it.
    pub fn pulse_arrives(&self) -> bool {
        self.prominence >= SEEN
    }
}

impl Detector {
    /// Without samples.
    pub fn new() -> Detector {
        Detector {
            samples: vec![Sample::default(); WINDOW].into_boxed_slice(),
            next: 0,
            filled: 0,
        }
    }

    /// The sample of one [`INTERVAL`]. One without a rate, or that is not a number, is as if the
    /// last one held on.
    pub fn push(&mut self, sample: Sample) {
        let good = |rate: f32| rate.is_finite() && rate > 0.0;
        let sample = match good(sample.sent) && good(sample.received) {
            true => sample,
            false if self.filled == 0 => return,
            false => self.ago(1),
        };
        self.samples[self.next] = sample;
        self.next = (self.next + 1) % WINDOW;
        self.filled = (self.filled + 1).min(WINDOW);
    }

    /// Forgets everything: after a time without samples the rest would be of another age.
    pub fn clear(&mut self) {
        (self.next, self.filled) = (0, 0);
    }

    /// Whether there are enough samples for a reading.
    pub fn is_full(&self) -> bool {
        self.filled == WINDOW
    }

    /// The sample of so many intervals ago, 1 for the last; the oldest there is where that is
    /// later.
    pub fn ago(&self, intervals: usize) -> Sample {
        let back = intervals.clamp(1, self.filled.max(1));
        self.samples[(self.next + WINDOW - back) % WINDOW]
    }

    /// The spectra of the last so many samples alone, given the capacity µ that is assumed,
    /// bytes/s. `None` until there are as many.
    pub fn spectra<'a>(
        &self,
        fourier: &'a mut Fourier,
        capacity: f64,
        last: usize,
    ) -> Option<Spectra<'a>> {
        let last = last.clamp(1, WINDOW);
        if self.filled < last || capacity.is_nan() || capacity <= 0.0 {
            return None;
        }
        let samples = (1..=last).rev().map(|ago| self.ago(ago));
        Some(fourier.transform(samples, last, capacity))
    }

    /// Looks at the window, given the capacity µ that is assumed, bytes/s, and the frequency of the
    /// pulse, Hz. `None` until the window is full.
    pub fn read(&self, fourier: &mut Fourier, capacity: f64, frequency: f64) -> Option<Reading> {
        self.read_within(fourier, capacity, frequency, WIDE, WINDOW)
    }

    /// The same of the last so many samples alone, where the pulse counts within so many Hz of its
    /// frequency: less than [`WIDE`] where others pulse near it.
    pub fn read_within(
        &self,
        fourier: &mut Fourier,
        capacity: f64,
        frequency: f64,
        width: f64,
        last: usize,
    ) -> Option<Reading> {
        let last = last.clamp(1, WINDOW);
        if self.filled < last || capacity.is_nan() || capacity <= 0.0 {
            return None;
        }
        let samples = || (1..=last).rev().map(|ago| self.ago(ago));
        let spectra = fourier.transform(samples(), last, capacity);

        let pulse = band(frequency - width, frequency + width);
        let beside = band(frequency + 1.5, 2.0 * frequency - 0.5);
        let (at_pulse, out_at_pulse) = (
            spectra.peak(Part::Cross, &pulse),
            spectra.peak(Part::Received, &pulse),
        );

        let mut eta = over(at_pulse, spectra.peak(Part::Cross, &beside));
        let answer = over(at_pulse, out_at_pulse);
        if answer < LEAST_ANSWER {
            eta = eta.min(3.0) * (answer / LEAST_ANSWER);
        }
        // The mean of the last so many.
        let cross = |count: usize| {
            let each = samples().skip(last - count);
            let each = each.map(|s| f64::from(s.sent / s.received) - f64::from(s.sent) / capacity);
            each.sum::<f64>() / count as f64 * capacity
        };
        Some(Reading {
            eta,
            cross: cross(last.min(WINDOW / 4)),
            standing: cross(last),
            answer,
            prominence: over(out_at_pulse, spectra.peak(Part::Received, &beside)),
            busy: busy(samples()),
            busy_now: busy((1..=NOW).map(|ago| self.ago(ago))),
            capacity: self.capacity(&spectra, capacity, &pulse, &beside),
        })
    }

    fn capacity(
        &self,
        spectra: &Spectra<'_>,
        scale: f64,
        pulse: &std::ops::Range<usize>,
        beside: &std::ops::Range<usize>,
    ) -> Capacity {
        let lately = || (1..=LATELY).map(|ago| self.ago(ago));
        let [sent, received] = [
            moments(lately().map(|s| s.sent)),
            moments(lately().map(|s| s.received)),
        ];
        let pulsed = sent.deviation >= SWINGS && received.deviation < FLAT * sent.deviation;
        if pulsed && busy(lately()) >= MOSTLY {
            return Capacity::Alone(received.mean);
        }
        let [sent, received] = [
            moments(self.samples.iter().map(|s| s.sent)),
            moments(self.samples.iter().map(|s| s.received)),
        ];
        if sent.deviation < SWINGS || busy(self.samples.iter().copied()) < MOSTLY {
            return Capacity::Unknown;
        }
        let strength = |bin: usize| spectra.strength(Part::Sent, bin);
        let strongest = pulse
            .clone()
            .max_by(|a, b| strength(*a).total_cmp(&strength(*b)));
        let Some(at) =
            strongest.filter(|at| strength(*at) >= SEEN * spectra.peak(Part::Sent, beside))
        else {
            return Capacity::Unknown;
        };
        // ρ = (R_f / R) / (S_f / S).
        let (r, s) = (spectra.received(at), spectra.sent(at));
        let rho = r * s.conj() / s.norm_sqr() * (sent.mean / received.mean) as f32;
        let (followed, late) = (f64::from(rho.re), f64::from(rho.im));
        if (0.0..=MOST_FOLLOWED).contains(&followed) && late.abs() <= MOST_LATE {
            Capacity::Shared((received.mean / (1.0 - followed)).min(scale * MOST_RAISED))
        } else {
            Capacity::Unknown
        }
    }
}

/// Where ẑ at the pulse is less than this part of R there, the answer is too weak for its peak to
/// mean much (the reference's 0.25): η counts at most 3, and less the weaker it is.
const LEAST_ANSWER: f64 = 0.25;
/// How many times the capacity that was assumed a single reading may give.
const MOST_RAISED: f64 = 2.0;

/// The part of these samples in which there was a queue.
fn busy(samples: impl Iterator<Item = Sample> + Clone) -> f64 {
    samples.clone().filter(|s| s.queueing > BUSY).count() as f64 / samples.count().max(1) as f64
}

struct Moments {
    mean: f64,
    /// Standard deviation over the mean.
    deviation: f64,
}

fn moments(values: impl Iterator<Item = f32> + Clone) -> Moments {
    let count = values.clone().count().max(1) as f64;
    let mean = values.clone().map(f64::from).sum::<f64>() / count;
    let square = values
        .map(|v| (f64::from(v) - mean) * (f64::from(v) - mean))
        .sum::<f64>()
        / count;
    Moments {
        mean,
        deviation: if mean > 0.0 {
            square.sqrt() / mean
        } else {
            0.0
        },
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use super::super::Pulse;
    use super::*;

    const MU: f64 = 12e6;
    const HZ: f64 = 6.0;

    /// A FIFO of capacity `MU`: we send `base` and pulse, others send `cross(t, S)`.
    fn shared(base: f64, cross: impl Fn(f64, f64) -> f64) -> Detector {
        let mut detector = Detector::new();
        for i in 0..WINDOW {
            let t = i as f64 * 0.01;
            let sent = base + Pulse::at(t * HZ) * 0.25 * MU;
            let received = MU * sent / (sent + cross(t, sent));
            detector.push(Sample {
                sent: sent as f32,
                received: received as f32,
                queueing: 0.01,
            });
        }
        detector
    }

    fn read(detector: &Detector, capacity: f64) -> Reading {
        detector
            .read(&mut Fourier::new(), capacity, HZ)
            .expect("the window is full")
    }

    #[test]
    fn constant_cross_traffic_is_not_elastic() {
        let reading = read(&shared(MU / 2.0, |_, _| MU / 2.0), MU);
        assert!(reading.eta < 1.0, "{reading:?}");
        assert!((reading.cross - MU / 2.0).abs() < 0.01 * MU, "{reading:?}");
        assert!(
            reading.pulse_arrives() && reading.answer < 0.1,
            "{reading:?}"
        );
    }

    #[test]
    fn cross_traffic_that_gives_way_is_elastic() {
        // What was taken from it one RTT of 100 ms ago it sends less now.
        let reading = read(
            &shared(MU / 2.0, |t, _| {
                MU / 2.0 - Pulse::at((t - 0.1) * HZ) * 0.125 * MU
            }),
            MU,
        );
        assert!(reading.eta > 3.0 && reading.answer > 0.4, "{reading:?}");
    }

    #[test]
    fn traffic_that_swings_at_another_frequency_is_not_elastic() {
        let reading = read(
            &shared(MU / 2.0, |t, _| MU * (0.5 + 0.1 * libm::sin(TAU * 9.0 * t))),
            MU,
        );
        assert!(reading.eta < 1.0, "{reading:?}");
    }

    #[test]
    fn alone_the_rate_that_arrives_is_the_capacity() {
        // Whatever was believed before: half as much, twice as much.
        for believed in [MU / 2.0, MU, 2.0 * MU] {
            let reading = read(&shared(MU, |_, _| 0.0), believed);
            let Capacity::Alone(capacity) = reading.capacity else {
                panic!("{reading:?}")
            };
            assert!((capacity - MU).abs() < 0.01 * MU, "{reading:?}");
        }
    }

    #[test]
    fn beside_constant_traffic_the_pulse_shows_the_capacity() {
        for cross in [0.25, 0.5, 0.7] {
            let reading = read(&shared((1.0 - cross) * MU, |_, _| cross * MU), 0.6 * MU);
            let Capacity::Shared(capacity) = reading.capacity else {
                panic!("{cross} {reading:?}")
            };
            // The pulse is large, and R no straight line of S: up to an eighth too little.
            assert!(
                (0.85..1.05).contains(&(capacity / MU)),
                "{cross} {reading:?}"
            );
        }
    }

    #[test]
    fn an_empty_queue_says_nothing_of_the_capacity() {
        let mut detector = shared(MU / 2.0, |_, _| 0.0);
        for sample in &mut detector.samples {
            (sample.received, sample.queueing) = (sample.sent, 0.0);
        }
        assert_eq!(read(&detector, MU).capacity, Capacity::Unknown);
    }

    #[test]
    fn a_detector_is_small_and_forgets() {
        assert_eq!(size_of::<Sample>() * WINDOW, 6144);
        let mut detector = shared(MU / 2.0, |_, _| MU / 2.0);
        (0..10 * WINDOW).for_each(|_| {
            detector.push(Sample {
                sent: 1.0,
                received: 1.0,
                queueing: 0.0,
            });
        });
        assert_eq!(
            (detector.samples.len(), detector.ago(WINDOW).sent),
            (WINDOW, 1.0)
        );
        detector.push(Sample::default());
        assert_eq!(detector.ago(1).sent, 1.0, "no rate: the last one holds");
        detector.clear();
        assert!(detector.read(&mut Fourier::new(), MU, HZ).is_none());
    }

    #[test]
    fn nothing_that_is_pushed_breaks_it() {
        let mut fourier = Fourier::new();
        for values in [
            [f32::NAN, 1.0],
            [f32::INFINITY, 1.0],
            [1.0, 0.0],
            [f32::MAX, f32::MIN_POSITIVE],
            [-1.0, 1.0],
        ] {
            let mut detector = Detector::new();
            for i in 0..2 * WINDOW {
                let sent = if i % 2 == 0 { values[0] } else { 1e6 };
                let (received, queueing) = (values[1], values[0]);
                detector.push(Sample {
                    sent,
                    received,
                    queueing,
                });
            }
            for capacity in [0.0, f64::NAN, 1.0, 1e12] {
                if let Some(reading) = detector.read(&mut fourier, capacity, HZ) {
                    assert!(
                        (0.0..=1000.0).contains(&reading.eta) || reading.eta.is_nan(),
                        "{reading:?}"
                    );
                }
            }
        }
    }
}
