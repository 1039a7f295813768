//! What is aimed at with a figure, and whether the figure keeps to it, as far as it is known.

use std::fmt;

use serde::Serialize;

/// The range that a figure should lie in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aim {
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
    /// Between these, both included.
    Within(f64, f64),
}

/// What came of an aim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The figure keeps to it; of an interval, all of it does.
    Met,
    /// The figure does not keep to it; of an interval, nothing does.
    Missed,
    /// The interval lies on both sides, or there is none: too few runs to tell.
    Undecided,
}

impl Aim {
    /// What a single figure says. One that is no number misses.
    pub fn judge(self, value: f64) -> Verdict {
        let (least, most) = self.range();
        if (least..=most).contains(&value) {
            Verdict::Met
        } else {
            Verdict::Missed
        }
    }

    /// What a confidence interval says. For a ratio to native this is an equivalence test whose
    /// margin is the range's distance from 1: "as good as native" is claimed only where the whole
    /// 95 % interval is within.
    pub fn judge_interval(self, interval: Option<(f64, f64)>) -> Verdict {
        let Some((low, high)) = interval.filter(|(low, high)| low.is_finite() && high.is_finite())
        else {
            return Verdict::Undecided;
        };
        let (least, most) = self.range();
        if least <= low && high <= most {
            Verdict::Met
        } else if high < least || most < low {
            Verdict::Missed
        } else {
            Verdict::Undecided
        }
    }

    /// What keeps to it.
    fn range(self) -> (f64, f64) {
        match self {
            Aim::AtMost(most) => (f64::NEG_INFINITY, most),
            Aim::AtLeast(least) => (least, f64::INFINITY),
            Aim::Within(least, most) => (least, most),
        }
    }
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Aim::AtMost(most) => write!(f, "≤ {most}"),
            Aim::AtLeast(least) => write!(f, "≥ {least}"),
            Aim::Within(least, most) => write!(f, "{least} to {most}"),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_on_both_sides_of_the_margin_decides_nothing() {
        let at_least = |interval| Aim::AtLeast(0.95).judge_interval(interval);
        assert_eq!(at_least(Some((0.96, 1.02))), Verdict::Met);
        assert_eq!(at_least(Some((0.90, 0.94))), Verdict::Missed);
        assert_eq!(at_least(Some((0.93, 1.02))), Verdict::Undecided);
        assert_eq!(
            at_least(None),
            Verdict::Undecided,
            "one run has no interval"
        );
        let as_good = |interval| Aim::Within(0.97, 1.03).judge_interval(Some(interval));
        assert_eq!(as_good((0.98, 1.02)), Verdict::Met);
        assert_eq!(as_good((1.04, 1.10)), Verdict::Missed);
        assert_eq!(as_good((0.90, 1.10)), Verdict::Undecided);
        assert_eq!(as_good((f64::NAN, 1.0)), Verdict::Undecided);
    }

    #[test]
    fn a_figure_alone_is_met_at_the_bound_and_missed_beyond() {
        assert_eq!(Aim::AtMost(2.0).judge(2.0), Verdict::Met);
        assert_eq!(Aim::AtMost(2.0).judge(2.1), Verdict::Missed);
        assert_eq!(Aim::AtLeast(2.0).judge(1.9), Verdict::Missed);
        assert_eq!(Aim::Within(1.0, 2.0).judge(1.0), Verdict::Met);
        assert_eq!(Aim::AtLeast(2.0).judge(f64::NAN), Verdict::Missed);
    }

    #[test]
    fn aims_read_as_people_write_them() {
        let texts = [Aim::AtMost(1.05), Aim::AtLeast(30.0), Aim::Within(0.9, 1.1)]
            .map(|aim| aim.to_string());
        assert_eq!(texts, ["≤ 1.05", "≥ 30", "0.9 to 1.1"]);
    }
}
