//! Computes reference times from the server's log, in microseconds.

use crate::log::{Log, RequestEntry};

/// Times in ascending order.
#[derive(Debug, Clone, PartialEq)]
pub struct Sorted(Vec<f64>);

impl Sorted {
    /// Sorts times.
    #[must_use]
    pub fn new(mut times: Vec<f64>) -> Sorted {
        times.sort_by(f64::total_cmp);
        Sorted(times)
    }

    /// Returns the nearest-rank quantile `q`, like an HdrHistogram, or 0 if there are no times.
    #[must_use]
    pub fn quantile(&self, q: f64) -> f64 {
        let rank = (q * self.0.len() as f64).ceil().max(1.0) as usize;
        self.0
            .get(rank - 1)
            .or(self.0.last())
            .copied()
            .unwrap_or(0.0)
    }

    /// Returns the mean, or NaN if there are no times.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }
}

/// Returns the service time at the server (departure − arrival) for every request with a response.
/// The client's times also include the network path (about 10 µs on loopback), and the wake-up
/// times of the client's and the server's threads.
#[must_use]
pub fn service(log: &Log) -> Sorted {
    let times = log.requests.iter().filter_map(RequestEntry::service_ns);
    Sorted::new(times.map(us).collect())
}

/// Returns the client's delay before each request, in µs, plus [`service`] for the same request.
/// Both must be in order of arrival. Requests that arrive within microseconds of each other may
/// be swapped; a stall of the client delays such requests almost equally.
#[must_use]
pub fn delayed_service(log: &Log, delays: &[f64]) -> Sorted {
    let requests = log.requests.iter().zip(delays);
    let times = requests.filter_map(|(request, delay)| Some(us(request.service_ns()?) + delay));
    Sorted::new(times.collect())
}

/// Returns departure − arrival in the kernel for every request with a response. The result is
/// [`service`] plus the wake-up time of the server, for which every client waits.
#[must_use]
pub fn service_with_wake_up(log: &Log) -> Sorted {
    let served = log.requests.iter().filter(|r| r.departure_ns != 0);
    let times = served.map(|r| us(r.departure_ns.saturating_sub(r.readable_ns)));
    Sorted::new(times.collect())
}

/// Returns first byte − arrival for every request with a response.
#[must_use]
pub fn first_byte(log: &Log) -> Sorted {
    let served = log.requests.iter().filter(|r| r.first_byte_ns != 0);
    let times = served.map(|r| us(r.first_byte_ns - r.arrival_ns));
    Sorted::new(times.collect())
}

/// Returns departure − intended time for a constant schedule of `rate` per second. Every request
/// must have a response.
///
/// The intended time of the k-th request is `t0 + k/rate`. The server does not know t0, so this
/// function uses the latest t0 for which no request is early: the minimum of `arrival_k − k/rate`.
/// This estimate is late by the shortest time to the server, about 10 µs, so the returned times are
/// about 10 µs too short.
///
/// Departures and intended times are paired in order. If the server drains a backlog in another
/// order, a single time differs by at most the duration of the drain. The mean time is unaffected.
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

/// Returns the response times of an ideal client that sends `count` requests at `rate` per second,
/// starting with the first request in the log.
///
/// A request that is due during a stall waits until the stall ends. Every other request is served
/// immediately. Only the stalls in the log are used, so the times at which the actual client sent
/// its requests do not matter.
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

/// The longest pause of the server, as its log shows it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LongestPause {
    /// Time without an arrival, in µs.
    pub length_us: f64,
    /// Time from the first arrival after the pause until all overdue requests are answered, in µs.
    pub drain_us: f64,
}

/// Returns the longest time without an arrival, and how long the server took afterwards to answer
/// the requests that had become due at `rate` per second. Every request must have a response.
/// Returns `None` if there are fewer than two requests.
#[must_use]
pub fn longest_pause(log: &Log, rate: f64) -> Option<LongestPause> {
    let in_order = |time: fn(&RequestEntry) -> u64| {
        let mut times: Vec<u64> = log.requests.iter().map(time).collect();
        times.sort_unstable();
        times
    };
    let arrivals = in_order(|r| r.arrival_ns);
    let departures = in_order(|r| r.departure_ns);
    let gaps = arrivals.windows(2).map(|pair| pair[1] - pair[0]);
    let (before, length) = gaps.enumerate().max_by_key(|(_, gap)| *gap)?;
    let overdue = (rate * length as f64 / 1e9) as usize;
    let last = departures.get(before + overdue).or(departures.last())?;
    Some(LongestPause {
        length_us: us(length),
        drain_us: us(last.saturating_sub(arrivals[before + 1])),
    })
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::StallEntry;

    fn entry(arrival_ns: u64, departure_ns: u64) -> RequestEntry {
        RequestEntry {
            readable_ns: arrival_ns,
            arrival_ns,
            first_byte_ns: departure_ns,
            departure_ns,
            ..RequestEntry::default()
        }
    }

    #[test]
    fn response_times_start_at_the_schedule() {
        // The rate is 1000/s, starting at 5 ms, and the network path takes 20 µs. The server stalls
        // from 7.5 to 10.5 ms and takes 10 µs per request.
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
    fn delays_of_the_client_come_first() {
        let log = Log {
            requests: vec![entry(0, 30_000), entry(1_000, 0), entry(5_000, 15_000)],
            ..Log::default()
        };
        let times = delayed_service(&log, &[5.0, 7.0, 100.0]);
        assert_eq!(times, Sorted(vec![35.0, 110.0]));
    }

    #[test]
    fn even_requests_wait_for_logged_stalls() {
        let ms = 1_000_000;
        let stall = |begin: u64, end: u64| StallEntry {
            begin_ns: begin * ms,
            end_ns: end * ms,
        };
        // The rate is 1000/s, and requests are due at 5, 6, … 24 ms. Five requests are due during
        // the first stall, and two during the second.
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
    fn measures_the_longest_pause_and_its_drain() {
        let ms = 1_000_000;
        // The rate is 1000/s. The server stops from 3 to 13 ms, then takes 0.25 ms per request for
        // the ten requests that became due.
        let times = (0..30u64).map(|k| match k {
            0..=3 => k * ms,
            4..=13 => 13 * ms + (k - 4) * ms / 4,
            _ => (k + 2) * ms,
        });
        let log = Log {
            requests: times.map(|at| entry(at, at + 10_000)).collect(),
            ..Log::default()
        };
        let expected = LongestPause {
            length_us: 10_000.0,
            drain_us: 2_260.0,
        };
        assert_eq!(longest_pause(&log, 1000.0), Some(expected));
        assert_eq!(longest_pause(&Log::default(), 1000.0), None);
    }

    #[test]
    fn computes_nearest_ranks() {
        let times = Sorted::new(vec![3.0, 1.0, 2.0, 4.0]);
        let at = [0.0, 0.25, 0.26, 0.5, 0.75, 0.76, 1.0].map(|q| times.quantile(q));
        assert_eq!(at, [1.0, 1.0, 2.0, 2.0, 3.0, 4.0, 4.0]);
    }
}
