//! Results of RC3's second loop.

use std::collections::BTreeMap;

use ccplane_transport::Rc3Stats;
use serde::{Deserialize, Serialize};

/// Statistics of RC3's second loop, over all flows of a contender.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SecondLoop {
    /// Flows for which it sent at least one segment.
    pub flows: u64,
    /// Payload bytes that it sent, at all levels.
    pub sent_bytes: u64,
    /// Bytes that it delivered before the first loop had sent them.
    pub delivered_bytes: u64,
    /// Segments delivered by both loops.
    pub duplicates: u64,
    /// Segments without a known arrival: dropped, or in flight at the end.
    pub missing: u64,
    /// Flows whose second loop stopped, by reason: `marking lost`, `class 0 waits`, `too
    /// scattered`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", with = "reasons")]
    pub stopped: BTreeMap<String, u64>,
}

impl SecondLoop {
    /// Sums the statistics of flows. Flows that never sent with the second loop do not count.
    pub fn from_stats<'t>(flows: impl Iterator<Item = &'t Rc3Stats>) -> SecondLoop {
        let mut all = SecondLoop::default();
        for rc3 in flows {
            all.flows += 1;
            all.sent_bytes += rc3.sent_bytes.iter().sum::<u64>();
            all.delivered_bytes += rc3.delivered_bytes;
            all.duplicates += rc3.duplicates;
            all.missing += rc3.unconfirmed().iter().sum::<u64>();
            if let Some(why) = rc3.stopped {
                *all.stopped.entry(why.kind().to_owned()).or_default() += 1;
            }
        }
        all
    }
}

impl<'t> std::iter::Sum<&'t SecondLoop> for SecondLoop {
    fn sum<I: Iterator<Item = &'t SecondLoop>>(several: I) -> SecondLoop {
        let mut all = SecondLoop::default();
        for one in several {
            all.flows += one.flows;
            all.sent_bytes += one.sent_bytes;
            all.delivered_bytes += one.delivered_bytes;
            all.duplicates += one.duplicates;
            all.missing += one.missing;
            for (why, flows) in &one.stopped {
                *all.stopped.entry(why.clone()).or_default() += flows;
            }
        }
        all
    }
}

/// Serialises the reasons as a list, so that values never become member names in JSON.
mod reasons {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct StoppedLoop {
        why: String,
        flows: u64,
    }

    pub fn serialize<S: Serializer>(all: &BTreeMap<String, u64>, to: S) -> Result<S::Ok, S::Error> {
        let list = all.iter().map(|(why, flows)| StoppedLoop {
            why: why.clone(),
            flows: *flows,
        });
        to.collect_seq(list)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<String, u64>, D::Error> {
        let list = Vec::<StoppedLoop>::deserialize(from)?;
        Ok(list.into_iter().map(|one| (one.why, one.flows)).collect())
    }
}

#[cfg(test)]
mod tests {
    use ccplane_transport::Rc3Stop;
    use ccplane_units::Duration;

    use super::*;

    /// The number of kinds is independent of the number of flows and of their measurements.
    #[test]
    fn stops_are_counted_by_their_kind() {
        let loops: Vec<Rc3Stats> = (0..1_000)
            .map(|n| Rc3Stats {
                stopped: (n % 2 == 0).then_some(Rc3Stop::Delay {
                    with: Duration::from_millis(30 + n),
                    without: Duration::from_millis(20),
                }),
                delivered_bytes: n,
                ..Rc3Stats::default()
            })
            .collect();
        let all = SecondLoop::from_stats(loops.iter());
        assert_eq!(
            all.stopped,
            BTreeMap::from([("class 0 waits".to_owned(), 500)])
        );
        assert_eq!((all.flows, all.delivered_bytes), (1_000, 499_500));
    }
}
