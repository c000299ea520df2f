//! Order of the requests of a mix: a pure function of plan, seed and position in the schedule.
//!
//! ```text
//! weights a 2, b 1     a b a | b a a | a a b | a b a | …     each cycle contains two a and one b,
//! requests 0, 1, 2, …  0     | 3     | 6     | 9             in random order
//! ```
//!
//! The shares are exact after each cycle. Each cycle is shuffled, so that a request is not always
//! sent by the same connection or thread.

use floodmark_record::plan::Plan;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::schedule::{RequestIndices, ThreadShare};

/// Changes the seed for shuffling, so that cycles and Poisson arrivals use different random
/// numbers. Poisson arrivals use the plan's seed directly.
const ORDER: u64 = 0x6f72_6465_725f_6f66;

/// A request to send: its index in the mix, and its number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pick {
    /// Index of the request in the mix; 0 without a mix.
    pub group: u32,
    /// Number of the request (`{seq}`): 1, 2, 3, … across all threads, phases and attempts.
    pub number: u64,
}

/// The picks of one thread, in order. In the open model, they have the same indices as the thread's
/// arrivals.
#[derive(Debug, Clone)]
pub struct Picks {
    /// The shuffled cycles; `None` without a mix.
    cycle: Option<Cycle>,
    indices: RequestIndices,
    first_number: u64,
    /// A request number greater than the numbers of all picks taken so far.
    pub next_number: u64,
}

impl Picks {
    /// Creates one thread's picks in one phase.
    /// The first request of the phase has the number `first_number`.
    pub fn new(plan: &Plan, share: ThreadShare, first_number: u64) -> Self {
        let cycle = plan.mix.as_ref().map(|mix| {
            let weights = mix.requests.iter().map(|request| request.weight);
            Cycle::new(weights, plan.seed)
        });
        Picks {
            cycle,
            indices: share.indices(plan),
            first_number,
            next_number: first_number,
        }
    }

    /// Returns the same unused picks, numbered from `first_number`.
    pub fn numbered_from(self, first_number: u64) -> Self {
        Picks {
            first_number,
            next_number: first_number,
            ..self
        }
    }

    /// Takes the next pick.
    #[inline]
    pub fn take(&mut self) -> Pick {
        let index = self.indices.next;
        let group = self.cycle.as_mut().map_or(0, |cycle| cycle.at(index));
        let number = self.first_number + index;
        self.indices.advance();
        self.next_number = number + 1;
        Pick { group, number }
    }

    /// Skips `n` picks, and calls `count` with the number of picks skipped in each group.
    pub fn pass(&mut self, n: u64, mut count: impl FnMut(u32, u64)) {
        if self.cycle.is_some() {
            (0..n).for_each(|_| count(self.take().group, 1));
        } else {
            self.indices.pass(n);
            count(0, n);
        }
    }
}

/// Cycles of requests. Each cycle is shuffled (Fisher and Yates) with random numbers from the seed.
/// Each draw performs one step of the shuffle, so that no request waits for a whole shuffle.
#[derive(Debug, Clone)]
struct Cycle {
    /// One cycle, in which each request occurs as many times as its weight.
    /// In the current cycle, the positions before `drawn` are final.
    groups: Vec<u8>,
    drawn: u64,
    random: Xoshiro256PlusPlus,
}

impl Cycle {
    fn new(weights: impl Iterator<Item = u32>, seed: u64) -> Self {
        let groups = weights
            .zip(0u8..)
            .flat_map(|(weight, group)| std::iter::repeat_n(group, weight as usize))
            .collect();
        Cycle {
            groups,
            drawn: 0,
            random: Xoshiro256PlusPlus::seed_from_u64(seed ^ ORDER),
        }
    }

    /// Returns the request at `index`, which must not decrease between calls.
    #[inline]
    fn at(&mut self, index: u64) -> u32 {
        let length = self.groups.len() as u64;
        while self.drawn <= index {
            let place = self.drawn % length;
            let other = place + below(&mut self.random, length - place);
            self.groups.swap(place as usize, other as usize);
            self.drawn += 1;
        }
        self.groups[(index % length) as usize].into()
    }
}

/// Draws a number below `n`. The distribution is uniform, except for a bias of at most `n` / 2^64.
#[inline]
pub(crate) fn below(random: &mut impl Rng, n: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(n)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::share;
    use crate::testing::{closed_plan, open_plan, with_mix};
    use floodmark_record::plan::Arrivals;
    use proptest::prelude::*;

    fn plan(weights: &[u32], seed: u64) -> Plan {
        Plan {
            seed,
            ..with_mix(closed_plan(1, 1), weights)
        }
    }

    fn picks(plan: &Plan, thread: u64, threads: u64, n: u64) -> Vec<Pick> {
        let mut picks = Picks::new(plan, share((0, 1), (thread as u32, threads as u32)), 1);
        let mine = (thread..n).step_by(threads as usize);
        mine.map(|_| picks.take()).collect()
    }

    #[test]
    fn order_differs_by_cycle_and_seed() {
        let groups = |seed| -> Vec<u32> {
            let all = picks(&plan(&[3, 2, 1], seed), 0, 1, 600);
            all.iter().map(|pick| pick.group).collect()
        };
        let cycles = groups(1);
        assert!(cycles.chunks(6).any(|cycle| cycle != &cycles[..6]));
        assert_eq!(cycles, groups(1));
        assert_ne!(cycles, groups(2));
    }

    #[test]
    fn every_thread_sends_every_request_group() {
        let plan = plan(&[1, 1], 1);
        for thread in 0..2 {
            let first = picks(&plan, thread, 2, 2000);
            let first = first.iter().filter(|pick| pick.group == 0).count();
            assert!((400..600).contains(&first), "{first} of 1000");
        }
    }

    #[test]
    fn continues_the_numbers_of_the_previous_phase() {
        let plan = closed_plan(1, 1);
        let mut warmup = Picks::new(&plan, share((0, 1), (1, 2)), 1);
        assert_eq!(warmup.next_number, 1);
        assert_eq!([warmup.take().number, warmup.take().number], [2, 4]);
        let mut measured = Picks::new(&plan, share((0, 1), (0, 2)), warmup.next_number);
        assert_eq!([measured.take().number, measured.take().number], [5, 7]);
        measured.pass(3, |group, n| assert_eq!((group, n), (0, 3)));
        assert_eq!(measured.take().number, 15);
    }

    fn weights() -> impl Strategy<Value = Vec<u32>> {
        proptest::collection::vec(1u32..12, 1..8)
    }

    proptest! {
            #[test]
            fn shares_are_exact_in_each_cycle(weights in weights(), seed in any::<u64>()) {
                let length: u32 = weights.iter().sum();
                let all = picks(&plan(&weights, seed), 0, 1, u64::from(length) * 5);
                for cycle in all.chunks(length as usize) {
                    for (group, weight) in (0u32..).zip(&weights) {
                        let n = cycle.iter().filter(|pick| pick.group == group).count();
                        prop_assert_eq!(n, *weight as usize);
                    }
                }
            }

            #[test]
            fn threads_share_the_picks_of_one_thread(
                weights in weights(), seed in any::<u64>(), threads in 1u64..7, n in 0u64..400,
            ) {
                let plan = plan(&weights, seed);
                let whole = picks(&plan, 0, 1, n);
                prop_assert!(whole.iter().map(|pick| pick.number).eq(1..=n));
                let mut parts: Vec<Pick> = (0..threads).flat_map(|t| picks(&plan, t, threads, n)).collect();
                parts.sort_by_key(|pick| pick.number);
                prop_assert_eq!(parts, whole);
            }

            #[test]
            fn skips_exactly_the_next_picks(
                weights in weights(), seed in any::<u64>(), threads in 1u32..4, agents in 1u32..4,
                is_open in any::<bool>(), n in 0u64..100,
            ) {
                let plan = if is_open {
    Plan { seed, ..with_mix(open_plan(Arrivals::Constant, 1.0, None, Some(1)), &weights) }
    } else {
    plan(&weights, seed)
    };
                let mut taking = Picks::new(&plan, share((0, agents), (0, threads)), 1);
                let mut passing = taking.clone();
                let mut left = vec![0; weights.len()];
                passing.pass(n, |group, n| left[group as usize] += n);
                for _ in 0..n {
                    left[taking.take().group as usize] -= 1;
                }
                prop_assert_eq!(left, vec![0; weights.len()]);
                prop_assert_eq!(taking.take(), passing.take());
            }
        }
}
