//! The series of all metrics.

use std::borrow::Cow;

use crate::family;
use crate::family::{
    ExportedSeries, ExportedValue, LabelKey, MetricDefinition, MetricFamily, MetricLabel,
};
use crate::metrics::{
    CpuTotals, CurrentRun, HttpPeer, LoadMetrics, LoadTarget, PhaseTotals, RunState, phase_name,
};

/// Collects the series of all metrics, in the order of the catalog.
struct FamilyBuilder<'a> {
    families: Vec<MetricFamily<'a>>,
}

impl<'a> FamilyBuilder<'a> {
    fn add(
        &mut self,
        definition: &'static MetricDefinition,
        labels: impl IntoIterator<Item = MetricLabel<'a>>,
        value: ExportedValue<'a>,
    ) {
        let series = ExportedSeries {
            labels: labels.into_iter().collect(),
            value,
        };
        let family = self
            .families
            .iter_mut()
            .find(|family| std::ptr::eq(family.definition, definition));
        if let Some(family) = family {
            family.series.push(series);
        }
    }

    fn number(
        &mut self,
        definition: &'static MetricDefinition,
        base: &[MetricLabel<'a>],
        label: Option<(LabelKey, impl Into<Cow<'a, str>>)>,
        value: u64,
    ) {
        let label = label.map(|(key, value)| (key, value.into()));
        let labels = base.iter().cloned().chain(label);
        self.add(definition, labels, ExportedValue::Number(value as f64));
    }
}

/// Only the base labels.
const NONE: Option<(LabelKey, &str)> = None;

/// Returns all metrics that have series.
pub(crate) fn families<'a>(metrics: &'a LoadMetrics) -> Vec<MetricFamily<'a>> {
    let family = |definition: &&'static MetricDefinition| MetricFamily {
        definition,
        series: Vec::new(),
    };
    let mut all = FamilyBuilder {
        families: family::CATALOG.iter().map(family).collect(),
    };
    let version = Some((LabelKey::Version, env!("CARGO_PKG_VERSION")));
    all.number(&family::BUILD_INFO, &[], version, 1);
    all.number(&family::RUNS, &[], NONE, metrics.runs);
    let current = metrics.run.as_ref().map_or(RunState::Idle, |run| run.state);
    for state in RunState::ALL {
        let label = Some((LabelKey::State, state.name()));
        let is_current = u64::from(state == current);
        all.number(&family::RUN_STATE, &[], label, is_current);
    }
    if let Some(run) = &metrics.run {
        let totals = metrics.targets.get(&run.target);
        add_run(
            &mut all,
            run,
            totals.and_then(|totals| totals.peer.as_ref()),
        );
    }
    for (target, totals) in &metrics.targets {
        let labels = target_labels(target);
        let peer = totals.peer.as_ref();
        for (phase, totals) in &totals.phases {
            let phase = (LabelKey::Phase, phase_name(*phase).into());
            let labels: Vec<MetricLabel<'a>> = labels.iter().cloned().chain([phase]).collect();
            add_phase(&mut all, peer, &labels, totals);
        }
        let roles = [
            ("client", Some(&totals.client_cpu)),
            ("server", totals.server_cpu.as_ref()),
            ("store", totals.store_cpu.as_ref()),
        ];
        for (role, cpu) in roles {
            if let Some(cpu) = cpu {
                add_cpu(&mut all, &labels, role, cpu);
            }
        }
    }
    all.families.retain(|family| !family.series.is_empty());
    all.families
}

fn target_labels(target: &LoadTarget) -> Vec<MetricLabel<'_>> {
    let mut labels = vec![
        (LabelKey::System, Cow::from(&*target.system)),
        (LabelKey::Workload, Cow::from(&*target.workload)),
    ];
    if let Some(trial) = &target.trial {
        labels.push((LabelKey::Trial, Cow::from(&**trial)));
    }
    labels
}

/// Returns the labels that OpenTelemetry's conventions require for HTTP clients.
fn peer_labels(peer: Option<&HttpPeer>) -> impl Iterator<Item = MetricLabel<'_>> {
    peer.into_iter().flat_map(|peer| {
        let port = peer.port.map(|port| port.to_string().into());
        [
            (LabelKey::Method, Cow::from(&*peer.method)),
            (LabelKey::ServerAddress, Cow::from(&*peer.address)),
        ]
        .into_iter()
        .chain(port.map(|port| (LabelKey::ServerPort, port)))
    })
}

fn add_run<'a>(all: &mut FamilyBuilder<'a>, run: &'a CurrentRun, peer: Option<&'a HttpPeer>) {
    let labels = target_labels(&run.target);
    let with_peer: Vec<_> = labels.iter().cloned().chain(peer_labels(peer)).collect();
    all.number(&family::IN_FLIGHT, &with_peer, NONE, run.in_flight);
    all.number(
        &family::OPEN_CONNECTIONS,
        &labels,
        NONE,
        run.open_connections,
    );
    let model = if run.is_open { "open" } else { "closed" };
    let info = [
        (LabelKey::Model, model.into()),
        (LabelKey::Process, run.id.process.to_string().into()),
        (LabelKey::Attempt, run.id.attempt.to_string().into()),
    ];
    let info = labels.into_iter().chain(info);
    all.add(&family::RUN_INFO, info, ExportedValue::Number(1.0));
}

fn add_phase<'a>(
    all: &mut FamilyBuilder<'a>,
    peer: Option<&'a HttpPeer>,
    labels: &[MetricLabel<'a>],
    totals: &'a PhaseTotals,
) {
    let counts = &totals.counts;
    for (definition, value) in [
        (&family::INTENDED, counts.intended),
        (&family::SENT, counts.sent),
        (&family::GOOD, totals.good),
        (&family::RECONNECTS, counts.reconnects),
        (&family::CONNECTIONS_OPENED, totals.connects),
    ] {
        all.number(definition, labels, NONE, value);
    }
    for (outcome, value) in [
        ("ok", counts.ok),
        ("rejected", counts.rejected),
        ("wrong", counts.wrong),
        ("malformed", counts.malformed),
        ("reset", counts.reset),
        ("timed_out", counts.timed_out),
        ("in_flight_at_end", counts.in_flight_at_end),
        ("unsent", counts.unsent),
        ("connect_failed", counts.connect_failed),
    ] {
        let label = Some((LabelKey::Outcome, outcome));
        all.number(&family::REQUESTS, labels, label, value);
    }
    for (status, &value) in &counts.statuses {
        let label = Some((LabelKey::Status, status.to_string()));
        all.number(&family::RESPONSES, labels, label, value);
    }
    for (direction, value) in [
        ("transmit", totals.bytes_sent),
        ("receive", totals.bytes_received),
    ] {
        let label = Some((LabelKey::Direction, direction));
        all.number(&family::HTTP_BYTES, labels, label, value);
    }
    let response = ExportedValue::Times(&totals.response);
    all.add(&family::RESPONSE_TIME, labels.iter().cloned(), response);
    let service = ExportedValue::Times(&totals.service);
    let with_peer = labels.iter().cloned().chain(peer_labels(peer));
    all.add(&family::SERVICE_TIME, with_peer, service);
}

fn add_cpu<'a>(
    all: &mut FamilyBuilder<'a>,
    labels: &[MetricLabel<'a>],
    role: &'static str,
    cpu: &CpuTotals,
) {
    for (mode, seconds) in [("user", cpu.user_s), ("system", cpu.system_s)] {
        let own = [
            (LabelKey::Role, Cow::from(role)),
            (LabelKey::CpuMode, Cow::from(mode)),
        ];
        let labels = labels.iter().cloned().chain(own);
        all.add(&family::CPU, labels, ExportedValue::Number(seconds));
    }
}
