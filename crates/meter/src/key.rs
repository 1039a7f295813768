//! The key that both ends were given, and the file that it comes from.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ccplane_identity::private::{self, Unreadable};

/// Bytes of a key.
const BYTES: usize = 32;
/// A key file is one line; what is much longer is another file.
const MOST_TEXT: u64 = 1024;

/// A secret that both ends share.
#[derive(Clone)]
pub struct Key([u8; BYTES]);

/// Why a key could not be read or made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file could not be read.
    #[error("the key file {} cannot be read: {why}", .path.display())]
    Read {
        /// Where.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// Others may read it.
    #[error("the key file {} can be read by others (mode {mode:04o}): chmod 600 {}", .path.display(), .path.display())]
    Exposed {
        /// Where.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is no key.
    #[error("{} holds no key: it takes 32 random bytes in base64 or hexadecimal on one line, as `ccplane measure --make-key FILE` writes them", .0.display())]
    NoKey(PathBuf),
    /// The file could not be written.
    #[error("the key file {} cannot be made: {why}", .path.display())]
    Make {
        /// Where.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
}

impl Key {
    /// A key of these bytes, which have to be random.
    pub const fn from_bytes(bytes: [u8; BYTES]) -> Key {
        Key(bytes)
    }

    /// Reads a key file: 32 bytes in base64 or hexadecimal, readable by its owner only.
    pub fn read(path: &Path) -> Result<Key, KeyError> {
        let no_key = || KeyError::NoKey(path.to_owned());
        let text = private::read_secret(path, MOST_TEXT).map_err(|why| match why {
            Unreadable::Exposed(mode) => KeyError::Exposed {
                path: path.to_owned(),
                mode,
            },
            Unreadable::Failed(why) if why.kind() == io::ErrorKind::FileTooLarge => no_key(),
            Unreadable::Failed(why) => KeyError::Read {
                path: path.to_owned(),
                why,
            },
        })?;
        let text = std::str::from_utf8(&text).map_err(|_| no_key())?;
        Key::parse(text.trim()).ok_or_else(no_key)
    }

    /// Makes a file with a new key, for its owner only. A file that exists is left alone: it may be somebody's only copy.
    pub fn make(path: &Path) -> Result<(), KeyError> {
        let failed = |why| KeyError::Make {
            path: path.to_owned(),
            why,
        };
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes).map_err(|why| failed(io::Error::other(why)))?;
        let text = format!("{}\n", STANDARD.encode(bytes));
        match private::write_new(path, &text).map_err(failed)? {
            true => Ok(()),
            false => Err(failed(io::ErrorKind::AlreadyExists.into())),
        }
    }

    fn parse(text: &str) -> Option<Key> {
        if text.len() == 2 * BYTES {
            let mut bytes = [0; BYTES];
            for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
                let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
                *byte = (digit(0)? << 4 | digit(1)?) as u8;
            }
            return Some(Key(bytes));
        }
        STANDARD.decode(text).ok()?.try_into().ok().map(Key)
    }

    /// What only who has this key can say of these parts together: 16 bytes of a keyed BLAKE3 hash. The first part names what for, so
    /// that what one protocol says is nothing in another.
    pub fn tag(&self, parts: &[&[u8]]) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in parts {
            hasher.update(part);
        }
        let mut tag = [0; 16];
        tag.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        tag
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Dir {
            let path = std::env::temp_dir().join(format!("ccplane-key-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Dir(path)
        }

        fn file(&self, text: &[u8], mode: u32) -> PathBuf {
            let path = self.0.join("key");
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_key_that_was_made_is_read_and_not_overwritten() {
        let dir = Dir::new("made");
        let path = dir.0.join("new");
        Key::make(&path).unwrap();
        let key = Key::read(&path).unwrap();
        assert_ne!(key.0, [0; BYTES]);
        assert!(matches!(Key::make(&path), Err(KeyError::Make { .. })));
        assert_eq!(Key::read(&path).unwrap().0, key.0);
        assert_eq!(format!("{key:?}"), "Key(…)", "a log shows no key");
    }

    #[test]
    fn hexadecimal_and_base64_are_the_same_key() {
        let dir = Dir::new("text");
        let hex = Key::read(&dir.file(&b"0F".repeat(32), 0o600)).unwrap();
        let base64 = Key::read(&dir.file(b"Dw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8PDw8=\n", 0o400)).unwrap();
        assert_eq!((hex.0, base64.0), ([0x0f; 32], [0x0f; 32]));
    }

    #[test]
    fn a_file_that_others_can_read_or_that_is_no_key_is_refused() {
        let dir = Dir::new("bad");
        let exposed = Key::read(&dir.file(&b"0f".repeat(32), 0o640)).unwrap_err();
        assert!(
            exposed.to_string().contains("0640") && exposed.to_string().contains("chmod 600"),
            "{exposed}"
        );
        for text in [&b""[..], b"0f0f", b"zz", &b"0g".repeat(32), &[0xff; 32], &[b'A'; 5000]] {
            assert!(
                matches!(Key::read(&dir.file(text, 0o600)), Err(KeyError::NoKey(_))),
                "{text:?}"
            );
        }
        assert!(matches!(Key::read(&dir.0.join("none")), Err(KeyError::Read { .. })));
    }
}
