//! Notes that do not change the validity.

use std::collections::BTreeMap;

use floodmark_record::http2::{Http2Use, ServerSettings};
use floodmark_record::plan::{Http, Http2};

use super::*;
use crate::testing::burst;

#[test]
fn notes_the_statuses_of_redirects() {
    let mut case = Case::good(closed());
    let statuses = [(200, 5), (302, 1_200), (304, 7), (308, 1)];
    case.run.requests.statuses = statuses.into();
    case.notes_one(&["redirected 1,201 requests (302, 308)", "does not follow"]);
    case.run.requests.statuses = [(200, 5), (304, 7)].into();
    case.notes_nothing();
}

#[test]
fn notes_a_limit_on_streams_below_the_plan() {
    let mut case = Case::good(closed());
    case.run.plan.connections = 4;
    case.run.plan.http = Http::V2(Http2 {
        streams: 100,
        ..Http2::default()
    });
    let mut allows = |max_streams| {
        let settings = ServerSettings {
            max_streams,
            window_bytes: 65_535,
            table_bytes: 4096,
            frame_bytes: 16_384,
        };
        case.run.http2 = Some(Http2Use {
            settings: Some(settings),
            ..Http2Use::default()
        });
        case.judge().notes
    };
    let limited = allows(Some(3));
    let expected =
        "the server allows 3 of 100 streams on each connection, so at most 12 of 400 requests";
    assert!(
        limited.iter().any(|note| note.starts_with(expected)),
        "{limited:?}"
    );
    for other in [Some(100), None, Some(0)] {
        let notes = allows(other);
        assert!(
            !notes.iter().any(|note| note.contains("streams")),
            "{notes:?}"
        );
    }
    case.run.errors.insert("no_streams_allowed".to_owned(), 2);
    let notes = case.judge().notes;
    let words = "the server allowed no stream on 2 connections for 5 s";
    assert!(
        notes.iter().any(|note| note.starts_with(words)),
        "{notes:?}"
    );
}

#[test]
fn each_note_has_a_figure_and_a_fix() {
    let mut case = Case::good(closed());
    case.add_counter("ListenOverflows", 120.0);
    case.add_counter("ListenDrops", 120.0);
    case.notes_one(&[
        "120 new connections",
        "ListenOverflows",
        "net.core.somaxconn",
    ]);
    let mut case = Case::good(closed());
    case.add_counter("ListenDrops", 10.0);
    case.notes_one(&["dropped 10 new connections", "ListenDrops"]);

    let mut case = Case::good(open());
    case.run.connections.held = Some(HeldConnections {
        standing: 50,
        failed: 0,
        reasons: BTreeMap::new(),
        lost: 3,
        reopened: 1,
        opening_ns: 1,
    });
    case.notes_one(&["3 held connections closed", "1 reopened", "idle timeout"]);

    let mut case = Case::good(closed());
    case.add_counter("TCPSynRetrans", 30.0);
    case.notes_one(&["retransmitted 30 connection requests", "TCPSynRetrans"]);

    let mut case = Case::good(closed());
    (case.run.requests.ok, case.run.requests.timed_out) = (9_998, 2);
    case.notes_one(&["2 requests timed out after 5.00 s"]);

    let mut case = Case::good(closed());
    case.run.requests.in_flight_at_end = 16;
    (case.run.requests.ok, case.run.response_time_us.mean) = (9_984, None);
    case.run.response_time_us.censored = 16;
    case.run.response_time_us.censored_from = Some(1_900_000.0);
    case.notes_one(&["16 requests in flight at the end had waited longer"]);

    let mut case = Case::good(closed());
    case.set_seconds(2.0);
    case.run.response_time_us.mean = None;
    case.notes_one(&["lasted only 2.00 s", "-d 10s"]);
}

#[test]
fn similar_cases_have_no_note() {
    let mut burst = Case::good(burst());
    burst.set_seconds(1.0);
    burst.notes_nothing();

    let mut quiet = Case::good(closed());
    for counter in ["ListenOverflows", "ListenDrops", "TCPSynRetrans"] {
        quiet.add_counter(counter, 0.0);
    }
    quiet.notes_nothing();
}

#[test]
fn checks_littles_law_only_if_it_applies() {
    let mut case = Case::good(closed());
    case.run.response_time_us.mean = Some(49_500.0);
    case.notes_nothing();
    case.run.response_time_us.mean = Some(40_000.0);
    case.notes_one(&["gives 40.0 requests", "50 connections", "20 %"]);
    // Little's law is not checked if there are failures, fresh connections, several streams, an
    // open-model schedule, or response times close to the length of the run.
    case.run.requests.reconnects = 1;
    case.notes_nothing();
    case.run.requests.reconnects = 0;
    case.run.plan.connection_use = floodmark_record::plan::ConnectionUse::Fresh;
    case.notes_nothing();
    case.run.plan = closed();
    case.run.plan.http = Http::V2(Http2 {
        streams: 2,
        ..Http2::default()
    });
    case.notes_nothing();
    case.run.plan = open();
    case.notes_nothing();
    case.run.plan = closed();
    case.run.response_time_us.mean = Some(400_000.0);
    case.notes_nothing();
}

#[test]
fn notes_missing_run_delay_and_stalls() {
    let unread = |on_cpu| ThreadUsage {
        run_delay_s: None,
        ..thread(on_cpu, 0.0)
    };
    let mut case = Case::good(closed());
    case.run.client.threads = vec![unread(0.7)];
    case.notes_one(&[
        "run delay of the client threads is not available (/proc/thread-self/schedstat)",
        "70 %",
    ]);
    // Run delay is known for only one of two threads.
    case.run.client.threads.push(thread(0.7, 0.29));
    case.notes_one(&["schedstat"]);
    case.run.client.threads = vec![unread(0.97)];
    case.is(
        Status::Bound,
        &["97 % on a CPU", "run delay unknown", "-t 2"],
    );
    let mut died = Case::good(open());
    died.run.longest_stall_ns = None;
    died.is(Status::Invalid, &["cut short after 10.0 s", "repeat"]);
}

#[test]
fn notes_unused_addresses() {
    let at = |address: &str, opened, moved, left_out: Option<&str>| AddressUse {
        address: address.to_owned().try_into().unwrap(),
        opened,
        moved,
        left_out: left_out.map(str::to_owned),
    };
    let mut case = Case::good(closed());
    case.run.connections.addresses = vec![at("127.0.0.1:8080", 50, 0, None)];
    case.notes_nothing();
    case.run
        .connections
        .addresses
        .push(at("[::1]:8080", 0, 25, Some("connect_refused")));
    case.notes_one(&[
        "addresses of localhost:8080",
        "[::1]:8080 (connect refused, 25 connections)",
        "used instead: 127.0.0.1:8080",
    ]);
    // If no address accepts connections, the reason for the early end already reports the problem.
    case.run.connections.addresses[0].opened = 0;
    case.notes_nothing();
}
