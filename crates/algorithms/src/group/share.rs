//! Division of a group's window or rate among its members.
//!
//! Weighted max-min fairness (Bertsekas and Gallager, "Data Networks", section 6.5.2): one level
//! for all, scaled by weight. A member that needs less gets what it needs, and the level rises by
//! the rest. No demand is refused while capacity is unused.

/// Part of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct MemberShare {
    /// Weight, above 0.
    pub weight: f64,
    /// Demand; infinity if it uses all it gets.
    pub demand: f64,
    /// Minimum.
    pub min: f64,
    /// Result of the division.
    pub allocation: f64,
    /// Previous part, kept if possible.
    pub previous: f64,
    /// Part before rounding to whole segments.
    pub ideal: f64,
}

/// Bisection steps for the level: enough for every bit of an f64.
const BISECTION_STEPS: u32 = 64;

/// Divides `total`. Returns false if the sum of the minimums exceeds it; each then gets its
/// minimum, and their sum exceeds `total`.
pub(super) fn divide(total: f64, parts: &mut [MemberShare]) -> bool {
    if parts.is_empty() {
        return true;
    }
    let least: f64 = parts.iter().map(|part| part.min).sum();
    if least >= total {
        parts.iter_mut().for_each(|part| part.allocation = part.min);
        return least <= total;
    }
    let wants: f64 = parts.iter().map(|part| part.demand.max(part.min)).sum();
    let weights: f64 = parts.iter().map(|part| part.weight).sum();
    if wants <= total {
        // Unused capacity is room for members whose demand grows.
        for part in parts.iter_mut() {
            part.allocation = part.demand.max(part.min) + (total - wants) * part.weight / weights;
        }
        return true;
    }
    let at = |level: f64, part: &MemberShare| (level * part.weight).min(part.demand).max(part.min);
    let lightest = parts
        .iter()
        .map(|part| part.weight)
        .fold(f64::INFINITY, f64::min);
    // At the upper level, the lightest member alone would get everything.
    let (mut low, mut high) = (0.0, total / lightest);
    for _ in 0..BISECTION_STEPS {
        let level = low + (high - low) / 2.0;
        match parts.iter().map(|part| at(level, part)).sum::<f64>() <= total {
            true => low = level,
            false => high = level,
        }
    }
    parts
        .iter_mut()
        .for_each(|part| part.allocation = at(low, part));
    true
}

/// Rounds the parts to whole numbers whose sum is at most `total`. A part keeps its previous value
/// (`had`) while that is less than one off. Otherwise a segment could alternate between two members
/// with each report. The previous holder would send it before the other stops using it, and
/// overflow the queue. A difference goes to the part that is furthest off. Ties go to the first
/// part from `first` on, cyclically.
pub(super) fn round_to_segments(total: f64, parts: &mut [MemberShare], first: usize) {
    let mut sum = 0.0;
    for part in parts.iter_mut() {
        // Integers up to rounding errors of the bisection.
        let near = part.allocation.round();
        let exact = if (part.allocation - near).abs() < 1e-6 {
            near
        } else {
            part.allocation
        };
        part.ideal = exact;
        part.allocation = part
            .previous
            .clamp((exact - 1.0).floor() + 1.0, (exact + 1.0).ceil() - 1.0);
        sum += part.allocation;
    }
    let count = parts.len();
    let circle = |n: usize| (first % count.max(1) + n) % count.max(1);
    let mut left = (total + 1e-6).floor() - sum;
    // No part is off by one or more, so one step per part suffices.
    for _ in 0..count {
        if left.abs() < 1.0 {
            break;
        }
        let step = left.signum();
        // Shortfall of a part in the direction of the step.
        let lacks = |part: &MemberShare| (part.ideal - part.allocation) * step;
        let may = |part: &MemberShare| match step > 0.0 {
            true => part.allocation + 1.0 <= part.demand,
            false => part.allocation - 1.0 >= part.min,
        };
        let open = (0..count).map(circle).filter(|n| may(&parts[*n]));
        let Some(most) = open.reduce(|best, n| {
            if lacks(&parts[n]) > lacks(&parts[best]) {
                n
            } else {
                best
            }
        }) else {
            break;
        };
        parts[most].allocation += step;
        left -= step;
    }
}

/// Members of one TLS key, or of the datapaths without one.
#[derive(Clone, Debug, Default)]
pub(super) struct Owner {
    /// Weight, above 0.
    pub weight: f64,
    /// Number of members.
    pub members: usize,
    /// Inputs of a division, in the order of the members.
    pub shares: Vec<MemberShare>,
    /// Sum of the members' weights in `parts`, before scaling by RTT.
    weights: f64,
    /// Result of the division, for all its members.
    pub allocation: f64,
    /// False if the members' minimum exceeds it.
    pub fits: bool,
}

/// Divides `total` among owners by weight, and each owner's part among its members, so that
/// additional members of one owner take nothing from others. With `circle`, parts are rounded, see
/// [`whole`]. Returns true if all members get their minimum.
pub(super) fn divide_among(total: f64, owners: &mut [Owner], circle: Option<usize>) -> bool {
    let mut owners: Vec<&mut Owner> = owners
        .iter_mut()
        .filter(|owner| !owner.shares.is_empty())
        .collect();
    let mut shares: Vec<MemberShare> = owners.iter().map(|owner| owner.share()).collect();
    match shares.as_mut_slice() {
        [one] => one.allocation = total,
        several => {
            divide(total, several);
            if let Some(first) = circle {
                round_to_segments(total, several, first);
            }
        }
    }
    for (owner, share) in owners.iter_mut().zip(&shares) {
        owner.allocation = share.allocation;
        owner.fits = divide(share.allocation, &mut owner.shares);
        if let Some(first) = circle {
            round_to_segments(share.allocation, &mut owner.shares, first);
        }
    }
    owners.iter().all(|owner| owner.fits)
}

impl Owner {
    pub fn new(weight: f64) -> Owner {
        Owner {
            weight,
            ..Owner::default()
        }
    }

    /// Starts a division.
    pub fn clear(&mut self) {
        self.shares.clear();
        self.weights = 0.0;
    }

    /// Adds a member. `weight` excludes the RTT by which `part.weight` may be scaled.
    pub fn push(&mut self, weight: f64, part: MemberShare) {
        self.weights += weight;
        self.shares.push(part);
    }

    /// Returns the owner's part as if it were one member, with its members' mean scale.
    fn share(&self) -> MemberShare {
        let sum = |of: fn(&MemberShare) -> f64| self.shares.iter().map(of).sum::<f64>();
        MemberShare {
            weight: self.weight * sum(|part| part.weight) / self.weights,
            demand: sum(|part| part.demand.max(part.min)),
            previous: sum(|part| part.previous),
            ..MemberShare::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(weight: f64, wants: f64) -> MemberShare {
        MemberShare {
            weight,
            demand: wants,
            ..MemberShare::default()
        }
    }

    fn given(total: f64, parts: &[MemberShare]) -> Vec<f64> {
        let mut parts = parts.to_vec();
        assert!(divide(total, &mut parts));
        parts
            .iter()
            .map(|part| (part.allocation * 1e6).round() / 1e6)
            .collect()
    }

    #[test]
    fn shares_are_proportional_to_weights() {
        let all = f64::INFINITY;
        assert_eq!(
            given(12.0, &[part(1.0, all), part(1.0, all), part(1.0, all)]),
            [4.0; 3]
        );
        assert_eq!(
            given(12.0, &[part(1.0, all), part(2.0, all), part(3.0, all)]),
            [2.0, 4.0, 6.0]
        );
        assert!(given(12.0, &[]).is_empty());
    }

    #[test]
    fn unused_shares_go_to_other_members() {
        let all = f64::INFINITY;
        assert_eq!(
            given(12.0, &[part(1.0, 2.0), part(1.0, all), part(1.0, all)]),
            [2.0, 5.0, 5.0]
        );
        assert_eq!(
            given(12.0, &[part(5.0, 1.0), part(1.0, 4.0), part(1.0, all)]),
            [1.0, 4.0, 7.0]
        );
        // Unused capacity is divided among all.
        assert_eq!(given(12.0, &[part(1.0, 2.0), part(1.0, 4.0)]), [5.0, 7.0]);
    }

    #[test]
    fn minimum_shares_take_precedence() {
        let least = |least| MemberShare {
            min: least,
            ..part(1.0, f64::INFINITY)
        };
        assert_eq!(given(12.0, &[least(8.0), least(0.0)]), [8.0, 4.0]);
        let mut crowd = [least(2.0); 10];
        assert!(!divide(12.0, &mut crowd));
        assert!(crowd.iter().all(|part| part.allocation == 2.0));
    }

    #[test]
    fn remainders_rotate() {
        let mut parts = [part(1.0, f64::INFINITY); 4];
        let mut had = [0.0; 4];
        for turn in 0..4 {
            parts.iter_mut().for_each(|part| part.previous = 0.0);
            divide(10.0, &mut parts);
            round_to_segments(10.0, &mut parts, turn);
            assert_eq!(parts.iter().map(|part| part.allocation).sum::<f64>(), 10.0);
            parts
                .iter()
                .zip(&mut had)
                .for_each(|(part, had)| *had += part.allocation);
        }
        assert_eq!(had, [10.0; 4]);
    }

    #[test]
    fn shares_have_hysteresis() {
        let all = |had: f64, weight: f64| MemberShare {
            previous: had,
            ..part(weight, f64::INFINITY)
        };
        let gets = |total: f64, parts: &[MemberShare]| -> Vec<f64> {
            let mut parts = parts.to_vec();
            divide(total, &mut parts);
            round_to_segments(total, &mut parts, 0);
            parts.iter().map(|part| part.allocation).collect()
        };
        assert_eq!(gets(25.0, &[all(12.0, 1.0), all(13.0, 1.0)]), [12.0, 13.0]);
        assert_eq!(gets(25.0, &[all(12.0, 1.04), all(13.0, 1.0)]), [12.0, 13.0]);
        assert_eq!(gets(25.0, &[all(12.0, 1.2), all(13.0, 1.0)]), [13.0, 12.0]);
        // An additional segment goes to the part that lacks most, and a removed one is taken from
        // the part with the largest excess.
        assert_eq!(gets(26.0, &[all(13.0, 1.0), all(12.0, 1.0)]), [13.0, 13.0]);
        assert_eq!(gets(24.0, &[all(12.0, 1.0), all(13.0, 1.0)]), [12.0, 12.0]);
    }

    fn owner(weight: f64, members: usize, least: f64) -> Owner {
        let mut owner = Owner::new(weight);
        for _ in 0..members {
            owner.push(
                1.0,
                MemberShare {
                    min: least,
                    ..part(1.0, f64::INFINITY)
                },
            );
        }
        owner
    }

    #[test]
    fn invented_members_take_nothing_from_other_owners() {
        let mut owners = [
            owner(1.0, 2, 2.0),
            owner(1.0, 2_000, 2.0),
            owner(2.0, 1, 2.0),
        ];
        assert!(!divide_among(400.0, &mut owners, Some(0)));
        let gets = |owner: &Owner| {
            owner
                .shares
                .iter()
                .map(|part| part.allocation)
                .collect::<Vec<f64>>()
        };
        assert_eq!(
            (gets(&owners[0]), gets(&owners[2])),
            (vec![50.0; 2], vec![200.0])
        );
        assert!(owners[0].fits && !owners[1].fits && owners[2].fits);
        assert_eq!(
            (owners[1].allocation, owners[1].shares[7].allocation),
            (100.0, 2.0)
        );
        // The unused part of an owner goes to the others.
        owners[1]
            .shares
            .iter_mut()
            .for_each(|part| (part.demand, part.min) = (0.01, 0.0));
        assert!(divide_among(400.0, &mut owners, None));
        let near = |owner: &Owner, all: f64| (owner.allocation - all).abs() < 1e-6;
        assert!(
            near(&owners[0], 380.0 / 3.0) && near(&owners[1], 20.0),
            "{:?}",
            owners[0].allocation
        );
        // A single owner gets everything.
        let mut one = [owner(5.0, 3, 0.0)];
        assert!(divide_among(25.0, &mut one, Some(0)));
        assert_eq!(gets(&one[0]).iter().sum::<f64>(), 25.0);
    }

    fn any_part() -> impl Strategy<Value = MemberShare> {
        let wants = prop_oneof![Just(f64::INFINITY), Just(0.0), 0.0..1e9f64];
        (0.001..1000.0f64, wants, 0..1_000u32, 0..1_000u32).prop_map(
            |(weight, wants, least, had)| MemberShare {
                weight,
                demand: wants,
                min: f64::from(least),
                allocation: f64::NAN,
                previous: f64::from(had),
                ideal: f64::NAN,
            },
        )
    }

    proptest! {
        #[test]
        fn shares_fit_the_total_and_nobody_starves(
            total in prop_oneof![Just(0.0), 1.0..1e10f64],
            parts in prop::collection::vec(any_part(), 1..40),
            first in 0..100usize,
        ) {
            let mut parts = parts;
            let fits = divide(total, &mut parts);
            let sum: f64 = parts.iter().map(|part| part.allocation).sum();
            prop_assert!(
                parts
                    .iter()
                    .all(|part| part.allocation.is_finite() && part.allocation >= part.min)
            );
            if !fits {
                prop_assert!(parts.iter().map(|part| part.min).sum::<f64>() > total);
                return Ok(());
            }
            // The sum equals the total.
            prop_assert!(
                (sum - total).abs() <= 1e-6 * total.max(1.0),
                "{sum} of {total}"
            );
            let wants: f64 = parts.iter().map(|part| part.demand.max(part.min)).sum();
            if wants > total {
                // No part is at a lower level than another above its minimum, unless its demand is
                // met.
                let level = |part: &MemberShare| part.allocation / part.weight;
                let most = parts
                    .iter()
                    .filter(|part| part.allocation > part.min * 1.000_001)
                    .map(level)
                    .fold(0.0, f64::max);
                for part in &parts {
                    let content = part.allocation >= part.demand * 0.999_999;
                    prop_assert!(content || level(part) >= most * 0.999_99, "{part:?} {most}");
                }
            }
            let before = parts.clone();
            round_to_segments(total, &mut parts, first);
            let sum: f64 = parts.iter().map(|part| part.allocation).sum();
            prop_assert!(sum <= total * 1.000_001 + 1e-3, "{sum} of {total}");
            for (part, before) in parts.iter().zip(&before) {
                // A part may be larger if others demand no whole segment.
                prop_assert!(
                    part.allocation > before.allocation - 1.001 && part.allocation.fract() == 0.0,
                    "{part:?} {before:?}"
                );
            }
        }
    }
}
