//! Tests for the connection findings: open files, ports, queues and tables.

use floodmark_record::host::{ConntrackFacts, LimitFacts, PortFacts};

use super::*;

#[test]
fn judges_open_files() {
    let files = |soft, hard| {
        move |facts: &mut HostFacts| facts.open_files = Some(LimitFacts { soft, hard })
    };
    expect(
        "open files",
        files(1_024, 1_024),
        Level::Warning,
        "hard limit 1,024",
        "sudo prlimit --pid $$ --nofile=",
    );
    expect(
        "open files",
        files(1_024, 4_096),
        Level::Note,
        "hard limit 4,096",
        "sudo prlimit",
    );
    expect(
        "open files",
        files(1_024, 1_048_576),
        Level::Note,
        "soft limit 1,024, hard limit 1,048,576",
        "ulimit -n $(ulimit -Hn)",
    );
    expect(
        "open files",
        files(1_024, u64::MAX),
        Level::Note,
        "hard limit unlimited",
        "ulimit",
    );
    expect("open files", files(65_536, 65_536), Level::Ok, "65,536", "");
}

#[test]
fn judges_local_ports() {
    let ports = |low, high, reserved| {
        move |facts: &mut HostFacts| {
            facts.ports = Some(PortFacts {
                low,
                high,
                reserved,
            });
            // With such a short delay, the rate of fresh connections does not affect the finding.
            facts.time_wait.reuse_delay_ms = Some(10);
        }
    };
    let sysctl = "sudo sysctl -w net.ipv4.ip_local_port_range=\"16384 65535\"";
    expect(
        "local ports",
        ports(60_000, 60_999, 0),
        Level::Warning,
        "1,000 per source address",
        sysctl,
    );
    expect(
        "local ports",
        ports(40_000, 60_999, 0),
        Level::Note,
        "21,000 per source address",
        sysctl,
    );
    expect(
        "local ports",
        ports(32_768, 60_999, 20_000),
        Level::Warning,
        "8,232 per source address",
        sysctl,
    );
    expect(
        "local ports",
        ports(32_768, 60_999, 12),
        Level::Ok,
        "28,220 per source address",
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
fn judges_time_wait() {
    let rules = |reuse, delay, timestamps| {
        move |facts: &mut HostFacts| {
            facts.time_wait.reuse = Some(reuse);
            facts.time_wait.reuse_delay_ms = delay;
            facts.time_wait.timestamps = Some(timestamps);
        }
    };
    expect(
        "TIME_WAIT",
        rules(2, Some(1_000), 1),
        Level::Ok,
        "after 1.0 s on loopback (28,232 fresh connections/s per source address), elsewhere after 60 s (470/s)",
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
        "tcp_tw_reuse = 0; 12 local ports in TIME_WAIT",
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
        "20,000 local ports in TIME_WAIT",
        "sleep 60",
    );
    let mut facts = sound();
    facts.time_wait.reuse = Some(0);
    let effect = finding(&facts, "TIME_WAIT").spoils.unwrap();
    assert!(effect.contains("470 fresh connections/s"), "{effect}");
}

#[test]
fn judges_accept_queues() {
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
fn judges_connection_tracking() {
    let table = |count, max| {
        move |facts: &mut HostFacts| facts.conntrack = Some(ConntrackFacts { count, max })
    };
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
        "not used by any rule",
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
