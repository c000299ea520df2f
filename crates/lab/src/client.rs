//! The figures of a run that another load generator drove, from what it said and what it used.

use floodmark_record::Counts;
use floodmark_record::client::{ClientRan, Said};
use floodmark_record::events::EndReason;
use floodmark_record::run::{Client, Ended, Run, Status, Validity, Window};
use floodmark_record::times::Times;

use crate::tally::why_no_run;

/// What became of its requests, as far as it says. It names no request that it sent and had no end.
pub fn counts(said: &Said) -> Counts {
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

/// How its run ended.
pub fn ended(ran: &ClientRan) -> Ended {
    Ended {
        reason: match (&ran.failure, ran.interrupted) {
            (Some(_), _) => EndReason::ClientFailed,
            (None, true) => EndReason::Interrupted,
            (None, false) => EndReason::Completed,
        },
        detail: why_no_run(ran),
    }
}

/// Puts its figures into a run.
pub fn figures(run: &mut Run, ran: ClientRan) {
    let tool = ran.tool;
    let said = &tool.said;
    run.throughput_per_s = throughput(said, tool.wall_s);
    run.goodput_per_s = None;
    run.window = Window {
        from_s: 0.0,
        to_s: tool.wall_s,
        why: format!("the whole run of {}", ran.name),
    };
    let times = [
        said.mean_us,
        said.p50_us,
        said.p90_us,
        said.p95_us,
        said.p99_us,
        said.max_us,
    ];
    if times.iter().any(Option::is_some) {
        run.response_time_us = Times {
            count: said.answers.unwrap_or(0),
            mean: said.mean_us,
            p50: said.p50_us,
            p90: said.p90_us,
            p95: said.p95_us,
            p99: said.p99_us,
            max: said.max_us,
            ..Times::default()
        };
    }
    let cpu_s = ran
        .user_s
        .zip(ran.system_s)
        .map(|(user, system)| user + system);
    let requests = run.requests.sent;
    run.client = Client {
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

/// Ok answers per second: its own figure, of which answers that were no success are taken out; where it has none, what it counted
/// over its whole run.
fn throughput(said: &Said, wall_s: f64) -> Option<f64> {
    let counts = counts(said);
    let answers = said.answers.filter(|answers| *answers > 0)?;
    let ok = counts.ok as f64;
    match said.throughput_per_s {
        Some(per_s) => Some(per_s * ok / answers as f64),
        None => (wall_s > 0.0).then(|| ok / wall_s),
    }
}

/// What such a run is worth. That its client is the limit is what it is run for, so it is never bound or invalid for that; only one
/// without figures is invalid.
pub fn validity(run: &Run) -> Option<Validity> {
    let name = run.client.name.as_ref()?;
    let (status, reasons) = match &run.ended.detail {
        Some(why) => (Status::Invalid, vec![why.clone()]),
        None => (Status::Valid, Vec::new()),
    };
    let note = format!(
        "rate and times are as {name} says them; its CPU is that of its whole run, with its start and end"
    );
    Some(Validity {
        status,
        notes: Vec::from_iter((status == Status::Valid).then_some(note)),
        reasons,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_without_success_are_no_throughput() {
        let said = Said {
            throughput_per_s: Some(1000.0),
            answers: Some(2000),
            wrong: Some(500),
            errors: Some(7),
            ..Said::default()
        };
        assert_eq!(throughput(&said, 2.5), Some(750.0));
        let counts = counts(&said);
        assert_eq!((counts.ok, counts.wrong, counts.failed), (1500, 500, 7));
        assert_eq!(counts.balance(), Ok(()));
        let unsaid = Said {
            throughput_per_s: None,
            ..said
        };
        assert_eq!(throughput(&unsaid, 2.5), Some(600.0));
        assert_eq!(throughput(&Said::default(), 2.5), None);
    }
}
