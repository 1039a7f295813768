//! Scenarios that are shipped with ccplane, embedded in the program.

/// File in the folder `scenarios`: its name and its text.
type ShippedFile = (&'static str, &'static str);

/// Embeds files of the folder `scenarios`, a link to the repository's, which makes them part of the
/// crate's package. The macro spells each name only once.
macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../scenarios/", $name)))),+]
    };
}

/// Digests of all shipped scenarios' results. They change with the behaviour of the simulator, of a
/// transport or of an algorithm.
pub const GOLDEN_DIGESTS: &str = include_str!("../scenarios/golden.txt");

/// Shipped scenarios, in their order.
const SCENARIOS: &[ShippedFile] = files![
    "01-one-flow.toml",
    "02-fairness.toml",
    "03-random-loss.toml",
    "04-bursts-of-loss.toml",
    "05-codel.toml",
    "06-fq-codel.toml",
    "07-dctcp.toml",
    "08-incast.toml",
    "09-parking-lot.toml",
    "10-web-search.toml",
    "11-fat-tree.toml",
    "12-tree-192.toml",
    "13-internet2.toml",
    "14-rate-steps.toml",
    "15-outage.toml",
    "16-cellular.toml",
    "17-cross-traffic.toml",
    "18-requests.toml",
    "19-graph.toml",
    "20-trace.toml",
    "21-mixed.toml",
    "22-bundle.toml",
];

/// Files to which the scenarios refer.
const REFERENCED_FILES: &[ShippedFile] = files!["abilene.txt", "flows.csv", "varying.trace"];

/// Returns the names of all shipped scenarios: their file names without `.toml`.
pub fn shipped() -> impl Iterator<Item = &'static str> {
    SCENARIOS
        .iter()
        .map(|(file, _)| file.strip_suffix(".toml").unwrap_or(file))
}

/// Returns the text of the shipped scenario `name`.
pub(crate) fn text(name: &str) -> Option<&'static str> {
    let place = shipped().position(|known| known == name)?;
    SCENARIOS.get(place).map(|(_, text)| *text)
}

/// Returns a file to which a shipped scenario refers.
pub(crate) fn referenced_file(file: &str) -> Option<&'static str> {
    REFERENCED_FILES
        .iter()
        .find(|(name, _)| *name == file)
        .map(|(_, text)| *text)
}

/// Returns the shipped scenarios with a name similar to `wrong`.
pub(crate) fn near(wrong: &str) -> Vec<&'static str> {
    let part = |name: &&'static str| wrong.len() > 1 && name.contains(wrong);
    let mut near: Vec<&str> = shipped().filter(part).collect();
    for name in shipped() {
        // Users tend to forget the number at the front.
        let (_, plain) = name.split_once('-').unwrap_or((name, name));
        let meant = [name, plain].map(|known| !crate::suggestions(wrong, [known]).is_empty());
        if meant.contains(&true) && !near.contains(&name) {
            near.push(name);
        }
    }
    near
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::{ReadError, Scenario};

    /// Every file in the folder is embedded, and parses to the same scenario from either source.
    #[test]
    fn shipped_scenarios_are_embedded() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
        let found: BTreeSet<String> = fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "golden.txt")
            .collect();
        let embedded = SCENARIOS
            .iter()
            .chain(REFERENCED_FILES)
            .map(|(name, _)| (*name).to_owned());
        assert_eq!(found, embedded.collect());
        for name in shipped() {
            let ours = Scenario::shipped(name).unwrap_or_else(|error| panic!("{error}"));
            let theirs = Scenario::read(&folder.join(format!("{name}.toml"))).unwrap();
            assert_eq!(ours.file, name);
            let same =
                |scenario: &Scenario| format!("{:?} {:?}", scenario.topology, scenario.workloads);
            assert_eq!(same(&ours), same(&theirs), "{name}");
        }
    }

    #[test]
    fn names_resolve_to_files_before_shipped_scenarios() {
        let find = |name: &str| Scenario::find(Path::new(name));
        assert_eq!(
            find("02-fairness").unwrap().text,
            text("02-fairness").unwrap()
        );
        let near = |name| match find(name) {
            Err(ReadError::Unknown { near, .. }) => near,
            other => panic!("{other:?}"),
        };
        assert_eq!(near("fairness"), ["02-fairness"]);
        assert_eq!(near("02-fairnes"), ["02-fairness"]);
        assert_eq!(near("farness"), ["02-fairness"]);
        assert!(near("something").is_empty());
        let said = find("something").unwrap_err().to_string();
        assert!(
            said.contains("01-one-flow") && said.contains("20-trace"),
            "{said}"
        );
        // A name with a folder is always a path.
        assert!(matches!(
            find("nowhere/02-fairness"),
            Err(ReadError::File { .. })
        ));
        assert!(matches!(
            find("02-fairness.toml"),
            Err(ReadError::File { .. })
        ));
    }
}
