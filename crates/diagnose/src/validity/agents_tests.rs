use floodmark_record::plan::{Length, Schedule, Spacing};
use floodmark_record::reason::joined;
use floodmark_record::units::Rate;

use super::super::tests::Case;
use super::*;
use crate::testing::{agent, closed, open, scheduled, thread};
use crate::validity::validity;
use crate::why::tests::run_with;

/// Returns a valid run of agents `a`, `b` and `c`.
fn case(plan: Plan) -> Case {
    let mut case = Case::good(plan);
    case.run.agents = ["a", "b", "c"].map(agent).to_vec();
    case
}

/// Judges the run's figures as those of an agent.
fn judge(case: &Case, agent: &AgentRun) -> Validity {
    agent_validity(&case.run, agent, &case.expected)
}

#[test]
fn an_agent_is_judged_by_its_own_threads_and_cpus() {
    let mut case = Case::good(closed());
    assert_eq!(judge(&case, &agent("a")).status, Status::Valid);
    case.run.client.threads = vec![thread(0.98, 0.0)];
    let judged = judge(&case, &agent("a"));
    assert_eq!(judged.status, Status::Bound);
    assert!(joined(&judged.reasons).ends_with("-t 2"), "{judged:?}");
    let one_cpu = AgentRun {
        cpus: 1,
        ..agent("a")
    };
    let judged = judge(&case, &one_cpu);
    assert!(
        joined(&judged.reasons).ends_with("(--agents)"),
        "{judged:?}"
    );
}

#[test]
fn an_agent_is_not_judged_by_the_server() {
    let mut case = Case::good(open());
    let sent = case.run.requests.sent;
    (case.run.requests.ok, case.run.requests.wrong) = (0, sent);
    case.run.server_gone_since_s = Some(0.0);
    assert_eq!(judge(&case, &agent("a")).status, Status::Valid);
    case.run.agents = vec![agent("a")];
    case.is(Status::Invalid, &["no response was ok"]);
}

#[test]
fn a_lost_agent_is_invalid_for_its_reason() {
    let mut case = Case::good(closed());
    // The events of a lost agent end early.
    case.run.longest_stall_ns = None;
    let lost = AgentRun {
        lost: Some("after 3.2 s: killed by signal 9".to_owned()),
        ..agent("a")
    };
    let judged = judge(&case, &lost);
    assert_eq!(judged.status, Status::Invalid);
    assert_eq!(joined(&judged.reasons), "after 3.2 s: killed by signal 9");
}

#[test]
fn notes_a_late_start() {
    let case = Case::good(open());
    let late = |late_start_us| {
        let late = AgentRun {
            late_start_us,
            ..agent("a")
        };
        let judged = judge(&case, &late);
        assert_eq!(judged.status, Status::Valid);
        judged.notes
    };
    assert_eq!(late(900.0), Vec::<String>::new());
    assert_eq!(
        late(12_340.0),
        ["the measurement started 12.3 ms late, which delayed all its requests by the same amount"]
    );
    let mut run = self::case(open());
    run.run.agents[1].validity.notes = late(12_340.0);
    run.run.agents[2].validity.notes = late(20_000.0);
    run.notes_one(&["agents b and c: the measurement started 12.3 to 20.0 ms late"]);
}

#[test]
fn the_worst_agent_determines_the_status() {
    let mut case = case(closed());
    case.is(Status::Valid, &[]);
    case.notes_nothing();
    case.run.agents[1].validity.status = Status::Bound;
    case.run.agents[1].validity.reasons = vec!["use -t 2".into()];
    case.run.agents[2].validity = case.run.agents[1].validity.clone();
    let judged = case.judge();
    assert_eq!(judged.status, Status::Bound);
    assert_eq!(joined(&judged.reasons), "agents b and c: use -t 2");
    case.run.agents[0].validity.status = Status::Invalid;
    case.run.agents[0].validity.reasons = vec!["stalled".into()];
    let judged = case.judge();
    assert_eq!(judged.status, Status::Invalid);
    assert_eq!(joined(&judged.reasons), "agent a: stalled");
}

#[test]
fn the_threads_of_all_agents_do_not_bound_a_run() {
    // The agents are judged by their own CPUs, not by those of the coordinator.
    let mut case = case(closed());
    case.run.client.threads = vec![thread(0.98, 0.0); 6];
    case.is(Status::Valid, &[]);
}

#[test]
fn a_saturated_agent_refers_to_another_cause() {
    let mut case = case(closed());
    let agents = case.run.agents.clone();
    case.run = run_with(3.98, 3.9, 0.8);
    case.run.agents = agents;
    case.run.agents[1].validity.status = Status::Bound;
    case.run.agents[1].validity.reasons = vec!["the server may be faster".into()];
    case.run.verdict = crate::why::tests::verdict(&case.run, &crate::why::tests::machine());
    let judged = case.judge();
    assert_eq!(judged.status, Status::Bound);
    assert_eq!(judged.reasons.len(), 1);
    let reason = joined(&judged.reasons);
    assert!(
        reason.starts_with("agent b: no spare CPU time") && reason.contains("(server-cpu): "),
        "{reason}"
    );
}

#[test]
fn a_lost_agent_bounds_a_closed_run_and_invalidates_an_open_run() {
    let lost = |plan| {
        let mut case = case(plan);
        case.run.agents[1].lost = Some("after 3.2 s: killed by signal 9".to_owned());
        case.run.agents[1].validity.status = Status::Invalid;
        case.run.agents[1].validity.reasons =
            Vec::from_iter(case.run.agents[1].lost.as_deref().map(Into::into));
        case
    };
    let bound = lost(closed());
    bound.is(
        Status::Bound,
        &["agent b: lost (after 3.2 s: killed by signal 9): its connections were idle"],
    );
    assert_eq!(bound.judge().reasons.len(), 1);
    let mut run = bound.run;
    run.validity.status = Status::Bound;
    assert_eq!(crate::next_step(&run, 4), FIX_LOST);
    lost(open()).is(
        Status::Invalid,
        &["agent b: lost (after 3.2 s: killed by signal 9): the rest of its requests"],
    );
    // The server is judged too.
    let mut gone = lost(closed());
    (gone.run.requests.ok, gone.run.requests.reset) = (0, 10_000);
    gone.is(Status::Invalid, &["no response was ok", "agent b: lost"]);
}

#[test]
fn an_agent_that_never_started_is_noted() {
    let mut case = case(open());
    case.run.agents[1] = AgentRun {
        cpus: 0,
        bound_us: Some(1e9),
        lost: Some("exit code 127".to_owned()),
        ..agent("b")
    };
    case.run.agents[1].validity.status = Status::Invalid;
    case.notes_one(&["agent b: never started (exit code 127); the other agents sent its share"]);
}

#[test]
fn the_next_step_names_the_threads_of_an_agent() {
    let mut run = case(closed()).run;
    run.validity.status = Status::Bound;
    run.client.threads = vec![thread(0.98, 0.0); 6];
    run.agents[1].validity.status = Status::Bound;
    run.agents[1].client.threads = vec![thread(0.98, 0.0)];
    assert_eq!(crate::next_step(&run, 12), "use more client threads: -t 2");
}

#[test]
fn notes_clocks_that_are_less_exact_than_the_spacing() {
    let constant = |per_s, spacing| {
        scheduled(Schedule::Constant {
            rate: Rate::new(per_s).unwrap(),
            spacing,
            length: Length::seconds(10.0),
        })
    };
    let mut exact = case(constant(1_000.0, Spacing::Constant));
    exact.notes_nothing();
    exact.run.agents[1].bound_us = Some(950.0);
    exact.notes_one(&[
        "arrivals are 1.00 ms apart, but the agents' clocks agree only to within 1.05 ms",
        "within one agent are exact",
    ]);
    case(constant(10_000.0, Spacing::Constant)).notes_one(&["within 200 µs", "100 µs apart"]);
    case(constant(10_000.0, Spacing::Poisson)).notes_nothing();
    let mut alone = case(constant(100_000.0, Spacing::Constant));
    alone.run.agents.truncate(1);
    alone.notes_nothing();
}

#[test]
fn does_not_expect_littles_law_of_a_run_that_lost_an_agent() {
    let mut case = case(closed());
    case.run.response_time_us.mean = Some(30_000.0);
    case.notes_one(&["Little's law"]);
    case.run.agents[0].lost = Some("after 3.2 s: killed".to_owned());
    assert_eq!(case.judge().notes, Vec::<String>::new());
    assert_eq!(validity(&case.run, 4, &[]).status, Status::Bound);
}

#[test]
fn an_agent_has_a_share_of_the_plans_rate() {
    // The agent sends a tenth of the load, so 100 of its requests were due during the stall.
    let plan = scheduled(Schedule::Constant {
        rate: Rate::new(10_000.0).unwrap(),
        spacing: Spacing::Poisson,
        length: Length::seconds(10.0),
    });
    let mut case = Case::good(plan).unsent(400, None);
    case.run.longest_stall_ns = Some(100_000_000);
    assert_eq!(judge(&case, &agent("a")).status, Status::Valid);
    case.run.longest_stall_ns = Some(200_000_000);
    assert_eq!(judge(&case, &agent("a")).status, Status::Invalid);
}
