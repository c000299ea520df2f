//! HTTPS: what the flags ask for, and the certificate authorities that the load process is to trust.

use std::path::Path;

use floodmark_lab::input;
use floodmark_load::tls::{Tls, TlsError};
use floodmark_record::tls::{TlsPlan, Trust, TrustAnchor};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{Error as PemError, PemObject};

use super::args::LoadArgs;
use crate::exit::Ending;

/// What is asked of connections to `host`, which is none where the URL is plain HTTP, and whom to trust.
///
/// The files are read here, once, and travel to the load process: it may run on a machine that does not have them.
pub fn plan(
    args: &LoadArgs,
    host: Option<String>,
) -> Result<(Option<TlsPlan>, Vec<TrustAnchor>), Ending> {
    let Some(server_name) = host else {
        return for_plain_http(args).map(|()| (None, Vec::new()));
    };
    let (trust, anchors) = match &args.cacert {
        _ if args.insecure => (Trust::Nothing, Vec::new()),
        Some(path) => (Trust::File, file(path)?),
        None => (Trust::System, system()?),
    };
    let plan = TlsPlan {
        server_name,
        trust,
        resumption: !args.no_resumption,
    };
    match Tls::new(&plan, &anchors) {
        Ok(_) => Ok((Some(plan), anchors)),
        Err(error) => Err(refused(args, &error)),
    }
}

/// Whom to trust as a plan has it, whose own authorities are not kept in its record; `cacert` is their file, where it had one.
pub fn anchors(plan: &TlsPlan, cacert: Option<&Path>) -> Result<Vec<TrustAnchor>, Ending> {
    match (plan.trust, cacert) {
        (Trust::Nothing, _) => Ok(Vec::new()),
        (Trust::System, _) => system(),
        (Trust::File, Some(path)) => file(path),
        (Trust::File, None) => Err(Ending::usage(
            "the run trusted a certificate authority of a file; name it again: --cacert FILE",
        )),
    }
}

/// A flag of HTTPS says nothing of plain HTTP.
fn for_plain_http(args: &LoadArgs) -> Result<(), Ending> {
    let given = [
        ("--insecure", args.insecure),
        ("--cacert", args.cacert.is_some()),
        ("--no-resumption", args.no_resumption),
    ];
    match given.iter().find(|(_, given)| *given) {
        Some((flag, _)) => Err(Ending::usage(format!(
            "{flag} is for HTTPS, and the URL is plain HTTP; write https:// or leave the flag out"
        ))),
        None => Ok(()),
    }
}

fn refused(args: &LoadArgs, error: &TlsError) -> Ending {
    match (error, &args.cacert) {
        (TlsError::NoRoots, None) => no_authority("on Debian: apt-get install ca-certificates"),
        (TlsError::TrustAnchor { .. } | TlsError::NoRoots, Some(path)) => {
            cacert(path, &error.to_string())
        }
        _ => Ending::usage(format!("the URL's host: {error}")),
    }
}

/// What could not be read matters only where nothing else was found.
fn system() -> Result<Vec<TrustAnchor>, Ending> {
    let found = rustls_native_certs::load_native_certs();
    match found.errors.first() {
        Some(error) if found.certs.is_empty() => Err(no_authority(&error.to_string())),
        _ => Ok(found.certs.into_iter().map(anchor).collect()),
    }
}

fn no_authority(why: &str) -> Ending {
    Ending::usage(format!(
        "this machine trusts no certificate authority ({why}); name one with --cacert FILE, or take any certificate with \
         --insecure"
    ))
}

fn anchor(certificate: CertificateDer<'_>) -> TrustAnchor {
    TrustAnchor(certificate.as_ref().to_vec())
}

fn file(path: &Path) -> Result<Vec<TrustAnchor>, Ending> {
    let text = input::read(path).map_err(|why| cacert(path, &why))?;
    let anchors: Result<Vec<TrustAnchor>, PemError> = CertificateDer::pem_slice_iter(&text)
        .map(|certificate| certificate.map(anchor))
        .collect();
    match anchors {
        Ok(anchors) if anchors.is_empty() => Err(cacert(path, "it holds no certificate")),
        Ok(anchors) => Ok(anchors),
        Err(error) => Err(cacert(path, &format!("it is no PEM file: {error}"))),
    }
}

fn cacert(path: &Path, why: &str) -> Ending {
    Ending::usage(format!(
        "--cacert {}: {why}; name a PEM file with the certificate of the authority that signed the server's \
         (-----BEGIN CERTIFICATE-----)",
        path.display()
    ))
}
