//! Distributions of sizes: which the names stand for, and files of points.

use ccplane_units::Bytes;

/// A point of a cumulative distribution: the share of sizes at or below this one. Between two points it is linear.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SizePoint {
    /// The size.
    pub bytes: Bytes,
    /// The share of all sizes up to it, 0 to 1.
    pub share: f64,
}

/// What is wrong with a list of points: which one, counted from 0, why, and the fix.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BadPoints {
    pub(crate) index: usize,
    pub(crate) why: String,
    pub(crate) fix: &'static str,
}

/// Shares are written with a few digits: the last one is 1 to within this.
const ROUNDING: f64 = 1e-9;

/// Checks that the points make a distribution: shares that rise from 0 to 1, sizes that rise with them.
pub(crate) fn check(points: &[SizePoint]) -> Result<(), BadPoints> {
    let bad = |index, why: String, fix| Err(BadPoints { index, why, fix });
    for (i, point) in points.iter().enumerate() {
        if !(0.0..=1.0 + ROUNDING).contains(&point.share) {
            return bad(
                i,
                format!("the probability {} is not between 0 and 1", point.share),
                "write the share of sizes up to this one, as in [\"10kB\", 0.5]",
            );
        }
        let Some(before) = i.checked_sub(1).and_then(|i| points.get(i)) else {
            continue;
        };
        if point.share < before.share {
            return bad(
                i,
                format!("the probability falls from {} to {}", before.share, point.share),
                "each share counts all smaller sizes too: it can only rise",
            );
        }
        if point.bytes < before.bytes {
            return bad(
                i,
                format!("the size falls from {} to {}", before.bytes, point.bytes),
                "write the points in the order of their sizes",
            );
        }
    }
    match points.last() {
        None => bad(
            0,
            "there are no points".into(),
            "write [[\"10kB\", 0.5], [\"1MB\", 1.0]]",
        ),
        Some(last) if last.share < 1.0 - ROUNDING => bad(
            points.len() - 1,
            format!("the last probability is {}, not 1", last.share),
            "end with the largest size and 1.0",
        ),
        Some(last) if last.bytes == Bytes::new(0) => bad(
            points.len() - 1,
            "every size is 0".into(),
            "end with the largest size, above 0",
        ),
        Some(_) => Ok(()),
    }
}

/// Reads lines `bytes probability`; `#` begins a comment. A problem's number is the line's, from 1.
pub(crate) fn parse(text: &str) -> Result<Vec<SizePoint>, BadPoints> {
    let mut points = Vec::new();
    let mut lines = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split([' ', '\t', ',']).filter(|word| !word.is_empty());
        let Some(size) = words.next() else { continue };
        let point = words.next().and_then(|share| {
            // Sizes stand as bare bytes in every published table.
            let bytes = size.parse::<u64>().map(Bytes::new).ok().or_else(|| size.parse().ok())?;
            let share = share.parse().ok()?;
            Some(SizePoint { bytes, share })
        });
        match (point, words.next()) {
            (Some(point), None) => points.push(point),
            _ => {
                return Err(BadPoints {
                    index: i + 1,
                    why: format!("`{}` is not a size and a probability", line.trim().escape_debug()),
                    fix: "write lines such as `10000 0.15`",
                });
            }
        }
        lines.push(i + 1);
    }
    match check(&points) {
        Ok(()) => Ok(points),
        Err(mut bad) => {
            bad.index = lines.get(bad.index).copied().unwrap_or(1);
            Err(bad)
        }
    }
}

/// A published distribution.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    points: &'static [(u64, f64)],
}

/// Every table that has a name. Linear between the points; a first point with a share above 0 is an atom.
pub(crate) const TABLES: [Table; 5] = [
    // DCTCP (SIGCOMM 2010), figure of web search, as HPCC's `WebSearch_distribution.txt` has it.
    Table {
        name: "websearch",
        points: &[
            (0, 0.0),
            (10_000, 0.15),
            (20_000, 0.20),
            (30_000, 0.30),
            (50_000, 0.40),
            (80_000, 0.53),
            (200_000, 0.60),
            (1_000_000, 0.70),
            (2_000_000, 0.80),
            (5_000_000, 0.90),
            (10_000_000, 0.97),
            (30_000_000, 1.0),
        ],
    },
    // VL2 (SIGCOMM 2009), data mining, as the TrafficGenerator's `VL2_CDF.txt` has it.
    Table {
        name: "datamining",
        points: &[
            (0, 0.0),
            (180, 0.1),
            (216, 0.2),
            (560, 0.3),
            (900, 0.4),
            (1_100, 0.5),
            (1_870, 0.6),
            (3_160, 0.7),
            (10_000, 0.8),
            (400_000, 0.9),
            (3_160_000, 0.95),
            (100_000_000, 0.98),
            (1_000_000_000, 1.0),
        ],
    },
    // Bundler (EuroSys 2021) section 7: sizes of requests in a CAIDA trace, as its evaluation's file has them.
    Table {
        name: "caida",
        points: &[
            (0, 0.0),
            (10_000, 0.976),
            (100_000, 0.995),
            (1_000_000, 0.999),
            (5_000_000, 0.9998),
            (100_000_000, 1.0),
        ],
    },
    // HPCC (SIGCOMM 2019), Facebook's Hadoop, `FbHdp_distribution.txt`.
    Table {
        name: "hadoop",
        points: &[
            (100, 0.01),
            (350, 0.15),
            (1_000, 0.60),
            (7_000, 0.70),
            (50_000, 0.82),
            (120_000, 0.90),
            (1_000_000, 0.975),
            (10_000_000, 1.0),
        ],
    },
    // HPCC (SIGCOMM 2019), Alibaba's storage, `AliStorage2019.txt`.
    Table {
        name: "storage",
        points: &[
            (4_000, 0.2293),
            (8_000, 0.6921),
            (16_000, 0.8061),
            (32_000, 0.9047),
            (64_000, 0.9353),
            (128_000, 0.9677),
            (256_000, 0.9753),
            (2_000_000, 1.0),
        ],
    },
];

/// The points of a table with this name.
pub(crate) fn named(name: &str) -> Option<Vec<SizePoint>> {
    let table = TABLES.iter().find(|table| table.name == name)?;
    let point = |&(bytes, share)| SizePoint {
        bytes: Bytes::new(bytes),
        share,
    };
    Some(table.points.iter().map(point).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_is_a_distribution() {
        for table in &TABLES {
            let points = named(table.name).expect("it is in the list");
            assert_eq!(check(&points), Ok(()), "{}", table.name);
        }
    }

    #[test]
    fn a_file_of_points_is_read_and_its_mistakes_are_numbered() {
        let points = parse("# web\n0 0\n10kB,0.5\n\n 2000000\t1 # all\n").unwrap();
        assert_eq!(points.len(), 3);
        assert_eq!(points[1].bytes, Bytes::new(10_000));
        let wrong = |text: &str| parse(text).unwrap_err();
        assert_eq!(wrong("0 0\n\n10 0.5\n20 0.4\n30 1\n").index, 4);
        assert!(
            wrong("0 0\n10 0.5\n20 0.4\n30 1\n")
                .why
                .contains("falls from 0.5 to 0.4")
        );
        assert_eq!(wrong("0 0\n10 x\n").index, 2);
        assert!(wrong("10 0.5\n").why.contains("not 1"));
        assert!(wrong("10 0.5\n5 1\n").why.contains("the size falls"));
        assert!(wrong("").why.contains("no points"));
        assert!(wrong("10 NaN").why.contains("not between"));
    }
}
