//! `cargo xtask performance`: measures where the time of a request goes.

mod callgrind;
mod cpu;
mod instructions;
mod loads;
mod memory;
mod system_calls;

use clap::Args;

use crate::bench::{Bench, Failure, update};
use crate::conditions::{Conditions, version};
use crate::table::table;

/// Path of the generated page, relative to the repository's root.
const FILE: &str = "docs/performance.md";

/// Options of `cargo xtask performance`.
#[derive(Debug, Args)]
pub struct PerformanceOptions {
    /// Run one round of 1 s without writing the page
    #[arg(long)]
    quick: bool,
}

/// Programs whose versions are printed on the page.
const PROGRAMS: [[&str; 2]; 4] = [
    ["nginx", "-v"],
    ["openssl", "version"],
    ["perf", "--version"],
    ["valgrind", "--version"],
];

/// Measures all figures, and writes the page unless `--quick` is set.
pub fn run(bench: &Bench, options: &PerformanceOptions) -> Result<(), Failure> {
    let (rounds, seconds) = if options.quick { (1, 1) } else { (3, 3) };
    let conditions = Conditions::read(bench)?;
    let folder = tempfile::tempdir()?;
    let below = |name: &str| folder.path().join(name);
    let cpu = cpu::table(bench, rounds, seconds, &below("cpu"))?;
    let calls = system_calls::section(bench, seconds, &below("calls"))?;
    let instructions = instructions::table(bench, &below("instructions"))?;
    let wire = instructions::wire_table(bench, &below("wire"))?;
    let memory = memory::lines(bench);
    let versions = PROGRAMS.map(|command| (command[0], version(&command)));
    let versions = versions
        .each_ref()
        .map(|(name, value)| (*name, value.as_str()));
    let table = table("what | value", conditions.rows(&versions));
    let page = format!(
        "# Where the time of a request goes\n\n\
Written by `cargo xtask performance`. No figure is typed by hand. The server is nginx with one worker that responds \"Hello World\"; \
HTTPS is TLS 1.3 with TLS_AES_256_GCM_SHA384. The figures include all of floodmark: command, worker and samplers, from start to \
exit.\n\n\
{table}\n\
## CPU per request\n\n\
Medians of {rounds} rounds of {seconds} s, CPU with its range, from the resource usage of the ended processes (wait4(2)). In the last \
rows, client and server run on the same CPU, or each on its own CPU.\n\n\
{cpu}\n\
## System calls per request\n\n\
Counted with the kernel's tracepoints (`perf stat`) during one run of {seconds} s, including process start and samplers. A call that \
handles several requests counts as a fraction for each. Operations in io_uring's ring are not system calls.\n\n\
{calls}\n\
## Instructions per request\n\n\
User-mode instructions of the load process, counted by callgrind: the difference between runs with few and with many requests, divided \
by the difference in requests. The figures do not depend on how busy the machine is. Each instruction, including inlined code, belongs \
to the part of its source file. Rust's standard library is a separate part, because it is inlined everywhere. The bytes of a request \
are built once, before the measurement. A backend is not counted if valgrind does not support its system calls; except for I/O, both \
backends run the same code.\n\n\
{instructions}\n\
Parts of `wire` in a loop:\n\n\
{wire}\n\
## Memory\n\n\
From `cargo test -p floodmark-load --test allocation`, which counts all allocations of the load threads during ten thousand requests \
and compares resident memory with few and with thousands of connections:\n\n\
{memory}\n\
## Limits\n\n\
- Cycles, cache misses and branches are not measured, because virtual machines often lack the counters.\n\
- The kernel charges interrupts and the receiving side of loopback to the thread that is running at that moment.\n\
- Client and server share {cpus} CPUs.\n",
        cpus = conditions.cpus,
    );
    println!("\n{page}");
    if options.quick {
        println!("{FILE} not written: a complete measurement is needed");
        return Ok(());
    }
    update(&bench.root, FILE, &page)
}
