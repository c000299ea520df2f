//! Findings and reports of the cases.

use std::fmt;

use serde::Serialize;

/// Report of one case.
#[derive(Debug, Clone, Serialize)]
pub struct CaseReport {
    /// Name of the case, such as `T2/short`.
    pub id: &'static str,
    /// Description of the case.
    pub about: &'static str,
    /// Whether the last attempt passed.
    pub passed: bool,
    /// All attempts, in order.
    pub attempts: Vec<CaseAttempt>,
    /// Total duration of all attempts, in seconds.
    pub duration_s: f64,
    /// Findings of the last attempt.
    pub findings: Vec<CaseFinding>,
    /// Figures that are not checked.
    pub notes: Vec<String>,
}

/// One attempt of a case.
#[derive(Debug, Clone, Serialize)]
pub struct CaseAttempt {
    /// Failed findings. The list is empty if the attempt passed.
    pub failed: Vec<String>,
    /// Disturbance of the host that makes the attempt void, if any.
    pub void: Option<String>,
}

/// A comparison of an expected value with a measured value.
#[derive(Debug, Clone, Serialize)]
pub struct CaseFinding {
    /// Name of the figure or condition.
    pub what: String,
    /// Expected value.
    pub expected: String,
    /// Measured value.
    pub got: String,
    /// Whether the measured value agrees with the expected value.
    pub held: bool,
    /// Whether the value is exact, like a count. A disturbance of the host cannot change an exact
    /// value.
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

impl fmt::Display for CaseAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.failed.is_empty() {
            return f.write_str("passed");
        }
        write!(f, "failed {}", self.failed.join("; "))?;
        match &self.void {
            Some(disturbance) => write!(f, " (void: {disturbance})"),
            None => Ok(()),
        }
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

impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.passed { "ok    " } else { "FAILED" };
        let (id, about, seconds) = (self.id, self.about, self.duration_s);
        writeln!(f, "{verdict} {id:<12} {about} ({seconds:.1} s)")?;
        let earlier = self.attempts.len().saturating_sub(1);
        for (index, attempt) in self.attempts[..earlier].iter().enumerate() {
            writeln!(f, "         attempt {}: {attempt}", index + 1)?;
        }
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
