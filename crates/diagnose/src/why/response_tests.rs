//! Verdicts that follow from the outcomes of requests.

use std::collections::BTreeMap;

use floodmark_record::cause::Cause;
use floodmark_record::client::ExternalRun;
use floodmark_record::outcome::Counts;
use floodmark_record::verdict::RuledOut;

use super::queue_tests::rows;
use super::tests::{is, judged, run_with};
use crate::testing::open;

#[test]
fn explains_a_run_without_responses() {
    let mut run = run_with(0.5, 0.0, 0.0);
    run.requests = Counts {
        intended: 300,
        connect_failed: 300,
        ..Counts::default()
    };
    run.errors.insert("connect_refused".to_owned(), 300);
    let verdict = is(&run, Cause::Errors);
    let outcomes = "requests: 300 could not connect, 0 responses";
    assert_eq!(
        verdict.evidence,
        [outcomes, "errors: connect_refused × 300"]
    );
    assert!(verdict.next.contains("listens on localhost:8080"));
    // A shortage of local ports is a limit of the client.
    run.errors.insert("ports_exhausted".to_owned(), 300);
    is(&run, Cause::EphemeralPorts);
}

#[test]
fn counts_requests_that_lost_their_connection() {
    let mut run = run_with(1.2, 1.0, 0.99);
    run.series = rows(&[3_000.0, 500.0]);
    is(&run, Cause::ServerCpuOneThread);
    run.requests.reset = 99 * run.requests.ok;
    let verdict = is(&run, Cause::Errors);
    assert!(verdict.summary.starts_with("99 % "), "{verdict:?}");
    let outcomes = &verdict.evidence[0];
    assert!(outcomes.contains("lost their connection"), "{outcomes}");
    // Losing a minority of the requests does not limit the throughput.
    run.requests.reset = run.requests.ok / 4;
    assert_eq!(is(&run, Cause::ServerCpuOneThread).also, [Cause::Errors]);
}

#[test]
fn suggests_checking_the_path_after_404() {
    let mut run = run_with(3.0, 1.0, 0.5);
    run.requests.wrong = run.requests.ok;
    run.requests.ok = 0;
    run.requests.statuses = [(404, run.requests.wrong)].into();
    assert!(is(&run, Cause::Errors).next.contains("path"));
}

#[test]
fn judges_rejections_failures_and_offered_rates() {
    let mut limited = run_with(1.0, 0.1, 0.1);
    limited.requests.rejected = 20_000;
    limited.requests.statuses.insert(503, 20_000);
    is(&limited, Cause::RateLimiter);
    // Without status 429, a rate limiter accepts some requests in each second.
    limited.series = rows(&[3_000.0, 500.0, 0.0, 0.0]);
    limited.requests.statuses = BTreeMap::from([(429, 20_000)]);
    is(&limited, Cause::RateLimiter);
    // The remaining rejected requests are refused HTTP/2 streams.
    limited.requests.statuses = BTreeMap::from([(429, 12_000)]);
    let summary = is(&limited, Cause::RateLimiter).summary;
    let share = "54.5 % of the responses had status 429";
    assert!(summary.contains(share), "{summary}");
    limited.requests.statuses = BTreeMap::from([(503, 20_000)]);
    let failing = is(&limited, Cause::Errors);
    assert!(failing.summary.starts_with("67 % ") && failing.summary.contains("503: 20,000"));
    assert!(
        failing.gain.is_none() && failing.limit_per_s.is_none(),
        "{failing:?}"
    );
    limited.requests.rejected = 2_000;
    is(&limited, Cause::Errors);
    limited.series.clear();
    limited.requests.ok = 0;
    limited.throughput_per_s = Some(0.0);
    let failing = is(&limited, Cause::Errors);
    assert!(!failing.summary.contains("successes"), "{failing:?}");
    let no_limiter = |ruled_out: &RuledOut| {
        (ruled_out.cause, &*ruled_out.figure) == (Cause::RateLimiter, "no response was ok")
    };
    assert!(failing.ruled_out.iter().any(no_limiter), "{failing:?}");
    let mut wrong = run_with(1.0, 0.1, 0.1);
    wrong.requests.wrong = 4_000;
    is(&wrong, Cause::Errors);
    // Another cause ranks first unless at least half of the responses are failures.
    wrong.least_service_time_us = Some(1_000.0);
    assert_eq!(is(&wrong, Cause::Serialised).also, [Cause::Errors]);
    wrong.requests.wrong = 12_000;
    is(&wrong, Cause::Errors);
    let mut offered = run_with(1.0, 0.1, 0.1);
    offered.plan = open();
    is(&offered, Cause::None);
    offered.client.name = Some("wrk2".to_owned());
    offered.client.tool = None::<ExternalRun>;
    is(&offered, Cause::OfferedRate);
    offered.throughput_per_s = Some(500.0);
    assert_ne!(judged(&offered).cause, Cause::None);
}
