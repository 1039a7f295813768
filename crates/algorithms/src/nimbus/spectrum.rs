//! Spectra of the send rate, the receive rate and the cross traffic.
//!
//! [`Fourier`] holds the FFT's plan and buffers, shared by any number of detectors.
//!
//! Results are bit-identical on every machine: the plan is `rustfft`'s scalar one in `f32`. It
//! takes sines and cosines from the platform in `f64` and are identical after rounding (a test
//! checks each of them).

use std::ops::Range;
use std::sync::Arc;

use ccplane_units::stats;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlannerScalar};

use super::elasticity::{Sample, WINDOW_SAMPLES};

/// Bins per Hz.
pub const BINS_PER_HZ: f64 = 5.12;

/// Returns the bins of the frequencies in (`low`, `high`].
pub fn band(low: f64, high: f64) -> Range<usize> {
    let bin = |hz: f64| ((hz * BINS_PER_HZ).max(0.0) as usize + 1).min(WINDOW_SAMPLES / 2);
    bin(low)..bin(high)
}

/// Returns the quotient in steps of 1/1024, so that the last bit of a division has no effect; 1000
/// if the divisor is not positive.
pub(crate) fn quantized_ratio(a: f64, b: f64) -> f64 {
    let quotient = if b > 0.0 { (a / b).min(1000.0) } else { 1000.0 };
    libm::round(quotient * 1024.0) / 1024.0
}

fn magnitude(value: Complex<f32>) -> f64 {
    f64::from(value.norm_sqr()).sqrt()
}

/// Plan and buffers of the FFT.
pub struct Fourier {
    plan: Arc<dyn Fft<f32>>,
    /// S in the real part and R in the imaginary part: one FFT computes both.
    rates: Vec<Complex<f32>>,
    /// S/R.
    ratio: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
}

impl std::fmt::Debug for Fourier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fourier").finish_non_exhaustive()
    }
}

impl Default for Fourier {
    fn default() -> Fourier {
        Fourier::new()
    }
}

impl Fourier {
    /// Plans the FFT, once: about 10 µs.
    pub fn new() -> Fourier {
        let plan = FftPlannerScalar::new().plan_fft_forward(WINDOW_SAMPLES);
        let zero = Complex::new(0.0, 0.0);
        Fourier {
            rates: vec![zero; WINDOW_SAMPLES],
            ratio: vec![zero; WINDOW_SAMPLES],
            scratch: vec![zero; plan.get_inplace_scratch_len()],
            plan,
        }
    }

    /// Returns the spectra of the samples, oldest first, with their means removed and zero
    /// padding. Rates are relative to `capacity`, so that single precision suffices for any link.
    pub(super) fn transform(
        &mut self,
        samples: impl Iterator<Item = Sample> + Clone,
        capacity: f64,
    ) -> Spectra<'_> {
        let part = |rate: f32| (f64::from(rate) / capacity) as f32;
        let samples = samples.map(|sample| [part(sample.s), part(sample.r), sample.s / sample.r]);
        let mean = |of: usize| {
            stats::mean(samples.clone().map(|s| f64::from(s[of]))).unwrap_or(0.0) as f32
        };
        let [sent, received, ratio] = [mean(0), mean(1), mean(2)];
        let zero = Complex::new(0.0, 0.0);
        self.rates.fill(zero);
        self.ratio.fill(zero);
        for ((a, b), s) in self
            .rates
            .iter_mut()
            .zip(&mut self.ratio)
            .zip(samples.clone())
        {
            *a = Complex::new(s[0] - sent, s[1] - received);
            *b = Complex::new(s[2] - ratio, 0.0);
        }
        self.plan
            .process_with_scratch(&mut self.rates, &mut self.scratch);
        self.plan
            .process_with_scratch(&mut self.ratio, &mut self.scratch);
        Spectra {
            rates: &self.rates,
            ratio: &self.ratio,
        }
    }
}

/// Selector of a spectrum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpectrumKind {
    /// S, the send rate.
    Sent,
    /// R, the receive rate.
    Received,
    /// ẑ, the cross traffic.
    Cross,
}

/// The three spectra, separated.
pub struct Spectra<'a> {
    rates: &'a [Complex<f32>],
    ratio: &'a [Complex<f32>],
}

impl Spectra<'_> {
    /// Returns the magnitude in a bin, up to half the window.
    pub fn strength(&self, part: SpectrumKind, bin: usize) -> f64 {
        magnitude(match part {
            SpectrumKind::Sent => self.sent(bin),
            SpectrumKind::Received => self.received(bin),
            SpectrumKind::Cross => self.ratio(bin) - self.sent(bin),
        })
    }

    /// Returns the maximum magnitude in these bins.
    pub fn peak(&self, part: SpectrumKind, bins: &Range<usize>) -> f64 {
        bins.clone()
            .map(|bin| self.strength(part, bin))
            .fold(0.0, f64::max)
    }

    /// The FFT of a real signal has Hermitian symmetry, which separates S from R.
    pub(super) fn sent(&self, bin: usize) -> Complex<f32> {
        (self.rates[bin] + self.rates[(WINDOW_SAMPLES - bin) % WINDOW_SAMPLES].conj()) * 0.5
    }

    pub(super) fn received(&self, bin: usize) -> Complex<f32> {
        (self.rates[bin] - self.rates[(WINDOW_SAMPLES - bin) % WINDOW_SAMPLES].conj())
            * Complex::new(0.0, -0.5)
    }

    fn ratio(&self, bin: usize) -> Complex<f32> {
        self.ratio[bin]
    }
}

#[cfg(test)]
mod tests {
    use std::f64::consts::TAU;

    use super::super::Detector;
    use super::*;

    #[test]
    fn the_band_is_open_below_and_closed_above() {
        // 6.5 Hz is bin 33.28, 5.5 Hz bin 28.16.
        assert_eq!(band(5.5, 6.5), 29..34);
        assert_eq!(band(7.5, 11.5), 39..59);
        assert_eq!(band(-1.0, 1e9), 1..256);
    }

    #[test]
    fn a_part_of_the_window_is_a_window_of_its_own() {
        // 6.25 Hz is bin 32. The oscillation is in S for the first half and in R for the second.
        let mut detector = Detector::new();
        for i in 0..WINDOW_SAMPLES {
            let swing = 1e6 * libm::sin(TAU * 6.25 * i as f64 * 0.01);
            let (sent, received) = if i < WINDOW_SAMPLES / 2 {
                (swing, 0.0)
            } else {
                (0.0, swing)
            };
            detector.push(Sample {
                s: (5e6 + sent) as f32,
                r: (5e6 + received) as f32,
                queueing: 0.01,
            });
        }
        let mut fourier = Fourier::new();
        let whole = detector
            .spectra(&mut fourier, 10e6, WINDOW_SAMPLES)
            .expect("the window of samples is full");
        let (sent, received) = (
            whole.strength(SpectrumKind::Sent, 32),
            whole.strength(SpectrumKind::Received, 32),
        );
        assert!((sent / received - 1.0).abs() < 0.01, "{sent} {received}");
        let late = detector
            .spectra(&mut fourier, 10e6, WINDOW_SAMPLES / 2)
            .expect("the window of samples is full");
        let (sent, received) = (
            late.strength(SpectrumKind::Sent, 32),
            late.strength(SpectrumKind::Received, 32),
        );
        assert!(sent < 0.001 * received, "{sent} {received}");
        // Half of 256 samples of amplitude 0.1, relative to the capacity.
        assert!((late.peak(SpectrumKind::Received, &band(5.5, 6.5)) - 12.8).abs() < 0.1);
    }

    /// `rustfft` computes its twiddle factors from the platform's `f64` sine and cosine, whose last
    /// bits may differ between machines. None is so close to the midpoint of two `f32` values that
    /// four such bits would change its rounding.
    #[test]
    fn the_factors_are_the_same_on_every_machine() {
        for index in 0..WINDOW_SAMPLES {
            let angle = -TAU / WINDOW_SAMPLES as f64 * index as f64;
            for exact in [libm::cos(angle), libm::sin(angle)] {
                let wide = exact.abs() * 4.0 * f64::EPSILON;
                assert_eq!((exact - wide) as f32, (exact + wide) as f32, "{index}");
            }
        }
    }
}
