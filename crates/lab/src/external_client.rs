//! Computes the figures of an external client's run from the client's output and CPU time.

use floodmark_record::Counts;
use floodmark_record::client::{ClientRan, PrintedFigures};
use floodmark_record::events::EndReason;
use floodmark_record::run::{ClientUsage, Run, Window};
use floodmark_record::times::Times;

use crate::run_end::client_failure;

/// Returns the outcome counts that the client prints. External clients do not print the number of
/// requests in flight.
pub fn counts(said: &PrintedFigures) -> Counts {
    let (answers, failed) = (said.answers.unwrap_or(0), said.errors.unwrap_or(0));
    let wrong = said.wrong.unwrap_or(0).min(answers);
    Counts {
        intended: answers + failed,
        sent: answers + failed,
        ok: answers - wrong,
        wrong,
        failed,
        ..Counts::default()
    }
}

/// Returns how the run ended. For an incomplete run, also returns the reason.
pub fn end_reason(ran: &ClientRan) -> (EndReason, Option<String>) {
    let reason = match (&ran.failure, ran.interrupted) {
        (Some(_), _) => EndReason::ClientFailed,
        (None, true) => EndReason::Interrupted,
        (None, false) => EndReason::Completed,
    };
    (reason, client_failure(ran))
}

/// Fills a run with the client's figures.
pub fn fill(run: &mut Run, ran: ClientRan) {
    let tool = ran.tool;
    let said = &tool.said;
    run.throughput_per_s = throughput(said, tool.wall_s);
    run.goodput_per_s = None;
    run.window = Window {
        from_s: 0.0,
        to_s: tool.wall_s,
        why: format!("the whole run of {}", ran.name),
    };
    let times = Times {
        mean: said.mean_us,
        p50: said.p50_us,
        p90: said.p90_us,
        p95: said.p95_us,
        p99: said.p99_us,
        max: said.max_us,
        ..Times::default()
    };
    if times != Times::default() {
        let count = said.answers.unwrap_or(0);
        run.response_time_us = Times { count, ..times };
    }
    let cpu_s = ran
        .user_s
        .zip(ran.system_s)
        .map(|(user, system)| user + system);
    let requests = run.requests.sent;
    run.client = ClientUsage {
        cpu_s: cpu_s.unwrap_or(0.0),
        user_s: ran.user_s.unwrap_or(0.0),
        system_s: ran.system_s.unwrap_or(0.0),
        cpu_us_per_request: cpu_s
            .filter(|_| requests > 0)
            .map(|cpu_s| cpu_s * 1e6 / requests as f64),
        peak_rss_bytes: ran.peak_rss_bytes,
        threads: Vec::new(),
        name: Some(ran.name),
        tool: Some(tool),
    };
}

/// Returns ok responses per second: the rate that the client prints, times the share of ok
/// responses. If the client prints no rate, divides the ok responses by the run's length.
fn throughput(said: &PrintedFigures, wall_s: f64) -> Option<f64> {
    let counts = counts(said);
    let answers = said.answers.filter(|answers| *answers > 0)?;
    let ok = counts.ok as f64;
    match said.throughput_per_s {
        Some(per_s) => Some(per_s * ok / answers as f64),
        None => (wall_s > 0.0).then(|| ok / wall_s),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excludes_unsuccessful_responses_from_throughput() {
        let said = PrintedFigures {
            throughput_per_s: Some(1000.0),
            answers: Some(2000),
            wrong: Some(500),
            errors: Some(7),
            ..PrintedFigures::default()
        };
        assert_eq!(throughput(&said, 2.5), Some(750.0));
        let counts = counts(&said);
        assert_eq!((counts.ok, counts.wrong, counts.failed), (1500, 500, 7));
        assert_eq!(counts.balance(), Ok(()));
        let unreported = PrintedFigures {
            throughput_per_s: None,
            ..said
        };
        assert_eq!(throughput(&unreported, 2.5), Some(600.0));
        assert_eq!(throughput(&PrintedFigures::default(), 2.5), None);
    }
}
