//! How often a case is run, and what counts: most goes decide.
//!
//! A case that passes at its first go has passed. One that misses is run again: it passes when more goes pass than
//! miss, and fails at its second miss, so that it takes two misses of three goes. A miss of a go whose own record or
//! log shows that CPU was not to be had ([`disturbance`](super::disturbance)) decides nothing and is set aside, at
//! most [`SET_ASIDE`] times. Each go is reported.

use super::report::{Go, Trial};

/// Misses at which a case has failed.
const MISSES: usize = 2;

/// Misses that the machine may excuse.
const SET_ASIDE: usize = 2;

/// Runs a case as often as it takes; the last trial, whether the case passed, and what became of each go.
pub fn decide(mut run: impl FnMut() -> Trial) -> (Trial, bool, Vec<Go>) {
    let mut goes: Vec<Go> = Vec::new();
    loop {
        let trial = run();
        let set_aside = goes.iter().filter(|go| go.set_aside.is_some()).count();
        let missed = trial.findings.iter().filter(|f| !f.held);
        let missed: Vec<String> = missed.map(ToString::to_string).collect();
        goes.push(Go {
            set_aside: match &trial.disturbance {
                Some(why) if !missed.is_empty() && set_aside < SET_ASIDE => Some(why.clone()),
                _ => None,
            },
            missed,
        });
        let counted = || goes.iter().filter(|go| go.set_aside.is_none());
        let passes = counted().filter(|go| go.missed.is_empty()).count();
        let misses = counted().count() - passes;
        if passes > misses || misses >= MISSES {
            return (trial, passes > misses, goes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASS: (bool, bool) = (true, false);
    const MISS: (bool, bool) = (false, false);
    const DISTURBED: (bool, bool) = (false, true);

    /// Whether a case passed whose goes end like this, and how many there were.
    fn outcome(goes: &[(bool, bool)]) -> (bool, usize) {
        let mut left = goes.iter();
        let (_, passed, ran) = decide(|| {
            let (held, disturbed) = left.next().expect("a go too many");
            let mut trial = Trial::default();
            trial.holds("it", *held, "so");
            trial.disturbance = disturbed.then(|| "stolen".to_owned());
            trial
        });
        (passed, ran.len())
    }

    #[test]
    fn two_misses_of_three_fail() {
        assert_eq!(outcome(&[PASS]), (true, 1));
        assert_eq!(outcome(&[MISS, MISS]), (false, 2));
        assert_eq!(outcome(&[MISS, PASS, PASS]), (true, 3));
        assert_eq!(outcome(&[MISS, PASS, MISS]), (false, 3));
    }

    #[test]
    fn what_the_machine_did_decides_nothing_but_not_for_ever() {
        assert_eq!(outcome(&[DISTURBED, PASS]), (true, 2));
        assert_eq!(outcome(&[DISTURBED, DISTURBED, PASS]), (true, 3));
        assert_eq!(outcome(&[DISTURBED, MISS, PASS, PASS]), (true, 4));
        assert_eq!(outcome(&[DISTURBED; 4]), (false, 4));
        assert_eq!(
            outcome(&[DISTURBED, DISTURBED, DISTURBED, PASS, PASS]),
            (true, 5)
        );
    }
}
