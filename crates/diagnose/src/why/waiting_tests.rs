//! Verdicts on runs whose requests wait for a pool, a lock, the accept queue, the store, a write or
//! a link.

use floodmark_record::cause::Cause;
use floodmark_record::metric::{Role, ThreadGroupFigure};
use floodmark_record::path::PathStep;
use floodmark_record::run::Run;
use floodmark_record::times::Times;
use floodmark_record::verdict::Verdict;
use floodmark_record::{Metric, Observation};

use super::tests::{is, rules_out, run_with, series};
use crate::testing::open;

/// Returns a run whose server works on `concurrency` requests at once.
pub(super) fn working_on(concurrency: f64) -> Run {
    let mut run = run_with(0.3, 0.1, 0.1);
    run.least_service_time_us = Some(concurrency * 1e6 / 1_000.0);
    run
}

/// Returns the series for a thread group that waits in a kernel function.
fn thread_group(name: &str, threads: f64, waits_per_s: f64, function: &str) -> [Observation; 5] {
    let of = |what: &str, value| series("server threads", &format!("{name} {what}"), value);
    [
        of("threads", threads),
        of("at work", threads),
        of("waits", waits_per_s),
        of("on_cpu", 0.01),
        of(&format!("in {function}"), threads),
    ]
}

/// Returns the steps of the path behind the requests in flight.
pub(super) fn keys(verdict: &Verdict) -> Vec<String> {
    verdict.path.iter().skip(1).map(PathStep::key).collect()
}

#[test]
fn requests_of_the_open_model_wait_for_a_connection() {
    // A server with a thread per connection: 50 connections serve 1,000 of 1,500 requests/s, at 50
    // ms per request.
    let times = |count, mean_us| Times {
        count,
        mean: Some(mean_us),
        p50: Some(mean_us),
        p99: Some(mean_us),
        ..Times::default()
    };
    let mut run = working_on(50.0);
    run.plan.model = open().model;
    run.requests.intended = 15_000;
    run.service_time_us = times(10_000, 50_000.0);
    let threads = blocked("python", &[("timer", 50.0)], 1_000.0);
    run.observations.extend(threads);
    is(&run, Cause::WorkerPool);
    run.blocked_by.own_limit_us = times(9_000, 500_000.0);
    let verdict = is(&run, Cause::Concurrency);
    assert_eq!(verdict.next, "use more connections in the load: -c 200");
}

/// Returns the series for threads that wait for objects.
pub(super) fn blocked(name: &str, objects: &[(&str, f64)], waits_per_s: f64) -> Vec<Observation> {
    let of = |what: &str, value| series("server threads", &format!("{name} {what}"), value);
    let threads = objects.iter().map(|(_, threads)| threads).sum();
    let mut all = vec![of("threads", threads), of("waits", waits_per_s)];
    let blocked = objects.iter();
    all.extend(blocked.map(|(object, threads)| of(&format!("on {object}"), *threads)));
    all
}

/// Returns the series for the server's connections to a store.
pub(super) fn upstream(established: f64, waiting: f64) -> [Observation; 2] {
    let of =
        |what: &str, value| series("server upstreams", &format!("127.0.0.1:5432 {what}"), value);
    [of("established", established), of("waiting", waiting)]
}

#[test]
fn finds_too_few_concurrent_requests() {
    let verdict = is(&working_on(50.0), Cause::Concurrency);
    assert!((verdict.limit_per_s.unwrap() - 1_000.0).abs() < 1e-9);
    assert_eq!(verdict.next, "use more connections in the load: -c 200");
    // Concurrency is unknown without a service time that excludes queueing.
    let verdict = is(&run_with(0.3, 0.1, 0.1), Cause::Unknown);
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
}

#[test]
fn compiler_threads_are_no_workers() {
    let mut run = working_on(25.0);
    let compiler = blocked("C2 CompilerThre", &[("timed lock", 1.0)], 15.0);
    run.observations.extend(compiler);
    let on_cpu = series("server threads", "C2 CompilerThre on_cpu", 0.1);
    run.observations.push(on_cpu);
    let verdict = is(&run, Cause::WorkerPool);
    assert_eq!(keys(&verdict), ["permits server", "timer server"]);
}

#[test]
fn distinguishes_pools_from_serialised_requests() {
    let mut run = working_on(8.0);
    run.observations
        .extend(thread_group("main", 1.0, 5.0, "ep_poll"));
    let verdict = is(&run, Cause::WorkerPool);
    assert_eq!(keys(&verdict), ["permits server", "timer server"]);
    run.setting.insert("connections".to_owned(), "8".to_owned());
    run.setting.insert("threads".to_owned(), "8".to_owned());
    run.observations.extend(thread_group(
        "pool-1-thread",
        8.0,
        1_000.0,
        "futex_wait_queue",
    ));
    let verdict = is(&run, Cause::WorkerPool);
    assert!(
        verdict.next.contains("raise `threads` (now 8)"),
        "{verdict:#?}"
    );
    assert!((verdict.limit_per_s.unwrap() - 1_000.0).abs() < 1e-9);
    // A pool with idle connections is not the limit.
    run.observations.extend(upstream(30.0, 8.0));
    is(&run, Cause::WorkerPool);

    let mut run = working_on(30.0);
    run.observations.extend(thread_group(
        "pool-1-thread",
        100.0,
        2_000.0,
        "futex_wait_queue",
    ));
    run.observations.extend(upstream(30.0, 29.5));
    let verdict = is(&run, Cause::ConnectionPool);
    assert_eq!(keys(&verdict), ["connections store"]);

    let mut run = working_on(1.0);
    run.observations.extend(thread_group(
        "pool-1-thread",
        16.0,
        2_000.0,
        "futex_wait_queue",
    ));
    run.observations
        .extend(thread_group("ticks", 1.0, 400.0, "hrtimer_nanosleep"));
    is(&run, Cause::Serialised);
    // The threads of an event loop share a name with other threads.
    let mut run = working_on(1.0);
    run.observations
        .extend(thread_group("python", 52.0, 2_000.0, "futex_do_wait"));
    let of = |what: &str| format!("python {what}");
    for series in &mut run.observations {
        if series.metric.name() == of("at work") {
            series.values = vec![1.0; 10];
        }
    }
    is(&run, Cause::Serialised);
    // A single thread sleeps.
    let mut run = working_on(1.0);
    run.observations
        .extend(thread_group("python3", 1.0, 1_000.0, "hrtimer_nanosleep"));
    is(&run, Cause::WorkerPool);
    // An event loop admits one request at a time.
    let mut run = working_on(1.0);
    run.observations
        .extend(thread_group("node", 1.0, 1_000.0, "ep_poll"));
    is(&run, Cause::Serialised);
    // Service times that vary this much are inconclusive.
    is(&working_on(0.1), Cause::Unknown);
}

#[test]
fn follows_what_threads_wait_for() {
    let judged = |concurrency: f64, objects: &[(&str, f64)], cause, path: &[&str]| {
        let mut run = working_on(concurrency);
        run.observations.extend(blocked("worker", objects, 1_000.0));
        // The states of threads are conclusive even if other programs use all CPUs.
        for busy in [0.3, 4.0] {
            run.observations[0] = series("host", "busy", busy);
            assert_eq!(keys(&is(&run, cause)), path, "{objects:?}");
        }
    };
    use Cause::{ConnectionPool, Disk, Serialised, SyncLogging, WorkerPool};
    // A pool whose threads all sleep, in HotSpot and elsewhere.
    let pool = ["threads server", "timer server"];
    judged(8.0, &[("timed lock", 8.0)], WorkerPool, &pool);
    judged(
        8.0,
        &[("timer", 7.6), ("timed lock", 0.4)],
        WorkerPool,
        &pool,
    );
    // A semaphore of 8 and a lock among 64 threads.
    let permits = ["permits server", "timer server"];
    judged(
        8.0,
        &[("own lock", 56.0), ("timed lock", 8.0)],
        WorkerPool,
        &permits,
    );
    let lock = ["lock server", "timer server"];
    judged(
        1.0,
        &[("lock 0x7f00", 63.0), ("timer", 1.0)],
        Serialised,
        &lock,
    );
    // A pool of 10 connections among 64 threads.
    judged(
        10.0,
        &[("own lock", 54.0), ("connection 127.0.0.1:9000", 10.0)],
        ConnectionPool,
        &["permits server", "connections upstream"],
    );
    // Each thread has its own connection.
    judged(
        4.0,
        &[("connection 127.0.0.1:5432", 4.0)],
        WorkerPool,
        &["threads server", "connections store"],
    );
    // An event loop that writes to a pipe, to a log and to another file.
    let pipe = ["threads server", "pipe server"];
    judged(
        1.0,
        &[("pipe write", 0.95), ("events", 0.05)],
        SyncLogging,
        &pipe,
    );
    let disk = ["threads server", "disk server"];
    judged(1.0, &[("file /srv/access.log", 1.0)], SyncLogging, &disk);
    judged(1.0, &[("file /srv/state", 1.0)], Disk, &disk);
    // An idle pool beside an event loop that limits itself to 8 requests.
    judged(8.0, &[("timed lock", 200.0)], WorkerPool, &permits);
}

#[test]
fn threads_that_take_turns_are_not_a_pool() {
    let turns = |concurrency: f64, cpus: f64| {
        let mut run = run_with(cpus + 0.1, cpus, 0.05);
        run.least_service_time_us = Some(concurrency * 1e6 / 1_000.0);
        run
    };
    is(&turns(1.0, 0.95), Cause::ServerCpuOneThread);
    is(&turns(2.1, 1.0), Cause::ServerCpuOneThread);
    is(&turns(2.1, 0.6), Cause::Unknown);
    is(&turns(8.0, 1.0), Cause::Unknown);
    let mut pool = turns(2.1, 1.0);
    pool.observations.extend(thread_group(
        "pool-1-thread",
        2.0,
        1_000.0,
        "futex_wait_queue",
    ));
    is(&pool, Cause::WorkerPool);
    // Two threads wait only for a lock and for requests.
    let mut turning = turns(2.1, 1.0);
    let objects = [("own lock", 0.8), ("timed lock", 0.4), ("client read", 0.8)];
    let threads = blocked("pool-1-thread", &objects, 1_000.0);
    turning.observations.extend(threads);
    is(&turning, Cause::ServerCpuOneThread);
}

#[test]
fn threads_that_only_supervise_are_no_workers() {
    for objects in [
        &[("timer", 7.8), ("events", 1.0)][..],
        &[("timer", 7.0), ("events", 1.0), ("signal", 1.0)],
    ] {
        let mut run = working_on(8.0);
        let of = |what: &str, value| series("server threads", &format!("gunicorn {what}"), value);
        run.observations.extend(blocked("gunicorn", objects, 400.0));
        run.observations.extend([of("at work", 8.0)]);
        let summary = is(&run, Cause::WorkerPool).summary;
        assert!(summary.starts_with("all 8 worker threads"), "{summary}");
    }
}

#[test]
fn finds_a_pool_by_the_servers_setting() {
    let mut run = working_on(8.0);
    run.observations.extend(thread_group(
        "application-pek",
        20.0,
        1_000.0,
        "futex_wait_queue",
    ));
    run.observations.extend(upstream(30.0, 7.5));
    let verdict = is(&run, Cause::ConnectionPool);
    assert_eq!(keys(&verdict), ["permits server", "connections store"]);
    run.setting.insert("connections".to_owned(), "8".to_owned());
    run.setting.insert("threads".to_owned(), "8".to_owned());
    let verdict = is(&run, Cause::WorkerPool);
    let evidence = verdict.evidence.join("\n");
    assert!(
        evidence.contains("server setting `threads`: 8"),
        "{evidence}"
    );
    assert_eq!(keys(&verdict), ["threads server", "connections store"]);
    run.setting.insert("threads".to_owned(), "24".to_owned());
    is(&run, Cause::ConnectionPool);
    // An observed connection pool ranks above a setting.
    run.setting.insert("threads".to_owned(), "8".to_owned());
    run.observations.truncate(run.observations.len() - 2);
    run.observations.extend(upstream(8.0, 7.9));
    is(&run, Cause::ConnectionPool);
}

#[test]
fn finds_limits_on_connections_and_files() {
    let queue = |run: &mut Run, waiting: f64, open: f64| {
        run.observations.extend([
            series("listener", "accept_queue", waiting),
            series("listener", "accept_queue_limit", 128.0),
            series("server", "open_files", open),
            series("server", "open_files_limit", 64.0),
        ]);
    };
    let mut run = run_with(0.3, 0.1, 0.1);
    queue(&mut run, 42.0, 20.0);
    is(&run, Cause::MaxConnections);
    // A CPU-bound server accepts connections late.
    let mut busy = run_with(3.9, 3.7, 0.5);
    queue(&mut busy, 42.0, 20.0);
    let verdict = is(&busy, Cause::ServerCpu);
    assert!(rules_out(&verdict, Cause::MaxConnections), "{verdict:#?}");
    let mut run = run_with(0.3, 0.1, 0.1);
    queue(&mut run, 10.0, 64.0);
    is(&run, Cause::ServerFds);
    let mut run = run_with(0.3, 0.1, 0.1);
    queue(&mut run, 1.0, 64.0);
    is(&run, Cause::Unknown);
}

#[test]
fn distinguishes_locks_from_commits() {
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
    // The lock holder waits for its client or for its commit.
    is(&with(28.0, 0.2, 0.8), Cause::StoreLock);
    is(&with(28.0, 0.8, 0.0), Cause::StoreCommit);
    is(&with(0.0, 25.0, 0.0), Cause::StoreCommit);
    // Sessions idle in a transaction count as in use.
    is(&with(0.0, 18.0, 20.0), Cause::Serialised);
    is(&with(1.0, 2.0, 0.0), Cause::Serialised);
}

#[test]
fn the_path_of_a_store_lock_starts_at_the_threads_that_wait() {
    let mut run = working_on(1.0);
    run.observations.extend(upstream(8.0, 8.0));
    run.observations.extend([
        series("postgresql", "active", 7.0),
        series("postgresql", "waiting for locks", 7.0),
        series("postgresql", "idle in transaction", 1.0),
    ]);
    let verdict = is(&run, Cause::StoreLock);
    assert_eq!(keys(&verdict), ["connections store", "row-lock store"]);
    let objects = [("connection 127.0.0.1:5432", 7.0), ("timer", 1.0)];
    run.observations
        .extend(blocked("worker", &objects, 1_000.0));
    let verdict = is(&run, Cause::StoreLock);
    assert_eq!(keys(&verdict), ["threads server", "row-lock store"]);
}

#[test]
fn threads_that_wait_for_a_file_lock_wait_for_its_holder() {
    // Two threads run outside the lock.
    let mut run = working_on(2.2);
    let objects = [("file lock", 46.0), ("appended file /srv/journal", 0.4)];
    run.observations
        .extend(blocked("worker", &objects, 2_000.0));
    run.observations
        .push(series("server threads", "worker on_cpu", 1.8));
    let verdict = is(&run, Cause::SyncLogging);
    assert_eq!(keys(&verdict), ["lock server", "disk server"]);
}

#[test]
fn any_thread_may_write_to_a_slow_pipe() {
    let mut run = working_on(0.02);
    let groups = [("runtime (main)", 0.3, 2.0), ("runtime", 0.7, 6.0)];
    for (group, writing, others) in groups {
        let objects = [("pipe write", writing), ("own lock", others)];
        run.observations.extend(blocked(group, &objects, 400.0));
    }
    let verdict = is(&run, Cause::SyncLogging);
    assert_eq!(keys(&verdict), ["lock server", "pipe server"]);
}

#[test]
fn hidden_waits_leave_the_limit_unknown() {
    // The kernel hides what the threads of another user wait for.
    let mut run = working_on(8.0);
    run.observations
        .extend(thread_group("worker", 8.0, 1_000.0, "unknown"));
    let verdict = is(&run, Cause::Unknown);
    assert!(
        verdict.unseen.iter().any(|line| line.contains("syscall")),
        "{verdict:#?}"
    );
    run.observations.pop();
    run.observations
        .push(series("server threads", "worker in hrtimer_nanosleep", 8.0));
    is(&run, Cause::WorkerPool);
}

#[test]
fn an_inactive_process_that_reads_a_pipe_is_no_worker() {
    let mut run = working_on(1.0);
    let objects = [("pipe read", 1.0), ("timer", 1.0)];
    run.observations.extend(blocked("perl", &objects, 1_000.0));
    run.observations
        .push(series("server threads", "perl at work", 1.0));
    let verdict = is(&run, Cause::WorkerPool);
    assert_eq!(keys(&verdict), ["threads server", "timer server"]);
}

#[test]
fn finds_blocking_writes_and_a_saturated_link() {
    let mut run = working_on(1.0);
    run.observations
        .extend(thread_group("worker", 8.0, 1_000.0, "anon_pipe_write"));
    is(&run, Cause::SyncLogging);

    let mut run = working_on(1.0);
    run.bytes.received = 10_000 * 100_000;
    run.observations
        .push(series("server sockets", "send_queue", 4e6));
    run.observations
        .push(series("client sockets", "receive_queue", 1e3));
    let verdict = is(&run, Cause::Bandwidth);
    assert!(verdict.summary.contains("100 MB"), "{verdict:#?}");
    // The client is slow to read responses.
    run.observations.pop();
    run.observations
        .push(series("client sockets", "receive_queue", 5e6));
    is(&run, Cause::Serialised);
}

#[test]
fn finds_a_single_writer_before_the_store() {
    let with = |most: f64, statements: f64, busy: f64| {
        let mut run = run_with(busy, 0.8, 0.3);
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
        verdict.evidence[0]
            .starts_with("maximum concurrent requests in Cassandra: 1, in 10 samples"),
        "{verdict:#?}"
    );
    // The store is not the cause if it works on two requests at once (even in a downsampled
    // series), if it executes few statements, or if CPUs are saturated.
    let mut thinned = with(1.0, 1_000.0, 3.4);
    let mut largest = series("cassandra", "Native-Transport-Requests active", 0.0);
    largest.is_peak = true;
    largest.values[3] = 2.0;
    thinned.observations.push(largest);
    is(&thinned, Cause::Unknown);
    is(&with(2.0, 1_000.0, 3.4), Cause::Unknown);
    is(&with(1.0, 100.0, 3.4), Cause::Unknown);
    is(&with(1.0, 1_000.0, 3.8), Cause::Unknown);
}

#[test]
fn threads_that_wait_for_the_store_are_a_pool() {
    // Eight threads of a larger group wait for the store, on connections that nothing limits.
    let mut run = working_on(8.0);
    let objects = [
        ("connection 127.0.0.1:5432", 8.0),
        ("own lock", 4.0),
        ("events", 1.0),
    ];
    run.observations
        .extend(blocked("dispatcher", &objects, 1_000.0));
    run.observations.extend(upstream(60.0, 8.0));
    let verdict = is(&run, Cause::WorkerPool);
    assert_eq!(keys(&verdict), ["threads server", "connections store"]);
    // With fewer connections than threads, the threads also wait for a connection.
    let mut run = working_on(5.2);
    let objects = [("connection 127.0.0.1:5432", 7.0)];
    run.observations
        .extend(blocked("dispatcher", &objects, 1_000.0));
    run.observations.extend(upstream(5.0, 5.0));
    let verdict = is(&run, Cause::ConnectionPool);
    assert_eq!(keys(&verdict), ["connections store"]);
}

#[test]
fn a_thread_that_mostly_waits_for_a_file_is_not_cpu_bound() {
    let mut run = working_on(2.5);
    let objects = [("file /srv/state", 0.3), ("file /srv", 0.22)];
    run.observations
        .extend(blocked("loop (main)", &objects, 1_000.0));
    run.observations
        .push(series("server threads", "loop (main) on_cpu", 0.46));
    let threads = Metric::ThreadGroup(
        Role::Server,
        "loop (main)".to_owned(),
        ThreadGroupFigure::Threads,
    );
    run.observations
        .iter_mut()
        .filter(|of| of.metric == threads)
        .for_each(|of| of.values = vec![1.0; 10]);
    let verdict = is(&run, Cause::Disk);
    assert_eq!(keys(&verdict), ["threads server", "disk server"]);
}

#[test]
fn failures_count_as_concurrent_requests() {
    // 30 % of the responses fail; they take as long as the others.
    let mut run = working_on(35.0);
    run.requests.wrong = run.requests.ok * 3 / 7;
    run.error_time_us = run.service_time_us.clone();
    run.error_time_us.count = run.requests.wrong;
    run.error_time_us.mean = run.least_service_time_us;
    let verdict = is(&run, Cause::Errors);
    assert_eq!(verdict.also, []);
}
