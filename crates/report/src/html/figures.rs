//! The table of figures: of one run its times side by side, of several a row each.

use floodmark_record::plan::Model;
use floodmark_record::run::Run;
use floodmark_record::times::Times;
use floodmark_record::units::{show_bytes, show_count, show_ns};
use floodmark_record::watch::Server;
use maud::{Markup, html};

use super::names::Named;
use super::text::Shown;
use crate::driven;
use crate::figures::{NOT_MEASURED, interval, per_second, rate, seconds, time};
use crate::outcomes;
use crate::style::Paint;
use crate::summary::{level, validity_of};

/// Rows of a table at most.
pub(crate) const MOST_ROWS: usize = 100;

/// Columns of a table of times.
type Column = (&'static str, fn(&Times) -> Option<f64>);
const TIMES: [Column; 6] = [
    ("p50", |t| t.p50),
    ("p90", |t| t.p90),
    ("p99", |t| t.p99),
    ("p99.9", |t| t.p99_9),
    ("p99.99", |t| t.p99_99),
    ("max", |t| t.max),
];

/// The figures of one run.
pub(crate) fn of_one(run: &Run) -> Markup {
    html! {
        div.wide { table.facts {
            @for (name, value, how) in rows(run) {
                tr { th scope="row" { (name) } td.figure { (value) } td.how { (Shown(&how)) } }
            }
        } }
        (times(run))
    }
}

/// Name, figure, and how it was taken.
fn rows(run: &Run) -> Vec<(&'static str, String, String)> {
    let length = seconds(run.window.to_s - run.window.from_s);
    let or_dash = |figure: Option<f64>| figure.map_or_else(|| NOT_MEASURED.to_owned(), rate);
    let mut rows = Vec::new();
    let driven = driven::name(run);
    let mut how = match driven {
        Some((name, _)) => {
            format!("ok answers, as {name} says, in {length} from its start to its end")
        }
        None => format!("ok answers in the window of {length}"),
    };
    if let (Some(per_s), Some(i)) = (run.throughput_per_s, &run.throughput_interval) {
        how = format!(
            "{how}; {} ({}; {})",
            interval(per_s, i),
            level(i.confidence),
            i.method
        );
    }
    rows.push(("throughput", or_dash(run.throughput_per_s), how));
    if run.plan.model == Model::Open
        && let Some(offered) = run.plan.rate_per_s
    {
        let mean = match run.plan.profile {
            Some(_) => "by the plan, on average",
            None => "by the plan",
        };
        rows.push(("offered", rate(offered), mean.to_owned()));
    }
    if driven.is_none() {
        let deadline = seconds(run.plan.deadline_s);
        let how = format!("ok within {deadline} of the intended time");
        rows.push(("goodput", or_dash(run.goodput_per_s), how));
    }
    rows.push((
        "client CPU",
        run.client
            .cpu_us_per_request
            .map_or_else(|| NOT_MEASURED.to_owned(), |us| show_ns(us * 1e3)),
        format!(
            "per request sent; in all {} user and {} system",
            seconds(run.client.user_s),
            seconds(run.client.system_s)
        ),
    ));
    if let Some(rss) = run.client.peak_rss_bytes {
        let how = match driven {
            Some(_) => "largest resident size of its largest process",
            None => "largest resident size of the load process",
        };
        rows.push(("client memory", show_bytes(rss), how.to_owned()));
    }
    if let Some((name, tool)) = driven {
        let version = driven::version(name, tool).to_owned();
        rows.push(("client", name.to_owned(), version));
        // It says nothing of connections and bytes.
        return rows;
    }
    for (cpu, memory, whose, used) in [
        ("server CPU", "server memory", "server", &run.server),
        ("store CPU", "store memory", "store", &run.store),
    ] {
        let Some(used) = used else { continue };
        rows.push((
            cpu,
            used.cpu_us_per_request
                .map_or_else(|| NOT_MEASURED.to_owned(), |us| show_ns(us * 1e3)),
            format!(
                "per request sent; in all {} user and {} system; {}, children included",
                seconds(used.user_s),
                seconds(used.system_s),
                used.seen.name
            ),
        ));
        let how = format!("largest resident size of the {whose}'s processes together");
        rows.push((memory, show_bytes(used.seen.peak_rss_bytes), how));
    }
    rows.push((
        "connections",
        show_count(run.connections.opened),
        match run.connections.peak {
            Some(peak) => format!("opened in all; at most {} at once", show_count(peak)),
            None => "opened in all".to_owned(),
        },
    ));
    rows.push((
        "traffic",
        show_bytes(run.bytes.received),
        format!(
            "received; {} sent; HTTP without TCP and TLS",
            show_bytes(run.bytes.sent)
        ),
    ));
    rows
}

/// Every kind of time that was taken.
fn times(run: &Run) -> Markup {
    let kinds: [(&str, &str, &Times); 8] = [
        ("response", "intended to done", &run.response_time_us),
        ("service", "sent to done", &run.service_time_us),
        ("first byte", "sent to first byte", &run.first_byte_us),
        ("blocked", "intended to a free connection", &run.blocked_us),
        ("lateness", "our own delay in sending", &run.lateness_us),
        ("connect", "TCP", &run.connect_time_us),
        ("handshake", "TLS", &run.handshake_time_us),
        ("not ok", "intended to failed", &run.error_time_us),
    ];
    let taken = || kinds.iter().filter(|(_, _, times)| times.count > 0);
    if taken().next().is_none() {
        return html! {};
    }
    html! {
        h3 { "Times" }
        div.wide { table {
            tr { th {} th scope="col" { "mean" } @for (head, _) in TIMES { th scope="col" { (head) } } th scope="col" { "of" } }
            @for (name, from_to, times) in taken() {
                tr {
                    th scope="row" { (name) " " small { (from_to) } }
                    td { (mean(times)) }
                    @for (_, of) in TIMES { td { (time(of(times), times, run.plan.timeout_s)) } }
                    td { (show_count(times.count)) }
                }
            }
        } }
        @if run.response_time_us.censored > 0 {
            p.note {
                "Response time counts " (show_count(run.response_time_us.censored))
                " requests that timed out as longer than the timeout; service time leaves them out."
            }
        }
    }
}

/// With timed-out requests a mean is not known, and not known to be above the timeout either.
fn mean(times: &Times) -> String {
    match times.mean {
        None => NOT_MEASURED.to_owned(),
        known => time(known, times, 0.0),
    }
}

/// The figures of several runs.
pub(crate) fn of_several(all: &[Named]) -> Markup {
    let stores = all.iter().any(|one| one.run.store.is_some());
    html! {
        div.wide { table {
            tr {
                th {}
                @for head in ["ok/s", "within the run", "goodput/s", "p50", "p99", "p99.9", "max", "not ok", "client CPU/request", "server CPU/request"] {
                    th scope="col" { (head) }
                }
                @if stores { th scope="col" { "store CPU/request" } }
                th scope="col" { "validity" }
            }
            @for one in all.iter().take(MOST_ROWS) {
                tr {
                    th scope="row" { (Shown(&one.name)) }
                    @for cell in cells(one.run) { td { (cell) } }
                    @if stores { td { (cpu(cpu_of(&one.run.store))) } }
                    td { (validity(one.run)) }
                }
            }
        } }
        p.note { "Percentiles are of response time, from the moment a request was intended to its end." }
        @for one in all.iter().take(MOST_ROWS) {
            @if let Some((name, tool)) = driven::name(one.run) {
                p.note {
                    (Shown(&one.name)) ": driven by " (Shown(driven::version(name, tool)))
                    ", whose rate and times are as it prints them"
                    @if let Some(counted) = driven::counted(name, tool) { "; " (Shown(&counted)) }
                    "."
                }
            }
        }
        (rest(all.len()))
    }
}

/// How many rows there was no room for.
pub(crate) fn rest(rows: usize) -> Markup {
    html! {
        @if rows > MOST_ROWS {
            p.note { (show_count((rows - MOST_ROWS) as u64)) " more are in the record." }
        }
    }
}

fn cells(run: &Run) -> [String; 10] {
    let per_s = |figure: Option<f64>| figure.map_or_else(|| NOT_MEASURED.to_owned(), per_second);
    let times = &run.response_time_us;
    let response = |us| time(us, times, run.plan.timeout_s);
    let within = run.throughput_per_s.zip(run.throughput_interval.as_ref());
    [
        per_s(run.throughput_per_s),
        within.map_or_else(|| NOT_MEASURED.to_owned(), |(per_s, i)| interval(per_s, i)),
        per_s(run.goodput_per_s),
        response(times.p50),
        response(times.p99),
        response(times.p99_9),
        response(times.max),
        show_count(outcomes::not_ok(&run.requests)),
        cpu(run.client.cpu_us_per_request),
        cpu(cpu_of(&run.server)),
    ]
}

/// CPU per request of a side, microseconds.
fn cpu_of(side: &Option<Server>) -> Option<f64> {
    side.as_ref()?.cpu_us_per_request
}

fn cpu(us: Option<f64>) -> String {
    us.map_or_else(|| NOT_MEASURED.to_owned(), |us| show_ns(us * 1e3))
}

/// The word for what a run is worth, coloured and never told by colour alone.
pub(crate) fn validity(run: &Run) -> Markup {
    let (paint, word) = validity_of(run);
    let class = match paint {
        Paint::Good => "valid",
        Paint::Warn => "bound",
        _ => "invalid",
    };
    html! { span class=(class) { (word) } }
}
