//! Limits in the store behind the server.

use floodmark_record::cause::Cause;

use super::{FULL, HALF, could_have};
use crate::why::candidate::{Candidate, Findings, Shown};
use crate::why::facts::{Facts, Sessions};

/// Its CPU.
pub(super) fn cpu(facts: &Facts<'_>, findings: &mut Findings) {
    let Some(store) = &facts.store else {
        return;
    };
    let has = could_have(facts.server_host_busy, store, false, 0.0);
    let used = (store.used / has).min(1.0);
    let said = format!(
        "store: {:.2} of the {has:.2} CPUs that it could have (/proc/PID/stat)",
        store.used
    );
    // Where the server takes more of the same CPUs, it is the server's CPU that is short.
    let more = facts
        .server
        .as_ref()
        .is_some_and(|server| server.used > store.used);
    if used < FULL || more {
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
    if sessions.committing < at_least(sessions) {
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

/// Half of what the sessions do, and at least half a session all the time: less is nobody's limit.
fn at_least(sessions: &Sessions) -> f64 {
    (HALF * sessions.active).max(HALF)
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
