//! A certificate authority and TLS servers for tests.
#![allow(dead_code, reason = "each test binary uses only some of these helpers")]

use std::sync::Arc;

use floodmark_record::tls::{ClientCertificate, ClientIdentity, PrivateKey, TrustAnchor};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    PKCS_ECDSA_P256_SHA256, SignatureAlgorithm, date_time_ymd,
};
use rustls::crypto::ring;
use rustls::crypto::ring::cipher_suite::{
    TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, TLS13_AES_128_GCM_SHA256,
    TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoClientAuth, NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedCipherSuite};

/// All cipher suites in rustls for ECDSA certificates: first TLS 1.3, then TLS 1.2.
pub const SUITES: [SupportedCipherSuite; 6] = [
    TLS13_AES_128_GCM_SHA256,
    TLS13_AES_256_GCM_SHA384,
    TLS13_CHACHA20_POLY1305_SHA256,
    TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// A certificate authority.
pub struct Authority {
    certificate: rcgen::Certificate,
    key: Vec<u8>,
    key_pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key.
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: Vec<u8>,
    /// The certificate in PEM.
    pub pem: String,
    /// The key in PEM.
    pub key_pem: String,
}

impl Identity {
    /// Returns the certificate and its key, for use by a client.
    pub fn of_client(&self) -> ClientIdentity {
        ClientIdentity {
            chain: vec![ClientCertificate(self.certificate.to_vec())],
            key: PrivateKey(self.key.clone()),
        }
    }
}

/// A certificate's validity period.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Valid {
    Now,
    NoLonger,
    NotYet,
}

impl Authority {
    pub fn new() -> Self {
        Self::named("floodmark's test authority")
    }

    pub fn named(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names = names(&["localhost"]);
        let key = KeyPair::generate().unwrap();
        Authority {
            certificate: params.self_signed(&key).unwrap(),
            key: key.serialize_der(),
            key_pem: key.serialize_pem(),
            issuer: Issuer::new(params, key),
        }
    }

    /// Returns the certificate as PEM, for `--cacert`.
    pub fn pem(&self) -> String {
        self.certificate.pem()
    }

    pub fn anchor(&self) -> TrustAnchor {
        TrustAnchor(self.certificate.der().to_vec())
    }

    /// Returns the authority's own certificate, for use by a server.
    pub fn itself(&self) -> Identity {
        Identity {
            certificate: self.certificate.der().clone(),
            key: self.key.clone(),
            pem: self.pem(),
            key_pem: self.key_pem.clone(),
        }
    }

    /// Issues a server certificate for `hosts`, which are DNS names or IP addresses.
    pub fn issue(&self, hosts: &[&str], valid: Valid) -> Identity {
        let mut params = CertificateParams::default();
        params.subject_alt_names = names(hosts);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(params, &PKCS_ECDSA_P256_SHA256, valid)
    }

    /// Issues a client's certificate.
    pub fn issue_client(&self, algorithm: &'static SignatureAlgorithm, valid: Valid) -> Identity {
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params, algorithm, valid)
    }

    fn sign(
        &self,
        mut params: CertificateParams,
        algorithm: &'static SignatureAlgorithm,
        valid: Valid,
    ) -> Identity {
        match valid {
            Valid::Now => {}
            Valid::NoLonger => params.not_after = date_time_ymd(2001, 2, 3),
            Valid::NotYet => params.not_before = date_time_ymd(4000, 1, 1),
        }
        let key = KeyPair::generate_for(algorithm).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity {
            certificate: certificate.der().clone(),
            key: key.serialize_der(),
            pem: certificate.pem(),
            key_pem: key.serialize_pem(),
        }
    }
}

fn names(hosts: &[&str]) -> Vec<rcgen::SanType> {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    CertificateParams::new(hosts).unwrap().subject_alt_names
}

/// Returns a server configuration with only `suites`, with or without session resumption.
pub fn server(identity: &Identity, suites: &[SupportedCipherSuite], resumes: bool) -> ServerConfig {
    server_for(Arc::new(NoClientAuth), identity, suites, resumes)
}

/// Returns the configuration of a server that requires client certificates from `authority`.
pub fn requiring_certificates(
    authority: &Authority,
    identity: &Identity,
    suites: &[SupportedCipherSuite],
) -> ServerConfig {
    trusting_clients(authority.certificate.der().clone(), identity, suites)
}

/// Returns the configuration of a server that requires client certificates signed by `anchor`.
pub fn trusting_clients(
    anchor: CertificateDer<'static>,
    identity: &Identity,
    suites: &[SupportedCipherSuite],
) -> ServerConfig {
    let mut roots = RootCertStore::empty();
    roots.add(anchor).unwrap();
    let provider = Arc::new(ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    server_for(clients.build().unwrap(), identity, suites, true)
}

fn server_for(
    clients: Arc<dyn ClientCertVerifier>,
    identity: &Identity,
    suites: &[SupportedCipherSuite],
    resumes: bool,
) -> ServerConfig {
    let mut provider = ring::default_provider();
    provider.cipher_suites = suites.to_vec();
    let versions: Vec<_> = [&rustls::version::TLS13, &rustls::version::TLS12]
        .into_iter()
        .filter(|version| suites.iter().any(|suite| suite.version() == *version))
        .collect();
    let key = PrivatePkcs8KeyDer::from(identity.key.clone());
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&versions)
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(vec![identity.certificate.clone()], PrivateKeyDer::from(key))
        .unwrap();
    if !resumes {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    config
}
