//! Styles of lines: one hue per algorithm, shades of it for its flows, and the keys of the legend.

use ccplane_report::chart::{CONTENDER_HUES, GREY, Key, SeriesStyle, hue};

use crate::result::{ContenderResult, RunResult, WorkloadMetrics};

/// Dashes of ccplane's lines and of native lines, indexed by the number of earlier lines of the
/// same algorithm, and by the number of times that its hue is already taken.
const DASH_VARIANTS: [&str; 3] = ["", "2 3", "9 3 2 3"];
const NATIVE_DASH_VARIANTS: [&str; 3] = ["7 4", "4 3", "7 3 2 3"];
/// Dashes of datagrams, which have no congestion control; drawn in grey.
const DATAGRAM_DASHES: &str = "1 3";

/// Strength of the colour of a contender or workload for its last flow, percent.
const COLOUR_PERCENT_MIN: usize = 55;

/// Styles of all lines of a run. Keys follow the rows of the table: a contender, then its
/// workloads.
pub(super) struct SeriesStyles {
    contenders: Vec<SeriesStyle>,
    workloads: Vec<Vec<SeriesStyle>>,
    labels: Vec<String>,
    /// Key of each contender.
    keys: Vec<usize>,
}

/// Owner of a line: an algorithm, native or not.
#[derive(Clone, Copy, PartialEq)]
struct SeriesOwner<'a> {
    /// Name of the algorithm without parameters.
    family: &'a str,
    native: bool,
}

impl SeriesStyles {
    /// Assigns one hue per algorithm. Lines of ccplane are solid. Native lines are dashed and in
    /// the hue's other shade, so that they differ in greyscale too.
    pub fn new(result: &RunResult) -> SeriesStyles {
        let all = &result.contenders;
        let contenders: Vec<SeriesOwner<'_>> = all.iter().map(of_contender).collect();
        let workloads: Vec<Vec<Option<SeriesOwner<'_>>>> = all
            .iter()
            .map(|c| c.workloads.iter().map(of_workload).collect())
            .collect();
        let everyone = || {
            contenders
                .iter()
                .chain(workloads.iter().flatten().flatten())
        };
        let mut families: Vec<&str> = Vec::new();
        for who in everyone() {
            if !families.contains(&who.family) {
                families.push(who.family);
            }
        }
        let mixed = everyone().any(|who| who.native) && everyone().any(|who| !who.native);
        let look = |who: &SeriesOwner<'_>, before: usize| {
            let second = mixed && who.native;
            let variants = if second {
                NATIVE_DASH_VARIANTS
            } else {
                DASH_VARIANTS
            };
            let family = families.iter().position(|family| *family == who.family);
            let family = family.unwrap_or(0);
            let variant = (before + family / CONTENDER_HUES) % variants.len();
            SeriesStyle {
                colour: hue(family),
                secondary: second,
                dashes: variants.get(variant).copied().unwrap_or_default(),
            }
        };
        let among = |kin: &[Option<SeriesOwner<'_>>], place: usize, who: &SeriesOwner<'_>| {
            kin.iter()
                .take(place)
                .filter(|other| **other == Some(*who))
                .count()
        };
        let kin: Vec<Option<SeriesOwner<'_>>> = contenders.iter().copied().map(Some).collect();
        let one = |(place, who): (usize, &SeriesOwner<'_>)| look(who, among(&kin, place, who));
        let beside = |kin: &Vec<Option<SeriesOwner<'_>>>| -> Vec<SeriesStyle> {
            let looks = kin.iter().enumerate().map(|(place, who)| match who {
                Some(who) => look(who, among(kin, place, who)),
                None => SeriesStyle {
                    colour: GREY,
                    secondary: false,
                    dashes: DATAGRAM_DASHES,
                },
            });
            looks.collect()
        };
        let mut labels = Vec::new();
        let mut keys = Vec::new();
        for c in all {
            keys.push(labels.len());
            labels.push(c.label.clone());
            labels.extend(c.workloads.iter().map(WorkloadMetrics::title));
        }
        SeriesStyles {
            contenders: contenders.iter().enumerate().map(one).collect(),
            workloads: workloads.iter().map(beside).collect(),
            labels,
            keys,
        }
    }

    /// Returns the style of a contender.
    pub fn contender(&self, at: usize) -> SeriesStyle {
        self.contenders.get(at).copied().unwrap_or_default()
    }

    /// Returns the style of a contender's workload.
    pub fn workload(&self, at: usize, workload: usize) -> SeriesStyle {
        let looks = self.workloads.get(at).and_then(|looks| looks.get(workload));
        looks.copied().unwrap_or_default()
    }

    /// Returns the key of a contender; the keys of its workloads follow.
    pub fn key(&self, at: usize) -> usize {
        self.keys.get(at).copied().unwrap_or_default()
    }

    /// Returns all keys.
    pub fn keys(&self) -> impl Iterator<Item = Key<'_>> {
        let all = self.contenders.iter().zip(&self.workloads);
        let looks =
            all.flat_map(|(contender, workloads)| std::iter::once(contender).chain(workloads));
        self.labels.iter().zip(looks).map(|(label, look)| Key {
            label,
            style: *look,
        })
    }
}

fn of_contender(c: &ContenderResult) -> SeriesOwner<'_> {
    SeriesOwner {
        family: &c.algorithm,
        native: c.native,
    }
}

/// Returns the owner of a workload's line; `None` for datagrams.
fn of_workload(w: &WorkloadMetrics) -> Option<SeriesOwner<'_>> {
    let label = w.algorithm.as_deref()?;
    let bare = label.strip_prefix("native:");
    let family = bare.unwrap_or(label);
    Some(SeriesOwner {
        family: family.split_once(':').map_or(family, |(name, _)| name),
        native: bare.is_some(),
    })
}

/// Returns the shade of a flow among `of`, percent of the colour of its contender or workload.
/// `None` (full colour) for a single flow.
pub(super) fn shade(flow: usize, of: usize) -> Option<u8> {
    let last = of.checked_sub(1).filter(|last| *last > 0)?;
    let paler = (100 - COLOUR_PERCENT_MIN) * flow.min(last) / last;
    u8::try_from(100 - paler).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(name: &str, algorithm: Option<&str>) -> WorkloadMetrics {
        WorkloadMetrics {
            name: name.to_owned(),
            algorithm: algorithm.map(str::to_owned),
            ..WorkloadMetrics::default()
        }
    }

    fn contender(
        label: &str,
        algorithm: &str,
        native: bool,
        workloads: Vec<WorkloadMetrics>,
    ) -> ContenderResult {
        ContenderResult {
            label: label.to_owned(),
            algorithm: algorithm.to_owned(),
            native,
            workloads,
            ..ContenderResult::default()
        }
    }

    #[test]
    fn algorithms_keep_their_colour() {
        let beside = |own: &str| {
            vec![
                workload("bulk", Some(own)),
                workload("cross", Some("native:cubic")),
                workload("more", Some("native:cubic")),
                workload("noise", None),
            ]
        };
        let result = RunResult {
            contenders: vec![
                contender("copa:delta=1", "copa", false, beside("copa:delta=1")),
                contender("cubic", "cubic", false, beside("cubic")),
            ],
            ..RunResult::default()
        };
        let looks = SeriesStyles::new(&result);
        let colours =
            |at: usize| -> Vec<usize> { (0..4).map(|w| looks.workload(at, w).colour).collect() };
        assert_eq!(
            (colours(0), colours(1)),
            (vec![0, 1, 1, 5], vec![1, 1, 1, 5])
        );
        assert_eq!(
            (looks.contender(0).colour, looks.contender(1).colour),
            (0, 1)
        );
        // Native Cubic has the other shade, and its second workload other dashes.
        let [ours, first, second] = [
            looks.workload(1, 0),
            looks.workload(1, 1),
            looks.workload(1, 2),
        ];
        assert!(!ours.secondary && first.secondary && first.dashes != second.dashes);
        let keys: Vec<&str> = looks.keys().map(|key| key.label).collect();
        assert_eq!(
            keys[..3],
            ["copa:delta=1", "bulk: copa:delta=1", "cross: native:cubic"]
        );
        assert_eq!((keys.len(), looks.key(1), keys[5]), (10, 5, "cubic"));
    }

    #[test]
    fn more_than_six_algorithms_have_colours_of_their_own() {
        let result = RunResult {
            contenders: (0..12)
                .map(|n| contender(&format!("a{n}"), &format!("a{n}"), false, Vec::new()))
                .collect(),
            ..RunResult::default()
        };
        let looks = SeriesStyles::new(&result);
        let mut colours: Vec<usize> = (0..12).map(|at| looks.contender(at).colour).collect();
        colours.sort_unstable();
        colours.dedup();
        assert!(
            colours.len() == 12 && !colours.contains(&GREY),
            "{colours:?}"
        );
        // The hues repeat after 12 algorithms, with other dashes.
        let result = RunResult {
            contenders: (0..36)
                .map(|n| contender(&format!("a{n}"), &format!("a{n}"), false, Vec::new()))
                .collect(),
            ..RunResult::default()
        };
        let looks = SeriesStyles::new(&result);
        let styles: Vec<SeriesStyle> = (0..36).map(|at| looks.contender(at)).collect();
        for (at, style) in styles.iter().enumerate() {
            assert!(!styles[..at].contains(style), "{at}: {style:?}");
        }
    }

    #[test]
    fn flows_fade_from_the_first_to_the_last() {
        assert_eq!(
            [shade(0, 3), shade(1, 3), shade(2, 3)],
            [Some(100), Some(78), Some(55)]
        );
        assert_eq!((shade(0, 1), shade(0, 0)), (None, None));
    }
}
