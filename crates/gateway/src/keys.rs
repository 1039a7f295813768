//! Keys in WireGuard's format: 32 bytes in base64. A private key is stored in a file that only its
//! owner can read.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use boringtun::x25519;
use ccplane_link::secret_file::{self, SecretFileError};

/// Bytes in a key.
const KEY_BYTES: usize = 32;
/// Size limit of a key file, which has one line; bytes.
const KEY_FILE_BYTES_MAX: u64 = 1024;

/// X25519 private key of a site.
#[derive(Clone)]
pub struct PrivateKey(x25519::StaticSecret);

/// X25519 public key of a site, which identifies it to others.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

/// Preshared secret of two sites (WireGuard's `PresharedKey`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PresharedKey([u8; KEY_BYTES]);

/// Error of parsing a [`PresharedKey`]. It never quotes the text, which may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadPresharedKey {
    /// The text is not base64.
    #[error(
        "not a base64 preshared key; copy the line that `wg genpsk` prints, the same at both sites"
    )]
    Text,
    /// The decoded key has this many bytes.
    #[error(
        "the preshared key has {0} bytes instead of {KEY_BYTES}; copy all 44 characters that `wg \
        genpsk` prints, the same at both sites"
    )]
    Length(usize),
}

/// Error of reading or writing a key file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// There is no file.
    #[error("there is no key file {}; `ccplane gateway keys FILE` creates one", .0.display())]
    Missing(PathBuf),
    /// The file cannot be read or written, or other users can read it.
    #[error(transparent)]
    File(#[from] SecretFileError),
    /// The file does not contain a key.
    #[error("{} does not contain a private key; it needs 32 bytes in base64 on one line, as \
        `ccplane gateway keys FILE` and `wg genkey` write them", .0.display())]
    NoKey(PathBuf),
    /// A file must not be overwritten.
    #[error("the key file {} exists already", .0.display())]
    Exists(PathBuf),
    /// The operating system has no random numbers.
    #[error("cannot create a key: {0}")]
    Random(getrandom::Error),
}

/// Error of parsing a [`PublicKey`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a public key; write the 44 characters of base64 that `ccplane gateway keys FILE` prints \
    at the other site"
)]
pub struct BadPublicKey;

impl PrivateKey {
    /// Creates a key from 32 random bytes.
    pub fn from_bytes(mut bytes: [u8; KEY_BYTES]) -> PrivateKey {
        // Clamp as X25519 does in any case (RFC 7748, section 5) and as `wg genkey` does, so that
        // the file contains the key that is used.
        bytes[0] &= 248;
        bytes[31] = bytes[31] & 127 | 64;
        PrivateKey(bytes.into())
    }

    /// Returns the corresponding public key.
    pub fn public(&self) -> PublicKey {
        PublicKey(x25519::PublicKey::from(&self.0).to_bytes())
    }

    /// Reads a key file. Refuses a file that other users can read.
    pub fn read(path: &Path) -> Result<PrivateKey, KeyError> {
        let text = secret_file::read_secret(path, KEY_FILE_BYTES_MAX);
        let text = text.map_err(|why| match why.kind() {
            Some(io::ErrorKind::NotFound) => KeyError::Missing(path.to_owned()),
            Some(io::ErrorKind::FileTooLarge) => KeyError::NoKey(path.to_owned()),
            _ => why.into(),
        })?;
        decode(text.trim_ascii())
            .map(PrivateKey::from_bytes)
            .ok_or_else(|| KeyError::NoKey(path.to_owned()))
    }

    /// Creates a file with a new key, readable by its owner only. Never overwrites a file, which
    /// may be the only copy of a key.
    pub fn make(path: &Path) -> Result<PrivateKey, KeyError> {
        let mut bytes = [0; KEY_BYTES];
        getrandom::fill(&mut bytes).map_err(KeyError::Random)?;
        let key = PrivateKey::from_bytes(bytes);
        let text = format!("{}\n", STANDARD.encode(key.0.to_bytes()));
        match secret_file::write_new(path, &text)? {
            true => Ok(key),
            false => Err(KeyError::Exists(path.to_owned())),
        }
    }

    /// Reads a key file, or creates it if it does not exist. The flag is true if it was created.
    pub fn read_or_make(path: &Path) -> Result<(PrivateKey, bool), KeyError> {
        match PrivateKey::make(path) {
            Ok(key) => Ok((key, true)),
            Err(KeyError::Exists(_)) => PrivateKey::read(path).map(|key| (key, false)),
            Err(why) => Err(why),
        }
    }

    pub(crate) fn secret(&self) -> x25519::StaticSecret {
        self.0.clone()
    }
}

impl PublicKey {
    /// Creates a key from its bytes.
    pub const fn from_bytes(bytes: [u8; KEY_BYTES]) -> PublicKey {
        PublicKey(bytes)
    }

    /// Returns the key's bytes.
    pub const fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Returns the first 8 characters of the base64 form, enough to distinguish peers in logs.
    pub fn short(&self) -> String {
        const SHORT_KEY_CHARACTERS: usize = 8;
        self.to_string()
            .chars()
            .take(SHORT_KEY_CHARACTERS)
            .collect()
    }

    pub(crate) fn x25519(&self) -> x25519::PublicKey {
        self.0.into()
    }
}

impl PresharedKey {
    /// Creates a key from 32 random bytes.
    pub const fn from_bytes(bytes: [u8; KEY_BYTES]) -> PresharedKey {
        PresharedKey(bytes)
    }

    pub(crate) const fn bytes(self) -> [u8; KEY_BYTES] {
        self.0
    }
}

impl FromStr for PresharedKey {
    type Err = BadPresharedKey;

    fn from_str(text: &str) -> Result<PresharedKey, BadPresharedKey> {
        let bytes = STANDARD
            .decode(text.trim())
            .map_err(|_| BadPresharedKey::Text)?;
        let length = BadPresharedKey::Length(bytes.len());
        bytes.try_into().map(PresharedKey).map_err(|_| length)
    }
}

impl fmt::Display for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PresharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PresharedKey(…)")
    }
}

fn decode(text: &[u8]) -> Option<[u8; KEY_BYTES]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

impl FromStr for PublicKey {
    type Err = BadPublicKey;

    fn from_str(text: &str) -> Result<PublicKey, BadPublicKey> {
        decode(text.trim().as_bytes())
            .map(PublicKey)
            .ok_or(BadPublicKey)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(…)")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Dir {
            let path = std::env::temp_dir()
                .join(format!("ccplane-gateway-key-{name}-{}", std::process::id()));
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
    fn a_key_that_was_made_is_read_again_and_not_overwritten() {
        let dir = Dir::new("made");
        let path = dir.0.join("new");
        let (made, new) = PrivateKey::read_or_make(&path).unwrap();
        assert!(new);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        let (again, new) = PrivateKey::read_or_make(&path).unwrap();
        assert!(!new);
        assert_eq!(made.public(), again.public());
        assert!(matches!(PrivateKey::make(&path), Err(KeyError::Exists(_))));
        assert_eq!(
            format!("{made:?}"),
            "PrivateKey(…)",
            "debug output hides the key"
        );
    }

    /// RFC 7748, section 6.1: Alice's keys.
    #[test]
    fn the_public_key_matches_rfc_7748() {
        let hex = |text: &str| -> [u8; 32] {
            let bytes: Vec<u8> = (0..32)
                .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
                .collect();
            bytes.try_into().unwrap()
        };
        let alice = PrivateKey::from_bytes(hex(
            "77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a",
        ));
        let public = hex("8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a");
        assert_eq!(alice.public(), PublicKey::from_bytes(public));
        let text = alice.public().to_string();
        assert_eq!(text.len(), 44);
        assert_eq!(text.parse(), Ok(alice.public()));
        assert!(text.starts_with(&alice.public().short()));
    }

    #[test]
    fn a_preshared_key_is_read_and_printed_and_no_log_shows_it() {
        let text = STANDARD.encode([7; 32]);
        let key: PresharedKey = text.parse().unwrap();
        assert_eq!(key.to_string(), text);
        assert!(!format!("{key:?}").contains(&text));
        assert_eq!(
            "not base64".parse::<PresharedKey>(),
            Err(BadPresharedKey::Text)
        );
        for length in [0, 16, 31, 33, 64] {
            let wrong = STANDARD.encode(vec![7; length]);
            assert_eq!(
                wrong.parse::<PresharedKey>(),
                Err(BadPresharedKey::Length(length))
            );
        }
    }

    #[test]
    fn a_file_that_others_can_read_or_that_is_no_key_is_refused() {
        let dir = Dir::new("bad");
        let good = STANDARD.encode([7; 32]);
        let exposed = PrivateKey::read(&dir.file(good.as_bytes(), 0o640)).unwrap_err();
        assert!(
            exposed.to_string().contains("0640") && exposed.to_string().contains("chmod 600"),
            "{exposed}"
        );
        for text in [&b""[..], b"AAAA", &[0xff; 44], &[b'A'; 5000]] {
            assert!(
                matches!(
                    PrivateKey::read(&dir.file(text, 0o600)),
                    Err(KeyError::NoKey(_))
                ),
                "{text:?}"
            );
        }
        assert!(matches!(
            PrivateKey::read(&dir.0.join("none")),
            Err(KeyError::Missing(_))
        ));
        assert!("AAAA".parse::<PublicKey>().is_err());
    }
}
