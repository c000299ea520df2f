//! Writes the file of an observer on another host and adds its observations to a run.

use std::fmt::Write as _;
use std::fs;

use floodmark_record::Metric;
use floodmark_record::host::{Environment, ToolInfo};
use floodmark_record::metric::ProcessFigure::{OnCpu, Processes, Rss, System, User};
use floodmark_record::metric::{MetricKind, Role};
use floodmark_record::watch::{
    AlignmentMethod, ClockReading, GroupValues, OBSERVER_FILE_VERSION, ObservedSecond,
    ObservedSeries, ObserverLine, ObserverOpened, SeriesGroup, Watcher,
};

use super::*;

/// Time from the start of the remote series to the start of the local series, in ms.
const HEAD_START_MS: u64 = 10_000;

fn clock(at_ms: u64, boot_id: &str, synchronised: bool) -> ClockReading {
    ClockReading {
        at_ms: at_ms as f64,
        boot_id: Some(boot_id.to_owned()),
        monotonic_ns: 0,
        unix_ns: 1_700_000_000_000_000_000,
        synchronised,
        max_error_us: Some(2_000),
    }
}

/// Returns an observer's file for a server that used 0.5 CPUs for 14 s.
fn observer_file(synchronised: bool) -> (tempfile::TempDir, ObserverFile) {
    let remote_clock = |at_ms| clock(at_ms, "remote", synchronised);
    let series = |figure| ObservedSeries {
        metric: Metric::Process(Role::Server, figure),
        kind: MetricKind::Counter,
    };
    let mut lines = vec![
        ObserverLine::Opened(Box::new(ObserverOpened {
            schema: OBSERVER_FILE_VERSION,
            tool: ToolInfo::floodmark("0", Vec::new()),
            environment: Environment::default(),
            port: 80,
            name: "httpd".to_owned(),
            pids: vec![7],
            allowed_cpus: None,
            clocks: remote_clock(0),
        })),
        ObserverLine::Group(SeriesGroup {
            group: 0,
            source: "/proc/PID/stat".to_owned(),
            series: [User, System, OnCpu, Rss, Processes].map(series).to_vec(),
        }),
    ];
    lines.extend((0..14).map(|second| {
        ObserverLine::Second(ObservedSecond {
            from_ms: second * 1_000,
            to_ms: (second + 1) * 1_000,
            clocks: remote_clock(HEAD_START_MS + 4_000),
            groups: vec![GroupValues {
                group: 0,
                start_ms: second * 1_000,
                step_ms: 500,
                values: [0.2, 0.05, 0.25, 1024.0, 1.0]
                    .map(|value| vec![value; 2])
                    .to_vec(),
            }],
            threads: Vec::new(),
            other_threads: None,
            watcher_cpu_s: second as f64 / 100.0,
            missing: Vec::new(),
        })
    }));
    let mut text = String::new();
    for line in lines {
        writeln!(text, "{}", serde_json::to_string(&line).unwrap()).unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("server.jsonl");
    fs::write(&path, text).unwrap();
    let file = ObserverFile::open(&path).unwrap();
    (directory, file)
}

/// Returns the local observations of a 4 s run. The measurement starts after 1 s.
fn observed() -> Observed {
    Observed {
        measured_from_ms: Some(1_000),
        clocks: Some(clock(4_000, "local", true)),
        watcher: Some(Watcher {
            cpu_s: 0.0,
            wall_s: 4.0,
        }),
        ..Observed::default()
    }
}

#[test]
fn moves_remote_series_to_the_client_clock() {
    let (_directory, mut file) = observer_file(true);
    let mut observed = observed();
    assert_eq!(add_to(&mut file, &mut observed), Ok(Vec::new()));
    let remote = observed.remote.unwrap();
    assert_eq!(remote.aligned.method, AlignmentMethod::WallClocks);
    assert_eq!(remote.aligned.offset_ms, -(HEAD_START_MS as f64));
    assert_eq!(remote.aligned.error_ms, 4.5);
    assert_eq!((remote.from_ms, remote.to_ms), (0, 4_000));
    let user = &observed.observations[0];
    assert_eq!((user.start_ms, user.step_ms), (0, 500));
    assert_eq!(user.values, [0.2; 8]);
    let server = observed.server.unwrap();
    assert_eq!((server.pids, server.peak_rss_bytes), (vec![7], 1024));
    // The server used 0.25 CPU-seconds per 0.5 s step, in a measurement of 3 s.
    let others = server.other_threads.unwrap();
    assert_eq!((others.user_s, others.system_s), (1.2, 0.3));
}

#[test]
fn refuses_a_remote_clock_that_is_not_synchronized() {
    let (_directory, mut file) = observer_file(false);
    let mut observed = observed();
    let error = add_to(&mut file, &mut observed).unwrap_err();
    assert!(error.contains("not synchronized (NTP)"), "{error}");
    assert_eq!(
        (observed.remote, observed.server, observed.observations),
        (None, None, Vec::new())
    );
}
