//! Tests of conditions that end a load early.

use floodmark_record::events::EndReason;
use floodmark_truth::Scenario;
use floodmark_truth::scenario::{FaultShare, ResponseFault, Service, ServiceChange};

use crate::support::{Load, folded, judging, load, start_load_as, truth};

/// Checks that a condition ended a load of 60 s after two seconds, and that the record says so.
fn is_aborted(load: &Load, condition: &str) {
    load.ends_with(1);
    let run = load.run();
    assert_eq!(run.ended.reason, EndReason::Aborted, "{}", load.stderr());
    let abort = run.ended.abort.as_ref().unwrap();
    assert_eq!(abort.condition, condition);
    assert!((1.9..4.0).contains(&run.sending_s), "{}", run.sending_s);
    assert!(run.requests.balance().is_ok());
    let stderr = load.stderr();
    let message = format!("floodmark: abort-if '{condition}' met: ");
    assert!(stderr.contains(&message), "{stderr}");
    let again = folded(&load.directory.path().join("result"));
    assert_eq!(again.runs[0].ended, run.ended);
}

#[test]
fn ends_a_load_whose_errors_exceed_a_limit() {
    let scenario = Scenario {
        faults: vec![FaultShare {
            share: 0.5,
            fault: ResponseFault::Status { code: 500 },
        }],
        ..Scenario::default()
    };
    let (_server, url) = truth(scenario);
    for arguments in [
        &["-c", "2", "-t", "2", "--backend", "epoll"][..],
        &["--rate", "200"],
        &["--rate", "200", "--agents", "local:2"],
    ] {
        let condition = ["-d", "60s", "--anyway", "--abort-if", "errors > 20% for 2s"];
        is_aborted(
            &load(&url, &[arguments, &condition].concat()),
            "errors > 20% for 2s",
        );
    }
    let condition = ["-n", "200", "--anyway", "--abort-if", "errors > 80% for 1s"];
    let load = load(&url, &condition);
    load.ends_with(0);
    assert_eq!(load.run().ended.reason, EndReason::Completed);
}

#[test]
fn ends_a_load_whose_response_times_exceed_a_limit() {
    let scenario = Scenario {
        change: Some(ServiceChange {
            at_ms: 500,
            service: Service::Fixed { delay_us: 60_000 },
        }),
        ..Scenario::default()
    };
    let (_server, url) = truth(scenario);
    let condition = "p50 > 50ms for 1s";
    // A request before the load would start the server's clock too early.
    let arguments = ["-d", "60s", "-c", "2", "--anyway", "--abort-if", condition];
    is_aborted(&load(&url, &arguments), condition);
}

#[test]
fn an_aborted_load_without_ok_responses_has_the_exit_code_of_a_condition() {
    for (fault, condition) in [
        (ResponseFault::Status { code: 500 }, "errors > 20% for 2s"),
        (ResponseFault::NoResponse, "throughput < 10/s for 2s"),
    ] {
        let scenario = Scenario {
            faults: vec![FaultShare { share: 1.0, fault }],
            ..Scenario::default()
        };
        let (_server, url) = truth(scenario);
        let arguments = ["-d", "60s", "-c", "2", "--anyway", "--abort-if", condition];
        is_aborted(&start_load_as(&url, &arguments, judging).end(), condition);
    }
}
