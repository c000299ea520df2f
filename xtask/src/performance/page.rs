//! The page, `docs/performance.md`: every figure in it comes from the runs.

use super::cpu;
use super::instructions;
use super::memory::{self, Thrift};
use super::run::{Asked, FRESH, HTTPS, HTTPS_FRESH, KEPT, RATE, TWO_THREADS};
use super::system_calls::{self, Calls};
use crate::measuring::machine::{Elsewhere, Machine};
use crate::measuring::nginx;
use crate::measuring::table::{Table, grouped};

/// All that the page is made of.
pub struct Page<'a> {
    /// Where.
    pub machine: &'a Machine,
    /// CPU that went elsewhere while CPU was measured.
    pub elsewhere: Elsewhere,
    /// Versions of the programs that were used.
    pub versions: &'a [(&'static str, String)],
    /// Rounds of the runs that measure CPU.
    pub rounds: usize,
    /// Length of such a run, seconds.
    pub seconds: u64,
    /// CPU of a request.
    pub cpu: Vec<cpu::Row>,
    /// System calls of a request.
    pub calls: Calls,
    /// Instructions of a request.
    pub instructions: Vec<instructions::Count>,
    /// Instructions of parts of `wire` done apart.
    pub apart: Vec<(&'static str, f64)>,
    /// Memory.
    pub thrift: Vec<Thrift>,
}

impl Page<'_> {
    /// As Markdown.
    pub fn markdown(&self) -> String {
        let mut conditions = Table::new(&["what", "which"]);
        for row in self.machine.rows(self.elsewhere) {
            conditions.row(row);
        }
        for (program, version) in self.versions {
            conditions.row(vec![(*program).to_owned(), version.clone()]);
        }
        let mut apart = Table::new(&["part", "instructions"]);
        for (what, count) in &self.apart {
            apart.row(vec![(*what).to_owned(), grouped(*count)]);
        }
        let (rounds, seconds) = (self.rounds, self.seconds);
        format!(
            "# Where the time goes\n\n\
Written by `cargo xtask performance`; no figure is typed by hand. The server is nginx {server} with one worker that answers \
\"Hello World\"; HTTPS is TLS 1.3 with {suite}. All floodmark is counted, its command, worker and samplers, from start to end.\n\n\
{conditions}\n\
## CPU of a request\n\n\
Medians of {rounds} rounds of {seconds} s, CPU with its range, from the resource usage of the ended processes (wait4(2)). *Waits* are \
context switches because a thread had nothing to do, *pre-empted* those because another one was to run, both per request. The last \
rows hold the same load on one CPU, where client and server take turns, and on two.\n\n\
{cpu}\n\
## System calls of a request\n\n\
Counted by the kernel's tracepoints (`perf stat`), over one run of {seconds} s each; the processes' start and samplers are among \
them. What a backend does in one call for many requests is a fraction here; what goes through io_uring's ring is no system call.\n\n\
{calls}\n\
## Instructions of a request\n\n\
User mode only, of the load process, by callgrind: the difference of a run of few and one of many requests, over the requests between \
them. They do not depend on how busy the machine is. Parts are told by the source file that an instruction was written in, inlined \
code included; only Rust's own library cannot be told apart, since it is inlined everywhere. A request's bytes are built once, before \
the clock starts, and are no part of it. Where valgrind does not know the system calls of a backend, that one is not counted; what \
is not I/O is the same on both.\n\n\
{instructions}\n\
The pure parts of `wire` done apart, in a loop:\n\n\
{apart}\n\
## Memory\n\n\
By `cargo test -p floodmark-load --test allocation`, which counts every allocation of load threads while ten thousand requests are answered, and \
compares resident memory with few and with thousands more connections:\n\n\
{thrift}\n\
## What this cannot show\n\n\
- Cycles, cache misses and branches: a virtual machine often has no counters of them, and this page must not need them.\n\
- What the kernel does on behalf of a request on other threads (interrupts, the receiving side of loopback) is charged to whoever runs then.\n\
- Client and server share {cpus} CPUs.\n\n\
## Commands\n\n\
`SECONDS` is {seconds}; under `valgrind --tool=callgrind --trace-children=yes` the length is `-n` in its place; system calls are counted \
by `perf stat -e raw_syscalls:sys_enter,syscalls:sys_enter_…`; `taskset -c CPU` binds the client, sched_setaffinity(2) the server.\n\n\
```text\n{commands}```\n",
            server = self.versions.first().map_or("", |(_, version)| version),
            suite = nginx::SUITE,
            conditions = conditions.markdown(),
            cpu = cpu::table(&self.cpu),
            calls = system_calls::section(&self.calls),
            instructions = instructions::table(&self.instructions),
            apart = apart.markdown(),
            thrift = memory::lines(&self.thrift),
            cpus = self.machine.cpus,
            commands = commands(),
        )
    }
}

/// The command lines on one backend; on the other they differ in its name.
fn commands() -> String {
    let length = ["-d".to_owned(), "SECONDSs".to_owned()];
    let shown = |load| {
        let asked = Asked {
            load,
            backend: "BACKEND",
            length: &length,
        };
        asked.shown() + "\n"
    };
    [KEPT, FRESH, HTTPS, HTTPS_FRESH, RATE, TWO_THREADS]
        .map(shown)
        .concat()
}
