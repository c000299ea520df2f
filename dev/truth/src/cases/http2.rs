//! T11 to T16: HTTP/2. The server limits streams, shuts down connections and withholds credit, each
//! at known times.

use std::collections::BTreeSet;
use std::path::Path;

use super::reference::Sorted;
use super::request_log::{self, LoggedRequest};
use super::{CaseEnvironment, CaseError, CaseResult, SHORT_STALL, reference, server_fault};
use crate::log::{Log, RequestEntry};
use crate::scenario::{CloseAfter, Scenario, Service, Setting, SettingsChange};

/// Tolerance for times, in microseconds: the bar for the 99th percentile under stalls.
const TOLERANCE_US: f64 = 1_500.0;

/// Returns a server that speaks HTTP/2, with these settings. Each setting has the time, in
/// milliseconds, at which it is sent on a connection.
fn server<const N: usize>(delay_us: u64, settings: [(u64, Setting); N]) -> Scenario {
    let settings = settings.map(|(after_ms, setting)| SettingsChange { after_ms, setting });
    Scenario {
        http2: Some(settings.to_vec()),
        ..Service::Fixed { delay_us }.into()
    }
}

/// Writes a file and returns its path, for use in flags.
fn file(directory: &Path, name: &str, text: &str) -> Result<String, CaseError> {
    let path = directory.join(name);
    std::fs::write(&path, text).map_err(CaseError::run(path.display()))?;
    Ok(path.display().to_string())
}

fn directory() -> Result<tempfile::TempDir, CaseError> {
    tempfile::tempdir().map_err(CaseError::run("a temporary directory"))
}

/// Returns the selected time of every request, in µs, in ascending order.
fn in_order(log: &Log, time: fn(&RequestEntry) -> u64) -> Vec<f64> {
    let mut times: Vec<u64> = log.requests.iter().map(time).collect();
    times.sort_unstable();
    times.iter().map(|ns| *ns as f64 / 1e3).collect()
}

/// T11: a queue with equal gaps, equal service times and `s` streams (D/D/s). With service time
/// `S` and rate `λ > s/S`, request `n` waits `⌊n/s⌋ · (S − s/λ)` for a stream. At a lower rate, no
/// request waits.
///
/// Each of the `⌊n/s⌋` rounds takes longer than `S`, because the client learns of a free stream
/// only after the response. The server's log shows how much longer.
pub fn stream_limit(environment: &CaseEnvironment<'_>, rate: f64, requests: u64) -> CaseResult {
    const STREAMS: usize = 4;
    const SERVICE_US: u64 = 50_000;
    let scenario = server(SERVICE_US, [(0, Setting::MaxStreams(STREAMS as u32))]);
    let directory = directory()?;
    let path = directory.path().join("requests.csv");
    let mut flags = format!("--http 2 -c 1 --streams 100 --rate {rate} -n {requests}");
    // Agents write no request log.
    let has_requests = environment.options.agents.is_none();
    if has_requests {
        flags += &format!(" --request-log {}", path.display());
    }
    let mut measured = environment.measure(scenario, &flags)?;
    measured.check_all_counts(requests);
    let logged = if has_requests {
        request_log::read(&path).map_err(CaseError::run("the request log"))?
    } else {
        Vec::new()
    };
    let (service_us, gap_us) = (SERVICE_US as f64, 1e6 / rate);
    let round_us = (service_us - STREAMS as f64 * gap_us).max(0.0);
    let formula_us = |n: usize| (n / STREAMS) as f64 * round_us;
    let heads = in_order(&measured.log, |r| r.head_ns);
    let departures = in_order(&measured.log, |r| r.departure_ns);
    // The latest start of the measurement for which no request arrives before it is sent or due.
    let sent_us = |n: usize| match logged.get(n) {
        Some(request) => request.sent_ns as f64 / 1e3,
        None => n as f64 * gap_us,
    };
    let starts = heads.iter().enumerate().map(|(n, head)| head - sent_us(n));
    let start_us = starts.fold(f64::INFINITY, f64::min);
    let logged_us = |n: usize| heads[n] - start_us - n as f64 * gap_us;
    let mean =
        |of: &dyn Fn(usize) -> f64| (0..heads.len()).map(of).sum::<f64>() / heads.len() as f64;
    let Some(last) = heads.len().checked_sub(1) else {
        return Ok(measured.findings);
    };
    let longest_us = (0..=last).map(logged_us).fold(0.0, f64::max);
    let blocked = &measured.run.blocked_us;
    let findings = &mut measured.findings;
    for (name, formula, logged, got) in [
        ("mean", mean(&formula_us), mean(&logged_us), blocked.mean),
        ("max", formula_us(last), longest_us, blocked.max),
    ] {
        let what = format!("blocked_us.{name}, from ⌊n/s⌋·(S − s/λ) to the wait in the log");
        let bounds = (formula - TOLERANCE_US, logged + TOLERANCE_US);
        findings.between(&what, bounds, got);
    }
    if round_us > 0.0 {
        let by_limit = &measured.run.blocked_by.server_limit_us;
        let what = "blocked_by.server_limit_us.max is blocked_us.max";
        findings.equal(what, blocked.max, by_limit.max);
    }
    if has_requests {
        let errors = errors_us(&logged, start_us, &departures, STREAMS);
        let what = "blocked time per request, difference from the log, µs: p90";
        findings.between(what, (0.0, TOLERANCE_US), Some(errors.quantile(0.9)));
    }
    let per_round = (logged_us(last) - formula_us(last)) / (last / STREAMS) as f64;
    findings.note(format!(
        "a round took {per_round:.0} µs longer than the service time"
    ));
    Ok(measured.findings)
}

/// Returns the differences between the blocked times in floodmark's log and in the server's log.
/// The schedule starts at `start_us`. A stream is free for request `n` when the server sends
/// response `n − streams`.
fn errors_us(
    requests: &[LoggedRequest],
    start_us: f64,
    departures: &[f64],
    streams: usize,
) -> Sorted {
    let errors = requests.iter().enumerate().map(|(n, request)| {
        let due = start_us + request.intended_ns as f64 / 1e3;
        let free = n
            .checked_sub(streams)
            .and_then(|before| departures.get(before));
        let logged = free.map_or(0.0, |free| (free - due).max(0.0));
        let blocked = (request.free_ns - request.intended_ns) as f64 / 1e3;
        (blocked - logged).abs()
    });
    Sorted::new(errors.collect())
}

/// T12: stalls, as in T2. The 99th percentile must agree with the server's log, and with the times
/// of an ideal client that sends at even intervals. After a stall, the server drains its backlog.
/// The ideal client does not wait for this.
pub fn stall(environment: &CaseEnvironment<'_>, connections: &str) -> CaseResult {
    const RATE: u64 = 1_000;
    const SECONDS: u64 = 4;
    let scenario = Scenario {
        stall: Some(SHORT_STALL),
        ..server(0, [])
    };
    let flags = format!("--http 2 {connections} --rate {RATE} -d {SECONDS}s");
    let mut measured = environment.measure(scenario, &flags)?;
    server_fault::check_stalls(&mut measured, RATE * SECONDS, RATE as f64);
    let (rate, log, findings) = (RATE as f64, &measured.log, &mut measured.findings);
    let p99 = measured.run.response_time_us.p99;
    let response = reference::response(log, rate).quantile(0.99);
    let what = "response_time_us.p99, compared with the log";
    findings.near(what, response, p99, TOLERANCE_US);
    let even = reference::even(log, rate, RATE * SECONDS).quantile(0.99);
    let drain = reference::longest_pause(log, rate).map_or(0.0, |pause| pause.drain_us);
    let what = "response_time_us.p99, compared with an ideal client, plus the server's drain";
    let bounds = (even - TOLERANCE_US, even + drain + TOLERANCE_US);
    findings.between(what, bounds, p99);
    Ok(measured.findings)
}

/// T13: the server shuts down each connection after a number of requests. If `announced` is set, it
/// serves all streams that the client opens in time; otherwise, GOAWAY leaves streams unprocessed,
/// which the client sends again. The server must process each request exactly once.
pub fn go_away(environment: &CaseEnvironment<'_>, announced: bool, load: &str) -> CaseResult {
    const REQUESTS: u64 = 2_000;
    const PER_CONNECTION: u64 = 25;
    let scenario = Scenario {
        close_after: Some(CloseAfter {
            requests: PER_CONNECTION,
            announced,
        }),
        ..server(1_000, [])
    };
    let directory = directory()?;
    let mix = "[[request]]\nname = \"numbered\"\npath = \"/{seq}\"\n";
    let mix = file(directory.path(), "mix.toml", mix)?;
    let flags = format!("--http 2 -c 2 --streams 10 -n {REQUESTS} --mix {mix} {load}");
    let mut measured = environment.measure(scenario, &flags)?;
    measured.check_all_ok(REQUESTS);
    let (run, log) = (&measured.run, &measured.log);
    let numbers = log.requests.iter().filter_map(|request| request.number);
    let different = numbers.collect::<BTreeSet<u64>>().len() as u64;
    let ignored = log.totals.ignored_streams;
    let findings = &mut measured.findings;
    findings.exactly("requests at the server", REQUESTS, log.totals.requests);
    findings.exactly("different requests at the server", REQUESTS, different);
    findings.exactly("reconnects", ignored, run.requests.reconnects);
    let unprocessed = run.http2.as_ref().map_or(0, |http2| http2.unprocessed);
    findings.exactly("http2.unprocessed", ignored, unprocessed);
    if announced {
        findings.exactly("streams that the server ignored", 0, ignored);
    } else {
        let most = log
            .connections
            .iter()
            .map(|of| u64::from(of.requests))
            .max();
        findings.exactly(
            "maximum number of requests on a connection",
            PER_CONNECTION,
            most.unwrap_or(0),
        );
        findings.must(
            "the server ignored streams",
            ignored > 0,
            ignored.to_string(),
        );
    }
    Ok(measured.findings)
}

/// T14: the server lowers its limit from 100 streams to 1 and raises it again, while requests are
/// in flight.
pub fn limit_changes(environment: &CaseEnvironment<'_>) -> CaseResult {
    const LIMITS: [(u64, u32); 3] = [(0, 100), (400, 1), (900, 100)];
    const DELAY_US: u64 = 20_000;
    let scenario = server(
        DELAY_US,
        LIMITS.map(|(at_ms, streams)| (at_ms, Setting::MaxStreams(streams))),
    );
    let flags = "--http 2 -c 1 --streams 100 -d 1300ms";
    let mut measured = environment.measure(scenario, flags)?;
    measured.check_all_counts(measured.run.requests.intended);
    let (log, findings) = (&measured.log, &mut measured.findings);
    findings.exactly(
        "settings acknowledged",
        LIMITS.len() as u64,
        log.settings.len() as u64,
    );
    let mut begins = log.settings.iter().map(|entry| entry.acknowledged_ns);
    let mut begins: Vec<u64> = LIMITS.map(|_| begins.next().unwrap_or(u64::MAX)).to_vec();
    begins.push(u64::MAX);
    for (phase, (_, limit)) in begins.windows(2).zip(LIMITS) {
        let inside = log
            .requests
            .iter()
            .filter(|r| (phase[0]..phase[1]).contains(&r.head_ns));
        let open = |at: &RequestEntry| {
            let others = log.requests.iter();
            others
                .filter(|r| r.head_ns <= at.head_ns && at.head_ns < r.departure_ns)
                .count()
        };
        let most = inside.map(open).max().unwrap_or(0) as u64;
        let what = format!("open streams after the limit of {limit} was acknowledged");
        findings.exactly(&what, limit.into(), most);
    }
    let alone = log
        .requests
        .iter()
        .filter(|r| (begins[1]..begins[2]).contains(&r.head_ns));
    findings.note(format!(
        "{} requests arrived while the limit was 1",
        alone.count()
    ));
    Ok(measured.findings)
}

/// T15: the server initially withholds credit for request bodies. Response times must include the
/// wait for credit.
pub fn window(environment: &CaseEnvironment<'_>) -> CaseResult {
    const RATE: u64 = 200;
    const REQUESTS: u64 = 200;
    // Between two requests, so that no request arrives while the server gives credit.
    const CLOSED_MS: u64 = 498;
    let settings = [
        (0, Setting::InitialWindow(0)),
        (CLOSED_MS, Setting::InitialWindow(65_535)),
    ];
    let body = "x".repeat(200);
    let flags = format!("--http 2 -c 1 --streams 200 --rate {RATE} -n {REQUESTS} --body {body}");
    let mut measured = environment.measure(server(0, settings), &flags)?;
    measured.check_all_counts(REQUESTS);
    let (run, log, findings) = (&measured.run, &measured.log, &mut measured.findings);
    let opened_ns = log.settings.last().map_or(0, |entry| entry.sent_ns);
    let waits: Vec<f64> = (log.requests.iter())
        .filter(|request| request.head_ns < opened_ns)
        .map(|request| (opened_ns - request.head_ns) as f64 / 1e3)
        .collect();
    let longest = waits.iter().copied().fold(0.0, f64::max);
    findings.near(
        "longest wait for credit, µs",
        CLOSED_MS as f64 * 1e3,
        Some(longest),
        20_000.0,
    );
    let times = &run.response_time_us;
    let truth = reference::response(log, RATE as f64);
    let bounds = (longest - TOLERANCE_US, truth.quantile(1.0) + TOLERANCE_US);
    findings.between("response_time_us.max includes the wait", bounds, times.max);
    findings.near(
        "response_time_us.mean",
        truth.mean(),
        times.mean,
        TOLERANCE_US,
    );
    let (window, count) = (&run.window_us, waits.len() as u64);
    findings.exactly("window_us.count", count, window.count);
    for (name, truth, got) in [
        ("mean", Sorted::new(waits).mean(), window.mean),
        ("max", longest, window.max),
    ] {
        let what = format!("window_us.{name}");
        findings.near(&what, truth, got, TOLERANCE_US);
    }
    Ok(measured.findings)
}

/// T16: the same seed gives the same requests at the same intended times as over HTTP/1.1.
pub fn same_seed(environment: &CaseEnvironment<'_>) -> CaseResult {
    const REQUESTS: u64 = 500;
    let directory = directory()?;
    let mix = "[[request]]\nname = \"a\"\nweight = 3\npath = \"/a/{rand:1-1000000000}\"\n\
               [[request]]\nname = \"b\"\npath = \"/b/{rand:1-1000000000}\"\n";
    let mix = file(directory.path(), "mix.toml", mix)?;
    let load = format!("--rate 500 --arrivals poisson --seed 7 -n {REQUESTS} --mix {mix}");
    // Agents write no request log.
    let has_requests = environment.options.agents.is_none();
    let run = |http: &str, scenario: Scenario| -> Result<_, CaseError> {
        let path = directory
            .path()
            .join(format!("{}.csv", scenario.http2.is_some()));
        let mut flags = format!("{http} {load}");
        if has_requests {
            flags += &format!(" --request-log {}", path.display());
        }
        let mut measured = environment.measure(scenario, &flags)?;
        measured.check_all_counts(REQUESTS);
        let requests = if has_requests {
            request_log::read(&path)
        } else {
            Ok(Vec::new())
        };
        let requests = requests.map_err(CaseError::run("the request log"))?;
        let intended = requests
            .into_iter()
            .map(|r| (r.number, r.request, r.intended_ns));
        Ok((intended.collect::<Vec<_>>(), measured))
    };
    let (intended, first) = run("--http 1.1", Scenario::default())?;
    let (intended_http2, mut measured) = run("--http 2 --streams 20", server(0, []))?;
    let findings = &mut measured.findings;
    findings.findings.extend(first.findings.findings);
    let differences = intended
        .iter()
        .zip(&intended_http2)
        .filter(|(a, b)| a != b)
        .count();
    findings.exactly(
        "requests with different names or intended times",
        0,
        differences as u64,
    );
    let [numbers, numbers_http2] = [&first.log, &measured.log].map(|log| {
        let numbers = log.requests.iter().filter_map(|request| request.number);
        numbers.collect::<BTreeSet<u64>>()
    });
    let different = numbers.symmetric_difference(&numbers_http2).count() as u64;
    findings.exactly("random values in only one version", 0, different);
    findings.must(
        "values are random",
        numbers.len() as u64 > REQUESTS / 2,
        numbers.len().to_string(),
    );
    Ok(measured.findings)
}
