//! The truth about times, from the server's log. All in microseconds.

use crate::log::{Log, RequestEntry};

/// Times of a set of requests, in ascending order.
#[derive(Debug, Clone, PartialEq)]
pub struct Sorted(Vec<f64>);

impl Sorted {
    /// Of times in any order.
    #[must_use]
    pub fn new(mut times: Vec<f64>) -> Sorted {
        times.sort_by(f64::total_cmp);
        Sorted(times)
    }

    /// The value at or below which a share `q` lies: the nearest rank, as in a HdrHistogram. 0 of nothing.
    #[must_use]
    pub fn quantile(&self, q: f64) -> f64 {
        let rank = (q * self.0.len() as f64).ceil().max(1.0) as usize;
        self.0
            .get(rank - 1)
            .or(self.0.last())
            .copied()
            .unwrap_or(0.0)
    }

    /// The mean; not a number of nothing.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }
}

/// departure − arrival of every answered request: the service time as the server saw it. The client's
/// holds the way there and back too, on loopback some ten microseconds and the wake-up of both sides.
#[must_use]
pub fn service(log: &Log) -> Sorted {
    Sorted::new(
        log.requests
            .iter()
            .filter_map(RequestEntry::service_ns)
            .map(us)
            .collect(),
    )
}

/// departure − the moment the kernel had the request, of every answered one: [`service`] with the server's own wake-up,
/// which is part of what every client waits for.
#[must_use]
pub fn service_with_wake_up(log: &Log) -> Sorted {
    let answered = log.requests.iter().filter(|r| r.departure_ns != 0);
    Sorted::new(
        answered
            .map(|r| us(r.departure_ns.saturating_sub(r.readable_ns)))
            .collect(),
    )
}

/// first byte − arrival of every answered request.
#[must_use]
pub fn first_byte(log: &Log) -> Sorted {
    let answered = log.requests.iter().filter(|r| r.first_byte_ns != 0);
    Sorted::new(
        answered
            .map(|r| us(r.first_byte_ns - r.arrival_ns))
            .collect(),
    )
}

/// departure − intended of a constant schedule of `rate` per second, every request answered.
///
/// The k-th request was intended at `t0 + k/rate`. The server does not know t0; it is taken as the largest
/// that lets no request arrive before it was intended: the smallest `arrival_k − k/rate`. It is late by the
/// quickest way to the server of all requests, some ten microseconds, so these times are that much short.
///
/// Departures and intended times are both paired in order. Where the server drains a backlog in another
/// order than it was sent in, single times are off by at most the time the drain takes, their mean is not.
#[must_use]
pub fn response(log: &Log, rate: f64) -> Sorted {
    let gap_ns = 1e9 / rate;
    let in_order = |time: fn(&RequestEntry) -> u64| {
        let mut times: Vec<u64> = log.requests.iter().map(time).filter(|t| *t != 0).collect();
        times.sort_unstable();
        times
    };
    let arrivals = in_order(|r| r.arrival_ns);
    let departures = in_order(|r| r.departure_ns);
    let Some(base) = arrivals.first().copied() else {
        return Sorted(Vec::new());
    };
    let after = |ns: u64, k: usize| (ns - base) as f64 - k as f64 * gap_ns;
    let starts = arrivals.iter().enumerate().map(|(k, ns)| after(*ns, k));
    let start = starts.fold(f64::INFINITY, f64::min);
    let times = departures.iter().enumerate();
    Sorted::new(times.map(|(k, ns)| (after(*ns, k) - start) / 1e3).collect())
}

/// What a client sees that sends `count` requests at even distances, `rate` per second, each on time, from the
/// first request of the log on: one that is due within a stall is answered when the server goes on, every other one
/// at once. Nothing but the stalls of the log goes into it, so that it holds for any client, however it sent.
#[must_use]
pub fn even(log: &Log, rate: f64, count: u64) -> Sorted {
    let Some(first) = log.requests.iter().map(|r| r.readable_ns).min() else {
        return Sorted(Vec::new());
    };
    let mut stalls = log.stalls.iter().peekable();
    let times = (0..count).map(|k| {
        let due_ns = first + (k as f64 * 1e9 / rate) as u64;
        while stalls.next_if(|stall| stall.end_ns <= due_ns).is_some() {}
        let stall = stalls.peek().filter(|stall| stall.begin_ns <= due_ns);
        us(stall.map_or(0, |stall| stall.end_ns - due_ns))
    });
    Sorted::new(times.collect())
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Kind, StallEntry};

    fn entry(arrival_ns: u64, departure_ns: u64) -> RequestEntry {
        RequestEntry {
            connection: 0,
            kind: Kind::Answer,
            readable_ns: arrival_ns,
            arrival_ns,
            first_byte_ns: departure_ns,
            departure_ns,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    #[test]
    fn response_counts_from_the_schedule() {
        // 1000/s from 5 ms on, each 20 µs under way; the server reads nothing from 7.5 to 10.5 ms and takes
        // 10 µs for each.
        let ms = 1_000_000;
        let arrivals = (0..10u64).map(|k| {
            let at = 5 * ms + k * ms + 20_000;
            if (7_500_000..10_500_000).contains(&at) {
                10_500_000
            } else {
                at
            }
        });
        let log = Log {
            requests: arrivals.map(|at| entry(at, at + 10_000)).collect(),
            ..Log::default()
        };
        let times = response(&log, 1000.0);
        assert!((times.quantile(1.0) - 2_490.0).abs() < 1e-6);
        assert!((times.quantile(0.9) - 1_490.0).abs() < 1e-6);
        assert!((times.quantile(0.5) - 10.0).abs() < 1e-6);
        assert!((service(&log).mean() - 10.0).abs() < 1e-6);
    }

    #[test]
    fn even_arrivals_wait_for_the_stalls_that_were_logged() {
        let ms = 1_000_000;
        let stall = |begin: u64, end: u64| StallEntry {
            begin_ns: begin * ms,
            end_ns: end * ms,
        };
        // 1000/s from 5 ms on: due at 5, 6, … 24 ms. In the first stall five are due, in the second, which ends late, two.
        let log = Log {
            requests: vec![entry(6 * ms, 6 * ms), entry(5 * ms, 5 * ms)],
            stalls: vec![stall(1, 2), stall(10, 15), stall(20, 22), stall(90, 99)],
            ..Log::default()
        };
        let times = even(&log, 1000.0, 20);
        let waits: Vec<f64> = times.0.iter().copied().filter(|us| *us > 0.0).collect();
        assert_eq!(waits, [1e3, 1e3, 2e3, 2e3, 3e3, 4e3, 5e3]);
        assert_eq!(times.0.len(), 20);
        assert_eq!(even(&Log::default(), 1000.0, 20), Sorted(Vec::new()));
    }

    #[test]
    fn quantiles_are_nearest_ranks() {
        let times = Sorted::new(vec![3.0, 1.0, 2.0, 4.0]);
        let at = [0.0, 0.25, 0.26, 0.5, 0.75, 0.76, 1.0].map(|q| times.quantile(q));
        assert_eq!(at, [1.0, 1.0, 2.0, 2.0, 3.0, 4.0, 4.0]);
    }
}
