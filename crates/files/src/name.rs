//! Names of what is received: always inside the folder that it goes to, and never over something that is there.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::wire::{MOST_NAME, printable};

/// Ends the names of files that are not complete.
const PART: &str = ".ccpart";
/// Bytes of a component, of every usual file system.
const MOST_COMPONENT: usize = 255;
/// Bytes of a name that its unfinished file's name keeps, beside the identifier that tells it from others.
const SHOWN: usize = 200;

/// Why a name cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// It could lead out of the folder, or is none.
    #[error("`{0}` is no name inside a folder")]
    Outside(String),
    /// Longer than file systems take.
    #[error("a name of {0} bytes is too long")]
    Long(usize),
    /// It begins with a dot, and its sender is nobody known.
    #[error("`{0}` is hidden, and hidden files are taken only from senders that `recv --client` names")]
    Hidden(String),
    /// It would be taken for an unfinished file.
    #[error("`{0}` is called like an unfinished transfer; rename it")]
    Part(String),
}

/// The name as a relative path of plain components. `hidden`: some of them may begin with a dot. A stranger's may not, since what
/// stands in such files, `.bashrc` or `.ssh/authorized_keys`, is obeyed.
pub fn path(name: &[u8], hidden: bool) -> Result<PathBuf, NameError> {
    if name.len() > MOST_NAME {
        return Err(NameError::Long(name.len()));
    }
    let mut path = PathBuf::new();
    for component in name.split(|byte| *byte == b'/') {
        if matches!(component, b"" | b"." | b"..") || component.contains(&0) {
            return Err(NameError::Outside(printable(name)));
        }
        if component.len() > MOST_COMPONENT {
            return Err(NameError::Long(component.len()));
        }
        if is_part(component) {
            return Err(NameError::Part(printable(name)));
        }
        if component.starts_with(b".") && !hidden {
            return Err(NameError::Hidden(printable(name)));
        }
        path.push(OsStr::from_bytes(component));
    }
    Ok(path)
}

/// Whether a file is called as one that is not complete.
pub fn is_part(name: &[u8]) -> bool {
    name.starts_with(b".") && name.ends_with(PART.as_bytes())
}

/// Where an entry lies until it is complete: beside its place, hidden, and the same for every attempt to send it.
pub fn part(place: &Path, name: &[u8], bytes: u64) -> PathBuf {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&bytes.to_be_bytes()).update(name);
    let id = hasher.finalize().to_hex();
    let shown = place.file_name().unwrap_or_default().as_bytes();
    let shown = &shown[..shown.len().min(SHOWN)];
    let part = [b".", shown, b".", &id.as_bytes()[..16], PART.as_bytes()].concat();
    place.with_file_name(OsString::from_vec(part))
}

/// The `n`-th name beside one that is taken: `report.pdf`, `report-2.pdf`, `report-3.pdf`.
pub fn another(place: &Path, n: u64) -> PathBuf {
    let stem = place.file_stem().unwrap_or_default();
    let mut name = stem.to_owned();
    name.push(format!("-{n}"));
    if let Some(extension) = place.extension() {
        name.push(".");
        name.push(extension);
    }
    place.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_is_taken_stays_inside(name in proptest::collection::vec(prop_oneof![Just(b'/'), Just(b'.'), Just(0), any::<u8>()], 0..40)) {
            if let Ok(path) = path(&name, true) {
                prop_assert!(path.components().all(|c| matches!(c, std::path::Component::Normal(_))), "{path:?}");
                prop_assert_eq!(path.as_os_str().as_bytes(), name.as_slice());
            }
        }
    }

    #[test]
    fn names_that_lead_elsewhere_or_are_obeyed_are_refused() {
        for name in ["", "/etc/passwd", "a//b", "a/../../b", "..", "a/.", "a\0b"] {
            assert!(
                matches!(path(name.as_bytes(), true), Err(NameError::Outside(_))),
                "{name:?}"
            );
        }
        for name in [".ssh/authorized_keys", "photos/.hidden"] {
            assert!(matches!(path(name.as_bytes(), false), Err(NameError::Hidden(_))));
            assert_eq!(path(name.as_bytes(), true), Ok(PathBuf::from(name)));
        }
        assert!(matches!(path(&[b'a'; 300], true), Err(NameError::Long(300))));
        assert!(matches!(path(&[b'a'; 5000], true), Err(NameError::Long(5000))));
        let part = part(Path::new("x"), b"x", 1);
        assert!(matches!(
            path(part.as_os_str().as_bytes(), true),
            Err(NameError::Part(_))
        ));
        assert_eq!(path(b"a/b c/d.txt", false), Ok(PathBuf::from("a/b c/d.txt")));
    }

    #[test]
    fn unfinished_files_have_names_of_their_own_that_every_file_system_takes() {
        let long = "n".repeat(255);
        let parts = [
            part(Path::new("to/a"), b"a", 1),
            part(Path::new("to/a"), b"a", 2),
            part(Path::new("to/a"), b"b/a", 1),
            part(Path::new(&long), long.as_bytes(), 1),
        ];
        for (n, part) in parts.iter().enumerate() {
            assert!(!parts[..n].contains(part));
            assert!(part.file_name().unwrap().len() <= MOST_COMPONENT);
        }
        assert_eq!(parts[0].parent(), Some(Path::new("to")));
    }

    #[test]
    fn another_name_keeps_the_extension() {
        for (name, second) in [
            ("report.pdf", "report-2.pdf"),
            ("a/README", "a/README-2"),
            ("x.tar.gz", "x.tar-2.gz"),
            (".profile", ".profile-2"),
        ] {
            assert_eq!(another(Path::new(name), 2), Path::new(second));
        }
    }
}
