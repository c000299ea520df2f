//! Tests for the io_uring and clock findings.

use floodmark_record::host::{ClockFacts, IoUringFacts};

use super::*;

#[test]
fn judges_forbidden_io_uring() {
    let refused = |disabled, errno| {
        move |facts: &mut HostFacts| {
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
        "by a system call filter",
        "seccomp",
    );
    expect(
        "io_uring",
        refused(Some(0), 38),
        Level::Note,
        "hidden by a system call filter",
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
fn judges_clocks() {
    let clock = |source: &str, available: &str, read_ns| {
        let clock = ClockFacts {
            source: Some(source.to_owned()),
            available: available.split(' ').map(str::to_owned).collect(),
            read_ns,
        };
        move |facts: &mut HostFacts| facts.clock = clock
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
