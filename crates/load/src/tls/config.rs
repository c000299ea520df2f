//! Configures rustls from a plan.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use floodmark_record::plan::{Http, Plan};
use floodmark_record::tls::{TlsPlan, Trust, TrustAnchor};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ResolvesClientCert, Resumption, VerifierBuilderError, WebPkiServerVerifier, verify_server_name,
};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::failure::is_authority;

/// Name of HTTP/1.1 in ALPN (RFC 7301).
pub(super) const HTTP_1_1: &[u8] = b"http/1.1";
/// Name of HTTP/2 in ALPN (RFC 9113, section 3.2).
pub(super) const HTTP_2: &[u8] = b"h2";

/// Number of sessions that a load thread stores.
/// rustls keeps at most 8 TLS 1.3 tickets per server.
const SESSIONS: usize = 8;

/// The reason why TLS cannot be configured as planned.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The server's name cannot appear in a certificate.
    #[error("\"{0}\" is neither a DNS name nor an IP address")]
    Name(String),
    /// A certificate authority is invalid.
    #[error("certificate {number} is not a CA certificate: {reason}")]
    TrustAnchor {
        /// Number of the certificate, from 1.
        number: usize,
        /// The error.
        reason: String,
    },
    /// No authority is available to verify the server's certificate.
    #[error("no trusted certificate authority is available")]
    NoRoots,
    /// rustls reported an error.
    #[error("cannot configure TLS: {0}")]
    Library(#[from] rustls::Error),
    /// rustls rejected the certificate authorities.
    #[error("cannot configure TLS: {0}")]
    Verifier(#[from] VerifierBuilderError),
}

/// A plan's TLS configuration.
#[derive(Debug, Clone)]
pub struct Tls {
    pub(super) config: ClientConfig,
    resumption: bool,
    /// The name that the server's certificate must contain.
    pub(super) name: ServerName<'static>,
}

impl Tls {
    /// Creates the configuration of a plan. Returns `None` if the plan uses plain HTTP. `anchors`
    /// are the trusted certificate authorities.
    ///
    /// # Errors
    /// Fails like [`Tls::new`].
    pub fn of(plan: &Plan, anchors: &[TrustAnchor]) -> Result<Option<Self>, TlsError> {
        let tls = plan.tls.as_ref().map(|tls| Tls::new(tls, anchors));
        Ok(tls.transpose()?.map(|tls| tls.with_http(plan.http)))
    }

    /// Creates the configuration for HTTP/1.1. `anchors` are the trusted certificate authorities.
    ///
    /// # Errors
    /// Fails if the name or an authority is invalid, or if no authority is available.
    pub fn new(plan: &TlsPlan, anchors: &[TrustAnchor]) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match plan.trust {
            Trust::Nothing => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Unverified(provider))),
            Trust::System => builder.with_root_certificates(store(plan, anchors)?),
            Trust::File => {
                let store = Arc::new(store(plan, anchors)?);
                let webpki =
                    WebPkiServerVerifier::builder_with_provider(store, provider).build()?;
                let trusted = anchors.to_vec();
                let verifier = Arc::new(FileVerifier { webpki, trusted });
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(verifier)
            }
        };
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        if !plan.resumption {
            config.resumption = Resumption::disabled();
        }
        let name = plan.server_name.clone();
        Ok(Tls {
            config,
            resumption: plan.resumption,
            name: ServerName::try_from(name.clone()).map_err(|_| TlsError::Name(name))?,
        })
    }

    /// Returns the configuration for a version of HTTP, which is the only protocol offered.
    pub(super) fn with_http(mut self, http: Http) -> Self {
        let name = match http {
            Http::V1 => HTTP_1_1,
            Http::V2(_) => HTTP_2,
        };
        self.config.alpn_protocols = vec![name.to_vec()];
        self
    }

    /// Returns the configuration for one load thread, and a flag that is set when a server requests
    /// a client certificate.
    /// Each thread has its own session cache, so that threads do not share a lock.
    pub(super) fn for_thread(&self) -> (Arc<ClientConfig>, Arc<CertificateRequest>) {
        let mut config = self.config.clone();
        if self.resumption {
            config.resumption = Resumption::in_memory_sessions(SESSIONS);
        }
        let request = Arc::<CertificateRequest>::default();
        config.client_auth_cert_resolver = Arc::clone(&request) as _;
        (Arc::new(config), request)
    }
}

/// Returns whether a configuration offers HTTP/2.
pub(super) fn offers_http2(config: &ClientConfig) -> bool {
    config.alpn_protocols.iter().any(|name| name == HTTP_2)
}

/// Records whether a server requests a client certificate, and offers none.
#[derive(Debug, Default)]
pub(super) struct CertificateRequest(AtomicBool);

impl CertificateRequest {
    /// Returns whether a server has requested a client certificate.
    pub fn was_received(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl ResolvesClientCert for CertificateRequest {
    fn resolve(
        &self,
        _root_hint_subjects: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        self.0.store(true, Ordering::Relaxed);
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

/// Builds the store of trusted authorities.
/// The host's store may contain unusable authorities, which are skipped. In a file that the user
/// provides, an unusable authority is an error.
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

/// Verifies certificates with the authorities in a file.
///
/// Also accepts a server certificate that is itself in the file. webpki rejects such a certificate
/// if it is a CA certificate, such as those that `openssl req -x509` creates.
#[derive(Debug)]
struct FileVerifier {
    webpki: Arc<WebPkiServerVerifier>,
    trusted: Vec<TrustAnchor>,
}

impl ServerCertVerifier for FileVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verified = self.webpki.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        let is_trusted = || {
            self.trusted
                .iter()
                .any(|anchor| anchor.0 == end_entity.as_ref())
        };
        match verified {
            Err(Error::InvalidCertificate(error)) if is_authority(&error) && is_trusted() => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls12_signature(message, cert, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.webpki.verify_tls13_signature(message, cert, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.webpki.supported_verify_schemes()
    }
}

/// Accepts any certificate, but requires the server to prove that it has the private key. A
/// handshake therefore takes as much CPU time as with verification.
#[derive(Debug)]
pub struct Unverified(pub Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            cert,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            cert,
            signed,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
