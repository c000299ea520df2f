//! Where the slowest requests wait, if they take much longer than a typical request.

use floodmark_record::plan::Http;
use floodmark_record::units::{show_count, show_ns};

use super::facts::RunFacts;
use super::thresholds::{CONTENDED, MOST, NOTICEABLE};
use crate::text::show_s;

/// Minimum p99 of the response time, in µs, that scheduling delays do not explain. Linux
/// can keep a runnable thread waiting for a few milliseconds.
const SLOW_US: f64 = 10_000.0;

/// Describes the tail of the response times and the place where the slowest requests wait. Returns
/// `None` if p99 is below [`SLOW_US`] or less than ten times p50.
pub(super) fn show(facts: &RunFacts<'_>) -> Option<String> {
    let times = &facts.run.response_time_us;
    let (p50_us, p99_us) = times.p50.zip(times.p99)?;
    (p99_us >= SLOW_US && NOTICEABLE * p99_us >= p50_us).then(|| {
        format!(
            "p99 ({}) is {} × p50: the slowest requests wait {}",
            show_ns(p99_us * 1e3),
            show_count((p99_us / p50_us).round() as u64),
            place(facts, p99_us)
        )
    })
}

/// Returns where requests whose response time is `p99_us` wait.
fn place(facts: &RunFacts<'_>, p99_us: f64) -> String {
    let run = facts.run;
    let is_main = |us: Option<f64>| us.is_some_and(|us| us >= MOST * p99_us);
    if is_main(run.lateness_us.p99) {
        return "in the client, which sends them late".to_owned();
    }
    if is_main(run.blocked_us.p99) {
        let awaited = match run.plan.http {
            _ if is_main(run.connect_time_us.p99) => "new connection",
            Http::V1 => "free connection",
            Http::V2(_) => "free stream",
        };
        return format!("for a {awaited}");
    }
    if let Some(silence) = &run.silence
        && is_main(Some((silence.to_s - silence.from_s) * 1e6))
    {
        return format!(
            "in the server, which sent no response for {} from {:.1} s on",
            show_s(silence.to_s - silence.from_s),
            silence.from_s
        );
    }
    let Some(server) = &facts.server else {
        return "in the server or the network".to_owned();
    };
    let runnable = server
        .runnable
        .filter(|n| *n >= NOTICEABLE.max(CONTENDED * server.used));
    if let Some(runnable) = runnable {
        return format!(
            "in the server, whose threads wait for a CPU ({runnable:.2} threads on average, schedstat)"
        );
    }
    let in_flight = facts.in_flight.unwrap_or_default();
    if facts.are_unread(in_flight) == Some(true) {
        return "in the server's kernel until the server reads them".to_owned();
    }
    "in the server".to_owned()
}
