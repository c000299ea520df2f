//! Findings of rules: causes that may limit a run, causes ruled out, and missing evidence.

use floodmark_record::cause::Cause;

/// How conclusive the evidence for a cause is, most conclusive first. Candidates are ranked by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EvidenceRank {
    /// A counter names the affected requests.
    Counted,
    /// Most requests were observed at one place that nothing else explains.
    Located,
    /// A mechanism that uses up the server's CPU; named before it.
    Mechanism,
    /// A saturated resource.
    Saturated,
    /// Requests wait, and this cause explains where.
    Waiting,
    /// Affects less than half of the responses; another cause limits the rest.
    Minor,
    /// Nothing is saturated; the load requests less than the server can deliver.
    Demand,
}

impl EvidenceRank {
    /// Returns a lower rank if the cause affects only a minor part of the run.
    pub fn unless_minor(self, is_minor: bool) -> Self {
        if is_minor { EvidenceRank::Minor } else { self }
    }
}

/// A cause that may limit the run.
#[derive(Debug)]
pub struct Candidate {
    pub rank: EvidenceRank,
    /// Used share of the limit; 1 if it cannot be computed.
    pub utilization: f64,
    /// Upper bound of throughput, requests per second.
    pub limit_per_s: Option<f64>,
    /// One line.
    pub summary: String,
    /// Figures with their sources.
    pub evidence: Vec<String>,
    pub next: String,
}

impl Candidate {
    /// Returns a candidate with utilization 1 and no limit.
    pub fn new(
        rank: EvidenceRank,
        summary: impl Into<String>,
        evidence: Vec<String>,
        next: impl Into<String>,
    ) -> Self {
        Candidate {
            rank,
            utilization: 1.0,
            limit_per_s: None,
            summary: summary.into(),
            evidence,
            next: next.into(),
        }
    }

    /// Sets the upper bound of throughput, requests per second.
    pub fn with_limit(self, limit_per_s: Option<f64>) -> Self {
        Candidate {
            limit_per_s,
            ..self
        }
    }

    /// Sets the used share of the resource, and the upper bound of throughput that follows from it.
    pub fn with_utilization(self, share: f64, throughput_per_s: f64) -> Self {
        Candidate {
            utilization: share,
            ..self.with_limit(Some(throughput_per_s / share))
        }
    }

    /// Returns the finding that this cause may limit the run.
    pub fn found(self) -> Option<Finding> {
        Some(Finding::Limit(self))
    }
}

/// What a rule finds out about a cause.
#[derive(Debug)]
pub enum Finding {
    Limit(Candidate),
    /// The figure that excludes the cause.
    RuledOut(String),
    /// Evidence that was not available.
    NotAvailable(String),
}

/// Returns the finding that a figure excludes the cause.
pub fn ruled_out(figure: impl Into<String>) -> Option<Finding> {
    Some(Finding::RuledOut(figure.into()))
}

/// Returns the finding that evidence was not available.
pub fn not_available(evidence: impl Into<String>) -> Option<Finding> {
    Some(Finding::NotAvailable(evidence.into()))
}

/// The findings of all rules.
#[derive(Debug, Default)]
pub struct Findings {
    pub candidates: Vec<(Cause, Candidate)>,
    pub ruled_out: Vec<(Cause, String)>,
    /// Evidence that was not available.
    pub unseen: Vec<String>,
}

impl Findings {
    /// Adds what a rule found out about a cause.
    pub fn add(&mut self, cause: Cause, finding: Option<Finding>) {
        match finding {
            None => {}
            Some(Finding::Limit(candidate)) => self.candidates.push((cause, candidate)),
            Some(Finding::RuledOut(figure)) => self.ruled_out.push((cause, figure)),
            Some(Finding::NotAvailable(evidence)) => self.unseen.push(evidence),
        }
    }
}
