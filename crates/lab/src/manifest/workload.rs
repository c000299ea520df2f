//! Workloads: HTTP APIs that several systems implement, so that they can be measured at the same work.

use std::fmt;

use serde::Deserialize;

/// A workload that can be driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// `GET /` is answered with `Hello World`.
    Hello,
    /// `GET /json` is answered with a greeting in JSON.
    Json,
    /// `GET /dispatcher` is answered with the next number.
    Dispatcher,
    /// `POST /scoring` with a score is answered with average, sum and number of all scores.
    Scoring,
    /// `GET /bars` is answered with what a database holds.
    Bars,
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Asked<'a> {
    /// Method.
    pub method: &'static str,
    /// Path.
    pub path: &'a str,
    /// Body, in JSON; empty for none.
    pub body: &'static str,
}

impl<'a> Asked<'a> {
    /// A GET of a path.
    #[must_use]
    pub fn get(path: &'a str) -> Self {
        Asked {
            method: "GET",
            path,
            body: "",
        }
    }
}

impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// Their names, in the order of [`Workload`].
pub const WORKLOADS: [&str; 5] = ["hello", "json", "dispatcher", "scoring", "bars"];

const ALL: [Workload; 5] = [
    Workload::Hello,
    Workload::Json,
    Workload::Dispatcher,
    Workload::Scoring,
    Workload::Bars,
];

impl Workload {
    /// The workload of a name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        ALL.into_iter().find(|workload| workload.name() == name)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        WORKLOADS[self as usize]
    }

    /// Path of its requests.
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

    /// Its request.
    #[must_use]
    pub fn asked(self) -> Asked<'static> {
        match self {
            Workload::Scoring => Asked {
                method: "POST",
                path: self.path(),
                // The score that was published.
                body: r#"{"score": 10}"#,
            },
            _ => Asked::get(self.path()),
        }
    }

    /// Path that answers with a number that goes up by one each time, where it has such.
    #[must_use]
    pub fn counter(self) -> Option<&'static str> {
        match self {
            Workload::Hello | Workload::Json | Workload::Scoring | Workload::Bars => None,
            Workload::Dispatcher => Some(self.path()),
        }
    }

    /// What is wrong with an answer to its request, in words; none where it is as the contract says.
    #[must_use]
    pub fn fault(self, status: u16, body: &[u8]) -> Option<String> {
        let text = String::from_utf8_lossy(body);
        let right = match self {
            Workload::Hello => text == "Hello World",
            Workload::Json => serde_json::from_slice::<serde_json::Value>(body)
                .is_ok_and(|value| value == serde_json::json!({ "message": "Hello, World!" })),
            Workload::Dispatcher => text.trim().parse::<u64>().is_ok(),
            Workload::Scoring => serde_json::from_slice(body).is_ok_and(|of: Scores| of.add_up()),
            Workload::Bars => serde_json::from_slice(body).is_ok_and(in_order),
        };
        if status == 200 && right {
            return None;
        }
        let expected = match self {
            Workload::Hello => "Hello World",
            Workload::Json => "{\"message\":\"Hello, World!\"}",
            Workload::Dispatcher => "a whole number",
            Workload::Scoring => {
                "averageScore, totalScore and numberOfTrials, the first being the second by the third"
            }
            Workload::Bars => "an array of {\"id\", \"name\"} in the order of id",
        };
        let shown: String = text.chars().take(60).collect();
        Some(format!(
            "{} answered {status} {shown:?}, not 200 {expected}",
            self.asked()
        ))
    }
}

/// An answer of [`Workload::Scoring`].
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

/// One of [`Workload::Bars`].
#[derive(Deserialize)]
struct Bar {
    id: i64,
    #[serde(rename = "name")]
    _name: String,
}

fn in_order(bars: Vec<Bar>) -> bool {
    bars.is_sorted_by_key(|bar| bar.id)
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_workloads_and_back() {
        for name in WORKLOADS {
            assert_eq!(Workload::of(name).unwrap().name(), name);
        }
        assert_eq!(Workload::of("helo"), None);
    }

    #[test]
    fn contracts() {
        let hello = |status, body: &str| Workload::Hello.fault(status, body.as_bytes());
        assert_eq!(hello(200, "Hello World"), None);
        assert!(hello(404, "Hello World").unwrap().contains("404"));
        // In one line, and what cannot be seen is seen.
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
            assert!(said.starts_with("POST /scoring answered 200"), "{said}");
        }
        let bars = |body: &str| Workload::Bars.fault(200, body.as_bytes());
        assert_eq!(bars("[]"), None);
        assert_eq!(bars(r#"[{"id":1,"name":"a"},{"id":3,"name":"b"}]"#), None);
        assert!(bars(r#"[{"id":3,"name":"a"},{"id":1,"name":"b"}]"#).is_some());
        assert!(bars(r#"[{"id":1}]"#).is_some());
    }
}
