//! Findings of the rules: possible causes, causes ruled out, and missing evidence.

use floodmark_record::cause::Cause;
use floodmark_record::path::{Actor, PathStep, StepKind};
use floodmark_record::verdict::RuledOut;

use crate::text::percent;

/// How conclusive the evidence for a cause is. Candidates are ranked from most to least conclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum EvidenceRank {
    /// A counter identifies the affected requests.
    Counted,
    /// Most requests were observed in one place, and no other cause explains this.
    Located,
    /// A mechanism that saturates the server's CPU. The mechanism ranks above the CPU as a cause.
    Mechanism,
    /// A saturated resource.
    Saturated,
    /// The cause explains where requests wait.
    Waiting,
    /// The cause affects less than half of the responses. Another cause limits the rest.
    Minor,
    /// Nothing is saturated. The load demands less than the server can deliver.
    Demand,
    /// A part of the CPU time per request. Named only beside a saturated CPU, never as the limit.
    Cost,
}

impl EvidenceRank {
    /// Returns a lower rank if the cause affects only a minor part of the run.
    pub fn unless_minor(self, is_minor: bool) -> Self {
        if is_minor { EvidenceRank::Minor } else { self }
    }
}

/// A cause that may limit the run.
#[derive(Clone)]
pub struct Candidate {
    pub rank: EvidenceRank,
    /// Used share of the limit, or 1 if the share cannot be computed.
    pub utilization: f64,
    /// Upper bound of throughput in requests per second.
    pub limit_per_s: Option<f64>,
    /// Summary in one line.
    pub summary: String,
    /// Figures with their sources.
    pub evidence: Vec<String>,
    pub next: String,
    /// Steps from the requests in flight to the limit.
    pub path: Vec<PathStep>,
}

impl Candidate {
    /// Creates a candidate with a utilization of 1 and no upper bound of throughput.
    pub fn new(
        rank: EvidenceRank,
        summary: impl Into<String>,
        evidence: impl IntoIterator<Item: Into<Option<String>>>,
        next: impl Into<String>,
    ) -> Self {
        Candidate {
            rank,
            utilization: 1.0,
            limit_per_s: None,
            summary: summary.into(),
            evidence: evidence.into_iter().filter_map(Into::into).collect(),
            next: next.into(),
            path: Vec::new(),
        }
    }

    /// Creates a candidate for the main consumer of the server's CPU time.
    pub fn consumer(
        consumer: StepKind,
        summary: impl Into<String>,
        evidence: impl IntoIterator<Item: Into<Option<String>>>,
        next: impl Into<String>,
    ) -> Self {
        Candidate::new(EvidenceRank::Mechanism, summary, evidence, next)
            .at([(StepKind::Cpu, Actor::Server), (consumer, Actor::Server)])
    }

    /// Creates a candidate for a part of the runtime that takes a share of the server's CPU time.
    pub fn cost(share: f64, part: &str, figure: String, consumer: StepKind) -> Self {
        let summary = format!("{part} takes {} of the server's CPU time", percent(share));
        Candidate {
            rank: EvidenceRank::Cost,
            ..Candidate::consumer(consumer, summary, [figure], "").with_share(share)
        }
    }

    /// Sets the path's steps up to the limit. Their source is the first line of evidence.
    pub fn at<const N: usize>(self, steps: [(StepKind, Actor); N]) -> Self {
        let basis = self.evidence.first().cloned().unwrap_or_default();
        let step = |(kind, who)| PathStep::new(kind, who, basis.clone());
        self.via(steps.map(step).to_vec())
    }

    /// Sets the steps from the requests in flight to the limit.
    pub fn via(self, path: Vec<PathStep>) -> Self {
        Candidate { path, ..self }
    }

    /// Inserts steps before the path.
    pub fn behind(mut self, steps: impl IntoIterator<Item = PathStep>) -> Self {
        self.path.splice(0..0, steps);
        self
    }

    /// Sets the upper bound of throughput in requests per second.
    pub fn with_limit(mut self, limit_per_s: Option<f64>) -> Self {
        self.limit_per_s = limit_per_s;
        self
    }

    /// Sets the used share of the limit.
    pub fn with_share(mut self, utilization: f64) -> Self {
        self.utilization = utilization;
        self
    }

    /// Sets the used share of the resource and the resulting upper bound of throughput.
    pub fn with_utilization(self, share: f64, throughput_per_s: f64) -> Self {
        self.with_share(share)
            .with_limit(Some(throughput_per_s / share))
    }

    /// Returns the finding that this cause may have limited the run.
    pub fn found(self) -> Option<Finding> {
        Some(Finding::Limit(self))
    }
}

/// The result of a rule for one cause.
pub enum Finding {
    Limit(Candidate),
    /// The figure that rules out the cause.
    RuledOut(String),
    /// The evidence that was not available.
    NotAvailable(String),
}

/// Returns the finding that a figure rules out the cause.
pub fn ruled_out(figure: impl Into<String>) -> Option<Finding> {
    Some(Finding::RuledOut(figure.into()))
}

/// Returns the finding that evidence is missing.
pub fn not_available(evidence: impl Into<String>) -> Option<Finding> {
    Some(Finding::NotAvailable(evidence.into()))
}

/// The findings of all rules.
#[derive(Clone, Default)]
pub struct Findings {
    pub candidates: Vec<(Cause, Candidate)>,
    pub ruled_out: Vec<RuledOut>,
    /// Causes that the counters suggest but that a perturbation contradicts.
    pub contradicted: Vec<RuledOut>,
    /// Descriptions of evidence that was not available.
    pub unseen: Vec<String>,
}
