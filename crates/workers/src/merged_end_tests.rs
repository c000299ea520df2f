use floodmark_record::ThreadUsage;
use floodmark_record::events::{AddressUse, AnswersFile, EndReason, HeldConnections};
use floodmark_record::kept::{ScoringSummary, StrangeTotal, TotalLine};
use floodmark_record::outcome::NotOkResponse;
use floodmark_record::tls::TlsUse;

use super::*;
use crate::testing::worker_end;

/// Merges the ends of agents. A lost agent may precede the others.
fn merge(ends: impl IntoIterator<Item = WorkerEnd>, lost: Option<WorkerEnd>) -> WorkerEnd {
    let complete = ends.into_iter().enumerate().map(|(i, end)| MergedAgent {
        name: format!("agent-{i}"),
        end: Some(Box::new(end)),
        ..MergedAgent::default()
    });
    let agents = lost.map(lost_agent).into_iter().chain(complete);
    merged_end(agents.collect()).unwrap()
}

fn lost_agent(totals: WorkerEnd) -> MergedAgent {
    MergedAgent {
        name: "lost".to_owned(),
        totals,
        ..MergedAgent::default()
    }
}

fn by_reason(counts: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let counts = counts.iter().map(|(name, n)| ((*name).to_owned(), *n));
    counts.collect()
}

#[test]
fn adds_figures_and_keeps_the_latest_times() {
    let of = |n: u64| {
        let mut end = worker_end();
        end.last_response_ns = (n > 1).then_some(n);
        (end.window_ns, end.ended_ns, end.warmup_ns) = (10 * n, 20 * n, 30 * n);
        (end.longest_stall_ns, end.next_number) = (40 * n, 50 * n);
        (end.counts.intended, end.counts.sent, end.counts.ok) = (n, n, n);
        end.warmup_counts = (n > 1).then(|| end.counts.clone());
        (end.bytes_sent, end.bytes_received, end.connects) = (n, n + 1, n + 2);
        (end.peak_connections, end.out_of_order, end.not_numbers) = (n + 3, n + 4, n + 5);
        (end.user_s, end.system_s) = (n as f64, 0.5);
        end.peak_rss_bytes = (n > 1).then_some(n);
        end.errors = by_reason(&[("reset", n), (["a", "b"][n as usize % 2], 1)]);
        end.unawaited = by_reason(&[("connect_refused", n)]);
        end
    };
    let end = merge([of(1), of(2), of(4)], None);
    assert_eq!(end.last_response_ns, Some(4));
    assert_eq!((end.window_ns, end.ended_ns, end.warmup_ns), (40, 80, 120));
    assert_eq!((end.longest_stall_ns, end.next_number), (160, 200));
    assert_eq!((end.counts.ok, end.counts.balance()), (7, Ok(())));
    assert_eq!(end.warmup_counts.map(|counts| counts.ok), Some(6));
    assert_eq!(
        (end.bytes_sent, end.bytes_received, end.connects),
        (7, 10, 13)
    );
    assert_eq!(
        (end.peak_connections, end.out_of_order, end.not_numbers),
        (16, 19, 22)
    );
    assert_eq!((end.user_s, end.system_s), (7.0, 1.5));
    assert_eq!(end.peak_rss_bytes, Some(6));
    assert_eq!(end.errors, by_reason(&[("reset", 7), ("a", 2), ("b", 1)]));
    assert_eq!(end.unawaited, by_reason(&[("connect_refused", 7)]));
    assert_eq!(merge([of(1)], None).peak_rss_bytes, None);
}

#[test]
fn the_most_important_reason_wins() {
    use EndReason::{Completed, Interrupted, NotHttp, ServerGone};
    for (reasons, expected) in [
        ([Completed, Completed, Completed], Completed),
        ([Completed, NotHttp, Completed], NotHttp),
        ([NotHttp, ServerGone, Completed], ServerGone),
        ([NotHttp, ServerGone, Interrupted], Interrupted),
    ] {
        let ends = reasons.map(|reason| WorkerEnd {
            reason,
            ..worker_end()
        });
        assert_eq!(merge(ends, None).reason, expected, "{reasons:?}");
    }
}

#[test]
fn names_threads_after_their_agents() {
    let end = || {
        let mut end = worker_end();
        end.threads = ["load-0", "load-1"]
            .map(|name| ThreadUsage {
                name: name.to_owned(),
                drives_load: true,
                user_s: 1.0,
                system_s: 1.0,
                run_delay_s: None,
                wall_s: 2.0,
                coalesced_s: None,
                kernel_stamped: None,
            })
            .to_vec();
        end
    };
    let threads = merge([end(), end()], None).threads;
    let names: Vec<&str> = threads.iter().map(|thread| thread.name.as_str()).collect();
    let expected = [
        "agent-0/load-0",
        "agent-0/load-1",
        "agent-1/load-0",
        "agent-1/load-1",
    ];
    assert_eq!(names, expected);
}

#[test]
fn keeps_a_limited_number_of_examples() {
    let end = |statuses: std::ops::Range<u16>, body: &str| {
        let mut end = worker_end();
        let response = |status| NotOkResponse::new(status, body.as_bytes());
        end.not_ok_responses = statuses.map(response).collect();
        end.offenders = vec![body.to_owned(); 3];
        end
    };
    let end = merge([end(503..506, "first"), end(500..504, "second")], None);
    let responses: Vec<_> = (end.not_ok_responses.iter())
        .map(|one| (one.status.http, one.body.as_str()))
        .collect();
    let [first, second] = ["first", "second"];
    assert_eq!(
        responses,
        [
            (500, second),
            (501, second),
            (502, second),
            (503, first),
            (504, first)
        ]
    );
    assert_eq!(end.offenders, [first, first, first, second, second]);
}

#[test]
fn adds_optional_parts_that_some_agents_lack() {
    let held = HeldConnections {
        standing: 5,
        failed: 1,
        reasons: by_reason(&[("timed_out", 1)]),
        lost: 2,
        reopened: 3,
        opening_ns: 70,
    };
    let tls = TlsUse {
        handshakes: 4,
        ..TlsUse::default()
    };
    let answers = |file: &str, count| AnswersFile {
        file: file.to_owned(),
        count,
    };
    let address = |address: &str| AddressUse {
        address: address.to_owned().try_into().unwrap(),
        opened: 2,
        moved: 0,
        left_out: None,
    };
    let first = WorkerEnd {
        held: Some(held.clone()),
        tls: Some(tls.clone()),
        answers: Some(answers("one", 4)),
        addresses: vec![address("127.0.0.1:80")],
        ..worker_end()
    };
    let second = WorkerEnd {
        held: Some(HeldConnections {
            opening_ns: 50,
            ..held
        }),
        tls: Some(tls),
        answers: Some(answers("two", 6)),
        addresses: vec![address("127.0.0.1:80"), address("[::1]:80")],
        ..worker_end()
    };
    let end = merge([worker_end(), first, second], None);
    let expected = HeldConnections {
        standing: 10,
        failed: 2,
        reasons: by_reason(&[("timed_out", 2)]),
        lost: 4,
        reopened: 6,
        opening_ns: 70,
    };
    assert_eq!(end.held, Some(expected));
    assert_eq!(end.tls.map(|tls| tls.handshakes), Some(8));
    assert_eq!(end.answers, Some(answers("one", 10)));
    let opened: Vec<u64> = end.addresses.iter().map(|one| one.opened).collect();
    assert_eq!(opened, [4, 2]);
    let without = merge([worker_end(), worker_end()], None);
    assert_eq!(without, worker_end());
}

#[test]
fn scores_refer_to_the_first_line() {
    let end = |line: Option<f64>, number| WorkerEnd {
        scored: Some(ScoringSummary {
            line: line.map(|before| TotalLine::through(10.0, 0, before)),
            wrong_averages: 1,
            first_wrong_averages: Vec::new(),
            first_strange_totals: vec![StrangeTotal { number, total: 0.5 }],
        }),
        ..worker_end()
    };
    let end = merge([end(None, 9), end(Some(30.0), 8), end(Some(0.0), 7)], None);
    let scored = end.scored.unwrap();
    assert_eq!(scored.line, Some(TotalLine::through(10.0, 0, 30.0)));
    assert_eq!(scored.wrong_averages, 3);
    let numbers: Vec<u64> = (scored.first_strange_totals.iter())
        .map(|total| total.number)
        .collect();
    assert_eq!(numbers, [7, 8, 9]);
}

#[test]
fn adds_the_histograms_of_each_group() {
    let encoded = |times: &[u64]| {
        let mut histogram = Histogram::new();
        times.iter().for_each(|ns| histogram.record(*ns));
        histogram.encode()
    };
    let end = |groups: &[&[(TimeKind, String)]]| WorkerEnd {
        groups: groups
            .iter()
            .map(|group| group.iter().cloned().collect())
            .collect(),
        ..worker_end()
    };
    let [response, service] = [TimeKind::Response, TimeKind::Service];
    let end = merge(
        [
            end(&[&[(response, encoded(&[5, 7_000]))], &[]]),
            worker_end(),
            end(&[
                &[(response, "invalid".to_owned()), (service, encoded(&[9]))],
                &[(response, encoded(&[]))],
            ]),
            end(&[&[(response, encoded(&[7_000, 1_000_000]))]]),
        ],
        None,
    );
    let first = [
        (response, encoded(&[5, 7_000, 7_000, 1_000_000])),
        (service, encoded(&[9])),
    ];
    assert_eq!(end.groups, [BTreeMap::from(first), BTreeMap::new()]);
}

#[test]
fn open_requests_of_a_lost_agent_are_in_flight() {
    let row = |phase, intended, sent, ok| {
        let mut part = PartRow {
            phase,
            from_ns: 0,
            to_ns: 90,
            sums: Default::default(),
            groups: Vec::new(),
        };
        let counts = &mut part.sums.counts;
        (counts.intended, counts.sent, counts.ok) = (intended, sent, ok);
        part.sums.bytes_sent = 100;
        let mut row = SecondRow::of_parts(std::slice::from_ref(&part), 0).unwrap();
        (row.connects, row.user_s, row.system_s) = (3, 1.0, 0.25);
        (part, row)
    };
    let mut lost = WorkerEnd::default();
    for (part, row) in [row(Phase::Warmup, 4, 4, 4), row(Phase::Measure, 9, 7, 5)] {
        add_part(&mut lost, &part);
        add_row(&mut lost, &row);
    }
    let mut end = worker_end();
    (end.counts.intended, end.counts.sent, end.counts.ok) = (20, 20, 20);
    (end.window_ns, end.ended_ns) = (50, 100);
    let end = merge([end], Some(lost));
    assert_eq!(end.counts.balance(), Ok(()));
    let counts = &end.counts;
    assert_eq!(
        (counts.intended, counts.unsent, counts.in_flight_at_end),
        (29, 2, 2)
    );
    assert_eq!(end.warmup_counts.map(|counts| counts.ok), Some(4));
    assert_eq!((end.bytes_sent, end.connects), (100, 6));
    assert_eq!((end.user_s, end.system_s), (1.0, 0.25));
    assert_eq!((end.window_ns, end.ended_ns), (90, 100));
    assert!(merged_end(vec![lost_agent(WorkerEnd::default())]).is_none());
}
