//! Configures rustls from a plan.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use floodmark_record::plan::{Http, Plan};
use floodmark_record::tls::{ClientIdentity, TlsCredentials, TlsPlan, Trust, TrustAnchor};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{
    ResolvesClientCert, Resumption, VerifierBuilderError, WebPkiServerVerifier, verify_server_name,
};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::failure::{CertificateExchange, is_authority};

/// Name of HTTP/1.1 in ALPN (RFC 7301).
pub(super) const HTTP_1_1: &[u8] = b"http/1.1";
/// Name of HTTP/2 in ALPN (RFC 9113, section 3.2).
pub(super) const HTTP_2: &[u8] = b"h2";

/// Returns the ALPN name of an HTTP version.
pub(super) fn alpn(http: Http) -> &'static [u8] {
    match http {
        Http::V1 => HTTP_1_1,
        Http::V2(_) => HTTP_2,
    }
}

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
    /// The private key is invalid or of an unsupported type.
    #[error("unsupported private key")]
    PrivateKey,
    /// The private key does not belong to the certificate.
    #[error("the private key does not belong to the first certificate")]
    KeyMismatch,
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
    identity: Option<Arc<CertifiedKey>>,
    /// The name that the server's certificate must contain.
    pub(super) name: ServerName<'static>,
}

impl Tls {
    /// Creates the configuration of a plan. Returns `None` if the plan uses plain HTTP.
    ///
    /// # Errors
    /// Fails like [`Tls::new`].
    pub fn of(plan: &Plan, credentials: &TlsCredentials) -> Result<Option<Self>, TlsError> {
        let tls = plan.tls.as_ref().map(|tls| Tls::new(tls, credentials));
        Ok(tls.transpose()?.map(|tls| tls.with_http(plan.http)))
    }

    /// Creates the configuration for HTTP/1.1.
    ///
    /// # Errors
    /// Fails if the name, an authority or the private key is invalid, if the key does not belong to
    /// the client certificate, or if no authority is available.
    pub fn new(plan: &TlsPlan, credentials: &TlsCredentials) -> Result<Self, TlsError> {
        let anchors = &credentials.anchors;
        let identity = credentials.identity.as_ref().map(client_key);
        let identity = identity.transpose()?;
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
                let trusted = anchors.clone();
                let verifier = Arc::new(FileVerifier { webpki, trusted });
                builder
                    .dangerous()
                    .with_custom_certificate_verifier(verifier)
            }
        };
        let mut config =
            builder.with_client_cert_resolver(Arc::new(CertificateSender::new(identity.clone())));
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        if !plan.resumption {
            config.resumption = Resumption::disabled();
        }
        let name = plan.server_name.clone();
        Ok(Tls {
            config,
            resumption: plan.resumption,
            identity,
            name: ServerName::try_from(name.clone()).map_err(|_| TlsError::Name(name))?,
        })
    }

    /// Returns the configuration for a version of HTTP, which is the only protocol offered.
    pub(super) fn with_http(mut self, http: Http) -> Self {
        self.config.alpn_protocols = vec![alpn(http).to_vec()];
        self
    }

    /// Returns the configuration for one load thread, and its client certificate sender. Each
    /// thread has its own session cache, so that threads do not share a lock.
    pub(super) fn for_thread(&self) -> (Arc<ClientConfig>, Arc<CertificateSender>) {
        let mut config = self.config.clone();
        if self.resumption {
            config.resumption = Resumption::in_memory_sessions(SESSIONS);
        }
        let sender = Arc::new(CertificateSender::new(self.identity.clone()));
        config.client_auth_cert_resolver = Arc::clone(&sender) as _;
        (Arc::new(config), sender)
    }
}

/// Returns whether a configuration offers HTTP/2.
pub(super) fn offers_http2(config: &ClientConfig) -> bool {
    config.alpn_protocols.iter().any(|name| name == HTTP_2)
}

/// Loads a certificate chain, which starts with the owner's certificate, and its private key.
///
/// # Errors
/// Returns [`TlsError::PrivateKey`] if the key is invalid or of an unsupported type, and
/// [`TlsError::KeyMismatch`] if it does not belong to the first certificate.
pub fn certified_key(
    chain: Vec<CertificateDer<'static>>,
    key: &PrivateKeyDer<'_>,
) -> Result<CertifiedKey, TlsError> {
    let key = ring::sign::any_supported_type(key).map_err(|_| TlsError::PrivateKey)?;
    // rustls cannot compare the key with an X.509 version 1 certificate. Any certificate contains
    // its public key in DER.
    if let Some((public, certificate)) = key.public_key().zip(chain.first()) {
        let public = public.as_ref();
        let mut parts = certificate.windows(public.len());
        if !parts.any(|part| part == public) {
            return Err(TlsError::KeyMismatch);
        }
    }
    Ok(CertifiedKey::new(chain, key))
}

/// Loads a client certificate and its private key.
fn client_key(identity: &ClientIdentity) -> Result<Arc<CertifiedKey>, TlsError> {
    let key = PrivateKeyDer::try_from(identity.key.0.as_slice());
    let key = key.map_err(|_| TlsError::PrivateKey)?;
    let chain = identity.chain.iter();
    let chain = chain.map(|certificate| CertificateDer::from(certificate.0.clone()));
    certified_key(chain.collect(), &key).map(Arc::new)
}

/// Sends the client certificate, if any, to servers that request it, and counts these requests.
#[derive(Debug)]
pub(super) struct CertificateSender {
    identity: Option<Arc<CertifiedKey>>,
    requests: AtomicU64,
    sent: AtomicU64,
}

impl CertificateSender {
    fn new(identity: Option<Arc<CertifiedKey>>) -> Self {
        CertificateSender {
            identity,
            requests: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        }
    }

    /// Returns the number of handshakes in which a server requested a certificate, and the number of
    /// handshakes in which the client sent its certificate.
    pub fn counts(&self) -> (u64, u64) {
        let [requests, sent] = [&self.requests, &self.sent].map(|n| n.load(Ordering::Relaxed));
        (requests, sent)
    }

    /// Returns whether servers have requested the client certificate, and whether it was sent.
    pub fn exchange(&self) -> CertificateExchange {
        match self.counts() {
            (0, _) => CertificateExchange::NotRequested,
            (_, 0) => CertificateExchange::NotSent,
            _ => CertificateExchange::Sent,
        }
    }
}

impl ResolvesClientCert for CertificateSender {
    fn resolve(
        &self,
        _root_hint_subjects: &[&[u8]],
        schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let identity = self.identity.as_ref()?;
        identity.key.choose_scheme(schemes)?;
        self.sent.fetch_add(1, Ordering::Relaxed);
        Some(Arc::clone(identity))
    }

    fn has_certs(&self) -> bool {
        self.identity.is_some()
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
