//! Test fixtures: runs whose figures are consistent with real histograms.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use floodmark_record::events::{EndReason, ThreadUsage};
use floodmark_record::host::{Environment, ToolInfo};
use floodmark_record::interval::Interval;
use floodmark_record::outcome::Counts;
use floodmark_record::plan::*;
use floodmark_record::result::Record;
use floodmark_record::run::*;
use floodmark_record::times::{BlockedTimes, Times};
use floodmark_record::tls::{TlsPlan, TlsRun, TlsUse, Trust};
use floodmark_record::units::Rate;
use floodmark_record::watch::{Server, ServerSeen};
use floodmark_stats::Histogram;

mod agents;
mod all_tables;
mod changing;
mod failing;
mod judged;

pub(crate) use agents::sent_by_agents;
pub(crate) use all_tables::{all_tables, capacity, threshold};
pub(crate) use changing::{ramp, replay, steps};
pub(crate) use failing::{failing, invalid, no_answers, violated};
pub(crate) use judged::judged;

pub(crate) fn record(runs: Vec<Run>) -> Record {
    let tool = ToolInfo::floodmark("0.1.0", Vec::new());
    let mut record = Record::new(tool, Environment::default());
    record.runs = runs;
    record
}

/// Summarizes the times `ns` of completed requests, plus `timed_out` requests that timed
/// out after 5 s.
pub(crate) fn times(ns: &[u64], timed_out: u64) -> Times {
    Histogram::summarise(
        &histogram(ns),
        &histogram(&vec![5_000_000_000; timed_out as usize]),
        &Histogram::new(),
    )
}

fn histogram(ns: &[u64]) -> Histogram {
    let mut histogram = Histogram::new();
    ns.iter().for_each(|ns| histogram.record(*ns));
    histogram
}

/// Returns the times `step_ns`, 2 · `step_ns`, …, 1000 · `step_ns`.
fn even(step_ns: u64) -> Vec<u64> {
    (1..=1000).map(|i| i * step_ns).collect()
}

pub(crate) fn closed_plan() -> Plan {
    Plan::of("127.0.0.1:8080".parse::<SocketAddr>().unwrap().into())
}

pub(crate) fn interval(around: f64, share: f64) -> Interval {
    Interval {
        low: around * (1.0 - share),
        high: around * (1.0 + share),
        confidence: 0.95,
        method: "autocorrelation-aware".to_owned(),
    }
}

/// Returns a closed-model run with a monitored server: 3 processes used 1.15 CPUs for 10 s.
pub(crate) fn watched() -> Run {
    let server = Server {
        cpu_s: 11.5,
        user_s: 4.0,
        system_s: 7.5,
        wall_s: 10.0,
        cpu_us_per_request: Some(14.2),
        seen: ServerSeen {
            name: "nginx".to_owned(),
            pids: vec![4711],
            processes: 3,
            peak_rss_bytes: 24_000_000,
            ..ServerSeen::default()
        },
    };
    Run {
        server: Some(server),
        ..closed()
    }
}

/// Returns a closed-model run with a monitored server and a store that used 0.28 CPUs.
pub(crate) fn with_store() -> Run {
    let mut run = watched();
    run.store = Some(Server {
        cpu_s: 2.8,
        user_s: 2.0,
        system_s: 0.8,
        wall_s: 10.0,
        cpu_us_per_request: Some(3.4),
        seen: ServerSeen {
            name: "postgres".to_owned(),
            pids: vec![4800],
            processes: 9,
            peak_rss_bytes: 61_000_000,
            ..ServerSeen::default()
        },
    });
    for row in &mut run.series {
        (row.store_user_cpus, row.store_system_cpus) = (Some(0.2), Some(0.08));
    }
    run
}

fn series(to_s: u64, per_s: f64) -> Vec<SeriesRow> {
    (0..to_s)
        .map(|i| SeriesRow {
            from_s: i as f64,
            to_s: (i + 1) as f64,
            throughput_per_s: per_s,
            goodput_per_s: per_s,
            failed: 0,
            p50_us: Some(251.0),
            p90_us: Some(610.0),
            p99_us: Some(1210.0),
            p99_9_us: Some(1520.0),
            max_us: Some(2300.0),
            response_times: None,
            client_user_cpus: 0.3,
            client_system_cpus: 0.51,
            server_user_cpus: Some(0.4),
            server_system_cpus: Some(0.75),
            store_user_cpus: None,
            store_system_cpus: None,
            open_connections: 50,
            groups: Vec::new(),
        })
        .collect()
}

fn thread(busy: f64, waited: f64) -> ThreadUsage {
    ThreadUsage {
        name: "load-0".to_owned(),
        drives_load: true,
        user_s: busy * 4.0,
        system_s: busy * 6.0,
        run_delay_s: Some(waited * 10.0),
        wall_s: 10.0,
        coalesced_s: None,
        kernel_stamped: None,
    }
}

/// Returns a valid closed-model run with kept connections and ok responses only.
pub(crate) fn closed() -> Run {
    let per_s = 184_210.0;
    Run {
        system: "127.0.0.1:8080".to_owned(),
        workload: "/".to_owned(),
        attempt: 1,
        process: 1,
        setting: BTreeMap::new(),
        trial: None,
        place: None,
        started_unix_ms: 1_700_000_000_000,
        plan: closed_plan(),
        ended: RunEnd {
            reason: EndReason::Completed,
            detail: None,
            abort: None,
        },
        sending_s: 10.0,
        window: Window {
            from_s: 0.0,
            to_s: 10.0,
            why: "the whole run: steady throughout".to_owned(),
        },
        warmup: None,
        validity: Validity {
            status: Status::Valid,
            reasons: Vec::new(),
            unsteady_bound: false,
            notes: Vec::new(),
        },
        throughput_per_s: Some(per_s),
        throughput_interval: Some(interval(per_s, 0.012)),
        goodput_per_s: Some(per_s),
        requests: Counts {
            intended: 1_842_100,
            sent: 1_842_100,
            ok: 1_842_100,
            statuses: BTreeMap::from([(200, 1_842_100)]),
            ..Counts::default()
        },
        errors: BTreeMap::new(),
        not_ok_responses: Vec::new(),
        request_log: None,
        response_time_us: times(&even(1000), 0),
        service_time_us: times(&even(1000), 0),
        least_service_time_us: Some(412.0),
        least_connect_time_us: None,
        blocked_us: times(&[0; 1000], 0),
        blocked_by: BlockedTimes::default(),
        lateness_us: times(&[1500; 1000], 0),
        connect_time_us: times(&even(100), 0),
        handshake_time_us: Times::default(),
        tls: None,
        http2: None,
        first_byte_us: times(&even(990), 0),
        error_time_us: times(&[], 0),
        window_us: Times::default(),
        ping_us: Times::default(),
        groups: Vec::new(),
        longest_stall_ns: Some(1_200_000),
        server_gone_since_s: None,
        silence: None,
        bytes: HttpBytes {
            sent: 147_368_000,
            received: 243_157_200,
        },
        connections: Connections {
            opened: 50,
            peak: Some(50),
            silent: 0,
            ports_per_source: Some(28_232),
            fd_limit: Some(1_048_576),
            addresses: Vec::new(),
            fd_limit_before: Some(1_024),
            held: None,
            unawaited: BTreeMap::new(),
        },
        client: ClientUsage {
            name: None,
            tool: None,
            cpu_s: 8.1,
            user_s: 3.0,
            system_s: 5.1,
            cpu_us_per_request: Some(4.4),
            peak_rss_bytes: Some(9_000_000),
            threads: vec![thread(0.81, 0.0)],
        },
        series: series(10, per_s),
        fine_throughput: None,
        steps: Vec::new(),
        saturation: None,
        observations: Vec::new(),
        measured_from_ms: Some(40),
        server: None,
        store: None,
        other_processes: Vec::new(),
        watcher: None,
        remote: None,
        agents: Vec::new(),
        missing: Vec::new(),
        steady: Steady {
            class: SteadyClass::Steady,
            from_s: Some(0.0),
            changes_s: Vec::new(),
        },
        checks: Vec::new(),
        perturbed: Vec::new(),
        verdict: None,
        runtime: None,
        log_errors: Vec::new(),
    }
}

/// Returns a closed-model run with a mix of three requests, one of which sometimes fails.
pub(crate) fn mixed() -> Run {
    let mut run = closed();
    let weights = [("search", 16), ("a-request-named-long", 3), ("order", 1)];
    let file = "shop.toml".to_owned();
    let requests = weights.map(|(name, weight)| MixRequest {
        name: name.to_owned(),
        weight,
        path: format!("/{name}"),
        request: run.plan.request.clone(),
        expect: Vec::new(),
        templates: true,
    });
    let of = |name: &str, n: u64, failed: u64, response_time_us: Times| GroupFigures {
        name: name.to_owned(),
        throughput_per_s: Some((n - failed) as f64 / 10.0),
        goodput_per_s: Some((n - failed) as f64 / 10.0),
        requests: Counts {
            intended: n,
            sent: n,
            ok: n - failed,
            wrong: failed,
            ..Counts::default()
        },
        bytes: HttpBytes {
            sent: 80 * n,
            received: 132 * n,
        },
        response_time_us,
        service_time_us: times(&even(1000), 0),
        blocked_us: times(&[0; 1000], 0),
        lateness_us: times(&[1500; 1000], 0),
        first_byte_us: times(&even(990), 0),
        error_time_us: times(&[], 0),
    };
    run.groups = vec![
        of("search", 1_473_680, 0, times(&even(800), 0)),
        of("a-request-named-long", 276_315, 0, times(&even(1200), 0)),
        of("order", 92_105, 105, times(&even(60_000), 12)),
    ];
    run.requests.ok -= 105;
    run.requests.wrong = 105;
    run.plan.mix = Some(Mix {
        file,
        requests: requests.to_vec(),
        feeds: Vec::new(),
    });
    for row in &mut run.series {
        row.groups = vec![GroupPoint::default(); 3];
        row.groups[0] = GroupPoint {
            throughput_per_s: 140_000.0,
            goodput_per_s: 139_000.0,
            failed: 3,
        };
    }
    run
}

/// Returns a plan for the open model without held connections.
fn open(schedule: Schedule) -> Model {
    let hold = false;
    Model::Open { schedule, hold }
}

/// Returns an open-model run at 1,000/s for 12 s with stalls, timeouts and slight lateness.
pub(crate) fn open_censored() -> Run {
    let mut run = closed();
    run.plan.model = open(Schedule::Constant {
        rate: Rate::new(1000.0).expect("a positive rate"),
        spacing: Spacing::Constant,
        length: Length::seconds(12.0),
    });
    run.plan.connections = 28_232;
    run.plan.deadline = std::time::Duration::from_millis(50);
    run.sending_s = 12.0;
    run.window.to_s = 12.0;
    run.throughput_per_s = Some(985.0);
    run.throughput_interval = Some(interval(985.0, 0.004));
    run.goodput_per_s = Some(911.0);
    run.requests = Counts {
        intended: 12_000,
        sent: 12_000,
        ok: 11_820,
        timed_out: 180,
        statuses: BTreeMap::from([(200, 11_820)]),
        ..Counts::default()
    };
    let ok: Vec<u64> = (0..11_820).map(|i| 200_000 + i * 8_000).collect();
    run.response_time_us = times(&ok, 180);
    run.service_time_us = times(&even(1000), 0);
    run.blocked_us = times(&even(90_000), 0);
    run.lateness_us = times(&even(400), 0);
    run.bytes = HttpBytes {
        sent: 960_000,
        received: 1_560_240,
    };
    run.client.cpu_us_per_request = Some(11.2);
    run.client.threads = vec![thread(0.013, 0.002)];
    run.series = series(17, 985.0);
    run
}

/// Returns a closed-model run with saturated client threads.
pub(crate) fn bound() -> Run {
    let mut run = closed();
    run.plan.threads = 2;
    run.validity.status = Status::Bound;
    run.validity.reasons = vec![
        "the client was the limit: its 2 threads were saturated; the server may be faster, and \
         latencies include waiting in the client; use -t 4"
            .into(),
    ];
    run.client.threads = vec![thread(0.99, 0.03), thread(0.98, 0.12)];
    run
}

/// Returns a run with fresh connections over HTTPS.
pub(crate) fn secured() -> Run {
    let mut run = closed();
    run.plan.target.url = "https://localhost:8443/".to_owned();
    run.plan.connection_use = ConnectionUse::Fresh;
    run.plan.tls = Some(TlsPlan {
        server_name: "localhost".to_owned(),
        trust: Trust::Nothing,
        resumption: true,
        client_certificate_sha256: None,
    });
    run.handshake_time_us = times(&even(500), 0);
    run.tls = Some(TlsRun {
        used: TlsUse {
            handshakes: 1_000,
            resumed: 950,
            negotiated: BTreeMap::from([("TLS 1.3 AES_256_GCM_SHA384".to_owned(), 1_000)]),
            handshake_cpu_s: 0.5,
            ..TlsUse::default()
        },
        handshake_cpu_share: Some(0.31),
    });
    run
}
