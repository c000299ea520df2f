//! Explanations and fixes for failed TLS handshakes.

use std::collections::BTreeMap;

use floodmark_record::run::Run;

/// Prefix of TLS failure names in `errors`.
pub(crate) const PREFIX: &str = "tls_";

/// Returns one line that names the failure and a fix, or `None` if any TLS handshake succeeded.
#[must_use]
pub fn handshake_failure(run: &Run) -> Option<String> {
    if run.connections.opened > 0 {
        return None;
    }
    let name = most_frequent(&run.errors)?;
    Some(format!("{}; {}", problem(run, name), fix(name)))
}

/// Describes the first TLS failure of a run, or falls back to `name`, an error name in `errors`.
pub(crate) fn problem(run: &Run, name: &str) -> String {
    let failure = run.tls.as_ref().and_then(|tls| tls.used.failure.clone());
    failure.unwrap_or_else(|| name.replace('_', " "))
}

/// Returns whether the server requested a client certificate but the client never sent one.
pub(crate) fn lacks_certificate(run: &Run) -> bool {
    let used = run.tls.as_ref().map(|tls| &tls.used);
    used.is_some_and(|used| used.certificate_requests > 0 && used.certificates_sent == 0)
}

/// Returns the name of the most frequent TLS failure.
fn most_frequent(errors: &BTreeMap<String, u64>) -> Option<&str> {
    errors
        .iter()
        .filter(|(name, _)| name.starts_with(PREFIX))
        .max_by_key(|(_, n)| **n)
        .map(|(name, _)| name.as_str())
}

/// Returns the fix for a TLS failure.
pub(crate) fn fix(name: &str) -> &'static str {
    match name {
        "tls_unknown_issuer" => {
            "use --cacert FILE with the server's certificate authority, or --insecure to accept any certificate"
        }
        "tls_certificate_is_an_authority" => {
            "use --cacert FILE with this certificate, or --insecure to accept any certificate"
        }
        "tls_wrong_name" => {
            "use a host name from the certificate in the URL, or --insecure to accept any certificate"
        }
        "tls_certificate_expired" | "tls_certificate_not_valid_yet" => {
            "renew the server's certificate (and check the clock of this host), or use --insecure to accept any certificate"
        }
        "tls_certificate_invalid" | "tls_no_certificate" => {
            "fix the server's certificate, or use --insecure to accept any certificate"
        }
        "tls_answered_in_plain_http" => "use http:// in the URL, or the server's HTTPS port",
        "tls_not_spoken" => "check the port",
        "tls_alpn_refused" => {
            "use --http 2, or enable the protocol \"http/1.1\" (ALPN) in the server"
        }
        "tls_http2_not_chosen" => {
            "use --http 1.1, or enable the protocol \"h2\" (ALPN) in the server"
        }
        "tls_nothing_in_common"
        | "tls_alert_handshake_failure"
        | "tls_alert_protocol_version"
        | "tls_alert_insufficient_security" => {
            "enable TLS 1.2 or 1.3 with AES-GCM or ChaCha20-Poly1305 in the server; floodmark supports no other versions or ciphers"
        }
        "tls_alert_unrecognized_name" => "in the URL, use a host name that the server knows",
        "tls_alert_certificate_required" => {
            "use --cert FILE with a client certificate that the server accepts, and --key FILE with its key"
        }
        "tls_alert_unknown_ca" => {
            "add the authority to the server's trusted client authorities, or append the issuers' certificates to the --cert file"
        }
        "tls_alert_certificate_expired" => {
            "renew the client's certificate (--cert), and check the clock of the server's host"
        }
        "tls_alert_certificate_revoked" | "tls_alert_bad_certificate" => {
            "use --cert FILE with a client certificate that the server accepts; its log states the reason"
        }
        "tls_handshake_timed_out" => "check that the port serves TLS, or use a longer --timeout",
        _ => "check the server's log and the port",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_the_most_frequent_failure() {
        let errors = BTreeMap::from([
            ("connect_refused".to_owned(), 50),
            ("tls_alert".to_owned(), 1),
            ("tls_wrong_name".to_owned(), 3),
        ]);
        assert_eq!(most_frequent(&errors), Some("tls_wrong_name"));
        assert!(fix("tls_wrong_name").contains("--insecure"));
        assert!(fix("tls_alpn_refused").contains("--http 2"));
        assert!(fix("tls_http2_not_chosen").contains("--http 1.1"));
        assert_eq!(most_frequent(&BTreeMap::new()), None);
    }
}
