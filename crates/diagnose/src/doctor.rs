//! What of a machine will spoil a measurement: a pure function from the facts that were read to findings.
//!
//! Each finding has its figures, what it would spoil and the commands that mend it. A thing that is fine gets one short line.
//! The thresholds stand beside the rule they belong to, with their reason.

mod cpu;
mod network;
mod system;

use floodmark_record::host::{Checkup, Facts, Finding, Level};

/// Judges a machine; warnings first, then notes, then what is fine.
#[must_use]
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![
        cpu::cpus(facts),
        cpu::quota(facts),
        cpu::governor(facts),
        cpu::steal(facts),
        cpu::other_load(facts),
        network::open_files(facts),
        network::ports(facts),
        network::time_wait(facts),
        network::accept_queue(facts),
        network::conntrack(facts),
        system::io_uring(facts),
        system::clock(facts),
    ];
    findings.sort_by_key(|finding| finding.level);
    findings
}

/// Facts and findings together, as `doctor --json` prints them.
#[must_use]
pub fn checkup(facts: Facts) -> Checkup {
    Checkup {
        schema: floodmark_record::SCHEMA_VERSION,
        findings: findings(&facts),
        facts,
    }
}

/// A finding that asks for nothing.
fn fine(topic: &str, found: impl Into<String>) -> Finding {
    Finding {
        topic: topic.to_owned(),
        level: Level::Ok,
        found: found.into(),
        spoils: None,
        mend: Vec::new(),
    }
}

/// A finding that spoils something.
fn spoils<const N: usize>(
    topic: &str,
    level: Level,
    found: impl Into<String>,
    spoils: impl Into<String>,
    mend: [&str; N],
) -> Finding {
    Finding {
        topic: topic.to_owned(),
        level,
        found: found.into(),
        spoils: Some(spoils.into()),
        mend: mend.iter().map(|line| (*line).to_owned()).collect(),
    }
}

/// A fact that could not be read is said, once, and not judged.
fn unread(topic: &str) -> Finding {
    fine(topic, "could not be read here, so not judged")
}

#[cfg(test)]
mod tests;
