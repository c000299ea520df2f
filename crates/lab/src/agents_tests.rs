use std::collections::BTreeMap;
use std::net::SocketAddr;

use floodmark_record::SecondRow;
use floodmark_record::events::{EndReason, GroupRow, PartRow, Phase, ThreadUsage, WorkerEnd};
use floodmark_record::host::{Environment, ToolInfo};
use floodmark_record::plan::{Length, Model, Schedule, Spacing};
use floodmark_record::reason::joined;
use floodmark_record::run::Status;
use floodmark_record::units::Rate;
use floodmark_record::{Counts, SCHEMA_VERSION, TimeKind};
use floodmark_stats::Histogram;
use proptest::prelude::*;

use super::*;

const SECONDS: u64 = 4;
const PER_SECOND: u64 = 100;
const SECOND_NS: u64 = 1_000_000_000;

fn closed() -> Plan {
    let address: SocketAddr = "127.0.0.1:80".parse().unwrap();
    Plan {
        connections: 10,
        model: Model::closed(SECONDS as f64),
        ..Plan::of(address.into())
    }
}

fn open() -> Plan {
    let schedule = Schedule::Constant {
        rate: Rate::new(2.0 * PER_SECOND as f64).unwrap(),
        spacing: Spacing::Poisson,
        length: Length::seconds(SECONDS as f64),
    };
    let hold = false;
    Plan {
        model: Model::Open { schedule, hold },
        ..closed()
    }
}

fn id() -> RunId {
    RunId {
        system: "s".to_owned(),
        workload: "/".to_owned(),
        trial: None,
        setting: BTreeMap::new(),
        process: 1,
        attempt: 1,
    }
}

fn counts(seconds: u64) -> Counts {
    Counts {
        intended: seconds * PER_SECOND,
        sent: seconds * PER_SECOND,
        ok: seconds * PER_SECOND,
        ..Counts::default()
    }
}

/// Returns one second of a phase in which every request was sent `late_ns` late.
fn second(phase: Phase, index: u64, late_ns: u64) -> Event {
    let times = |ns: u64| {
        let mut times = Histogram::new();
        (0..PER_SECOND).for_each(|_| times.record(ns));
        times.encode()
    };
    Event::Second(SecondRow {
        phase,
        index,
        from_ns: index * SECOND_NS,
        to_ns: (index + 1) * SECOND_NS,
        counts: counts(1),
        good: PER_SECOND,
        ok_in_window: PER_SECOND,
        good_in_window: PER_SECOND,
        bytes_sent: 1,
        bytes_received: 1,
        connects: 0,
        open_connections: 5,
        user_s: 0.2,
        system_s: 0.1,
        histograms: BTreeMap::from([
            (TimeKind::Response, times(20_000_000)),
            (TimeKind::Lateness, times(late_ns)),
        ]),
        groups: Vec::new(),
    })
}

/// Returns the first tenth of a second.
fn part(index: u64) -> Event {
    Event::Part(PartRow {
        phase: Phase::Measure,
        from_ns: index * SECOND_NS,
        to_ns: index * SECOND_NS + SECOND_NS / 10,
        sums: GroupRow {
            counts: Counts {
                intended: 15,
                sent: 15,
                ok: 10,
                ..Counts::default()
            },
            ok_in_window: 10,
            ..GroupRow::default()
        },
        groups: Vec::new(),
    })
}

fn end(on_cpu: f64) -> Event {
    Event::End(WorkerEnd {
        reason: EndReason::Completed,
        last_response_ns: None,
        window_ns: SECONDS * SECOND_NS,
        ended_ns: SECONDS * SECOND_NS,
        counts: counts(SECONDS),
        warmup_counts: None,
        warmup_ns: 0,
        bytes_sent: 0,
        bytes_received: 0,
        connects: 5,
        peak_connections: 5,
        silent_connections: 0,
        held: None,
        longest_stall_ns: 7,
        errors: BTreeMap::new(),
        not_ok_responses: Vec::new(),
        request_log: None,
        unawaited: BTreeMap::new(),
        user_s: on_cpu * SECONDS as f64,
        system_s: 0.0,
        peak_rss_bytes: None,
        threads: vec![ThreadUsage {
            name: "load-0".to_owned(),
            drives_load: true,
            user_s: on_cpu * SECONDS as f64,
            system_s: 0.0,
            run_delay_s: Some(0.0),
            wall_s: SECONDS as f64,
            coalesced_s: None,
            kernel_stamped: None,
        }],
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
    })
}

fn facts(name: &str) -> AgentFacts {
    AgentFacts {
        name: name.to_owned(),
        host: format!("host of {name}"),
        cpus: 2,
        boot_id: None,
        skew_ns: Some((-3_000_000_500, 120_500)),
        late_start_ns: 0,
        lost: None,
    }
}

/// Folds one complete agent. `late_ns` is the lateness in each second.
fn folded(plan: &Plan, late_ns: [u64; SECONDS as usize], on_cpu: f64) -> AgentRun {
    let mut runs = AgentRuns::new(&id(), plan, 1);
    runs.take(0, &second(Phase::Warmup, 0, 0));
    for (index, late_ns) in (0..).zip(late_ns) {
        runs.take(0, &part(index));
        runs.take(0, &second(Phase::Measure, index, late_ns));
        assert_eq!(runs.0[0].events.rows.len(), 1, "rows are joined");
    }
    runs.take(0, &end(on_cpu));
    runs.finish(&[facts("a")], &[]).remove(0)
}

#[test]
fn adds_up_the_figures_of_an_agent() {
    let agent = folded(&closed(), [0; 4], 0.3);
    assert_eq!(agent.name, "a");
    assert_eq!(agent.host, "host of a");
    assert!(!agent.shares_host);
    assert_eq!(
        (agent.skew_us, agent.bound_us),
        (Some(-3_000_000.5), Some(120.5))
    );
    assert_eq!(agent.throughput_per_s, Some(PER_SECOND as f64));
    assert_eq!(agent.requests, counts(SECONDS));
    assert_eq!(agent.longest_stall_ns, Some(7));
    assert_eq!(agent.client.cpu_us_per_request, Some(3_000.0));
    assert_eq!(agent.validity.status, Status::Valid, "{:?}", agent.validity);
}

#[test]
fn judges_an_agent_by_its_whole_measurement() {
    assert_eq!(
        folded(&closed(), [0; 4], 0.98).validity.status,
        Status::Bound
    );
    assert_eq!(folded(&open(), [0; 4], 0.3).validity.status, Status::Valid);
    // One late second of four affects the 99th percentile.
    for late in 0..4 {
        let mut late_ns = [0; 4];
        late_ns[late] = 10_000_000;
        let validity = folded(&open(), late_ns, 0.3).validity;
        assert_eq!(validity.status, Status::Invalid, "{validity:?}");
        assert!(
            joined(&validity.reasons).contains("p99 lateness 10.0 ms"),
            "{validity:?}"
        );
    }
}

#[test]
fn counts_what_a_lost_agent_sent() {
    let mut runs = AgentRuns::new(&id(), &closed(), 3);
    for agent in [0, 1] {
        for index in 0..2 {
            runs.take(agent, &second(Phase::Measure, index, 0));
        }
        runs.take(agent, &part(2));
    }
    runs.take(0, &second(Phase::Measure, 2, 0));
    runs.take(0, &end(0.3));
    let lost = |facts: AgentFacts, why: &str| AgentFacts {
        lost: Some(why.to_owned()),
        ..facts
    };
    let absent = AgentFacts {
        host: String::new(),
        cpus: 0,
        ..facts("c")
    };
    let facts = [
        facts("a"),
        lost(facts("b"), "after 2.1 s: killed by signal 9"),
        lost(absent, "exit code 127"),
    ];
    let agents = runs.finish(&facts, &[]);
    assert_eq!(agents.len(), 3);
    assert_eq!(agents[0].validity.status, Status::Valid);
    let lost = &agents[1];
    assert_eq!((lost.requests.sent, lost.requests.ok), (215, 210));
    assert_eq!(lost.requests.in_flight_at_end, 5);
    assert_eq!((lost.throughput_per_s, lost.longest_stall_ns), (None, None));
    assert_eq!(lost.lost, facts[1].lost);
    assert_eq!(lost.validity.status, Status::Invalid);
    assert_eq!(
        joined(&lost.validity.reasons),
        "after 2.1 s: killed by signal 9"
    );
    assert!((lost.client.cpu_s - 0.6).abs() < 1e-9);
    let absent = &agents[2];
    assert_eq!((absent.cpus, absent.requests.sent), (0, 0));
    assert_eq!(joined(&absent.validity.reasons), "exit code 127");
}

#[test]
fn recognizes_the_coordinators_host() {
    let here = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let runs = AgentRuns::new(&id(), &closed(), 1);
    let facts = AgentFacts {
        boot_id: Some(here.trim().to_owned()),
        ..facts("a")
    };
    assert!(runs.finish(&[facts], &[])[0].shares_host);
}

#[test]
fn agents_are_folded_into_their_run() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("result");
    let mut result = crate::Directory::create(&path).unwrap();
    let saturated = folded(&closed(), [0; 4], 0.98);
    let opened = Event::Opened {
        schema: SCHEMA_VERSION,
        tool: ToolInfo::floodmark("0", Vec::new()),
        environment: Environment::default(),
    };
    let began = Event::RunBegan {
        run: id(),
        plan: closed(),
        unix_ms: 0,
    };
    let agents = Event::Agents {
        agents: vec![saturated.clone()],
    };
    for event in [
        opened,
        began,
        second(Phase::Measure, 0, 0),
        end(0.3),
        agents,
    ] {
        result.append(&event);
    }
    result.sync();
    let run = crate::fold(&path).unwrap().runs.remove(0);
    assert_eq!(run.validity.status, Status::Bound, "{:?}", run.validity);
    assert!(joined(&run.validity.reasons).starts_with("agent a: the client was the limit"));
    assert_eq!(run.agents, [saturated]);
}

proptest! {
    /// The load engine gives thread `i` of `n` one connection more if `i < connections % n`.
    #[test]
    fn agents_divide_the_connections(total in 1u32..200, threads in 1u32..9, agents in 1u32..20) {
        prop_assume!(agents <= total);
        let plan = Plan { connections: total, threads, ..closed() };
        let threads = (total / agents).clamp(1, threads);
        let mut sum = 0;
        for index in 0..agents {
            let all = agents * threads;
            let own = index * threads..(index + 1) * threads;
            let expected: u32 = own.map(|i| total / all + u32::from(i < total % all)).sum();
            prop_assert_eq!(connections(&plan, index, agents), expected);
            sum += expected;
        }
        prop_assert_eq!(sum, total);
    }
}
