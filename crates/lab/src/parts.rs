//! Finished parts of a long experiment, stored as they end, so that an interrupted experiment
//! continues.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::Error;

/// Folder of parts, with the conditions for reusing them.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Folder with a file per part.
    pub directory: PathBuf,
    /// Reuses parts of other builds of the program.
    pub any_build: bool,
    /// Repeats disturbed parts in [`Parts::part`].
    pub again: bool,
}

#[derive(Deserialize)]
struct Part<T> {
    build: String,
    key: String,
    value: T,
    /// All attempts on real packets, oldest first. The last one has the value.
    #[serde(default)]
    attempts: Vec<Attempt>,
}

/// Attempt on real packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// Disturbances by the machine, one sentence each.
    pub disturbed: Vec<String>,
    /// Measured value, if a later attempt replaced it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
}

/// Disturbances of a run by the machine.
pub struct Disturbed(Vec<String>);

impl Disturbed {
    /// Returns no disturbances.
    pub fn none() -> Disturbed {
        Disturbed(Vec::new())
    }

    #[cfg(test)]
    pub(crate) fn unless(sound: &bool) -> Disturbed {
        let busy = || "the machine was busy".to_owned();
        Disturbed((!sound).then(busy).into_iter().collect())
    }
}

impl From<&Vec<String>> for Disturbed {
    fn from(why: &Vec<String>) -> Disturbed {
        Disturbed(why.clone())
    }
}

impl Parts {
    /// Returns the parts of this build in a directory.
    pub fn of_this_build(directory: &Path) -> Parts {
        Parts {
            directory: directory.to_owned(),
            any_build: false,
            again: false,
        }
    }

    /// Stores a part: the file `name` contains `value`, its `key`, and the build of the program.
    pub fn keep<T: Serialize>(&self, name: &str, key: &str, value: &T) -> Result<(), Error> {
        self.write(
            name,
            json!({ "build": build(), "key": key, "value": value }),
        )
    }

    fn write(&self, name: &str, part: Value) -> Result<(), Error> {
        let path = self.directory.join(name);
        let text = part.to_string();
        let fail = |source| Error::Part {
            path: path.clone(),
            source,
        };
        std::fs::create_dir_all(&self.directory).map_err(fail)?;
        // Replaced as a whole: an interrupted write must not look like a part.
        let draft = path.with_extension("draft");
        std::fs::write(&draft, text).map_err(fail)?;
        std::fs::rename(&draft, &path).map_err(fail)
    }

    /// Returns the part with this key; `None` if it is missing or unreadable, or has another key or
    /// an excluded build.
    pub fn kept<T: DeserializeOwned>(&self, name: &str, key: &str) -> Option<T> {
        let part: Part<T> = read(&self.directory.join(name))?;
        ((self.any_build || part.build == build()) && part.key == key).then_some(part.value)
    }

    /// Returns a part of a run on real packets: the stored one, or the result of `run`, which is
    /// stored. A disturbed part is repeated if requested. `judge` returns disturbances by the
    /// machine, never results of the contender, because a failed contender must not run until it
    /// succeeds. A disturbed attempt stays in the part's file with its reasons.
    pub fn part<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        key: &str,
        judge: impl Fn(&T) -> Disturbed,
        run: impl FnOnce() -> Result<T, Error>,
    ) -> Result<T, Error> {
        let disturbed = |part: &T| judge(part).0;
        let mut attempts = Vec::new();
        if let Some(part) = self.kept::<T>(name, key) {
            if disturbed(&part).is_empty() || !self.again {
                return Ok(part);
            }
            attempts = read::<IgnoredAny>(&self.directory.join(name))
                .map_or(Vec::new(), |part| part.attempts);
            attempts.pop();
            attempts.push(Attempt {
                disturbed: disturbed(&part),
                value: json!(part),
            });
        }
        let part = run()?;
        attempts.push(Attempt {
            disturbed: disturbed(&part),
            value: Value::Null,
        });
        self.write(
            name,
            json!({ "build": build(), "key": key, "value": part, "attempts": attempts }),
        )?;
        Ok(part)
    }

    /// Returns all stored attempts on real packets of the included builds, by the part's name,
    /// oldest first.
    pub fn attempts(&self) -> BTreeMap<String, Vec<Attempt>> {
        let files = std::fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten();
        let parts = files.filter_map(|file| {
            let name = file.path().file_stem()?.to_string_lossy().into_owned();
            let part = read::<IgnoredAny>(&file.path())
                .filter(|part| self.any_build || part.build == build())?;
            (!part.attempts.is_empty()).then_some((name, part.attempts))
        });
        parts.collect()
    }
}

fn read<T: DeserializeOwned>(file: &Path) -> Option<Part<T>> {
    serde_json::from_str(&std::fs::read_to_string(file).ok()?).ok()
}

/// Identity of this build, whose results may differ from those of another build of the same
/// version: length and modification time of the executable.
fn build() -> &'static str {
    static BUILD: OnceLock<String> = OnceLock::new();
    BUILD.get_or_init(|| {
        let executable = std::env::current_exe().and_then(std::fs::metadata).ok();
        let about = executable
            .and_then(|file| Some(format!("{} bytes, {:?}", file.len(), file.modified().ok()?)));
        format!(
            "{} {}",
            env!("CARGO_PKG_VERSION"),
            about.unwrap_or_default()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_part_is_made_again() {
        let directory =
            std::env::temp_dir().join(format!("ccplane-disturbed-{}", std::process::id()));
        let mut runs = 0;
        for (again, sound, kept) in [
            (false, false, false),
            (false, true, false),
            (true, true, true),
            (true, false, true),
        ] {
            let parts = Parts {
                again,
                ..Parts::of_this_build(&directory)
            };
            let made = parts.part("a.json", "30 s", Disturbed::unless, || {
                runs += 1;
                Ok(sound)
            });
            assert_eq!(made.unwrap(), kept);
        }
        assert_eq!(
            runs, 2,
            "the first, and the disturbed one where that is wanted"
        );
        let attempts = Parts::of_this_build(&directory).attempts();
        let [first, second] = attempts["a"].as_slice() else {
            panic!("{attempts:?}")
        };
        assert_eq!(
            (first.disturbed.len(), &first.value),
            (1, &json!(false)),
            "it stays"
        );
        assert!(second.disturbed.is_empty());
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn parts_are_used_again_only_under_their_own_key() {
        let directory = std::env::temp_dir().join(format!("ccplane-parts-{}", std::process::id()));
        let parts = Parts::of_this_build(&directory);
        let kept = |name, key| parts.kept::<Vec<f64>>(name, key);
        parts.keep("a.json", "30 s", &vec![1.5, 2.0]).unwrap();
        assert_eq!(kept("a.json", "30 s"), Some(vec![1.5, 2.0]));
        assert_eq!(kept("a.json", "8 s"), None);
        assert_eq!(kept("b.json", "30 s"), None);
        let older = std::fs::read_to_string(directory.join("a.json"))
            .unwrap()
            .replace(" bytes", "0 bytes");
        std::fs::write(directory.join("a.json"), older).unwrap();
        assert_eq!(kept("a.json", "30 s"), None, "of another build");
        let any = Parts {
            any_build: true,
            ..parts.clone()
        };
        assert_eq!(
            any.kept("a.json", "30 s"),
            Some(vec![1.5, 2.0]),
            "unless that is wanted"
        );
        assert_eq!(any.kept::<Vec<f64>>("a.json", "8 s"), None);
        std::fs::write(directory.join("a.json"), "{\"key\":\"30 s\",\"val").unwrap();
        assert_eq!(kept("a.json", "30 s"), None);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
