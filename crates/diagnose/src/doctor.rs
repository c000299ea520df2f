//! `floodmark doctor`: finds host properties that distort measurements.
//!
//! Each finding reports figures, the effect on measurements, and commands that fix the problem.

mod cpu;
mod network;
mod system;

use floodmark_record::host::{Checkup, HostFacts, HostFinding, Level};

/// A topic and the function that checks it. The function returns `None` if data is missing. The
/// topic in the returned finding is empty.
type DoctorCheck = (&'static str, fn(&HostFacts) -> Option<HostFinding>);

const CHECKS: [DoctorCheck; 12] = [
    ("CPUs", cpu::cpus),
    ("CPU quota", cpu::quota),
    ("frequency", cpu::governor),
    ("steal", cpu::steal),
    ("other load", cpu::other_load),
    ("open files", network::open_files),
    ("local ports", network::ports),
    ("TIME_WAIT", network::time_wait),
    ("accept queue", network::accept_queue),
    ("conntrack", network::conntrack),
    ("io_uring", system::io_uring),
    ("clock", system::clock),
];

/// Returns the findings on a host. Warnings come first, then notes, then topics without problems.
#[must_use]
pub fn findings(facts: &HostFacts) -> Vec<HostFinding> {
    let mut findings = CHECKS.map(|(topic, check)| {
        let not_available = || fine("not available on this host");
        HostFinding {
            topic: topic.to_owned(),
            ..check(facts).unwrap_or_else(not_available)
        }
    });
    findings.sort_by_key(|finding| finding.level);
    findings.into()
}

/// Returns the host facts and findings that `doctor --json` prints.
#[must_use]
pub fn checkup(facts: HostFacts) -> Checkup {
    Checkup {
        schema: floodmark_record::SCHEMA_VERSION,
        findings: findings(&facts),
        facts,
    }
}

/// Creates a finding that reports no problem.
fn fine(found: impl Into<String>) -> HostFinding {
    HostFinding {
        topic: String::new(),
        level: Level::Ok,
        found: found.into(),
        spoils: None,
        mend: Vec::new(),
    }
}

/// Creates a finding that reports a problem, the problem's effect and a fix.
fn problem(
    level: Level,
    found: impl Into<String>,
    effect: impl Into<String>,
    fix: &[&str],
) -> HostFinding {
    HostFinding {
        level,
        spoils: Some(effect.into()),
        mend: fix.iter().map(|line| (*line).to_owned()).collect(),
        ..fine(found)
    }
}

/// Returns the level for a figure. `note` and `warning` are the minimum figures for these two
/// levels.
fn level(figure: f64, note: f64, warning: f64) -> Level {
    match figure {
        figure if figure >= warning => Level::Warning,
        figure if figure >= note => Level::Note,
        _ => Level::Ok,
    }
}

#[cfg(test)]
mod tests;
