//! The arrivals and requests that belong to one thread of one agent.
//!
//! ```text
//! closed model   thread 0 of 2 takes 0, 2, 4, …; all agents' threads count as one set
//! open model     a hash of (seed, index) selects the agent; the agent's own threads take turns
//! ```
//!
//! Every index belongs to exactly one thread, whatever the number of threads and agents. With
//! Poisson arrivals, a hash leaves Poisson arrivals to each agent, so the union is still Poisson if
//! the agents' clocks differ. Every *n*-th arrival would not be Poisson.

use floodmark_record::plan::Plan;
use floodmark_record::worker_input::AgentShare;

/// Changes the seed for selecting agents, so that selection and Poisson arrivals use different
/// random numbers.
const SELECTION: u64 = 0x6167_656e_7473_6861;

/// A thread's place among the threads that send one load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadShare {
    /// Number of the thread within its agent.
    pub thread: u32,
    /// Number of threads of each agent.
    pub threads: u32,
    /// The agent; agent 0 of 1 if a single process sends the load.
    pub agent: AgentShare,
}

impl ThreadShare {
    /// Returns the number of this thread among the threads of all agents, and the number of all
    /// threads.
    #[must_use]
    pub fn overall(&self) -> (u32, u32) {
        let AgentShare { index, count } = self.agent;
        (index * self.threads + self.thread, count * self.threads)
    }

    /// Returns the indices of this thread's requests.
    #[must_use]
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
    /// Number of steps to the thread's next index. With a selection, only the agent's indices are
    /// counted.
    stride: u64,
    /// The agent, and the seed of the hash that selects its indices; `None` if the indices are equally spaced.
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
fn mix_bits(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

/// Returns the share of the only thread of the only agent.
#[cfg(test)]
pub(crate) fn alone() -> ThreadShare {
    share((0, 1), (0, 1))
}

/// Returns the share of thread `thread` of `threads` of agent `index` of `count`.
#[cfg(test)]
pub(crate) fn share((index, count): (u32, u32), (thread, threads): (u32, u32)) -> ThreadShare {
    ThreadShare {
        thread,
        threads,
        agent: AgentShare { index, count },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{closed_plan, open_plan};
    use floodmark_record::plan::Arrivals;
    use proptest::prelude::*;

    fn open(seed: u64) -> Plan {
        Plan {
            seed,
            ..open_plan(Arrivals::Constant, 1000.0, None, Some(1000))
        }
    }

    #[test]
    fn agents_get_equal_shares_in_no_fixed_order() {
        let agents: Vec<u32> = (0..40_000).map(|k| agent_of(k, 1, 4)).collect();
        for agent in 0..4 {
            let n = agents.iter().filter(|a| **a == agent).count();
            // Three standard deviations of a binomial distribution.
            assert!(n.abs_diff(10_000) < 260, "{n}");
        }
        let repeats = agents.windows(2).filter(|pair| pair[0] == pair[1]).count();
        assert!(repeats.abs_diff(10_000) < 260, "{repeats}");
    }

    proptest! {
        #[test]
        fn each_index_belongs_to_one_thread_of_one_agent(
            seed in any::<u64>(), agents in 1u32..9, threads in 1u32..5, is_open in any::<bool>(),
        ) {
            let plan = if is_open { open(seed) } else { closed_plan(100, 1) };
            let mut all: Vec<u64> = Vec::new();
            for (agent, thread) in (0..agents).flat_map(|a| (0..threads).map(move |t| (a, t))) {
                let mut indices = share((agent, agents), (thread, threads)).indices(&plan);
                while indices.next < 500 {
                    all.push(indices.next);
                    indices.advance();
                }
            }
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..500));
        }

        #[test]
        fn passing_equals_repeated_advancing(seed in any::<u64>(), agents in 1u32..5, n in 0u64..50) {
            let mut passing = share((0, agents), (0, 2)).indices(&open(seed));
            let mut advancing = passing.clone();
            passing.pass(n);
            (0..n).for_each(|_| advancing.advance());
            prop_assert_eq!(passing.next, advancing.next);
        }
    }
}
