//! Published experiments: one file a figure. Each runs it, sets its numbers beside the paper's, and says where it
//! deviates from the published set-up.

mod ccp_fidelity_fixed;

use std::path::{Path, PathBuf};

use ccplane_algorithms::Registry;

use crate::error::Error;
use crate::run::Progress;

/// One published figure or table.
pub struct Experiment {
    /// What `ccplane paper` calls it.
    pub name: &'static str,
    /// What it shows, in a line.
    pub title: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// How long it takes, in full and with `--quick`.
    pub takes: &'static str,
    run: fn(&Options, &Registry, &mut dyn Progress) -> Result<Outcome, Error>,
}

/// How to run it.
#[derive(Clone, Debug)]
pub struct Options {
    /// In less than two minutes, with fewer and shorter runs: to see that it works, not to quote.
    pub quick: bool,
    /// Where parts and results go. Parts that are there already, made by the same version under the same parameters,
    /// are used again: an interrupted experiment goes on where it stopped, and a disturbed part is repeated.
    pub directory: PathBuf,
    /// The command line that does this again, for the report.
    pub command: String,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The figures by name, for one line of JSON.
    pub figures: serde_json::Map<String, serde_json::Value>,
    /// Our figures beside the paper's statement, and the deviations, for a person.
    pub text: String,
    /// The page.
    pub page: PathBuf,
}

/// Every experiment there is.
pub const ALL: &[Experiment] = &[ccp_fidelity_fixed::EXPERIMENT];

/// The experiment of that name.
pub fn by_name(name: &str) -> Option<&'static Experiment> {
    ALL.iter().find(|experiment| experiment.name == name)
}

impl Experiment {
    /// Runs it, or what of it is not there yet.
    pub fn run(&self, options: &Options, registry: &Registry, progress: &mut dyn Progress) -> Result<Outcome, Error> {
        (self.run)(options, registry, progress)
    }
}

/// Keeps a part's result: the file `name` in `directory` holds `value` and the `key` that it was made under.
fn keep<T: serde::Serialize>(directory: &Path, name: &str, key: &str, value: &T) -> Result<(), Error> {
    let path = directory.join(name);
    let text = serde_json::json!({ "key": key, "value": value }).to_string();
    let fail = |source| Error::Part {
        path: path.clone(),
        source,
    };
    std::fs::create_dir_all(directory).map_err(fail)?;
    // Whole or not at all: an interrupted write must not pass for a part.
    let draft = path.with_extension("draft");
    std::fs::write(&draft, text).map_err(fail)?;
    std::fs::rename(&draft, &path).map_err(fail)
}

/// A part kept under the same key; `None` for one that is missing, of another key, or unreadable.
fn kept<T: serde::de::DeserializeOwned>(directory: &Path, name: &str, key: &str) -> Option<T> {
    #[derive(serde::Deserialize)]
    struct Part<T> {
        key: String,
        value: T,
    }
    let text = std::fs::read_to_string(directory.join(name)).ok()?;
    let part: Part<T> = serde_json::from_str(&text).ok()?;
    (part.key == key).then_some(part.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_used_again_only_under_their_own_key() {
        let directory = std::env::temp_dir().join(format!("ccplane-parts-{}", std::process::id()));
        keep(&directory, "a.json", "30 s", &vec![1.5, 2.0]).unwrap();
        assert_eq!(kept::<Vec<f64>>(&directory, "a.json", "30 s"), Some(vec![1.5, 2.0]));
        assert_eq!(kept::<Vec<f64>>(&directory, "a.json", "8 s"), None);
        assert_eq!(kept::<Vec<f64>>(&directory, "b.json", "30 s"), None);
        std::fs::write(directory.join("a.json"), "{\"key\":\"30 s\",\"val").unwrap();
        assert_eq!(kept::<Vec<f64>>(&directory, "a.json", "30 s"), None);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn names_are_unique_and_found() {
        for experiment in ALL {
            assert_eq!(by_name(experiment.name).map(|e| e.title), Some(experiment.title));
        }
        assert!(by_name("fig-99").is_none());
    }
}
