//! What a case found.

use std::fmt;

use serde::Serialize;

/// The report of one case.
#[derive(Debug, Clone, Serialize)]
pub struct CaseReport {
    /// Its name, such as `T2/short`.
    pub id: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// Whether every finding held.
    pub passed: bool,
    /// What became of each go, in order.
    pub goes: Vec<Go>,
    /// How long it took with its repetitions, seconds.
    pub duration_s: f64,
    /// What was compared, in the last repetition.
    pub findings: Vec<Finding>,
    /// Figures that nothing is asserted of.
    pub notes: Vec<String>,
}

/// One go of a case.
#[derive(Debug, Clone, Serialize)]
pub struct Go {
    /// The findings that were missed; empty where it passed.
    pub missed: Vec<String>,
    /// What of the machine explains a miss, so that it decides nothing.
    pub set_aside: Option<String>,
}

/// One comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// Of what.
    pub what: String,
    /// What it had to be.
    pub expected: String,
    /// What it was.
    pub got: String,
    /// Whether it was.
    pub held: bool,
    /// Whether it is a count or the like, which no disturbance of the machine explains.
    pub exact: bool,
}

/// One run of a case.
#[derive(Debug, Default)]
pub struct Trial {
    pub findings: Vec<Finding>,
    pub notes: Vec<String>,
    /// What of the machine may explain a miss.
    pub disturbance: Option<String>,
}

impl Trial {
    /// A condition, with what was seen.
    pub fn holds(&mut self, what: &str, held: bool, got: impl Into<String>) {
        self.findings.push(Finding {
            what: what.to_owned(),
            expected: "holds".to_owned(),
            got: got.into(),
            held,
            exact: false,
        });
    }

    /// A condition that holds whatever the machine does, with what was seen.
    pub fn must(&mut self, what: &str, held: bool, got: impl Into<String>) {
        self.holds(what, held, got);
        if let Some(finding) = self.findings.last_mut() {
            finding.exact = true;
        }
    }

    /// Two whole numbers that must be the same, whatever the machine does.
    pub fn exactly(&mut self, what: &str, expected: u64, got: u64) {
        self.findings.push(Finding {
            what: what.to_owned(),
            expected: expected.to_string(),
            got: got.to_string(),
            held: expected == got,
            exact: true,
        });
    }

    /// A figure that must be within `tolerance` of the truth; one that was not measured is a miss.
    pub fn near(&mut self, what: &str, truth: f64, got: Option<f64>, tolerance: f64) {
        self.between(what, (truth - tolerance, truth + tolerance), got);
        if let (Some(finding), Some(got)) = (self.findings.last_mut(), got) {
            finding.expected = format!("{truth:.1} ± {tolerance:.1}");
            finding.got = format!("{got:.1} ({:+.1})", got - truth);
        }
    }

    /// A figure that must lie within bounds; one that was not measured is a miss.
    pub fn between(&mut self, what: &str, (low, high): (f64, f64), got: Option<f64>) {
        self.findings.push(Finding {
            what: what.to_owned(),
            expected: format!("{low:.1} to {high:.1}"),
            got: got.map_or("nothing".to_owned(), |got| format!("{got:.1}")),
            held: got.is_some_and(|got| (low..=high).contains(&got)),
            exact: false,
        });
    }

    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }
}

impl CaseReport {
    /// A line of how it ended, and one for each of its goes.
    #[must_use]
    pub fn outcome(&self) -> String {
        let (verdict, goes) = (if self.passed { "passed" } else { "FAILED" }, &self.goes);
        let mut text = format!("{} {verdict} at go {}\n", self.id, goes.len());
        for (index, go) in goes.iter().enumerate() {
            text.push_str(&format!("  go {}: {go}\n", index + 1));
        }
        text
    }
}

impl fmt::Display for Go {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.missed.is_empty() {
            return write!(f, "passed");
        }
        write!(f, "missed {}", self.missed.join("; "))?;
        match &self.set_aside {
            Some(why) => write!(f, " (set aside: {why})"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding {
            what,
            expected,
            got,
            ..
        } = self;
        if expected == "holds" {
            return write!(f, "{what}: {got}");
        }
        write!(f, "{what}: {got}, expected {expected}")
    }
}

impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.passed { "ok    " } else { "MISSED" };
        writeln!(
            f,
            "{verdict} {:<12} {} ({:.1} s)",
            self.id, self.about, self.duration_s
        )?;
        for (index, go) in self
            .goes
            .iter()
            .enumerate()
            .take(self.goes.len().saturating_sub(1))
        {
            writeln!(f, "         go {}: {go}", index + 1)?;
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
