//! Explanations and fixes for failed TLS handshakes.

use std::collections::BTreeMap;

use floodmark_record::origin::Origin;
use floodmark_record::run::Run;
use floodmark_record::tls::{FAILURE_PREFIX, failure_fix};

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
        failure_fix(name, origin(run))
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
        .filter(|(name, _)| name.starts_with(FAILURE_PREFIX))
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
            let flags = failure_fix(name, Origin::CommandLine);
            assert!(flags.contains(flag), "{flags}");
            let keys = failure_fix(name, Origin::File);
            assert!(keys.contains(key) && !keys.contains("--"), "{keys}");
        }
    }
}
