//! TLS configuration of both ends: TLS 1.3 and certificates of the same CA with the correct role.
//! Also explains TLS errors in terms of the operator's keys.

use std::sync::Arc;

use crate::identity::provider;
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use rustls::{
    AlertDescription, CertificateError, ClientConfig, Error, RootCertStore, ServerConfig,
};

use super::keys::{KeyError, Keys, agents_name};

/// ALPN protocol: framed version 2.
const ALPN_PROTOCOL: &[u8] = b"ccplane/2";

fn roots(keys: &Keys) -> Result<Arc<RootCertStore>, KeyError> {
    let mut roots = RootCertStore::empty();
    roots.add(keys.authority.clone())?;
    Ok(Arc::new(roots))
}

/// Returns the TLS configuration of an agent.
pub(super) fn agent(
    keys: &Keys,
    clock: Arc<dyn TimeProvider>,
) -> Result<Arc<ServerConfig>, KeyError> {
    let provider = provider();
    let verifier =
        WebPkiClientVerifier::builder_with_provider(roots(keys)?, Arc::clone(&provider)).build();
    let verifier = verifier.map_err(|why| KeyError::Authority(why.to_string()))?;
    let mut config = ServerConfig::builder_with_details(provider, clock)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![keys.certificate.clone()], keys.key.clone_key())?;
    config.alpn_protocols = vec![ALPN_PROTOCOL.to_vec()];
    // Connections last for days, so no resumption: every connection authenticates again.
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    Ok(Arc::new(config))
}

/// Returns the TLS configuration of a datapath.
pub(super) fn datapath(
    keys: &Keys,
    clock: Arc<dyn TimeProvider>,
) -> Result<Arc<ClientConfig>, KeyError> {
    let mut config = ClientConfig::builder_with_details(provider(), clock)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots(keys)?)
        .with_client_auth_cert(vec![keys.certificate.clone()], keys.key.clone_key())?;
    config.alpn_protocols = vec![ALPN_PROTOCOL.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// Returns the server name in every agent's certificate, which does not depend on its host.
pub(super) fn agent_name() -> Result<ServerName<'static>, Error> {
    ServerName::try_from(agents_name()).map_err(|why| Error::General(why.to_string()))
}

/// Explains a TLS error. `other` is the peer: `an agent` or `a datapath`.
pub(super) fn in_words(why: &Error, other: &str) -> String {
    use AlertDescription as Alert;
    use CertificateError as Certificate;
    match why {
        Error::InvalidCertificate(certificate) => match certificate {
            Certificate::UnknownIssuer | Certificate::BadSignature => {
                format!(
                    "its certificate is of another authority than ca.pem here: `ccplane keys` in one folder makes the keys of both ends ({why})"
                )
            }
            Certificate::Expired | Certificate::ExpiredContext { .. } => {
                format!(
                    "its certificate has expired, or this host's clock is ahead: make it a new key, or set the clock ({why})"
                )
            }
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
                format!(
                    "its certificate is not valid yet: the clock of this host, or that on which it was made, is wrong by days ({why})"
                )
            }
            Certificate::InvalidPurpose
            | Certificate::InvalidPurposeContext { .. }
            | Certificate::NotValidForName
            | Certificate::NotValidForNameContext { .. } => {
                format!(
                    "its certificate is not that of {other}: each end has a key of its own role ({why})"
                )
            }
            _ => format!("its certificate cannot be used: {why}"),
        },
        Error::AlertReceived(alert) => match alert {
            Alert::UnknownCA | Alert::DecryptError => {
                format!(
                    "it does not know the authority of this end's certificate: `ccplane keys` in one folder makes the keys of both ends ({why})"
                )
            }
            Alert::CertificateExpired => {
                format!(
                    "to it this end's certificate has expired or is not valid yet: make a new key, or compare the clocks ({why})"
                )
            }
            Alert::UnsupportedCertificate | Alert::CertificateUnknown | Alert::BadCertificate => {
                format!(
                    "it does not take this end's certificate, which may be of the wrong role: an agent has the key in `agent`, a datapath one of its own ({why})"
                )
            }
            Alert::CertificateRequired => {
                format!("it wants a certificate, and this end showed none ({why})")
            }
            Alert::ProtocolVersion | Alert::NoApplicationProtocol => {
                format!(
                    "it speaks another protocol: both ends are to be of this version of ccplane ({why})"
                )
            }
            _ => format!("it refused: {why}"),
        },
        Error::NoCertificatesPresented => {
            "it shows no certificate: it is no datapath of ccplane's".to_owned()
        }
        Error::InvalidMessage(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. } => {
            format!("it does not speak TLS 1.3: is the port right? ({why})")
        }
        _ => why.to_string(),
    }
}
