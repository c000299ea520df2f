//! Opens connections before requests need them: before the clock starts, or to hold them
//! (`--hold`).

use std::collections::BTreeMap;

use super::Core;
use crate::clock::Ns;
use crate::pace::OpeningPace;

/// Statistics on one thread's held connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldSoFar {
    /// Number of connections that were open when the clock started.
    pub standing: u64,
    /// Number of connections that failed to open before the clock started.
    pub failed: u64,
    /// Number of failures by error name.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Number of connections lost between the start of the clock and the end of the run.
    pub lost: u64,
    /// Number of connections opened to replace lost connections.
    pub reopened: u64,
    /// Time in ns spent opening connections before the clock started.
    pub opening: Ns,
}

/// Connections opened in advance.
#[derive(Debug)]
pub(super) struct Ahead {
    pub(super) pace: OpeningPace,
    threads: u32,
    /// Number of connections that remain to be opened before the clock starts.
    left: usize,
    began: Ns,
    /// Whether all connections stay open throughout the run.
    pub(super) hold: bool,
    pub(super) held: HeldSoFar,
}

impl Ahead {
    pub(super) fn new(ready: usize, threads: u32, hold: bool) -> Self {
        Ahead {
            pace: OpeningPace::new(threads),
            threads,
            left: ready,
            began: 0,
            hold,
            held: HeldSoFar::default(),
        }
    }
}

impl Core {
    /// Starts to open kept connections before the clock starts, so that no figure includes their
    /// setup. Each connection is attempted only once.
    ///
    /// In the closed model or with `--hold`, all connections are opened. Otherwise, only the
    /// connections that the open model's first arrivals need are opened.
    pub fn prepare(&mut self, now: Ns) {
        self.preparing = true;
        self.last_life = now;
        self.ahead.began = now;
        self.open_ahead(now);
    }

    /// Returns whether the preparation has finished.
    #[must_use]
    pub fn prepared(&self) -> bool {
        self.ahead.left == 0 && self.opening_unclaimed == 0
    }

    /// Returns the statistics of held connections; `None` if no connections are held.
    #[must_use]
    pub fn held(&self) -> Option<&HeldSoFar> {
        self.ahead.hold.then_some(&self.ahead.held)
    }

    /// Returns the number of open connections, and the number of connections that failed to open in
    /// advance.
    #[must_use]
    pub fn standing(&self) -> (u64, u64) {
        (self.recorder.open, self.ahead.held.failed)
    }

    /// Ends the preparation.
    pub(super) fn end_preparing(&mut self, now: Ns) {
        if std::mem::take(&mut self.preparing) {
            self.ahead.held.standing = self.recorder.open;
            self.ahead.held.opening = now.saturating_sub(self.ahead.began);
            self.ahead.pace = OpeningPace::new(self.ahead.threads);
            self.ahead.left = 0;
        }
    }

    /// Returns the number of connections that remain to be opened in advance.
    fn missing(&self) -> usize {
        if self.preparing {
            self.ahead.left
        } else if self.ahead.hold && !self.winding_up {
            self.cap - self.open
        } else {
            0
        }
    }

    /// Opens connections in advance at the configured pace.
    pub(super) fn open_ahead(&mut self, now: Ns) {
        while self.missing() > 0
            && (self.preparing || self.opens_left > 0)
            && self.ahead.pace.take(self.opening_unclaimed, now)
        {
            if self.preparing {
                self.ahead.left -= 1;
            } else {
                self.opens_left -= 1;
            }
            self.open_unclaimed(now, 0);
        }
    }

    /// Returns when the next connection may be opened in advance.
    pub(super) fn next_ahead(&self) -> Ns {
        let next = (self.missing() > 0).then(|| self.ahead.pace.next(self.opening_unclaimed));
        next.flatten().unwrap_or(Ns::MAX)
    }

    /// Records an opened connection.
    pub(super) fn count_opened(&mut self) {
        self.ahead.pace.stood();
        self.ahead.held.reopened += u64::from(!self.preparing);
    }

    /// Records that a connection attempt failed with the error `name`. `began` is the start of the
    /// attempt.
    /// Before the clock starts, each connection is attempted once. Later failures cause a pause.
    pub(super) fn count_unopened(&mut self, name: &'static str, began: Ns, now: Ns) {
        if !self.preparing {
            self.ahead.pace.failed(began, now);
        } else {
            self.ahead.held.failed += 1;
            *self.ahead.held.reasons.entry(name).or_default() += 1;
        }
    }

    /// Records the loss of an established connection.
    /// While the connection existed, the server was considered reachable, even if other connections
    /// were refused.
    pub(super) fn gone(&mut self, now: Ns) {
        self.recorder.disconnected();
        self.refused_since = self.refused_since.map(|since| since.max(now));
        self.ahead.held.lost += u64::from(!self.preparing);
    }
}

#[cfg(test)]
#[path = "holding_tests.rs"]
mod tests;
