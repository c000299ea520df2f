//! One thread of the server is saturated while CPUs are idle, or its threads run one at a time, for
//! example under an interpreter's global lock.

use floodmark_record::metric::WaitKind;

use super::*;
use crate::why::facts::ThreadGroupFacts;
use crate::why::graph::{await_no_resource, is_pool};
use crate::why::thresholds::{ONE, SPARE};

pub(super) static SPEC: CauseSpec = CauseSpec {
    // More connections would use additional threads.
    explained_by: &[Cause::OneConnection],
    explanation: |facts, candidate| {
        let is_connection = one_connection::SPEC.is_detected(facts);
        is_connection.then(|| Effect::RuledOut(candidate.evidence[0].clone()))
    },
    class: Some(CauseClass::ServerCpu),
    gain: GainModel::AllCpus,
    ..CauseSpec::new(Cause::ServerCpuOneThread, Place::Server, detect)
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let Some(thread) = facts.saturated_thread() else {
        return one_at_a_time(facts).or_else(|| {
            let thread = facts.busiest_thread()?;
            let on_cpu = percent(thread.on_cpu);
            let in_file_sync = thread.on_cpu * facts.file_sync_share(thread);
            let in_file_sync = if in_file_sync >= RARE {
                format!(", including {} in fsync", percent(in_file_sync))
            } else {
                String::new()
            };
            ruled_out(format!(
                "busiest server thread ({}): {on_cpu} of its time on a CPU{in_file_sync}",
                thread.name
            ))
        });
    };
    let Some(idle) = facts.idle_cpus() else {
        return not_available(
            "idle CPUs (/proc/stat), which show whether there is CPU time for a second thread",
        );
    };
    if let Some((_, thread)) = facts.thread_without_idle_cpu() {
        return ruled_out(format!("too little idle CPU for a second thread; {thread}"));
    }
    let name = &thread.name;
    let is_always_busy = thread.busy() >= SATURATED;
    let files = facts
        .groups_like(thread)
        .find_map(ThreadGroupFacts::on_files);
    let in_kernel = facts
        .server
        .as_ref()
        .map(|server| percent(1.0 - server.in_user()));
    Candidate::new(
        EvidenceRank::Saturated,
        format!(
            "one thread of the server ({name}) is saturated while CPUs are idle{}",
            files.map_or(String::new(), |(_, path)| format!(", and blocks in system calls on {path}"))
        ),
        [
            Some(format!(
                "server thread {name}: {} of its time on a CPU (schedstat)",
                percent(thread.on_cpu)
            )),
            Some(show_idle(idle)),
            files.map(|(waits, path)| {
                format!(
                    "server thread {name}: {} of its time blocked in system calls on {path} \
                     (/proc/PID/task/TID/syscall); {} of the server's CPU time is in the kernel",
                    percent(waits),
                    in_kernel.unwrap_or_default()
                )
            }),
        ],
        match files {
            Some((_, path)) => format!(
                "move the system calls on {path} (fsync, write, read) to other threads, or make fewer \
                 of them"
            ),
            None => "spread the work of this thread over several threads".to_owned(),
        },
    )
    .at([
        (StepKind::Threads, Actor::Server),
        (StepKind::Cpu, Actor::Server),
    ])
    .with_limit(Some(facts.responses_per_s / thread.on_cpu.min(1.0)).filter(|_| is_always_busy))
    .with_share(thread.busy().min(1.0))
    .found()
}

/// Returns whether threads that work on requests sometimes wait for a lock with a timeout (as under
/// an interpreter lock) but for no other resource.
fn takes_turns(facts: &RunFacts<'_>) -> bool {
    let waits = |group: &ThreadGroupFacts| {
        group.blocked_on_kind(WaitKind::TimedLock) - group.inactive_on_timed_locks()
    };
    let waiting: f64 = facts.thread_groups.iter().map(waits).sum();
    let is_jvm = facts.jvm(JvmFigure::JavaThreads).is_some();
    let concurrency = facts.concurrency.unwrap_or_default();
    !is_jvm && waiting >= NOTICEABLE && await_no_resource(facts, concurrency)
}

/// Returns the number of threads whose lock waits have a timeout, if this suggests an interpreter
/// lock. CPython waits for its lock with a timeout of 5 ms. HotSpot implements pauses as such
/// waits, so JVMs are excluded.
fn interpreter_waits(facts: &RunFacts<'_>) -> Option<f64> {
    let waits = |group: &ThreadGroupFacts| group.blocked_on_kind(WaitKind::TimedLock);
    let waiting: f64 = facts.thread_groups.iter().map(waits).sum();
    let is_jvm = facts.jvm(JvmFigure::JavaThreads).is_some();
    (!is_jvm && waiting >= SPARE * facts.in_flight?).then_some(waiting)
}

/// Detects threads that run one at a time. No single thread is saturated, but together the threads
/// use one CPU.
pub(super) fn one_at_a_time(facts: &RunFacts<'_>) -> Option<Finding> {
    let server = facts.server.as_ref()?;
    let (idle, cpus) = facts.spare_cpus()?;
    let waits = interpreter_waits(facts);
    // The thread that processes a request takes turns with the threads that read and write. Even
    // without queueing, the shortest service time is therefore a few times the CPU time of the
    // request, and more if threads sometimes wait for an interpreter lock. If many threads are
    // waiting for it, the service time can also be less than the CPU time, which then includes
    // handing over the lock.
    let least = if waits.is_some() { MOST } else { ONE.start };
    let most = if takes_turns(facts) { 4.0 } else { 2.0 };
    let few = least..(most * ONE.end);
    // The threads use about one CPU. Handovers between threads reduce this use. The use can exceed
    // one CPU if an interpreter releases its lock during system calls.
    let beyond = if waits.is_some() { SPARE } else { NOTICEABLE };
    // The CPU time in fsync counts as a wait for the disk.
    let is_one_cpu =
        server.used < 1.0 + beyond && server.used - facts.waits_in_file_sync() >= SATURATED;
    let concurrency = facts
        .concurrency
        .filter(|requests| few.contains(requests))?;
    let mut groups = facts.thread_groups.iter();
    // The threads of a pool wait for a resource. Under an interpreter lock, the number of threads
    // can equal the number of concurrent requests, too, but the threads wait only for the lock.
    let is_pool = groups.any(|group| is_pool(group, concurrency, facts))
        && (ONE.contains(&concurrency) || !await_no_resource(facts, concurrency));
    // With fewer idle CPUs, the threads may be sharing the only CPU that other programs leave free.
    if is_pool || !is_one_cpu || idle < SPARE * cpus || cpus <= 1.0 {
        return None;
    }
    let busiest = facts.busiest_thread().map(|thread| percent(thread.on_cpu));
    Candidate::new(
        EvidenceRank::Saturated,
        match waits {
            Some(_) => "the server's threads run one at a time and wait for a lock (probably an interpreter lock)",
            None => "the server's threads run one at a time (as under an interpreter lock), on one CPU",
        },
        [
            Some(format!(
                "server: {:.2} CPUs (/proc/PID/stat), busiest thread {}",
                server.used,
                busiest.as_deref().unwrap_or("unknown")
            )),
            Some(show_idle((idle, cpus))),
            waits.map(|threads| {
                format!("threads waiting for a lock with a timeout: {threads:.1} (/proc/PID/task/TID/syscall)")
            }),
        ],
        "run several server processes",
    )
    .at([(StepKind::Threads, Actor::Server), (StepKind::Cpu, Actor::Server)])
    .with_utilization(server.used.min(1.0), facts.responses_per_s)
    .found()
}
