//! Notes on a run. A note reports an observation, its meaning and a fix. Notes do not change the
//! validity.

use floodmark_record::cause::Cause;
use floodmark_record::events::{AddressUse, EndReason};
use floodmark_record::host::{BusyProcess, OTHER_CPUS};
use floodmark_record::metric::NetworkFigure;
use floodmark_record::plan::ConnectionUse;
use floodmark_record::reason::{CLIENT_ERRORS, NO_STREAMS};
use floodmark_record::run::Run;
use floodmark_record::tls::Trust;
use floodmark_record::units::{show_count, show_duration};
use floodmark_record::verdict::Verdict;
use floodmark_record::{Metric, Observation};

use crate::asking;
use crate::failures::response_fault;
use crate::silence::{server_stall, show_stall};
use crate::text::{percent, plural, plural_if_any, show_processes, show_s};
use crate::tls;
use crate::validity::{ClientThreads, Judged};

/// Minimum length in seconds at which warm-up and noise hardly affect a run.
pub(crate) const SHORT_RUN_S: f64 = 5.0;

/// Maximum relative deviation from Little's law (in flight = throughput × response time).
const LITTLE_SHARE: f64 = 0.02;

/// Maximum mean response time at which Little's law is checked, as a share of the window. At each
/// end of the window, up to one response time per connection is not counted.
const LITTLE_EDGE: f64 = 0.005;

/// Returns the notes on a run. The most important note comes first.
pub(crate) fn notes(judged: &Judged<'_>) -> Vec<String> {
    let run = judged.run;
    [
        not_http(run),
        expected(judged),
        unverified(run),
        without_certificate(run),
        timed_out(run),
        hung(run),
        silent(run),
        stall(run),
        not_closed(run),
        out_of_step(run),
        other_processes(run),
        not_opened(run),
        lost(run),
        redirects(run),
        listen_queue(run),
        syn_retransmits(run),
        little(run),
        unused_addresses(run),
        unused_streams(run),
        no_streams(run),
        unknown_run_delay(run),
        short(run),
        dropped_from_log(run),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Reports a target that does not speak the planned version of HTTP. Any other reason for an early end appears in the
/// summary or in the reasons why the run is not valid.
fn not_http(run: &Run) -> Option<String> {
    let fault = || match response_fault(run) {
        Some(fault) => fault.to_string(),
        None => format!("no response was {}; check the port", run.plan.http.name()),
    };
    (run.ended.reason == EndReason::NotHttp).then(|| format!("the run ended early: {}", fault()))
}

/// Reports client errors that the experiment expects and that would otherwise invalidate the run.
fn expected(judged: &Judged<'_>) -> Option<String> {
    let mut errors = CLIENT_ERRORS.iter();
    let problem = errors.find_map(|(error, problem, ..)| {
        let affected = judged.is_expected(error).then(|| judged.affected(error))?;
        Some(problem.replace("{}", &plural_if_any(affected, "connection")?))
    })?;
    Some(format!(
        "{problem}, as the experiment expects: the figures describe this limit, not the server"
    ))
}

fn unverified(run: &Run) -> Option<String> {
    let tls = run.plan.tls.as_ref()?;
    (tls.trust == Trust::Nothing).then(|| {
        "the server's certificate was not verified (--insecure): another server may have responded"
            .to_owned()
    })
}

/// Reports unexpected responses from a server that requested a client certificate but got none.
fn without_certificate(run: &Run) -> Option<String> {
    (run.requests.wrong > 0 && tls::lacks_certificate(run)).then(|| {
        "the server requested a client certificate, and none was sent: if it rejects requests for \
         this reason, use --cert FILE"
            .to_owned()
    })
}

fn timed_out(run: &Run) -> Option<String> {
    let requests = plural_if_any(run.requests.timed_out, "request")?;
    Some(format!(
        "{requests} timed out after {} (--timeout): percentiles rank them above all responses",
        show_s(run.plan.timeout.as_secs_f64())
    ))
}

/// Reports requests that were in flight at the end for longer than any response took.
fn hung(run: &Run) -> Option<String> {
    let times = &run.response_time_us;
    times.censored_from?;
    let hung = times.censored.saturating_sub(run.requests.timed_out);
    Some(format!(
        "{} in flight at the end had waited longer than any response took: percentiles rank them \
         above all responses",
        plural_if_any(hung, "request")?
    ))
}

/// Reports kept connections that never received a response, if requests timed out or hung.
fn silent(run: &Run) -> Option<String> {
    let connections = &run.connections;
    let is_kept = run.plan.connection_use == ConnectionUse::Kept;
    (is_kept && run.response_time_us.censored > 0 && connections.silent > 0).then(|| {
        format!(
            "{} of {} never received a response: check how many connections the server serves at \
             the same time",
            show_count(connections.silent),
            plural(connections.opened, "connection"),
        )
    })
}

/// Reports a server stall, unless the verdict already names it as the cause.
fn stall(run: &Run) -> Option<String> {
    let is_cause = |verdict: &Verdict| verdict.cause == Cause::ServerStall;
    let stall = server_stall(run)?;
    (!run.verdict.as_ref().is_some_and(is_cause)).then(|| show_stall(stall))
}

/// Reports connections that the server left open after their last response.
fn not_closed(run: &Run) -> Option<String> {
    let n = run.errors.get("not_closed_by_server")?;
    Some(format!(
        "the server left {} open for 200 ms after a response that ends the connection, so \
         floodmark closed first; if the server never closes, floodmark stops waiting",
        plural_if_any(*n, "connection")?
    ))
}

/// Reports bytes that belong to no request.
fn out_of_step(run: &Run) -> Option<String> {
    let errors = ["unsolicited", "data_after_close"];
    let n = errors.iter().filter_map(|name| run.errors.get(*name)).sum();
    Some(format!(
        "the server sent bytes after {}: floodmark closed these connections; check the \
         Content-Length, and responses to HEAD or with status 204 or 304, which have no body",
        plural_if_any(n, "response")?
    ))
}

/// Reports busy processes outside the experiment, unless the verdict names them. If the server is
/// unknown, it may be one of them.
fn other_processes(run: &Run) -> Option<String> {
    let mut busy = run.other_processes.clone();
    busy.retain(|process: &BusyProcess| process.cpus >= OTHER_CPUS);
    let is_cause = |verdict: &Verdict| verdict.cause == Cause::OtherProcesses;
    (run.server.is_some() && !busy.is_empty() && !run.verdict.as_ref().is_some_and(is_cause)).then(|| {
        format!(
            "other programs used CPUs during the run: {}; if the server does not need them, stop them and repeat",
            show_processes(&busy)
        )
    })
}

/// Status codes of redirects (RFC 9110 section 15.4).
const REDIRECTS: [u16; 5] = [301, 302, 303, 307, 308];

fn redirects(run: &Run) -> Option<String> {
    let found = REDIRECTS.iter().filter_map(|status| {
        let n = run.requests.statuses.get(status).filter(|n| **n > 0)?;
        Some((status.to_string(), n))
    });
    let (statuses, n): (Vec<String>, Vec<u64>) = found.unzip();
    Some(format!(
        "the server redirected {} ({}): floodmark does not follow redirects; request the target URL",
        plural_if_any(n.iter().sum(), "request")?,
        statuses.join(", ")
    ))
}

/// Returns how much a network counter grew during the run, or 0 if the counter was not sampled.
fn increase(run: &Run, figure: NetworkFigure) -> u64 {
    let is = |of: &&Observation| matches!(of.metric, Metric::Network(_, of) if of == figure);
    let series = run.observations.iter().find(is);
    series.map_or(0.0, |series| series.values.iter().sum::<f64>()) as u64
}

fn listen_queue(run: &Run) -> Option<String> {
    let connections = |figure| plural_if_any(increase(run, figure), "new connection");
    // Drops include overflows.
    if let Some(overflows) = connections(NetworkFigure::ListenOverflows) {
        return Some(format!(
            "{overflows} on this host met a full accept queue (ListenOverflows) and waited a second or \
             more: a server on this host accepts too slowly; raise its listen backlog and \
             net.core.somaxconn, or open fewer connections at once"
        ));
    }
    let drops = connections(NetworkFigure::ListenDrops)?;
    Some(format!(
        "listening sockets on this host dropped {drops} (ListenDrops) although no accept queue was \
         full; check memory and kernel limits (dmesg)"
    ))
}

fn syn_retransmits(run: &Run) -> Option<String> {
    let n = increase(run, NetworkFigure::SynRetransmits);
    Some(format!(
        "the kernel retransmitted {} (TCPSynRetrans) after at least 1 s: packets were lost, or the server's accept queue was full; raise the server's listen backlog",
        plural_if_any(n, "connection request")?
    ))
}

/// Reports requests that are missing in the request log because writing was too slow. A write error
/// is reported as an error.
fn dropped_from_log(run: &Run) -> Option<String> {
    let log = run.request_log.as_ref();
    let log = log.filter(|log| log.dropped > 0 && log.error.is_none())?;
    let (dropped, all) = (
        show_count(log.dropped),
        show_count(log.logged + log.dropped),
    );
    Some(format!(
        "{}: {dropped} of {all} requests were not logged, because writing was too slow; log fewer with \
         --request-log-sample",
        log.file
    ))
}

/// Checks Little's law (N = X·R) for kept connections in the closed model. Each connection has one
/// request in flight. With several streams, the server's limit may allow fewer requests in flight,
/// so the law is not checked.
fn little(run: &Run) -> Option<String> {
    let plan = &run.plan;
    let counts = &run.requests;
    if plan.is_open()
        || plan.connection_use != ConnectionUse::Kept
        || plan.http.streams() > 1
        || counts.ok != counts.sent
        || counts.reconnects > 0
        || run.ended.reason != EndReason::Completed
        || run.agents.iter().any(|agent| agent.lost.is_some())
    {
        return None;
    }
    let n = f64::from(plan.connections);
    let mean_s = run.response_time_us.mean? / 1e6;
    if n < 1.0 || mean_s > LITTLE_EDGE * (run.window.to_s - run.window.from_s) {
        return None;
    }
    let in_flight = run.throughput_per_s? * mean_s;
    let missing = ((n - in_flight) / n).abs();
    (missing > LITTLE_SHARE).then(|| {
        format!(
            "throughput × mean response time gives {in_flight:.1} requests in flight on {n:.0} \
             connections (Little's law): connections were idle in the client for {} of the time, or \
             a measured time is wrong; check lateness and blocked time",
            percent(missing)
        )
    })
}

/// Reports held connections that could not be opened before the run.
fn not_opened(run: &Run) -> Option<String> {
    let held = run.connections.held.as_ref();
    let held = held.filter(|held| held.failed > 0)?;
    let reasons = Vec::from_iter(held.reasons.keys().map(String::as_str)).join(", ");
    let reasons = match reasons.as_str() {
        "" => "reason unknown".to_owned(),
        reasons => reasons.replace('_', " "),
    };
    Some(format!(
        "{} of {} failed to open before the run ({reasons}); the run started without these \
         connections and retried",
        show_count(held.failed),
        plural(run.plan.connections.into(), "held connection"),
    ))
}

/// Reports held connections that closed during the run.
fn lost(run: &Run) -> Option<String> {
    let held = run.connections.held.as_ref()?;
    Some(format!(
        "{} closed during the run ({} reopened); if the server closes idle connections, raise its \
         idle timeout",
        plural_if_any(held.lost, "held connection")?,
        show_count(held.reopened),
    ))
}

/// Reports target addresses that accepted no connection although other addresses did.
fn unused_addresses(run: &Run) -> Option<String> {
    let addresses = &run.connections.addresses;
    let used = addresses.iter().filter(|one| one.opened > 0);
    let used: Vec<String> = used.map(|one| one.address.to_string()).collect();
    let failed = |one: &AddressUse| {
        let reason = one.left_out.as_deref()?.replace('_', " ");
        let moved = plural(one.moved, "connection");
        Some(format!("{} ({reason}, {moved})", one.address))
    };
    let unused: Vec<String> = addresses.iter().filter_map(failed).collect();
    (!used.is_empty() && !unused.is_empty()).then(|| {
        format!(
            "addresses of {} that accepted no connection: {}; used instead: {}",
            run.plan.target.authority,
            unused.join(", "),
            used.join(", ")
        )
    })
}

/// Reports a limit of the server that keeps the load below the planned number of streams.
fn unused_streams(run: &Run) -> Option<String> {
    let streams = run.plan.http.streams();
    let allowed = run.max_streams().filter(|limit| *limit < streams)?;
    Some(format!(
        "the server allows {allowed} of {streams} streams on each connection, so at most {} of {} \
         requests were in flight; use --streams {allowed} and more connections (-c)",
        show_count(run.max_in_flight()),
        show_count(run.plan.max_in_flight())
    ))
}

/// Reports connections on which the server allowed no stream.
fn no_streams(run: &Run) -> Option<String> {
    let connections = run.errors.get(NO_STREAMS)?;
    Some(format!(
        "the server allowed no stream on {} for {}; raise its limit (SETTINGS_MAX_CONCURRENT_STREAMS)",
        plural(*connections, "connection"),
        show_duration(run.plan.timeout)
    ))
}

/// Reports that run delay is not available. Without run delay, a thread that is waiting for a CPU
/// looks idle.
fn unknown_run_delay(run: &Run) -> Option<String> {
    let threads = ClientThreads::of(&run.client.threads)?.used;
    if threads.runnable.is_some() {
        return None;
    }
    Some(format!(
        "run delay of the client threads is not available (/proc/thread-self/schedstat): they were \
         on a CPU for {} of the time and may have been saturated; stop other programs on this host \
         (see floodmark doctor)",
        percent(threads.on_cpu)
    ))
}

/// Reports a run that is too short. Bursts and replays are exempt because the load determines their
/// length.
fn short(run: &Run) -> Option<String> {
    let longer = asking::longer(&run.plan)?;
    (run.sending_s < SHORT_RUN_S && run.ended.reason == EndReason::Completed).then(|| {
        format!(
            "the run lasted only {}: start-up and noise affect its figures; use {longer} or more",
            show_s(run.sending_s)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::next::tests::run;
    use crate::testing::closed;

    #[test]
    fn reports_busy_programs_if_the_server_is_known() {
        let mut run = run(closed());
        let busy = |name: &str, cpus| BusyProcess {
            pid: 7,
            name: name.to_owned(),
            cpus,
        };
        run.other_processes = vec![busy("rustc", 0.61), busy("sshd", 0.02)];
        assert_eq!(other_processes(&run), None);
        run.server = Some(floodmark_record::watch::Server::default());
        let note = other_processes(&run).unwrap();
        assert!(note.contains("rustc (pid 7) 0.61;"), "{note}");
        run.other_processes.remove(0);
        assert_eq!(other_processes(&run), None);
    }
}
