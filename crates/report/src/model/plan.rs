//! Plans: a description (`closed, 50 kept connections, 1 thread, 10 s`), all details, and the
//! command that repeats the measurement.
//!
//! Pages are meant to be shared, so values of headers that contain credentials are omitted. The
//! record contains these values.

use std::path::Path;

use floodmark_record::Record;
use floodmark_record::plan::{
    Address, Arrivals, CloseFirst, ConnectionUse, Http, Http2, Length, Plan, RequestPlan, Schedule,
};
use floodmark_record::run::Run;
use floodmark_record::units::{show_bytes, show_exact_bytes};

use super::document::{Emphasis, Span, TextLine, line, plain};
use super::figures::{count_of, duration, rate, seconds};
use super::process_use;

/// Returns the first line of a summary:
///
/// `floodmark load http://127.0.0.1:8080/  closed, 50 kept connections, 1 thread, 10 s`.
pub(crate) fn headline(run: &Run, attempts: usize) -> [Span; 2] {
    let plan = &run.plan;
    let what = match &run.client.name {
        Some(client) => format!("{client} {}", plan.target.url),
        None => format!("floodmark load {}", requests(plan)),
    };
    let how = plain(format!("\u{a0}{}", describe(plan, attempts)));
    [Emphasis::Strong.span(what), how]
}

/// Returns the URL of the requests, preceded by their method unless it is GET.
pub(crate) fn requests(plan: &Plan) -> String {
    match plan.request.method.as_str() {
        "GET" => plan.target.url.clone(),
        method => format!("{method} {}", plan.target.url),
    }
}

/// Returns text such as `closed, 50 kept connections, 1 thread, 10 s`.
#[must_use]
pub fn describe(plan: &Plan, attempts: usize) -> String {
    let mix = plan.mix.as_ref().map(|mix| {
        let requests = count_of(mix.requests.len() as u64, "request");
        format!("a mix of {requests} ({})", mix.file)
    });
    let mut parts = Vec::from_iter(mix);
    parts.extend([model(plan), connections(plan)]);
    parts.extend((plan.http != Http::V1).then(|| plan.http.name().to_owned()));
    parts.extend(addresses(plan));
    parts.push(count_of(plan.threads.into(), "thread"));
    parts.push(match attempts {
        0 | 1 => length(plan),
        n => format!("{} of {}", count_of(n as u64, "attempt"), length(plan)),
    });
    if !plan.warmup.is_zero() {
        let warmup = duration(plan.warmup.as_secs_f64());
        parts.push(format!("after {warmup} of warm-up"));
    }
    parts.join(", ")
}

/// Describes the target addresses. Returns `None` for a single IP address, because the URL is
/// enough.
fn addresses(plan: &Plan) -> Option<String> {
    match (&plan.target.address, plan.target.addresses().count()) {
        (unix @ Address::Unix(_), _) => Some(format!("through {unix}")),
        (Address::Ip(_), 1) => None,
        (Address::Ip(_), n) => Some(format!("to {n} addresses")),
    }
}

fn model(plan: &Plan) -> String {
    let Some(schedule) = plan.schedule() else {
        return "closed".to_owned();
    };
    let poisson = match schedule.arrivals() {
        Arrivals::Poisson => " Poisson",
        _ => "",
    };
    format!("open, {}{poisson}", describe_schedule(schedule))
}

/// Returns `1,000/s`, `ramp from 100/s to 5,000/s`, `3 steps from 1,000/s to 5,000/s` or `replay of
/// times.log at 2x`.
fn describe_schedule(schedule: &Schedule) -> String {
    match schedule {
        Schedule::Constant { rate: per_s, .. } => rate(per_s.per_s()),
        Schedule::Burst { .. } => "burst".to_owned(),
        Schedule::Ramp { ramp, .. } => {
            let [from, to] = [ramp.from_per_s, ramp.to_per_s].map(rate);
            format!("ramp from {from} to {to}")
        }
        Schedule::Steps { steps, .. } => {
            let rates = [steps.first(), steps.last()];
            let [first, last] = rates.map(|step| rate(step.map_or(0.0, |step| step.rate_per_s)));
            match steps.len() {
                1 => format!("1 step of {first}"),
                n => format!("{n} steps from {first} to {last}"),
            }
        }
        Schedule::Replay { replay, .. } if (replay.speed - 1.0).abs() > f64::EPSILON => {
            format!("replay of {} at {}x", replay.file, replay.speed)
        }
        Schedule::Replay { replay, .. } => format!("replay of {}", replay.file),
    }
}

/// Returns the suffix for the number of connections: the streams of each connection, such as ` × 10
/// streams`, or no text for HTTP/1.1.
pub(crate) fn streams(plan: &Plan) -> String {
    match plan.http {
        Http::V1 => String::new(),
        Http::V2(Http2 { streams, .. }) => format!(" × {}", count_of(streams.into(), "stream")),
    }
}

fn connections(plan: &Plan) -> String {
    let n = u64::from(plan.connections);
    let streams = streams(plan);
    let cap = if plan.is_open() { "up to " } else { "" };
    let close = match plan.close_first {
        CloseFirst::Server => "",
        CloseFirst::Client => ", closed by the client first",
        CloseFirst::Reset => ", reset by the client",
    };
    if plan.hold() {
        return format!("{}{streams}", count_of(n, "held connection"));
    }
    match plan.connection_use {
        ConnectionUse::Kept => format!("{cap}{}{streams}", count_of(n, "kept connection")),
        ConnectionUse::PerConnection(each) => {
            let (connections, requests) = (count_of(n, "connection"), count_of(each, "request"));
            let each = match plan.http {
                Http::V1 => "each",
                Http::V2(_) => "per connection",
            };
            format!("{cap}{connections}{streams} with {requests} {each}{close}")
        }
        // A fresh connection carries one request.
        ConnectionUse::Fresh => {
            format!("{cap}{} at once{close}", count_of(n, "fresh connection"))
        }
    }
}

/// Describes the length of the load: `10 s`, `500,000 requests`, `500,000 requests or 10 s`,
/// `200,000 requests within 10 s`.
fn length(plan: &Plan) -> String {
    let requests = match plan.length() {
        Length::Duration(length) => return duration(length.as_secs_f64()),
        Length::Requests(n) => count_of(n, "request"),
        Length::Earlier {
            duration: most,
            requests,
        } => {
            let most = duration(most.as_secs_f64());
            return format!("{} or {most}", count_of(requests, "request"));
        }
    };
    match plan.schedule() {
        Some(schedule @ (Schedule::Burst { .. } | Schedule::Replay { .. })) => {
            format!("{requests} within {}", duration(schedule.window_s()))
        }
        _ => requests,
    }
}

/// Parts of header names that indicate secret values.
const SECRET: [&str; 7] = [
    "authorization",
    "cookie",
    "token",
    "secret",
    "password",
    "key",
    "session",
];

/// Replacement for a secret value.
const REDACTED: &str = "…";

/// Maximum number of characters of a request body to show.
const MAX_BODY: usize = 200;

/// Returns the command line of a record without `--out`, quoted for a shell, or `None` if the
/// record has no command line.
pub(crate) fn command(record: &Record) -> Option<String> {
    let (program, arguments) = record.tool.command.split_first()?;
    // The program's directory is meaningless on another host.
    let name = Path::new(program)
        .file_name()
        .and_then(|name| name.to_str());
    let mut words = vec![quoted(name.unwrap_or("floodmark"))];
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        // Omit --out, because a repetition needs a new result directory.
        match argument.as_str() {
            "--out" => drop(arguments.next()),
            out if out.starts_with("--out=") => {}
            argument => words.push(quoted(&redact(argument))),
        }
    }
    Some(words.join(" "))
}

/// Quotes a word for a shell. A word with a NUL byte cannot be quoted, but command lines never
/// contain NUL bytes.
fn quoted(word: &str) -> String {
    shlex::try_quote(word).map_or_else(|_| word.to_owned(), |quoted| quoted.into_owned())
}

/// Hides the value of a header that may be a credential, however the header is passed. Bodies and
/// URLs are not changed: the text before their first colon contains `{`, `"` or `/`, or is a scheme
/// such as `http`.
fn redact(argument: &str) -> String {
    match argument.split_once(':') {
        Some((name, _)) if is_secret(name) && !name.contains(['{', '"', '/']) => {
            format!("{name}: {REDACTED}")
        }
        _ => argument.to_owned(),
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET.iter().any(|word| name.contains(word))
}

/// Describes the plan of a run, or gives the command line of an external client.
pub(crate) fn details(run: &Run) -> Vec<TextLine> {
    let plan = &run.plan;
    let mut lines = vec![
        line("URL", &plan.target.url),
        line("address", plan.target.show_addresses()),
        line("load", describe(plan, 1)),
    ];
    if let Http::V2(settings) = plan.http {
        let [window, table] = [settings.window_bytes, settings.table_bytes];
        lines.extend([
            line(
                "HTTP/2 window",
                format!("{} per stream", show_exact_bytes(window.into())),
            ),
            line("HTTP/2 header table", show_exact_bytes(table.into())),
        ]);
    }
    match process_use::external(run) {
        Some((name, tool)) => lines.extend([
            line("client", process_use::version(name, tool)),
            line("command", process_use::command(tool)),
            line("log", &tool.log),
        ]),
        None => lines.extend([
            line("timeout", seconds(plan.timeout.as_secs_f64())),
            line("seed", plan.seed.to_string()),
        ]),
    }
    match &plan.mix {
        None if run.client.tool.is_some() => {}
        None => {
            lines.push(line("method", &plan.request.method));
            lines.extend(request(&plan.request));
        }
        Some(mix) => {
            for one in &mix.requests {
                let (method, path, weight) = (&one.request.method, &one.path, one.weight);
                let what = format!("{method} {path} (weight {weight})");
                lines.push(line(format!("request {}", one.name), what));
                lines.extend(request(&one.request));
            }
        }
    }
    lines
}

fn request(request: &RequestPlan) -> Vec<TextLine> {
    let headers = request.headers.iter().map(|(name, value)| {
        let value = if is_secret(name) { REDACTED } else { value };
        line("header", format!("{name}: {value}"))
    });
    let mut lines: Vec<TextLine> = headers.collect();
    if !request.body.is_empty() {
        let size = show_bytes(request.body.len());
        let text = request.body.bytes().map(std::str::from_utf8);
        let what = match (request.body.digest(), text) {
            (Some(digest), _) => format!("{size}, SHA-256 {}", digest.sha256),
            (None, _) if request.is_grpc => format!("{size}, gRPC message"),
            (None, Some(Ok(text))) => {
                let begin: String = text.chars().take(MAX_BODY).collect();
                let more = if begin.len() < text.len() { " …" } else { "" };
                format!("{size}: {begin}{more}")
            }
            (None, _) => format!("{size}, not text"),
        };
        lines.push(line("body", what));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn command_of(arguments: &[&str]) -> String {
        let mut record = fixture::record(Vec::new());
        record.tool.command = arguments.iter().map(|word| (*word).to_owned()).collect();
        command(&record).unwrap()
    }

    #[test]
    fn describes_streams() {
        let mut plan = fixture::closed().plan;
        let described = |plan: &Plan| describe(plan, 1).replace('\u{a0}', " ");
        let version_1 = described(&plan);
        plan.http = Http::V2(Http2 {
            streams: 10,
            ..Http2::default()
        });
        let version_2 = described(&plan);
        assert_eq!(
            version_2.replace(" × 10 streams, HTTP/2", ""),
            version_1,
            "{version_2}"
        );
        assert!(version_2.contains("50 kept connections × 10 streams, HTTP/2, 1 thread"));
        plan.connection_use = ConnectionUse::PerConnection(100);
        plan.close_first = CloseFirst::Client;
        let limited = described(&plan);
        assert!(
            limited.contains(
                "50 connections × 10 streams with 100 requests per connection, closed by the client \
                 first, HTTP/2"
            ),
            "{limited}"
        );
        plan.http = plan.http.with_one_stream();
        plan.connection_use = ConnectionUse::Fresh;
        let fresh = described(&plan);
        assert!(
            fresh.contains("50 fresh connections at once, closed by the client first, HTTP/2"),
            "{fresh}"
        );
        let mut run = fixture::closed();
        run.plan = plan;
        let lines = format!("{:?}", details(&run));
        assert!(
            lines.contains("1 MiB per stream") && lines.contains("4 KiB"),
            "{lines}"
        );
    }

    #[test]
    fn quotes_the_command_for_a_shell() {
        assert_eq!(
            command_of(&[
                "/opt/x/floodmark",
                "load",
                "http://h/?a=1&b=2",
                "-b",
                "it's"
            ]),
            "floodmark load 'http://h/?a=1&b=2' -b \"it's\""
        );
        assert!(command(&fixture::record(Vec::new())).is_none());
    }

    #[test]
    fn leaves_out_the_result_directory() {
        for out in [&["--out", "old"][..], &["--out=old"]] {
            let arguments = [&["floodmark", "load", "u"], out, &["-q"]].concat();
            assert_eq!(command_of(&arguments), "floodmark load u -q");
        }
    }

    #[test]
    fn leaves_out_credentials() {
        let shown = command_of(&[
            "floodmark",
            "load",
            "u",
            "-H",
            "Authorization: Bearer s3cret",
            "-HCookie: s3cret",
            "-H=Cookie: s3cret",
            "-qH",
            "Cookie: s3cret",
            "--header=X-Api-Key: s3cret",
            "--header",
            "Accept: text/html",
            "-q",
        ]);
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(
            shown.contains("Accept: text/html") && shown.ends_with(" -q"),
            "{shown}"
        );
        let mut run = fixture::closed();
        run.plan.request.headers = vec![("authorization".to_owned(), "s3cret".to_owned())];
        let lines = details(&run);
        let shown = format!("{lines:?}");
        assert!(
            shown.contains("authorization: …") && !shown.contains("s3cret"),
            "{shown}"
        );
    }
}
