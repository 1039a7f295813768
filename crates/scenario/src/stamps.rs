//! Errors of the hosts' time stamps.

use std::str::FromStr;

use ccplane_units::Duration;
use toml::Spanned;

use crate::context::{CheckContext, names};
use crate::file::{self, value_or};
use crate::{Name, Problem};

/// Time stamp errors of a group of hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct StampErrors {
    /// Hosts or patterns; empty for all hosts.
    pub hosts: Vec<Name>,
    /// Standard deviation of the jitter that the network stack, interrupts and the scheduler add.
    pub jitter: Duration,
    /// Distribution of the jitter.
    pub shape: JitterShape,
    /// Packets within this time of the first packet of a batch share its stamp; zero: each packet
    /// has its own.
    pub batch: Duration,
    /// True to apply burst calibration, with the rate of the host's own link.
    pub calibrate: bool,
    /// Maximum clock offset; each host's offset is drawn with the run's seed.
    pub offset: Duration,
    /// Maximum clock drift, parts per 10^9; each host's drift is drawn with the run's seed.
    pub drift_ppb: u32,
}

/// Distribution of jitter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JitterShape {
    /// Exponential and one-sided, with a mean equal to the standard deviation: packets leave after
    /// they were stamped, and are stamped after they arrived.
    #[default]
    Exponential,
    /// Normal, two-sided.
    Normal,
}

/// Maximum drift, ppm. Quartz clocks are within 100 ppm; a larger value is probably a mistake.
const DRIFT_PPM_MAX: f64 = 1_000.0;

/// Maximum jitter and batch time, beyond which the 32 bits of a stamp cannot hold a delay.
const NOISE_MAX: Duration = Duration::from_secs(1);

impl StampErrors {
    /// Exact time stamps.
    pub const EXACT_TIMESTAMPS: StampErrors = StampErrors {
        hosts: Vec::new(),
        jitter: Duration::ZERO,
        shape: JitterShape::Exponential,
        batch: Duration::ZERO,
        calibrate: false,
        offset: Duration::ZERO,
        drift_ppb: 0,
    };

    /// Residual errors of calibrated NIC time stamps: normal jitter of 0.2 µs, so 99 of 100 stamps
    /// are within half a microsecond ("sub-microsecond scale" on slide 17).
    pub const HARDWARE_TIMESTAMPS: StampErrors =
        StampErrors::real(Duration::from_nanos(200), JitterShape::Normal);

    /// Kernel time stamps, taken in tc or with `SO_TIMESTAMPING`: exponential jitter with a mean of
    /// 3 µs, p50 2 µs, p99 14 µs. Stamps of an idle direction between two kernels on a virtual
    /// machine had a measured p99 of 5 to 18 µs. `ccplane paper dx-accuracy` measures the local
    /// host.
    pub const SOFTWARE_TIMESTAMPS: StampErrors =
        StampErrors::real(Duration::from_micros(3), JitterShape::Exponential);

    /// Returns errors of clocks with offsets up to 3 ms and a quartz drift of 20 ppm.
    const fn real(jitter: Duration, shape: JitterShape) -> StampErrors {
        StampErrors {
            hosts: Vec::new(),
            jitter,
            shape,
            batch: Duration::ZERO,
            calibrate: false,
            offset: Duration::from_millis(3),
            drift_ppb: 20_000,
        }
    }
}

/// Checks the table of time stamp errors.
pub(crate) fn stamps(
    context: &CheckContext,
    written: &Spanned<file::StampsEntry>,
) -> Result<StampErrors, Problem> {
    let w = written.get_ref();
    let mut stamps = match &w.preset {
        None => StampErrors::EXACT_TIMESTAMPS,
        Some(preset) => match preset.get_ref().as_str() {
            "exact" => StampErrors::EXACT_TIMESTAMPS,
            "hardware" => StampErrors::HARDWARE_TIMESTAMPS,
            "software" => StampErrors::SOFTWARE_TIMESTAMPS,
            other => {
                let known = ["exact", "hardware", "software"];
                return Err(context.source.unknown_name(preset, "preset", other, &known));
            }
        },
    };
    let noise = |value: &Option<file::Q<Duration>>, what: &str, own: Duration| match value {
        Some(value) if value.get_ref().0 > NOISE_MAX => Err(context.source.problem(
            value,
            format!(
                "{what} of {} makes the time stamps useless",
                value.get_ref().0
            ),
            "here",
            format!("give at most {NOISE_MAX}"),
        )),
        Some(value) => Ok(value.get_ref().0),
        None => Ok(own),
    };
    stamps.jitter = noise(&w.jitter, "a jitter", stamps.jitter)?;
    stamps.batch = noise(&w.batch, "a batch", stamps.batch)?;
    stamps.offset = value_or(&w.offset, stamps.offset);
    stamps.drift_ppb = w
        .drift
        .as_ref()
        .map_or(stamps.drift_ppb, |drift| drift.get_ref().0.0);
    stamps.calibrate = w.calibrate.unwrap_or(stamps.calibrate);
    stamps.hosts = w.hosts.as_ref().map_or(Vec::new(), names);
    if let Some(shape) = &w.shape {
        stamps.shape = match shape.get_ref().as_str() {
            "exponential" => JitterShape::Exponential,
            "normal" => JitterShape::Normal,
            other => {
                let known = ["exponential", "normal"];
                return Err(context.source.unknown_name(shape, "shape", other, &known));
            }
        };
    }
    Ok(stamps)
}

/// Clock drift, written as `20ppm`, in parts per 10^9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drift(pub(crate) u32);

impl FromStr for Drift {
    type Err = String;

    fn from_str(text: &str) -> Result<Drift, String> {
        let number = text
            .trim()
            .strip_suffix("ppm")
            .map(|n| n.trim_end().parse::<f64>());
        match number {
            Some(Ok(ppm)) if (0.0..=DRIFT_PPM_MAX).contains(&ppm) => {
                Ok(Drift((ppm * 1e3 + 0.5) as u32))
            }
            _ => Err(format!(
                "`{}` is not a valid clock drift; write parts per million, such as `20ppm`, at \
                 most {DRIFT_PPM_MAX}",
                text.escape_debug()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drift_is_in_parts_per_million() {
        assert_eq!("20ppm".parse(), Ok(Drift(20_000)));
        assert_eq!("0.5 ppm".parse(), Ok(Drift(500)));
        for wrong in ["20", "-1ppm", "2000ppm", "ppm", "nanppm"] {
            let error = wrong.parse::<Drift>().unwrap_err();
            assert!(error.contains("20ppm"), "{error}");
        }
    }
}
