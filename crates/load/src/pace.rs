//! How fast connections are opened that nobody waits for yet.
//!
//! A server accepts only so many at a time; the others wait in its accept queue, and Linux drops the handshakes that find it full. They
//! come again after a second, all at once. So these connections are opened evenly, few at a time, and more slowly once one was dropped.

use crate::clock::{NS_PER_S, Ns};

/// Connections opened per second at most, over all threads: less than a single-threaded server accepts.
const PER_S: u64 = 10_000;

/// Connections that may be opened at once after a rest, over all threads: less than the shortest usual accept queue, 128.
const AT_ONCE: u64 = 100;

/// Handshakes under way at once, over all threads: with a full accept queue no more than these come again.
const UNDER_WAY: u64 = 500;

/// Connections opened per second at least, over all threads, however many were dropped.
const LEAST_PER_S: u64 = 100;

/// A handshake that takes as long was dropped at first: Linux sends it again after 1 s (RFC 6298, section 2).
const DROPPED_NS: Ns = 900_000_000;

/// Rest after a connection that failed, the first and, each being twice as long as the one before, the longest.
const RESTS: (Ns, Ns) = (10_000_000, NS_PER_S);

/// One thread's part of the pace: a leaky bucket.
#[derive(Debug)]
pub struct Pace {
    /// Distance of connections.
    gap: Ns,
    longest_gap: Ns,
    /// How far `due` may lie ahead.
    ahead: Ns,
    /// When the next one is due, were they opened evenly.
    due: Ns,
    under_way: u64,
    slowed: Ns,
    /// Until when it rests after a failure; none where none has failed since one stood.
    rests_until: Option<Ns>,
    /// How long the next rest is.
    rest: Ns,
}

impl Pace {
    /// The pace of each of `threads` threads.
    #[must_use]
    pub fn new(threads: u32) -> Self {
        let threads = u64::from(threads.max(1));
        let gap = threads * NS_PER_S / PER_S;
        Pace {
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

    /// When the next connection may be opened while `under_way` handshakes are under way; none until one of them has ended.
    #[must_use]
    pub fn next(&self, under_way: u64) -> Option<Ns> {
        let most = self.rests_until.map_or(self.under_way, |_| 1);
        let at = self.due.saturating_sub(self.ahead);
        (under_way < most).then(|| at.max(self.rests_until.unwrap_or(0)))
    }

    /// Takes leave to open one connection.
    pub fn take(&mut self, under_way: u64, now: Ns) -> bool {
        let may = self.next(under_way).is_some_and(|at| at <= now);
        if may {
            self.due = self.due.max(now) + self.gap;
        }
        may
    }

    /// Takes note of a handshake begun at `began` that ended at `at`: a dropped one halves the pace, but those begun before that was
    /// known tell nothing new.
    pub fn ended(&mut self, began: Ns, at: Ns) {
        if at.saturating_sub(began) >= DROPPED_NS && began >= self.slowed {
            self.gap = (self.gap * 2).min(self.longest_gap);
            self.ahead = 0;
            self.slowed = at;
        }
    }

    /// Takes note of a connection begun at `began` that failed at `at`. Those begun before the last rest was over tell nothing new.
    pub fn failed(&mut self, began: Ns, at: Ns) {
        if self.rests_until.is_none_or(|until| began >= until) {
            self.rests_until = Some(at + self.rest);
            self.rest = (self.rest * 2).min(RESTS.1);
        }
    }

    /// Takes note of a connection that stands.
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

    /// Connections opened within `time` from `start` on, none of which takes any time.
    fn opened(pace: &mut Pace, start: Ns, time: Ns) -> u64 {
        (0..time / 10_000)
            .map(|step| {
                let now = start + step * 10_000;
                (0..1000).take_while(|_| pace.take(0, now)).count() as u64
            })
            .sum()
    }

    #[test]
    fn a_hundred_at_once_and_then_evenly() {
        let mut pace = Pace::new(1);
        assert_eq!(opened(&mut pace, NS_PER_S, 10_000), 100);
        let more = opened(&mut pace, NS_PER_S + 10_000, 1000 * MS);
        assert!(more.abs_diff(10_000) <= 1, "{more}");
    }

    #[test]
    fn few_are_under_way_at_once() {
        let mut pace = Pace::new(1);
        assert!(pace.take(499, NS_PER_S));
        assert!(!pace.take(500, 2 * NS_PER_S));
        assert_eq!(pace.next(500), None);
    }

    #[test]
    fn a_dropped_handshake_halves_the_pace_once_for_those_begun_before() {
        let mut pace = Pace::new(1);
        for began in 0..100 {
            pace.ended(began * MS, (began + 1000) * MS);
        }
        let slower = opened(&mut pace, 2000 * MS, 1000 * MS);
        assert!(slower.abs_diff(5_000) <= 1, "{slower}");
        // However many more: 100 per second are left.
        for round in 2..20 {
            pace.ended(round * 2000 * MS, (round + 1) * 2000 * MS);
        }
        let least = opened(&mut pace, 50_000 * MS, 1000 * MS);
        assert!(least.abs_diff(100) <= 1, "{least}");
    }

    #[test]
    fn after_a_failure_one_is_tried_alone_ever_later_until_one_stands() {
        let mut pace = Pace::new(1);
        let mut at = NS_PER_S;
        for rest in [10, 20, 40, 80, 160, 320, 640, 1000, 1000] {
            assert!(pace.take(0, at));
            let began = at;
            pace.failed(began, at + MS);
            // One that was under way at the same time.
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
        fn threads_together_keep_the_pace(threads in 1u32..200) {
            let all: u64 = (0..threads)
                .map(|_| opened(&mut Pace::new(threads), NS_PER_S, 100 * MS))
                .sum();
            prop_assert!(all <= 1_100 + u64::from(threads), "{}", all);
        }
    }
}
