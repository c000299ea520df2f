//! System calls of a request by kind, counted by the kernel's tracepoints with `perf stat`: no tracer stops the thread
//! at each call, so that what is batched stays batched.

use std::path::Path;
use std::process::Command;

use super::run::{Asked, BACKENDS, Bench, FRESH, HTTPS, HTTPS_FRESH, KEPT, RATE, folder};
use crate::command;
use crate::error::Error;
use crate::measuring::table::Table;

/// Where the tracepoints are, once perf has looked for them.
const EVENTS: &str = "/sys/kernel/tracing/events/syscalls";
/// All system calls.
const ALL: &str = "raw_syscalls:sys_enter";
/// Those that are told apart.
const KINDS: [&str; 24] = [
    "io_uring_enter",
    "epoll_pwait2",
    "epoll_wait",
    "epoll_pwait",
    "epoll_ctl",
    "socket",
    "bind",
    "connect",
    "setsockopt",
    "getsockopt",
    "getpeername",
    "getsockname",
    "sendto",
    "sendmsg",
    "write",
    "writev",
    "recvfrom",
    "recvmsg",
    "read",
    "shutdown",
    "close",
    "futex",
    "clock_nanosleep",
    "openat",
];
/// A kind with fewer of all requests is not shown by itself.
const SHOWN: f64 = 0.001;

/// Counts of one run.
#[derive(Debug)]
struct Counts {
    /// Which one: load and backend.
    name: String,
    /// Per request, all kinds.
    all: f64,
    /// Per request, for each of the kinds that the kernel has.
    kinds: Vec<(&'static str, f64)>,
}

/// What was counted, and what could not be.
#[derive(Debug, Default)]
pub struct Calls {
    counts: Vec<Counts>,
    /// In words, each with its reason.
    gaps: Vec<String>,
}

/// Counts a run of each load on each backend.
pub fn count(bench: &Bench, seconds: u64) -> Result<Calls, Error> {
    let mut probe = Command::new("perf");
    probe.args(["stat", "-e", ALL, "true"]);
    if !command::succeeds(&mut probe) {
        let needs = "all: this needs perf (Debian: linux-perf), root, and a kernel with tracepoints of system calls";
        return Ok(Calls {
            gaps: vec![needs.to_owned()],
            ..Calls::default()
        });
    }
    let has = |kind: &&&str| Path::new(EVENTS).join(format!("sys_enter_{kind}")).is_dir();
    let kinds: Vec<&'static str> = KINDS.iter().filter(has).copied().collect();
    let mut events = vec![ALL.to_owned()];
    events.extend(
        kinds
            .iter()
            .map(|kind| format!("syscalls:sys_enter_{kind}")),
    );
    let mut calls = Calls::default();
    for load in [KEPT, FRESH, HTTPS, HTTPS_FRESH, RATE] {
        for backend in BACKENDS {
            let folder = folder()?;
            let file = folder.path().join("counts").display().to_string();
            let mut wrapper: Vec<String> = ["perf", "stat", "-x", ";", "-o", &file, "-e"]
                .map(str::to_owned)
                .to_vec();
            wrapper.extend([events.join(","), "--".to_owned()]);
            let asked = Asked {
                load,
                backend,
                length: &["-d".to_owned(), format!("{seconds}s")],
            };
            let name = format!("{}, {backend}", load.name);
            match bench.run(asked, &wrapper, folder.path())? {
                Ok((_, run)) => {
                    let text = std::fs::read_to_string(&file).unwrap_or_default();
                    let each = |event: &str| {
                        Some(counted(&text, event)? as f64 / run.requests.sent as f64)
                    };
                    let Some(all) = each(ALL) else {
                        calls.gaps.push(format!("{name}: perf counted nothing"));
                        continue;
                    };
                    let each = |&kind: &&'static str| {
                        Some((kind, each(&format!("syscalls:sys_enter_{kind}"))?))
                    };
                    println!("{name}: {all:.3} system calls per request");
                    calls.counts.push(Counts {
                        name,
                        all,
                        kinds: kinds.iter().filter_map(each).collect(),
                    });
                }
                Err(why) => {
                    println!("{name}: system calls not counted: {why}");
                    calls.gaps.push(format!("{name}: {why}"));
                }
            }
        }
    }
    Ok(calls)
}

/// The count of an event in `perf stat -x ';'`: `count;unit;event;…` (perf-stat(1), CSV format).
fn counted(text: &str, event: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let mut fields = line.split(';');
        let count = fields.next()?;
        (fields.nth(1)? == event).then(|| count.parse().ok())?
    })
}

/// The table, a row for each kind that is ever used, and what is missing from it.
pub fn section(calls: &Calls) -> String {
    let mut text = match calls.counts.is_empty() {
        true => String::new(),
        false => table(&calls.counts),
    };
    for gap in &calls.gaps {
        text.push_str(&format!("\nNot counted: {gap}\n"));
    }
    text
}

fn table(counts: &[Counts]) -> String {
    let mut heads = vec!["per request"];
    heads.extend(counts.iter().map(|counts| counts.name.as_str()));
    let mut table = Table::new(&heads);
    let of = |counts: &Counts, kind: &str| {
        let mut kinds = counts.kinds.iter();
        kinds.find(|(name, _)| *name == kind).map_or(0.0, |k| k.1)
    };
    let shown: Vec<&str> = KINDS
        .into_iter()
        .filter(|kind| counts.iter().any(|counts| of(counts, kind) >= SHOWN))
        .collect();
    let mut row = |name: &str, figure: &dyn Fn(&Counts) -> f64| {
        let mut row = vec![name.to_owned()];
        row.extend(counts.iter().map(|counts| format!("{:.3}", figure(counts))));
        table.row(row);
    };
    for kind in &shown {
        row(kind, &|counts| of(counts, kind));
    }
    row("others", &|counts| {
        let told = shown.iter().map(|kind| of(counts, kind));
        (counts.all - told.sum::<f64>()).max(0.0)
    });
    row("**all**", &|counts| counts.all);
    table.markdown()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# started on Sat Nov 21 16:34:06 2026\n\n\
        2900;;raw_syscalls:sys_enter;584486;100.00;;\n\
        1000;;syscalls:sys_enter_io_uring_enter;584486;100.00;;\n\
        <not supported>;;syscalls:sys_enter_sendto;0;100.00;;\n";

    #[test]
    fn reads_what_perf_wrote() {
        assert_eq!(counted(TEXT, ALL), Some(2900));
        assert_eq!(
            counted(TEXT, "syscalls:sys_enter_io_uring_enter"),
            Some(1000)
        );
        assert_eq!(counted(TEXT, "syscalls:sys_enter_sendto"), None);
        assert_eq!(counted("", ALL), None);
    }

    #[test]
    fn what_is_not_told_apart_is_in_others() {
        let counts = Counts {
            name: "kept, uring".to_owned(),
            all: 1.5,
            kinds: vec![("io_uring_enter", 1.0), ("close", 0.0)],
        };
        assert_eq!(
            table(&[counts]),
            "| per request    | kept, uring |\n\
             |----------------|------------:|\n\
             | io_uring_enter |       1.000 |\n\
             | others         |       0.500 |\n\
             | **all**        |       1.500 |\n"
        );
    }
}
