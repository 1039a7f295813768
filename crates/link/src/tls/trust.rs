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
pub(super) fn describe(why: &Error, other: &str) -> String {
    use AlertDescription as Alert;
    use CertificateError as Certificate;
    match why {
        Error::InvalidCertificate(certificate) => match certificate {
            Certificate::UnknownIssuer | Certificate::BadSignature => {
                format!(
                    "its certificate was not issued by the CA in ca.pem; create the keys of both \
                    ends with `ccplane keys` in one directory ({why})"
                )
            }
            Certificate::Expired | Certificate::ExpiredContext { .. } => {
                format!(
                    "its certificate has expired, or this host's clock is fast; create a new key \
                    for it or set the clock ({why})"
                )
            }
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
                format!(
                    "its certificate is not valid yet; check the clocks of this host and of the \
                    host that created it ({why})"
                )
            }
            Certificate::InvalidPurpose
            | Certificate::InvalidPurposeContext { .. }
            | Certificate::NotValidForName
            | Certificate::NotValidForNameContext { .. } => {
                format!(
                    "its certificate is not the certificate of {other}; give each end the key of \
                    its role ({why})"
                )
            }
            _ => format!("its certificate is not valid: {why}"),
        },
        Error::AlertReceived(alert) => match alert {
            Alert::UnknownCA | Alert::DecryptError => {
                format!(
                    "it does not trust the CA of this end's certificate; create the keys of both \
                    ends with `ccplane keys` in one directory ({why})"
                )
            }
            Alert::CertificateExpired => {
                format!(
                    "it reports that this end's certificate has expired or is not valid yet; \
                    create a new key or compare the clocks ({why})"
                )
            }
            Alert::UnsupportedCertificate | Alert::CertificateUnknown | Alert::BadCertificate => {
                format!(
                    "it rejects this end's certificate, which may have the wrong role; an agent \
                    uses the key in `agent`, each datapath its own key ({why})"
                )
            }
            Alert::CertificateRequired => {
                format!("it requires a certificate, but this end sent none ({why})")
            }
            Alert::ProtocolVersion | Alert::NoApplicationProtocol => {
                format!(
                    "it uses another protocol version; run the same version of ccplane on both \
                    ends ({why})"
                )
            }
            _ => format!("it refused: {why}"),
        },
        Error::NoCertificatesPresented => {
            "it sent no certificate, so it is not a ccplane datapath".to_owned()
        }
        Error::InvalidMessage(_)
        | Error::InappropriateMessage { .. }
        | Error::InappropriateHandshakeMessage { .. } => {
            format!("it does not use TLS 1.3; check the port ({why})")
        }
        _ => why.to_string(),
    }
}
