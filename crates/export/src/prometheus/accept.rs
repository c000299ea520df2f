//! Selection of a format by the `Accept` header.

/// An exposition format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpositionFormat {
    /// Text 0.0.4, with classic histograms.
    Text,
    /// Length-delimited protocol buffers, with native and classic histograms.
    Protobuf,
}

impl ExpositionFormat {
    /// Returns the format that an `Accept` header prefers; text if the header is missing.
    pub(crate) fn negotiate(accept: Option<&str>) -> Self {
        let (mut text, mut protobuf) = (0.0, 0.0);
        for range in accept.unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let parameters: Vec<(&str, &str)> = parts.filter_map(|p| p.split_once('=')).collect();
            let parameter = |name: &str| {
                let found = parameters
                    .iter()
                    .find(|(key, _)| key.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.trim_matches('"'))
            };
            let weight: f64 = parameter("q").map_or(1.0, |q| q.parse().unwrap_or(0.0));
            match &*media {
                "application/vnd.google.protobuf"
                    if parameter("proto") == Some("io.prometheus.client.MetricFamily")
                        && parameter("encoding") == Some("delimited") =>
                {
                    protobuf = weight.max(protobuf);
                }
                "text/plain" | "text/*" | "*/*" => text = weight.max(text),
                _ => {}
            }
        }
        if protobuf > 0.0 && protobuf >= text {
            ExpositionFormat::Protobuf
        } else {
            ExpositionFormat::Text
        }
    }

    /// Returns the content type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            ExpositionFormat::Text => "text/plain; version=0.0.4; charset=utf-8",
            ExpositionFormat::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_the_preferred_format() {
        use ExpositionFormat::{Protobuf, Text};
        let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        for (accept, expected) in [
            (String::new(), Text),
            ("*/*".to_owned(), Text),
            ("application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1".to_owned(), Text),
            (format!("{protobuf},application/openmetrics-text;version=1.0.0;q=0.8,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"), Protobuf),
            (format!("text/plain; q=0.3, {protobuf} ; q=0.7"), Protobuf),
            (format!("text/plain; q=0.7, {protobuf}; q=0.3"), Text),
            (format!("{protobuf};q=0"), Text),
            (format!("{protobuf};q=high"), Text),
            ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text".to_owned(), Text),
            ("application/vnd.google.protobuf".to_owned(), Text),
            (";,;=,q=".to_owned(), Text),
        ] {
            assert_eq!(ExpositionFormat::negotiate(Some(&accept)), expected, "{accept}");
        }
        assert_eq!(ExpositionFormat::negotiate(None), Text);
    }
}
