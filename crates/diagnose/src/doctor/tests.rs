//! Tests for host findings.

use floodmark_record::host::{
    AcceptQueueFacts, ClockFacts, ConntrackFacts, CpuFacts, FrequencyFacts, HostFacts,
    IoUringFacts, LimitFacts, LoadFacts, PortFacts, TimeWaitFacts,
};

use super::*;

mod cpu;
mod network;
mod system;

/// Returns facts about a host that has no problems.
fn sound() -> HostFacts {
    HostFacts {
        kernel: "6.18.44".to_owned(),
        cpus: CpuFacts {
            online: Some(8),
            allowed: 8,
            allowed_list: "0-7".to_owned(),
            model: None,
        },
        quota: None,
        frequency: Some(FrequencyFacts {
            governors: [("performance".to_owned(), 8)].into(),
            driver: Some("intel_pstate".to_owned()),
        }),
        load: LoadFacts {
            seconds: 0.5,
            busy_cpus: Some(0.06),
            stolen_cpus: Some(0.0),
            stolen_since_boot: Some(0.001),
            own_cpus: 0.01,
            busiest: Vec::new(),
            load_average: Some(0.1),
        },
        open_files: Some(LimitFacts {
            soft: 20_000,
            hard: 1_048_576,
        }),
        ports: Some(PortFacts {
            low: 32_768,
            high: 60_999,
            reserved: 0,
        }),
        time_wait: TimeWaitFacts {
            reuse: Some(2),
            reuse_delay_ms: Some(1_000),
            timestamps: Some(1),
            max: Some(131_072),
            now: Some(70_000),
            ports_held: Some(12),
        },
        accept_queue: AcceptQueueFacts {
            somaxconn: Some(4_096),
            syn_backlog: Some(2_048),
            syncookies: Some(1),
        },
        conntrack: Some(ConntrackFacts {
            count: 0,
            max: 262_144,
        }),
        io_uring: IoUringFacts {
            available: true,
            errno: None,
            disabled: Some(0),
        },
        clock: ClockFacts {
            source: Some("tsc".to_owned()),
            available: vec!["tsc".to_owned(), "hpet".to_owned()],
            read_ns: 24.0,
        },
        missing: Vec::new(),
    }
}

fn finding(facts: &HostFacts, topic: &str) -> HostFinding {
    let mut found = findings(facts);
    found.retain(|finding| finding.topic == topic);
    assert_eq!(found.len(), 1, "one finding on {topic}");
    found.remove(0)
}

/// Applies `change` to the facts about a healthy host, and checks the level, figures and fix of the
/// finding on `topic`.
#[track_caller]
fn expect(topic: &str, change: impl FnOnce(&mut HostFacts), level: Level, found: &str, fix: &str) {
    let mut facts = sound();
    change(&mut facts);
    let finding = finding(&facts, topic);
    assert_eq!(finding.level, level, "{finding:?}");
    assert!(finding.found.contains(found), "{finding:?}");
    assert!(finding.mend.join("\n").contains(fix), "{finding:?}");
    let has_fix = matches!(level, Level::Warning | Level::Note);
    assert_eq!(finding.spoils.is_some(), has_fix, "{finding:?}");
    assert_eq!(finding.mend.is_empty(), !has_fix, "{finding:?}");
    let others = findings(&facts);
    let other = others
        .iter()
        .find(|finding| finding.topic != topic && finding.level == Level::Warning);
    assert_eq!(other, None, "one change, one warning");
}

#[test]
fn sound_host_is_fine() {
    for finding in findings(&sound()) {
        assert_eq!(finding.level, Level::Ok, "{finding:?}");
        assert!(finding.found.chars().count() < 120, "{finding:?}");
    }
}

#[test]
fn missing_facts_are_unknown() {
    let facts = HostFacts {
        cpus: CpuFacts {
            allowed: 8,
            ..CpuFacts::default()
        },
        ..HostFacts::default()
    };
    let ok = ["CPUs", "CPU quota", "conntrack", "clock"];
    for finding in findings(&facts) {
        let expected = match &*finding.topic {
            "io_uring" => Level::Note,
            topic if ok.contains(&topic) => Level::Ok,
            _ => Level::Unknown,
        };
        assert_eq!(finding.level, expected, "{finding:?}");
    }
}

#[test]
fn warnings_come_first() {
    let mut facts = sound();
    facts.io_uring.available = false;
    facts.accept_queue.somaxconn = Some(128);
    let levels: Vec<Level> = findings(&facts).iter().map(|f| f.level).collect();
    assert_eq!(levels[..3], [Level::Warning, Level::Note, Level::Ok]);
    assert!(levels.is_sorted());
}

#[test]
fn facts_and_findings_survive_json() {
    let checkup = checkup(sound());
    let text = serde_json::to_string(&checkup).unwrap();
    assert!(text.starts_with("{\"schema\":3,\"facts\":{"), "{text}");
    assert_eq!(
        serde_json::from_str::<floodmark_record::host::Checkup>(&text).unwrap(),
        checkup
    );
}
