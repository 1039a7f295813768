//! Elasticity detection: does the cross traffic at the bottleneck send less when we send more, and
//! more when we send less?
//!
//! The sender pulses its rate at a known frequency ([`super::Pulse`]). From its send rate S and
//! receive rate R, measured over the same packets, the cross traffic is ẑ = µ·S/R − S (Nimbus,
//! SIGCOMM 2022 and arXiv 1802.08730, equation 1: flows leave a FIFO in the proportion in which
//! they arrive, as long as the queue is not empty). Elastic traffic, such as an ACK-clocked Cubic
//! flow, carries the pulse in ẑ. Inelastic traffic does not. η is the ratio of the spectrum of ẑ at
//! the pulse frequency to the spectrum at neighbouring frequencies.
//!
//! [`Detector`] keeps the last 5.12 s of samples, 12 bytes each: 6 KiB per flow at any age.

use ccplane_units::{Duration, stats};

use super::spectrum::{Fourier, Spectra, SpectrumKind, band, quantized_ratio};

/// Sampling interval (the reference's `measurement_interval`): ten times the frequency of the
/// pulse's first harmonic. Shorter intervals would measure rates of less than one packet at a few
/// Mbit/s.
pub const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);
/// Samples per spectrum: 5.12 s, with bins of 0.195 Hz (paper: FFT over 5 s). With fewer, noise
/// hides the peak. With more, detection takes longer.
pub const WINDOW_SAMPLES: usize = 512;
/// Measurement of the packets acknowledged in one interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// S: send rate, bytes/s.
    pub s: f32,
    /// R: receive rate, bytes/s.
    pub r: f32,
    /// Queueing delay, seconds.
    pub queueing: f32,
}

/// Ring of the last [`WINDOW_SAMPLES`] samples.
#[derive(Clone, Debug)]
pub struct Detector {
    samples: Box<[Sample]>,
    /// Index of the next sample, which replaces the oldest.
    next: usize,
    filled: usize,
}

/// Result of one spectrum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    /// η: ẑ at the pulse frequency over ẑ at neighbouring frequencies. Below 1 if ẑ hardly varies;
    /// the paper's threshold is 2.
    pub eta: f64,
    /// Mean of ẑ over the last quarter of the window, bytes/s.
    pub recent_z: f64,
    /// Mean of ẑ over the whole window, bytes/s.
    pub mean_z: f64,
    /// ẑ over R, both at the pulse frequency.
    pub response: f64,
    /// R at the pulse frequency over R at neighbouring frequencies.
    pub prominence: f64,
    /// Fraction of the window with a queue. Without a queue, ẑ is only the link's spare capacity.
    pub busy_fraction: f64,
    /// Fraction of the last half second with a queue.
    pub recent_busy_fraction: f64,
    /// Capacity derived from the pulse, see [`Capacity`].
    pub capacity: Capacity,
}

/// Link capacity derived from the flow's own pulse, bytes/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Capacity {
    /// R is flat while S varies: the flow is alone in the queue, and R is the capacity.
    Alone(f64),
    /// R follows S partially and without delay, as in a FIFO shared with inelastic traffic z: R =
    /// µ·S/(S + z), where dR/dS is the fraction z/(S + z) of R/S. The capacity is µ = R/(1 − that
    /// fraction).
    Shared(f64),
    /// Neither: the queue was empty at times, cross traffic is elastic, or there was no pulse.
    Unknown,
}

/// Half-width of the pulse's band, Hz (reference). RTT variation spreads the pulse.
pub const PULSE_BAND_HALF_WIDTH_HZ: f64 = 0.5;
/// R is flat if its relative standard deviation is below this fraction of S's. Alone in the queue
/// the fraction is a few percent (quantization). Next to inelastic traffic it is that traffic's
/// share of the link.
const FLAT_RATE_DEVIATION_RATIO: f64 = 0.12;
/// Minimum relative standard deviation of S above noise. The pulse alone contributes 0.10.
const SEND_RATE_DEVIATION_MIN: f64 = 0.03;
/// Maximum fraction of S that R may follow for `Shared`. Near 1 the queue is empty, and the
/// quotient is dominated by noise.
const FOLLOWED_SHARE_MAX: f64 = 0.8;
/// Maximum fraction of S that R may follow a quarter period late. Inelastic traffic causes no such
/// delay.
const LATE_SHARE_MAX: f64 = 0.1;
/// The pulse is detected if the spectrum at its frequency exceeds the neighbouring spectrum by this
/// factor (the reference's 2.0).
const PULSE_PROMINENCE_MIN: f64 = 2.0;
/// Queueing delay above which the link is busy, seconds: more than the serialization of one packet
/// at a few Mbit/s.
const BUSY_LINK_DELAY_SECONDS: f32 = 0.000_5;
/// Minimum fraction of time with a busy link.
const BUSY_TIME_SHARE_MIN: f64 = 0.95;
/// Samples that determine whether there is a queue now.
const QUEUE_PRESENCE_SAMPLES: usize = 50;
/// Samples that determine whether the flow is alone: half the window, so that a decrease of the
/// capacity is recognized before the resulting error of ẑ looks like elastic traffic.
const EXCLUSIVE_LINK_SAMPLES: usize = WINDOW_SAMPLES / 2;

impl Default for Detector {
    fn default() -> Detector {
        Detector::new()
    }
}

impl Reading {
    /// Returns true if the receive rate shows the pulse. Otherwise nothing is known about the
    /// elasticity of the cross traffic.
    pub fn has_pulse(&self) -> bool {
        self.prominence >= PULSE_PROMINENCE_MIN
    }
}

impl Detector {
    /// Creates an empty detector.
    pub fn new() -> Detector {
        Detector {
            samples: vec![Sample::default(); WINDOW_SAMPLES].into_boxed_slice(),
            next: 0,
            filled: 0,
        }
    }

    /// Adds the sample of one [`SAMPLE_INTERVAL`]. A sample without valid rates repeats the
    /// previous one.
    pub fn push(&mut self, sample: Sample) {
        let good = |rate: f32| rate.is_finite() && rate > 0.0;
        let sample = match good(sample.s) && good(sample.r) {
            true => sample,
            false if self.filled == 0 => return,
            false => self.sample_ago(1),
        };
        self.samples[self.next] = sample;
        self.next = (self.next + 1) % WINDOW_SAMPLES;
        self.filled = (self.filled + 1).min(WINDOW_SAMPLES);
    }

    /// Removes all samples. After a gap, old samples would belong to a different time.
    pub fn clear(&mut self) {
        (self.next, self.filled) = (0, 0);
    }

    /// Returns true if the window is full.
    pub fn is_full(&self) -> bool {
        self.filled == WINDOW_SAMPLES
    }

    /// Returns the sample `intervals` ago, 1 for the last. Limited to the oldest sample.
    pub fn sample_ago(&self, intervals: usize) -> Sample {
        let back = intervals.clamp(1, self.filled.max(1));
        self.samples[(self.next + WINDOW_SAMPLES - back) % WINDOW_SAMPLES]
    }

    /// Returns the spectra of the last `last` samples for an assumed capacity µ, bytes/s; `None`
    /// until there are as many.
    pub fn spectra<'a>(
        &self,
        fourier: &'a mut Fourier,
        capacity: f64,
        last: usize,
    ) -> Option<Spectra<'a>> {
        let last = last.clamp(1, WINDOW_SAMPLES);
        if self.filled < last || capacity.is_nan() || capacity <= 0.0 {
            return None;
        }
        let samples = (1..=last).rev().map(|ago| self.sample_ago(ago));
        Some(fourier.transform(samples, capacity))
    }

    /// Evaluates the window for an assumed capacity µ, bytes/s, and the pulse's frequency, Hz;
    /// `None` until the window is full.
    pub fn evaluate(
        &self,
        fourier: &mut Fourier,
        capacity: f64,
        frequency: f64,
    ) -> Option<Reading> {
        self.evaluate_within(
            fourier,
            capacity,
            frequency,
            PULSE_BAND_HALF_WIDTH_HZ,
            WINDOW_SAMPLES,
        )
    }

    /// Evaluates the last `last` samples, with `width` Hz as the half-width of the pulse's band:
    /// less than [`PULSE_BAND_HALF_WIDTH_HZ`] if other flows pulse at nearby frequencies.
    pub fn evaluate_within(
        &self,
        fourier: &mut Fourier,
        capacity: f64,
        frequency: f64,
        width: f64,
        last: usize,
    ) -> Option<Reading> {
        let last = last.clamp(1, WINDOW_SAMPLES);
        if self.filled < last || capacity.is_nan() || capacity <= 0.0 {
            return None;
        }
        let samples = || (1..=last).rev().map(|ago| self.sample_ago(ago));
        let spectra = fourier.transform(samples(), capacity);

        let pulse = band(frequency - width, frequency + width);
        let beside = band(frequency + 1.5, 2.0 * frequency - 0.5);
        let (at_pulse, out_at_pulse) = (
            spectra.peak(SpectrumKind::Cross, &pulse),
            spectra.peak(SpectrumKind::Received, &pulse),
        );

        let mut eta = quantized_ratio(at_pulse, spectra.peak(SpectrumKind::Cross, &beside));
        let answer = quantized_ratio(at_pulse, out_at_pulse);
        if answer < RESPONSE_RATIO_MIN {
            eta = eta.min(3.0) * (answer / RESPONSE_RATIO_MIN);
        }
        // Mean of ẑ over the last `count` samples.
        let cross = |count: usize| {
            let each = samples().skip(last - count);
            let each =
                each.map(|sample| f64::from(sample.s / sample.r) - f64::from(sample.s) / capacity);
            stats::mean(each).unwrap_or(0.0) * capacity
        };
        Some(Reading {
            eta,
            recent_z: cross(last.min(WINDOW_SAMPLES / 4)),
            mean_z: cross(last),
            response: answer,
            prominence: quantized_ratio(
                out_at_pulse,
                spectra.peak(SpectrumKind::Received, &beside),
            ),
            busy_fraction: busy(samples()),
            recent_busy_fraction: busy(
                (1..=QUEUE_PRESENCE_SAMPLES).map(|ago| self.sample_ago(ago)),
            ),
            capacity: self.capacity(&spectra, capacity, &pulse, &beside),
        })
    }

    fn capacity(
        &self,
        spectra: &Spectra<'_>,
        scale: f64,
        pulse: &std::ops::Range<usize>,
        neighbors: &std::ops::Range<usize>,
    ) -> Capacity {
        let lately = || (1..=EXCLUSIVE_LINK_SAMPLES).map(|ago| self.sample_ago(ago));
        let [sent, received] = [
            moments(lately().map(|sample| sample.s)),
            moments(lately().map(|sample| sample.r)),
        ];
        let pulsed = sent.deviation >= SEND_RATE_DEVIATION_MIN
            && received.deviation < FLAT_RATE_DEVIATION_RATIO * sent.deviation;
        if pulsed && busy(lately()) >= BUSY_TIME_SHARE_MIN {
            return Capacity::Alone(received.mean);
        }
        let [sent, received] = [
            moments(self.samples.iter().map(|sample| sample.s)),
            moments(self.samples.iter().map(|sample| sample.r)),
        ];
        if sent.deviation < SEND_RATE_DEVIATION_MIN
            || busy(self.samples.iter().copied()) < BUSY_TIME_SHARE_MIN
        {
            return Capacity::Unknown;
        }
        let strength = |bin: usize| spectra.strength(SpectrumKind::Sent, bin);
        let strongest = pulse
            .clone()
            .max_by(|a, b| strength(*a).total_cmp(&strength(*b)));
        let Some(at) = strongest.filter(|at| {
            strength(*at) >= PULSE_PROMINENCE_MIN * spectra.peak(SpectrumKind::Sent, neighbors)
        }) else {
            return Capacity::Unknown;
        };
        // ρ = (R_f / R) / (S_f / S).
        let (r, s) = (spectra.received(at), spectra.sent(at));
        let rho = r * s.conj() / s.norm_sqr() * (sent.mean / received.mean) as f32;
        let (followed, late) = (f64::from(rho.re), f64::from(rho.im));
        if (0.0..=FOLLOWED_SHARE_MAX).contains(&followed) && late.abs() <= LATE_SHARE_MAX {
            Capacity::Shared((received.mean / (1.0 - followed)).min(scale * CAPACITY_INCREASE_MAX))
        } else {
            Capacity::Unknown
        }
    }
}

/// ẑ at the pulse frequency, relative to R there, below which the response is too weak for its peak
/// to be reliable (the reference's 0.25). η is then at most 3, and scaled down further with the
/// response.
const RESPONSE_RATIO_MIN: f64 = 0.25;
/// Upper bound of the capacity from one reading, relative to the assumed capacity.
const CAPACITY_INCREASE_MAX: f64 = 2.0;

/// Returns the fraction of these samples with a queue.
fn busy(samples: impl Iterator<Item = Sample> + Clone) -> f64 {
    samples
        .clone()
        .filter(|s| s.queueing > BUSY_LINK_DELAY_SECONDS)
        .count() as f64
        / samples.count().max(1) as f64
}

struct Moments {
    mean: f64,
    /// Standard deviation over the mean.
    deviation: f64,
}

fn moments(values: impl Iterator<Item = f32> + Clone) -> Moments {
    let values = values.map(f64::from);
    let count = values.clone().count().max(1) as f64;
    let mean = stats::mean(values.clone()).unwrap_or(0.0);
    let square = stats::squared_deviations(values, mean) / count;
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
    const PULSE_HZ: f64 = 6.0;

    /// FIFO of capacity `MU`: the flow sends `base` plus the pulse, and cross traffic sends
    /// `cross(t, S)`.
    fn shared(base: f64, cross: impl Fn(f64, f64) -> f64) -> Detector {
        let mut detector = Detector::new();
        for i in 0..WINDOW_SAMPLES {
            let t = i as f64 * 0.01;
            let sent = base + Pulse::at(t * PULSE_HZ) * 0.25 * MU;
            let received = MU * sent / (sent + cross(t, sent));
            detector.push(Sample {
                s: sent as f32,
                r: received as f32,
                queueing: 0.01,
            });
        }
        detector
    }

    fn read(detector: &Detector, capacity: f64) -> Reading {
        detector
            .evaluate(&mut Fourier::new(), capacity, PULSE_HZ)
            .expect("the window is full")
    }

    #[test]
    fn constant_cross_traffic_is_not_elastic() {
        let reading = read(&shared(MU / 2.0, |_, _| MU / 2.0), MU);
        assert!(reading.eta < 1.0, "{reading:?}");
        assert!(
            (reading.recent_z - MU / 2.0).abs() < 0.01 * MU,
            "{reading:?}"
        );
        assert!(reading.has_pulse() && reading.response < 0.1, "{reading:?}");
    }

    #[test]
    fn yielding_cross_traffic_is_elastic() {
        // Cross traffic responds one RTT of 100 ms later to the share it lost.
        let reading = read(
            &shared(MU / 2.0, |t, _| {
                MU / 2.0 - Pulse::at((t - 0.1) * PULSE_HZ) * 0.125 * MU
            }),
            MU,
        );
        assert!(reading.eta > 3.0 && reading.response > 0.4, "{reading:?}");
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
        // The assumed capacity does not matter: half, exact, or double.
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
            // R is not linear in S over a pulse this large: the estimate is up to an eighth too
            // low.
            assert!(
                (0.85..1.05).contains(&(capacity / MU)),
                "{cross} {reading:?}"
            );
        }
    }

    #[test]
    fn an_empty_queue_does_not_measure_the_capacity() {
        let mut detector = shared(MU / 2.0, |_, _| 0.0);
        for sample in &mut detector.samples {
            (sample.r, sample.queueing) = (sample.s, 0.0);
        }
        assert_eq!(read(&detector, MU).capacity, Capacity::Unknown);
    }

    #[test]
    fn a_detector_is_small_and_forgets() {
        assert_eq!(size_of::<Sample>() * WINDOW_SAMPLES, 6144);
        let mut detector = shared(MU / 2.0, |_, _| MU / 2.0);
        (0..10 * WINDOW_SAMPLES).for_each(|_| {
            detector.push(Sample {
                s: 1.0,
                r: 1.0,
                queueing: 0.0,
            });
        });
        assert_eq!(
            (
                detector.samples.len(),
                detector.sample_ago(WINDOW_SAMPLES).s
            ),
            (WINDOW_SAMPLES, 1.0)
        );
        detector.push(Sample::default());
        assert_eq!(detector.sample_ago(1).s, 1.0, "no rate: the last one holds");
        detector.clear();
        assert!(
            detector
                .evaluate(&mut Fourier::new(), MU, PULSE_HZ)
                .is_none()
        );
    }

    #[test]
    fn arbitrary_samples_do_no_harm() {
        let mut fourier = Fourier::new();
        for values in [
            [f32::NAN, 1.0],
            [f32::INFINITY, 1.0],
            [1.0, 0.0],
            [f32::MAX, f32::MIN_POSITIVE],
            [-1.0, 1.0],
        ] {
            let mut detector = Detector::new();
            for i in 0..2 * WINDOW_SAMPLES {
                let sent = if i % 2 == 0 { values[0] } else { 1e6 };
                let (received, queueing) = (values[1], values[0]);
                detector.push(Sample {
                    s: sent,
                    r: received,
                    queueing,
                });
            }
            for capacity in [0.0, f64::NAN, 1.0, 1e12] {
                if let Some(reading) = detector.evaluate(&mut fourier, capacity, PULSE_HZ) {
                    assert!(
                        (0.0..=1000.0).contains(&reading.eta) || reading.eta.is_nan(),
                        "{reading:?}"
                    );
                }
            }
        }
    }
}
