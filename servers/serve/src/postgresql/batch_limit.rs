//! Limits the number of requests per statement.

use std::time::Duration;

/// Divisor of the maximum queueing delay. The quotient limits a statement's execution time,
/// excluding its fixed cost.
const DELAY_DIVISOR: u32 = 8;

/// A limit on the batch size, so that a statement's execution time in a slow database is at most an
/// eighth of the maximum queueing delay, plus the statement's fixed cost. A longer statement would
/// delay requests that were admitted in time, and PostgreSQL could cancel the statement.
///
/// A statement's execution time is modeled as a fixed cost plus a cost per request. The cost per
/// request is estimated from two statements of different sizes. The fixed cost does not lower the
/// limit, because smaller batches would not reduce it. The limit at most doubles with each
/// statement, because a delayed statement makes the next one look cheap.
#[derive(Debug)]
pub(super) struct BatchLimit {
    /// Maximum execution time of a statement, excluding its fixed cost.
    time: Duration,
    /// Lowest and highest limit.
    range: [usize; 2],
    /// Number of requests and execution time of the last statement, in seconds.
    last: (usize, f64),
    /// Estimated cost per request, in seconds.
    cost: f64,
    limit: usize,
}

impl BatchLimit {
    /// Creates a limit for a queue with this maximum delay. The limit stays within `range`.
    pub(super) fn new(max_wait: Duration, range: [usize; 2]) -> Self {
        BatchLimit {
            time: max_wait / DELAY_DIVISOR,
            range,
            last: (0, 0.0),
            cost: 0.0,
            limit: range[0],
        }
    }

    /// Returns the maximum number of requests in the next statement.
    pub(super) fn requests(&self) -> usize {
        self.limit
    }

    /// Updates the limit after a statement with `requests` requests (at least one). `taken` is the
    /// statement's execution time in PostgreSQL.
    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts are far below 2^52, and an infinite quotient becomes the highest limit"
    )]
    pub(super) fn adapt(&mut self, requests: usize, taken: Duration) {
        let seconds = taken.as_secs_f64();
        let (last_requests, last_seconds) = self.last;
        let mean = seconds / requests as f64;
        let is_other_size =
            requests.abs_diff(last_requests) >= requests.max(last_requests).div_ceil(4);
        if is_other_size {
            let more = requests as f64 - last_requests as f64;
            self.cost = ((seconds - last_seconds) / more).max(0.0);
        } else if taken > 2 * self.time {
            // The database has become slow. Attribute the whole time to the requests until a
            // statement of a different size reveals the fixed cost.
            self.cost = mean;
        }
        self.cost = self.cost.min(mean);
        self.last = (requests, seconds);
        let [low, high] = self.range;
        let fitting = (self.time.as_secs_f64() / self.cost) as usize;
        self.limit = fitting.min(self.limit.saturating_mul(2)).clamp(low, high);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A database's costs per statement and per request, in ms.
    #[derive(Debug, Clone, Copy)]
    struct Costs {
        statement: f64,
        request: f64,
    }

    impl Costs {
        fn of(self, requests: usize) -> Duration {
            Duration::from_secs_f64((self.statement + self.request * requests as f64) / 1000.0)
        }

        /// Runs statements with at most `waiting` requests each. Returns the last statement's size.
        fn run(self, limit: &mut BatchLimit, statements: usize, waiting: usize) -> usize {
            let mut requests = 0;
            for _ in 0..statements {
                requests = waiting.min(limit.requests());
                limit.adapt(requests, self.of(requests));
            }
            requests
        }
    }

    fn costs(statement: f64, request: f64) -> Costs {
        Costs { statement, request }
    }

    fn limit() -> BatchLimit {
        BatchLimit::new(Duration::from_secs(1), [16, 4096])
    }

    #[test]
    fn a_statement_takes_an_eighth_of_the_maximum_delay() {
        for statement in [0.0, 5.0, 50.0, 300.0] {
            let mut limit = limit();
            costs(statement, 5.0).run(&mut limit, 1, 1);
            let requests = costs(statement, 5.0).run(&mut limit, 20, 10_000);
            assert!((16..=26).contains(&requests), "{statement}: {requests}");
        }
    }

    #[test]
    fn a_high_fixed_cost_does_not_limit_a_batch() {
        for statement in [0.1, 5.0, 100.0, 124.0, 240.0] {
            let mut limit = limit();
            costs(statement, 0.001).run(&mut limit, 1, 1);
            let requests = costs(statement, 0.001).run(&mut limit, 10, 10_000);
            assert_eq!(requests, 4096, "{statement}");
        }
    }

    #[test]
    fn follows_a_database_that_changes() {
        let mut limit = limit();
        let slow = costs(5.0, 5.0);
        for other in [costs(5.0, 0.01), costs(5.0, 1.0), costs(400.0, 0.01)] {
            slow.run(&mut limit, 20, 10_000);
            let requests = other.run(&mut limit, 20, 10_000);
            assert!(requests >= 100, "{other:?}: {requests}");
            let requests = slow.run(&mut limit, 20, 10_000);
            assert!(requests <= 32, "{other:?}: {requests}");
        }
    }

    #[test]
    fn a_delay_does_not_remove_the_limit() {
        let mut limit = limit();
        let slow = costs(5.0, 5.0);
        slow.run(&mut limit, 20, 10_000);
        limit.adapt(16, Duration::from_secs(2));
        for _ in 0..20 {
            // Normally 25. The limit doubles twice before two statements reveal the cost again.
            assert!(slow.run(&mut limit, 1, 10_000) <= 4 * 25);
        }
    }

    #[test]
    fn requests_that_share_one_result_have_no_limit() {
        let mut limit = BatchLimit::new(Duration::from_secs(1), [usize::MAX; 2]);
        limit.adapt(10, Duration::from_secs(3));
        assert_eq!(limit.requests(), usize::MAX);
    }
}
