//! Whether a figure keeps to what is aimed at, as far as it is known.

use std::fmt;

use serde::Serialize;

/// What came of an aim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All of the interval keeps to it.
    Met,
    /// None of the interval does.
    Missed,
    /// The interval lies on both sides, or there is none: too few runs to tell.
    Undecided,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Met => "met",
            Verdict::Missed => "missed",
            Verdict::Undecided => "undecided",
        })
    }
}

/// An aim as the range that keeps to it. For a ratio to native it is an equivalence test whose margin is the range's
/// distance from 1: "as good as native" is claimed only where the whole 95 % interval is within.
pub fn judge(interval: Option<(f64, f64)>, range: (f64, f64)) -> Verdict {
    let Some((low, high)) = interval.filter(|(low, high)| low.is_finite() && high.is_finite()) else {
        return Verdict::Undecided;
    };
    let (least, most) = range;
    if least <= low && high <= most {
        Verdict::Met
    } else if high < least || most < low {
        Verdict::Missed
    } else {
        Verdict::Undecided
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_on_both_sides_of_the_margin_decides_nothing() {
        let at_least = (0.95, f64::INFINITY);
        assert_eq!(judge(Some((0.96, 1.02)), at_least), Verdict::Met);
        assert_eq!(judge(Some((0.90, 0.94)), at_least), Verdict::Missed);
        assert_eq!(judge(Some((0.93, 1.02)), at_least), Verdict::Undecided);
        assert_eq!(judge(None, at_least), Verdict::Undecided, "one run has no interval");
        let as_good = (0.97, 1.03);
        assert_eq!(judge(Some((0.98, 1.02)), as_good), Verdict::Met);
        assert_eq!(judge(Some((1.04, 1.10)), as_good), Verdict::Missed);
        assert_eq!(judge(Some((0.90, 1.10)), as_good), Verdict::Undecided);
        assert_eq!(judge(Some((f64::NAN, 1.0)), as_good), Verdict::Undecided);
    }
}
