//! The load has few HTTP/2 connections, and one thread of the server processes all streams of a
//! connection. The other threads of the server are idle.

use floodmark_record::metric::WaitKind;

use super::*;
use crate::why::facts::ThreadGroupFacts;
use crate::why::thresholds::{ONE, SAME};

pub(super) static SPEC: CauseSpec = CauseSpec {
    needs_http2: true,
    class: Some(CauseClass::OneConnection),
    gain: GainModel::AllCpus,
    tuning: Tuning::Stop,
    ..CauseSpec::new(Cause::OneConnection, Place::Server, detect)
};

fn detect(facts: &RunFacts<'_>) -> Option<Finding> {
    let run = facts.run;
    run.http2.as_ref()?;
    let (connections, streams) = (run.plan.connections, run.streams());
    if streams == 1 {
        return ruled_out("the load uses 1 stream per connection");
    }
    let Some(thread) = facts.saturated_thread() else {
        let thread = facts.busiest_thread()?;
        let on_cpu = percent(thread.on_cpu);
        return ruled_out(format!(
            "busiest server thread ({}): {on_cpu} of its time on a CPU",
            thread.name
        ));
    };
    if let Some((_, thread)) = facts.thread_without_idle_cpu() {
        return ruled_out(format!("too little idle CPU for a second thread; {thread}"));
    }
    let idle_cpus = facts.idle_cpus()?;
    // Other event loops would serve additional connections.
    let idle: f64 = facts
        .thread_groups
        .iter()
        .filter(|group| is_event_loops(group, thread.on_cpu))
        .map(|group| group.blocked_on_kind(WaitKind::Events))
        .sum();
    let loops = idle + used(&facts.server) / thread.on_cpu;
    let waits = format!(
        "threads waiting for events: {idle:.1} (/proc/PID/task/TID/syscall); the load has {}",
        plural(connections.into(), "connection")
    );
    if idle < ONE.start || f64::from(connections) > loops.round() {
        return ruled_out(waits);
    }
    let ping = run.ping_us.p50.zip(run.service_time_us.p50);
    let times = ping.map(|(ping_us, service_us)| {
        format!(
            "a PING takes {} (ping_us), a request {} (service_time_us)",
            show_us(Some(ping_us)),
            show_us(Some(service_us))
        )
    });
    // If the thread that answers PINGs has time left, another thread is saturated. But a saturated
    // event loop may answer a PING before it handles the requests that arrive with it.
    let has_idle_twins = facts.thread_groups.iter().any(|group| {
        group.on_cpu >= SAME.start() * thread.on_cpu
            && group.blocked_on_kind(WaitKind::Events) >= ONE.start
    });
    let is_fast = |(ping_us, service_us)| ping_us < NOTICEABLE * service_us;
    if !has_idle_twins && ping.is_some_and(is_fast) {
        return times.and_then(ruled_out);
    }
    let name = &thread.name;
    let requests = run.max_in_flight();
    Candidate::new(
        EvidenceRank::Saturated,
        format!(
            "one thread of the server ({name}) processes all streams of a connection and is \
             saturated; its other threads are idle"
        ),
        [
            Some(format!(
                "server thread {name}: {} of its time on a CPU (schedstat)",
                percent(thread.on_cpu)
            )),
            Some(waits),
            times,
            Some(show_idle(idle_cpus)),
        ],
        format!("use more connections with fewer streams, such as -c {requests} --streams 1"),
    )
    .at([
        (StepKind::Threads, Actor::Server),
        (StepKind::Cpu, Actor::Server),
    ])
    .with_share(thread.busy().min(1.0))
    .found()
}

/// Returns whether the threads of a group are event loops: the group uses as much CPU time as the
/// saturated thread, or most of its threads wait for events.
fn is_event_loops(group: &ThreadGroupFacts, saturated: f64) -> bool {
    let events = group.blocked_on_kind(WaitKind::Events);
    group.on_cpu >= SAME.start() * saturated || events >= MOST * group.workers()
}
