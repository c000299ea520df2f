//! Chooses the crash points of a test.

use rand_xoshiro::Xoshiro256PlusPlus;

use crate::model::below;
use crate::trace::Trace;

/// Number of crash points after an error that are considered close to it.
const SOON: usize = 16;

/// The crash points of a trace.
///
/// In a trace with an injected error, only points after the error are used, because the test without
/// errors covers the others. Half of the crashes come soon after the error: the next write can make
/// the lost data durable after all, so a server that ignores the error often loses data only until
/// then.
#[derive(Debug)]
pub(super) struct CrashPoints {
    all: Vec<u64>,
    soon: usize,
    /// The last point at or before the end of the last send to a TCP peer.
    last_answered: u64,
}

impl CrashPoints {
    pub(super) fn new(trace: &Trace) -> Self {
        let mut all = trace.crash_points();
        let error = trace.first_error;
        let answered = trace.last_send();
        let last_answered = all.iter().rev().find(|at| **at <= answered);
        let last_answered = last_answered.copied().unwrap_or(0);
        // The error itself is a point.
        all.retain(|at| error.is_none_or(|error| *at >= error));
        CrashPoints {
            soon: error.map_or(all.len(), |_| SOON.min(all.len())),
            all,
            last_answered,
        }
    }

    /// Returns the last crash point before the server shut down. The shutdown may remove a file that
    /// prevents a restart.
    pub(super) fn before_shutdown(&self) -> u64 {
        self.last_answered
    }

    /// Draws a crash point.
    pub(super) fn draw(&self, random: &mut Xoshiro256PlusPlus) -> u64 {
        let among = match below(random, 2) {
            0 => self.soon,
            _ => self.all.len(),
        };
        self.all[below(random, among)]
    }
}
