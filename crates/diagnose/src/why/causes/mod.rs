//! The causes that a verdict can name, one file each, and the table of their properties
//! (docs/decisions/0051-causes.md).

use floodmark_record::cause::Cause;
use floodmark_record::verdict::Verdict;

use super::candidate::{Candidate, EvidenceRank, Finding, Findings};
use super::facts::RunFacts;
use super::gain::GainModel;
use super::graph::Service;
use super::proof::CauseClass;
use crate::suspicion::RecentFigures;
use crate::tuning::FullPool;

/// A cause: how a run shows it, and what follows from it.
pub(crate) struct CauseSpec {
    pub(crate) cause: Cause,
    pub(crate) place: Place,
    pub(crate) detect: Detect,
    /// Detects an interruption of the run. Averages over an interrupted run describe neither the
    /// interruption nor normal operation, so no other cause is evaluated.
    pub(super) interrupts: Option<fn(&RunFacts<'_>) -> Option<Candidate>>,
    /// Causes that explain this one. The relations have no cycle.
    pub(super) explained_by: &'static [Explanation],
    /// Whether the cause limits throughput.
    pub(crate) is_limit: bool,
    /// Whether the outcomes of requests show the cause, however short the run is.
    pub(super) shows_at_once: bool,
    /// Name of the client error that the cause produces, as recorded in `errors`.
    pub(crate) client_error: Option<&'static str>,
    /// What the cause predicts for perturbations; `None` if no perturbation can test it.
    pub(super) class: Option<CauseClass>,
    pub(super) gain: GainModel,
    pub(crate) tuning: Tuning,
    /// The line that the live view shows if the last seconds of a load suggest the cause.
    pub(crate) live: Option<fn(&RecentFigures) -> Option<String>>,
}

/// How a cause is found.
pub(crate) enum Detect {
    /// From the figures of the run.
    Figures(fn(&RunFacts<'_>) -> Option<Finding>),
    /// From the figures, and from what limits the number of requests in service.
    Waits(fn(&RunFacts<'_>, &Service) -> Option<Finding>),
    /// Not found among the others: an interruption of the run, or the verdict if there is no other.
    Apart,
}

/// Causes that explain another one.
pub(super) struct Explanation {
    pub(super) by: &'static [Cause],
    /// Returns the effect if one of the causes explains this candidate.
    pub(super) when: fn(&RunFacts<'_>, &Service, &Candidate) -> Option<Effect>,
}

/// Effect on a candidate that another cause explains.
pub(super) enum Effect {
    /// A figure rules the candidate out.
    RuledOut(String),
    /// The candidate accounts for a minor part of the run.
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

/// Where a cause is, as in the guide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// All places, in the order of the guide.
    const ALL: [Self; 9] = [
        Self::Client,
        Self::ClientAndServer,
        Self::OtherPrograms,
        Self::Network,
        Self::Accepting,
        Self::Server,
        Self::Store,
        Self::Responses,
        Self::NoLimit,
    ];

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
    const fn new(cause: Cause, place: Place, detect: Detect) -> Self {
        CauseSpec {
            cause,
            place,
            detect,
            interrupts: None,
            explained_by: &[],
            is_limit: true,
            shows_at_once: false,
            client_error: None,
            class: None,
            gain: GainModel::None,
            tuning: Tuning::Silent,
            live: None,
        }
    }

    /// Returns the line of the live view for a load that looks as if this cause limited it.
    fn suspicion(&self, what: &str, text: &str) -> String {
        format!("looks {what} ({}): {text}", self.cause)
    }

    /// Detects the cause, and applies the causes that explain it.
    fn find(&self, facts: &RunFacts<'_>, service: &Service) -> Option<Finding> {
        let finding = match self.detect {
            Detect::Figures(detect) => detect(facts),
            Detect::Waits(detect) => detect(facts, service),
            Detect::Apart => None,
        }?;
        let Finding::Limit(mut candidate) = finding else {
            return Some(finding);
        };
        for explanation in self.explained_by {
            match (explanation.when)(facts, service, &candidate) {
                Some(Effect::RuledOut(figure)) => return Some(Finding::RuledOut(figure)),
                Some(Effect::Minor) => candidate.rank = EvidenceRank::Minor,
                None => {}
            }
        }
        Some(Finding::Limit(candidate))
    }
}

/// Declares the modules of the causes and the table of their specifications.
macro_rules! causes {
    ($($name:ident),* $(,)?) => {
        $(mod $name;)*

        /// All causes. The order determines how ruled-out causes are listed, and decides between
        /// candidates with equal evidence.
        pub(crate) static ALL: [&CauseSpec; [$(stringify!($name)),*].len()] = [$(&$name::SPEC),*];
    };
}

causes! {
    none,
    offered_rate,
    rate_limiter,
    errors,
    server_stall,
    client_cpu,
    client_stall,
    ephemeral_ports,
    client_fds,
    listen_backlog,
    keepalive_limit,
    cpu_quota,
    steal,
    other_processes,
    shared_cpu,
    server_cpu_one_thread,
    server_cpu,
    jit,
    gc,
    tls_handshake,
    compression,
    store_cpu,
    store_lock,
    store_commit,
    server_fds,
    max_connections,
    proxy_hop,
    delayed_ack,
    bandwidth,
    concurrency,
    serialised,
    worker_pool,
    connection_pool,
    sync_logging,
    disk,
    unknown,
}

pub(super) use unknown::candidate as unknown;

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
    let service = Service::of(facts);
    let mut findings = Findings::default();
    for spec in ALL {
        findings.add(spec.cause, spec.find(facts, &service));
    }
    findings.unseen.extend(service.unseen);
    findings
}

/// A cause for the guide.
#[derive(Debug)]
pub struct GuideRow {
    /// Where the cause is.
    pub place: &'static str,
    /// The cause.
    pub cause: Cause,
    /// Causes that explain it.
    pub explained_by: Vec<Cause>,
}

/// Returns all causes, sorted by place.
pub fn guide() -> impl Iterator<Item = GuideRow> {
    Place::ALL.into_iter().flat_map(|place| {
        let specs = ALL.iter().filter(move |spec| spec.place == place);
        specs.map(move |spec| GuideRow {
            place: place.name(),
            cause: spec.cause,
            explained_by: (spec.explained_by.iter())
                .flat_map(|explanation| explanation.by)
                .copied()
                .collect(),
        })
    })
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
            let mut winners = spec(from)
                .explained_by
                .iter()
                .flat_map(|explanation| explanation.by);
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
