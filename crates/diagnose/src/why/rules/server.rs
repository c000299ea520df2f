//! Limits in the server: its CPU, and what takes it.

use floodmark_record::cause::Cause;
use floodmark_record::units::{show_count, show_ns};

use super::{HALF, IDLE, NEARLY, SHARED, STOPPED, percent, server_could_have, working};
use crate::why::candidate::{Candidate, Findings, Shown};
use crate::why::facts::{Facts, Side};

/// Of what both take together the lesser takes at least this share: CPUs of its own would give the other as much more, and by less than that
/// fresh processes differ anyway.
const IN_THE_WAY: f64 = 0.15;

/// Periods cut short: a quota that is met once a second holds up every request at that moment.
const THROTTLED: f64 = 0.05;

/// CPUs that client and server both want.
pub(super) fn shared(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(server) = &facts.server else {
        return;
    };
    let apart = facts.server_is_apart();
    let wait = |side: &Side| side.waiting.map(|waiting| waiting / side.used.max(1e-9));
    let (Some(client_waits), Some(server_waits)) = (wait(&facts.client), wait(server)) else {
        findings.unseen.push("the time that threads wait for a CPU (schedstat), which tells whether client and server take it from each other".to_owned());
        return;
    };
    let said = format!(
        "run delay is {} of the client's time on a CPU and {} of the server's",
        percent(client_waits),
        percent(server_waits)
    );
    // CPUs of their own would give each as much more as the other takes now, and what the store takes it would take then too.
    let store = facts.store.as_ref().map_or(0.0, |store| store.used);
    let lesser = server.used.min(facts.client.used);
    let takes = lesser / (server.used + facts.client.used + store).max(1e-9);
    let others = store > server.used.max(facts.client.used);
    if apart || others || client_waits < SHARED || server_waits < SHARED || takes < IN_THE_WAY {
        return findings.not(
            Cause::SharedCpu,
            format!(
                "{said}, and the one that takes less takes {} of what they and the store take",
                percent(takes)
            ),
        );
    }
    let Some(busy) = facts.host_busy else {
        return;
    };
    let used = (busy / facts.cpus).min(1.0);
    // Threads that hand each other the work leave CPUs idle for a moment while they wait for them. Where that is little and less than
    // what either side takes from the other, it is still the other that is in the way.
    let idle = (facts.cpus - busy).max(0.0);
    let moments = idle < IDLE * facts.cpus && idle < lesser;
    if used < NEARLY && !moments {
        return findings.not(
            Cause::SharedCpu,
            format!("{busy:.2} of {:.0} CPUs were busy", facts.cpus),
        );
    }
    findings.found(Candidate {
        cause: Cause::SharedCpu,
        shown: Shown::Within,
        used,
        limit_per_s: Some(facts.answered_per_s / used),
        summary: format!(
            "client and server take the {:.0} CPUs of this machine from each other: both wait for one a good part of their time, so that the \
             figure is of the pair and not of the server",
            facts.cpus
        ),
        evidence: vec![
            said + " (schedstat)",
            format!("{busy:.2} of {:.0} CPUs busy (/proc/stat): client {:.2}, server {:.2}", facts.cpus, facts.client.used, server.used),
        ],
        next: "give each CPUs of its own (hosts = \"separate\", or taskset), or load it from another machine".to_owned(),
        takes: Some(Cause::ServerCpu),
    });
}

/// Its CPUs, or one thread's.
pub(super) fn cpu(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(server) = &facts.server else {
        findings.unseen.push(
            "the server's processes (they are not on this machine, or may not be looked at): its CPU, threads and runtime".to_owned(),
        );
        return;
    };
    let has = server_could_have(facts, server);
    let mut used = (server.used / has).min(1.0);
    let mut evidence = vec![format!(
        "server: {:.2} of the {has:.2} CPUs that it could have (/proc/PID/stat)",
        server.used
    )];
    let full = server
        .busiest
        .as_ref()
        .filter(|busiest| busiest.busy() >= NEARLY);
    if full.is_some() && facts.idle_to_server().is_none() {
        findings.unseen.push(
            "how many CPUs were idle (/proc/stat), which tells whether more than one full thread could be served".to_owned(),
        );
    } else if let (Some(busiest), Some((idle, cpus))) = (full, facts.idle_to_server()) {
        // What the idle CPUs could add must be more than two limits within a tenth of each other, and the thread has to run out of time before
        // all CPUs do: one that is ready as long as it runs wants for a CPU, not for a second thread.
        let could_add = idle > 0.1 * (cpus - idle) && busiest.on_cpu >= (cpus - idle) / cpus;
        if could_add && server.may_use > 1.0 {
            findings.found(Candidate {
                cause: Cause::ServerCpuOneThread,
                shown: Shown::Full,
                used: busiest.busy().min(1.0),
                limit_per_s: Some(facts.answered_per_s / busiest.on_cpu.min(1.0)),
                summary: format!(
                    "one thread of the server ({}) does the work and is full, while CPUs are idle",
                    busiest.name
                ),
                evidence: vec![
                    format!(
                        "server thread {} on a CPU for {} of its time (schedstat)",
                        busiest.name,
                        percent(busiest.on_cpu)
                    ),
                    format!("{idle:.2} of {cpus:.0} CPUs idle (/proc/stat)"),
                ],
                next: "let more threads of the server do that work".to_owned(),
                takes: None,
            });
        } else {
            // What is idle is too little for another thread to be worth it: the thread is full, and so are the CPUs.
            used = used.max((cpus - idle) / cpus);
            evidence.push(format!(
                "its thread {} was on a CPU for {} of its time, or ready for one for {} (schedstat); {idle:.2} of {cpus:.0} CPUs idle (/proc/stat)",
                busiest.name,
                percent(busiest.on_cpu),
                percent(busiest.waiting)
            ));
            findings.not(
                Cause::ServerCpuOneThread,
                format!(
                    "a second thread could have no more than the {idle:.2} CPUs that were idle; the busiest, {}, was on one for {} of its time and ready \
                     for one for {}",
                    busiest.name,
                    percent(busiest.on_cpu),
                    percent(busiest.waiting)
                ),
            );
        }
    } else if let Some(candidate) = in_turn(facts, server) {
        findings.found(candidate);
    } else if let Some(busiest) = &server.busiest {
        findings.not(
            Cause::ServerCpuOneThread,
            format!(
                "the server's busiest thread, {}, was on a CPU for {} of its time",
                busiest.name,
                percent(busiest.on_cpu)
            ),
        );
    }
    // Of those that fill the CPUs together one that takes less is not what to mend first.
    let store = facts.store.as_ref().map_or(0.0, |store| store.used);
    if used < NEARLY || server.used < facts.client_beside().max(store) {
        return findings.not(Cause::ServerCpu, evidence.join("; "));
    }
    let each = server
        .cpu_us
        .map_or_else(|| "an unknown time".to_owned(), |us| show_ns(us * 1e3));
    evidence.push(format!(
        "server: {each} of CPU per request, {} of it in the kernel",
        percent(server.in_kernel / server.used.max(1e-9))
    ));
    findings.found(Candidate {
        cause: Cause::ServerCpu,
        shown: Shown::Full,
        used,
        limit_per_s: Some(facts.answered_per_s / used),
        summary: format!("the server has no CPU left: each request takes {each} of it"),
        evidence,
        next: "make a request cheaper (profile the server), or give the server more CPUs"
            .to_owned(),
        takes: None,
    });
}

/// What threads take together that run one at a time: a CPU, less what handing it over costs.
const ONE_CPU: std::ops::Range<f64> = 0.9..1.05;

/// Threads that take turns after each request look like this many at most.
const SOME: f64 = 3.0;

/// Threads of which only one runs at a time, as those of an interpreter with one lock for all do: none of them is full, but together they
/// fill one CPU, and one request is worked on at a time.
fn in_turn(facts: &Facts<'_>, server: &Side) -> Option<Candidate> {
    let (idle, cpus) = facts.idle_to_server()?;
    // A request that meets no other takes turns all the same, with the threads that read and write: it takes up to some times as long.
    let at_once = facts
        .at_once
        .filter(|at_once| (working::ONE.start..SOME).contains(at_once))?;
    let pool = facts
        .kinds
        .iter()
        .any(|kind| working::is_pool(kind, at_once, facts));
    // With fewer idle CPUs the threads may take turns on the one that others leave them.
    if pool || !ONE_CPU.contains(&server.used) || idle < IDLE * cpus || cpus <= 1.0 {
        return None;
    }
    Some(Candidate {
        cause: Cause::ServerCpuOneThread,
        shown: Shown::Full,
        used: server.used.min(1.0),
        limit_per_s: Some(facts.answered_per_s / server.used.min(1.0)),
        summary: "the server's threads run one at a time (such as under an interpreter's lock): together they take one CPU, while others are \
                  idle"
            .to_owned(),
        evidence: vec![
            format!(
                "server: {:.2} CPUs (/proc/PID/stat), none of its threads more than {}",
                server.used,
                server.busiest.as_ref().map_or_else(|| "a part of it".to_owned(), |b| percent(b.on_cpu))
            ),
            format!("{idle:.2} of {cpus:.0} CPUs idle (/proc/stat)"),
        ],
        next: "run several processes of the server, for its threads cannot use another CPU".to_owned(),
        takes: None,
    })
}

/// The quota of the control group.
pub(super) fn quota(facts: &Facts<'_>, findings: &mut Findings) {
    let (Some(times), Some(held)) = (facts.network.throttled_per_s, facts.network.throttled) else {
        return;
    };
    if held < THROTTLED {
        return findings.not(
            Cause::CpuQuota,
            format!("nr_throttled grew by {times:.1} per second (cpu.stat)"),
        );
    }
    let mut evidence = vec![format!(
        "nr_throttled {times:.1} per second, throttled_time {held:.2} CPU-seconds per second (cpu.stat)"
    )];
    if let Some(server) = &facts.server {
        evidence.push(format!("server: {:.2} CPUs used", server.used));
    }
    findings.found(Candidate {
        cause: Cause::CpuQuota,
        shown: Shown::Counted,
        used: 1.0,
        limit_per_s: None,
        summary: format!(
            "the control group's quota of CPU is used up: it was held back {times:.0} times a second"
        ),
        evidence,
        next: "raise or lift the quota (cpu.max, or --cpus of the container)".to_owned(),
        takes: Some(Cause::ServerCpu),
    });
}

/// CPU that the host gives to others.
pub(super) fn steal(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(steal) = facts.network.steal else {
        return;
    };
    let share = steal / facts.cpus;
    let said = format!(
        "steal took {} of the CPUs' time (/proc/stat)",
        percent(share)
    );
    if share < STOPPED {
        return findings.not(Cause::Steal, said);
    }
    // What is left to the machine is more than what others took: then what fills it is what to mend first.
    let shown = match share >= HALF {
        true => Shown::Within,
        false => Shown::Lesser,
    };
    findings.found(Candidate {
        cause: Cause::Steal,
        shown,
        used: 1.0,
        limit_per_s: None,
        summary: format!("the host gives {} of this machine's CPUs to others, so that the figure is of what was left", percent(share)),
        evidence: vec![said],
        next: "measure on a machine that nobody shares, or repeat at another time".to_owned(),
        takes: Some(Cause::ServerCpu),
    });
}

/// Whether the server takes most of what is taken of the CPUs and leaves next to none: only then is what takes the server's CPU what limits
/// the run.
fn is_full(facts: &Facts<'_>, server: &Side) -> bool {
    let store = facts.store.as_ref().map_or(0.0, |store| store.used);
    let most = server.used >= HALF * (server.used + facts.client_beside() + store);
    let has = server_could_have(facts, server);
    let busiest = server.busiest.as_ref();
    let thread = busiest.is_some_and(|busiest| busiest.busy() >= NEARLY);
    most && (thread || server.used >= NEARLY * has)
}

/// The JVM's compiler.
pub(super) fn jit(facts: &Facts<'_>, findings: &mut Findings) {
    let (Some(jvm), Some(server)) = (&facts.jvm, &facts.server) else {
        return;
    };
    let Some(compiling) = jvm.compiling else {
        return;
    };
    let share = compiling / server.used.max(1e-9);
    let said = format!(
        "compiler threads took {compiling:.2} of the server's {:.2} CPUs (schedstat)",
        server.used
    );
    let warming = facts.run.steady.class == floodmark_record::run::SteadyClass::Warming;
    // Code that is not compiled yet is slow beyond what compiling it takes: a fifth of the CPU shows that much is still interpreted, and so
    // does a compiler that never runs out of work, however little of the CPU the server's own threads leave it.
    // Where CPUs are idle, requests do not wait for the compiler.
    let never_idle = jvm.compiler_busy.is_some_and(|busy| busy >= NEARLY);
    let compiles = share >= 0.2 || ((warming || never_idle) && share > 0.05);
    if !compiles || !is_full(facts, server) {
        return findings.not(Cause::Jit, said);
    }
    if let Some(collecting) = jvm.gc.filter(|collecting| *collecting > share) {
        let more = format!(
            "{said}, and collections more of the time ({})",
            percent(collecting)
        );
        return findings.not(Cause::Jit, more);
    }
    let mut evidence = vec![said];
    if let Some(per_s) = jvm.compilations_per_s {
        evidence.push(format!(
            "{per_s:.0} methods compiled per second (sun.ci.totalCompiles)"
        ));
    }
    if let Some(busy) = jvm.compiler_busy.filter(|_| never_idle) {
        evidence.push(format!(
            "a compiler thread was at work, or ready and without a CPU, for {} of its time (schedstat)",
            percent(busy)
        ));
    }
    if warming {
        evidence.push("throughput still rose within the run (steady.class: warming)".to_owned());
    }
    findings.found(Candidate {
        cause: Cause::Jit,
        shown: Shown::Within,
        used: 1.0,
        limit_per_s: None,
        summary: format!(
            "the JVM is still compiling its code: {} of the server's CPU goes into that, and what is not compiled yet is slow",
            percent(share)
        ),
        evidence,
        next: "warm it up longer (--warmup), until compilations cease, and measure again".to_owned(),
        takes: Some(Cause::ServerCpu),
    });
}

/// The JVM's collector.
pub(super) fn gc(facts: &Facts<'_>, findings: &mut Findings) {
    let (Some(jvm), Some(server)) = (&facts.jvm, &facts.server) else {
        return;
    };
    let (Some(time), Some(collecting)) = (jvm.gc, jvm.collecting) else {
        return;
    };
    let share = collecting / server.used.max(1e-9);
    let said = format!(
        "collections take {} of the time (sun.gc.collector.*.time) and {} of the server's CPU (schedstat)",
        percent(time),
        percent(share)
    );
    if time < STOPPED && share < HALF {
        return findings.not(Cause::Gc, said);
    }
    let mut evidence = vec![said];
    if let Some(stopped) = jvm.safepoint {
        evidence.push(format!(
            "all threads stood still for {} of the time (sun.rt.safepointTime)",
            percent(stopped)
        ));
    }
    if let Some(per_s) = jvm.gc_per_s {
        evidence.push(format!(
            "{per_s:.1} collections per second (sun.gc.collector.*.invocations)"
        ));
    }
    findings.found(Candidate {
        cause: Cause::Gc,
        shown: Shown::Within,
        used: 1.0,
        limit_per_s: None,
        summary: format!(
            "the JVM collects its memory for {} of the time",
            percent(time)
        ),
        evidence,
        next: "give it more heap (-Xmx), or make requests allocate less".to_owned(),
        takes: Some(Cause::ServerCpu),
    });
}

/// Handshakes, on a server whose CPU is full.
pub(super) fn tls(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(tls) = facts.run.tls.as_ref().map(|tls| &tls.used) else {
        return;
    };
    let Some(server) = &facts.server else {
        return;
    };
    let full = tls.handshakes.saturating_sub(tls.resumed);
    let each = full as f64 / facts.run.requests.ok.max(1) as f64;
    let in_user = 1.0 - server.in_kernel / server.used.max(1e-9);
    let said = format!(
        "{} handshakes without resumption for {} ok answers; {} of the server's CPU in user mode",
        show_count(full),
        show_count(facts.run.requests.ok),
        percent(in_user)
    );
    // Opening a connection is the kernel's work and arithmetic the program's: a server that spends most of its time in the kernel does
    // not spend it on handshakes.
    if each < HALF || in_user < HALF || !is_full(facts, server) {
        return findings.not(Cause::TlsHandshake, said);
    }
    findings.found(Candidate {
        cause: Cause::TlsHandshake,
        shown: Shown::Within,
        used: 1.0,
        limit_per_s: None,
        summary: format!(
            "each request brings a TLS handshake of its own ({each:.2} for each), whose arithmetic takes the server's CPU"
        ),
        evidence: vec![
            said + " (tls.handshakes, tls.resumed)",
            format!(
                "a handshake takes {} on average (handshake_time_us)",
                facts.run.handshake_time_us.mean.map_or_else(
                    || "an unknown time".to_owned(),
                    |us| show_ns(us * 1e3)
                )
            ),
        ],
        next: "keep connections, let the server resume sessions, or give it an ECDSA certificate in place of RSA"
            .to_owned(),
        takes: Some(Cause::ServerCpu),
    });
}
