//! `[load]`: what an experiment sends. Its keys are the flags of `floodmark load` and mean the same.

use std::collections::BTreeMap;
use std::time::Duration;

use super::fields::{Field, Kind, field};
use super::section::Section;
use floodmark_record::units::parse_duration;

/// Most requests, and numbers in general: what a double still holds exactly.
const MOST: u64 = 1 << 53;

/// Keys of `[load]`.
pub(super) const LOAD: &[Field] = &[
    field(
        "connections",
        Kind::Count(1, 1_000_000),
        "Connections in all; with a rate the most at once. Without it 50, with a rate as many as ports and open files allow.",
    ),
    field(
        "threads",
        Kind::Count(1, 1024),
        "Load threads. Without it half the CPUs, at least 1.",
    ),
    field(
        "duration",
        Kind::Duration,
        "How long to send. Without it, and without requests, 10s.",
    ),
    field(
        "requests",
        Kind::Count(1, MOST),
        "How many requests to send in all, in place of a duration.",
    ),
    field(
        "rate",
        Kind::Rate,
        "Open model: requests per second in all, sent on time whatever the server does. Without it the model is closed.",
    ),
    field(
        "burst",
        Kind::Count(1, MOST),
        "Open model: so many requests at equal distances over the time of within, in place of a duration.",
    ),
    field(
        "within",
        Kind::Duration,
        "With burst: the time over which its requests are spread.",
    ),
    field(
        "arrivals",
        Kind::OneOf(&["constant", "poisson"]),
        "How the requests of a rate are spaced. Without it constant.",
    ),
    field(
        "fresh",
        Kind::Flag,
        "Whether each request has a fresh connection. Without it connections are kept.",
    ),
    field(
        "requests-per-connection",
        Kind::Count(1, MOST),
        "Close each connection after so many requests. Without it there is no limit.",
    ),
    field(
        "close-first",
        Kind::OneOf(&["server", "client", "reset"]),
        "Who closes a used connection. Without it the server.",
    ),
    field(
        "sources",
        Kind::Text,
        "Source addresses that connections are spread over, like \"127.0.0.2-127.0.0.200\". Without it what the kernel takes.",
    ),
    field(
        "warmup",
        Kind::Warmup,
        "Real load before the measurement. Without it auto: none, and figures are of the steady part where there is one.",
    ),
    field(
        "attempts",
        Kind::Count(1, 10_000),
        "Measurements one after the other on the same server process. Without it 1.",
    ),
    field(
        "timeout",
        Kind::Duration,
        "Longest wait for an answer and for a connection. Without it 5s.",
    ),
    field(
        "deadline",
        Kind::Duration,
        "An ok answer within this time counts as goodput. Without it the timeout.",
    ),
    field(
        "seed",
        Kind::Count(0, MOST),
        "Seed of every random choice. Without it 1.",
    ),
    field(
        "check",
        Kind::OneOf(&["sequence", "scoring"]),
        "What answers are held against. Without it nothing.",
    ),
];

/// Keys of which one takes the place of the other.
const EITHER: [&[&str]; 2] = [
    &["duration", "requests", "burst"],
    &["fresh", "requests-per-connection"],
];

/// A load as flags of `floodmark load`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Load(BTreeMap<&'static str, String>);

impl Load {
    /// Takes in what a table says; it goes before what was there.
    pub(super) fn take(&mut self, section: &Section<'_>) {
        for field in section.present(LOAD) {
            if let Some(value) = section.scalar(field.name) {
                self.set(field.name, value);
            }
        }
    }

    /// Sets the length of each measurement.
    ///
    /// # Errors
    /// It is a burst, whose length is its own; in words.
    pub fn set_duration(&mut self, text: &str) -> Result<(), String> {
        if self.0.contains_key("burst") {
            return Err("its length is that of its burst; change burst and within".to_owned());
        }
        self.set("duration", text.to_owned());
        Ok(())
    }

    /// Sets the number of measurements on each server process.
    pub fn set_attempts(&mut self, attempts: u32) {
        self.set("attempts", attempts.to_string());
    }

    fn set(&mut self, key: &'static str, value: String) {
        for pair in EITHER {
            if pair.contains(&key) {
                pair.iter().for_each(|key| {
                    self.0.remove(key);
                });
            }
        }
        self.0.insert(key, value);
    }

    /// What a key says.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// All that is said: keys and values.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(key, value)| (*key, value.as_str()))
    }

    /// Measurements on each server process.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0
            .get("attempts")
            .and_then(|text| floodmark_record::units::parse_count(text).ok())
            .map_or(1, |n| n as u32)
    }

    /// How long each measurement is planned to take, warm-up included, where that is given.
    #[must_use]
    pub fn length(&self) -> Option<Duration> {
        let time = |key| self.0.get(key).and_then(|text| parse_duration(text).ok());
        let measured = match (
            self.0.contains_key("burst"),
            self.0.contains_key("requests"),
        ) {
            (true, _) => time("within")?,
            (_, true) => return None,
            _ => time("duration").unwrap_or(Duration::from_secs_f64(
                floodmark_record::plan::DEFAULT_DURATION_S,
            )),
        };
        Some(measured + time("warmup").unwrap_or_default())
    }

    /// Whether the number of load threads is given.
    #[must_use]
    pub fn has_threads(&self) -> bool {
        self.0.contains_key("threads")
    }

    /// The flags, without attempts: those are the experiment's own matter.
    #[must_use]
    pub fn flags(&self) -> Vec<String> {
        let mut flags = Vec::new();
        for (key, value) in self.0.iter().filter(|(key, _)| **key != "attempts") {
            match value.as_str() {
                "true" => flags.push(format!("--{key}")),
                "false" => {}
                value => flags.push(format!("--{key}={value}")),
            }
        }
        flags
    }
}
