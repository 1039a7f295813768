//! Flow size distributions: cumulative tables, sampled in integer arithmetic.

use std::fmt;
use std::sync::Arc;

use ccplane_units::Bytes;
use rand_pcg::Pcg64;
use rand_pcg::rand_core::Rng;

use super::tables::{NS2_PAYLOAD_BYTES, PUBLISHED_TABLES};

/// Distribution of sizes, given as points (size, cumulative share) with linear interpolation.
///
/// A first point with a share above 0, and two points of the same size, are atoms. Shares are
/// stored as 63-bit fractions, so that the same draws give the same sizes on every platform.
/// Cloning is cheap.
///
/// ```
/// use ccplane_workload::SizeTable;
///
/// let web = SizeTable::named("websearch").expect("a published one");
/// assert_eq!(web.mean().round(), 1_711_250.0);
/// assert_eq!(web.quantile(0.5).get(), 73_076);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeTable {
    points: Arc<[Point]>,
    /// All sizes are multiples of this many bytes.
    unit: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Point {
    /// Size in units.
    size: u64,
    /// Cumulative share, as a fraction of [`SHARE_ONE`].
    share: u64,
}

/// Cumulative share of 1. A power of two represents shares given in binary floating point exactly.
const SHARE_ONE: u64 = 1 << 63;

/// Tolerance of the last share, which is published with few digits.
const SHARE_TOLERANCE: f64 = 1e-9;

/// Largest size, 281 TB: the maximum length of a stream.
const SIZE_MAX_BYTES: u64 = 1 << 48;

/// Invalid size table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}; {fix}")]
pub struct SizeTableError {
    /// Index of the point, from 0; in a text, line number from 1.
    pub index: usize,
    /// Reason.
    pub why: String,
    /// The error concerns the share of the point, not its size.
    pub share: bool,
    /// Correct form.
    pub fix: &'static str,
}

impl SizeTable {
    /// Creates a table from points (bytes, cumulative share). Both columns increase, and the last
    /// share is 1.
    pub fn new(points: &[(u64, f64)]) -> Result<SizeTable, SizeTableError> {
        SizeTable::in_units(points, 1)
    }

    /// Creates a table with a single size of at least one byte.
    pub fn fixed(bytes: Bytes) -> SizeTable {
        let size = bytes.get().clamp(1, SIZE_MAX_BYTES);
        SizeTable {
            points: Arc::new([Point {
                size,
                share: SHARE_ONE,
            }]),
            unit: 1,
        }
    }

    /// Returns a published table; [`SizeTable::names`] lists them.
    pub fn named(name: &str) -> Option<SizeTable> {
        let table = PUBLISHED_TABLES.iter().find(|table| table.name == name)?;
        SizeTable::in_units(table.points, table.unit).ok()
    }

    /// Returns the names of the published tables with their sources.
    pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
        PUBLISHED_TABLES
            .iter()
            .map(|table| (table.name, table.source))
    }

    /// Parses a table as published: lines `bytes share`, with shares up to 1 or up to 100 (%), or
    /// ns-2's lines `packets number share`, in packets of 1,460 bytes. `#` starts a comment. The
    /// `index` of an error is the line number.
    pub fn parse(text: &str) -> Result<SizeTable, SizeTableError> {
        let (mut points, mut lines, mut columns) = (Vec::new(), Vec::new(), None);
        for (n, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line
                .split([' ', '\t', ','])
                .map(str::trim)
                .filter(|word| !word.is_empty())
                .collect();
            let (size, share) = match words[..] {
                [] => continue,
                [size, share] | [size, _, share] => (size, share),
                [..] => ("", ""),
            };
            let wrong = |why: String, fix| SizeTableError {
                index: n,
                why,
                share: false,
                fix,
            };
            let bytes = size
                .parse()
                .ok()
                .or_else(|| Some(size.parse::<Bytes>().ok()?.get()));
            let Some(point) = bytes.zip(share.parse::<f64>().ok()) else {
                return Err(wrong(
                    format!("`{}` is not a size and a share", line.trim().escape_debug()),
                    "write lines such as `10000 0.15`, or `7 1 0.15` in packets of 1,460 bytes as \
                     ns-2 does",
                ));
            };
            let before = *columns.get_or_insert(words.len());
            if words.len() != before {
                return Err(wrong(
                    format!("{} columns, but earlier lines have {before}", words.len()),
                    "use one form on all lines: `bytes share` or `packets number share`",
                ));
            }
            points.push(point);
            lines.push(n);
        }
        if points
            .last()
            .is_some_and(|(_, share)| (share - 100.0).abs() < SHARE_TOLERANCE)
        {
            points.iter_mut().for_each(|(_, share)| *share /= 100.0);
        }
        let unit = if columns == Some(3) {
            NS2_PAYLOAD_BYTES
        } else {
            1
        };
        SizeTable::in_units(&points, unit).map_err(|error| SizeTableError {
            index: lines.get(error.index).copied().unwrap_or(1),
            ..error
        })
    }

    /// Returns the mean size in bytes, exact except for the final rounding.
    pub fn mean(&self) -> f64 {
        // Twice the sum of size × share; a size is below 2^48 and the shares sum to 2^63.
        let mut twice: u128 = 0;
        for (before, point) in self.segments() {
            // In whole packets the sizes after `before` up to `point` are equally likely.
            let first = if self.unit > 1 && before.size < point.size {
                before.size + 1
            } else {
                before.size
            };
            twice += u128::from(first + point.size) * u128::from(point.share - before.share);
        }
        twice as f64 / (2.0 * SHARE_ONE as f64) * self.unit as f64
    }

    /// Returns the smallest size whose cumulative share is at least `share`, between 0 and 1.
    pub fn quantile(&self, share: f64) -> Bytes {
        self.size_at(fraction(share.clamp(0.0, 1.0)).min(SHARE_ONE - 1))
    }

    /// Returns the cumulative share of this size.
    pub fn cumulative_share(&self, bytes: Bytes) -> f64 {
        // In whole packets a partial packet does not count.
        let size = bytes.get() / self.unit;
        let mut share = 0;
        for (before, point) in self.segments() {
            if size >= point.size {
                share = point.share;
            } else if size > before.size {
                let part = u128::from(size - before.size) * u128::from(point.share - before.share)
                    / u128::from(point.size - before.size);
                share = before.share + part as u64;
            }
        }
        share as f64 / SHARE_ONE as f64
    }

    pub(crate) fn draw(&self, random: &mut Pcg64) -> Bytes {
        self.size_at(random.next_u64() >> 1)
    }

    /// Returns the size at the cumulative share `at`, below [`SHARE_ONE`].
    fn size_at(&self, at: u64) -> Bytes {
        let next = self.points.partition_point(|point| point.share <= at);
        let (Some(point), Some(before)) = (self.points.get(next), next.checked_sub(1)) else {
            // Within the atom of the first point (`next` is never past the last point).
            return Bytes::new(
                self.points
                    .first()
                    .map_or(1, |point| point.size * self.unit)
                    .max(1),
            );
        };
        let before = self.points.get(before).copied().unwrap_or(*point);
        let up = u128::from(point.size - before.size) * u128::from(at - before.share);
        let width = u128::from(point.share - before.share);
        // Partial packets are rounded up.
        let up = if self.unit > 1 {
            up / width + 1
        } else {
            up / width
        };
        let size = (before.size + up as u64).min(point.size);
        Bytes::new((size * self.unit).max(1))
    }

    /// Returns each point with its predecessor; the first is an atom.
    fn segments(&self) -> impl Iterator<Item = (Point, Point)> + '_ {
        let first = self.points.first().map(|first| {
            let before = Point { share: 0, ..*first };
            (before, *first)
        });
        let others = self.points.windows(2).filter_map(|pair| match pair {
            [before, point] => Some((*before, *point)),
            _ => None,
        });
        first.into_iter().chain(others)
    }

    fn in_units(points: &[(u64, f64)], unit: u64) -> Result<SizeTable, SizeTableError> {
        let bad = |index, share, why: String, fix| {
            Err(SizeTableError {
                index,
                why,
                share,
                fix,
            })
        };
        let mut before: Option<(u64, f64)> = None;
        for (index, &(size, share)) in points.iter().enumerate() {
            if !(0.0..=1.0 + SHARE_TOLERANCE).contains(&share) {
                let why = format!("the share {share} is not between 0 and 1");
                return bad(
                    index,
                    true,
                    why,
                    "write the share of sizes up to this one, as in [\"10kB\", 0.5]",
                );
            }
            if size > SIZE_MAX_BYTES / unit {
                let why = format!("{size} bytes exceed the maximum length of a stream");
                return bad(index, false, why, "give at most 2^48 bytes");
            }
            if let Some((size_before, share_before)) = before {
                if share < share_before {
                    let why = format!("the share falls from {share_before} to {share}");
                    return bad(
                        index,
                        true,
                        why,
                        "shares are cumulative: sort them in ascending order",
                    );
                }
                if size < size_before {
                    let why = format!("the size falls from {size_before} to {size}");
                    return bad(index, false, why, "sort the points by size");
                }
            }
            before = Some((size, share));
        }
        match before {
            None => bad(
                0,
                false,
                "the table has no points".into(),
                "write [[\"10kB\", 0.5], [\"1MB\", 1.0]]",
            ),
            Some((_, share)) if share < 1.0 - SHARE_TOLERANCE => {
                let why = format!("the last share is {share}, not 1");
                bad(
                    points.len() - 1,
                    true,
                    why,
                    "end with the largest size and 1.0",
                )
            }
            Some((0, _)) => {
                let fix = "end with the largest size, above 0";
                bad(points.len() - 1, false, "every size is 0".into(), fix)
            }
            Some(_) => {
                let point = |&(size, share): &(u64, f64)| Point {
                    size,
                    share: fraction(share),
                };
                let mut points: Vec<Point> = points.iter().map(point).collect();
                // The rounding error goes to the largest size.
                if let Some(last) = points.last_mut() {
                    last.share = SHARE_ONE;
                }
                Ok(SizeTable {
                    points: points.into(),
                    unit,
                })
            }
        }
    }
}

impl fmt::Display for SizeTable {
    /// Writes the name of a published table, or the number of points and the mean.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known =
            SizeTable::names().find(|(name, _)| SizeTable::named(name).as_ref() == Some(self));
        match (known, self.points.as_ref()) {
            (Some((name, _)), _) => f.write_str(name),
            (None, [only]) => write!(f, "{}", Bytes::new(only.size * self.unit)),
            (None, points) => write!(f, "{} points, mean {:.0} bytes", points.len(), self.mean()),
        }
    }
}

/// Converts a share to a fraction of [`SHARE_ONE`].
fn fraction(share: f64) -> u64 {
    ((share * SHARE_ONE as f64) as u64).min(SHARE_ONE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tables_are_read_as_others_publish_them() {
        let shares = "0 0\n10000 0.15\n20000 0.6\n1000000 1\n";
        // HPCC's format, in per cent.
        let percent = include_str!("../../../tests/cases/13-percent.cdf");
        assert_eq!(SizeTable::parse(percent), SizeTable::parse(shares));
        // pFabric's format for ns-2: packets, an ignored number, share.
        let table = PUBLISHED_TABLES
            .iter()
            .find(|table| table.name == "websearch-packets")
            .expect("the file exists");
        let ns2: String = table
            .points
            .iter()
            .map(|(size, share)| format!("{size} 1 {share}\n"))
            .collect();
        assert_eq!(
            SizeTable::parse(&ns2).ok(),
            SizeTable::named("websearch-packets")
        );
        for (text, line, why) in [
            ("0 0\n10 1 0.5\n", 2, "3 columns, but earlier lines have 2"),
            ("0 0 0 0\n", 1, "not a size and a share"),
            ("0 0\n100 40\n", 2, "not between 0 and 1"),
        ] {
            let error = SizeTable::parse(text).expect_err(text);
            assert!(
                error.index == line && error.to_string().contains(why),
                "{error}"
            );
        }
    }

    /// Means as published with the tables, or computed from their points.
    #[test]
    fn published_means() {
        for (name, mean, within) in [
            ("websearch", 1_711_250.0, 1.0),
            // The scripts give a mean of 1,141 packets; rounding up to whole packets adds half a
            // packet on sloped segments.
            ("websearch-packets", 1_141.4 * 1_460.0, 100.0),
            ("websearch-kaist", 1_710_004.4, 1.0),
            ("datamining", 12_658_198.6, 1.0),
            ("datamining-packets", 5_116.85 * 1_460.0, 1.0),
            ("datamining-kaist", 7_487_883.7, 1.0),
            // 79 packets.
            ("datamining-rc3", 78.605 * 1_460.0, 2.0),
            ("caida", 21_025.0, 0.01),
            ("hadoop", 190_456.25, 0.01),
            ("storage", 41_328.4, 0.01),
        ] {
            let table = SizeTable::named(name).expect(name);
            assert!(
                (table.mean() - mean).abs() <= within,
                "{name}: {} is not {mean}",
                table.mean()
            );
            assert_eq!(table.to_string(), name);
        }
        assert_eq!(SizeTable::names().count(), 10);
        assert!(
            SizeTable::names()
                .all(|(name, source)| SizeTable::named(name).is_some() && !source.is_empty())
        );
    }

    #[test]
    fn quantiles_are_linear_between_points_and_atoms_are_whole() {
        let table = SizeTable::new(&[(1_000, 0.25), (3_000, 0.75), (3_000, 1.0)]).unwrap();
        let at = |share| table.quantile(share).get();
        assert_eq!(
            [at(0.0), at(0.2), at(0.25), at(0.5), at(0.75), at(1.0)],
            [1_000, 1_000, 1_000, 2_000, 3_000, 3_000]
        );
        assert_eq!(
            table.mean(),
            0.25 * 1_000.0 + 0.5 * 2_000.0 + 0.25 * 3_000.0
        );
        let share = |bytes| table.cumulative_share(Bytes::new(bytes));
        assert_eq!(
            [
                share(999),
                share(1_000),
                share(2_000),
                share(2_999),
                share(3_000)
            ],
            [0.0, 0.25, 0.5, 0.74975, 1.0]
        );
        // Packets are whole.
        let packets = SizeTable::in_units(&[(1, 0.5), (3, 1.0)], 1_460).unwrap();
        let at = |share| packets.quantile(share).get();
        assert_eq!(
            [at(0.1), at(0.5), at(0.74), at(0.76), at(1.0)],
            [1_460, 2_920, 2_920, 4_380, 4_380]
        );
        assert_eq!(
            packets.mean(),
            0.5 * 1_460.0 + 0.25 * 2_920.0 + 0.25 * 4_380.0
        );
        assert_eq!(packets.cumulative_share(Bytes::new(2_919)), 0.5);
        assert_eq!(SizeTable::fixed(Bytes::new(7)).quantile(0.3).get(), 7);
        assert_eq!(SizeTable::fixed(Bytes::new(0)).mean(), 1.0);
    }

    #[test]
    fn a_file_of_points_is_read_and_its_mistakes_are_numbered() {
        let table = SizeTable::parse("# web\n0 0\n10kB,0.5\n\n 2000000\t1 # all\n").unwrap();
        assert_eq!(
            table,
            SizeTable::new(&[(0, 0.0), (10_000, 0.5), (2_000_000, 1.0)]).unwrap()
        );
        let wrong = |text: &str| {
            SizeTable::parse(text)
                .map(|table| table.to_string())
                .unwrap_err()
        };
        let falls = wrong("0 0\n\n10 0.5\n20 0.4\n30 1\n");
        assert_eq!((falls.index, falls.share), (4, true));
        assert_eq!(
            falls.to_string(),
            "the share falls from 0.5 to 0.4; shares are cumulative: sort them in ascending order"
        );
        assert_eq!(wrong("0 0\n10 x\n").index, 2);
        assert_eq!(wrong("0 0\n10 0.5 3\n").index, 2);
        assert!(wrong("10 0.5\n").why.contains("0.5, not 1"));
        assert!(wrong("10 0.5\n5 1\n").why.contains("the size falls"));
        assert!(wrong("").why.contains("no points"));
        assert!(wrong("10 NaN").why.contains("not between"));
        assert!(wrong("0 1").why.contains("every size is 0"));
        assert!(
            wrong("999999999999999 1")
                .why
                .contains("exceed the maximum length of a stream")
        );
    }

    proptest! {
        /// `quantile` and `cumulative_share` are inverse for any table.
        #[test]
        fn share_of_a_quantile(
            mut sizes in prop::collection::vec(1_u64..1 << 40, 1..12),
            mut shares in prop::collection::vec(0.0_f64..1.0, 12),
            at in 0.0_f64..1.0,
        ) {
            sizes.sort_unstable();
            shares.truncate(sizes.len());
            shares.sort_unstable_by(f64::total_cmp);
            if let Some(last) = shares.last_mut() {
                *last = 1.0;
            }
            let points: Vec<(u64, f64)> = sizes.into_iter().zip(shares).collect();
            let table = SizeTable::new(&points).unwrap();
            let size = table.quantile(at);
            prop_assert!(
                table.cumulative_share(size + Bytes::new(1)) >= at - 1e-9,
                "{points:?} {at}"
            );
            prop_assert!(
                size.get() == 1 || table.cumulative_share(size - Bytes::new(1)) <= at + 1e-9,
                "{points:?} {at}"
            );
            let (smallest, largest) = (
                table.quantile(0.0).get() as f64,
                table.quantile(1.0).get() as f64,
            );
            prop_assert!((smallest - 1.0..=largest + 1.0).contains(&table.mean()));
        }
    }
}
