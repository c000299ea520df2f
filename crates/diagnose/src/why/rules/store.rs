//! Limits in the store behind the server.

use floodmark_record::cause::Cause;

use super::{HALF, NEARLY, could_have, per_s};
use crate::why::candidate::{Candidate, Findings, Shown};
use crate::why::facts::{Facts, Sessions};

/// Its CPU.
pub(super) fn cpu(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(store) = &facts.store else {
        return;
    };
    let server = facts.server.as_ref().map_or(0.0, |server| server.used);
    let apart = facts.has_cpus_of_its_own();
    let has = could_have(facts.server_host_busy, store, apart, server);
    let used = (store.used / has).min(1.0);
    let said = format!(
        "store: {:.2} of the {has:.2} CPUs that it could have (/proc/PID/stat)",
        store.used
    );
    // Where the server takes more of the same CPUs, it is the server's CPU that is short.
    if used < NEARLY || server > store.used {
        return findings.not(Cause::StoreCpu, said);
    }
    findings.found(Candidate {
        cause: Cause::StoreCpu,
        shown: Shown::Full,
        used,
        limit_per_s: Some(facts.answered_per_s / used),
        summary: "the store behind the server has no CPU left".to_owned(),
        evidence: vec![said],
        next: "make its queries cheaper (an index?), or give the store more CPUs".to_owned(),
        takes: None,
    });
}

/// Sessions that wait for each other's locks.
pub(super) fn locks(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(sessions) = asked(facts, findings) else {
        return;
    };
    let said = format!(
        "{:.1} of {:.1} active sessions waited for a lock (pg_stat_activity: wait_event_type Lock)",
        sessions.waiting_for_locks, sessions.active
    );
    if sessions.waiting_for_locks < at_least(sessions) {
        return findings.not(Cause::StoreLock, said);
    }
    // Whoever holds a lock while its commit is under way lets it go as soon as that is done.
    if commits_what_it_holds(sessions) {
        let said = format!(
            "{said}, but the one that has it commits: {:.1} do, and {:.1} are idle in a transaction",
            sessions.committing, sessions.idle_in_transaction
        );
        return findings.not(Cause::StoreLock, said);
    }
    findings.found(Candidate {
        cause: Cause::StoreLock,
        shown: Shown::Placed,
        used: 1.0,
        limit_per_s: None,
        summary: format!(
            "{:.0} of {:.0} sessions in the database wait for a lock that another one holds: what they change is the same",
            sessions.waiting_for_locks, sessions.active
        ),
        evidence: vec![said],
        next: "spread the writes over more rows, or hold locks for a shorter time (end the transaction right after the change)".to_owned(),
        takes: None,
    });
}

/// Sessions whose commit waits for the disk.
pub(super) fn commits(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(sessions) = &facts.sessions else {
        return;
    };
    let said = format!(
        "{:.1} of {:.1} active sessions waited for the write-ahead log (pg_stat_activity: WALSync, WALWrite, SyncRep)",
        sessions.committing, sessions.active
    );
    let held = sessions.waiting_for_locks >= at_least(sessions) && commits_what_it_holds(sessions);
    if sessions.committing < at_least(sessions) && !held {
        return findings.not(Cause::StoreCommit, said);
    }
    findings.found(Candidate {
        cause: Cause::StoreCommit,
        shown: Shown::Placed,
        used: 1.0,
        limit_per_s: None,
        summary: format!(
            "{:.0} of {:.0} sessions in the database wait for their commit to reach the disk",
            sessions.committing, sessions.active
        ),
        evidence: vec![said],
        next: "commit several changes at once, use a faster disk, or (as a test only) synchronous_commit = off".to_owned(),
        takes: None,
    });
}

/// Fewest readings that show that a store never works on two requests at once: were it two for a quarter of the time, ten would miss that
/// in one of eighteen runs, and what serves many at once has two far more often.
const READINGS: usize = 10;

/// From so many requests on that are under way, many wait for the one that is let through.
const MANY: f64 = 10.0;

/// A store that is asked for each answer, and never for two at once, while CPUs are idle and many requests wait: they go through one at a
/// time before it. In a closed load of so many requests what they wait for is busy nearly all the time, so that CPUs which are idle for a
/// tenth of it are not that.
pub(super) fn one_call(facts: &Facts<'_>, findings: &mut Findings) {
    let (Some(calls), Some(under_way), Some((idle, cpus))) =
        (&facts.calls, facts.under_way, facts.idle_to_server())
    else {
        return;
    };
    let each = calls.per_s / facts.answered_per_s.max(f64::MIN_POSITIVE);
    let busiest = facts.server.as_ref().and_then(|s| s.busiest.as_ref());
    let full = idle < (1.0 - NEARLY) * cpus || busiest.is_some_and(|b| b.busy() >= NEARLY);
    let one = calls.most <= 1.0 && calls.readings >= READINGS && each >= HALF;
    if full || !one || under_way < MANY {
        return;
    }
    findings.found(Candidate {
        cause: Cause::Serialised,
        shown: Shown::Waiting,
        used: 1.0,
        limit_per_s: None,
        summary: format!(
            "requests go through one at a time: of {under_way:.0} under way the store never had more than one, and it is asked for each of \
             them; a single writer or actor waits for each write"
        ),
        evidence: vec![
            format!(
                "at most {:.0} request at once in Cassandra, in {} readings (thread_pools: Native-Transport-Requests active)",
                calls.most, calls.readings
            ),
            format!(
                "{} statements (prepared_statements_executed), {each:.2} for each answer",
                per_s(calls.per_s)
            ),
            format!("{idle:.2} of {cpus:.0} CPUs idle (/proc/stat)"),
        ],
        next: "split what all requests go through over several (one actor or writer for each key), or write what has come meanwhile at once"
            .to_owned(),
        takes: None,
    });
}

/// Half of the sessions in use, and at least half a session all the time: less is nobody's limit. One that waits for its client within a
/// transaction is in use too.
fn at_least(sessions: &Sessions) -> f64 {
    (HALF * (sessions.active + sessions.idle_in_transaction)).max(HALF)
}

/// Whether what holds a lock is mostly a commit: at least half a session is at it all the time, and fewer wait for their client.
fn commits_what_it_holds(sessions: &Sessions) -> bool {
    sessions.committing >= HALF && sessions.committing > sessions.idle_in_transaction
}

fn asked<'a>(facts: &'a Facts<'_>, findings: &mut Findings) -> Option<&'a Sessions> {
    if facts.sessions.is_none() && facts.run.observations.iter().any(|o| o.subject == "store") {
        findings.unseen.push(
            "what the store's sessions wait for (pg_stat_activity): locks, or their commits"
                .to_owned(),
        );
    }
    facts.sessions.as_ref()
}
