//! Findings on io_uring and on the clock.

use floodmark_record::host::{Facts, Finding, Level};
use floodmark_record::units::{show_count, show_ns};

use super::{fine, spoils};

/// `EPERM` and `ENOSYS`; the numbers are the same on every architecture that Rust's Linux targets know but Alpha, MIPS and SPARC
/// for the second.
const EPERM: i32 = 1;
const ENOSYS: i32 = 38;

pub(super) fn io_uring(facts: &Facts) -> Finding {
    const TOPIC: &str = "io_uring";
    const SPOILS: &str = "nothing: floodmark uses epoll instead; servers that want io_uring do not start or fall back";
    const ALLOW: &str = "sudo sysctl -w kernel.io_uring_disabled=0";
    const SECCOMP: &str = "# in a container: allow io_uring_setup, io_uring_enter and io_uring_register in its seccomp profile";
    let io_uring = &facts.io_uring;
    if io_uring.available {
        return fine(TOPIC, "available");
    }
    let note = |found: String, mend: &str| spoils(TOPIC, Level::Note, found, SPOILS, [mend]);
    match (io_uring.disabled, io_uring.errno) {
        (Some(disabled @ 1..), _) => note(
            format!("forbidden: kernel.io_uring_disabled = {disabled}"),
            ALLOW,
        ),
        (_, Some(EPERM)) => note("forbidden by a system-call filter".to_owned(), SECCOMP),
        // A kernel that has the setting (6.6) has io_uring, unless it was built without: then a filter says "no such call".
        (Some(_), Some(ENOSYS)) => note("hidden by a system-call filter".to_owned(), SECCOMP),
        (None, Some(ENOSYS)) => note(
            format!("not in this kernel ({})", facts.kernel),
            "# Linux 5.6 or later has what it takes",
        ),
        (_, errno) => note(
            format!("could not be set up (error {})", errno.unwrap_or(0)),
            "ulimit -l unlimited    # older kernels count the ring as locked memory",
        ),
    }
}

pub(super) fn clock(facts: &Facts) -> Finding {
    const TOPIC: &str = "clock";
    // A reading without a system call takes 20–60 ns; with one, 200 ns and more; hpet and acpi_pm about 1–3 µs.
    const SLOW_NS: f64 = 200.0;
    const VERY_SLOW_NS: f64 = 500.0;
    let clock = &facts.clock;
    let source = clock.source.as_deref().unwrap_or("unknown source");
    let found = format!("{source}, {} a reading", show_ns(clock.read_ns));
    let level = if clock.read_ns >= VERY_SLOW_NS {
        Level::Warning
    } else if clock.read_ns >= SLOW_NS {
        Level::Note
    } else {
        return fine(TOPIC, found);
    };
    let per_s = show_count((1e9 / clock.read_ns / 5.0) as u64);
    let mend = if clock.available.iter().any(|name| name == "tsc") && source != "tsc" {
        "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource"
    } else {
        "# boot with the kernel parameters clocksource=tsc tsc=reliable, where the CPU's counter is steady"
    };
    spoils(
        TOPIC,
        level,
        found,
        format!(
            "client and server read it several times per request: at 5 readings a thread does no more than {per_s} requests per second, and does nothing else"
        ),
        [mend],
    )
}
