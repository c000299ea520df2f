//! What to do about a TLS handshake that does not come about.

use std::collections::BTreeMap;

use floodmark_record::run::Run;

/// How names of TLS begin in `errors`.
pub(crate) const PREFIX: &str = "tls_";

/// What went wrong and the mend, in one line, where a run had TLS and no connection ever stood for it.
#[must_use]
pub fn never_stood(run: &Run) -> Option<String> {
    if run.connections.opened > 0 {
        return None;
    }
    let name = most_frequent(&run.errors)?;
    let words = run.tls.as_ref().and_then(|tls| tls.used.failure.clone());
    let what = words.unwrap_or_else(|| name.replace('_', " "));
    Some(format!("{what}; {}", mend(name)))
}

/// The failure of TLS that was seen most often.
fn most_frequent(errors: &BTreeMap<String, u64>) -> Option<&str> {
    errors
        .iter()
        .filter(|(name, _)| name.starts_with(PREFIX))
        .max_by_key(|(_, n)| **n)
        .map(|(name, _)| name.as_str())
}

/// What to do about it.
fn mend(name: &str) -> &'static str {
    match name {
        "tls_unknown_issuer" => {
            "name the file of its certificate authority with --cacert, or take any certificate with --insecure"
        }
        "tls_certificate_is_an_authority" => {
            "give the server a certificate of its own (basicConstraints CA:FALSE), or take any with --insecure"
        }
        "tls_wrong_name" => {
            "use a host in the URL that the certificate is for, or take any certificate with --insecure"
        }
        "tls_certificate_expired" | "tls_certificate_not_valid_yet" => {
            "renew the server's certificate (and see that this machine's clock is right), or take any with --insecure"
        }
        "tls_certificate_invalid" | "tls_no_certificate" => {
            "mend the server's certificate, or take any with --insecure"
        }
        "tls_answered_in_plain_http" => "write http:// in the URL, or name the server's HTTPS port",
        "tls_not_spoken" => "check the port",
        "tls_alpn_refused" => {
            "floodmark speaks HTTP/1.1 only: allow the protocol \"http/1.1\" (ALPN) in the server"
        }
        "tls_nothing_in_common"
        | "tls_alert_handshake_failure"
        | "tls_alert_protocol_version"
        | "tls_alert_insufficient_security" => {
            "floodmark speaks TLS 1.2 and 1.3 with AES-GCM and ChaCha20-Poly1305: allow one of them in the server"
        }
        "tls_alert_unrecognized_name" => "use a host in the URL that the server knows",
        "tls_alert_certificate_required" => {
            "floodmark has no certificate to show: let the server take clients without one"
        }
        "tls_handshake_timed_out" => {
            "see that the port speaks TLS, or give it more time with --timeout"
        }
        _ => "see in the server's log why, and check the port",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_failure_decides() {
        let errors = BTreeMap::from([
            ("connect_refused".to_owned(), 50),
            ("tls_alert".to_owned(), 1),
            ("tls_wrong_name".to_owned(), 3),
        ]);
        assert_eq!(most_frequent(&errors), Some("tls_wrong_name"));
        assert!(mend("tls_wrong_name").contains("--insecure"));
        assert_eq!(most_frequent(&BTreeMap::new()), None);
    }
}
