//! TLS settings for connections, the certificate authorities that the client trusts, and the
//! client's own certificate.

use std::net::IpAddr;
use std::path::Path;

use floodmark_load::tls::{Tls, TlsError};
use floodmark_record::tls::{ClientIdentity, TlsCredentials, TlsPlan, Trust, TrustAnchor};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{Error as PemError, PemObject};

use crate::spec::{Origin, PlanSpec};
use crate::{certificate, input};

/// Returns the TLS settings for connections to `host`, and the certificates to trust and to send.
/// `host` is `None` for plain HTTP.
///
/// The certificate files are read on this host, because a client on another host may not have them.
pub(crate) fn plan(
    spec: &PlanSpec,
    host: Option<String>,
) -> Result<(Option<TlsPlan>, TlsCredentials), String> {
    let Some(host) = host else {
        return refuse_for_plain_http(spec).map(|()| (None, TlsCredentials::default()));
    };
    let (load, origin) = (&spec.load, spec.origin);
    if let Some(name) = load
        .sni
        .as_ref()
        .filter(|name| name.parse::<IpAddr>().is_ok())
    {
        return Err(format!(
            "{sni} {name}: SNI cannot contain an IP address; use a host name, or remove {sni}",
            sni = spec.name("sni")
        ));
    }
    let (trust, anchors) = match (load.insecure == Some(true), &load.cacert) {
        (true, None) => (Trust::Nothing, Vec::new()),
        (true, Some(_)) => {
            let (insecure, cacert) = (spec.name("insecure"), spec.name("cacert"));
            return Err(format!(
                "{insecure} conflicts with {cacert}; remove one of them"
            ));
        }
        (false, Some(path)) => (Trust::File, read_pem(origin, path)?),
        (false, None) => (Trust::System, system_anchors(origin)?),
    };
    let identity = certificate::client(origin, load.cert.as_deref(), load.key.as_deref())?;
    let plan = TlsPlan {
        server_name: load.sni.clone().unwrap_or(host),
        trust,
        resumption: load.no_resumption != Some(true),
        client_certificate_sha256: identity.as_ref().and_then(ClientIdentity::sha256),
    };
    let credentials = TlsCredentials { anchors, identity };
    match Tls::new(&plan, &credentials) {
        Ok(_) => Ok((Some(plan), credentials)),
        Err(error) => Err(unusable(spec, &error)),
    }
}

/// Returns a warning if the client's certificate has expired or is not valid yet.
pub(crate) fn warning(spec: &PlanSpec, credentials: &TlsCredentials) -> Option<String> {
    let cert = spec.load.cert.as_ref()?;
    certificate::validity_warning(spec.origin, cert, credentials.identity.as_ref()?)
}

/// Returns the certificates of a recorded plan. The record does not contain them, so `cacert`,
/// `cert` and `key` must name the same files again.
///
/// # Errors
/// `cacert` or `cert` is required but `None`, `cert` is not the certificate of the recorded plan, a
/// file is missing or unusable, or the host has no authorities.
pub fn credentials(
    plan: &TlsPlan,
    cacert: Option<&Path>,
    cert: Option<&Path>,
    key: Option<&Path>,
) -> Result<TlsCredentials, String> {
    let anchors = anchors(plan, cacert)?;
    let identity = certificate::client(Origin::CommandLine, cert, key)?;
    let now = identity.as_ref().and_then(ClientIdentity::sha256);
    let file = cert.map_or_else(String::new, |path| format!(" {}", path.display()));
    match (&plan.client_certificate_sha256, now) {
        (Some(_), None) => {
            let what = "the run used a client certificate; pass it with --cert FILE, and its key with --key FILE";
            Err(what.to_owned())
        }
        (None, Some(_)) => Err(format!(
            "--cert{file}: the run used no client certificate; remove --cert"
        )),
        (Some(then), Some(now)) if *then != now => Err(format!(
            "--cert{file}: not the run's client certificate (SHA-256 {now}); pass the one with SHA-256 {then}"
        )),
        _ => Ok(TlsCredentials { anchors, identity }),
    }
}

fn anchors(plan: &TlsPlan, cacert: Option<&Path>) -> Result<Vec<TrustAnchor>, String> {
    match (plan.trust, cacert) {
        (Trust::Nothing, _) => Ok(Vec::new()),
        (Trust::System, _) => system_anchors(Origin::CommandLine),
        (Trust::File, Some(path)) => read_pem(Origin::CommandLine, path),
        (Trust::File, None) => {
            let what = "the run trusted certificate authorities from a file; pass that file with --cacert FILE";
            Err(what.to_owned())
        }
    }
}

fn refuse_for_plain_http(spec: &PlanSpec) -> Result<(), String> {
    const KEYS: [&str; 6] = ["insecure", "cacert", "cert", "key", "sni", "no-resumption"];
    let Some(key) = spec.load.given().find(|key| KEYS.contains(key)) else {
        return Ok(());
    };
    let name = spec.name(key);
    Err(match spec.origin {
        Origin::CommandLine => format!(
            "{name} needs HTTPS, but the URL is plain HTTP; write https:// or remove the flag"
        ),
        Origin::File => format!(
            "{name} needs HTTPS; add scheme = \"https\" to the trial or its system, or remove {name}"
        ),
    })
}

fn unusable(spec: &PlanSpec, error: &TlsError) -> String {
    let (load, origin) = (&spec.load, spec.origin);
    match (error, &load.cacert) {
        (TlsError::NoRoots, None) => {
            no_authority(origin, "on Debian: apt-get install ca-certificates")
        }
        (TlsError::TrustAnchor { .. } | TlsError::NoRoots, Some(path)) => {
            bad_cacert(origin, path, &error.to_string())
        }
        (TlsError::Name(_), _) => match &load.sni {
            Some(name) => format!("{} {name}: {error}", spec.name("sni")),
            None => format!("the URL's host: {error}"),
        },
        _ => error.to_string(),
    }
}

/// Returns the host's certificate authorities. Unreadable files are an error only if no authority
/// is found.
fn system_anchors(origin: Origin) -> Result<Vec<TrustAnchor>, String> {
    let found = rustls_native_certs::load_native_certs();
    match found.errors.first() {
        Some(error) if found.certs.is_empty() => Err(no_authority(origin, &error.to_string())),
        _ => Ok(found.certs.into_iter().map(anchor).collect()),
    }
}

fn no_authority(origin: Origin, why: &str) -> String {
    let cacert = origin.example("cacert", "FILE");
    let insecure = origin.enable("insecure");
    format!(
        "this host trusts no certificate authority ({why}); add one with {cacert}, or accept any certificate with {insecure}"
    )
}

fn anchor(certificate: CertificateDer<'_>) -> TrustAnchor {
    TrustAnchor(certificate.as_ref().to_vec())
}

fn read_pem(origin: Origin, path: &Path) -> Result<Vec<TrustAnchor>, String> {
    let name = origin.name("cacert");
    let text = input::read(path).map_err(|why| format!("{name} {}: {why}", path.display()))?;
    let anchors: Result<Vec<TrustAnchor>, PemError> = CertificateDer::pem_slice_iter(&text)
        .map(|certificate| certificate.map(anchor))
        .collect();
    match anchors {
        Ok(anchors) if anchors.is_empty() => {
            Err(bad_cacert(origin, path, "it contains no certificate"))
        }
        Ok(anchors) => Ok(anchors),
        Err(error) => Err(bad_cacert(
            origin,
            path,
            &format!("not a PEM file: {error}"),
        )),
    }
}

fn bad_cacert(origin: Origin, path: &Path, why: &str) -> String {
    let name = origin.name("cacert");
    format!(
        "{name} {}: {why}; name a PEM file with the certificate of the authority that signed the server's \
         (-----BEGIN CERTIFICATE-----)",
        path.display()
    )
}
