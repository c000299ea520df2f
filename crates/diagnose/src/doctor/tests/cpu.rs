//! Tests for the CPU findings: number, quota, frequency, steal and other load.

use floodmark_record::host::{BusyProcess, CpuFacts, FrequencyFacts, QuotaFacts};

use super::*;

#[test]
fn judges_the_number_of_cpus() {
    let cpus = |online, allowed, list: &str| {
        let list = list.to_owned();
        move |facts: &mut HostFacts| {
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
        "at least 2 CPUs",
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
        "16 of 64 usable (0-15)",
        "0-63",
    );
    expect("CPUs", cpus(64, 64, "0-63"), Level::Ok, "64", "");
}

#[test]
fn judges_quotas() {
    let quota = |cpus, throttled| {
        move |facts: &mut HostFacts| {
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
        "1.50 CPUs, period 100 ms, exhausted 1,234 times",
        "echo max | sudo tee /sys/fs/cgroup/job/cpu.max",
    );
    expect(
        "CPU quota",
        quota(1.5, None),
        Level::Warning,
        "1.50 CPUs, period 100 ms",
        "tee",
    );
    expect(
        "CPU quota",
        quota(8.0, Some(0)),
        Level::Ok,
        "enough for all CPUs",
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
fn judges_frequency_governors() {
    let governor = |name: &str, driver: &str| {
        let frequency = FrequencyFacts {
            governors: [(name.to_owned(), 8)].into(),
            driver: Some(driver.to_owned()),
        };
        move |facts: &mut HostFacts| facts.frequency = Some(frequency)
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
        Level::Unknown,
        "not visible",
        "",
    );
}

#[test]
fn judges_steal() {
    let steal = |now, ever| {
        move |facts: &mut HostFacts| {
            facts.load.stolen_cpus = Some(now);
            facts.load.stolen_since_boot = Some(ever);
        }
    };
    expect(
        "steal",
        steal(0.8, 0.0),
        Level::Warning,
        "took 10.0 % of the CPU time during 0.5 s",
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
fn judges_other_load() {
    let load = |busy, processes: &[(&str, u32, f64)]| {
        let busiest = processes
            .iter()
            .map(|(name, pid, cpus)| BusyProcess {
                pid: *pid,
                name: (*name).to_owned(),
                cpus: *cpus,
            })
            .collect();
        move |facts: &mut HostFacts| {
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
        "interrupts and unlisted processes 3.00",
        "check the host",
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
    // On a host with two CPUs, a background load of 0.3 CPUs causes a warning.
    let mut facts = sound();
    facts.cpus.online = Some(2);
    load(0.31, &[("a", 7, 0.3)])(&mut facts);
    assert_eq!(finding(&facts, "other load").level, Level::Warning);
}
