//! A server's own counter: the number that it hands out, which goes up by one with each answer.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use floodmark_host::Side;
use floodmark_record::run::Observation;

use super::probe;
use crate::manifest::Asked;

/// Distance of the readings.
const SECOND: Duration = Duration::from_secs(1);

/// By how much a reading may be late before they end: its answers would be another second's.
const LATE: Duration = Duration::from_millis(250);

/// Asks a path for the next number, from where the client runs.
///
/// # Errors
/// There is none; in words.
pub fn read(from: &Side, address: SocketAddr, path: &str) -> Result<u64, String> {
    let answered = probe::ask(from, address, Asked::get(path))
        .map_err(|what| format!("GET {path}: {what}"))?;
    let text = String::from_utf8_lossy(&answered.body);
    text.trim()
        .parse()
        .map_err(|_| format!("GET {path} is answered {}, no number", answered.status))
}

/// The counter second by second. Each reading is a request of its own, which is in the counter too.
#[derive(Debug, Default)]
pub struct Readings {
    numbers: Vec<u64>,
    /// How many readings were answered, a late one included.
    pub made: u64,
}

impl Readings {
    /// Reads each second until it is told to end, or a reading fails or is late.
    pub fn take(from: &Side, address: SocketAddr, path: &str, told: &Receiver<()>) -> Self {
        let begin = Instant::now();
        let mut readings = Readings::default();
        for second in 1.. {
            let due = begin + SECOND * second;
            match told.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
            }
            let Ok(number) = read(from, address, path) else {
                break;
            };
            readings.made += 1;
            if due.elapsed() > LATE {
                break;
            }
            readings.numbers.push(number);
        }
        readings
    }

    /// Answers to others in each second since the reading `before`; none of less than a second.
    pub fn observation(&self, before: u64, path: &str) -> Option<Observation> {
        let earlier = std::iter::once(&before).chain(&self.numbers);
        let values = self.numbers.iter().zip(earlier);
        let values: Vec<f64> = values
            .map(|(now, before)| now.saturating_sub(before + 1) as f64)
            .collect();
        (!values.is_empty()).then(|| Observation {
            subject: "server".to_owned(),
            metric: "answers".to_owned(),
            unit: "answers".to_owned(),
            source: format!("its own counter, by GET {path} once a second"),
            start_ms: 0,
            step_ms: SECOND.as_millis() as u64,
            values,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_are_not_counted_as_answers_to_others() {
        let readings = Readings {
            numbers: vec![111, 162],
            made: 2,
        };
        let seen = readings.observation(10, "/dispatcher").unwrap();
        assert_eq!(seen.values, [100.0, 50.0]);
        assert_eq!(Readings::default().observation(10, "/"), None);
    }
}
