//! Repeats a case until an undisturbed attempt decides the result.
//!
//! A failed attempt is void and is repeated only if the host was measurably disturbed. A
//! disturbance is missing CPU time ([`disturbance`](super::disturbance)) or a large overhead of a
//! plain client ([`plain_client`](super::plain_client)). At most [`MAX_VOID`] attempts are void. An
//! attempt with a failed exact finding, such as a count, is never void. The report lists each
//! attempt.

use super::findings::{CaseAttempt, CaseRun};

/// Maximum number of void attempts per case.
const MAX_VOID: usize = 2;

/// Runs a case until an attempt decides the result. Returns the last findings, whether the case
/// passed, and all attempts.
pub fn decide(mut run: impl FnMut() -> CaseRun) -> (CaseRun, bool, Vec<CaseAttempt>) {
    let mut attempts: Vec<CaseAttempt> = Vec::new();
    loop {
        let last = run();
        let failed = || last.findings.iter().filter(|f| !f.held);
        let passed = failed().next().is_none();
        // All earlier attempts were void.
        let may_be_void = !passed && failed().all(|f| !f.exact) && attempts.len() < MAX_VOID;
        let void = last.disturbance.clone().filter(|_| may_be_void);
        let decided = void.is_none();
        attempts.push(CaseAttempt {
            failed: failed().map(ToString::to_string).collect(),
            void,
        });
        if decided {
            return (last, passed, attempts);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Result of one attempt.
    #[derive(Clone, Copy)]
    enum Ending {
        Passed,
        Failed,
        Disturbed,
        /// Failed with a wrong count on a disturbed host.
        Exact,
    }

    use Ending::{Disturbed, Exact, Failed, Passed};

    /// Returns whether a case with these attempts passes, and the number of attempts made.
    fn outcome(endings: &[Ending]) -> (bool, usize) {
        let mut left = endings.iter();
        let (_, passed, attempts) = decide(|| {
            let ending = *left.next().expect("an attempt too many");
            let mut run = CaseRun::default();
            run.holds("a time", matches!(ending, Passed), "so");
            run.exactly("a count", 0, u64::from(matches!(ending, Exact)));
            run.disturbance = matches!(ending, Disturbed | Exact).then(|| "stolen".to_owned());
            run
        });
        (passed, attempts.len())
    }

    #[test]
    fn the_first_undisturbed_attempt_decides() {
        assert_eq!(outcome(&[Passed]), (true, 1));
        assert_eq!(outcome(&[Failed, Passed]), (false, 1));
        assert_eq!(outcome(&[Disturbed, Failed, Passed]), (false, 2));
        assert_eq!(outcome(&[Disturbed, Passed]), (true, 2));
    }

    #[test]
    fn at_most_two_attempts_are_void() {
        assert_eq!(outcome(&[Disturbed, Disturbed, Passed]), (true, 3));
        let attempts = [Disturbed, Disturbed, Disturbed, Passed];
        assert_eq!(outcome(&attempts), (false, 3));
    }

    #[test]
    fn no_disturbance_excuses_a_wrong_count() {
        assert_eq!(outcome(&[Exact, Passed]), (false, 1));
        assert_eq!(outcome(&[Disturbed, Exact, Passed]), (false, 2));
    }

    #[test]
    fn a_case_that_cannot_run_fails_at_once() {
        let mut runs = 0;
        let (_, passed, attempts) = decide(|| {
            runs += 1;
            let mut run = CaseRun::default();
            run.must("the case runs", runs > 1, "no server");
            run.disturbance = Some("stolen".to_owned());
            run
        });
        assert_eq!((passed, attempts.len()), (false, 1));
    }
}
