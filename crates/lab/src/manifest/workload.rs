//! Workloads: HTTP APIs that several systems implement, so that they can be measured at the same work.

use std::fmt;

/// A workload that can be driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// `GET /` is answered with `Hello World`.
    Hello,
    /// `GET /json` is answered with a greeting in JSON.
    Json,
    /// `GET /dispatcher` is answered with the next number.
    Dispatcher,
}

/// Their names, in the order of [`Workload`].
pub const WORKLOADS: [&str; 3] = ["hello", "json", "dispatcher"];

impl Workload {
    /// The workload of a name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        [Workload::Hello, Workload::Json, Workload::Dispatcher]
            .into_iter()
            .find(|workload| workload.name() == name)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        WORKLOADS[self as usize]
    }

    /// Path that its requests GET.
    #[must_use]
    pub fn path(self) -> &'static str {
        match self {
            Workload::Hello => "/",
            Workload::Json => "/json",
            Workload::Dispatcher => "/dispatcher",
        }
    }

    /// Path that answers with a number that goes up by one each time, where it has such.
    #[must_use]
    pub fn counter(self) -> Option<&'static str> {
        match self {
            Workload::Hello | Workload::Json => None,
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
        };
        if status == 200 && right {
            return None;
        }
        let expected = match self {
            Workload::Hello => "Hello World",
            Workload::Json => "{\"message\":\"Hello, World!\"}",
            Workload::Dispatcher => "a whole number",
        };
        let shown: String = text.chars().take(60).collect();
        Some(format!(
            "GET {} answered {status} {shown:?}, not 200 {expected}",
            self.path()
        ))
    }
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
    }
}
