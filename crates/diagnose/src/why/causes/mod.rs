//! The causes that a verdict can name, one file each, and the table of their properties
//! (docs/decisions/0051-causes.md).

mod bandwidth;
mod client_cpu;
mod client_fds;
mod client_stall;
mod compression;
mod concurrency;
mod connection_pool;
mod connection_storm;
mod cpu_quota;
mod delayed_ack;
mod disk;
mod ephemeral_ports;
mod errors;
mod flow_control_window;
mod gc;
mod jit;
mod keepalive_limit;
mod listen_backlog;
mod max_connections;
mod none;
mod offered_rate;
mod one_connection;
mod other_processes;
mod proxy_hop;
mod rate_limiter;
mod serialised;
mod server_cpu;
mod server_cpu_one_thread;
mod server_fds;
mod server_stall;
mod shared_cpu;
mod steal;
mod store_commit;
mod store_cpu;
mod store_lock;
mod stream_limit;
mod sync_logging;
mod tls_handshake;
mod unknown;
mod worker_pool;

// The files of the causes import these names with `use super::*`.
use floodmark_record::Metric;
use floodmark_record::cause::Cause;
use floodmark_record::metric::{JvmFigure, Role};
use floodmark_record::path::{Actor, StepKind};
use floodmark_record::plan::ConnectionUse;
use floodmark_record::run::Run;
use floodmark_record::tuning::KnobKind;
use floodmark_record::units::{show_count, show_ns};
use floodmark_record::verdict::{RuledOut, Verdict};

use super::candidate::{Candidate, EvidenceRank, Finding, Findings, not_available, ruled_out};
use super::facts::{RunFacts, used};
use super::gain::{self, GainModel};
use super::graph::full_store_pool;
use super::proof::{self, CauseClass};
use super::thresholds::{CONTENDED, MOST, NOTICEABLE, RARE, SATURATED};
use crate::suspicion::{RecentFigures, Suspicion};
use crate::text::{per_s, percent, plural, show_available, show_idle, show_us};
use crate::tuning::FullPool;

/// The specification of a cause: how to detect it, and what follows from it.
pub(crate) struct CauseSpec {
    pub(crate) cause: Cause,
    pub(crate) place: Place,
    detect: fn(&RunFacts<'_>) -> Option<Finding>,
    /// Detects an interruption of the run. Averages over an interrupted run describe neither the
    /// interruption nor normal operation, so no other cause is evaluated.
    pub(super) interrupts: Option<fn(&RunFacts<'_>) -> Option<Candidate>>,
    /// Causes that explain this one. Chains of explanations contain no cycle.
    explained_by: &'static [Cause],
    /// Returns the effect on the candidate if one of the causes in `explained_by` explains it.
    explanation: fn(&RunFacts<'_>, &Candidate) -> Option<Effect>,
    /// Whether only loads over HTTP/2 can have the cause.
    pub(super) needs_http2: bool,
    /// Whether the cause limits throughput.
    pub(crate) is_limit: bool,
    /// Whether the outcomes of requests show the cause, even in a very short run.
    pub(super) shows_at_once: bool,
    /// Name of the client error that the cause produces, as recorded in `errors`.
    pub(crate) client_error: Option<&'static str>,
    /// The class that determines what the cause predicts for perturbations; `None` if no
    /// perturbation can test the cause.
    pub(super) class: Option<CauseClass>,
    pub(super) gain: GainModel,
    pub(crate) tuning: Tuning,
    /// Returns the suspicion that the live view shows if the last seconds of a load suggest the
    /// cause.
    pub(crate) live: Option<fn(&RecentFigures) -> Option<Suspicion>>,
}

/// Effect on a candidate that another cause explains.
pub(super) enum Effect {
    /// A figure rules the candidate out.
    RuledOut(String),
    /// The candidate accounts for only a minor part of the run.
    Minor,
}

/// What the verdict on a setting says about the sizes of pools.
pub(crate) enum Tuning {
    /// The cause says nothing about the sizes of pools, for example because it only disturbs a
    /// measurement.
    Silent,
    /// Larger pools do not remove the cause.
    Stop,
    /// The returned pool is full.
    Raise(fn(&Verdict) -> FullPool),
}

/// Place of a cause, such as the client or the store. The variants are in the order of the guide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    Client,
    ClientAndServer,
    OtherPrograms,
    Network,
    Accepting,
    Server,
    Store,
    Responses,
    NoLimit,
}

impl Place {
    const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::ClientAndServer => "client and server",
            Self::OtherPrograms => "other programs",
            Self::Network => "network path",
            Self::Accepting => "accepting connections",
            Self::Server => "server",
            Self::Store => "store",
            Self::Responses => "responses",
            Self::NoLimit => "no limit",
        }
    }
}

impl CauseSpec {
    /// Creates a cause that limits throughput and is found by `detect`. All other properties have
    /// their defaults.
    const fn new(cause: Cause, place: Place, detect: fn(&RunFacts<'_>) -> Option<Finding>) -> Self {
        CauseSpec {
            cause,
            place,
            detect,
            interrupts: None,
            explained_by: &[],
            explanation: |_, _| None,
            needs_http2: false,
            is_limit: true,
            shows_at_once: false,
            client_error: None,
            class: None,
            gain: GainModel::None,
            tuning: Tuning::Silent,
            live: None,
        }
    }

    /// Returns whether a run can have the cause: causes in the store need a store, and some causes
    /// need HTTP/2.
    pub(super) fn is_possible(&self, run: &Run) -> bool {
        let has_store = run.store.is_some();
        let is_http2 = run.plan.http != floodmark_record::plan::Http::V1;
        (has_store || self.place != Place::Store) && (is_http2 || !self.needs_http2)
    }

    /// Returns whether `detect` finds the cause and no perturbation contradicts it, regardless of
    /// its explanations.
    fn is_detected(&self, facts: &RunFacts<'_>) -> bool {
        match (self.detect)(facts) {
            Some(Finding::Limit(candidate)) => self.contradiction(facts, &candidate).is_none(),
            _ => false,
        }
    }

    /// Returns the measurement that rules out a candidate for this cause, if a perturbation
    /// contradicts it.
    pub(super) fn contradiction(
        &self,
        facts: &RunFacts<'_>,
        candidate: &Candidate,
    ) -> Option<String> {
        let gain = gain::of(facts, self.gain, &candidate.path);
        proof::contradicting_figure(facts.run, self.cause, gain.as_ref())
    }

    /// Detects the cause. If another cause explains it, applies the effect of that explanation.
    fn find(&self, facts: &RunFacts<'_>) -> Option<Finding> {
        let mut candidate = match (self.detect)(facts)? {
            Finding::Limit(candidate) => candidate,
            other => return Some(other),
        };
        match (self.explanation)(facts, &candidate) {
            Some(Effect::RuledOut(figure)) => return Some(Finding::RuledOut(figure)),
            Some(Effect::Minor) => candidate.rank = EvidenceRank::Minor,
            None => {}
        }
        Some(Finding::Limit(candidate))
    }
}

/// All causes. The order determines how ruled-out causes are listed, and decides between candidates
/// with equal evidence.
pub(crate) static ALL: [&CauseSpec; 40] = [
    &none::SPEC,
    &offered_rate::SPEC,
    &rate_limiter::SPEC,
    &errors::SPEC,
    &server_stall::SPEC,
    &client_cpu::SPEC,
    &client_stall::SPEC,
    &ephemeral_ports::SPEC,
    &client_fds::SPEC,
    &listen_backlog::SPEC,
    &connection_storm::SPEC,
    &keepalive_limit::SPEC,
    &cpu_quota::SPEC,
    &steal::SPEC,
    &other_processes::SPEC,
    &shared_cpu::SPEC,
    &one_connection::SPEC,
    &server_cpu_one_thread::SPEC,
    &server_cpu::SPEC,
    &jit::SPEC,
    &gc::SPEC,
    &tls_handshake::SPEC,
    &compression::SPEC,
    &store_cpu::SPEC,
    &store_lock::SPEC,
    &store_commit::SPEC,
    &server_fds::SPEC,
    &max_connections::SPEC,
    &proxy_hop::SPEC,
    &delayed_ack::SPEC,
    &bandwidth::SPEC,
    &flow_control_window::SPEC,
    &stream_limit::SPEC,
    &concurrency::SPEC,
    &serialised::SPEC,
    &worker_pool::SPEC,
    &connection_pool::SPEC,
    &sync_logging::SPEC,
    &disk::SPEC,
    &unknown::SPEC,
];

pub(super) use unknown::unknown;

/// Returns the specification of a cause.
pub(crate) fn spec(cause: Cause) -> &'static CauseSpec {
    ALL.iter()
        .find(|spec| spec.cause == cause)
        .expect("a test checks that each cause has a specification")
}

/// Returns whether a cause limits throughput.
#[must_use]
pub fn is_limit(cause: Cause) -> bool {
    spec(cause).is_limit
}

/// Detects an interruption of the run.
pub(super) fn interruption(facts: &RunFacts<'_>) -> Option<(Cause, Candidate)> {
    ALL.iter()
        .find_map(|spec| Some((spec.cause, spec.interrupts?(facts)?)))
}

/// Detects all causes.
pub(super) fn find(facts: &RunFacts<'_>) -> Findings {
    let mut findings = Findings::default();
    for spec in ALL {
        let cause = spec.cause;
        match spec.find(facts) {
            None => {}
            Some(Finding::Limit(candidate)) => findings.candidates.push((cause, candidate)),
            Some(Finding::RuledOut(figure)) => {
                findings.ruled_out.push(RuledOut { cause, figure });
            }
            Some(Finding::NotAvailable(evidence)) => findings.unseen.push(evidence),
        }
    }
    findings.unseen.extend(facts.service().unseen.clone());
    findings
}

/// Returns all causes in the order of the guide. Each item contains the place, the cause, and the
/// causes that explain it.
pub fn guide() -> impl Iterator<Item = (&'static str, Cause, &'static [Cause])> {
    let mut specs = ALL;
    specs.sort_by_key(|spec| spec.place);
    let specs = specs.into_iter();
    specs.map(|spec| (spec.place.name(), spec.cause, spec.explained_by))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_one_specification() {
        for cause in Cause::ALL {
            let specs = ALL.iter().filter(|spec| spec.cause == cause);
            assert_eq!(specs.count(), 1, "{cause}");
        }
    }

    #[test]
    fn no_cause_explains_itself_through_others() {
        /// Returns whether a chain of explanations leads from one cause to another.
        fn leads(from: Cause, to: Cause, depth: usize) -> bool {
            let mut winners = spec(from).explained_by.iter();
            depth > 0 && winners.any(|winner| *winner == to || leads(*winner, to, depth - 1))
        }
        for cause in Cause::ALL {
            assert!(!leads(cause, cause, ALL.len()), "{cause}");
        }
    }

    #[test]
    fn three_causes_are_no_limits() {
        let others = Cause::ALL.into_iter().filter(|cause| !is_limit(*cause));
        let expected = [Cause::None, Cause::OfferedRate, Cause::Unknown];
        assert_eq!(others.collect::<Vec<_>>(), expected);
    }
}
