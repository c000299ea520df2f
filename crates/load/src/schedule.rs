//! Arrivals in the open model: a pure function of the plan and its seed.
//!
//! ```text
//! constant   |   |   |   |   |   |      every 1/rate, the first at 0
//! poisson    | |      |  |||     |      exponential gaps of mean 1/rate
//! burst      ||||||||||            .    N at equal gaps within T, then nothing
//! ramp       |    |   |  |  | | |||     linear change in rate; constant or Poisson, see [`Course`]
//! steps      |   |   | | | | |||||||    one rate after another; constant or Poisson
//! replay     ||  |       | || |   |  .  as in a file of timestamps
//!            0                     end
//! ```
//!
//! Each thread keeps only its own arrivals (see [`ThreadShare`]), so the threads of all agents
//! together send exactly the schedule of a single thread.

use std::sync::Arc;

use floodmark_record::Timetable;
use floodmark_record::plan::{Arrivals, Length, Plan, RateSegment, Schedule};
use floodmark_record::worker_input::AgentShare;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::clock::{NS_PER_S, Ns, seconds};

/// Arrival times of one thread in order, in ns from the start of the phase.
///
/// A clone is a second cursor at the same position. Waiting arrivals therefore need no stored
/// queue.
#[derive(Debug, Clone)]
pub struct ArrivalSchedule {
    spacing: ArrivalSpacing,
    /// The thread's arrivals.
    indices: RequestIndices,
    /// Number of arrivals across all threads.
    pub total: u64,
    /// Time of the next arrival.
    pub next: Option<Ns>,
    /// Length of the sending window in ns: the given duration, or the time of the last arrival plus
    /// one mean gap.
    /// The gap leaves as much time for the last response as for the other responses.
    pub window: Ns,
}

#[derive(Debug, Clone)]
enum ArrivalSpacing {
    Equal(Course),
    /// Exponential gaps. `sum` covers the first `drawn` gaps.
    Exponential {
        course: Course,
        sum: f64,
        drawn: u64,
        random: Xoshiro256PlusPlus,
    },
    Listed(Timetable),
}

impl ArrivalSchedule {
    /// Creates one thread's share of the plan's arrivals.
    ///
    /// Returns `None` in the closed model.
    pub fn new(plan: &Plan, share: ThreadShare) -> Option<Self> {
        let planned = plan.schedule()?;
        let spacing = ArrivalSpacing::new(planned, plan.seed);
        let length = planned.length();
        let total = spacing.total(length);
        let mut schedule = ArrivalSchedule {
            window: spacing.window(planned, length, total),
            spacing,
            indices: share.indices(plan),
            total,
            next: None,
        };
        schedule.advance();
        Some(schedule)
    }

    /// Drops all arrivals after the first `total` arrivals of all threads.
    pub fn limit(&mut self, total: u64) {
        self.total = self.total.min(total);
        self.next = self.next.filter(|_| self.indices.next < self.total);
    }

    /// Takes the next arrival.
    pub fn take(&mut self) -> Option<Ns> {
        let at = self.next?;
        self.indices.advance();
        self.advance();
        Some(at)
    }

    /// Replaces the schedule by one that has the same length and differs only after all arrivals
    /// taken so far.
    pub fn change(&mut self, planned: &Schedule) {
        let course = Course::new(planned);
        self.total = match &mut self.spacing {
            ArrivalSpacing::Equal(of) => {
                *of = course;
                arrivals_before(of.expected_by(planned.window_s()))
            }
            // Counting random arrivals would delay those that are due. They end with the window.
            ArrivalSpacing::Exponential { course: of, .. } => {
                *of = course;
                u64::MAX
            }
            ArrivalSpacing::Listed(_) => return,
        };
        self.advance();
    }

    /// Computes the time of the next arrival.
    fn advance(&mut self) {
        let index = self.indices.next;
        let next = (index < self.total).then(|| self.spacing.at(index) as Ns);
        self.next = next.filter(|at| *at < self.window);
    }
}

impl ArrivalSpacing {
    fn new(planned: &Schedule, seed: u64) -> Self {
        if let Schedule::Replay { replay, .. } = planned {
            return ArrivalSpacing::Listed(replay.timetable.clone());
        }
        let course = Course::new(planned);
        match planned.arrivals() {
            Arrivals::Poisson => ArrivalSpacing::Exponential {
                course,
                sum: 0.0,
                drawn: 0,
                random: Xoshiro256PlusPlus::seed_from_u64(seed),
            },
            _ => ArrivalSpacing::Equal(course),
        }
    }

    /// Returns the number of arrivals within a length.
    fn total(&self, length: Length) -> u64 {
        let listed = match self {
            ArrivalSpacing::Listed(timetable) => Some(timetable.times().len() as u64),
            ArrivalSpacing::Equal(_) | ArrivalSpacing::Exponential { .. } => None,
        };
        let most = listed.or(length.requests()).unwrap_or(u64::MAX);
        let Some(seconds) = length.duration_s() else {
            return most;
        };
        match self {
            ArrivalSpacing::Equal(course) => arrivals_before(course.expected_by(seconds)).min(most),
            ArrivalSpacing::Exponential { course, .. } => {
                let expected = course.expected_by(seconds);
                let mut counted = self.clone();
                let within = (0..most).take_while(|n| counted.sum_at(*n) < expected);
                within.count() as u64
            }
            ArrivalSpacing::Listed(_) => most,
        }
    }

    fn window(&self, planned: &Schedule, length: Length, total: u64) -> Ns {
        let rate = planned.rate_per_s();
        let by_requests = |n| match self {
            ArrivalSpacing::Equal(_) => seconds(n as f64 / rate),
            ArrivalSpacing::Exponential { .. } => {
                let last = total.checked_sub(1).map_or(0.0, |n| self.clone().at(n));
                (last + NS_PER_S as f64 / rate) as Ns
            }
            ArrivalSpacing::Listed(_) => seconds(planned.window_s()),
        };
        let all_sent = length.requests().filter(|n| *n == total).map(by_requests);
        let ends = [length.duration_s().map(seconds), all_sent];
        ends.into_iter().flatten().min().unwrap_or(0)
    }

    /// Returns the time of arrival `index` in ns. `index` must not decrease between calls.
    fn at(&mut self, index: u64) -> f64 {
        let sum = self.sum_at(index);
        match self {
            ArrivalSpacing::Equal(course) => course.at(index as f64),
            ArrivalSpacing::Exponential { course, .. } => course.at(sum),
            ArrivalSpacing::Listed(timetable) => timetable.times()[index as usize] as f64,
        }
    }

    /// Returns the sum of the exponential gaps (mean 1) up to arrival `index`.
    /// Returns 0 for schedules without randomness.
    fn sum_at(&mut self, index: u64) -> f64 {
        let ArrivalSpacing::Exponential {
            sum, drawn, random, ..
        } = self
        else {
            return 0.0;
        };
        while *drawn <= index {
            // Draw a number with 53 random bits from (0, 1], so that the logarithm is finite.
            let unit = ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
            *sum -= unit.ln();
            *drawn += 1;
        }
        *sum
    }
}

/// Maximum relative rounding error in a sum or product of decimal numbers.
const LAST_BITS: f64 = 1e-12;

/// Computes the time of an arrival from its index, by inverting the cumulative rate. The times must
/// be requested in ascending order.
///
/// ```text
/// Λ(t), arrivals expected by t
///   │            ·                    constant: arrival k is at Λ⁻¹(k)
/// k ├─────────·                       poisson:  arrival k is at Λ⁻¹(S), where S is the sum
///   │      ·  │                                 of k + 1 exponential gaps with mean 1
///   │  ·      │
///   └─────────┴──── t
/// ```
///
/// This transformation turns a Poisson process with rate 1 into one with rate λ(t) = Λ'(t) (E.
/// Çinlar, Introduction to Stochastic Processes, 1975, chapter 4).
#[derive(Debug, Clone)]
pub(crate) enum Course {
    /// A constant rate.
    Constant { period_ns: f64 },
    /// A sequence of linear segments.
    Varied {
        segments: Arc<[RateSegment]>,
        current: usize,
    },
}

impl Course {
    /// Creates the course of a schedule's rate.
    pub(crate) fn new(schedule: &Schedule) -> Self {
        if schedule.rate_changes() {
            Course::Varied {
                segments: schedule.segments().into(),
                current: 0,
            }
        } else {
            Course::Constant {
                period_ns: NS_PER_S as f64 / schedule.rate_per_s(),
            }
        }
    }

    /// Returns the number of arrivals expected within the first `seconds`.
    pub(crate) fn expected_by(&self, seconds: f64) -> f64 {
        match self {
            Course::Constant { period_ns } => seconds * NS_PER_S as f64 / period_ns,
            Course::Varied { segments, .. } => {
                floodmark_record::plan::expected_by(segments, seconds).unwrap_or(0.0)
            }
        }
    }

    /// Returns the time by which `count` arrivals are expected, in ns from the start.
    /// `count` must not decrease between calls. If the time falls in a pause (rate 0), the result
    /// is the end of the pause.
    pub(crate) fn at(&mut self, count: f64) -> f64 {
        match self {
            Course::Constant { period_ns } => count * *period_ns,
            Course::Varied { segments, current } => {
                while let Some(next) = segments.get(*current + 1)
                    && next.before - count <= count * LAST_BITS
                {
                    *current += 1;
                }
                let within = segments
                    .get(*current)
                    .map_or(0.0, |segment| segment.from_s + time_of(segment, count));
                (within * NS_PER_S as f64).round()
            }
        }
    }
}

/// Solves `rate · t + slope · t² / 2 = count − before` for t.
/// This form of the solution avoids cancellation and is also valid for slope 0.
fn time_of(segment: &RateSegment, count: f64) -> f64 {
    let n = count - segment.before;
    if n <= 0.0 {
        return 0.0;
    }
    let RateSegment {
        rate_per_s: rate,
        slope,
        length_s,
        ..
    } = *segment;
    let root = (rate * rate + 2.0 * slope * n).max(0.0).sqrt();
    (2.0 * n / (rate + root)).min(length_s)
}

/// Returns the number of arrivals k = 0, 1, … with k < `expected`.
/// The function ignores the rounding error of duration × rate. For example, 0.1 s at 30/s gives 3
/// arrivals, not 4.
pub(crate) fn arrivals_before(expected: f64) -> u64 {
    let nearest = expected.round();
    if (expected - nearest).abs() <= nearest.abs() * LAST_BITS {
        nearest as u64
    } else {
        expected.ceil() as u64
    }
}

/// Combined with the seed to select agents, so that selection and Poisson arrivals use different
/// random numbers.
const SELECTION: u64 = 0x6167_656e_7473_6861;

/// A thread's position among all threads that send a load. It determines the thread's requests.
///
/// ```text
/// closed model   thread 0 of 2 takes 0, 2, 4, …; all agents' threads count as one set
/// open model     a hash of (seed, index) selects the agent; the agent's own threads take turns
/// ```
///
/// Every index belongs to exactly one thread, whatever the number of threads and agents. Selection
/// by a hash splits Poisson arrivals into Poisson arrivals for each agent. Their union is therefore
/// Poisson even if the agents' clocks differ. If each agent took every *n*-th arrival, its arrivals
/// would not be Poisson.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadShare {
    /// Index of the thread within its agent.
    pub thread: u32,
    /// Number of threads of each agent.
    pub threads: u32,
    /// The agent; agent 0 of 1 if a single process sends the load.
    pub agent: AgentShare,
}

impl ThreadShare {
    /// Returns the shares of all threads of an agent.
    pub fn of_agent(agent: AgentShare, threads: u32) -> impl Iterator<Item = Self> {
        (0..threads).map(move |thread| ThreadShare {
            thread,
            threads,
            agent,
        })
    }

    /// Returns the index of this thread among the threads of all agents, and the number of these
    /// threads.
    pub fn overall(&self) -> (u32, u32) {
        let AgentShare { index, count } = self.agent;
        (index * self.threads + self.thread, count * self.threads)
    }

    /// Returns this thread's part of `total`.
    pub fn part_of(&self, total: u64) -> u64 {
        let (thread, threads) = self.overall();
        let (thread, threads) = (u64::from(thread), u64::from(threads));
        total / threads + u64::from(thread < total % threads)
    }

    /// Returns the maximum number of connections that this thread may open.
    pub fn connections(&self, plan: &Plan) -> usize {
        self.part_of(plan.connections.max(1).into()) as usize
    }

    /// Returns the number of the next phase's first request. `first` is the number of the previous
    /// phase's first request, and `next` is the next unused number.
    ///
    /// In the closed model, agents do not know each other's numbers, so the first number advances
    /// by a multiple of the total thread count. In every phase, a thread's numbers then have the
    /// same remainder modulo this count, so no two threads use the same request number.
    pub fn first_number(&self, plan: &Plan, first: u64, next: u64) -> u64 {
        if self.agent.count == 1 || plan.is_open() {
            return next;
        }
        let threads = u64::from(self.overall().1);
        first + (next - first).next_multiple_of(threads)
    }

    /// Returns the indices of this thread's requests.
    pub fn indices(&self, plan: &Plan) -> RequestIndices {
        if self.agent.count > 1 && plan.is_open() {
            let mut indices = RequestIndices {
                next: 0,
                stride: self.threads.into(),
                drawn_by: Some((self.agent, plan.seed ^ SELECTION)),
            };
            indices.find_own();
            indices.skip(self.thread.into());
            return indices;
        }
        let (thread, threads) = self.overall();
        RequestIndices {
            next: thread.into(),
            stride: threads.into(),
            drawn_by: None,
        }
    }
}

/// The indices of one thread's requests, in ascending order.
#[derive(Debug, Clone)]
pub struct RequestIndices {
    /// The next index.
    pub next: u64,
    /// Distance to the thread's next index. With `drawn_by`, the distance counts only the agent's
    /// indices.
    stride: u64,
    /// The agent, and the seed of the hash that selects its indices; `None` if the indices are
    /// equally spaced.
    drawn_by: Option<(AgentShare, u64)>,
}

impl RequestIndices {
    /// Moves to the thread's next index.
    #[inline]
    pub fn advance(&mut self) {
        self.skip(self.stride);
    }

    /// Skips `n` of the thread's indices.
    pub fn pass(&mut self, n: u64) {
        self.skip(self.stride * n);
    }

    fn skip(&mut self, steps: u64) {
        if self.drawn_by.is_none() {
            self.next += steps;
            return;
        }
        for _ in 0..steps {
            self.next += 1;
            self.find_own();
        }
    }

    /// Moves to the agent's first index that is not before the current one.
    fn find_own(&mut self) {
        if let Some((agent, seed)) = self.drawn_by {
            while agent_of(self.next, seed, agent.count) != agent.index {
                self.next += 1;
            }
        }
    }
}

/// Returns the agent that sends the request with this index. Each agent has the same probability.
fn agent_of(index: u64, seed: u64, agents: u32) -> u32 {
    let hash = mix_bits(seed.wrapping_add(mix_bits(index)));
    ((u128::from(hash) * u128::from(agents)) >> 64) as u32
}

/// Mixes the bits of a number (the output function of SplitMix64; Steele, Lea and Flood 2014).
pub(crate) fn mix_bits(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Returns the share of a single thread that sends the whole load.
#[cfg(test)]
pub(crate) fn alone() -> ThreadShare {
    share((0, 1), (0, 1))
}

/// Returns the share of one thread (`thread` of `threads`) in one agent (`index` of `count`).
#[cfg(test)]
pub(crate) fn share((index, count): (u32, u32), (thread, threads): (u32, u32)) -> ThreadShare {
    ThreadShare {
        thread,
        threads,
        agent: AgentShare { index, count },
    }
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
