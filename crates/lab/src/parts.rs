//! Parts of long work, kept as soon as they are done: an interrupted experiment goes on where it stopped.

use std::path::Path;
use std::sync::OnceLock;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;

/// Keeps a part's result: the file `name` in `directory` holds `value`, the `key` that it was made under, and which build of
/// the program made it.
pub(crate) fn keep<T: Serialize>(directory: &Path, name: &str, key: &str, value: &T) -> Result<(), Error> {
    let path = directory.join(name);
    let text = serde_json::json!({ "build": build(), "key": key, "value": value }).to_string();
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

/// A part kept under the same key by the same build; `None` for one that is missing, of another key or build, or unreadable.
pub(crate) fn kept<T: DeserializeOwned>(directory: &Path, name: &str, key: &str) -> Option<T> {
    #[derive(serde::Deserialize)]
    struct Part<T> {
        build: String,
        key: String,
        value: T,
    }
    let text = std::fs::read_to_string(directory.join(name)).ok()?;
    let part: Part<T> = serde_json::from_str(&text).ok()?;
    (part.build == build() && part.key == key).then_some(part.value)
}

/// A part that real packets give: the one that is kept, unless it was disturbed, or what `run` gives now, which is kept.
pub(crate) fn part<T: Serialize + DeserializeOwned>(
    directory: &Path,
    name: &str,
    key: &str,
    sound: impl Fn(&T) -> bool,
    run: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    if let Some(part) = kept(directory, name, key).filter(sound) {
        return Ok(part);
    }
    let part = run()?;
    keep(directory, name, key, &part)?;
    Ok(part)
}

/// Tells this program from another build of it, whose results may be others under the same version: the executable's
/// length and time of change.
fn build() -> &'static str {
    static BUILD: OnceLock<String> = OnceLock::new();
    BUILD.get_or_init(|| {
        let executable = std::env::current_exe().and_then(std::fs::metadata).ok();
        let about = executable.and_then(|file| Some(format!("{} bytes, {:?}", file.len(), file.modified().ok()?)));
        format!("{} {}", env!("CARGO_PKG_VERSION"), about.unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_part_is_made_again() {
        let directory = std::env::temp_dir().join(format!("ccplane-disturbed-{}", std::process::id()));
        let mut runs = 0;
        for sound in [false, true, true] {
            let made = part(
                &directory,
                "a.json",
                "30 s",
                |sound| *sound,
                || {
                    runs += 1;
                    Ok(sound)
                },
            );
            assert_eq!(made.unwrap(), sound);
        }
        assert_eq!(runs, 2);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn parts_are_used_again_only_under_their_own_key() {
        let directory = std::env::temp_dir().join(format!("ccplane-parts-{}", std::process::id()));
        keep(&directory, "a.json", "30 s", &vec![1.5, 2.0]).unwrap();
        assert_eq!(kept::<Vec<f64>>(&directory, "a.json", "30 s"), Some(vec![1.5, 2.0]));
        assert_eq!(kept::<Vec<f64>>(&directory, "a.json", "8 s"), None);
        assert_eq!(kept::<Vec<f64>>(&directory, "b.json", "30 s"), None);
        let older = std::fs::read_to_string(directory.join("a.json"))
            .unwrap()
            .replace(" bytes", "0 bytes");
        std::fs::write(directory.join("a.json"), older).unwrap();
        assert_eq!(kept::<Vec<f64>>(&directory, "a.json", "30 s"), None, "of another build");
        std::fs::write(directory.join("a.json"), "{\"key\":\"30 s\",\"val").unwrap();
        assert_eq!(kept::<Vec<f64>>(&directory, "a.json", "30 s"), None);
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
