//! How often a case is run, and what counts: the first go that nothing disturbed decides.
//!
//! A miss is set aside, and the case run again, only where the go shows by itself that the machine was not to be had: its CPU
//! ([`disturbance`](super::disturbance)) or its way there and back ([`way`](super::way)). That happens at most [`SET_ASIDE`]
//! times. No machine excuses what is exact: a wrong count fails at once. Each go is reported.

use super::report::{Go, Trial};

/// Misses that the machine may excuse.
const SET_ASIDE: usize = 2;

/// Runs a case until a go decides; its trial, whether the case passed, and what became of each go.
pub fn decide(mut run: impl FnMut() -> Trial) -> (Trial, bool, Vec<Go>) {
    let mut goes: Vec<Go> = Vec::new();
    loop {
        let trial = run();
        let missed = || trial.findings.iter().filter(|f| !f.held);
        let passed = missed().next().is_none();
        // Every go before this one was set aside.
        let excusable = !passed && missed().all(|f| !f.exact) && goes.len() < SET_ASIDE;
        let set_aside = trial.disturbance.clone().filter(|_| excusable);
        let decided = set_aside.is_none();
        goes.push(Go {
            missed: missed().map(ToString::to_string).collect(),
            set_aside,
        });
        if decided {
            return (trial, passed, goes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How a go ends.
    #[derive(Clone, Copy)]
    enum End {
        Pass,
        Miss,
        Disturbed,
        /// A count is wrong besides, and the machine was disturbed.
        Exact,
    }

    use End::{Disturbed, Exact, Miss, Pass};

    /// Whether a case passed whose goes end like this, and how many there were.
    fn outcome(goes: &[End]) -> (bool, usize) {
        let mut left = goes.iter();
        let (_, passed, ran) = decide(|| {
            let end = *left.next().expect("a go too many");
            let mut trial = Trial::default();
            trial.holds("a time", matches!(end, Pass), "so");
            trial.exactly("a count", 0, u64::from(matches!(end, Exact)));
            trial.disturbance = matches!(end, Disturbed | Exact).then(|| "stolen".to_owned());
            trial
        });
        (passed, ran.len())
    }

    #[test]
    fn the_first_go_that_nothing_disturbed_decides() {
        assert_eq!(outcome(&[Pass]), (true, 1));
        assert_eq!(outcome(&[Miss, Pass]), (false, 1));
        assert_eq!(outcome(&[Disturbed, Miss, Pass]), (false, 2));
        assert_eq!(outcome(&[Disturbed, Pass]), (true, 2));
    }

    #[test]
    fn two_goes_are_set_aside_and_no_more() {
        assert_eq!(outcome(&[Disturbed, Disturbed, Pass]), (true, 3));
        assert_eq!(
            outcome(&[Disturbed, Disturbed, Disturbed, Pass]),
            (false, 3)
        );
    }

    #[test]
    fn no_machine_excuses_a_wrong_count() {
        assert_eq!(outcome(&[Exact, Pass]), (false, 1));
        assert_eq!(outcome(&[Disturbed, Exact, Pass]), (false, 2));
    }

    #[test]
    fn a_case_that_could_not_be_run_fails_at_once() {
        let mut goes = 0;
        let (_, passed, ran) = decide(|| {
            goes += 1;
            let mut trial = Trial::default();
            trial.must("the case could be run", goes > 1, "no server");
            trial.disturbance = Some("stolen".to_owned());
            trial
        });
        assert_eq!((passed, ran.len()), (false, 1));
    }
}
