//! Mapping from values to coordinates, and round tick values.

use super::Axis;

/// Mapping from the values of an axis to SVG coordinates.
pub(super) struct Scale {
    log: bool,
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    names: Vec<String>,
}

impl Scale {
    pub fn new(
        axis: &Axis,
        values: impl Iterator<Item = f64>,
        start: f64,
        end: f64,
        headroom: bool,
    ) -> Scale {
        let usable = values.filter(|v| v.is_finite() && (!axis.log || *v > 0.0));
        let seen = usable.fold(None, |ends: Option<(f64, f64)>, v| {
            Some(ends.map_or((v, v), |(low, high)| (low.min(v), high.max(v))))
        });
        let (low, high) = axis.range.or(seen).unwrap_or((0.0, 1.0));
        let (mut low, mut high) = match (axis.range, axis.log) {
            (Some(_), _) | (None, true) => (low, high),
            (None, false) => (low.min(0.0), if headroom { high * 1.05 } else { high }),
        };
        if axis.log {
            low = low.max(f64::MIN_POSITIVE);
            high = high.max(low * 1.01);
            (low, high) = (libm::log10(low), libm::log10(high));
        }
        if high - low <= 0.0 {
            high = low + 1.0;
        }
        Scale {
            log: axis.log,
            from: low,
            to: high,
            start,
            end,
            names: axis.names.clone(),
        }
    }

    /// Returns both ends of the axis; logarithms (base 10) for a logarithmic one.
    pub fn range(&self) -> (f64, f64) {
        (self.from, self.to)
    }

    /// Returns the coordinate of a value; `None` outside the axis.
    pub fn position(&self, value: f64) -> Option<f64> {
        if !value.is_finite() || self.log && value <= 0.0 {
            return None;
        }
        let value = if self.log { libm::log10(value) } else { value };
        let share = (value - self.from) / (self.to - self.from);
        (-1e-9..=1.0 + 1e-9)
            .contains(&share)
            .then_some(self.start + share * (self.end - self.start))
    }

    /// Returns the coordinate of a value without regard to the ends of the axis, within a million
    /// units; `None` if the axis has no place for the value.
    pub fn unbounded(&self, value: f64) -> Option<f64> {
        if !value.is_finite() || self.log && value <= 0.0 {
            return None;
        }
        let value = if self.log { libm::log10(value) } else { value };
        let share = (value - self.from) / (self.to - self.from);
        let at = (self.start + share * (self.end - self.start)).clamp(-1e6, 1e6);
        at.is_finite().then_some(at)
    }

    /// Returns the lower and the upper coordinate of the ends.
    pub fn bounds(&self) -> (f64, f64) {
        (self.start.min(self.end), self.start.max(self.end))
    }

    /// Returns coordinates and labels of round values, or of the names of a categorical axis.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        if !self.names.is_empty() {
            let places = self.names.iter().zip(1u32..);
            return places
                .filter_map(|(name, at)| Some((self.position(f64::from(at))?, name.clone())))
                .collect();
        }
        let span = self.to - self.from;
        let step = if self.log {
            (span / 8.0).ceil().max(1.0)
        } else {
            round_step(span / 5.0)
        };
        let first = (self.from / step - 1e-9).floor();
        // The step yields at most a dozen ticks; the clamp covers spans at the limits of f64.
        let count = ((self.to / step + 1e-9).floor() - first).clamp(0.0, 20.0) as i64 + 1;
        // Below 2.5 decades there is room for ticks at 2 and 5.
        let between: &[f64] = if self.log && span < 2.5 {
            &[1.0, 2.0, 5.0]
        } else {
            &[1.0]
        };
        let value = |i: i64| {
            let value = (first + i as f64) * step;
            if self.log {
                libm::pow(10.0, value)
            } else {
                value
            }
        };
        (0..count)
            .flat_map(|i| between.iter().map(move |times| value(i) * times))
            .filter_map(|value| Some((self.position(value)?, short(value))))
            .collect()
    }
}

/// Rounds up to 1, 2 or 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = libm::pow(10.0, libm::log10(step.max(f64::MIN_POSITIVE)).floor());
    let times = step / power;
    let round = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|round| times <= *round + 1e-9);
    round.unwrap_or(10.0) * power
}

/// Formats a round number compactly: 0.05, 20, 1k, 10M.
fn short(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        v if v >= 0.999e9 => (value / 1e9, "G"),
        v if v >= 0.999e6 => (value / 1e6, "M"),
        v if v >= 9.99e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{}{unit}", if text == "-0" { "0" } else { text })
}

/// Formats a coordinate to a tenth of a unit.
pub(super) fn px(at: f64) -> String {
    let text = format!("{at:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_lie_where_the_axes_say() {
        let axis = Axis::linear("").with_range(0.0, 10.0);
        let scale = Scale::new(&axis, std::iter::empty(), 100.0, 200.0, false);
        assert_eq!(
            (
                scale.position(0.0),
                scale.position(5.0),
                scale.position(10.0)
            ),
            (Some(100.0), Some(150.0), Some(200.0))
        );
        assert_eq!(
            (scale.position(11.0), scale.position(f64::NAN)),
            (None, None)
        );
        let log = Scale::new(
            &Axis::log("").with_range(1.0, 100.0),
            std::iter::empty(),
            0.0,
            100.0,
            false,
        );
        assert_eq!((log.position(10.0), log.position(0.0)), (Some(50.0), None));
        assert_eq!(
            (scale.unbounded(11.0), scale.unbounded(1e300)),
            (Some(210.0), Some(1e6))
        );
        assert_eq!((log.unbounded(0.0), log.bounds()), (None, (0.0, 100.0)));
    }

    #[test]
    fn ticks_are_round() {
        let texts = |axis: Axis| -> Vec<String> {
            let scale = Scale::new(&axis, std::iter::empty(), 0.0, 1.0, false);
            scale.ticks().into_iter().map(|(_, text)| text).collect()
        };
        assert_eq!(
            texts(Axis::linear("").with_range(0.0, 15.0)),
            ["0", "5", "10", "15"]
        );
        assert_eq!(
            texts(Axis::linear("").with_range(0.0, 0.13)),
            ["0", "0.05", "0.1"]
        );
        assert_eq!(
            texts(Axis::log("").with_range(0.1, 100_000.0)),
            ["0.1", "1", "10", "100", "1000", "10k", "100k"]
        );
        assert_eq!(
            texts(Axis::log("").with_range(0.5, 5.0)),
            ["0.5", "1", "2", "5"]
        );
    }
}
