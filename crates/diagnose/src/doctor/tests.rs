//! Machines, and what is to be said of each.

use floodmark_record::host::{
    AcceptQueueFacts, BusyProcess, ClockFacts, ConntrackFacts, CpuFacts, Facts, FrequencyFacts,
    IoUringFacts, LimitFacts, LoadFacts, PortFacts, QuotaFacts, TimeWaitFacts,
};

use super::*;

/// A machine without a fault.
fn sound() -> Facts {
    Facts {
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

fn finding(facts: &Facts, topic: &str) -> Finding {
    let mut found = findings(facts);
    found.retain(|finding| finding.topic == topic);
    assert_eq!(found.len(), 1, "one finding on {topic}");
    found.remove(0)
}

/// Changes the sound machine, and looks at one topic: level, a part of what was found, a part of the mend.
#[track_caller]
fn expect(topic: &str, change: impl FnOnce(&mut Facts), level: Level, found: &str, mend: &str) {
    let mut facts = sound();
    change(&mut facts);
    let finding = finding(&facts, topic);
    assert_eq!(finding.level, level, "{finding:?}");
    assert!(finding.found.contains(found), "{finding:?}");
    assert!(finding.mend.join("\n").contains(mend), "{finding:?}");
    assert_eq!(finding.spoils.is_some(), level != Level::Ok, "{finding:?}");
    assert_eq!(finding.mend.is_empty(), level == Level::Ok, "{finding:?}");
    let others = findings(&facts);
    let other = others
        .iter()
        .find(|finding| finding.topic != topic && finding.level == Level::Warning);
    assert_eq!(other, None, "one change, one warning");
}

#[test]
fn a_sound_machine_is_called_sound() {
    for finding in findings(&sound()) {
        assert_eq!(finding.level, Level::Ok, "{finding:?}");
        assert!(finding.found.chars().count() < 120, "{finding:?}");
    }
}

#[test]
fn a_machine_that_tells_nothing_is_not_judged() {
    let facts = Facts {
        cpus: CpuFacts {
            allowed: 8,
            ..CpuFacts::default()
        },
        ..Facts::default()
    };
    for finding in findings(&facts) {
        assert!(
            finding.level == Level::Ok || finding.topic == "io_uring",
            "{finding:?}"
        );
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
fn cpus() {
    let cpus = |online, allowed, list: &str| {
        let list = list.to_owned();
        move |facts: &mut Facts| {
            facts.cpus = CpuFacts {
                online: Some(online),
                allowed,
                allowed_list: list,
                model: None,
            }
        }
    };
    expect(
        "CPUs",
        cpus(8, 1, "3"),
        Level::Warning,
        "1 of 8",
        "taskset -cp 0-7 $$",
    );
    expect(
        "CPUs",
        cpus(1, 1, "0"),
        Level::Warning,
        "1, all",
        "2 CPUs or more",
    );
    expect(
        "CPUs",
        cpus(2, 2, "0-1"),
        Level::Note,
        "2, all",
        "taskset -c 0 SERVER\ntaskset -c 1 ",
    );
    expect(
        "CPUs",
        cpus(4, 4, "0-3"),
        Level::Note,
        "4, all",
        "taskset -c 0-2 SERVER\ntaskset -c 3 ",
    );
    expect(
        "CPUs",
        cpus(64, 16, "0-15"),
        Level::Note,
        "16 of 64 may be used (0-15)",
        "0-63",
    );
    expect("CPUs", cpus(64, 64, "0-63"), Level::Ok, "64", "");
}

#[test]
fn quotas() {
    let quota = |cpus, throttled| {
        move |facts: &mut Facts| {
            facts.quota = Some(QuotaFacts {
                cpus,
                period_ms: 100.0,
                file: "/sys/fs/cgroup/job/cpu.max".to_owned(),
                unlimited: "max".to_owned(),
                throttled_periods: throttled,
            })
        }
    };
    expect(
        "CPU quota",
        quota(1.5, Some(1_234)),
        Level::Warning,
        "1.50 CPUs per 100 ms, exhausted 1,234 times",
        "echo max | sudo tee /sys/fs/cgroup/job/cpu.max",
    );
    expect(
        "CPU quota",
        quota(1.5, None),
        Level::Warning,
        "1.50 CPUs per 100 ms",
        "tee",
    );
    expect(
        "CPU quota",
        quota(8.0, Some(0)),
        Level::Ok,
        "no less than there are",
        "",
    );
    expect(
        "CPU quota",
        quota(8.0, Some(1)),
        Level::Warning,
        "exhausted once",
        "tee",
    );
}

#[test]
fn governors() {
    let governor = |name: &str, driver: &str| {
        let frequency = FrequencyFacts {
            governors: [(name.to_owned(), 8)].into(),
            driver: Some(driver.to_owned()),
        };
        move |facts: &mut Facts| facts.frequency = Some(frequency)
    };
    let tee = "echo performance | sudo tee ";
    expect(
        "frequency",
        governor("powersave", "acpi-cpufreq"),
        Level::Warning,
        "powersave on 8",
        tee,
    );
    expect(
        "frequency",
        governor("powersave", "intel_pstate"),
        Level::Note,
        "intel_pstate",
        tee,
    );
    expect(
        "frequency",
        governor("schedutil", "acpi-cpufreq"),
        Level::Note,
        "schedutil",
        tee,
    );
    expect(
        "frequency",
        |facts| facts.frequency = None,
        Level::Ok,
        "not exposed",
        "",
    );
}

#[test]
fn steal() {
    let steal = |now, ever| {
        move |facts: &mut Facts| {
            facts.load.stolen_cpus = Some(now);
            facts.load.stolen_since_boot = Some(ever);
        }
    };
    expect(
        "steal",
        steal(0.8, 0.0),
        Level::Warning,
        "took 10.0 % of the CPU time in 0.5 s",
        "--attempts 5",
    );
    expect(
        "steal",
        steal(0.2, 0.0),
        Level::Note,
        "2.5 %",
        "--attempts 5",
    );
    expect(
        "steal",
        steal(0.0, 0.03),
        Level::Note,
        "3.0 % since boot",
        "--attempts 5",
    );
    expect(
        "steal",
        steal(0.08, 0.01),
        Level::Ok,
        "1.0 % now, 1.0 % since boot",
        "",
    );
}

#[test]
fn other_load() {
    let load = |busy, processes: &[(&str, u32, f64)]| {
        let busiest = processes
            .iter()
            .map(|(name, pid, cpus)| BusyProcess {
                pid: *pid,
                name: (*name).to_owned(),
                cpus: *cpus,
            })
            .collect();
        move |facts: &mut Facts| {
            facts.load.busy_cpus = Some(busy);
            facts.load.busiest = busiest;
        }
    };
    expect(
        "other load",
        load(
            1.31,
            &[
                ("rustc", 4711, 0.95),
                ("cargo", 4700, 0.3),
                ("sshd", 3, 0.01),
            ],
        ),
        Level::Warning,
        "1.30 of 8 CPUs busy: rustc (pid 4711) 0.95, cargo (pid 4700) 0.30",
        "kill -STOP 4711",
    );
    expect(
        "other load",
        load(3.01, &[]),
        Level::Warning,
        "interrupts and unseen processes 3.00",
        "on the host",
    );
    expect(
        "other load",
        load(0.31, &[("a", 7, 0.3)]),
        Level::Note,
        "a (pid 7)",
        "STOP 7",
    );
    expect(
        "other load",
        load(0.09, &[("a", 7, 0.08)]),
        Level::Ok,
        "0.08 of 8",
        "",
    );
    // On two CPUs a quarter of one is much.
    let mut facts = sound();
    facts.cpus.online = Some(2);
    load(0.31, &[("a", 7, 0.3)])(&mut facts);
    assert_eq!(finding(&facts, "other load").level, Level::Warning);
}

#[test]
fn open_files() {
    let files =
        |soft, hard| move |facts: &mut Facts| facts.open_files = Some(LimitFacts { soft, hard });
    expect(
        "open files",
        files(1_024, 1_024),
        Level::Warning,
        "1,024 at most",
        "sudo prlimit --pid $$ --nofile=",
    );
    expect(
        "open files",
        files(1_024, 4_096),
        Level::Note,
        "4,096 at most",
        "sudo prlimit",
    );
    expect(
        "open files",
        files(1_024, 1_048_576),
        Level::Note,
        "1,024, may be raised to 1,048,576",
        "ulimit -n $(ulimit -Hn)",
    );
    expect(
        "open files",
        files(1_024, u64::MAX),
        Level::Note,
        "raised to no limit",
        "ulimit",
    );
    expect("open files", files(65_536, 65_536), Level::Ok, "65,536", "");
}

#[test]
fn ports() {
    let ports = |low, high, reserved| {
        move |facts: &mut Facts| {
            facts.ports = Some(PortFacts {
                low,
                high,
                reserved,
            });
            // With a delay that keeps the rate of fresh connections out of it.
            facts.time_wait.reuse_delay_ms = Some(10);
        }
    };
    let sysctl = "sudo sysctl -w net.ipv4.ip_local_port_range=\"16384 65535\"";
    expect(
        "local ports",
        ports(60_000, 60_999, 0),
        Level::Warning,
        "1,000 for each",
        sysctl,
    );
    expect(
        "local ports",
        ports(40_000, 60_999, 0),
        Level::Note,
        "21,000 for each",
        sysctl,
    );
    expect(
        "local ports",
        ports(32_768, 60_999, 20_000),
        Level::Warning,
        "8,232 for each",
        sysctl,
    );
    expect(
        "local ports",
        ports(32_768, 60_999, 12),
        Level::Ok,
        "28,220 for each",
        "",
    );
    expect(
        "local ports",
        ports(1_024, 65_535, 0),
        Level::Ok,
        "64,512",
        "",
    );
}

#[test]
fn time_wait() {
    let rules = |reuse, delay, timestamps| {
        move |facts: &mut Facts| {
            facts.time_wait.reuse = Some(reuse);
            facts.time_wait.reuse_delay_ms = delay;
            facts.time_wait.timestamps = Some(timestamps);
        }
    };
    expect(
        "TIME_WAIT",
        rules(2, Some(1_000), 1),
        Level::Ok,
        "after 1.0 s on loopback (28,232 fresh connections/s per source address), else 60 s (470/s)",
        "",
    );
    expect(
        "TIME_WAIT",
        rules(1, None, 1),
        Level::Ok,
        "after 1.0 s everywhere (28,232",
        "",
    );
    expect(
        "TIME_WAIT",
        rules(2, Some(30_000), 1),
        Level::Note,
        "after 30.0 s on loopback (941",
        "tcp_tw_reuse_delay=1000",
    );
    expect(
        "TIME_WAIT",
        rules(2, Some(0), 1),
        Level::Ok,
        "after 0.0 s on loopback",
        "",
    );
    expect(
        "TIME_WAIT",
        rules(0, None, 1),
        Level::Warning,
        "tcp_tw_reuse = 0; 12 local ports rest now",
        "sysctl -w net.ipv4.tcp_tw_reuse=2",
    );
    expect(
        "TIME_WAIT",
        rules(2, None, 0),
        Level::Warning,
        "tcp_timestamps = 0",
        "tcp_timestamps=1",
    );
    expect(
        "TIME_WAIT",
        |facts| facts.time_wait.ports_held = Some(20_000),
        Level::Note,
        "20,000 of the local ports rest now",
        "sleep 60",
    );
    let mut facts = sound();
    facts.time_wait.reuse = Some(0);
    let spoils = finding(&facts, "TIME_WAIT").spoils.unwrap();
    assert!(
        spoils.contains("470 fresh connections per second"),
        "{spoils}"
    );
}

#[test]
fn accept_queues() {
    expect(
        "accept queue",
        |facts| facts.accept_queue.somaxconn = Some(128),
        Level::Warning,
        "somaxconn = 128",
        "sudo sysctl -w net.core.somaxconn=4096",
    );
    expect(
        "accept queue",
        |facts| {
            facts.accept_queue.syncookies = Some(0);
            facts.accept_queue.syn_backlog = Some(512);
        },
        Level::Note,
        "512 without SYN cookies",
        "tcp_syncookies=1",
    );
}

#[test]
fn conntrack() {
    let table =
        |count, max| move |facts: &mut Facts| facts.conntrack = Some(ConntrackFacts { count, max });
    let raise = "sudo sysctl -w net.netfilter.nf_conntrack_max=1048576";
    expect(
        "conntrack",
        table(250_000, 262_144),
        Level::Warning,
        "250,000 of 262,144",
        raise,
    );
    expect(
        "conntrack",
        table(5, 65_536),
        Level::Note,
        "5 of 65,536",
        raise,
    );
    expect(
        "conntrack",
        table(5_000, 1_048_576),
        Level::Ok,
        "5,000 of 1,048,576",
        "",
    );
    expect(
        "conntrack",
        table(0, 65_536),
        Level::Ok,
        "no rule uses it",
        "",
    );
    expect(
        "conntrack",
        |facts| facts.conntrack = None,
        Level::Ok,
        "not loaded",
        "",
    );
}

#[test]
fn io_uring_forbidden() {
    let refused = |disabled, errno| {
        move |facts: &mut Facts| {
            facts.io_uring = IoUringFacts {
                available: false,
                errno: Some(errno),
                disabled,
            }
        }
    };
    expect(
        "io_uring",
        refused(Some(2), 1),
        Level::Note,
        "kernel.io_uring_disabled = 2",
        "io_uring_disabled=0",
    );
    expect(
        "io_uring",
        refused(Some(0), 1),
        Level::Note,
        "by a system-call filter",
        "seccomp",
    );
    expect(
        "io_uring",
        refused(Some(0), 38),
        Level::Note,
        "hidden by a system-call filter",
        "seccomp",
    );
    expect(
        "io_uring",
        refused(None, 38),
        Level::Note,
        "not in this kernel (6.18.44)",
        "5.6",
    );
    expect(
        "io_uring",
        refused(Some(0), 12),
        Level::Note,
        "error 12",
        "ulimit -l",
    );
}

#[test]
fn clocks() {
    let clock = |source: &str, available: &str, read_ns| {
        let clock = ClockFacts {
            source: Some(source.to_owned()),
            available: available.split(' ').map(str::to_owned).collect(),
            read_ns,
        };
        move |facts: &mut Facts| facts.clock = clock
    };
    expect(
        "clock",
        clock("hpet", "tsc hpet", 1_300.0),
        Level::Warning,
        "hpet, 1.30 µs",
        "echo tsc | sudo tee",
    );
    expect(
        "clock",
        clock("hpet", "hpet acpi_pm", 1_300.0),
        Level::Warning,
        "hpet",
        "clocksource=tsc",
    );
    expect(
        "clock",
        clock("xen", "xen tsc", 300.0),
        Level::Note,
        "xen, 300 ns",
        "echo tsc",
    );
    expect(
        "clock",
        clock("kvm-clock", "kvm-clock tsc", 40.0),
        Level::Ok,
        "kvm-clock, 40.0 ns",
        "",
    );
}

#[test]
fn facts_and_findings_survive_json() {
    let checkup = checkup(sound());
    let text = serde_json::to_string(&checkup).unwrap();
    assert!(text.starts_with("{\"schema\":1,\"facts\":{"), "{text}");
    assert_eq!(
        serde_json::from_str::<floodmark_record::host::Checkup>(&text).unwrap(),
        checkup
    );
}
