//! Changes of the rate while the open model runs.
//!
//! A change takes effect at a whole second of the measurement, so each row of the series has one
//! rate. Arrivals before this second do not move, so no arrival that is already due is lost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use floodmark_record::plan::{Plan, RateChange, Schedule};
use floodmark_record::units::Rate;

use crate::clock::{Clock, NS_PER_S, Ns};

/// Minimum time in ns between a change and the second from which it applies. All threads must notice
/// the change in this time.
pub(crate) const NOTICE_NS: Ns = 100_000_000;

/// Changes the rate of a running measurement. Clones control the same measurement.
#[derive(Debug, Clone, Default)]
pub struct RateControl(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Number of changes so far. Under load, each thread reads only this number.
    changes: AtomicUsize,
    running: Mutex<Option<Running>>,
}

/// The measurement that is running.
#[derive(Debug)]
struct Running {
    clock: Clock,
    start: Ns,
    schedule: Schedule,
    unreported: Vec<RateChange>,
}

impl RateControl {
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        // Each change is complete before anything can panic.
        (self.0.running.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    /// Allows changes from `start` on if the plan has an adjustable rate.
    pub(crate) fn begin(&self, plan: &Plan, clock: Clock, start: Ns) {
        let schedule = plan.schedule().filter(|_| plan.adjustable_rate().is_some());
        *self.running() = schedule.map(|schedule| Running {
            clock,
            start,
            schedule: schedule.clone(),
            unreported: Vec::new(),
        });
    }

    /// Sets the rate from the next whole second on. Does nothing before the measurement, near its
    /// end, or if its rate is not adjustable.
    pub fn change(&self, rate: Rate) {
        let mut running = self.running();
        let Some(running) = running.as_mut() else {
            return;
        };
        let noticed = (running.clock.now() + NOTICE_NS).saturating_sub(running.start);
        let change = RateChange {
            from_s: noticed.div_ceil(NS_PER_S) as f64,
            rate_per_s: rate.per_s(),
        };
        if change.from_s < running.schedule.window_s() {
            running.schedule.change_rate(change);
            running.unreported.push(change);
            self.0.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Returns the changes since the last call.
    pub(crate) fn take_unreported(&self) -> Vec<RateChange> {
        let mut running = self.running();
        running
            .as_mut()
            .map_or_else(Vec::new, |running| std::mem::take(&mut running.unreported))
    }

    /// Returns the schedule if it has changed since `seen` changes, and updates `seen`.
    #[inline]
    pub(crate) fn newer(&self, seen: &mut usize) -> Option<Schedule> {
        let changes = self.0.changes.load(Ordering::Acquire);
        if changes == *seen {
            return None;
        }
        *seen = changes;
        self.running()
            .as_ref()
            .map(|running| running.schedule.clone())
    }
}
