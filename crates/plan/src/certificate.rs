//! The certificate and private key of a client or a server (`--cert`, `--key`), from PEM files.

use std::path::Path;
use std::sync::Arc;

use floodmark_load::tls::{TlsError, certified_key};
use floodmark_record::tls::{ClientCertificate, ClientIdentity, PrivateKey};
use floodmark_record::units::plural;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring;
use rustls::pki_types::pem::{Error as PemError, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{CertificateError, Error, RootCertStore};

use crate::input;
use crate::spec::Origin;

/// PEM labels of encrypted private keys: PKCS#8 (RFC 7468, section 11), and OpenSSL's older format
/// (RFC 1421, section 4.6.1.1).
const ENCRYPTED: [&[u8]; 2] = [
    b"-----BEGIN ENCRYPTED PRIVATE KEY-----",
    b"Proc-Type: 4,ENCRYPTED",
];

/// Tags in DER (X.690).
const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;

const SECONDS_PER_DAY: u64 = 86_400;

/// Reads a client's certificate and its private key with [`read`].
pub(crate) fn client(
    origin: Origin,
    cert: Option<&Path>,
    key: Option<&Path>,
) -> Result<Option<ClientIdentity>, String> {
    let pair = read("client", origin, cert, key)?;
    Ok(pair.map(|(certified, key)| {
        let chain = certified.cert.iter();
        ClientIdentity {
            chain: chain.map(|der| ClientCertificate(der.to_vec())).collect(),
            key: PrivateKey(key.secret_der().to_vec()),
        }
    }))
}

/// Reads a server's certificate and its private key. Returns `None` without `cert`.
///
/// # Errors
/// A file or its content is unusable. The message names the flag, the file and the fix.
pub fn server(
    cert: Option<&Path>,
    key: Option<&Path>,
) -> Result<Option<Arc<CertifiedKey>>, String> {
    let pair = read("server", Origin::CommandLine, cert, key)?;
    Ok(pair.map(|(certified, _)| Arc::new(certified)))
}

/// Reads the certificate and the private key of `owner`, a client or a server. Without `key`, the
/// file `cert` contains both. Returns `None` without `cert`.
///
/// # Errors
/// A file is unreadable or is not PEM, the certificate or the key is missing or unusable, the key is
/// encrypted, or it does not belong to the certificate.
fn read(
    owner: &str,
    origin: Origin,
    cert: Option<&Path>,
    key: Option<&Path>,
) -> Result<Option<(CertifiedKey, PrivateKeyDer<'static>)>, String> {
    let Some(cert) = cert else {
        return match key {
            None => Ok(None),
            Some(_) => Err(format!(
                "{key} needs {}; add {} with the certificate, or remove {key}",
                origin.name("cert"),
                origin.example("cert", "FILE"),
                key = origin.name("key")
            )),
        };
    };
    let cert = PemFile::read(origin, "cert", cert)?;
    let key_file = key.map(|path| PemFile::read(origin, "key", path));
    let key_file = key_file.transpose()?;
    let key_file = key_file.as_ref().unwrap_or(&cert);
    key_file.refuse_encrypted_key()?;
    let chain = cert.certificates(owner)?;
    let key = key_file.key()?;
    let certified = certified_key(chain, &key).map_err(|error| {
        let fix = match error {
            TlsError::KeyMismatch => format!(
                "name the key of the {owner}'s certificate, and put this certificate first in the {} file",
                origin.name("cert")
            ),
            _ => "use RSA with 2048 to 4096 bits, ECDSA with P-256 or P-384, or Ed25519".to_owned(),
        };
        key_file.fault(&format!("{error}; {fix}"))
    })?;
    Ok(Some((certified, key)))
}

/// Returns a warning if the client's certificate has expired or is not valid yet. The validity of
/// an X.509 version 1 certificate is unknown.
pub(crate) fn validity_warning(
    origin: Origin,
    cert: &Path,
    identity: &ClientIdentity,
) -> Option<String> {
    let certificate = CertificateDer::from(identity.chain.first()?.0.as_slice());
    let certificate = ParsedCertificate::try_from(&certificate).ok()?;
    // The validity is checked before the issuer, so no authority is needed.
    let verified = verify_server_cert_signed_by_trust_anchor(
        &certificate,
        &RootCertStore::empty(),
        &[],
        UnixTime::now(),
        ring::default_provider()
            .signature_verification_algorithms
            .all,
    );
    let days = |from: UnixTime, to: UnixTime| {
        plural(
            to.as_secs().saturating_sub(from.as_secs()) / SECONDS_PER_DAY,
            "day",
        )
    };
    let what = match verified {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { time, not_after })) => {
            format!("expired {} ago", days(not_after, time))
        }
        Err(Error::InvalidCertificate(CertificateError::NotValidYetContext {
            time,
            not_before,
        })) => format!("becomes valid in {}", days(time, not_before)),
        _ => return None,
    };
    Some(format!(
        "{} {}: the certificate {what}, so the server may reject it; use a valid certificate",
        origin.name("cert"),
        cert.display()
    ))
}

/// A file that should contain certificates or a private key in PEM format.
struct PemFile<'a> {
    origin: Origin,
    /// Setting that names the file: `cert` or `key`.
    setting: &'static str,
    path: &'a Path,
    text: Vec<u8>,
}

impl<'a> PemFile<'a> {
    fn read(origin: Origin, setting: &'static str, path: &'a Path) -> Result<Self, String> {
        let mut file = PemFile {
            origin,
            setting,
            path,
            text: Vec::new(),
        };
        file.text = input::read(path).map_err(|why| file.fault(&why))?;
        match file.conversion() {
            Some(command) => {
                Err(file.fault(&format!("not a PEM file; convert it with: {command}")))
            }
            None => Ok(file),
        }
    }

    /// Returns the error message for a problem with the file.
    fn fault(&self, what: &str) -> String {
        let name = self.origin.name(self.setting);
        format!("{name} {}: {what}", self.path.display())
    }

    /// Returns the command that converts a DER or PKCS#12 file to PEM, or `None` if the file is in
    /// another format.
    fn conversion(&self) -> Option<String> {
        let path = self.path.display();
        Some(match (first_tag(&self.text)?, self.setting) {
            (SEQUENCE, "key") => format!("openssl pkcs8 -inform DER -in {path} -out key.pem"),
            (SEQUENCE, _) => format!("openssl x509 -inform DER -in {path} -out cert.pem"),
            (INTEGER, "key") => format!("openssl pkey -inform DER -in {path} -out key.pem"),
            (INTEGER, _) => format!("openssl pkcs12 -in {path} -nodes -out cert.pem"),
            _ => return None,
        })
    }

    fn refuse_encrypted_key(&self) -> Result<(), String> {
        let contains = |label: &&[u8]| self.text.windows(label.len()).any(|part| part == *label);
        if !ENCRYPTED.iter().any(contains) {
            return Ok(());
        }
        let path = self.path.display();
        Err(self.fault(&format!(
            "the private key is encrypted; decrypt it with: openssl pkey -in {path} -out key.pem, \
             and use {}",
            self.origin.example("key", "key.pem")
        )))
    }

    fn certificates(&self, owner: &str) -> Result<Vec<CertificateDer<'static>>, String> {
        let fix =
            format!("name a PEM file with the {owner}'s certificate (-----BEGIN CERTIFICATE-----)");
        let mut chain = Vec::new();
        for (number, certificate) in (1..).zip(CertificateDer::pem_slice_iter(&self.text)) {
            let certificate = certificate.map_err(|error| self.not_pem(&error, &fix))?;
            let parsed = ParsedCertificate::try_from(&certificate);
            if let Err(error @ Error::InvalidCertificate(CertificateError::BadEncoding)) = parsed {
                return Err(self.fault(&format!("certificate {number}: {error}; {fix}")));
            }
            chain.push(certificate);
        }
        if chain.is_empty() {
            return Err(self.fault(&format!("it contains no certificate; {fix}")));
        }
        Ok(chain)
    }

    /// Returns the first private key.
    fn key(&self) -> Result<PrivateKeyDer<'static>, String> {
        let fix = match self.setting {
            "key" => {
                "name a PEM file with the private key (-----BEGIN PRIVATE KEY-----)".to_owned()
            }
            _ => format!(
                "add {} with the private key",
                self.origin.example("key", "FILE")
            ),
        };
        PrivateKeyDer::from_pem_slice(&self.text).map_err(|error| match error {
            PemError::NoItemsFound => self.fault(&format!("it contains no private key; {fix}")),
            error => self.not_pem(&error, &fix),
        })
    }

    fn not_pem(&self, error: &PemError, fix: &str) -> String {
        self.fault(&format!("not a PEM file: {error}; {fix}"))
    }
}

/// Returns the tag of the first element in a DER sequence, or `None` if the bytes are not a DER
/// sequence.
fn first_tag(bytes: &[u8]) -> Option<u8> {
    let [SEQUENCE, length, ..] = bytes else {
        return None;
    };
    // In the long form, the lower seven bits are the number of further length bytes.
    let further = if *length < 0x80 { 0 } else { length & 0x7f };
    bytes.get(2 + usize::from(further)).copied()
}
