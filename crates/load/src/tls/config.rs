//! From the plan to what rustls needs.

use std::sync::Arc;

use floodmark_record::tls::{TlsPlan, Trust, TrustAnchor};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

use super::trust::Unverified;

/// The only protocol that is offered (RFC 7301).
const ALPN: &[u8] = b"http/1.1";

/// Sessions that a load thread remembers; rustls keeps at most 8 tickets of TLS 1.3 for one server.
const SESSIONS: usize = 8;

/// Why a plan's TLS is impossible.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The server's name can stand in no certificate.
    #[error("\"{0}\" is neither a DNS name nor an IP address")]
    Name(String),
    /// A certificate authority that is none.
    #[error("certificate {number} is no certificate authority's: {reason}")]
    TrustAnchor {
        /// Which, from 1.
        number: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// There is nothing to hold the server's certificate against.
    #[error("there is no certificate authority to trust")]
    NoRoots,
    /// The library refuses.
    #[error("TLS cannot be set up: {0}")]
    Library(#[from] rustls::Error),
}

/// Reads a host as what a certificate can prove.
///
/// # Errors
/// A host that is neither a DNS name nor an IP address.
pub fn server_name(host: &str) -> Result<ServerName<'static>, TlsError> {
    ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Name(host.to_owned()))
}

/// A plan's TLS, made ready for threads.
#[derive(Debug, Clone)]
pub struct Tls {
    config: ClientConfig,
    resumption: bool,
    /// What the server has to prove.
    pub name: ServerName<'static>,
}

impl Tls {
    /// Makes a plan's TLS ready; `anchors` are the certificate authorities to trust.
    ///
    /// # Errors
    /// A name or an authority that is none, or nothing to trust.
    pub fn new(plan: &TlsPlan, anchors: &[TrustAnchor]) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match plan.trust {
            Trust::Nothing => builder
                .dangerous()
                .with_custom_certificate_verifier(unverified(provider)),
            Trust::System | Trust::File => builder.with_root_certificates(store(plan, anchors)?),
        };
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.enable_secret_extraction = true;
        if !plan.resumption {
            config.resumption = Resumption::disabled();
        }
        Ok(Tls {
            config,
            resumption: plan.resumption,
            name: server_name(&plan.server_name)?,
        })
    }

    /// The configuration of one load thread, with a memory of sessions of its own: threads share none, and no lock.
    #[must_use]
    pub fn for_thread(&self) -> Arc<ClientConfig> {
        let mut config = self.config.clone();
        if self.resumption {
            config.resumption = Resumption::in_memory_sessions(SESSIONS);
        }
        Arc::new(config)
    }
}

fn unverified(provider: Arc<CryptoProvider>) -> Arc<Unverified> {
    Arc::new(Unverified(provider))
}

/// Among a system's many authorities one that cannot be used does no harm; in a file that was given it is an error.
fn store(plan: &TlsPlan, anchors: &[TrustAnchor]) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for (number, anchor) in (1..).zip(anchors) {
        let added = store.add(CertificateDer::from(anchor.0.as_slice()));
        if let Err(error) = added
            && plan.trust == Trust::File
        {
            let reason = error.to_string();
            return Err(TlsError::TrustAnchor { number, reason });
        }
    }
    if store.is_empty() {
        return Err(TlsError::NoRoots);
    }
    Ok(store)
}
