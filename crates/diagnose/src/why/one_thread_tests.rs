//! Verdicts on runs whose requests wait for a single thread, or for nothing in the server.

use floodmark_record::Observation;
use floodmark_record::cause::Cause;
use floodmark_record::run::Run;

use super::tests::{is, judged, rules_out, run_with, series};
use super::waiting_tests::{blocked, keys, working_on};

#[test]
fn requests_that_one_thread_handles_together_wait_for_it() {
    // The thread sleeps for 1 ms per request, and sends 40 responses at once.
    let mut run = working_on(40.0);
    run.observations.extend(blocked(
        "loop",
        &[("timer", 0.98), ("events", 0.02)],
        2_000.0,
    ));
    run.observations
        .extend(blocked("helper", &[("own lock", 3.0)], 1.0));
    let verdict = is(&run, Cause::WorkerPool);
    assert_eq!(keys(&verdict), ["threads server", "timer server"]);
    assert!(!verdict.summary.contains("works on"), "{verdict:#?}");
    let gain = verdict.gain.unwrap();
    assert!((gain.low_per_s - 50_000.0 * 0.85).abs() < 1e-6, "{gain:?}");
    // Another thread takes part, so the first one may be a timer.
    run.observations
        .extend(blocked("other", &[("events", 1.0)], 2_000.0));
    is(&run, Cause::Concurrency);
}

#[test]
fn a_sleeping_thread_without_waiting_requests_is_no_limit() {
    // One connection, and a thread that sleeps between two checks for new requests.
    let mut run = working_on(0.9);
    run.plan.connections = 1;
    run.response_time_us.mean = Some(900.0);
    run.service_time_us.mean = Some(900.0);
    run.observations.extend(blocked(
        "loop",
        &[("timer", 0.98), ("events", 0.02)],
        2_000.0,
    ));
    is(&run, Cause::Concurrency);
}

#[test]
fn connections_without_a_request_are_not_too_few() {
    let mut run = working_on(3.0);
    run.response_time_us.mean = Some(3_000.0);
    run.service_time_us.mean = Some(3_000.0);
    run.least_service_time_us = Some(2_900.0);
    let verdict = is(&run, Cause::Unknown);
    assert!(verdict.next.contains("open and close"), "{verdict:#?}");
}

#[test]
fn names_the_file_that_a_saturated_event_loop_waits_for() {
    // An event loop that calls fsync for each request.
    let event_loop = |objects: &[(&str, f64)]| {
        let mut run = run_with(1.0, 0.75, 0.7);
        run.observations.extend(only_loop(0.7, objects));
        is(&run, Cause::ServerCpuOneThread)
    };
    let verdict = event_loop(&[("file /srv/data", 0.28), ("events", 0.02)]);
    assert!(
        verdict.summary.ends_with("system calls on /srv/data"),
        "{verdict:#?}"
    );
    assert!(verdict.next.contains("/srv/data (fsync"), "{verdict:#?}");
    let evidence = verdict.evidence.join("\n");
    assert!(evidence.contains("28 % of its time blocked"), "{evidence}");
    assert!(
        evidence.contains("20 % of the server's CPU time"),
        "{evidence}"
    );
    let verdict = event_loop(&[("connection 127.0.0.1:5432", 0.28), ("events", 0.02)]);
    assert!(verdict.summary.ends_with("CPUs are idle"), "{verdict:#?}");
}

#[test]
fn an_event_loop_that_runs_in_fsync_waits_for_the_disk() {
    let event_loop = |file_sync: f64, objects: &[(&str, f64)]| {
        let mut run = run_with(1.2, 0.95, 0.92);
        run.observations.extend(only_loop(0.92, objects));
        add_file_sync(&mut run, 0.95, file_sync);
        run
    };
    let objects = [("appended file /srv/journal", 0.06), ("events", 0.02)];
    let verdict = is(&event_loop(0.7, &objects), Cause::SyncLogging);
    assert_eq!(keys(&verdict), ["threads server", "disk server"]);
    assert!(
        verdict.summary.contains("/srv/journal"),
        "{}",
        verdict.summary
    );
    let evidence = verdict.evidence.join("\n");
    assert!(evidence.contains("0.70 of its 0.95 CPUs"), "{evidence}");
    let data = [("file /srv/data", 0.06), ("events", 0.02)];
    is(&event_loop(0.7, &data), Cause::Disk);
    // The samples show no wait for the file.
    is(&event_loop(0.7, &[("events", 0.02)]), Cause::SyncLogging);
    // A page fault is not a wait for a file.
    let page_fault = [("page fault", 0.01), ("events", 0.02)];
    is(&event_loop(0.7, &page_fault), Cause::SyncLogging);
    // Another thread reads a file.
    let mut run = event_loop(0.7, &[("events", 0.02)]);
    let reader = [("file /srv/history", 0.01), ("timer", 0.99)];
    run.observations.extend(blocked("reader", &reader, 10.0));
    let verdict = judged(&run);
    assert!(
        rules_out(&verdict, Cause::ServerCpuOneThread),
        "{verdict:#?}"
    );
    let ruled_out = format!("{:?}", verdict.ruled_out);
    assert!(
        ruled_out.contains("92 % of its time on a CPU, including 70 % in fsync"),
        "{ruled_out}"
    );
    // The thread mostly computes.
    is(&event_loop(0.1, &objects), Cause::ServerCpuOneThread);
}

#[test]
fn a_saturated_thread_does_not_take_over_the_fsync_of_another() {
    let mut run = run_with(2.0, 1.75, 0.95);
    run.observations
        .extend(only_loop(0.95, &[("events", 0.02)]));
    let objects = [("appended file /srv/journal", 0.2)];
    let mut journal = blocked("journal", &objects, 1_000.0);
    journal[0] = series("server threads", "journal threads", 1.0);
    journal.push(series("server threads", "journal on_cpu", 0.8));
    run.observations.extend(journal);
    add_file_sync(&mut run, 1.75, 0.75);
    is(&run, Cause::ServerCpuOneThread);
}

#[test]
fn fsync_on_saturated_cpus_is_not_a_wait_for_the_disk() {
    let mut run = run_with(3.9, 3.8, 0.95);
    run.least_service_time_us = Some(4_000.0);
    let objects = [("appended file /srv/journal", 0.2)];
    let mut pool = blocked("app", &objects, 5_000.0);
    pool[0] = series("server threads", "app threads", 4.0);
    pool.push(series("server threads", "app on_cpu", 3.8));
    run.observations.extend(pool);
    add_file_sync(&mut run, 3.8, 2.0);
    is(&run, Cause::ServerCpu);
}

#[test]
fn two_threads_of_which_one_is_in_fsync_do_not_run_one_at_a_time() {
    let mut run = run_with(2.0, 1.95, 0.6);
    run.least_service_time_us = Some(2_000.0);
    run.observations
        .extend(blocked("app", &[("own lock", 3.0)], 5_000.0));
    add_file_sync(&mut run, 1.95, 0.95);
    let verdict = judged(&run);
    assert!(
        rules_out(&verdict, Cause::ServerCpuOneThread),
        "{verdict:#?}"
    );
}

#[test]
fn threads_that_run_in_fsync_one_at_a_time_wait_for_the_disk() {
    // A runtime moves requests between threads; all threads but one wait for a mutex.
    let mut run = run_with(1.2, 1.0, 0.3);
    run.least_service_time_us = Some(1_000.0);
    let objects = [("appended file /srv/journal", 0.2), ("own lock", 3.0)];
    run.observations.extend(blocked("app", &objects, 5_000.0));
    let on_cpu = series("server threads", "app on_cpu", 0.98);
    run.observations.push(on_cpu);
    is(&run, Cause::ServerCpuOneThread);
    add_file_sync(&mut run, 1.0, 0.7);
    let verdict = is(&run, Cause::SyncLogging);
    assert_eq!(keys(&verdict), ["lock server", "disk server"]);
}

/// Sets the server's CPU use to `used`, of which `cpus` is kernel code that writes files to disk.
fn add_file_sync(run: &mut Run, used: f64, cpus: f64) {
    run.observations[1] = series("server", "user", used - cpus);
    run.observations[2] = series("server", "system", cpus);
    // Half of the samples are lost.
    run.observations.extend([
        series("server code", "kernel code", cpus / 2.0),
        series("server code", "file sync", cpus / 2.0),
    ]);
}

/// Returns the series for an event loop that is the only thread that works on requests.
fn only_loop(on_cpu: f64, objects: &[(&str, f64)]) -> Vec<Observation> {
    let mut threads = blocked("loop", objects, 10_000.0);
    threads[0] = series("server threads", "loop threads", 1.0);
    threads.push(series("server threads", "loop on_cpu", on_cpu));
    threads
}

#[test]
fn an_event_loop_spends_the_rest_of_its_time_waiting_for_files() {
    // Samples show a tenth of the waits for the journal.
    let mut run = working_on(7.0);
    run.observations
        .extend(only_loop(0.4, &[("appended file /srv/journal", 0.1)]));
    let verdict = is(&run, Cause::SyncLogging);
    assert_eq!(keys(&verdict), ["threads server", "disk server"]);
}

#[test]
fn a_thread_that_supervises_is_no_pool() {
    // The main threads of a supervisor and of a worker process, and two threads of the worker.
    let mut run = run_with(1.5, 1.0, 0.5);
    run.least_service_time_us = Some(3_300.0);
    let of = |what: &str, value| series("server threads", what, value);
    let main = [("timed lock", 1.2), ("events", 0.2)];
    let pool = [("own lock", 0.2), ("timed lock", 0.3), ("events", 1.0)];
    run.observations.extend(
        [
            of("gunicorn (main) threads", 2.0),
            of("gunicorn (main) at work", 1.0),
            of("gunicorn (main) on_cpu", 0.2),
            of("gunicorn threads", 3.0),
            of("gunicorn at work", 2.0),
            of("gunicorn on_cpu", 0.8),
        ]
        .into_iter()
        .chain(
            blocked("gunicorn (main)", &main, 8_000.0)
                .into_iter()
                .skip(1),
        )
        .chain(blocked("gunicorn", &pool, 15_000.0).into_iter().skip(1)),
    );
    let verdict = is(&run, Cause::ServerCpuOneThread);
    assert!(verdict.summary.contains("interpreter lock"), "{verdict:#?}");
}
