//! TLS identity of a host: a self-signed certificate and the fingerprint that identifies it.
//!
//! There is no certificate authority. As with SSH, a client is configured with the server's address
//! and fingerprint and refuses every other certificate. A server with configured client
//! fingerprints refuses all other clients.
#![forbid(unsafe_code)]

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, KeyLogFile,
    RootCertStore, ServerConfig, SignatureScheme,
};

use crate::secret_file::{self, SecretFileError};

/// Subject name in all certificates, and the server name that clients request. Only the fingerprint
/// identifies a host.
pub const SUBJECT_NAME: &str = "ccplane";

/// Longest certificate, bytes. It keeps a QUIC server's first flight within three times the
/// smallest first datagram of a client (548 bytes), the anti-amplification limit for an unvalidated
/// address. Our own certificates have about 300 bytes.
pub const CERTIFICATE_BYTES_MAX: usize = 900;

/// Limit of an identity file, bytes.
const IDENTITY_FILE_BYTES_MAX: u64 = 1 << 20;

/// A certificate and its private key.
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

/// SHA-256 of a certificate, displayed as 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; SHA256_OUTPUT_LEN]);

/// Error of loading or creating an identity.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The file cannot be read or written, or other users can read it.
    #[error(transparent)]
    File(#[from] SecretFileError),
    /// The file does not contain an identity.
    #[error(
        "{path} is not an identity (certificate and private key, PEM): {why}; remove the file to \
        create a new identity"
    )]
    Malformed {
        /// Path of the file.
        path: PathBuf,
        /// Underlying error.
        why: String,
    },
    /// The certificate has expired or is not valid yet.
    #[error(
        "the certificate in {path} {when}; remove the file to create a new identity, with another \
        fingerprint"
    )]
    NotValidNow {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with the validity period.
        when: &'static str,
    },
    /// The certificate is too long for the handshake.
    #[error(
        "the certificate in {path} has {bytes} bytes, but at most {CERTIFICATE_BYTES_MAX} are \
        allowed; remove the file to create a new identity"
    )]
    TooLong {
        /// Path of the file.
        path: PathBuf,
        /// Length of the certificate, bytes.
        bytes: usize,
    },
    /// The certificate could not be created, for example for lack of random numbers.
    #[error("cannot create a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// The TLS library refused the certificate.
    #[error("TLS does not accept the certificate: {0}")]
    Tls(#[from] rustls::Error),
}

/// Error of parsing a [`Fingerprint`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` has {len} characters; a fingerprint has 64 hexadecimal digits, as the receiver \
    prints it", len = .0.chars().count())]
pub struct BadFingerprint(String);

impl Identity {
    /// Creates a new identity in memory.
    pub fn new() -> Result<Identity, IdentityError> {
        let (certificate, key) = make()?;
        let key = PrivateKeyDer::try_from(key.serialize_der())
            .map_err(|why| rustls::Error::General(why.to_owned()))?;
        Ok(Identity {
            certificate: certificate.der().clone(),
            key,
        })
    }

    /// Loads an identity from a file. If the file does not exist, creates one that only its owner
    /// can read.
    pub fn load(path: &Path) -> Result<Identity, IdentityError> {
        if !secret_file::exists(path)? {
            let (certificate, key) = make()?;
            if let Some(folder) = path.parent() {
                secret_file::make_folder(folder)?;
            }
            secret_file::write_new(path, &pem_pair(&certificate, &key))?;
        }
        let text = secret_file::read_secret(path, IDENTITY_FILE_BYTES_MAX)?;
        let garbage = |why: rustls::pki_types::pem::Error| IdentityError::Malformed {
            path: path.to_owned(),
            why: why.to_string(),
        };
        let identity = Identity {
            certificate: CertificateDer::from_pem_slice(&text).map_err(garbage)?,
            key: PrivateKeyDer::from_pem_slice(&text).map_err(garbage)?,
        };
        let bytes = identity.certificate.len();
        if bytes > CERTIFICATE_BYTES_MAX {
            let path = path.to_owned();
            return Err(IdentityError::TooLong { path, bytes });
        }
        if let Some(when) = validity_error(&identity.certificate, UnixTime::now())? {
            let path = path.to_owned();
            return Err(IdentityError::NotValidNow { path, when });
        }
        Ok(identity)
    }

    /// Returns the fingerprint of the certificate.
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of_certificate(&self.certificate)
    }

    /// Returns a TLS 1.3 server configuration for an ALPN protocol. If `clients` is not empty, all
    /// other clients are refused. Secrets are logged to the file named by `SSLKEYLOGFILE`, if set.
    pub fn server(
        &self,
        protocol: &[u8],
        clients: &[Fingerprint],
    ) -> Result<ServerConfig, IdentityError> {
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?;
        let builder = match clients {
            [] => builder.with_no_client_auth(),
            clients => builder.with_client_cert_verifier(Arc::new(PinnedVerifier {
                trusted: clients.to_vec(),
                provider,
            })),
        };
        let mut config =
            builder.with_single_cert(vec![self.certificate.clone()], self.key.clone_key())?;
        config.alpn_protocols = vec![protocol.to_vec()];
        config.key_log = Arc::new(KeyLogFile::new());
        // No session resumption: every connection must prove its identity again.
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

/// Returns a TLS 1.3 client configuration for an ALPN protocol. With `trusted`, only that server is
/// accepted; otherwise any. `own` is presented to servers that request a certificate. Secrets are
/// logged to the file named by `SSLKEYLOGFILE`, if set.
pub fn client(
    protocol: &[u8],
    trusted: Option<Fingerprint>,
    identity: Option<&Identity>,
) -> Result<ClientConfig, IdentityError> {
    let provider = provider();
    let pinned = Arc::new(PinnedVerifier {
        trusted: Vec::from_iter(trusted),
        provider: Arc::clone(&provider),
    });
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(pinned);
    let mut config = match identity {
        Some(own) => {
            builder.with_client_auth_cert(vec![own.certificate.clone()], own.key.clone_key())?
        }
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![protocol.to_vec()];
    config.key_log = Arc::new(KeyLogFile::new());
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Returns the cryptography provider of all TLS connections.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn make() -> Result<(rcgen::Certificate, rcgen::KeyPair), IdentityError> {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
    let certificate =
        rcgen::CertificateParams::new(vec![SUBJECT_NAME.to_owned()])?.self_signed(&key)?;
    Ok((certificate, key))
}

/// Encodes DER as PEM (RFC 7468), 64 characters per line.
pub fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines = text.as_bytes().chunks(64).map(String::from_utf8_lossy);
    let body: String = lines.map(|line| format!("{line}\n")).collect();
    format!("-----BEGIN {label}-----\n{body}-----END {label}-----\n")
}

/// Encodes a certificate and its private key as PEM.
pub fn pem_pair(certificate: &rcgen::Certificate, key: &rcgen::KeyPair) -> String {
    pem("CERTIFICATE", certificate.der()) + &pem_key(key)
}

/// Prefix of an Ed25519 key in PKCS#8 version 1 (RFC 8410, section 7), followed by the 32-byte
/// seed.
const PKCS8_V1_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// Encodes a private key as PEM in PKCS#8 version 1. `ring` writes version 2 (RFC 5958), which
/// includes the public key and which OpenSSL 3.0 cannot read.
pub fn pem_key(key: &rcgen::KeyPair) -> String {
    let der = key.serialize_der();
    // Up to the seed, the versions differ only in the length and version fields.
    let seed = der.get(PKCS8_V1_PREFIX.len()..PKCS8_V1_PREFIX.len() + 32);
    match seed.filter(|_| der.get(5..PKCS8_V1_PREFIX.len()) == PKCS8_V1_PREFIX.get(5..)) {
        Some(seed) => pem("PRIVATE KEY", &[&PKCS8_V1_PREFIX[..], seed].concat()),
        None => pem("PRIVATE KEY", &der),
    }
}

impl Fingerprint {
    /// Returns the fingerprint of a certificate in DER.
    pub fn of_certificate(certificate: &[u8]) -> Fingerprint {
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
        // `from_str_radix` alone would also accept a sign.
        if text.len() != 2 * SHA256_OUTPUT_LEN
            || !text.bytes().all(|digit| digit.is_ascii_hexdigit())
        {
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

/// Returns what is wrong with a certificate's validity period, if anything. Issuer, subject and key
/// usage are not checked.
pub fn validity_error(
    certificate: &CertificateDer<'_>,
    now: UnixTime,
) -> Result<Option<&'static str>, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone().into_owned())?;
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build();
    let verifier = verifier.map_err(|why| rustls::Error::General(why.to_string()))?;
    let name = ServerName::try_from(SUBJECT_NAME)
        .map_err(|why| rustls::Error::General(why.to_string()))?;
    // The verifier checks the validity period first; its other errors do not matter here.
    Ok(
        match verifier.verify_server_cert(certificate, &[], &name, &[], now) {
            Err(rustls::Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            )) => Some("has expired"),
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
            )) => Some("is not valid yet"),
            _ => None,
        },
    )
}

/// Certificate verifier with pinned fingerprints; accepts any certificate if there are none.
#[derive(Debug)]
struct PinnedVerifier {
    trusted: Vec<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl PinnedVerifier {
    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        if self.trusted.is_empty()
            || self
                .trusted
                .contains(&Fingerprint::of_certificate(certificate))
        {
            return Ok(());
        }
        Err(rustls::Error::InvalidCertificate(
            CertificateError::ApplicationVerificationFailure,
        ))
    }
}

/// Signature checks shared by the server and client verifiers.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _cert: &CertificateDer<'_>,
            _dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(rustls::Error::General("only TLS 1.3 is enabled".to_owned()))
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            verify_tls13_signature(
                message,
                cert,
                dss,
                &self.provider.signature_verification_algorithms,
            )
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider
                .signature_verification_algorithms
                .supported_schemes()
        }
    };
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(end_entity)
            .map(|()| ServerCertVerified::assertion())
    }

    signatures!();
}

impl ClientCertVerifier for PinnedVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(end_entity)
            .map(|()| ClientCertVerified::assertion())
    }

    signatures!();
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// OpenSSL 3.0 refuses PKCS#8 version 2, which `ring` writes.
    #[test]
    fn openssl_reads_the_key_of_an_identity() {
        use std::process::{Command, Stdio};

        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let text = pem_key(&key);
        let lines: String = text.lines().filter(|line| !line.starts_with('-')).collect();
        let der = STANDARD.decode(lines).unwrap();
        assert_eq!(
            (der.len(), &der[..PKCS8_V1_PREFIX.len()]),
            (48, &PKCS8_V1_PREFIX[..])
        );
        let path =
            std::env::temp_dir().join(format!("ccplane-identity-openssl-{}", std::process::id()));
        fs::write(&path, text).unwrap();
        let mut openssl = Command::new("openssl");
        openssl.args(["pkey", "-noout", "-in"]).arg(&path);
        let read = openssl.stdout(Stdio::null()).status();
        fs::remove_file(&path).unwrap();
        match read {
            Ok(status) => assert!(status.success(), "OpenSSL cannot read the key"),
            Err(why) => {
                assert!(
                    std::env::var_os("CCPLANE_NO_SKIP").is_none(),
                    "SKIPPED: openssl is not installed: {why}"
                );
                eprintln!(
                    "SKIPPED: openssl_reads_the_key_of_an_identity: openssl is not installed: {why}"
                );
            }
        }
    }

    #[test]
    fn a_fingerprint_is_read_as_it_is_printed() {
        let own = Identity::new().unwrap().fingerprint();
        assert_eq!(own.to_string().parse(), Ok(own));
        let signs = "+1".repeat(32);
        for bad in [
            "",
            "12",
            &"g".repeat(64),
            &"é".repeat(32),
            &signs,
            &own.to_string()[1..],
        ] {
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
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let Err(why) = Identity::load(&path) else {
            panic!("other users can read the file")
        };
        assert!(why.to_string().contains("chmod 600"), "{why}");
        let Err(why) = Identity::load(&path.join("inside")) else {
            panic!("a file is not a directory")
        };
        assert!(why.to_string().starts_with("cannot read "), "{why}");
        fs::write(&path, "nonsense").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let Err(why) = Identity::load(&path) else {
            panic!("the file is not an identity")
        };
        assert!(why.to_string().contains("remove the file"), "{why}");
        fs::remove_dir_all(&folder).unwrap();
    }

    /// Loads an identity whose certificate was created with parameters modified by `change`.
    fn changed(
        name: &str,
        change: impl FnOnce(&mut rcgen::CertificateParams),
    ) -> Result<Identity, IdentityError> {
        let path =
            std::env::temp_dir().join(format!("ccplane-identity-{name}-{}", std::process::id()));
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let mut params = rcgen::CertificateParams::new(vec![SUBJECT_NAME.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.self_signed(&key).unwrap();
        fs::write(&path, pem_pair(&certificate, &key)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let loaded = Identity::load(&path);
        fs::remove_file(&path).unwrap();
        loaded
    }

    #[test]
    fn an_identity_of_another_time_or_too_long_for_a_handshake_is_refused() {
        assert!(changed("ordinary", |_| ()).is_ok());
        let refused = |name, change: fn(&mut rcgen::CertificateParams)| match changed(name, change)
        {
            Err(why) => why.to_string(),
            Ok(_) => panic!("{name} is accepted"),
        };
        let why = refused("expired", |params| {
            params.not_after = rcgen::date_time_ymd(2001, 1, 1)
        });
        assert!(
            why.contains("has expired") && why.contains("remove the file"),
            "{why}"
        );
        let why = refused("early", |params| {
            params.not_before = rcgen::date_time_ymd(4000, 1, 1)
        });
        assert!(why.contains("is not valid yet"), "{why}");
        let why = refused("long", |params| {
            let names = (0..4_000).map(|n| format!("host-{n}.example"));
            params.subject_alt_names = names
                .map(|name| rcgen::SanType::DnsName(name.try_into().unwrap()))
                .collect();
        });
        assert!(why.contains("bytes, but at most 900 are allowed"), "{why}");
    }
}
