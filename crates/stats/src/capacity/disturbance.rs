//! Parts of a load that were disturbed: other programs or the hypervisor took CPU time that the
//! server or the client needed.
//!
//! A disturbance leaves a backlog. Until the server has worked it off, response times are longer
//! than on a quiet host. This *aftermath* follows from the lost time and the offered rate, never
//! from the responses, so hits and misses are cut out alike.

/// Minimum lost time of a disturbed part, as a share of the part. Kernel threads and timers take
/// less on any host.
const LEAST_LOST: f64 = 0.1;

/// Lost time, in seconds, of a part that is not disturbed yet. Stolen and used CPU time is counted
/// in clock ticks of 10 ms, so a single tick may be the remainder of a much shorter loss.
const NEGLIGIBLE_S: f64 = 0.015;

/// Maximum ratio of the offered rate to the answered rate with which a backlog is computed. At
/// higher rates, the aftermath would be endless.
const MOST_UTILIZATION: f64 = 0.95;

/// Minimum share of undisturbed parts in past loads. With less, the disturbances are steady: no
/// trial at any rate would show the server without them.
const LEAST_QUIET: f64 = 0.1;

/// Minimum length of the past loads from which usable shares are predicted, in seconds.
const SHORTEST_PAST_S: f64 = 1.0;

/// The length of a part, and the time in it that disturbances took from the server and the client.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PartLoss {
    /// Length of the part in seconds.
    pub seconds: f64,
    /// Lost time in seconds; `None` if there is no sample.
    pub lost_s: Option<f64>,
}

/// Whether a part of a load shows the server or a disturbance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartState {
    /// Nothing disturbed the part, and no backlog of an earlier disturbance remained.
    Usable,
    /// Nothing disturbed the part, but a backlog of an earlier disturbance was left. The server
    /// answers as fast as it can, but response times are too long.
    Aftermath,
    /// The part was disturbed, or its disturbance is unknown.
    Disturbed,
}

/// Classifies the consecutive parts of a load. `utilization` returns the offered rate of each part
/// divided by the highest answered rate.
///
/// The backlog is that of a fluid queue: during a loss, work arrives and none is done; afterwards,
/// the spare time works it off. After a loss of d seconds, this takes d · λ/(µ − λ).
#[must_use]
pub fn part_states(parts: &[PartLoss], utilization: impl Fn(usize) -> f64) -> Vec<PartState> {
    // Time that the server needs for the work that is left.
    let mut backlog_s: f64 = 0.0;
    let state = |(index, part): (usize, &PartLoss)| {
        let utilization = utilization(index).clamp(0.0, MOST_UTILIZATION);
        // If there is no sample, the sampling thread itself got no CPU time.
        let lost_s = part.lost_s.unwrap_or(part.seconds).min(part.seconds);
        let was_left = backlog_s > 0.0;
        let is_disturbed = lost_s >= LEAST_LOST * part.seconds && lost_s > NEGLIGIBLE_S;
        let lost_s = if is_disturbed { lost_s } else { 0.0 };
        let change_s = utilization * part.seconds - (part.seconds - lost_s);
        backlog_s = (backlog_s + change_s).max(utilization * lost_s);
        match (is_disturbed, was_left) {
            (true, _) => PartState::Disturbed,
            (false, true) => PartState::Aftermath,
            (false, false) => PartState::Usable,
        }
    };
    parts.iter().enumerate().map(state).collect()
}

/// The lost time of all loads so far, which predicts that of the next load.
#[derive(Debug, Clone, Default)]
pub struct Disturbances {
    parts: Vec<PartLoss>,
}

impl Disturbances {
    /// Adds the parts of a load.
    pub fn add(&mut self, parts: &[PartLoss]) {
        self.parts.extend_from_slice(parts);
    }

    /// Returns whether nearly all parts were disturbed, so that the host without its disturbances
    /// cannot be measured.
    #[must_use]
    pub fn is_steady(&self) -> bool {
        self.usable_share(0.0) < LEAST_QUIET
    }

    /// Returns the share of usable time to expect at a utilization; 1 if too little is known.
    #[must_use]
    pub fn usable_share(&self, utilization: f64) -> f64 {
        let total_s: f64 = self.parts.iter().map(|part| part.seconds).sum();
        if total_s < SHORTEST_PAST_S {
            return 1.0;
        }
        let states = part_states(&self.parts, |_| utilization);
        let usable = self.parts.iter().zip(states);
        let usable = usable.filter(|(_, state)| *state == PartState::Usable);
        usable.map(|(part, _)| part.seconds).sum::<f64>() / total_s
    }
}

#[cfg(test)]
mod tests {
    use PartState::{Aftermath, Disturbed, Usable};
    use proptest::prelude::*;

    use super::*;

    const PART_S: f64 = 0.1;

    fn parts(lost_s: &[f64]) -> Vec<PartLoss> {
        let part = |lost_s: &f64| PartLoss {
            seconds: PART_S,
            lost_s: Some(*lost_s),
        };
        lost_s.iter().map(part).collect()
    }

    #[test]
    fn a_backlog_is_worked_off_in_the_spare_time() {
        // At a utilization of 2/3, the backlog of 100 ms takes 200 ms.
        let states = part_states(&parts(&[0.0, 0.1, 0.0, 0.0, 0.0, 0.0]), |_| {
            2.0 / 3.0 - 1e-9
        });
        let expected = [Usable, Disturbed, Aftermath, Aftermath, Usable, Usable];
        assert_eq!(states, expected);
        // An idle server has no backlog.
        let states = part_states(&parts(&[0.1, 0.0, 0.0]), |_| 0.0);
        assert_eq!(states, [Disturbed, Usable, Usable]);
    }

    #[test]
    fn backlogs_add_up() {
        let lost = [0.1, 0.1, 0.0, 0.0, 0.0];
        let states = part_states(&parts(&lost), |_| 0.5 - 1e-9);
        assert_eq!(states, [Disturbed, Disturbed, Aftermath, Aftermath, Usable]);
    }

    #[test]
    fn small_losses_are_no_disturbances() {
        let states = |lost_s: &[f64]| part_states(&parts(lost_s), |_| 0.9);
        assert_eq!(states(&[0.009; 20]), [Usable; 20]);
        assert_eq!(states(&[0.01; 20]), [Usable; 20], "one clock tick");
        assert_eq!(states(&[0.02]), [Disturbed]);
        let long = PartLoss {
            seconds: 1.0,
            lost_s: Some(0.09),
        };
        assert_eq!(part_states(&[long], |_| 0.9), [Usable], "less than 10 %");
    }

    #[test]
    fn a_backlog_does_not_shrink_in_an_overload() {
        let parts = parts(&[0.1, 0.0, 0.0, 0.0, 0.0, 0.0]);
        let states = part_states(&parts, |part| if part < 3 { 1.5 } else { 0.5 - 1e-9 });
        let expected = [
            Disturbed, Aftermath, Aftermath, Aftermath, Aftermath, Usable,
        ];
        assert_eq!(states, expected);
    }

    #[test]
    fn a_part_without_a_sample_is_not_usable() {
        let unknown = PartLoss {
            seconds: PART_S,
            lost_s: None,
        };
        let states = part_states(
            &[&parts(&[0.0])[..], &[unknown], &parts(&[0.0; 2])].concat(),
            |_| 0.4,
        );
        assert_eq!(states, [Usable, Disturbed, Aftermath, Usable]);
    }

    #[test]
    fn the_usable_share_of_the_next_load_is_that_of_the_past() {
        let mut past = Disturbances::default();
        assert_eq!(past.usable_share(0.9), 1.0);
        past.add(&parts(&[0.1, 0.0, 0.0, 0.0, 0.0].repeat(4)));
        let share = |utilization| past.usable_share(utilization);
        assert!((share(0.0) - 0.8).abs() < 1e-9 && (share(0.49) - 0.6).abs() < 1e-9);
        assert!(share(0.9) < 0.1 && !past.is_steady());
    }

    #[test]
    fn disturbances_of_nearly_all_parts_are_steady() {
        let mut past = Disturbances::default();
        past.add(&parts(&[0.03].repeat(9)));
        assert!(!past.is_steady(), "too little is known");
        past.add(&parts(&[0.03, 0.0]));
        assert!(past.is_steady());
    }

    proptest! {
        #[test]
        fn an_overload_keeps_its_undisturbed_parts(
            lost in prop::collection::vec(prop_oneof![Just(0.0), 0.0f64..0.1], 1..60),
            utilization in 0.0f64..5.0,
        ) {
            let states = part_states(&parts(&lost), |_| utilization);
            for (state, lost_s) in states.iter().zip(&lost) {
                prop_assert_eq!(*state == Disturbed, *lost_s > NEGLIGIBLE_S);
            }
            // A higher rate leaves no more usable parts.
            let usable = |states: &[PartState]| states.iter().filter(|of| **of == Usable).count();
            let higher = part_states(&parts(&lost), |_| utilization + 0.1);
            prop_assert!(usable(&higher) <= usable(&states));
        }
    }
}
