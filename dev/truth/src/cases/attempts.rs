//! Repeats a case until an undisturbed attempt decides the result.
//!
//! A failed attempt is void and is repeated only if the host was measurably disturbed. A
//! disturbance is missing CPU time ([`disturbance`]) or a large overhead of a
//! plain client ([`plain_client`](super::plain_client)). At most [`MAX_VOID`] attempts are void. An
//! attempt with a failed exact finding, such as a count, is never void. The report lists each
//! attempt.

use floodmark_record::metric::HostFigure;
use floodmark_record::{Metric, Run};

use super::findings::{CaseAttempt, CaseRun};
use crate::log::Log;

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

/// A thread that waits for a CPU for less than this fraction of the run is not disturbed.
const RUN_DELAY_SHARE: f64 = 0.02;

/// Stolen time below this fraction of one CPU within a second is not a disturbance.
const STEAL_SHARE: f64 = 0.02;

/// Returns the disturbance that the client's record or the server's log shows, if any.
pub fn disturbance(run: &Run, log: &Log) -> Option<String> {
    client(run).or_else(|| steal(run)).or_else(|| server(log))
}

fn client(run: &Run) -> Option<String> {
    let load = run.client.threads.iter().filter(|t| t.drives_load);
    let measured = load.filter_map(|thread| Some((thread, thread.run_delay_s?)));
    let (thread, waited_s) = measured.max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    let who = format!("load thread {}", thread.name);
    waited(&who, waited_s, thread.wall_s)
}

fn server(log: &Log) -> Option<String> {
    let wall_s = (log.stopped_ns - log.started_ns) as f64 / 1e9;
    waited("the truth server", log.run_delay_ns as f64 / 1e9, wall_s)
}

fn waited(who: &str, waited_s: f64, wall_s: f64) -> Option<String> {
    (waited_s > RUN_DELAY_SHARE * wall_s)
        .then(|| format!("{who} waited for a CPU for {waited_s:.2} s of {wall_s:.1} s"))
}

fn steal(run: &Run) -> Option<String> {
    let mut series = (run.observations.iter())
        .filter(|of| of.metric == Metric::Host(None, HostFigure::Steal) && !of.is_peak);
    series.find_map(|o| {
        // Aggregate per second, because the kernel counts stolen time in coarse ticks.
        let steps = (1000 / o.step_ms.max(1)).max(1) as usize;
        let length_s = (steps as u64 * o.step_ms) as f64 / 1e3;
        let seconds = o.values.chunks(steps);
        let seconds = seconds.map(|second| second.iter().sum::<f64>());
        let (at, worst) = seconds.enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
        (worst > STEAL_SHARE * length_s).then(|| {
            let at_s = at as f64 * length_s + o.start_ms as f64 / 1e3;
            format!(
                "{worst:.2} s of CPU time was stolen within {length_s} s, starting at {at_s:.0} s"
            )
        })
    })
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
