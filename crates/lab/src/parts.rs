//! Parts of long work, kept as soon as they are done: an interrupted experiment goes on where it
//! stopped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::Error;

/// Where parts are kept, and which of them are used again.
#[derive(Clone, Debug)]
pub struct Parts {
    /// A file a part.
    pub directory: PathBuf,
    /// Also those that another build of the program made.
    pub any_build: bool,
    /// Whether [`Parts::part`] makes disturbed ones again.
    pub again: bool,
}

#[derive(Deserialize)]
struct Part<T> {
    build: String,
    key: String,
    value: T,
    /// Of real packets: every try, oldest first, the last of which gave the value.
    #[serde(default)]
    attempts: Vec<Attempt>,
}

/// One try to make a part on real packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// What the machine did that disturbed it, one sentence each; nothing where it did nothing.
    pub disturbed: Vec<String>,
    /// What it measured, where a later one took its place.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub value: Value,
}

/// What the machine did during a run.
pub struct Disturbed(Vec<String>);

impl Disturbed {
    /// By nothing, or by nothing that anybody looked for.
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
    /// Those that this build made, in that directory.
    pub fn of_this_build(directory: &Path) -> Parts {
        Parts {
            directory: directory.to_owned(),
            any_build: false,
            again: false,
        }
    }

    /// Keeps a part's result: the file `name` holds `value`, the `key` that it was made under, and
    /// which build of the program made it.
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
        // Whole or not at all: an interrupted write must not pass for a part.
        let draft = path.with_extension("draft");
        std::fs::write(&draft, text).map_err(fail)?;
        std::fs::rename(&draft, &path).map_err(fail)
    }

    /// A part kept under the same key; `None` for one that is missing, of another key or a build
    /// that does not count, or unreadable.
    pub fn kept<T: DeserializeOwned>(&self, name: &str, key: &str) -> Option<T> {
        let part: Part<T> = read(&self.directory.join(name))?;
        ((self.any_build || part.build == build()) && part.key == key).then_some(part.value)
    }

    /// A part that real packets give: the one that is kept, unless the machine disturbed it and it
    /// is to be made again, or what `run` gives now, which is kept. `judge` says what the machine
    /// did, never how the contender fared: who failed is not asked again until it succeeds. A
    /// disturbed attempt stays in the part's file, with its reasons.
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

    /// Every attempt on real packets that is kept, of builds that count: the part's name and its
    /// attempts, oldest first.
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

/// Tells this program from another build of it, whose results may be others under the same version:
/// the executable's length and time of change.
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
