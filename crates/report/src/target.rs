//! Targets of results, and verdicts on them.

use std::fmt;

use serde::Serialize;

/// Range in which a result should lie; the bounds are included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TargetRange {
    /// Upper bound.
    AtMost(f64),
    /// Lower bound.
    AtLeast(f64),
    /// Lower and upper bound.
    Within(f64, f64),
}

/// Outcome of comparing a result with its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The value, or the whole interval, lies inside the range.
    Met,
    /// The value, or the whole interval, lies outside the range.
    Missed,
    /// The interval straddles a bound, or is missing: too few runs to decide.
    Inconclusive,
}

impl TargetRange {
    /// Compares a single value with the target. NaN is a miss.
    pub fn compare(self, value: f64) -> Verdict {
        let (least, most) = self.range();
        if (least..=most).contains(&value) {
            Verdict::Met
        } else {
            Verdict::Missed
        }
    }

    /// Compares a confidence interval with the target. For a ratio to native this is an equivalence
    /// test whose margin is the distance of the range from 1: "as good as native" is claimed only
    /// if the whole 95 % interval lies inside the range.
    pub fn compare_interval(self, interval: Option<(f64, f64)>) -> Verdict {
        let Some((low, high)) = interval.filter(|(low, high)| low.is_finite() && high.is_finite())
        else {
            return Verdict::Inconclusive;
        };
        let (least, most) = self.range();
        if least <= low && high <= most {
            Verdict::Met
        } else if high < least || most < low {
            Verdict::Missed
        } else {
            Verdict::Inconclusive
        }
    }

    /// Bounds of the range, infinite on an open side.
    fn range(self) -> (f64, f64) {
        match self {
            TargetRange::AtMost(most) => (f64::NEG_INFINITY, most),
            TargetRange::AtLeast(least) => (least, f64::INFINITY),
            TargetRange::Within(least, most) => (least, most),
        }
    }
}

impl fmt::Display for TargetRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TargetRange::AtMost(most) => write!(f, "≤ {most}"),
            TargetRange::AtLeast(least) => write!(f, "≥ {least}"),
            TargetRange::Within(least, most) => write!(f, "{least} to {most}"),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Met => "met",
            Verdict::Missed => "missed",
            Verdict::Inconclusive => "inconclusive",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_on_both_sides_of_the_margin_decides_nothing() {
        let at_least = |interval| TargetRange::AtLeast(0.95).compare_interval(interval);
        assert_eq!(at_least(Some((0.96, 1.02))), Verdict::Met);
        assert_eq!(at_least(Some((0.90, 0.94))), Verdict::Missed);
        assert_eq!(at_least(Some((0.93, 1.02))), Verdict::Inconclusive);
        assert_eq!(
            at_least(None),
            Verdict::Inconclusive,
            "one run has no interval"
        );
        let as_good = |interval| TargetRange::Within(0.97, 1.03).compare_interval(Some(interval));
        assert_eq!(as_good((0.98, 1.02)), Verdict::Met);
        assert_eq!(as_good((1.04, 1.10)), Verdict::Missed);
        assert_eq!(as_good((0.90, 1.10)), Verdict::Inconclusive);
        assert_eq!(as_good((f64::NAN, 1.0)), Verdict::Inconclusive);
    }

    #[test]
    fn a_single_value_is_compared_with_the_bound() {
        assert_eq!(TargetRange::AtMost(2.0).compare(2.0), Verdict::Met);
        assert_eq!(TargetRange::AtMost(2.0).compare(2.1), Verdict::Missed);
        assert_eq!(TargetRange::AtLeast(2.0).compare(1.9), Verdict::Missed);
        assert_eq!(TargetRange::Within(1.0, 2.0).compare(1.0), Verdict::Met);
        assert_eq!(TargetRange::AtLeast(2.0).compare(f64::NAN), Verdict::Missed);
    }

    #[test]
    fn targets_are_printed_readably() {
        let texts = [
            TargetRange::AtMost(1.05),
            TargetRange::AtLeast(30.0),
            TargetRange::Within(0.9, 1.1),
        ]
        .map(|target| target.to_string());
        assert_eq!(texts, ["≤ 1.05", "≥ 30", "0.9 to 1.1"]);
    }
}
