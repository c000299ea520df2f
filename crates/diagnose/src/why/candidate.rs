//! What a rule says.

use floodmark_record::cause::Cause;

/// How a cause shows itself, the most telling first: candidates are ranked by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shown {
    /// It counts its own victims.
    Counted,
    /// Most requests were seen at a place that nothing else explains.
    Placed,
    /// A mechanism that is named before the resource that it takes ([`Candidate::takes`]).
    Within,
    /// A resource that is full.
    Full,
    /// Requests wait at a place that it stands behind.
    Waiting,
    /// It takes less than half of what is answered away: what limits the rest takes more.
    Lesser,
    /// Nothing is wrong: less is asked for than could be had.
    Asked,
}

/// A cause that a rule found.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub cause: Cause,
    pub shown: Shown,
    /// The share of its limit that is used, 1 where that cannot be worked out.
    pub used: f64,
    /// Most requests per second that it allows.
    pub limit_per_s: Option<f64>,
    /// One line in plain words.
    pub summary: String,
    /// Figures with their counters.
    pub evidence: Vec<String>,
    /// What to do next.
    pub next: String,
    /// What it takes, where it is a mechanism.
    pub takes: Option<Cause>,
}

/// What the rules found, and what they found it not to be.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    pub candidates: Vec<Candidate>,
    /// Causes with the figure by which they are not.
    pub ruled_out: Vec<(Cause, String)>,
    /// What could not be seen.
    pub unseen: Vec<String>,
}

impl Findings {
    pub fn found(&mut self, candidate: Candidate) {
        self.candidates.push(candidate);
    }

    pub fn not(&mut self, cause: Cause, why: impl Into<String>) {
        self.ruled_out.push((cause, why.into()));
    }
}
