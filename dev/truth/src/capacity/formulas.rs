//! Long-run shares of slow or rejected requests, for Poisson arrivals. Times are in seconds and
//! rates in requests per second.

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

/// Number of grid steps in the shortest job.
const STEPS_PER_JOB: f64 = 200.0;

/// Jobs of one kind.
#[derive(Debug, Clone, Copy)]
pub struct QueuedJobs {
    /// Poisson rate of the arrivals per second.
    pub rate_per_s: f64,
    /// Time that each job takes, in seconds.
    pub takes_s: f64,
}

impl QueuedJobs {
    fn load(&self) -> f64 {
        self.rate_per_s * self.takes_s
    }
}

/// Returns the server's load: the time that the jobs of a second take, in seconds.
pub fn load(jobs: &[QueuedJobs]) -> f64 {
    jobs.iter().map(QueuedJobs::load).sum()
}

/// Returns H(x), the probability that the server has at most `x_s` seconds of work left, divided by
/// the probability that the server is idle. For a load below 1, the server is idle with a
/// probability of 1 − load. For a higher load, H describes queues that reject jobs.
///
/// H solves H(x) = 1 + Σᵢ λᵢ ∫ H(y) dy from x − bᵢ to x, for jobs of length bᵢ at the rate λᵢ. This is the
/// Pollaczek–Khinchine formula as a renewal equation (S. Asmussen, "Applied Probability and Queues",
/// 2003, VIII.5). The solution uses the trapezoidal rule.
pub fn work_at_most(x_s: f64, jobs: &[QueuedJobs]) -> f64 {
    let shortest_s = jobs.iter().map(|job| job.takes_s).fold(x_s, f64::min);
    if shortest_s <= 0.0 {
        return 1.0;
    }
    let steps = (x_s / shortest_s * STEPS_PER_JOB).ceil() as usize;
    let step_s = x_s / steps as f64;
    let rate_per_s: f64 = jobs.iter().map(|job| job.rate_per_s).sum();
    // Latest value of H, and the integrals of H from 0 to each step.
    let mut last = 1.0;
    let mut integrals = Vec::with_capacity(steps + 1);
    integrals.push(0.0);
    for step in 1..=steps {
        let half = integrals[step - 1] + 0.5 * step_s * last;
        let mut sum = 1.0 + rate_per_s * half;
        for job in jobs {
            let from = step as f64 - job.takes_s / step_s;
            if from > 0.0 {
                let (below, part) = (from.floor() as usize, from.fract());
                let above = integrals.get(below + 1).copied().unwrap_or(half);
                let integral = integrals[below] + part * (above - integrals[below]);
                sum -= job.rate_per_s * integral;
            }
        }
        last = sum / (1.0 - 0.5 * step_s * rate_per_s);
        integrals.push(half + 0.5 * step_s * last);
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_the_formula_for_short_queues() {
        // Erlang's formula for M/D/1: exp(λx) up to the first job, then minus a second term.
        let (rate_per_s, takes_s) = (800.0, 0.001);
        let jobs = [QueuedJobs {
            rate_per_s,
            takes_s,
        }];
        for x in [0.0, 0.3, 0.999, 1.5, 1.9] {
            let later = rate_per_s * (x - 1.0) * takes_s;
            let second = if x > 1.0 { later * later.exp() } else { 0.0 };
            let formula = (rate_per_s * x * takes_s).exp() - second;
            let got = work_at_most(x * takes_s, &jobs);
            assert!((got / formula - 1.0).abs() < 1e-5, "{x}: {got} {formula}");
        }
    }

    #[test]
    fn tends_to_the_inverse_of_the_idle_share() {
        let pauses = QueuedJobs {
            rate_per_s: 10.0,
            takes_s: 0.01,
        };
        let requests = QueuedJobs {
            rate_per_s: 500.0,
            takes_s: 0.001,
        };
        let jobs = [requests, pauses];
        let h = work_at_most(0.3, &jobs);
        assert!((h * (1.0 - load(&jobs)) - 1.0).abs() < 1e-4, "{h}");
    }
}
