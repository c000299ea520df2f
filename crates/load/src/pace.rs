//! The pace at which connections are opened in advance.
//!
//! A server accepts a limited number of connections at a time. Further connections wait in its
//! accept queue. If the queue is full, Linux drops handshakes, and retries all of them together a
//! second later. So connections are opened evenly, a few at a time, and more slowly after a drop.

use crate::clock::{NS_PER_S, Ns};

/// Maximum number of connections opened per second over all threads.
/// Even a single-threaded server can accept connections faster.
const PER_S: u64 = 10_000;

/// Maximum burst of connections after a pause, over all threads.
/// This number is less than 128, the length of the shortest common accept queue.
const AT_ONCE: u64 = 100;

/// Maximum number of concurrent handshakes over all threads.
/// This also limits how many handshakes are retried together if the accept queue is full.
const UNDER_WAY: u64 = 500;

/// Minimum number of connections opened per second over all threads, regardless of drops.
const LEAST_PER_S: u64 = 100;

/// Minimum duration in ns of a handshake that was dropped. Linux retries a dropped handshake after
/// 1 s (RFC 6298, section 2).
const DROPPED_NS: Ns = 900_000_000;

/// The first and the longest pause in ns after a failed connection. Each pause is twice as long as
/// the previous pause.
const RESTS: (Ns, Ns) = (10_000_000, NS_PER_S);

/// The pace of one thread: its share of the total pace, as a leaky bucket.
#[derive(Debug)]
pub struct OpeningPace {
    /// Time between connections.
    gap: Ns,
    longest_gap: Ns,
    /// Maximum time in ns by which a connection may be opened before `due`.
    ahead: Ns,
    /// Time at which the next connection is due if connections are opened evenly.
    due: Ns,
    under_way: u64,
    slowed: Ns,
    /// End of the pause after a failure. `None` if no connection has failed since the last success.
    rests_until: Option<Ns>,
    /// Length of the next pause.
    rest: Ns,
}

impl OpeningPace {
    /// Creates the pace for one of `threads` threads.
    #[must_use]
    pub fn new(threads: u32) -> Self {
        let threads = u64::from(threads.max(1));
        let gap = threads * NS_PER_S / PER_S;
        OpeningPace {
            gap,
            longest_gap: threads * NS_PER_S / LEAST_PER_S,
            ahead: gap * (AT_ONCE / threads).saturating_sub(1),
            due: 0,
            under_way: (UNDER_WAY / threads).max(1),
            slowed: 0,
            rests_until: None,
            rest: RESTS.0,
        }
    }

    /// Returns when the next connection may be opened while `under_way` handshakes are in progress.
    /// Returns `None` if one of these handshakes must end first.
    #[must_use]
    pub fn next(&self, under_way: u64) -> Option<Ns> {
        let most = self.rests_until.map_or(self.under_way, |_| 1);
        let at = self.due.saturating_sub(self.ahead);
        (under_way < most).then(|| at.max(self.rests_until.unwrap_or(0)))
    }

    /// Claims permission to open one connection now. Returns whether permission was granted.
    pub fn take(&mut self, under_way: u64, now: Ns) -> bool {
        let may = self.next(under_way).is_some_and(|at| at <= now);
        if may {
            self.due = self.due.max(now) + self.gap;
        }
        may
    }

    /// Records that a handshake ended at `at`. `began` is the start of the handshake.
    /// A dropped handshake halves the pace, unless the handshake started before the previous
    /// reduction.
    pub fn ended(&mut self, began: Ns, at: Ns) {
        if at.saturating_sub(began) >= DROPPED_NS && began >= self.slowed {
            self.gap = (self.gap * 2).min(self.longest_gap);
            self.ahead = 0;
            self.slowed = at;
        }
    }

    /// Records that a connection attempt failed at `at`. `began` is the start of the attempt.
    /// The failure has no effect if the attempt started before the end of the last pause.
    pub fn failed(&mut self, began: Ns, at: Ns) {
        if self.rests_until.is_none_or(|until| began >= until) {
            self.rests_until = Some(at + self.rest);
            self.rest = (self.rest * 2).min(RESTS.1);
        }
    }

    /// Records a successful connection.
    pub fn stood(&mut self) {
        self.rests_until = None;
        self.rest = RESTS.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: Ns = 1_000_000;

    /// Opens connections from `start` on, as fast as the pace allows. Returns the number of
    /// connections opened within `time`.
    fn opened(pace: &mut OpeningPace, start: Ns, time: Ns) -> u64 {
        (0..time / 10_000)
            .map(|step| {
                let now = start + step * 10_000;
                (0..1000).take_while(|_| pace.take(0, now)).count() as u64
            })
            .sum()
    }

    #[test]
    fn allows_a_burst_of_100_and_then_an_even_rate() {
        let mut pace = OpeningPace::new(1);
        assert_eq!(opened(&mut pace, NS_PER_S, 10_000), 100);
        let more = opened(&mut pace, NS_PER_S + 10_000, 1000 * MS);
        assert!(more.abs_diff(10_000) <= 1, "{more}");
    }

    #[test]
    fn limits_handshakes_in_progress() {
        let mut pace = OpeningPace::new(1);
        assert!(pace.take(499, NS_PER_S));
        assert!(!pace.take(500, 2 * NS_PER_S));
        assert_eq!(pace.next(500), None);
    }

    #[test]
    fn halves_the_pace_once_per_round_of_drops() {
        let mut pace = OpeningPace::new(1);
        for began in 0..100 {
            pace.ended(began * MS, (began + 1000) * MS);
        }
        let slower = opened(&mut pace, 2000 * MS, 1000 * MS);
        assert!(slower.abs_diff(5_000) <= 1, "{slower}");
        // The pace never falls below 100 per second, no matter how many handshakes are dropped.
        for round in 2..20 {
            pace.ended(round * 2000 * MS, (round + 1) * 2000 * MS);
        }
        let least = opened(&mut pace, 50_000 * MS, 1000 * MS);
        assert!(least.abs_diff(100) <= 1, "{least}");
    }

    #[test]
    fn backs_off_after_failures_until_one_connects() {
        let mut pace = OpeningPace::new(1);
        let mut at = NS_PER_S;
        for rest in [10, 20, 40, 80, 160, 320, 640, 1000, 1000] {
            assert!(pace.take(0, at));
            let began = at;
            pace.failed(began, at + MS);
            // This attempt was in progress at the same time, so its failure has no effect.
            pace.failed(began, at + 2 * MS);
            at += MS + rest * MS;
            assert_eq!(pace.next(0), Some(at), "{rest}");
            assert_eq!(pace.next(1), None);
        }
        pace.stood();
        assert_eq!(opened(&mut pace, at, 10_000), 100);
        pace.failed(at, at);
        assert_eq!(pace.next(0), Some(at + 10 * MS));
    }

    proptest! {
        #[test]
        fn threads_share_the_pace(threads in 1u32..200) {
            let all: u64 = (0..threads)
                .map(|_| opened(&mut OpeningPace::new(threads), NS_PER_S, 100 * MS))
                .sum();
            prop_assert!(all <= 1_100 + u64::from(threads), "{}", all);
        }
    }
}
