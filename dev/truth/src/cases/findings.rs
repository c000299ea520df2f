//! Findings and reports of the cases, and the attempts that decide the results.
//!
//! A failed attempt is void and is repeated only if the host was measurably disturbed. Lost CPU
//! time ([`disturbance`]) and a large overhead of a plain client ([`overhead`](super::overhead))
//! count as disturbances. At most [`MAX_VOID`] attempts are void. An attempt with a failed exact
//! finding, such as a count, is never void. The report lists each attempt.

use std::fmt;

use floodmark_record::metric::HostFigure;
use floodmark_record::{Metric, Run};

use crate::log::Log;

/// A comparison of an expected value with a measured value.
#[derive(Debug)]
pub struct CaseFinding {
    /// Name of the figure or condition.
    pub what: String,
    /// Expected value.
    pub expected: String,
    /// Measured value.
    pub got: String,
    /// Whether the measured value agrees with the expected value.
    pub held: bool,
    /// Whether the value is exact, such as a count. A disturbance of the host cannot change an
    /// exact value.
    pub exact: bool,
}

/// Findings of one attempt.
#[derive(Debug, Default)]
pub struct CaseRun {
    pub findings: Vec<CaseFinding>,
    pub notes: Vec<String>,
    /// Disturbance of the host that may explain a failure.
    pub disturbance: Option<String>,
}

impl CaseRun {
    fn failed(&self) -> impl Iterator<Item = &CaseFinding> {
        self.findings.iter().filter(|finding| !finding.held)
    }

    /// Returns whether all findings are as expected.
    pub fn has_passed(&self) -> bool {
        self.failed().next().is_none()
    }

    fn add(&mut self, what: &str, expected: String, got: String, held: bool, exact: bool) {
        self.findings.push(CaseFinding {
            what: what.to_owned(),
            expected,
            got,
            held,
            exact,
        });
    }

    /// Adds a condition.
    pub fn holds(&mut self, what: &str, held: bool, got: impl Into<String>) {
        self.add(what, "holds".to_owned(), got.into(), held, false);
    }

    /// Adds a condition that must hold regardless of disturbances.
    pub fn must(&mut self, what: &str, held: bool, got: impl Into<String>) {
        self.add(what, "holds".to_owned(), got.into(), held, true);
    }

    /// Adds an expected and a measured value, which must be equal.
    pub fn equal<T: PartialEq + fmt::Debug>(&mut self, what: &str, expected: T, got: T) {
        let [shown, got_shown] = [&expected, &got].map(|value| format!("{value:?}"));
        self.add(what, shown, got_shown, expected == got, false);
    }

    /// Adds two counts, which must be equal regardless of disturbances.
    pub fn exactly(&mut self, what: &str, expected: u64, got: u64) {
        let held = expected == got;
        self.add(what, expected.to_string(), got.to_string(), held, true);
    }

    /// Adds a figure that must be within `tolerance` of the truth. A missing figure fails.
    pub fn near(&mut self, what: &str, truth: f64, got: Option<f64>, tolerance: f64) {
        self.between(what, (truth - tolerance, truth + tolerance), got);
        if let (Some(finding), Some(got)) = (self.findings.last_mut(), got) {
            finding.expected = format!("{truth:.1} ± {tolerance:.1}");
            finding.got = format!("{got:.1} ({:+.1})", got - truth);
        }
    }

    /// Adds a figure that must be within bounds. A missing figure fails.
    pub fn between(&mut self, what: &str, (low, high): (f64, f64), got: Option<f64>) {
        let text = got.map_or("not measured".to_owned(), |got| format!("{got:.1}"));
        let held = got.is_some_and(|got| (low..=high).contains(&got));
        self.add(what, format!("{low:.1} to {high:.1}"), text, held, false);
    }

    /// Adds a note about a figure that is not checked.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

impl fmt::Display for CaseFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, expected, got) = (&self.what, &self.expected, &self.got);
        write!(f, "{what}: {got}")?;
        match expected.as_str() {
            "holds" if self.held => Ok(()),
            "holds" => f.write_str(" (condition not met)"),
            expected => write!(f, ", expected {expected}"),
        }
    }
}

impl fmt::Display for CaseRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            let mark = if finding.held { ' ' } else { '!' };
            writeln!(f, "       {mark} {finding}")?;
        }
        for note in &self.notes {
            writeln!(f, "         note: {note}")?;
        }
        Ok(())
    }
}

/// Maximum number of void attempts per case.
const MAX_VOID: usize = 2;

/// Runs a case until an attempt decides the result. Returns the findings of that attempt, and a
/// description of each void attempt.
pub fn decide(mut run: impl FnMut() -> CaseRun) -> (CaseRun, Vec<String>) {
    let mut void: Vec<String> = Vec::new();
    loop {
        let last = run();
        let may_be_void = last.failed().all(|finding| !finding.exact) && void.len() < MAX_VOID;
        match &last.disturbance {
            Some(disturbance) if may_be_void && !last.has_passed() => {
                let failed: Vec<String> = last.failed().map(ToString::to_string).collect();
                void.push(format!(
                    "failed {} (void: {disturbance})",
                    failed.join("; ")
                ));
            }
            _ => return (last, void),
        }
    }
}

/// Maximum fraction of the run for which a thread may wait for a CPU. A longer wait counts as a
/// disturbance.
const RUN_DELAY_SHARE: f64 = 0.02;

/// Maximum stolen time within a second, as a fraction of one CPU. More stolen time counts as a
/// disturbance.
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
        let (last, void) = decide(|| {
            let ending = *left.next().expect("an attempt too many");
            let mut run = CaseRun::default();
            run.holds("a time", matches!(ending, Passed), "so");
            run.exactly("a count", 0, u64::from(matches!(ending, Exact)));
            run.disturbance = matches!(ending, Disturbed | Exact).then(|| "stolen".to_owned());
            run
        });
        (last.has_passed(), void.len() + 1)
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
        let (last, void) = decide(|| {
            runs += 1;
            let mut run = CaseRun::default();
            run.must("the case runs", runs > 1, "no server");
            run.disturbance = Some("stolen".to_owned());
            run
        });
        assert_eq!((last.has_passed(), void.len()), (false, 0));
    }
}
