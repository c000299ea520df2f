//! Long-run shares of slow or rejected requests, for Poisson arrivals. Times are in seconds and
//! rates in requests per second.

use super::workload::{QueuedJobs, load, work_at_most};
use crate::service::{Crossing, Limiter, Pauses};

/// Returns the share of requests whose response time exceeds `limit_s` in M/M/c, whose busy servers
/// complete `speed_per_s` in total. The waiting time is 0 or exponential (Erlang C). For one server,
/// p99 = ln 100 / (speed − rate).
#[must_use]
pub fn exponential_share_over(
    servers: usize,
    rate_per_s: f64,
    speed_per_s: f64,
    limit_s: f64,
) -> f64 {
    if rate_per_s >= speed_per_s {
        return 1.0;
    }
    let own = speed_per_s / servers as f64;
    let load = rate_per_s / own;
    // Erlang's B by recursion, then C.
    let blocked = (1..=servers).fold(1.0, |b, n| load * b / (n as f64 + load * b));
    let waits = blocked / (1.0 - rate_per_s / speed_per_s * (1.0 - blocked));
    let left = speed_per_s - rate_per_s;
    let served = (-own * limit_s).exp();
    if servers == 1 {
        return (-left * limit_s).exp();
    }
    // Sum of an exponential waiting time and an exponential service time. Equal rates have another
    // formula; rates that differ a little give the same figure.
    let left = if left == own {
        left * (1.0 + 1e-6)
    } else {
        left
    };
    (1.0 - waits) * served + waits * (left * served - own * (-left * limit_s).exp()) / (left - own)
}

/// Returns the share of requests whose response time exceeds `limit_s` in M/D/1, with or without
/// pauses. A pause waits in the queue like a request.
#[must_use]
pub fn deterministic_share_over(
    rate_per_s: f64,
    takes_s: f64,
    pauses: Option<&Pauses>,
    limit_s: f64,
) -> f64 {
    let pauses = pauses.map(|pauses| QueuedJobs {
        rate_per_s: 1e3 / pauses.mean_gap_ms,
        takes_s: pauses.length_us / 1e6,
    });
    let requests = QueuedJobs {
        rate_per_s,
        takes_s,
    };
    let jobs: Vec<QueuedJobs> = [requests].into_iter().chain(pauses).collect();
    let (load, longest_wait_s) = (load(&jobs), limit_s - takes_s);
    if load >= 1.0 || longest_wait_s < 0.0 {
        return 1.0;
    }
    1.0 - (1.0 - load) * work_at_most(longest_wait_s, &jobs)
}

/// Returns the share of requests that a token bucket rejects.
///
/// The bucket is an M/D/1 queue whose requests leave at once if they had to wait for longer than
/// burst − 1 tokens (A. G. de Kok and H. C. Tijms, "A Queueing System with Impatient Customers",
/// Journal of Applied Probability 22, 1985).
pub fn limiter_rejected_share(rate_per_s: f64, limiter: &Limiter) -> f64 {
    let takes_s = 1.0 / limiter.rate_per_s;
    let jobs = [QueuedJobs {
        rate_per_s,
        takes_s,
    }];
    let load = load(&jobs);
    let h = work_at_most(takes_s * f64::from(limiter.burst - 1), &jobs);
    (1.0 - (1.0 - load) * h) / (1.0 + load * h)
}

/// Returns the share of requests whose response time exceeds `limit_s`. The number of arrivals in
/// the window has a Poisson distribution.
pub fn crossing_share_over(rate_per_s: f64, crossing: &Crossing, limit_s: f64) -> f64 {
    let mean = rate_per_s * f64::from(crossing.window_ms) / 1e3;
    let most = (mean + 10.0 * mean.sqrt()).ceil() as u64 + 10;
    let mut log_probability = -mean;
    let mut share = 0.0;
    for arrivals in 0..=most {
        if arrivals > 0 {
            log_probability += (mean / arrivals as f64).ln();
        }
        let mean_s = crossing.mean_us_after(arrivals as f64) / 1e6;
        share += (log_probability - limit_s / mean_s).exp();
    }
    share
}
