//! Requests that wait: for a pool, for one at a time, for a connection to be let in, for the store, for a write or a link.

use floodmark_record::cause::Cause;
use floodmark_record::run::{Observation, Run};

use super::tests::{is, seen, series};

/// The same, whose answers took as long as one that met no other when so many were worked on at once.
fn working_on(at_once: f64) -> Run {
    let mut run = seen(0.3, 0.1, 0.1);
    run.least_service_time_us = Some(at_once * 1e6 / 1_000.0);
    run
}

/// Threads of a kind, each of which gave up the CPU so many times a second, waiting in a function of the kernel.
fn kind(name: &str, threads: f64, waits_per_s: f64, function: &str) -> [Observation; 5] {
    let of = |what: &str, value| series("server threads", &format!("{name} {what}"), value);
    [
        of("threads", threads),
        of("at work", threads),
        of("waits", waits_per_s),
        of("on_cpu", 0.01),
        of(&format!("in {function}"), threads),
    ]
}

/// Connections of the server to a store.
pub(super) fn upstream(established: f64, waiting: f64) -> [Observation; 2] {
    let of =
        |what: &str, value| series("server upstreams", &format!("127.0.0.1:5432 {what}"), value);
    [of("established", established), of("waiting", waiting)]
}

#[test]
fn requests_that_meet_no_others_are_too_few() {
    let verdict = is(&working_on(50.0), Cause::Concurrency);
    assert!((verdict.limit_per_s.unwrap() - 1_000.0).abs() < 1e-9);
    assert_eq!(verdict.next, "load it with more connections (-c 200)");
    // Where nothing says how long one takes, it does not tell.
    let verdict = is(&seen(0.3, 0.1, 0.1), Cause::Unknown);
    assert!(verdict.next.contains("-c 100"), "{verdict:#?}");
    let mut cold = working_on(50.0);
    cold.observations.extend([
        series("jvm", "java_threads", 30.0),
        series("jvm", "compiler_threads", 0.2),
    ]);
    let verdict = is(&cold, Cause::Unknown);
    assert!(!verdict.unseen.is_empty());
    cold.attempt = 2;
    is(&cold, Cause::Concurrency);
    // A machine without an idle CPU makes everything wait.
    let mut full = working_on(50.0);
    full.observations[0] = series("host", "busy", 3.9);
    is(&full, Cause::Unknown);
}

#[test]
fn a_pool_of_threads_is_told_from_one_of_connections_and_from_one_at_a_time() {
    let mut run = working_on(8.0);
    run.observations.extend(kind("main", 1.0, 5.0, "ep_poll"));
    let verdict = is(&run, Cause::Unknown);
    assert!(
        verdict
            .unseen
            .iter()
            .any(|line| line.contains("8.0 requests at once"))
    );
    run.setting.insert("connections".to_owned(), "8".to_owned());
    run.setting.insert("threads".to_owned(), "8".to_owned());
    run.observations
        .extend(kind("pool-1-thread", 8.0, 1_000.0, "futex_wait_queue"));
    let verdict = is(&run, Cause::WorkerPool);
    assert!(
        verdict.next.contains("raise `threads` (it is 8)"),
        "{verdict:#?}"
    );
    assert!((verdict.limit_per_s.unwrap() - 1_000.0).abs() < 1e-9);
    // Connections of which some are idle are not what is waited for.
    run.observations.extend(upstream(30.0, 8.0));
    is(&run, Cause::WorkerPool);

    let mut run = working_on(30.0);
    run.observations
        .extend(kind("pool-1-thread", 100.0, 2_000.0, "futex_wait_queue"));
    run.observations.extend(upstream(30.0, 29.5));
    is(&run, Cause::ConnectionPool);

    let mut run = working_on(1.0);
    run.observations
        .extend(kind("pool-1-thread", 16.0, 2_000.0, "futex_wait_queue"));
    run.observations
        .extend(kind("ticks", 1.0, 400.0, "hrtimer_nanosleep"));
    is(&run, Cause::Serialised);
    // An event loop that does most of the waiting, beside threads of the same name.
    let mut run = working_on(1.0);
    run.observations
        .extend(kind("python", 52.0, 2_000.0, "futex_do_wait"));
    let of = |what: &str| format!("python {what}");
    for series in &mut run.observations {
        if series.metric == of("at work") {
            series.values = vec![1.0; 10];
        }
    }
    is(&run, Cause::Serialised);
    // One thread that does everything, and sleeps.
    let mut run = working_on(1.0);
    run.observations
        .extend(kind("python3", 1.0, 1_000.0, "hrtimer_nanosleep"));
    is(&run, Cause::WorkerPool);
    // An event loop that lets one in at a time.
    let mut run = working_on(1.0);
    run.observations
        .extend(kind("node", 1.0, 1_000.0, "ep_poll"));
    is(&run, Cause::Serialised);
    // Times that differ that much say nothing of how many are worked on.
    is(&working_on(0.1), Cause::Unknown);
}

#[test]
fn threads_that_take_turns_on_one_cpu_are_no_pool() {
    let turns = |at_once: f64, cpus: f64| {
        let mut run = seen(cpus + 0.1, cpus, 0.05);
        run.least_service_time_us = Some(at_once * 1e6 / 1_000.0);
        run
    };
    is(&turns(1.0, 0.95), Cause::ServerCpuOneThread);
    is(&turns(2.1, 1.0), Cause::ServerCpuOneThread);
    is(&turns(2.1, 0.6), Cause::Unknown);
    is(&turns(8.0, 1.0), Cause::Unknown);
    let mut pool = turns(2.1, 1.0);
    pool.observations
        .extend(kind("pool-1-thread", 2.0, 1_000.0, "futex_wait_queue"));
    is(&pool, Cause::WorkerPool);
}

#[test]
fn threads_that_share_a_name_with_others_are_told_by_the_servers_setting() {
    let mut run = working_on(8.0);
    run.observations
        .extend(kind("application-pek", 20.0, 1_000.0, "futex_wait_queue"));
    run.observations.extend(upstream(30.0, 7.5));
    is(&run, Cause::Unknown);
    run.setting.insert("connections".to_owned(), "8".to_owned());
    is(&run, Cause::Unknown);
    run.setting.insert("threads".to_owned(), "8".to_owned());
    let verdict = is(&run, Cause::WorkerPool);
    let said = verdict.evidence.join("\n");
    assert!(
        said.contains("`threads` of the server is set to 8"),
        "{said}"
    );
    assert!(said.contains("7.5 of 30 connections"), "{said}");
    run.setting.insert("threads".to_owned(), "24".to_owned());
    is(&run, Cause::Unknown);
    // A full pool of connections is seen, and what is seen comes before what is set.
    run.setting.insert("threads".to_owned(), "8".to_owned());
    run.observations.truncate(run.observations.len() - 2);
    run.observations.extend(upstream(8.0, 7.9));
    is(&run, Cause::ConnectionPool);
}

#[test]
fn connections_that_nobody_lets_in_are_counted() {
    let queue = |run: &mut Run, waiting: f64, open: f64| {
        run.observations.extend([
            series("listener", "accept_queue", waiting),
            series("listener", "accept_queue_limit", 128.0),
            series("server", "open_files", open),
            series("server", "open_files_limit", 64.0),
        ]);
    };
    let mut run = seen(0.3, 0.1, 0.1);
    queue(&mut run, 42.0, 20.0);
    is(&run, Cause::MaxConnections);
    // One without an idle CPU accepts late because of that.
    run.observations[0] = series("host", "busy", 3.9);
    let verdict = is(&run, Cause::Unknown);
    let ruled_out = |line: &String| line.starts_with("max-connections: 0.10 CPUs were idle");
    assert!(verdict.ruled_out.iter().any(ruled_out), "{verdict:#?}");
    let mut run = seen(0.3, 0.1, 0.1);
    queue(&mut run, 10.0, 64.0);
    is(&run, Cause::ServerFds);
    let mut run = seen(0.3, 0.1, 0.1);
    queue(&mut run, 1.0, 64.0);
    is(&run, Cause::Unknown);
}

#[test]
fn sessions_of_the_store_tell_locks_from_commits() {
    let with = |locks: f64, commits: f64, idle: f64| {
        let mut run = working_on(1.0);
        run.observations.extend([
            series("postgresql", "active", 30.0),
            series("postgresql", "waiting for locks", locks),
            series("postgresql", "idle in transaction", idle),
            series("postgresql", "waiting IO:WALSync", commits / 10.0),
            series("postgresql", "waiting LWLock:WALWrite", commits * 0.9),
        ]);
        run
    };
    // Whoever has the lock waits for its client in the meantime, or for its commit.
    is(&with(28.0, 0.2, 0.8), Cause::StoreLock);
    is(&with(28.0, 0.8, 0.0), Cause::StoreCommit);
    is(&with(0.0, 25.0, 0.0), Cause::StoreCommit);
    // Sessions that wait for their clients are in use, and what few others do does not limit them.
    is(&with(0.0, 18.0, 20.0), Cause::Serialised);
    is(&with(1.0, 2.0, 0.0), Cause::Serialised);
}

#[test]
fn what_is_written_or_on_the_way_is_seen_there() {
    let mut run = working_on(1.0);
    run.observations
        .extend(kind("worker", 8.0, 1_000.0, "anon_pipe_write"));
    is(&run, Cause::SyncLogging);

    let mut run = working_on(1.0);
    run.bytes.received = 10_000 * 100_000;
    run.observations
        .push(series("server sockets", "send_queue", 4e6));
    run.observations
        .push(series("client sockets", "receive_queue", 1e3));
    let verdict = is(&run, Cause::Bandwidth);
    assert!(verdict.summary.contains("100 MB"), "{verdict:#?}");
    // A client that does not read is another matter.
    run.observations.pop();
    run.observations
        .push(series("client sockets", "receive_queue", 5e6));
    is(&run, Cause::Serialised);
}

#[test]
fn a_store_that_never_has_two_requests_is_asked_by_one_writer() {
    let with = |most: f64, statements: f64, busy: f64| {
        let mut run = seen(busy, 0.8, 0.3);
        let mut active = series("cassandra", "Native-Transport-Requests active", 0.0);
        active.values[3] = most;
        run.observations.extend([
            active,
            series("cassandra", "prepared_statements_executed", statements),
        ]);
        run
    };
    let verdict = is(&with(1.0, 1_000.0, 3.4), Cause::Serialised);
    assert!(
        verdict.evidence[0].starts_with("at most 1 request at once in Cassandra, in 10 readings"),
        "{verdict:#?}"
    );
    // Two at once, seen in what was thinned out too, one that is hardly asked, and CPUs that are full.
    let mut thinned = with(1.0, 1_000.0, 3.4);
    let mut largest = series("cassandra", "Native-Transport-Requests active.max", 0.0);
    largest.values[3] = 2.0;
    thinned.observations.push(largest);
    is(&thinned, Cause::Unknown);
    is(&with(2.0, 1_000.0, 3.4), Cause::Unknown);
    is(&with(1.0, 100.0, 3.4), Cause::Unknown);
    is(&with(1.0, 1_000.0, 3.8), Cause::Unknown);
}
