//! Findings on io_uring and the clock.

use floodmark_record::host::{HostFacts, HostFinding, Level};
use floodmark_record::units::{show_count, show_ns};

use super::{fine, level, problem};

/// The error codes `EPERM` and `ENOSYS`. Only Alpha, MIPS and SPARC have a different `ENOSYS`.
const EPERM: i32 = 1;
const ENOSYS: i32 = 38;

pub(super) fn io_uring(facts: &HostFacts) -> Option<HostFinding> {
    const SECCOMP: &str = "# in a container: allow io_uring_setup, io_uring_enter and io_uring_register in its seccomp profile";
    let io_uring = &facts.io_uring;
    if io_uring.available {
        return Some(fine("available"));
    }
    let (found, fix) = match (io_uring.disabled, io_uring.errno) {
        (Some(disabled @ 1..), _) => (
            format!("forbidden: kernel.io_uring_disabled = {disabled}"),
            "sudo sysctl -w kernel.io_uring_disabled=0",
        ),
        (_, Some(EPERM)) => ("forbidden by a system call filter".to_owned(), SECCOMP),
        // Kernels with this setting (6.6 and later) support io_uring, so a filter hides it.
        (Some(_), Some(ENOSYS)) => ("hidden by a system call filter".to_owned(), SECCOMP),
        (None, Some(ENOSYS)) => (
            format!("not in this kernel ({})", facts.kernel),
            "# requires Linux 5.6 or later",
        ),
        (_, errno) => (
            format!("setup failed (error {})", errno.unwrap_or(0)),
            "ulimit -l unlimited    # older kernels count rings as locked memory",
        ),
    };
    let effect =
        "floodmark uses epoll instead; servers that need io_uring fail to start or use a fallback";
    Some(problem(Level::Note, found, effect, &[fix]))
}

pub(super) fn clock(facts: &HostFacts) -> Option<HostFinding> {
    // Reading the clock takes 20–60 ns without a system call, at least 200 ns with a system call,
    // and 1–3 µs with hpet or acpi_pm.
    const SLOW_NS: f64 = 200.0;
    const VERY_SLOW_NS: f64 = 500.0;
    let clock = &facts.clock;
    let source = clock.source.as_deref().unwrap_or("unknown source");
    let found = format!("{source}, {} per reading", show_ns(clock.read_ns));
    let level = level(clock.read_ns, SLOW_NS, VERY_SLOW_NS);
    let per_s = show_count((1e9 / clock.read_ns / 5.0) as u64);
    let fix = if clock.available.iter().any(|name| name == "tsc") && source != "tsc" {
        "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource"
    } else {
        "# if the CPU's time stamp counter is stable, boot with clocksource=tsc tsc=reliable"
    };
    Some(problem(
        level,
        found,
        &format!(
            "reading the clock is slow here: at 5 readings per request, a thread is limited to {per_s} requests/s"
        ),
        &[fix],
    ))
}
