//! Lines about one run: how the run ended, throughput, validity, checks and notes; and tables of
//! its times, steps and requests.

use floodmark_record::Record;
use floodmark_record::events::EndReason;
use floodmark_record::plan::{ConnectionUse, Http, Plan};
use floodmark_record::reason::TOO_FEW_ROWS;
use floodmark_record::run::{
    CheckResult, GroupFigures, Run, Saturation, Status, SteadyClass, StepFigures,
};
use floodmark_record::times::Times;
use floodmark_record::tls::TlsUse;
use floodmark_record::units::{show_count, show_exact_bytes, show_ns};
use floodmark_record::watch::{AlignmentMethod, RemoteObservation};
use floodmark_stats::saturation::KEPT_UP_SHARE;

use super::document::{
    ColumnCell, Detail, Emphasis, Span, Table, TextLine, count_cell, data, faint, line,
    number_cell, plain, shown, text_cell, time_cell,
};
use super::figures::{
    count_of, duration, glue, interval, level, per_second, percent, rate, seconds, setting_pairs,
    share, time,
};
use super::outcomes;

/// Returns whether two runs are attempts with the same load: they belong to one trial, or their
/// plans differ only in the seed.
pub(crate) fn same_load(a: &Run, b: &Run) -> bool {
    if a.trial.is_some() || b.trial.is_some() {
        return a.trial == b.trial;
    }
    let seedless = |plan: &Plan| Plan {
        seed: 0,
        ..plan.clone()
    };
    (&a.system, &a.workload, &a.setting) == (&b.system, &b.workload, &b.setting)
        && seedless(&a.plan) == seedless(&b.plan)
}

/// Names the attempt of a run.
pub(crate) fn attempt(run: &Run) -> String {
    format!("process {}, attempt {}", run.process, run.attempt)
}

/// Describes why a run did not complete.
pub(crate) fn ended(run: &Run) -> Option<TextLine> {
    let gone = run.server_gone_since_s;
    let what = match run.ended.reason {
        EndReason::Completed if gone.is_none() => return None,
        EndReason::Interrupted => "interrupted",
        EndReason::Aborted => "aborted",
        EndReason::RowsUsedUp => TOO_FEW_ROWS,
        EndReason::ClientFailed => "the client failed",
        EndReason::NotHttp => &format!("the server does not speak {}", run.plan.http.name()),
        EndReason::ServerGone if gone == Some(0.0) => "the server never responded",
        EndReason::Completed | EndReason::ServerGone => "the server stopped responding",
    };
    let sending = duration(run.sending_s);
    let when = match (run.ended.reason, gone.filter(|since| *since > 0.0)) {
        (EndReason::Completed | EndReason::ServerGone, Some(since)) => {
            let since = duration(since);
            format!("after {since}; the figures cover the whole run ({sending})")
        }
        (EndReason::ServerGone, None) => format!("within {sending}"),
        (EndReason::NotHttp, _) => format!("– the figures cover the first {sending}"),
        _ => format!("after {sending}; the figures cover the time until then"),
    };
    let mut spans = vec![Emphasis::Bad.span(what), plain(when)];
    let detail = run.ended.detail.as_ref();
    let detail = detail.filter(|detail| !detail.starts_with(what));
    spans.extend(detail.map(|detail| faint(format!("({detail})"))));
    Some(TextLine::new("ended", spans))
}

/// Describes goodput, and throughput with its interval and validity.
pub(crate) fn throughput(run: &Run) -> Vec<TextLine> {
    let Some(throughput) = run.throughput_per_s else {
        return vec![line("throughput", "not measured")];
    };
    let mut spans = vec![Emphasis::Strong.span(rate(throughput))];
    let within = run.throughput_interval.as_ref();
    spans.extend(within.map(|i| plain(interval(throughput, i))));
    let length = duration(run.window.to_s - run.window.from_s);
    let basis = within.map(|i| format!("{} interval within this run, ", level(i.confidence)));
    spans.push(faint(format!("({}{length})", basis.unwrap_or_default())));
    spans.extend(run.plan.schedule().map(|schedule| {
        let offered = rate(schedule.rate_per_s());
        let mean = if schedule.rate_changes() {
            " on average"
        } else {
            ""
        };
        plain(format!("of {offered} offered{mean}"))
    }));
    spans.extend(match run.validity.status {
        Status::Valid => None,
        Status::Unsteady if run.validity.is_lower_bound() => {
            Some(Emphasis::Warn.span("– unsteady lower bound, see validity"))
        }
        Status::Unsteady => Some(Emphasis::Warn.span("– unsteady, see validity")),
        Status::Bound => Some(Emphasis::Warn.span("– lower bound, see validity")),
        Status::Invalid => Some(Emphasis::Bad.span("– invalid, see validity")),
    });
    let mut lines = vec![TextLine::new("throughput", spans)];
    lines.extend(run.goodput_per_s.map(|good| {
        let deadline = duration(run.plan.deadline.as_secs_f64());
        let within = faint(format!("(within {deadline} of the intended time)"));
        TextLine::new("goodput", [plain(rate(good)), within])
    }));
    lines
}

/// Describes which part of the run the figures cover. Returns `None` if the figures cover all of a
/// steady run, unless `always` is set.
pub(crate) fn window(run: &Run, always: bool) -> Option<TextLine> {
    let window = &run.window;
    let is_steady = matches!(run.steady.class, SteadyClass::Steady | SteadyClass::Varied);
    let expected = is_whole(run) && is_steady && !always;
    let known = window.to_s > window.from_s && !window.why.is_empty();
    (known && !expected).then(|| line("window", &window.why))
}

/// Returns whether the window covers the whole run.
pub(crate) fn is_whole(run: &Run) -> bool {
    run.window.from_s <= 0.0 && run.window.to_s >= run.sending_s * 0.99
}

/// Describes the state of the held connections (`--hold`).
pub(crate) fn held(run: &Run) -> Option<TextLine> {
    let held = run.connections.held.as_ref()?;
    let planned = u64::from(run.plan.connections);
    let emphasis = Emphasis::Warn.when(held.standing < planned);
    let (standing, all) = (show_count(held.standing), count_of(planned, "connection"));
    let opening = glue(&show_ns(held.opening_ns as f64));
    let mut text = format!("{standing} of {all} opened in {opening}");
    if held.lost + held.reopened > 0 {
        let (lost, reopened) = (show_count(held.lost), show_count(held.reopened));
        text.push_str(&format!("; {lost} lost, {reopened} reopened"));
    }
    Some(TextLine::new("held", [emphasis.span(text)]))
}

/// Describes whether the server kept up with an increasing rate.
pub(crate) fn saturation(run: &Run) -> Option<TextLine> {
    Some(match run.saturation.as_ref()? {
        Saturation::FellBehind(found) => {
            let at = glue(&format!("{} offered", rate(found.offered_per_s)));
            let achieved = glue(&format!("{} achieved", rate(found.achieved_per_s)));
            let after = duration(found.at_s);
            let then = format!("(after {after}); then {achieved} on average");
            let method = faint(format!("({})", found.method));
            let at = [plain("at"), Emphasis::Warn.span(at)];
            TextLine::new("fell behind", [at, [plain(then), method]].concat())
        }
        Saturation::KeptUp {
            up_to_per_s,
            method,
        } => {
            let rate = plain(format!("up to {} offered", rate(*up_to_per_s)));
            TextLine::new("kept up", [rate, faint(format!("({method})"))])
        }
        Saturation::Undecided { why } => line("kept up?", format!("inconclusive: {why}")),
    })
}

/// Describes the protocol, the cipher suites, and the number and cost of handshakes.
pub(crate) fn tls(run: &Run) -> Option<TextLine> {
    let tls = run.tls.as_ref().filter(|tls| tls.used.handshakes > 0)?;
    let suites: Vec<&str> = tls.used.negotiated.keys().map(String::as_str).collect();
    let handshakes = count_of(tls.used.handshakes, "handshake");
    let resumed = glue(&format!("{} resumed", show_count(tls.used.resumed)));
    // Handshakes of kept connections finish before the clock starts.
    let cost = tls.handshake_cpu_share.filter(|share| *share > 0.0);
    let cost = cost.map(|share| format!(", {} of the client's CPU", percent(share * 100.0)));
    let cost = cost.unwrap_or_default();
    let certificate = client_certificate(run, &tls.used);
    let text = format!(
        "{}; {handshakes}, {resumed}{cost}{certificate}",
        suites.join(", ")
    );
    Some(line("TLS", text))
}

/// Describes the use of client certificates. Returns an empty string if neither side uses them.
fn client_certificate(run: &Run, used: &TlsUse) -> String {
    let has_certificate =
        (run.plan.tls.as_ref()).is_some_and(|tls| tls.client_certificate_sha256.is_some());
    match (used.certificate_requests, used.certificates_sent) {
        (0, _) if has_certificate => "; client certificate not requested".to_owned(),
        (0, _) => String::new(),
        (_, 0) => "; client certificate requested, none sent".to_owned(),
        (_, sent) => format!(
            "; client certificate sent in {}",
            count_of(sent, "handshake")
        ),
    }
}

/// Describes the server's HTTP/2 settings, its GOAWAY frames and the unprocessed requests.
pub(crate) fn http2(run: &Run) -> Option<TextLine> {
    let used = run.http2.as_ref()?;
    let settings = used.settings?;
    let streams = match settings.max_streams {
        Some(streams) => format!(
            "at most {} per connection",
            count_of(streams.into(), "stream")
        ),
        None => "any number of streams".to_owned(),
    };
    let mut text = format!(
        "the server allows {streams}, windows of {} and header tables of {}",
        show_exact_bytes(settings.window_bytes.into()),
        show_exact_bytes(settings.table_bytes.into())
    );
    if used.go_aways > 0 {
        let error = |(code, n): (&String, &u64)| format!("{} with {code}", show_count(*n));
        let errors: Vec<String> = used.go_away_errors.iter().map(error).collect();
        let errors = if errors.is_empty() {
            String::new()
        } else {
            format!(" ({})", errors.join(", "))
        };
        let frames = count_of(used.go_aways, "GOAWAY frame");
        text.push_str(&format!("; {frames}{errors}"));
    }
    if used.unprocessed > 0 {
        let requests = count_of(used.unprocessed, "request");
        text.push_str(&format!("; {requests} not processed"));
    }
    Some(line("HTTP/2", text))
}

/// Returns the status, followed by one line per reason.
pub(crate) fn validity(run: &Run) -> Vec<TextLine> {
    let status = validity_of(run);
    let dash = || status.emphasis.span("–");
    let reasons = run.validity.reasons.iter();
    let mut reasons = reasons.map(|reason| vec![dash(), plain(reason.to_string())]);
    let first = [vec![status.clone()], reasons.next().unwrap_or_default()].concat();
    let first = TextLine::new("validity", first);
    let others = reasons.map(|reason| TextLine::new("", reason));
    [first].into_iter().chain(others).collect()
}

/// Returns the status in a few words. A run without any response is never called valid.
pub(crate) fn validity_of(run: &Run) -> Span {
    match run.validity.status {
        Status::Valid if outcomes::unanswered(&run.requests) => Emphasis::Bad.span("no response"),
        Status::Unsteady if run.validity.is_lower_bound() => Emphasis::Warn.span("unsteady, bound"),
        status => status_word(status),
    }
}

/// Returns a sort key that is larger for runs whose figures describe the server less well.
pub(crate) fn badness(run: &Run) -> impl Ord + use<> {
    (
        run.validity.status == Status::Invalid,
        run.validity.is_lower_bound(),
        run.validity.status == Status::Unsteady,
        outcomes::unanswered(&run.requests),
    )
}

/// Returns a status in one word.
pub(crate) fn status_word(status: Status) -> Span {
    match status {
        Status::Valid => Emphasis::Good.span("valid"),
        Status::Unsteady => Emphasis::Warn.span("unsteady"),
        Status::Bound => Emphasis::Warn.span("bound"),
        Status::Invalid => Emphasis::Bad.span("invalid"),
    }
}

/// Returns the results of the run's checks.
pub(crate) fn checks(run: &Run) -> Vec<TextLine> {
    let lines = |one: &CheckResult| [check(one)].into_iter().chain(history(&one.history));
    run.checks.iter().flat_map(lines).collect()
}

/// Returns the result of a check, without its history.
pub(crate) fn check(check: &CheckResult) -> TextLine {
    let result = match check.held {
        Some(true) => Emphasis::Good.span("held:"),
        Some(false) => Emphasis::Bad.span("violated:"),
        None => Emphasis::Warn.span("not evaluated:"),
    };
    TextLine::new("check", [plain(&check.name), result, plain(&check.detail)])
}

/// Returns the operations around a violation.
pub(crate) fn history(operations: &[String]) -> Vec<TextLine> {
    operations.iter().map(|text| line("", text)).collect()
}

/// Returns the notes, the log lines and the list of missing data.
pub(crate) fn notes(run: &Run) -> Vec<TextLine> {
    let mut lines = Vec::new();
    if run.requests.reconnects > 0 {
        lines.push(line("note", reconnects(run)));
    }
    if let Some(warmup) = &run.warmup
        && warmup.requests.ok < warmup.requests.intended
    {
        let failed = show_count(warmup.requests.intended - warmup.requests.ok);
        let all = count_of(warmup.requests.intended, "request");
        lines.push(line("note", format!("warm-up: {failed} of {all} not ok")));
    }
    let logged = run.log_errors.iter().filter(|errors| errors.lines > 0);
    lines.extend(logged.map(|errors| line("log", log_lines(&errors.text, errors.lines))));
    let remote = run.remote.as_ref();
    lines.extend(remote.map(|remote| line("observed", remote_host(remote))));
    lines.extend(run.validity.notes.iter().map(|note| line("note", note)));
    if !run.missing.is_empty() {
        lines.push(TextLine::new("missing", [faint(run.missing.join("; "))]));
    }
    lines
}

/// Describes the requests that were sent again.
fn reconnects(run: &Run) -> String {
    let n = run.requests.reconnects;
    match run.plan.http {
        Http::V1 => format!(
            "{} retried on a fresh connection because the server had closed the kept one",
            count_of(n, "request")
        ),
        Http::V2(_) => format!(
            "requests sent again {}, because the server closed the connection or refused \
             the stream",
            count_of(n, "time")
        ),
    }
}

/// Returns text such as `12 lines with AskTimeoutException in the server log`.
pub(crate) fn log_lines(text: &str, lines: u64) -> String {
    format!("{} with {text} in the server log", count_of(lines, "line"))
}

/// Describes the host monitored by `floodmark observe`, and how its clock was aligned.
fn remote_host(remote: &RemoteObservation) -> String {
    let aligned = &remote.aligned;
    let clock = match aligned.method {
        AlignmentMethod::SameClock => "on the same clock",
        AlignmentMethod::WallClocks => "clocks aligned by NTP",
        AlignmentMethod::Pings => "clocks aligned by pings",
        AlignmentMethod::Load => "clocks aligned by CPU use",
    };
    let cpus = count_of(remote.environment.cpus.into(), "CPU");
    let error = glue(&show_ns(aligned.error_ms * 1e6));
    let but = aligned.but.as_ref().map(|but| format!("; {but}"));
    let but = but.unwrap_or_default();
    format!("server host ({cpus}) monitored by floodmark observe; {clock}, ± {error}{but}")
}

/// A terminal shows the blocked time if its p99 exceeds this value, in microseconds.
const BLOCKED_MATTERS_US: f64 = 1_000.0;

/// A terminal shows the lateness if its p99 exceeds this value, in microseconds. This is a tenth of
/// the lateness that can invalidate a run.
const LATENESS_MATTERS_US: f64 = 100.0;

/// Returns whether the p99 of a time is above a threshold in microseconds.
fn exceeds(times: &Times, us: f64) -> bool {
    times.p99.is_some_and(|p99| p99 > us)
}

/// Returns the reasons why requests were blocked, with their shares of the blocked time, in
/// descending order. Returns `None` if blocked times are negligible or their reasons are unknown.
pub(crate) fn blocked_by(run: &Run) -> Option<TextLine> {
    let by = &run.blocked_by;
    let allowed = run.http2.as_ref().and_then(|used| used.settings);
    let of_server = match allowed.and_then(|settings| settings.max_streams) {
        Some(streams) => format!(
            "the server's limit of {}",
            count_of(streams.into(), "stream")
        ),
        None => "the server's limit on streams".to_owned(),
    };
    let own = match run.plan.http {
        Http::V1 => "all connections in use (-c)",
        Http::V2(_) => "all streams in use (-c, --streams)",
    };
    let total = |times: &Times| times.mean.unwrap_or(0.0) * times.count as f64;
    let mut reasons = [
        (total(&by.connecting_us), "connecting".to_owned()),
        (total(&by.own_limit_us), own.to_owned()),
        (total(&by.server_limit_us), of_server),
        (total(&by.retried_us), "sent again".to_owned()),
    ];
    reasons.sort_by(|a, b| b.0.total_cmp(&a.0));
    let all: f64 = reasons.iter().map(|(us, _)| us).sum();
    let present = reasons.iter().filter(|(us, _)| *us > 0.0);
    let shares = present.map(|(us, name)| format!("{name} {}", percent(us / all * 100.0)));
    let shares: Vec<String> = shares.collect();
    let is_material = all > 0.0 && exceeds(&run.blocked_us, BLOCKED_MATTERS_US);
    is_material.then(|| line("blocked by", shares.join(", ")))
}

/// Returns a table of the times, or `None` if nothing was timed.
pub(crate) fn times(run: &Run) -> Option<Table> {
    let open = run.plan.is_open();
    let (blocked, lateness) = (&run.blocked_us, &run.lateness_us);
    let is_blocked = open && exceeds(blocked, BLOCKED_MATTERS_US);
    let is_late = open && exceeds(lateness, LATENESS_MATTERS_US);
    let reconnects = run.plan.connection_use != ConnectionUse::Kept;
    let waiting = match run.plan.http {
        Http::V1 => "waiting for a connection",
        Http::V2(_) => "waiting for a connection or a stream",
    };
    // Name, meaning, times, and whether a terminal shows the row.
    let kinds = [
        ("service", "sent to done", &run.service_time_us, true),
        ("response", "intended to done", &run.response_time_us, true),
        (
            "first byte",
            "sent to first byte",
            &run.first_byte_us,
            false,
        ),
        ("blocked", waiting, blocked, is_blocked),
        ("lateness", "delay caused by floodmark", lateness, is_late),
        ("connect", "TCP", &run.connect_time_us, reconnects),
        ("handshake", "TLS", &run.handshake_time_us, reconnects),
        (
            "window",
            "request body waiting for credit",
            &run.window_us,
            true,
        ),
        ("ping", "PING to its answer", &run.ping_us, true),
        ("not ok", "intended to failed", &run.error_time_us, false),
    ];
    let measured = kinds.iter().filter(|(_, _, times, _)| times.count > 0);
    let cells = |times| time_cells(times, &run.plan);
    let rows = measured
        .clone()
        .map(|(name, _, times, _)| ((*name).to_owned(), cells(times)));
    let censored = run.response_time_us.censored;
    let excluded = count_of(censored, "request");
    let note = match censored {
        0 => String::new(),
        _ => format!("service time excludes {excluded} without a response"),
    };
    let mut table = Table::of(rows, &note);
    for (row, (_, about, _, on_terminal)) in table.rows.iter_mut().zip(measured) {
        row.about.push((*about).to_owned());
        if !on_terminal {
            row.detail = Detail::Page;
        }
    }
    (run.response_time_us.count > 0 || run.service_time_us.count > 0).then_some(table)
}

fn time_cells(times: &Times, plan: &Plan) -> Vec<ColumnCell> {
    // If requests are censored, the mean is unknown. Don't show `> 5 s`, because the mean may be
    // lower.
    let mean = time(times.mean, &Times::default(), plan);
    let cell = |head, detail, us| time_cell("", head, us, (times, plan)).at(detail);
    vec![
        shown("mean", mean).at(Detail::Page),
        cell("p50", Detail::Essential, times.p50),
        cell("p90", Detail::Roomy, times.p90),
        cell("p99", Detail::Essential, times.p99),
        cell("p99.9", Detail::Roomy, times.p99_9),
        cell("p99.99", Detail::Page, times.p99_99),
        cell("max", Detail::Essential, times.max),
        shown("requests", show_count(times.count)).at(Detail::Page),
    ]
}

/// Returns the response-time cells for tables of runs, steps and requests.
pub(crate) fn response_times(times: &Times, plan: &Plan) -> [ColumnCell; 7] {
    let cell = |name, head, detail, us| time_cell(name, head, us, (times, plan)).at(detail);
    [
        cell("response_p50_us", "p50", Detail::Essential, times.p50),
        data("response_p90_us", times.p90),
        data("response_p95_us", times.p95),
        cell("response_p99_us", "p99", Detail::Essential, times.p99),
        cell("response_p99_9_us", "p99.9", Detail::Roomy, times.p99_9),
        cell("response_max_us", "max", Detail::Roomy, times.max),
        data("response_mean_us", times.mean),
    ]
}

/// Returns the service-time cells for tables of runs and requests.
pub(crate) fn service_times(times: &Times) -> [ColumnCell; 2] {
    [
        data("service_p50_us", times.p50),
        data("service_p99_us", times.p99),
    ]
}

/// Returns a table of the requests, or `None` for a run without a mix.
pub(crate) fn requests(run: &Run) -> Option<Table> {
    let note = if is_whole(run) {
        "percentiles of response time"
    } else {
        "rates within the window; response-time percentiles over the whole run"
    };
    let rows = run.groups.iter();
    let rows = rows.map(|group| (group.name.clone(), request_cells(run, group)));
    Table::of(rows, note).captioned("request").not_empty()
}

/// Returns a table with a row for each request of each run's mix.
pub(crate) fn all_requests(record: &Record) -> Table {
    Table::of_data(record.runs.iter().flat_map(|run| {
        let all = run.groups.iter();
        all.map(move |group| request_cells(run, group))
    }))
}

fn request_cells(run: &Run, group: &GroupFigures) -> Vec<ColumnCell> {
    let share = share(group.requests.intended, run.requests.intended);
    let [throughput, goodput] = outcomes::rates(group.throughput_per_s, group.goodput_per_s);
    let mut cells = name_cells(run);
    cells.extend([
        text_cell("request", "request", &group.name),
        shown("share", share).at(Detail::Roomy),
        throughput.essential(),
        goodput,
    ]);
    cells.extend(response_times(&group.response_time_us, &run.plan));
    cells.extend(service_times(&group.service_time_us));
    cells.extend(outcomes::count_cells(&group.requests));
    cells.push(outcomes::failures(outcomes::not_ok(&group.requests)));
    cells
}

/// Maximum number of steps shown.
const MAX_SHOWN: usize = 20;

/// Returns a table of the steps, or `None` for a run without steps.
pub(crate) fn steps(run: &Run) -> Option<Table> {
    let name = |step: &StepFigures| match step.from_s {
        0.0 => format!("0 to {}", seconds(step.to_s)),
        from_s => format!("{} to {}", seconds(from_s), seconds(step.to_s)),
    };
    let rows = run
        .steps
        .iter()
        .map(|step| (name(step), step_cells(run, step)));
    let note = "requests are counted when they end; percentiles are response times";
    let table = Table::of(rows, note).captioned("step");
    table.limited(MAX_SHOWN).not_empty()
}

/// Returns the steps of all runs.
pub(crate) fn all_steps(record: &Record) -> Table {
    Table::of_data(record.runs.iter().flat_map(|run| {
        let all = run.steps.iter();
        all.map(move |step| step_cells(run, step))
    }))
}

fn step_cells(run: &Run, step: &StepFigures) -> Vec<ColumnCell> {
    let (offered, achieved) = (step.offered_per_s, step.throughput_per_s);
    let emphasis = Emphasis::Warn.when(achieved < KEPT_UP_SHARE * offered);
    let counts = &step.requests;
    let failed = counts.ended().saturating_sub(counts.ok);
    let unsent = counts.connect_failed.saturating_add(counts.unsent);
    let failed = failed.saturating_add(unsent);
    let mut cells = name_cells(run);
    cells.extend([
        number_cell("from_s", "from", Some(step.from_s), seconds),
        number_cell("to_s", "to", Some(step.to_s), seconds),
        number_cell("offered_per_s", "offered/s", Some(offered), per_second),
        shown("offered", rate(offered)),
        shown("achieved", emphasis.span(rate(achieved))),
    ]);
    cells.extend(outcomes::rates(Some(achieved), Some(step.goodput_per_s)));
    cells.extend(response_times(&step.response_time_us, &run.plan));
    cells.extend(outcomes::count_cells(counts));
    cells.push(outcomes::failures(failed));
    cells
}

/// Returns the cells that name a run in tables for programs.
pub(crate) fn name_cells(run: &Run) -> Vec<ColumnCell> {
    // Documents show the system only for runs without a trial, because a trial's name contains the
    // system and its settings.
    let system = match run.trial {
        Some(_) => data("system", &run.system),
        None => text_cell("system", "system", &run.system),
    };
    vec![
        text_cell("trial", "trial", &run.trial),
        system,
        data("workload", &run.workload),
        data("setting", setting_pairs(&run.setting)),
        count_cell("process", "process", run.process),
        count_cell("attempt", "attempt", run.attempt),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use floodmark_record::host::Environment;
    use floodmark_record::watch::ClockAlignment;

    #[test]
    fn states_once_that_a_server_does_not_speak_http() {
        let mut run = crate::fixture::closed();
        run.ended.reason = EndReason::NotHttp;
        run.ended.detail = Some("the server does not speak HTTP/1.1".to_owned());
        let text = crate::terminal::tests::drawn(ended(&run), 200);
        assert_eq!(
            text,
            "ended        the server does not speak HTTP/1.1 – the figures cover the first 10 s\n"
        );
    }

    #[test]
    fn names_the_clock_error_of_a_remote_host() {
        let mut remote = RemoteObservation {
            environment: Environment {
                cpus: 8,
                ..Environment::default()
            },
            aligned: ClockAlignment {
                method: AlignmentMethod::WallClocks,
                offset_ms: -1e6,
                error_ms: 12.34,
                correlation: None,
                but: None,
            },
            from_ms: 0,
            to_ms: 1,
            watcher_cpu_s: 0.0,
        };
        assert_eq!(
            remote_host(&remote).replace('\u{a0}', " "),
            "server host (8 CPUs) monitored by floodmark observe; clocks aligned by NTP, ± 12.3 ms"
        );
        remote.aligned.but = Some("contradicted by the load".to_owned());
        assert!(remote_host(&remote).ends_with("; contradicted by the load"));
    }
}
