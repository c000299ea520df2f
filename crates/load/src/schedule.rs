//! The open model's arrivals: a pure function of plan and seed.
//!
//! ```text
//! constant   |   |   |   |   |   |      every 1/rate, the first at 0
//! poisson    | |      |  |||     |      exponential gaps of mean 1/rate
//! burst      ||||||||||            .    N at equal distances within T, then nothing
//! ramp       |    |   |  |  | | |||     the rate grows; constant or Poisson, by `course`
//! steps      |   |   | | | | |||||||    one rate after the other; the same
//! replay     ||  |       | || |   |  .  as in a file of timestamps
//!            0                     end
//! ```
//!
//! Thread *i* of *n* keeps arrivals *i*, *i+n*, *i+2n*, …: together the threads send exactly the
//! schedule that one thread would send.

use floodmark_record::plan::{Arrivals, Plan};
use floodmark_record::{Profile, Timetable};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::clock::{NS_PER_S, Ns, seconds};
use crate::course::{Course, arrivals_before};

/// Arrival times of one thread, in ns from the start of the phase, in order.
///
/// Cloning gives a second cursor at the same place, so arrivals that wait need no queue.
#[derive(Debug, Clone)]
pub struct Schedule {
    spacing: Spacing,
    /// Number, over all threads, of the next arrival.
    index: u64,
    stride: u64,
    /// Arrivals of all threads together.
    total: u64,
    /// When the next arrival is due.
    next: Option<Ns>,
    window: Ns,
}

#[derive(Debug, Clone)]
enum Spacing {
    Equal(Course),
    /// `sum` is that of the first `drawn` distances.
    Exponential {
        course: Course,
        sum: f64,
        drawn: u64,
        random: Xoshiro256PlusPlus,
    },
    Listed(Timetable),
}

impl Schedule {
    /// The arrivals that thread `thread` of `threads` sends within `duration_s` (or `requests` in all).
    ///
    /// Returns none when the plan is of the closed model.
    #[must_use]
    pub fn new(plan: &Plan, duration_s: Option<f64>, thread: u64, threads: u64) -> Option<Self> {
        let rate = plan.rate_per_s?;
        let spacing = Spacing::new(plan, rate)?;
        let total = spacing.total(duration_s, plan.requests);
        let mut schedule = Schedule {
            window: spacing.window(plan, duration_s, total, rate),
            spacing,
            index: thread,
            stride: threads,
            total,
            next: None,
        };
        schedule.look();
        Some(schedule)
    }

    /// The time of the next arrival without taking it.
    #[must_use]
    pub fn peek(&self) -> Option<Ns> {
        self.next
    }

    /// Takes the next arrival.
    pub fn take(&mut self) -> Option<Ns> {
        let at = self.next?;
        self.index += self.stride;
        self.look();
        Some(at)
    }

    fn look(&mut self) {
        self.next = (self.index < self.total).then(|| self.spacing.at(self.index) as Ns);
    }

    /// Length of the sending window, ns: the given time; else up to the last arrival and one mean distance more, so that the
    /// last answer has its time as the others have.
    #[must_use]
    pub fn window(&self) -> Ns {
        self.window
    }

    /// Arrivals over all threads.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }
}

impl Spacing {
    fn new(plan: &Plan, rate: f64) -> Option<Self> {
        let course = || Course::new(plan.profile.as_ref(), rate);
        Some(match (plan.arrivals?, &plan.profile) {
            (Arrivals::Replay, Some(Profile::Replay(replay))) => {
                Spacing::Listed(replay.timetable.clone())
            }
            (Arrivals::Replay, _) => Spacing::Listed(Timetable::default()),
            (Arrivals::Constant | Arrivals::Burst, _) => Spacing::Equal(course()),
            (Arrivals::Poisson, _) => Spacing::Exponential {
                course: course(),
                sum: 0.0,
                drawn: 0,
                random: Xoshiro256PlusPlus::seed_from_u64(plan.seed),
            },
        })
    }

    /// Arrivals within a time, or as many as asked for.
    fn total(&self, duration_s: Option<f64>, requests: Option<u64>) -> u64 {
        let Some(seconds) = duration_s else {
            return match self {
                Spacing::Listed(timetable) => timetable.times().len() as u64,
                Spacing::Equal(_) | Spacing::Exponential { .. } => requests.unwrap_or(0),
            };
        };
        match self {
            Spacing::Equal(course) => arrivals_before(course.expected_by(seconds)),
            Spacing::Exponential { course, .. } => {
                let expected = course.expected_by(seconds);
                let mut counted = self.clone();
                (0..).take_while(|n| counted.sum_at(*n) < expected).count() as u64
            }
            Spacing::Listed(timetable) => {
                let end = crate::clock::seconds(seconds);
                timetable.times().partition_point(|at| *at < end) as u64
            }
        }
    }

    fn window(&self, plan: &Plan, duration_s: Option<f64>, total: u64, rate: f64) -> Ns {
        match (duration_s, self) {
            (Some(given), _) => seconds(given),
            (None, Spacing::Equal(_)) => seconds(total as f64 / rate),
            (None, Spacing::Exponential { .. }) => {
                let last = total.checked_sub(1).map_or(0.0, |n| self.clone().at(n));
                (last + NS_PER_S as f64 / rate) as Ns
            }
            (None, Spacing::Listed(_)) => {
                seconds(plan.replay().map_or(0.0, |replay| replay.window_s))
            }
        }
    }

    /// Time of arrival `index`, ns. `index` must not decrease from call to call.
    fn at(&mut self, index: u64) -> f64 {
        let sum = self.sum_at(index);
        match self {
            Spacing::Equal(course) => course.at(index as f64),
            Spacing::Exponential { course, .. } => course.at(sum),
            Spacing::Listed(timetable) => timetable.times()[index as usize] as f64,
        }
    }

    /// Sum of the exponential distances, of mean 1, up to arrival `index`; 0 where distances are not random.
    fn sum_at(&mut self, index: u64) -> f64 {
        let Spacing::Exponential {
            sum, drawn, random, ..
        } = self
        else {
            return 0.0;
        };
        while *drawn <= index {
            // 53 random bits in (0, 1]: the logarithm is finite.
            let unit = ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
            *sum -= unit.ln();
            *drawn += 1;
        }
        *sum
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
