//! Limits on opening and keeping connections.

use floodmark_record::Metric;
use floodmark_record::cause::Cause;
use floodmark_record::metric::{ListenerFigure, NetworkFigure, ProcessFigure, Role};
use floodmark_record::path::{Actor, StepKind};
use floodmark_record::plan::ConnectionUse;
use floodmark_record::run::Run;
use floodmark_record::units::{show_count, show_rate};

use crate::text::{per_s, percent, show_us};
use crate::why::candidate::{Candidate, EvidenceRank, Finding, Findings, not_available, ruled_out};
use crate::why::facts::{CpuUse, RunFacts, used};
use crate::why::thresholds::{LONG_WAIT_S, MOST, NOTICEABLE, RARE, REOPENED, SATURATED};

/// Time until a client repeats an unanswered SYN, in seconds (`TCP_TIMEOUT_INIT`, RFC 6298).
const SYN_RETRY_S: f64 = 1.0;

/// Detects an overflowing accept queue.
pub(in crate::why) fn backlog(facts: &RunFacts<'_>) -> Option<Finding> {
    let samples = &facts.samples;
    let overflows = samples.network(Role::Server, NetworkFigure::ListenOverflows);
    let overflows = overflows.filter(|_| samples.is_server_local());
    let opened = samples.network(Role::Client, NetworkFigure::ActiveOpens);
    let Some((overflows, opened)) = overflows.zip(opened) else {
        return not_available(
            "kernel counters of the server's host (ListenOverflows), which show a full accept queue",
        );
    };
    let queue_limit = samples.listener(ListenerFigure::AcceptQueueLimit);
    let queue = samples
        .listener(ListenerFigure::AcceptQueue)
        .zip(queue_limit);
    let queue_text = queue.map(|(length, limit)| {
        format!("accept queue: {length:.0} of {limit:.0} on average (sock_diag)")
    });
    // The counter covers all listeners on the host. A queue with room for all of the client's
    // connections cannot overflow.
    let has_room = queue.is_some_and(|(length, limit)| {
        limit >= 2.0 * f64::from(facts.run.plan.connections) && length < MOST * limit
    });
    if let Some(text) = queue_text.as_ref().filter(|_| has_room) {
        return ruled_out(text);
    }
    let figure = format!(
        "ListenOverflows: {}, ActiveOpens: {} (/proc/net/netstat, /proc/net/snmp)",
        per_s(overflows),
        per_s(opened)
    );
    if overflows == 0.0 || overflows / opened.max(1.0) < RARE {
        return ruled_out(figure);
    }
    // Connections that stay open wait only once. By Little's law, this is the number of connections
    // that wait for a retry.
    let waiting = overflows * SYN_RETRY_S;
    let planned = u64::from(facts.run.plan.connections);
    let stay_open = facts.run.plan.connection_use == ConnectionUse::Kept
        && facts.run.connections.opened <= 2 * planned;
    if stay_open && waiting < MOST * facts.in_flight.unwrap_or_default() {
        return ruled_out(figure);
    }
    // The queue overflows because the server has stopped accepting connections.
    let length = queue.map_or(0.0, |(length, _)| length);
    if accept_wait_s(facts, length) >= LONG_WAIT_S && facts.has_spare_cpu() {
        return ruled_out(figure);
    }
    let retransmits = samples.network(Role::Client, NetworkFigure::SynRetransmits);
    let retransmits = retransmits.map(|rate| {
        let rate = per_s(rate);
        format!("TCPSynRetrans: {rate} (SYNs retransmitted after 1 s or more)")
    });
    let limit = queue_limit
        .map(|n| format!(" ({n:.0})"))
        .unwrap_or_default();
    Candidate::new(
        EvidenceRank::Counted,
        format!("the server's accept queue{limit} overflows, and clients retry after 1 s"),
        [Some(figure), queue_text, retransmits]
            .into_iter()
            .flatten(),
        "raise the server's backlog and net.core.somaxconn, or keep connections",
    )
    .at([(StepKind::Backlog, Actor::Server)])
    .found()
}

/// Detects a server that closes connections after a certain number of requests.
pub(in crate::why) fn keepalive(facts: &RunFacts<'_>) -> Option<Finding> {
    let run = facts.run;
    if run.plan.connection_use != ConnectionUse::Kept {
        return None;
    }
    let (opened, sent) = (run.connections.opened, run.requests.sent);
    let reopened = opened.saturating_sub(u64::from(run.plan.connections));
    let per_request = reopened as f64 / sent.max(1) as f64;
    let mostly_broken = reopened <= 2 * broken_connections(run);
    // New connections cost CPU, so idle CPUs suggest another cause. Some servers can use only one
    // CPU.
    let is_idle =
        facts.has_spare_cpu() && (facts.server.is_none() || used(&facts.server) < SATURATED);
    let (opened_text, sent_text) = (show_count(opened), show_count(sent));
    let share = per_request / (per_request + REOPENED);
    // The client opens the same connections, and its CPU time shows that they are cheap compared
    // with the server's work.
    let server_us = run.server.as_ref().and_then(|s| s.cpu_us_per_request);
    let costs = run.client.cpu_us_per_request.zip(server_us);
    let are_cheap = costs.is_some_and(|(client, server)| client < NOTICEABLE * server);
    if share < NOTICEABLE || mostly_broken || is_idle || are_cheap {
        return ruled_out(format!(
            "{opened_text} connections for {sent_text} requests"
        ));
    }
    let rank = match share >= MOST {
        true => EvidenceRank::Mechanism,
        false => EvidenceRank::Cost,
    };
    Candidate::new(
        rank,
        format!(
            "the server closes each connection after about {:.0} requests; opening connections takes \
             about {} of the CPU time",
            sent as f64 / opened as f64,
            percent(share)
        ),
        vec![
            format!("connections.opened: {opened_text}, requests.sent: {sent_text}"),
            format!(
                "mean connect time: {} (connect_time_us)",
                show_us(run.connect_time_us.mean)
            ),
        ],
        "raise the server's limit on requests per connection (nginx: keepalive_requests)",
    )
    .at([(StepKind::KeepAlive, Actor::Server)])
    .with_share(if rank == EvidenceRank::Cost { share } else { 1.0 })
    .found()
}

/// Detects established connections that the server does not accept because of a limit on
/// connections or open files.
pub(in crate::why) fn not_accepted(facts: &RunFacts<'_>, findings: &mut Findings) {
    let Some(waiting) = facts.samples.listener(ListenerFigure::AcceptQueue) else {
        return;
    };
    let figure = format!("{waiting:.1} connections waited to be accepted on average (sock_diag)");
    let files = |figure| facts.samples.level(Metric::Process(Role::Server, figure));
    let files = files(ProcessFigure::OpenFiles).zip(files(ProcessFigure::OpenFilesLimit));
    let out_of_files = files.is_some_and(|(open, limit)| open >= SATURATED * limit);
    let files_text = files.map(|(open, limit)| {
        format!("server: {open:.0} of {limit:.0} files open (/proc/PID/fd, /proc/PID/limits)")
    });
    if !out_of_files {
        findings.add(
            Cause::ServerFds,
            ruled_out(files_text.as_ref().unwrap_or(&figure)),
        );
    }
    let run = facts.run;
    let connections = f64::from(run.plan.connections);
    // If connections are short-lived, some connections are always in the queue.
    let short_lived = opened(run) >= REOPENED * run.requests.sent as f64;
    let many = waiting >= NOTICEABLE * connections && waiting >= 1.0;
    if !many || (short_lived && accept_wait_s(facts, waiting) < LONG_WAIT_S) {
        return findings.add(Cause::MaxConnections, ruled_out(figure));
    }
    // A CPU-bound server also accepts connections late.
    if !out_of_files && !facts.has_spare_cpu() {
        let spare = facts.show_spare_cpu().and_then(ruled_out);
        return findings.add(Cause::MaxConnections, spare);
    }
    let (cause, step, summary, next) = if out_of_files {
        (
            Cause::ServerFds,
            StepKind::Files,
            format!("the server is at its limit on open files: {waiting:.0} connections wait"),
            "raise the server's limit on open files (ulimit -n, LimitNOFILE)",
        )
    } else {
        (
            Cause::MaxConnections,
            StepKind::AcceptQueue,
            format!(
                "{waiting:.0} connections wait while about {:.0} are served and CPUs are idle",
                (connections - waiting).max(0.0)
            ),
            "raise the server's limit on connections (max-connections, worker_connections)",
        )
    };
    let evidence = [figure].into_iter().chain(files_text);
    let candidate = Candidate::new(EvidenceRank::Located, summary, evidence, next);
    findings.add(cause, candidate.at([(step, Actor::Server)]).found());
}

/// Returns the mean time that a connection waits to be accepted, in seconds, from the mean number
/// of waiting connections (Little's law).
fn accept_wait_s(facts: &RunFacts<'_>, waiting: f64) -> f64 {
    waiting * facts.run.sending_s / opened(facts.run).max(1.0)
}

/// Returns the number of connections that the client opened, except those that ended with a failed
/// request.
fn opened(run: &Run) -> f64 {
    let broken = 2 * broken_connections(run);
    run.connections.opened.saturating_sub(broken) as f64
}

/// Returns the number of connections that ended with a failed request.
fn broken_connections(run: &Run) -> u64 {
    run.requests.reset + run.requests.timed_out + run.requests.malformed
}

/// Range of upstream connections opened per response if the server opens one for each request.
const ONE_PER_RESPONSE: std::ops::Range<f64> = 0.9..1.1;

/// Detects a server that opens an upstream connection for each request.
pub(in crate::why) fn proxy(facts: &RunFacts<'_>) -> Option<Finding> {
    let opened = opened_by_others(facts)?;
    let per_response = opened / facts.responses_per_s.max(f64::MIN_POSITIVE);
    let addresses: Vec<String> = facts
        .upstreams
        .iter()
        .map(|u| u.address.to_string())
        .collect();
    let addresses = addresses.join(", ");
    // Connections that last less than a millisecond are rarely sampled. The connections of an
    // external client cannot be distinguished from such connections.
    let one_each = ONE_PER_RESPONSE.contains(&per_response) && facts.run.client.name.is_none();
    if addresses.is_empty() && !one_each {
        return None;
    }
    let figure = format!(
        "processes other than the client opened {} connections/s, {per_response:.2} per response \
         (ActiveOpens)",
        show_rate(opened)
    );
    // Connections are opened in kernel mode.
    let in_user = facts.server.as_ref().map_or(0.0, CpuUse::in_user);
    if per_response < MOST || facts.has_spare_cpu() || in_user >= SATURATED {
        return ruled_out(figure);
    }
    let source = match &*addresses {
        "" => "the upstream is unknown, because its connections were too short to be sampled"
            .to_owned(),
        addresses => format!("the server has connections to {addresses} (sock_diag)"),
    };
    Candidate::new(
        EvidenceRank::Mechanism,
        format!(
            "the server opens a new upstream connection for {} of the requests, which costs CPU",
            percent(per_response.min(1.0))
        ),
        vec![figure, source],
        "keep upstream connections (nginx: keepalive in the upstream block)",
    )
    .at([
        (StepKind::Cpu, Actor::Server),
        (StepKind::Connecting, Actor::Server),
    ])
    .found()
}

/// Returns the rate of connections opened by processes other than the client, per second. If all
/// roles share a network namespace, the client's connections are subtracted.
pub(in crate::why) fn opened_by_others(facts: &RunFacts<'_>) -> Option<f64> {
    let (run, samples) = (facts.run, &facts.samples);
    let opens = |role| samples.mean(Metric::Network(role, NetworkFigure::ActiveOpens));
    let own = run.connections.opened as f64 / run.sending_s.max(f64::MIN_POSITIVE);
    opens(Some(Role::Server)).or_else(|| Some((opens(None)? - own).max(0.0)))
}
