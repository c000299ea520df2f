//! Explanations and fixes for failed TLS handshakes.

use std::collections::BTreeMap;

use floodmark_record::origin::Origin;
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
    Some(format!(
        "{}; {}",
        problem(run, name),
        fix(name, origin(run))
    ))
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

/// Returns the source of a run's settings.
pub(crate) fn origin(run: &Run) -> Origin {
    match run.trial {
        Some(_) => Origin::File,
        None => Origin::CommandLine,
    }
}

/// Returns the fix for a TLS failure with this name in `errors`. `origin` determines the names of
/// settings.
#[must_use]
pub fn fix(name: &str, origin: Origin) -> String {
    let is_url = origin == Origin::CommandLine;
    let accept_any = format!("{} to accept any certificate", origin.enable("insecure"));
    let (cacert, cert) = (
        origin.example("cacert", "FILE"),
        origin.example("cert", "FILE"),
    );
    let http = |version| origin.example("http", version);
    let sni = origin.example("sni", "NAME");
    match name {
        "tls_unknown_issuer" => {
            format!("use {cacert} with the server's certificate authority, or {accept_any}")
        }
        "tls_certificate_is_an_authority" => {
            format!("use {cacert} with this certificate, or {accept_any}")
        }
        "tls_wrong_name" if is_url => {
            format!("use a host name from the certificate in the URL, or {accept_any}")
        }
        "tls_wrong_name" => {
            format!("set {sni} to a host name from the certificate, or use {accept_any}")
        }
        "tls_certificate_expired" | "tls_certificate_not_valid_yet" => format!(
            "renew the server's certificate (and check the clock of this host), or use {accept_any}"
        ),
        "tls_certificate_invalid" | "tls_no_certificate" => {
            format!("fix the server's certificate, or use {accept_any}")
        }
        "tls_answered_in_plain_http" if is_url => {
            "use http:// in the URL, or the server's HTTPS port".to_owned()
        }
        "tls_answered_in_plain_http" => {
            let scheme = origin.example("scheme", "http");
            format!("use {scheme}, or enable TLS in the server")
        }
        "tls_not_spoken" => "check the port".to_owned(),
        "tls_alpn_refused" => format!(
            "use {}, or enable the protocol \"http/1.1\" (ALPN) in the server",
            http("2")
        ),
        "tls_http2_not_chosen" => format!(
            "use {}, or enable the protocol \"h2\" (ALPN) in the server",
            http("1.1")
        ),
        "tls_nothing_in_common"
        | "tls_alert_handshake_failure"
        | "tls_alert_protocol_version"
        | "tls_alert_insufficient_security" => {
            "enable TLS 1.2 or 1.3 with AES-GCM or ChaCha20-Poly1305 in the server; floodmark supports no other versions or ciphers".to_owned()
        }
        "tls_alert_unrecognized_name" if is_url => {
            "in the URL, use a host name that the server knows".to_owned()
        }
        "tls_alert_unrecognized_name" => {
            format!("set {sni} to a host name that the server knows")
        }
        "tls_alert_certificate_required" => format!(
            "use {cert} with a client certificate that the server accepts, and {} with its key",
            origin.example("key", "FILE")
        ),
        "tls_alert_unknown_ca" => format!(
            "add the authority to the server's trusted client authorities, or append the issuers' certificates to the {} file",
            origin.name("cert")
        ),
        "tls_alert_certificate_expired" => format!(
            "renew the client's certificate ({}), and check the clock of the server's host",
            origin.name("cert")
        ),
        "tls_alert_certificate_revoked" | "tls_alert_bad_certificate" => format!(
            "use {cert} with a client certificate that the server accepts; its log states the reason"
        ),
        "tls_handshake_timed_out" => format!(
            "check that the port serves TLS, or use a longer {}",
            origin.name("timeout")
        ),
        _ => "check the server's log and the port".to_owned(),
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
        assert_eq!(most_frequent(&BTreeMap::new()), None);
    }

    #[test]
    fn fixes_name_flags_or_keys() {
        for (name, flag, key) in [
            ("tls_wrong_name", "--insecure", "sni = \"NAME\""),
            ("tls_unknown_issuer", "--cacert FILE", "cacert = \"FILE\""),
            ("tls_alpn_refused", "--http 2", "http = \"2\""),
            ("tls_http2_not_chosen", "--http 1.1", "http = \"1.1\""),
            ("tls_answered_in_plain_http", "http://", "scheme = \"http\""),
        ] {
            let flags = fix(name, Origin::CommandLine);
            assert!(flags.contains(flag), "{flags}");
            let keys = fix(name, Origin::File);
            assert!(keys.contains(key) && !keys.contains("--"), "{keys}");
        }
    }
}
