//! `cargo xtask performance`: measures how floodmark spends time on a request.

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
    let versions = PROGRAMS.map(|command| (command[0], version(&command)));
    let page = format!(
        include_str!("page.md"),
        table = table("what | value", conditions.rows(versions)),
        rounds = rounds,
        seconds = seconds,
        cpu = cpu::table(bench, rounds, seconds, &below("cpu"))?,
        calls = system_calls::section(bench, seconds, &below("calls"))?,
        instructions = instructions::table(bench, &below("instructions"))?,
        wire = instructions::wire_table(bench, &below("wire"))?,
        memory = memory::lines(bench),
        cpus = conditions.cpus,
    );
    println!("\n{page}");
    if options.quick {
        println!("{FILE} not written: this measurement is incomplete");
        return Ok(());
    }
    update(&bench.root, FILE, &page)
}
