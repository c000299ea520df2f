//! The work in a queue with Poisson arrivals and one server.

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
