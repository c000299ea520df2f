//! Verdicts on loads over HTTP/2: stream limits, flow-control windows, and few connections for many
//! threads.

use floodmark_record::cause::Cause;
use floodmark_record::http2::{Http2Use, ServerSettings};
use floodmark_record::path::PathStep;
use floodmark_record::plan::{Http, Http2};
use floodmark_record::run::Run;
use floodmark_record::times::Times;
use floodmark_record::verdict::{Confidence, Perturbation, Verdict, Windows};

use super::gain_tests::pool_of_8;
use super::proof::changes;
use super::tests::{is, judged, rules_out, run_with, series};
use super::waiting_tests::{blocked, working_on};
use crate::testing::open;

/// Changes a run to HTTP/2 with `streams` on each of `connections`. The server allows `limit`
/// streams.
fn over_http2(mut run: Run, connections: u32, streams: u32, limit: Option<u32>) -> Run {
    run.plan.connections = connections;
    run.plan.http = Http::V2(Http2 {
        streams,
        ..Http2::default()
    });
    run.http2 = Some(Http2Use {
        settings: Some(ServerSettings {
            max_streams: limit,
            window_bytes: 65_535,
            table_bytes: 4_096,
            frame_bytes: 16_384,
        }),
        ..Http2Use::default()
    });
    run
}

/// Returns the summary of `count` times with this mean.
fn times(count: u64, mean_us: f64) -> Times {
    Times {
        count,
        mean: Some(mean_us),
        p50: Some(mean_us),
        p99: Some(mean_us),
        ..Times::default()
    }
}

fn keys(verdict: &Verdict) -> Vec<String> {
    verdict.path.iter().skip(1).map(PathStep::key).collect()
}

#[test]
fn a_limit_on_streams_is_the_cause_if_the_server_works_on_all_requests() {
    // 1,000 requests/s, 16 at once: each takes 16 ms. The load asks for 4 × 32.
    let verdict = is(
        &over_http2(working_on(16.0), 4, 32, Some(4)),
        Cause::StreamLimit,
    );
    assert_eq!(keys(&verdict), ["stream-limit server"]);
    assert!((verdict.limit_per_s.unwrap() - 1_000.0).abs() < 1e-9);
    assert!(verdict.next.contains("-c 32 --streams 4"), "{verdict:#?}");
    assert_eq!(verdict.gain.as_ref().unwrap().requests, 128);
    assert!(rules_out(&verdict, Cause::Concurrency));
    // Requests wait in the server, for a pool of 8.
    let verdict = is(&over_http2(pool_of_8(), 4, 32, Some(4)), Cause::WorkerPool);
    assert!(rules_out(&verdict, Cause::StreamLimit), "{verdict:#?}");
    // The CPUs of the server are saturated.
    let mut run = over_http2(run_with(3.98, 3.8, 0.6), 4, 32, Some(4));
    run.least_service_time_us = Some(16_000.0);
    is(&run, Cause::ServerCpu);
}

#[test]
fn more_streams_are_advised_only_within_the_limit() {
    let next = |limit| {
        let run = over_http2(working_on(50.0), 2, 25, limit);
        is(&run, Cause::Concurrency).next
    };
    let more = "use more connections in the load: -c 50";
    assert_eq!(next(Some(25)), more);
    assert_eq!(
        next(Some(100)),
        format!("{more}; or more streams: --streams 100")
    );
    assert_eq!(
        next(None),
        format!("{more}; or more streams: --streams 625")
    );
}

#[test]
fn requests_of_the_open_model_wait_for_a_stream() {
    // 16 requests are in service at once, 16 ms each: 1,000 of 1,500 requests/s are served.
    let mut run = over_http2(working_on(16.0), 4, 32, Some(4));
    run.plan.model = open().model;
    run.requests.intended = 15_000;
    run.service_time_us = times(10_000, 16_000.0);
    run.blocked_by.server_limit_us = times(9_000, 500_000.0);
    let verdict = is(&run, Cause::StreamLimit);
    let waits = "requests waiting for a stream: 450.0 on average";
    assert!(verdict.evidence[1].starts_with(waits), "{verdict:#?}");
    // The rate is met, but 5 requests wait on average.
    run.requests.intended = 10_000;
    run.blocked_by.server_limit_us = times(5_000, 10_000.0);
    let verdict = is(&run, Cause::None);
    assert_eq!(verdict.also, [Cause::StreamLimit]);
    run.blocked_by.server_limit_us = times(500, 10_000.0);
    assert!(is(&run, Cause::None).also.is_empty());
}

/// Returns a run on one connection with 32 streams. One of two event loops is saturated.
fn one_of_two_loops() -> Run {
    let mut run = over_http2(run_with(1.2, 1.0, 0.99), 1, 32, Some(128));
    let loops = blocked("nginx", &[("events", 1.01), ("signal", 1.0)], 1_000.0);
    run.observations.extend(loops);
    let of = |figure: &str, value| series("server threads", &format!("nginx {figure}"), value);
    run.observations
        .retain(|one| one.metric.name() != "nginx threads");
    run.observations
        .extend([of("threads", 3.0), of("on_cpu", 0.99)]);
    run.ping_us = times(10, 40_000.0);
    run
}

#[test]
fn one_connection_leaves_event_loops_idle() {
    let verdict = is(&one_of_two_loops(), Cause::OneConnection);
    assert_eq!(keys(&verdict), ["threads server", "cpu server"]);
    assert!(verdict.next.contains("-c 32 --streams 1"), "{verdict:#?}");
    assert!(rules_out(&verdict, Cause::ServerCpuOneThread));
    // The loop answers PINGs before it handles requests.
    let mut prompt = one_of_two_loops();
    prompt.ping_us = times(10, 300.0);
    is(&prompt, Cause::OneConnection);
    // 30 % of the CPUs are busy.
    let gain = verdict.gain.as_ref().unwrap();
    assert!(gain.low_per_s > 2_000.0 && gain.requests == 32, "{gain:?}");
}

#[test]
fn a_saturated_thread_without_idle_loops_is_not_one_connection() {
    let changes: [fn(&mut Run); 4] = [
        // As many connections as event loops, or more.
        |run| run.plan.connections = 4,
        // One stream per connection.
        |run| run.plan.http = Http::V2(Http2::default()),
        // The thread of the connection answers PINGs at once, so another thread is saturated.
        |run| {
            run.ping_us = times(10, 300.0);
            for series in &mut run.observations {
                match series.metric.name().as_ref() {
                    "nginx on events" => series.values = vec![2.0; 10],
                    "nginx on_cpu" => series.values = vec![0.01; 10],
                    _ => {}
                }
            }
            let application = blocked("application", &[("events", 0.01)], 1_000.0);
            run.observations.extend(application);
            let of = |figure: &str, value| {
                series("server threads", &format!("application {figure}"), value)
            };
            run.observations
                .extend([of("threads", 1.0), of("on_cpu", 0.99)]);
        },
        // The only event loop of the server.
        |run| {
            for series in &mut run.observations {
                if series.metric.name() == "nginx on events" {
                    series.values = vec![0.01; 10];
                }
            }
        },
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let mut run = one_of_two_loops();
        change(&mut run);
        let verdict = is(&run, Cause::ServerCpuOneThread);
        assert!(
            rules_out(&verdict, Cause::OneConnection),
            "{i}: {verdict:#?}"
        );
    }
}

/// Returns a run whose 1 MB responses arrive in 64 KiB windows, one every 5 ms.
fn windows_of_64_kib() -> Run {
    let mut run = over_http2(working_on(50.0), 50, 1, None);
    run.plan.http = Http::V2(Http2 {
        window_bytes: 65_536,
        ..Http2::default()
    });
    run.bytes.received = 1_000_000 * run.requests.ok;
    run.service_time_us = times(10_000, 80_000.0);
    run.first_byte_us = times(10_000, 5_000.0);
    run.ping_us = times(500, 5_000.0);
    run.least_connect_time_us = Some(5_000.0);
    run.throughput_per_s = Some(50.0 / 0.08);
    run.least_service_time_us = Some(79_000.0);
    run
}

#[test]
fn responses_wait_for_our_window() {
    let run = windows_of_64_kib();
    let verdict = is(&run, Cause::FlowControlWindow);
    assert_eq!(keys(&verdict), ["window client"]);
    assert!(verdict.next.contains("--h2-window 512KiB"), "{verdict:#?}");
    // A saturated link delays PINGs behind the responses, but not the earlier connects.
    let mut slow_link = run.clone();
    slow_link.least_connect_time_us = Some(500.0);
    slow_link.bytes.received = 100_000 * run.requests.ok;
    slow_link.ping_us = times(500, 50_000.0);
    slow_link.observations.extend([
        series("server sockets", "send_queue", 50.0 * 60_000.0),
        series("client sockets", "receive_queue", 0.0),
    ]);
    is(&slow_link, Cause::Bandwidth);
    slow_link.least_connect_time_us = Some(50_000.0);
    let verdict = is(&slow_link, Cause::FlowControlWindow);
    assert!(rules_out(&verdict, Cause::Bandwidth));
    // Without figures for the server, the client's figures suffice.
    let mut remote = windows_of_64_kib();
    remote.server = None;
    is(&remote, Cause::FlowControlWindow);
}

#[test]
fn responses_that_do_not_use_up_the_window_have_another_cause() {
    let changes: [fn(&mut Run); 4] = [
        // A response fits into the window.
        |run| run.bytes.received = 50_000 * run.requests.ok,
        // The response starts late.
        |run| run.first_byte_us = times(10_000, 70_000.0),
        // A round trip is much shorter than the time per window.
        |run| run.ping_us = times(500, 100.0),
        // No PING was answered.
        |run| run.ping_us = Times::default(),
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let mut run = windows_of_64_kib();
        change(&mut run);
        assert_ne!(judged(&run).cause, Cause::FlowControlWindow, "{i}");
    }
}

/// Returns a run whose 1 MB request bodies spend 80 of 100 ms waiting for credit.
fn uploads() -> Run {
    let mut run = over_http2(working_on(50.0), 50, 1, None);
    run.throughput_per_s = Some(500.0);
    run.service_time_us = times(5_000, 100_000.0);
    run.least_service_time_us = Some(99_000.0);
    run.bytes.sent = 1_000_000 * 5_000;
    run.window_us = times(5_000, 80_000.0);
    run.ping_us = times(500, 5_500.0);
    run
}

#[test]
fn request_bodies_wait_for_the_window_of_the_server() {
    let verdict = is(&uploads(), Cause::FlowControlWindow);
    assert_eq!(keys(&verdict), ["window server"]);
    assert!(verdict.next.contains("MaxReceiveBufferPerStream"));
    // A server that reads slowly sends credit less often than once per round trip.
    let mut run = uploads();
    run.ping_us = times(500, 500.0);
    let verdict = is(&run, Cause::Concurrency);
    assert!(
        rules_out(&verdict, Cause::FlowControlWindow),
        "{verdict:#?}"
    );
    // The bodies saturate the link, which delays the PINGs.
    let mut run = uploads();
    run.least_connect_time_us = Some(100.0);
    assert!(rules_out(&judged(&run), Cause::FlowControlWindow));
    // The wait is a small part of the service time.
    let mut run = uploads();
    run.window_us = times(5_000, 20_000.0);
    is(&run, Cause::Concurrency);
}

/// Adds windows with this throughput ratio.
fn perturb(run: &mut Run, change: Perturbation, ratio: f64) {
    let noise = [0.99, 1.01, 1.0, 1.01, 0.99, 1.0];
    run.perturbed.push(Windows {
        change,
        knob: None,
        connections: run.plan.connections,
        base_per_s: vec![1_000.0; 6],
        changed_per_s: noise.iter().map(|n| 1_000.0 * ratio * n).collect(),
    });
}

#[test]
fn perturbations_prove_the_causes_of_http2() {
    use Perturbation::{LargerWindow, OneStream, SlowedClient, SlowedServer, TwiceConnections};
    let mut run = one_of_two_loops();
    let planned = |run: &Run| {
        let mut run = run.clone();
        run.verdict = Some(judged(&run));
        changes(&run)
    };
    let all = [TwiceConnections, SlowedClient, OneStream, SlowedServer];
    assert_eq!(planned(&run), all);
    perturb(&mut run, TwiceConnections, 1.0);
    perturb(&mut run, OneStream, 1.6);
    let verdict = is(&run, Cause::OneConnection);
    assert_eq!(verdict.confidence, Confidence::Proven, "{verdict:#?}");
    // The same requests on separate connections are no faster, so the thread is the bottleneck.
    run.perturbed[1].changed_per_s = vec![900.0, 905.0, 910.0, 895.0, 900.0, 902.0];
    assert_eq!(is(&run, Cause::ServerCpuOneThread).tested.len(), 2);

    let mut run = windows_of_64_kib();
    let all = [TwiceConnections, SlowedClient, LargerWindow, SlowedServer];
    assert_eq!(planned(&run), all);
    perturb(&mut run, LargerWindow, 4.0);
    let verdict = is(&run, Cause::FlowControlWindow);
    assert_eq!(verdict.confidence, Confidence::Proven, "{verdict:#?}");
    run.perturbed[0].changed_per_s = vec![1_000.0, 1_005.0, 990.0, 1_000.0, 1_010.0, 1_000.0];
    is(&run, Cause::Concurrency);

    let mut run = over_http2(working_on(16.0), 4, 32, Some(4));
    perturb(&mut run, TwiceConnections, 1.95);
    perturb(&mut run, SlowedServer, 0.99);
    let verdict = is(&run, Cause::StreamLimit);
    assert_eq!(verdict.confidence, Confidence::Proven, "{verdict:#?}");
    run.perturbed[0].changed_per_s = vec![1_000.0, 1_005.0, 990.0, 1_000.0, 1_010.0, 1_000.0];
    assert_ne!(judged(&run).cause, Cause::StreamLimit);
}

#[test]
fn too_many_requests_for_connections_of_their_own() {
    let mut run = over_http2(working_on(50.0), 11, 100, None);
    run.verdict = Some(judged(&run));
    assert!(!changes(&run).contains(&Perturbation::OneStream));
}
