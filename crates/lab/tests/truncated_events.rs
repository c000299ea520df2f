//! Checks that folding uses all complete events of an event stream that was truncated at any byte.
#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;

use floodmark_lab::{Directory, fold};
use floodmark_record::events::{EndReason, GroupRow, PartRow, Phase, RunId, WorkerReady};
use floodmark_record::host::{Environment, ToolInfo};
use floodmark_record::plan::{FiguresOf, Mix, MixRequest, Model, Plan};
use floodmark_record::watch::Observed;
use floodmark_record::{Counts, Event, SCHEMA_VERSION, SecondRow, TimeKind, WorkerEnd};
use floodmark_stats::Histogram;

const SECONDS: u64 = 4;
const PER_SECOND: u64 = 100;
const SECOND_NS: u64 = 1_000_000_000;

fn plan() -> Plan {
    let address: SocketAddr = "127.0.0.1:80".parse().unwrap();
    let plan = Plan::of(address.into());
    let mix = Mix {
        file: "mix.toml".to_owned(),
        requests: vec![MixRequest {
            name: "page".to_owned(),
            weight: 1,
            path: "/".to_owned(),
            request: plan.request.clone(),
            expect: Vec::new(),
            templates: false,
        }],
        feeds: Vec::new(),
    };
    Plan {
        connections: 10,
        model: Model::closed(SECONDS as f64),
        figures_of: FiguresOf::Whole,
        mix: Some(mix),
        ..plan
    }
}

/// Returns the counts of the first seconds, with ten requests in flight.
fn counts(of_seconds: u64) -> Counts {
    Counts {
        intended: of_seconds * PER_SECOND + 10,
        sent: of_seconds * PER_SECOND + 10,
        ok: of_seconds * PER_SECOND,
        ..Counts::default()
    }
}

/// Returns the counts for a second. From the first second on, ten requests stay in flight.
fn requests(index: u64) -> GroupRow {
    let began = PER_SECOND + if index == 0 { 10 } else { 0 };
    GroupRow {
        counts: Counts {
            intended: began,
            sent: began,
            ok: PER_SECOND,
            ..Counts::default()
        },
        good: PER_SECOND,
        ok_in_window: PER_SECOND,
        good_in_window: PER_SECOND,
        bytes_sent: 1,
        bytes_received: 1,
    }
}

/// Returns the first half of a second, which contains all its requests.
fn part(index: u64) -> Event {
    Event::Part(PartRow {
        phase: Phase::Measure,
        from_ns: index * SECOND_NS,
        to_ns: index * SECOND_NS + SECOND_NS / 2,
        sums: requests(index),
        groups: vec![requests(index)],
    })
}

fn second(index: u64) -> Event {
    let mut times = Histogram::new();
    (0..PER_SECOND).for_each(|i| times.record(1_000_000 + i));
    let requests = requests(index);
    Event::Second(SecondRow {
        phase: Phase::Measure,
        index,
        from_ns: index * SECOND_NS,
        to_ns: (index + 1) * SECOND_NS,
        counts: requests.counts.clone(),
        good: requests.good,
        ok_in_window: requests.ok_in_window,
        good_in_window: requests.good_in_window,
        bytes_sent: requests.bytes_sent,
        bytes_received: requests.bytes_received,
        connects: 0,
        open_connections: 10,
        user_s: 0.1,
        system_s: 0.1,
        histograms: BTreeMap::from([(TimeKind::Response, times.encode())]),
        groups: vec![requests],
    })
}

fn events() -> Vec<Event> {
    let run = RunId {
        system: "127.0.0.1".to_owned(),
        workload: "/".to_owned(),
        process: 1,
        trial: None,
        setting: BTreeMap::new(),
        attempt: 1,
    };
    let mut all = vec![
        Event::Opened {
            schema: SCHEMA_VERSION,
            tool: ToolInfo::floodmark("0", Vec::new()),
            environment: Environment::default(),
        },
        Event::RunBegan {
            run: run.clone(),
            plan: plan(),
            unix_ms: 0,
        },
        Event::Ready(WorkerReady {
            pid: 1,
            notices: Vec::new(),
            fd_limit: Some(1024),
            fd_limit_before: Some(1024),
            clock_origin_ns: None,
        }),
    ];
    all.extend((0..SECONDS).flat_map(|index| [part(index), second(index)]));
    all.push(Event::End(WorkerEnd {
        reason: EndReason::Completed,
        last_response_ns: None,
        window_ns: SECONDS * SECOND_NS,
        ended_ns: SECONDS * SECOND_NS,
        counts: Counts {
            in_flight_at_end: 10,
            ..counts(SECONDS)
        },
        warmup_counts: None,
        warmup_ns: 0,
        bytes_sent: SECONDS,
        bytes_received: SECONDS,
        connects: 10,
        peak_connections: 10,
        silent_connections: 0,
        held: None,
        longest_stall_ns: 0,
        errors: BTreeMap::new(),
        not_ok_responses: Vec::new(),
        request_log: None,
        unawaited: BTreeMap::new(),
        user_s: 0.4,
        system_s: 0.4,
        peak_rss_bytes: Some(1),
        threads: Vec::new(),
        addresses: Vec::new(),
        answers: None,
        out_of_order: 0,
        offenders: Vec::new(),
        not_numbers: 0,
        scored: None,
        tls: None,
        http2: None,
        groups: Vec::new(),
        next_number: 1,
    }));
    all.push(Event::Observed(Observed::default()));
    all.push(Event::RunEnded {
        run,
        cut_short: None,
    });
    all
}

/// Writes a result directory. Returns the directory's path and the bytes of its events.
fn write_result(parent: &tempfile::TempDir) -> (std::path::PathBuf, Vec<u8>) {
    let path = parent.path().join("result");
    let mut directory = Directory::create(&path).unwrap();
    for event in events() {
        directory.append(&event);
    }
    let bytes = fs::read(path.join("events.jsonl")).unwrap();
    (path, bytes)
}

#[test]
fn folds_events_cut_at_any_byte() {
    let parent = tempfile::tempdir().unwrap();
    let (path, bytes) = write_result(&parent);
    let schema = jsonschema::validator_for(&floodmark_record::schema()).unwrap();
    for cut in (0..bytes.len()).step_by(7).chain([bytes.len()]) {
        fs::write(path.join("events.jsonl"), &bytes[..cut]).unwrap();
        let text = String::from_utf8_lossy(&bytes[..cut]);
        // A line that lacks its line feed may still be complete.
        let complete = text
            .lines()
            .filter(|line| serde_json::from_str::<Event>(line).is_ok())
            .count();
        let record = match fold(&path) {
            Ok(record) => record,
            Err(error) if complete == 0 => {
                assert!(error.what.contains("first event is missing"), "{error}");
                continue;
            }
            Err(error) => panic!("cut at {cut}: {error}"),
        };
        assert_eq!(
            record.runs.len(),
            usize::from(complete >= 2),
            "cut at {cut}"
        );
        let value = serde_json::to_value(&record).unwrap();
        assert!(schema.is_valid(&value), "cut at {cut}");
        let Some(run) = record.runs.first() else {
            continue;
        };
        assert_eq!(run.requests.balance(), Ok(()), "cut at {cut}");
        let halves = (complete as u64).saturating_sub(3).min(2 * SECONDS);
        // If a second lacks its row, its parts are counted instead. Their times are unknown.
        let ok = halves.div_ceil(2) * PER_SECOND;
        assert_eq!(run.requests.ok, ok, "cut at {cut}");
        assert_eq!(run.groups[0].requests.ok, ok, "cut at {cut}");
        assert_eq!(
            run.response_time_us.count,
            halves / 2 * PER_SECOND,
            "cut at {cut}"
        );
        let ended = complete as u64 > 3 + 2 * SECONDS;
        // Only the last event contains these figures.
        assert_eq!(
            (run.connections.peak, run.client.peak_rss_bytes),
            if ended {
                (Some(10), Some(1))
            } else {
                (None, None)
            },
            "cut at {cut}"
        );
        assert_eq!(
            run.connections.fd_limit.is_some(),
            complete > 2,
            "cut at {cut}"
        );
        assert_eq!(
            run.ended.reason == EndReason::Completed,
            ended,
            "cut at {cut}"
        );
    }
}

#[test]
fn names_an_invalid_line() {
    let parent = tempfile::tempdir().unwrap();
    let (path, bytes) = write_result(&parent);
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').collect();
    lines[4] = b"{\"event\":\"second\"}\n";
    fs::write(path.join("events.jsonl"), lines.concat()).unwrap();
    let text = fold(&path).unwrap_err().to_string();
    assert!(text.contains("events.jsonl:5:"), "{text}");
}
