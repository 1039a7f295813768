//! Names of received files: each is one entry of the receiver's folder.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::escape::printable;

/// Reason why a name is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The name is not a single path component.
    #[error("`{0}` is not a plain file name")]
    Outside(String),
    /// The name starts with a dot, and the sender is not authenticated.
    #[error(
        "`{0}` is a hidden file, which is accepted only from senders given with `recv --client`"
    )]
    Hidden(String),
}

/// Validates a sender's name as an entry of a folder. `hidden` allows names that start with a dot,
/// which strangers may not use: programs obey files such as `.bashrc`.
pub fn entry(name: &[u8], hidden: bool) -> Result<OsString, NameError> {
    let shown = || printable(&String::from_utf8_lossy(name));
    if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') || name.contains(&0) {
        return Err(NameError::Outside(shown()));
    }
    if name.starts_with(b".") && !hidden {
        return Err(NameError::Hidden(shown()));
    }
    Ok(OsStr::from_bytes(name).to_owned())
}

/// Returns the `n`-th alternative to a taken name: `report.pdf`, `report-2.pdf`, `report-3.pdf`.
pub fn alternative(name: &OsStr, n: u64) -> OsString {
    let path = Path::new(name);
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{n}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    name
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_accepted_name_is_one_entry(
            name in proptest::collection::vec(prop_oneof![Just(b'/'), Just(b'.'), Just(0), any::<u8>()], 0..40),
        ) {
            if let Ok(entry) = entry(&name, true) {
                prop_assert_eq!(Path::new(&entry).components().count(), 1);
                prop_assert_eq!(Path::new(&entry).file_name(), Some(entry.as_os_str()));
                prop_assert_eq!(entry.as_bytes(), name.as_slice());
            }
        }
    }

    #[test]
    fn paths_and_hidden_names_are_refused() {
        for name in ["", "/etc/passwd", "a/b", "..", ".", "a/", "a\0b"] {
            assert!(
                matches!(entry(name.as_bytes(), true), Err(NameError::Outside(_))),
                "{name:?}"
            );
        }
        assert!(matches!(
            entry(b".profile", false),
            Err(NameError::Hidden(_))
        ));
        assert_eq!(entry(b".profile", true), Ok(OsString::from(".profile")));
        assert_eq!(entry(b"a b.txt", false), Ok(OsString::from("a b.txt")));
        let why = entry(b"a/\x1b]0;title\x07\n", true)
            .unwrap_err()
            .to_string();
        assert!(!why.contains(|c: char| c.is_control()), "{why:?}");
    }

    #[test]
    fn an_alternative_name_keeps_the_extension() {
        for (name, second) in [
            ("report.pdf", "report-2.pdf"),
            ("README", "README-2"),
            ("backup.tar.gz", "backup.tar-2.gz"),
            (".profile", ".profile-2"),
        ] {
            assert_eq!(alternative(OsStr::new(name), 2), second);
        }
    }
}
