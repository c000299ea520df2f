//! `floodmark doctor`: finds host properties that distort measurements.
//!
//! Each finding reports figures, the effect on measurements, and commands that fix the problem.

mod cpu;
mod network;
mod system;

use floodmark_record::host::{Checkup, HostFacts, HostFinding, Level};

/// Checks one topic. Returns `None` if data is missing. The topic in the finding is empty.
type HostCheck = fn(&HostFacts) -> Option<HostFinding>;

/// A topic, the level and the finding if data is missing, and the function that checks the topic.
type DoctorCheck = (&'static str, (Level, &'static str), HostCheck);

const NOT_AVAILABLE: (Level, &str) = (Level::Unknown, "not available on this host");
const NOT_VISIBLE: (Level, &str) = (Level::Unknown, "not visible in this virtual machine");

const CHECKS: [DoctorCheck; 12] = [
    ("CPUs", NOT_AVAILABLE, cpu::cpus),
    ("CPU quota", (Level::Ok, "none"), cpu::quota),
    ("frequency", NOT_VISIBLE, cpu::governor),
    ("steal", NOT_AVAILABLE, cpu::steal),
    ("other load", NOT_AVAILABLE, cpu::other_load),
    ("open files", NOT_AVAILABLE, network::open_files),
    ("local ports", NOT_AVAILABLE, network::ports),
    ("TIME_WAIT", NOT_AVAILABLE, network::time_wait),
    ("accept queue", NOT_AVAILABLE, network::accept_queue),
    ("conntrack", (Level::Ok, "not loaded"), network::conntrack),
    ("io_uring", NOT_AVAILABLE, system::io_uring),
    ("clock", NOT_AVAILABLE, system::clock),
];

/// Returns the findings on a host. Warnings come first, then notes, unknown figures, and topics
/// without problems.
#[must_use]
pub fn findings(facts: &HostFacts) -> Vec<HostFinding> {
    let mut findings = CHECKS.map(|(topic, (level, missing), check)| HostFinding {
        topic: topic.to_owned(),
        ..check(facts).unwrap_or_else(|| HostFinding {
            level,
            ..fine(missing)
        })
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

/// Creates a finding that reports a problem, the problem's effect and a fix. If `level` is
/// [`Level::Ok`], the finding contains neither effect nor fix.
fn problem(level: Level, found: String, effect: &str, fix: &[&str]) -> HostFinding {
    if level == Level::Ok {
        return fine(found);
    }
    HostFinding {
        level,
        spoils: Some(effect.to_owned()),
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
