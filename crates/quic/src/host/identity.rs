//! Who a host is: a certificate that it made for itself, and the fingerprint by which others know it.
//!
//! No authority signs anything. A client is told the fingerprint with the address, as with SSH, and refuses every other certificate.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use ccplane_agent::link::pem;
use noq_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, SignatureScheme};

/// The name in certificates, and the one that clients ask for. It says nothing: the fingerprint does.
pub(super) const NAME: &str = "ccplane";
/// The protocol (ALPN): a file a stream.
const PROTOCOL: &[u8] = b"ccplane-quic/1";

/// A certificate and its private key.
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

/// SHA-256 of a certificate, as 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint([u8; SHA256_OUTPUT_LEN]);

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The file cannot be read or written.
    #[error("{path}: {why}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        why: io::Error,
    },
    /// Others than its owner may read it.
    #[error("{path} holds a private key and others may read it (mode {mode:o}): chmod 600 {path}")]
    Readable {
        /// Which.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// It is no identity.
    #[error("{path} is no identity (a certificate and a private key, PEM): remove it, and a new one is made. {why}")]
    Garbage {
        /// Which.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// The system gives no random numbers, for example.
    #[error("no certificate could be made: {0}")]
    Make(#[from] rcgen::Error),
    /// TLS does not take it.
    #[error("TLS does not take the certificate: {0}")]
    Tls(#[from] rustls::Error),
}

/// A text that is no fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint is 64 hexadecimal digits, as the receiver prints them; `{0}` has {len}", len = .0.chars().count())]
pub struct BadFingerprint(String);

impl Identity {
    /// A new one, in memory.
    pub fn new() -> Result<Identity, IdentityError> {
        let (certificate, key) = make()?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(|why| rustls::Error::General(why.to_owned()))?;
        Ok(Identity {
            certificate: certificate.der().clone(),
            key,
        })
    }

    /// The one in a file, which is made where it is not there: for its owner alone.
    pub fn load(path: &Path) -> Result<Identity, IdentityError> {
        let file = |why| IdentityError::File {
            path: path.to_owned(),
            why,
        };
        match fs::metadata(path) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                let (certificate, key) = make()?;
                if let Some(folder) = path.parent() {
                    fs::DirBuilder::new()
                        .recursive(true)
                        .mode(0o700)
                        .create(folder)
                        .map_err(file)?;
                }
                let mut out = OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o600)
                    .open(path)
                    .map_err(file)?;
                let text = pem("CERTIFICATE", certificate.der()) + &pem("PRIVATE KEY", &key.serialize_der());
                out.write_all(text.as_bytes()).map_err(file)?;
            }
            Err(why) => return Err(file(why)),
            Ok(known) if known.permissions().mode() & 0o077 != 0 => {
                return Err(IdentityError::Readable {
                    path: path.to_owned(),
                    mode: known.permissions().mode() & 0o777,
                });
            }
            Ok(_) => {}
        }
        let text = fs::read(path).map_err(file)?;
        let garbage = |why: rustls::pki_types::pem::Error| IdentityError::Garbage {
            path: path.to_owned(),
            why: why.to_string(),
        };
        Ok(Identity {
            certificate: CertificateDer::from_pem_slice(&text).map_err(garbage)?,
            key: PrivateKeyDer::from_pem_slice(&text).map_err(garbage)?,
        })
    }

    /// By what others know it.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.certificate)
    }

    /// TLS as a server.
    pub(super) fn server(&self) -> Result<QuicServerConfig, IdentityError> {
        let mut config = rustls::ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        QuicServerConfig::try_from(config).map_err(|why| rustls::Error::General(why.to_string()).into())
    }
}

/// TLS as a client that believes this fingerprint, or anybody where there is none.
pub(super) fn client(trusted: Option<Fingerprint>) -> Result<QuicClientConfig, IdentityError> {
    let provider = provider();
    let pinned = Arc::new(Pinned {
        trusted,
        provider: Arc::clone(&provider),
    });
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(pinned)
        .with_no_client_auth();
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    QuicClientConfig::try_from(config).map_err(|why| rustls::Error::General(why.to_string()).into())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn make() -> Result<(rcgen::Certificate, rcgen::KeyPair), IdentityError> {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
    let certificate = rcgen::CertificateParams::new(vec![NAME.to_owned()])?.self_signed(&key)?;
    Ok((certificate, key))
}

impl Fingerprint {
    fn of(certificate: &[u8]) -> Fingerprint {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes
            .iter_mut()
            .zip(digest(&SHA256, certificate).as_ref())
            .for_each(|(to, from)| *to = *from);
        Fingerprint(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Fingerprint {
    type Err = BadFingerprint;

    fn from_str(text: &str) -> Result<Fingerprint, BadFingerprint> {
        let bad = || BadFingerprint(text.to_owned());
        if text.len() != 2 * SHA256_OUTPUT_LEN || !text.is_ascii() {
            return Err(bad());
        }
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        for (place, byte) in bytes.iter_mut().enumerate() {
            let digits = text.get(2 * place..2 * place + 2).ok_or_else(bad)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| bad())?;
        }
        Ok(Fingerprint(bytes))
    }
}

/// Believes one certificate, by its fingerprint.
#[derive(Debug)]
struct Pinned {
    trusted: Option<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.trusted {
            Some(trusted) if Fingerprint::of(end_entity) != trusted => Err(rustls::Error::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            )),
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("QUIC has TLS 1.3".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_it_is_printed() {
        let own = Identity::new().unwrap().fingerprint();
        assert_eq!(own.to_string().parse(), Ok(own));
        for bad in ["", "12", &"g".repeat(64), &"é".repeat(32), &own.to_string()[1..]] {
            let text = bad.parse::<Fingerprint>().unwrap_err().to_string();
            assert!(text.contains("64 hexadecimal digits"), "{text}");
        }
    }

    #[test]
    fn an_identity_is_made_once_for_its_owner_alone() {
        let folder = std::env::temp_dir().join(format!("ccplane-identity-{}", std::process::id()));
        let path = folder.join("deep/identity");
        let first = Identity::load(&path).unwrap().fingerprint();
        assert_eq!(Identity::load(&path).unwrap().fingerprint(), first);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let Err(why) = Identity::load(&path) else {
            panic!("it is readable")
        };
        assert!(why.to_string().contains("chmod 600"), "{why}");
        fs::write(&path, "nonsense").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let Err(why) = Identity::load(&path) else {
            panic!("it is nonsense")
        };
        assert!(why.to_string().contains("remove it"), "{why}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
