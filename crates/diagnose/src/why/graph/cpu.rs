//! Limits of the server's CPU: saturation and contention.

use floodmark_record::metric::{CodeFigure, JvmFigure, WaitKind};
use floodmark_record::path::{Actor, PathStep, StepKind};

use super::service::is_pool;
use crate::text::{percent, show_available, show_idle, show_processes, show_us};
use crate::why::candidate::{Candidate, EvidenceRank, Finding, not_available, ruled_out};
use crate::why::facts::{CpuUse, RunFacts, ThreadGroupFacts, used};
use crate::why::thresholds::{CONTENDED, MOST, NOTICEABLE, ONE, SATURATED, SPARE};

/// Detects programs outside the experiment that deprive the participants of CPU time.
pub(in crate::why) fn other_processes(facts: &RunFacts<'_>) -> Option<Finding> {
    let programs = facts.other_programs()?;
    let (cpus, busy) = match (facts.allowed.server_has_own, &facts.server) {
        (true, Some(server)) => (server.allowed, server.used + used(&facts.store) + programs),
        _ => (facts.allowed.server_host, facts.server_host_busy?),
    };
    let busy = busy / cpus;
    let named = &facts.run.other_processes;
    let busiest = (!named.is_empty()).then(|| {
        let rest = programs - named.iter().map(|of| of.cpus).sum::<f64>();
        let rest = match rest >= NOTICEABLE * cpus {
            true => format!("; kernel and all other processes: {rest:.2}"),
            false => String::new(),
        };
        format!("busiest: {}{rest}", show_processes(named))
    });
    let figure = format!(
        "programs outside the experiment: {programs:.2} of {cpus:.0} CPUs (/proc/stat, /proc/PID/stat)"
    );
    if programs < CONTENDED * cpus || busy < SATURATED || !facts.lacks_cpu() {
        return ruled_out(figure);
    }
    Candidate::new(
        EvidenceRank::Mechanism,
        format!("programs outside the experiment use {programs:.2} of {cpus:.0} CPUs"),
        [figure].into_iter().chain(busiest),
        "end these programs, or give client and server their own CPUs, then repeat",
    )
    .at([(StepKind::Cpu, Actor::Others)])
    .with_share(busy.min(1.0))
    .found()
}

/// Detects a client and a server that compete for CPUs.
pub(in crate::why) fn shared_cpus(facts: &RunFacts<'_>) -> Option<Finding> {
    let (client, server) = (facts.client_here.as_ref()?, facts.server.as_ref()?);
    let run_delay = |of: &CpuUse| of.runnable.map(|runnable| runnable / of.used.max(1e-9));
    let Some((client_delay, server_delay)) = run_delay(client).zip(run_delay(server)) else {
        return not_available(
            "run delay (schedstat), which shows whether client and server compete for CPUs",
        );
    };
    let figure = format!(
        "run delay is {} of the client's CPU time and {} of the server's",
        percent(client_delay),
        percent(server_delay)
    );
    // With separate CPUs, the larger consumer would gain the CPU time that the smaller consumer
    // uses now.
    let store = used(&facts.store);
    let smaller = server.used.min(client.used);
    let share = smaller / (server.used + client.used + store).max(1e-9);
    if facts.is_client_separate()
        || store > server.used.max(client.used)
        || client_delay < CONTENDED
        || server_delay < CONTENDED
        || share < CONTENDED
        || !facts.lacks_cpu()
    {
        return ruled_out(format!(
            "{figure}; the smaller consumer uses {} of the total CPU time (client, server and store)",
            percent(share)
        ));
    }
    let busy = facts.host_busy?;
    let cpus = facts.allowed.client_host;
    let busy_share = (busy / cpus).min(1.0);
    // Threads that hand work to each other leave CPUs idle for short periods. Contention still
    // dominates if the idle time is short and less than the smaller consumer's CPU time.
    let idle = (cpus - busy).max(0.0);
    let momentarily_idle = idle < SPARE * cpus && idle < smaller;
    let busy_text = format!("{busy:.2} of {cpus:.0} CPUs busy (/proc/stat)");
    if busy_share < SATURATED && !momentarily_idle {
        return ruled_out(busy_text);
    }
    Candidate::new(
        EvidenceRank::Mechanism,
        format!("client and server compete for the same {cpus:.0} CPUs; the figures describe both"),
        vec![
            figure + " (schedstat)",
            format!(
                "{busy_text}: client {:.2}, server {:.2}",
                client.used, server.used
            ),
        ],
        "give each its own CPUs (hosts = \"separate\", or taskset), or use two hosts",
    )
    .at([(StepKind::Cpu, Actor::Shared)])
    .with_utilization(busy_share, facts.responses_per_s)
    .found()
}

/// Detects a saturated thread while CPUs are idle.
pub(in crate::why) fn one_thread(facts: &RunFacts<'_>) -> Option<Finding> {
    let Some(thread) = facts.saturated_thread() else {
        return one_thread_at_a_time(facts).or_else(|| {
            let thread = facts.busiest_thread()?;
            let on_cpu = percent(thread.on_cpu);
            ruled_out(format!(
                "busiest server thread ({}): {on_cpu} of its time on a CPU",
                thread.name
            ))
        });
    };
    let Some(idle) = facts.idle_cpus() else {
        return not_available(
            "idle CPUs (/proc/stat), which show whether there is CPU time for a second thread",
        );
    };
    if let Some((_, thread)) = thread_without_idle_cpu(facts) {
        return ruled_out(format!("too little idle CPU for a second thread; {thread}"));
    }
    let name = &thread.name;
    let is_always_busy = thread.busy() >= SATURATED;
    Candidate::new(
        EvidenceRank::Saturated,
        format!("one thread of the server ({name}) is saturated while CPUs are idle"),
        vec![
            format!(
                "server thread {name}: {} of its time on a CPU (schedstat)",
                percent(thread.on_cpu)
            ),
            show_idle(idle),
        ],
        "spread the work of this thread over several threads",
    )
    .at([
        (StepKind::Threads, Actor::Server),
        (StepKind::Cpu, Actor::Server),
    ])
    .with_limit(Some(facts.responses_per_s / thread.on_cpu.min(1.0)).filter(|_| is_always_busy))
    .with_share(thread.busy().min(1.0))
    .found()
    .map(|found| compressing(facts, found))
}

/// Returns the used share of the CPUs and a description of the saturated thread if too few CPUs are
/// idle for a second thread. Both the thread and the CPUs are then saturated.
fn thread_without_idle_cpu(facts: &RunFacts<'_>) -> Option<(f64, String)> {
    let thread = facts.saturated_thread()?;
    let (idle, cpus) = facts.spare_cpus()?;
    // A second thread helps only if the idle CPU time exceeds a tenth of the used CPU time, and if
    // the first thread is closer to saturation than the CPUs are.
    let could_add = idle > NOTICEABLE * (cpus - idle) && thread.on_cpu >= (cpus - idle) / cpus;
    let has_one_cpu = facts.server.as_ref()?.allowed <= 1.0;
    (!could_add || has_one_cpu).then(|| {
        let text = format!(
            "server thread {}: {} of its time on a CPU, {} runnable (schedstat); {}",
            thread.name,
            percent(thread.on_cpu),
            percent(thread.runnable),
            show_idle((idle, cpus))
        );
        ((cpus - idle) / cpus, text)
    })
}

/// Returns the number of threads that wait for a lock with a timeout, if this suggests an interpreter
/// lock. CPython waits for its lock with a timeout of 5 ms. HotSpot implements pauses as such waits.
fn interpreter_waits(facts: &RunFacts<'_>) -> Option<f64> {
    let waits = |group: &ThreadGroupFacts| group.blocked_on_kind(WaitKind::TimedLock);
    let waiting: f64 = facts.thread_groups.iter().map(waits).sum();
    let is_jvm = facts.jvm(JvmFigure::JavaThreads).is_some();
    (!is_jvm && waiting >= SPARE * facts.in_flight?).then_some(waiting)
}

/// Detects threads that run one at a time, for example under an interpreter's global lock. No
/// single thread is saturated, but together the threads use one CPU.
fn one_thread_at_a_time(facts: &RunFacts<'_>) -> Option<Finding> {
    let server = facts.server.as_ref()?;
    let (idle, cpus) = facts.spare_cpus()?;
    let waits = interpreter_waits(facts);
    // A single request takes turns with the threads that read and write, so the shortest service
    // time is a few times the CPU time of the request. If threads wait for it, the service time may
    // also be shorter, because handing over the lock takes time.
    let least = if waits.is_some() { MOST } else { ONE.start };
    let few = least..(2.0 * ONE.end);
    // One CPU, minus the cost of handovers between threads. An interpreter releases its lock during
    // system calls.
    let beyond = if waits.is_some() { SPARE } else { NOTICEABLE };
    let one_cpu = SATURATED..1.0 + beyond;
    let concurrency = facts
        .concurrency
        .filter(|requests| few.contains(requests))?;
    let mut groups = facts.thread_groups.iter();
    let is_pool = groups.any(|group| is_pool(group, concurrency, facts));
    // With fewer idle CPUs, the threads may share the only CPU that others leave free.
    if is_pool || !one_cpu.contains(&server.used) || idle < SPARE * cpus || cpus <= 1.0 {
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
            format!(
                "server: {:.2} CPUs (/proc/PID/stat), busiest thread {}",
                server.used,
                busiest.as_deref().unwrap_or("unknown")
            ),
            show_idle((idle, cpus)),
        ]
        .into_iter()
        .chain(waits.map(|threads| {
            format!("threads waiting for a lock with a timeout: {threads:.1} (/proc/PID/task/TID/syscall)")
        })),
        "run several server processes",
    )
    .at([(StepKind::Threads, Actor::Server), (StepKind::Cpu, Actor::Server)])
    .with_utilization(server.used.min(1.0), facts.responses_per_s)
    .found()
}

/// Detects a server that saturates its CPUs.
pub(in crate::why) fn cpu(facts: &RunFacts<'_>) -> Option<Finding> {
    let Some(server) = &facts.server else {
        return not_available(
            "CPU, threads and runtime of the server (not on this host, or access denied)",
        );
    };
    let available = facts.available_to_server_side(server);
    let mut share = (server.used / available).min(1.0);
    let mut evidence = vec![show_available("server", server.used, available)];
    if let Some((of_all, thread)) = thread_without_idle_cpu(facts) {
        share = share.max(of_all);
        evidence.push(thread);
    }
    // If several processes saturate the same CPUs, the largest consumer is the cause.
    let others = facts.client_on_server_cpus().max(used(&facts.store));
    if share < SATURATED || server.used < others {
        return ruled_out(evidence.join("; "));
    }
    let cost = show_us(server.cpu_us);
    evidence.push(format!(
        "server: {cost} of CPU per request, {} of it in the kernel",
        percent(1.0 - server.in_user())
    ));
    Candidate::new(
        EvidenceRank::Saturated,
        format!("the server is CPU-bound ({cost} per request)"),
        evidence,
        "profile the server and reduce its CPU time per request, or give it more CPUs",
    )
    .at([(StepKind::Cpu, Actor::Server)])
    .with_utilization(share, facts.responses_per_s)
    .found()
    .map(|found| compressing(facts, found))
}

/// Adds a compression step to a path that ends at the server's CPU, if compression takes most of the
/// CPU time.
fn compressing(facts: &RunFacts<'_>, found: Finding) -> Finding {
    let share = facts.code_share(CodeFigure::Compression);
    match (found, share) {
        (Finding::Limit(mut found), Some(share)) if share >= MOST => {
            let basis = format!("compression: {} of the server's CPU time", percent(share));
            let step = PathStep::new(StepKind::Compression, Actor::Server, basis.clone());
            found.path.push(step);
            found.evidence.push(basis);
            Finding::Limit(found)
        }
        (found, _) => found,
    }
}
