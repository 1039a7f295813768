//! Certificates and private keys of agents and of datapaths on other hosts, signed by a certificate
//! authority (CA) that the operator creates.
//!
//! Layout of a key directory created by [`make`]:
//!
//! | | |
//! | --- | --- |
//! | `ca.pem`, `ca.key` | certificate and private key of the CA; the key stays on this host |
//! | `agent/` | for the agent's host: `ca.pem`, and `key.pem` with certificate and key |
//! | `NAME/` | the same files for a datapath's host |
//! | `revoked` | revoked keys: one fingerprint and name per line |
//!
//! The extended key usage of a certificate states its role: TLS server for an agent, TLS client for
//! a datapath (RFC 5280, section 4.2.1.12). Its subject is a name under `ccplane.internal`.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::identity::{Fingerprint, pem, pem_key, pem_pair, validity_error};
use crate::secret_file::{self, SecretFileError};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};

/// Default key directory.
pub const KEY_DIRECTORY: &str = "/etc/ccplane/keys";
/// Subdirectory with the agent's key.
pub const AGENT_DIRECTORY: &str = "agent";

/// Validity before the creation time. A clock that is off by a day or a time zone must not keep a
/// datapath from its agent; more is not needed.
const VALIDITY_BEFORE: Duration = Duration::from_secs(2 * 24 * 3600);
/// Validity after the creation time: ten years. A shorter validity would stop congestion control on
/// some forgotten day; lost keys are revoked.
const VALIDITY_AFTER: Duration = Duration::from_secs(3650 * 24 * 3600);
/// Limit of a file, bytes: room for 100,000 revoked keys.
const KEY_FILE_BYTES_MAX: u64 = 16 << 20;

/// Role of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// TLS server that serves datapaths.
    Agent,
    /// TLS client.
    Datapath,
}

impl Role {
    /// Returns the domain of the names in certificates.
    fn domain(self) -> &'static str {
        match self {
            Role::Agent => "agent.ccplane.internal",
            Role::Datapath => "datapath.ccplane.internal",
        }
    }

    /// Returns the DNS name in a certificate. A datapath's starts with its own name, which appears
    /// in logs.
    fn dns_name(self, name: &str) -> String {
        match self {
            Role::Agent => self.domain().to_owned(),
            Role::Datapath => format!("{name}.{}", self.domain()),
        }
    }
}

/// Returns the server name that datapaths request.
pub(super) fn agents_name() -> &'static str {
    Role::Agent.domain()
}

/// Error of loading, creating or revoking a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A file cannot be read or written, or other users can read a private key.
    #[error(transparent)]
    File(#[from] SecretFileError),
    /// The directory contains no key.
    #[error("no key in {}; create one with `ccplane keys DIR NAME`, copy the directory to the \
        host, and name it in the agent's address, as in tls://HOST:PORT?keys=DIR", .0.display())]
    NoKey(PathBuf),
    /// The directory contains several keys.
    #[error("{} contains keys of several datapaths, {}; choose one, as in \
        tls://HOST:PORT?keys={}/{}",
        .folder.display(), .names.join(", "), .folder.display(), .names[0])]
    SeveralKeys {
        /// Path of the directory.
        folder: PathBuf,
        /// Names of the keys.
        names: Vec<String>,
    },
    /// A file has invalid contents.
    #[error("{} is not {what}: {why}; remove it and create it again with `ccplane \
        keys`", .path.display())]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// Expected contents.
        what: &'static str,
        /// Underlying error.
        why: String,
    },
    /// The name is not allowed for a key.
    #[error(
        "`{0}` is not a valid key name; use 1 to 40 lower-case letters, digits and `-`, starting \
        with a letter; `agent` and `revoked` are reserved"
    )]
    Name(String),
    /// There is no key with this name to revoke.
    #[error("{} has no key named `{name}`; its keys are {has}", .folder.display())]
    UnknownKey {
        /// Path of the directory.
        folder: PathBuf,
        /// The requested name.
        name: String,
        /// Names of the existing keys.
        has: String,
    },
    /// The certificate could not be created, for example for lack of random numbers.
    #[error("cannot create a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// The TLS library refused the key.
    #[error("TLS does not accept the key: {0}")]
    Tls(#[from] rustls::Error),
    /// The TLS library refused the CA certificate.
    #[error("TLS does not accept the CA certificate: {0}")]
    Authority(String),
}

/// Key material of a host.
pub struct Keys {
    /// Certificate of this host.
    pub(super) certificate: CertificateDer<'static>,
    /// Private key of this host.
    pub(super) key: PrivateKeyDer<'static>,
    /// CA certificate.
    pub(super) authority: CertificateDer<'static>,
    /// Path of the list of revoked keys.
    pub(super) revoked: PathBuf,
}

impl Keys {
    /// Loads the key for a role from a directory: either one that [`make`] created for a single
    /// host, or the parent with all of them.
    pub fn load(folder: &Path, role: Role) -> Result<Keys, KeyError> {
        let own = key_folder(folder, role)?;
        let (path, authority) = (own.join("key.pem"), own.join("ca.pem"));
        let text = secret(&path)?;
        let garbage = |what, path: &Path| {
            let path = path.to_owned();
            move |why: rustls::pki_types::pem::Error| KeyError::Malformed {
                path,
                what,
                why: why.to_string(),
            }
        };
        let what = "a certificate and its private key (PEM)";
        Ok(Keys {
            certificate: CertificateDer::from_pem_slice(&text).map_err(garbage(what, &path))?,
            key: PrivateKeyDer::from_pem_slice(&text).map_err(garbage(what, &path))?,
            authority: CertificateDer::from_pem_slice(&read(&authority)?)
                .map_err(garbage("a CA certificate (PEM)", &authority))?,
            revoked: folder.join("revoked"),
        })
    }
}

/// Returns the directory that contains `key.pem` for this role.
fn key_folder(folder: &Path, role: Role) -> Result<PathBuf, KeyError> {
    if folder.join("key.pem").exists() {
        return Ok(folder.to_owned());
    }
    let mut names = names(folder)?;
    match role {
        Role::Agent => names.retain(|name| name == AGENT_DIRECTORY),
        Role::Datapath => names.retain(|name| name != AGENT_DIRECTORY),
    }
    match names.as_slice() {
        [] => Err(KeyError::NoKey(folder.to_owned())),
        [name] => Ok(folder.join(name)),
        _ => Err(KeyError::SeveralKeys {
            folder: folder.to_owned(),
            names,
        }),
    }
}

/// Returns the names of the keys in a directory.
fn names(folder: &Path) -> Result<Vec<String>, KeyError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            return Err(KeyError::NoKey(folder.to_owned()));
        }
        Err(why) => return Err(secret_file::read_error(folder)(why).into()),
    };
    let with_key = entries
        .flatten()
        .filter(|entry| entry.path().join("key.pem").exists());
    let mut names: Vec<String> = with_key
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    Ok(names)
}

fn read(path: &Path) -> Result<Vec<u8>, KeyError> {
    Ok(secret_file::read(path, KEY_FILE_BYTES_MAX)?)
}

fn secret(path: &Path) -> Result<Vec<u8>, KeyError> {
    Ok(secret_file::read_secret(path, KEY_FILE_BYTES_MAX)?)
}

/// Result of [`make`] for one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKeys {
    /// Name of the key.
    pub name: String,
    /// Directory of the key.
    pub folder: PathBuf,
    /// False if the key already existed.
    pub created: bool,
}

/// Creates what `folder` lacks: a CA, a key for the agent, and one for each named datapath.
/// Existing keys are kept unless they are revoked or not valid at `now`.
pub fn make(folder: &Path, names: &[String], now: SystemTime) -> Result<Vec<NewKeys>, KeyError> {
    if let Some(bad) = names.iter().find(|name| !is_name(name)) {
        return Err(KeyError::Name(bad.clone()));
    }
    let authority = Authority::open(folder, now)?;
    let revoked = revoked(&folder.join("revoked"))?;
    let at = UnixTime::since_unix_epoch(
        now.duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default(),
    );
    let all = std::iter::once((AGENT_DIRECTORY, Role::Agent))
        .chain(names.iter().map(|name| (&**name, Role::Datapath)));
    all.map(|(name, role)| {
        let own = folder.join(name);
        let new = match Keys::load(&own, role) {
            Ok(keys) => {
                revoked.contains_key(&Fingerprint::of_certificate(&keys.certificate))
                    || validity_error(&keys.certificate, at)?.is_some()
            }
            Err(KeyError::NoKey(_)) => true,
            Err(why) => return Err(why),
        };
        if new {
            secret_file::make_folder(&own)?;
            secret_file::replace(&own.join("ca.pem"), &authority.certificate)?;
            secret_file::replace(&own.join("key.pem"), &authority.sign(name, role, now)?)?;
        }
        Ok(NewKeys {
            name: name.to_owned(),
            folder: own,
            created: new,
        })
    })
    .collect()
}

/// Revokes the key of `name`. An agent that uses `folder` closes its connections within a second.
pub fn revoke(folder: &Path, name: &str) -> Result<(), KeyError> {
    let known = names(folder)?;
    if !known.iter().any(|one| one == name) {
        return Err(KeyError::UnknownKey {
            folder: folder.to_owned(),
            name: name.to_owned(),
            has: match known.is_empty() {
                true => "none".to_owned(),
                false => known.join(", "),
            },
        });
    }
    let path = folder.join("revoked");
    let mut all = revoked(&path)?;
    let keys = Keys::load(&folder.join(name), Role::Datapath)?;
    all.insert(
        Fingerprint::of_certificate(&keys.certificate),
        name.to_owned(),
    );
    let mut lines: Vec<String> = all
        .iter()
        .map(|(print, name)| format!("{print} {name}\n"))
        .collect();
    lines.sort_unstable();
    Ok(secret_file::replace(&path, &lines.concat())?)
}

/// Returns the fingerprints and names of the revoked keys; empty if the file does not exist.
pub(super) fn revoked(path: &Path) -> Result<HashMap<Fingerprint, String>, KeyError> {
    let bytes = match read(path) {
        Ok(bytes) => bytes,
        Err(KeyError::File(why)) if why.kind() == Some(io::ErrorKind::NotFound) => {
            return Ok(HashMap::new());
        }
        Err(why) => return Err(why),
    };
    let garbage = |line: usize| KeyError::Malformed {
        path: path.to_owned(),
        what: "a list of revoked keys",
        why: format!("line {line} is not a fingerprint (64 hexadecimal digits) and a name"),
    };
    let text = String::from_utf8(bytes).map_err(|_| garbage(1))?;
    let lines = text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            let (print, name) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
            let print = print.parse().map_err(|_| garbage(index + 1))?;
            Ok((print, name.to_owned()))
        })
        .collect()
}

/// Returns the datapath's name from its certificate.
pub(super) fn name_of(certificate: &CertificateDer<'_>) -> Option<String> {
    let parsed = webpki::EndEntityCert::try_from(certificate).ok()?;
    let suffix = format!(".{}", Role::Datapath.domain());
    parsed
        .valid_dns_names()
        .find_map(|name| name.strip_suffix(&suffix).map(str::to_owned))
}

fn is_name(name: &str) -> bool {
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let form = name.chars().all(letters)
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-');
    form && name.len() <= 40 && name != AGENT_DIRECTORY && name != "revoked"
}

struct Authority {
    certificate: String,
    params: CertificateParams,
    key: KeyPair,
}

impl Authority {
    /// Opens the CA of a directory, or creates one.
    fn open(folder: &Path, now: SystemTime) -> Result<Authority, KeyError> {
        let (public, private) = (folder.join("ca.pem"), folder.join("ca.key"));
        let params = Authority::params(now);
        if !secret_file::exists(&private)? {
            if secret_file::exists(&public)? {
                let why = io::Error::other(
                    "the CA's private key is missing; create keys where that key is, or use \
                    another directory",
                );
                return Err(secret_file::read_error(&private)(why).into());
            }
            secret_file::make_folder(folder)?;
            let key = KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
            secret_file::replace(&private, &pem_key(&key))?;
            let certificate = Authority::certify(&params, &key, &public)?;
            return Ok(Authority {
                certificate,
                params,
                key,
            });
        }
        let garbage = |path: &Path, what, why: String| KeyError::Malformed {
            path: path.to_owned(),
            what,
            why,
        };
        let no_key = |why: String| garbage(&private, "a private key (PEM)", why);
        let key = PrivateKeyDer::from_pem_slice(&secret(&private)?)
            .map_err(|why| no_key(why.to_string()))?;
        let key = KeyPair::try_from(&key).map_err(|why| no_key(why.to_string()))?;
        // The process that created the key may have died before it wrote the certificate.
        let certificate = match secret_file::exists(&public)? {
            true => String::from_utf8_lossy(&read(&public)?).into_owned(),
            false => Authority::certify(&params, &key, &public)?,
        };
        CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|why| garbage(&public, "a CA certificate (PEM)", why.to_string()))?;
        Ok(Authority {
            certificate,
            params,
            key,
        })
    }

    /// Creates and writes the CA's own certificate.
    fn certify(params: &CertificateParams, key: &KeyPair, path: &Path) -> Result<String, KeyError> {
        let certificate = pem("CERTIFICATE", params.self_signed(key)?.der());
        secret_file::replace(path, &certificate)?;
        Ok(certificate)
    }

    fn params(now: SystemTime) -> CertificateParams {
        let mut params = valid(now);
        params
            .distinguished_name
            .push(DnType::CommonName, "ccplane authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params
    }

    /// Creates a key and its certificate; returns both as PEM.
    fn sign(&self, name: &str, role: Role, now: SystemTime) -> Result<String, KeyError> {
        let mut params = valid(now);
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names = vec![rcgen::SanType::DnsName(role.dns_name(name).try_into()?)];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match role {
            Role::Agent => ExtendedKeyUsagePurpose::ServerAuth,
            Role::Datapath => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
        let certificate = params.signed_by(&key, &Issuer::from_params(&self.params, &self.key))?;
        Ok(pem_pair(&certificate, &key))
    }
}

fn valid(now: SystemTime) -> CertificateParams {
    let since = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let mut params = CertificateParams::default();
    params.not_before = epoch + since.saturating_sub(VALIDITY_BEFORE);
    params.not_after = epoch + since + VALIDITY_AFTER;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
}
