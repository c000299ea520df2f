//! Reads a server's own counter: a number that grows by one with each response. A GET request
//! returns the number.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use floodmark_host::ProcessPlacement;
use floodmark_record::metric::{ProcessFigure, Role};
use floodmark_record::{Metric, Observation};

use crate::manifest::WorkloadRequest;
use crate::probe;

/// Interval between samples.
const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum delay of a sample. A later sample would include responses from the next second.
const DELAY_LIMIT: Duration = Duration::from_millis(250);

/// Requests the counter's value from the client's host.
///
/// # Errors
/// The response is missing or not a number.
pub fn read(from: &ProcessPlacement, address: SocketAddr, path: &str) -> Result<u64, String> {
    let response = probe::request(from, address, WorkloadRequest::get(path))
        .map_err(|what| format!("GET {path}: {what}"))?;
    let text = String::from_utf8_lossy(&response.body);
    text.trim().parse().map_err(|_| {
        let status = response.status;
        format!("GET {path} returned status {status} and a body that is not a number")
    })
}

/// Samples of the counter, one per second. Each sample sends a request, which also increments the
/// counter.
#[derive(Debug, Default)]
pub struct CounterSamples {
    numbers: Vec<u64>,
    /// Number of successful samples, including a late sample.
    pub count: u64,
}

impl CounterSamples {
    /// Takes one sample per second until `ended` closes, or until a sample fails or is late.
    pub fn take(
        from: &ProcessPlacement,
        address: SocketAddr,
        path: &str,
        ended: &Receiver<()>,
    ) -> Self {
        let begin = Instant::now();
        let mut samples = CounterSamples::default();
        for second in 1.. {
            let due = begin + INTERVAL * second;
            let wait = due.saturating_duration_since(Instant::now());
            if ended.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                break;
            }
            let Ok(number) = read(from, address, path) else {
                break;
            };
            samples.count += 1;
            if due.elapsed() > DELAY_LIMIT {
                break;
            }
            samples.numbers.push(number);
        }
        samples
    }

    /// Returns the number of responses in each second, excluding the responses to these samples.
    /// `before` is the counter's value before the first second. Returns `None` if there are no
    /// samples.
    pub fn observation(&self, before: u64, path: &str) -> Option<Observation> {
        let earlier = std::iter::once(&before).chain(&self.numbers);
        let values = self.numbers.iter().zip(earlier);
        let values: Vec<f64> = values
            .map(|(now, before)| now.saturating_sub(before + 1) as f64)
            .collect();
        (!values.is_empty()).then(|| Observation {
            metric: Metric::Process(Role::Server, ProcessFigure::Responses),
            is_peak: false,
            source: format!("the server's counter, read with GET {path} every second"),
            start_ms: 0,
            step_ms: INTERVAL.as_millis() as u64,
            values,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excludes_its_own_requests() {
        let samples = CounterSamples {
            numbers: vec![111, 162],
            count: 2,
        };
        let observation = samples.observation(10, "/dispatcher").unwrap();
        assert_eq!(observation.values, [100.0, 50.0]);
        assert_eq!(CounterSamples::default().observation(10, "/"), None);
    }
}
