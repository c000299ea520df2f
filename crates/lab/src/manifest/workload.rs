//! Workloads: HTTP APIs that several systems implement, so that their results are comparable.

use std::fmt;

use schemars::JsonSchema;
use serde::Deserialize;

/// A workload.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Deserialize,
    JsonSchema,
    strum::Display,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantNames,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Workload {
    /// `GET /` returns `Hello World`.
    Hello,
    /// `GET /json` returns a JSON greeting.
    Json,
    /// `GET /dispatcher` returns the next number of a sequence.
    Dispatcher,
    /// `POST /scoring` adds a score and returns the average, sum and count of all scores.
    Scoring,
    /// `GET /bars` returns the rows of a database.
    Bars,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkloadRequest<'a> {
    /// Method.
    pub method: &'static str,
    /// Path.
    pub path: &'a str,
    /// Body as JSON, or an empty string without a body.
    pub body: &'static str,
}

impl<'a> WorkloadRequest<'a> {
    /// Returns a GET request.
    #[must_use]
    pub fn get(path: &'a str) -> Self {
        WorkloadRequest {
            method: "GET",
            path,
            body: "",
        }
    }
}

impl fmt::Display for WorkloadRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

impl Workload {
    /// Returns the workload's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the path of the workload's request.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Workload::Hello => "/",
            Workload::Json => "/json",
            Workload::Dispatcher => "/dispatcher",
            Workload::Scoring => "/scoring",
            Workload::Bars => "/bars",
        }
    }

    /// Returns the workload's request.
    #[must_use]
    pub fn request(self) -> WorkloadRequest<'static> {
        match self {
            Workload::Scoring => WorkloadRequest {
                method: "POST",
                path: self.path(),
                // The published benchmark uses this score.
                body: r#"{"score": 10}"#,
            },
            _ => WorkloadRequest::get(self.path()),
        }
    }

    /// Returns the path of the workload's counter, which increases by one per request.
    #[must_use]
    pub fn counter(self) -> Option<&'static str> {
        match self {
            Workload::Hello | Workload::Json | Workload::Scoring | Workload::Bars => None,
            Workload::Dispatcher => Some(self.path()),
        }
    }

    /// Returns how a response violates the workload's contract, or `None` if the response conforms.
    #[must_use]
    pub fn fault(self, status: u16, body: &[u8]) -> Option<String> {
        let text = String::from_utf8_lossy(body);
        let (right, expected) = match self {
            Workload::Hello => (text == "Hello World", "Hello World"),
            Workload::Json => (
                serde_json::from_slice::<serde_json::Value>(body)
                    .is_ok_and(|json| json == serde_json::json!({ "message": "Hello, World!" })),
                "{\"message\":\"Hello, World!\"}",
            ),
            Workload::Dispatcher => (text.trim().parse::<u64>().is_ok(), "an integer"),
            Workload::Scoring => (
                serde_json::from_slice(body).is_ok_and(|of: Scores| of.add_up()),
                "averageScore, totalScore and numberOfTrials, with averageScore = totalScore / numberOfTrials",
            ),
            Workload::Bars => (
                serde_json::from_slice(body).is_ok_and(in_order),
                "an array of objects with id and name, sorted by id",
            ),
        };
        if status == 200 && right {
            return None;
        }
        let shown: String = text.chars().take(60).collect();
        Some(format!(
            "{} returned status {status} and {shown:?}, expected status 200 and {expected}",
            self.request()
        ))
    }
}

/// A response of [`Workload::Scoring`].
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Scores {
    average_score: f64,
    total_score: f64,
    number_of_trials: u64,
}

impl Scores {
    fn add_up(&self) -> bool {
        let average = self.total_score / self.number_of_trials as f64;
        self.number_of_trials > 0 && (average - self.average_score).abs() <= 1e-9 * average.abs()
    }
}

/// A row of [`Workload::Bars`].
#[derive(Deserialize)]
struct Bar {
    id: i64,
    #[serde(rename = "name")]
    _name: String,
}

fn in_order(bars: Vec<Bar>) -> bool {
    bars.is_sorted_by_key(|bar| bar.id)
}

#[cfg(test)]
mod tests {
    use strum::VariantNames;

    use super::*;

    #[test]
    fn names_round_trip() {
        for name in Workload::VARIANTS {
            assert_eq!(name.parse::<Workload>().unwrap().name(), *name);
        }
        assert!("helo".parse::<Workload>().is_err());
    }

    #[test]
    fn checks_responses() {
        let hello = |status, body: &str| Workload::Hello.fault(status, body.as_bytes());
        assert_eq!(hello(200, "Hello World"), None);
        assert!(hello(404, "Hello World").unwrap().contains("404"));
        // The message is a single line, and its control characters are escaped.
        let answered = hello(200, "Hello World\n").unwrap();
        assert!(answered.contains("\"Hello World\\n\""), "{answered}");
        let json = r#"{ "message": "Hello, World!" }"#;
        assert_eq!(Workload::Json.fault(200, json.as_bytes()), None);
        assert!(Workload::Json.fault(200, b"{}").is_some());
        assert_eq!(Workload::Dispatcher.fault(200, b"17"), None);
        assert!(Workload::Dispatcher.fault(200, b"-1").is_some());
        let scoring = |body: &str| Workload::Scoring.fault(200, body.as_bytes());
        let right = r#"{"averageScore":10.0,"totalScore":30,"numberOfTrials":3}"#;
        assert_eq!(scoring(right), None);
        for wrong in [
            r#"{"averageScore":10.0,"totalScore":31,"numberOfTrials":3}"#,
            r#"{"averageScore":0,"totalScore":0,"numberOfTrials":0}"#,
            r#"{"averageScore":10.0,"totalScore":30}"#,
        ] {
            let said = scoring(wrong).unwrap();
            assert!(
                said.starts_with("POST /scoring returned status 200"),
                "{said}"
            );
        }
        let bars = |body: &str| Workload::Bars.fault(200, body.as_bytes());
        assert_eq!(bars("[]"), None);
        assert_eq!(bars(r#"[{"id":1,"name":"a"},{"id":3,"name":"b"}]"#), None);
        assert!(bars(r#"[{"id":3,"name":"a"},{"id":1,"name":"b"}]"#).is_some());
        assert!(bars(r#"[{"id":1}]"#).is_some());
    }
}
