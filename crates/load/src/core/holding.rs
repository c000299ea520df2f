//! Connections that stand before anyone needs them: those opened before the clock starts, and those that `--hold` keeps open.

use std::collections::BTreeMap;

use super::{Core, Uses};
use crate::clock::Ns;
use crate::pace::Pace;

/// What became of one thread's held connections.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeldSoFar {
    /// Stood when the clock started.
    pub standing: u64,
    /// Could not be opened before that.
    pub failed: u64,
    /// Why, by the names of errors.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Ended since, otherwise than at the end of the run.
    pub lost: u64,
    /// Were opened since in place of those.
    pub reopened: u64,
    /// How long opening took before the clock started.
    pub opening: Ns,
}

/// Connections opened ahead of their use.
#[derive(Debug)]
pub(super) struct Ahead {
    pace: Pace,
    threads: u32,
    /// Still to be opened before the clock starts.
    left: usize,
    began: Ns,
    /// Whether all connections are kept open through the run.
    hold: bool,
    held: HeldSoFar,
}

impl Ahead {
    pub(super) fn new(ready: usize, threads: u32, hold: bool) -> Self {
        Ahead {
            pace: Pace::new(threads),
            threads,
            left: ready,
            began: 0,
            hold,
            held: HeldSoFar::default(),
        }
    }

    /// Whether all connections are kept open through the run.
    pub(super) fn holds(&self) -> bool {
        self.hold
    }

    /// Takes note of a handshake that came to its end.
    pub(super) fn tried(&mut self, began: Ns, now: Ns) {
        self.pace.ended(began, now);
    }
}

impl Core {
    /// Begins to open kept connections before the clock starts, so that no figure holds their set-up: all of the closed model's and all
    /// that are held, and those that the open model's first arrivals need. Each is tried once.
    pub fn prepare(&mut self, now: Ns) {
        self.preparing = true;
        self.last_life = now;
        self.ahead.began = now;
        self.open_ahead(now);
    }

    /// Whether nothing is being prepared any more.
    #[must_use]
    pub fn prepared(&self) -> bool {
        self.ahead.left == 0 && self.opening_unclaimed == 0
    }

    /// What became of the held connections; none where none are held.
    #[must_use]
    pub fn held(&self) -> Option<&HeldSoFar> {
        self.ahead.hold.then_some(&self.ahead.held)
    }

    /// How many connections stand, and how many could not be opened ahead.
    #[must_use]
    pub fn standing(&self) -> (u64, u64) {
        (self.recorder.open_connections(), self.ahead.held.failed)
    }

    /// The end of the preparation.
    pub(super) fn end_preparing(&mut self, now: Ns) {
        if std::mem::take(&mut self.preparing) {
            self.ahead.held.standing = self.recorder.open_connections();
            self.ahead.held.opening = now.saturating_sub(self.ahead.began);
            self.ahead.pace = Pace::new(self.ahead.threads);
            self.ahead.left = 0;
        }
    }

    /// How many connections are to be opened that nobody waits for.
    fn missing(&self) -> usize {
        if self.preparing {
            self.ahead.left
        } else if self.ahead.hold && !self.winding_up {
            self.cap - self.open
        } else {
            0
        }
    }

    /// Opens them as the pace allows.
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

    /// When the next of them may be opened.
    pub(super) fn next_ahead(&self) -> Ns {
        let next = (self.missing() > 0).then(|| self.ahead.pace.next(self.opening_unclaimed));
        next.flatten().unwrap_or(Ns::MAX)
    }

    /// A connection stands.
    pub(super) fn count_opened(&mut self) {
        self.ahead.pace.stood();
        self.ahead.held.reopened += u64::from(!self.preparing);
    }

    /// A connection, begun at `began`, could not be opened, for a reason that has a name. Before the clock starts each is tried once;
    /// later ones rest.
    pub(super) fn count_unopened(&mut self, name: &'static str, began: Ns, now: Ns) {
        if !self.preparing {
            self.ahead.pace.failed(began, now);
        } else {
            self.ahead.held.failed += 1;
            *self.ahead.held.reasons.entry(name).or_default() += 1;
        }
    }

    /// A connection that stood is gone. While it stood, others that were refused did not say that the server is gone.
    pub(super) fn gone(&mut self, now: Ns) {
        self.recorder.disconnected();
        self.refused_since = self.refused_since.map(|since| since.max(now));
        self.ahead.held.lost += u64::from(!self.preparing);
    }

    /// How many connections that stood are gone.
    pub(super) fn gone_so_far(&self) -> u64 {
        self.ahead.held.lost
    }

    /// Takes back those that were counted since there were `lost`.
    pub(super) fn keep_gone(&mut self, lost: u64) {
        self.ahead.held.lost = lost;
    }
}

/// Whether a plan's connections can be held: those that are used up cannot.
pub(super) fn holds(hold: bool, uses: Uses) -> bool {
    hold && uses == Uses::Unlimited
}

#[cfg(test)]
#[path = "holding_tests.rs"]
mod tests;
