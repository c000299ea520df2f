//! Counts system calls per request by name with the kernel's tracepoints (`perf stat`). Unlike a
//! tracer, tracepoints do not stop the thread at each call, so batching is unaffected.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use super::loads::{HTTPS_FRESH, RATE, Variant, measure};
use crate::bench::{Bench, Failure, read};
use crate::experiment::{FRESH, HTTPS, KEPT};
use crate::table;

/// Directory of the tracepoints. The kernel creates this directory when perf first uses a
/// tracepoint.
const EVENTS: &str = "/sys/kernel/tracing/events/syscalls";
/// Event that counts all system calls.
const ALL: &str = "raw_syscalls:sys_enter";
/// Names of the system calls that are counted separately.
#[rustfmt::skip]
const KINDS: [&str; 24] = [
    "io_uring_enter", "epoll_pwait2", "epoll_wait", "epoll_pwait", "epoll_ctl", "socket", "bind", "connect", "setsockopt",
    "getsockopt", "getpeername", "getsockname", "sendto", "sendmsg", "write", "writev", "recvfrom", "recvmsg", "read", "shutdown",
    "close", "futex", "clock_nanosleep", "openat",
];
/// Minimum number of calls per request for a separate row in the table.
const MIN_CALLS: f64 = 0.001;
/// Name of perf's output file in the client's directory.
const COUNTS: &str = "counts.csv";

/// Name of a load, and the calls per request by event.
type CallCounts = (String, BTreeMap<String, f64>);

/// Counts the system calls for each load on each backend. Returns the table and a list of failed
/// loads.
pub fn section(bench: &Bench, seconds: u64, directory: &Path) -> Result<String, Failure> {
    let mut probe = Command::new("perf");
    probe.args(["stat", "-e", ALL, "true"]);
    probe.stdout(Stdio::null()).stderr(Stdio::null());
    if !probe.status().is_ok_and(|status| status.success()) {
        return Ok("\nNot counted: requires perf (Debian: linux-perf), root, and system call tracepoints in the kernel\n".to_owned());
    }
    let exists = |kind: &&str| Path::new(EVENTS).join(format!("sys_enter_{kind}")).is_dir();
    let kinds = KINDS.into_iter().filter(exists).map(event);
    let events: Vec<String> = std::iter::once(ALL.to_owned()).chain(kinds).collect();
    let events = events.join(",");
    let wrapper = format!("perf stat -x \";\" -o {COUNTS} -e {events} -- ");
    let variants = Variant::all(&[KEPT, FRESH, HTTPS, HTTPS_FRESH, RATE], &wrapper);
    let measured = measure(bench, &variants, 1, seconds, directory)?;
    let (mut counts, mut gaps) = (Vec::new(), String::new());
    for (variant, measured) in variants.iter().zip(&measured) {
        let name = variant.name();
        let text = read(&measured.directory.join(COUNTS)).unwrap_or_default();
        let Some(run) = measured.runs.first().filter(|_| text.contains(ALL)) else {
            gaps.push_str(&format!("\nNot counted: {name}: the run failed\n"));
            continue;
        };
        let sent = run.own.requests.sent as f64;
        let per_request = counted(&text).map(|(event, n)| (event, n as f64 / sent));
        counts.push((name, per_request.collect()));
    }
    Ok(table(&counts) + &gaps)
}

fn event(kind: &str) -> String {
    format!("syscalls:sys_enter_{kind}")
}

/// Parses the output of `perf stat -x ';'`. Each line has the form `count;unit;event;…`
/// (perf-stat(1), CSV format).
fn counted(text: &str) -> impl Iterator<Item = (String, u64)> {
    text.lines().filter_map(|line| {
        let mut fields = line.split(';');
        let count = fields.next()?.parse().ok()?;
        Some((fields.nth(1)?.to_owned(), count))
    })
}

/// Returns a table with a row for each frequent system call, a row for all others, and the total.
fn table(counts: &[CallCounts]) -> String {
    let of = |(_, calls): &CallCounts, event: &str| calls.get(event).copied().unwrap_or(0.0);
    let is_shown = |kind: &&str| {
        let mut counts = counts.iter();
        counts.any(|counts| of(counts, &event(kind)) >= MIN_CALLS)
    };
    let shown: Vec<&str> = KINDS.into_iter().filter(is_shown).collect();
    let row = |name: &str, figure: &dyn Fn(&CallCounts) -> f64| {
        let figures = counts.iter().map(|counts| format!("{:.3}", figure(counts)));
        std::iter::once(name.to_owned()).chain(figures).collect()
    };
    let kinds = shown
        .iter()
        .map(|kind| row(kind, &|counts| of(counts, &event(kind))));
    let others = row("others", &|counts| {
        let named: f64 = shown.iter().map(|kind| of(counts, &event(kind))).sum();
        (of(counts, ALL) - named).max(0.0)
    });
    let total = row("**total**", &|counts| of(counts, ALL));
    let heads = counts.iter().map(|(name, _)| format!(" | {name}"));
    let heads = format!("per request{}", heads.collect::<String>());
    table::table(&heads, kinds.chain([others, total]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# started on Sat Nov 21 16:34:06 2026\n\n\
        2900;;raw_syscalls:sys_enter;584486;100.00;;\n\
        1000;;syscalls:sys_enter_io_uring_enter;584486;100.00;;\n\
        <not supported>;;syscalls:sys_enter_sendto;0;100.00;;\n";

    #[test]
    fn reads_the_output_of_perf() {
        let counts: Vec<(String, u64)> = counted(TEXT).collect();
        let expected = [(ALL.to_owned(), 2900), (event("io_uring_enter"), 1000)];
        assert_eq!(counts, expected);
        assert_eq!(counted("").count(), 0);
    }

    #[test]
    fn adds_kinds_without_a_row_to_the_others() {
        let per_request = [
            (ALL.to_owned(), 1.5),
            (event("io_uring_enter"), 1.0),
            (event("close"), 0.0),
        ];
        let counts = ("kept, uring".to_owned(), per_request.into());
        assert_eq!(
            table(&[counts]),
            "| per request    | kept, uring |\n\
             |----------------|------------:|\n\
             | io_uring_enter |       1.000 |\n\
             | others         |       0.500 |\n\
             | **total**      |       1.500 |\n"
        );
    }
}
