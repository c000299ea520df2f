//! `cargo xtask performance`: where the time of a request goes.

mod callgrind;
mod cpu;
mod instructions;
mod memory;
mod page;
mod run;
mod system_calls;

use clap::Args;

use crate::error::Error;
use crate::measuring::child::Interrupt;
use crate::measuring::machine::{Machine, Reading};
use crate::measuring::nginx::{self, Nginx};
use crate::measuring::programs;
use crate::page::{Mode, settle};
use crate::release;
use crate::workspace::Workspace;
use run::Bench;

/// The page, from the root.
const FILE: &str = "docs/performance.md";
/// What counts, beside the server: each program and the Debian package that brings it.
const PERF: (&str, &str) = ("perf", "linux-perf");
const VALGRIND: (&str, &str) = ("valgrind", "valgrind");
const TASKSET: (&str, &str) = ("taskset", "util-linux");

/// How long to measure.
#[derive(Debug, Args)]
pub struct Options {
    /// One round of 1 s to try it out. The page is not written then.
    #[arg(long)]
    quick: bool,
}

/// Measures and, unless it is only tried out, writes the page.
pub fn run(workspace: &Workspace, options: &Options) -> Result<(), Error> {
    let found = |e: std::io::Error| Error::Found(vec![e.to_string()]);
    let programs = [nginx::PROGRAM, nginx::OPENSSL, PERF, VALGRIND, TASKSET];
    programs::provide(programs);
    let floodmark = release::floodmark(workspace)?;
    let machine = Machine::read(workspace)?;
    let interrupt = Interrupt::catch().map_err(found)?;
    let (rounds, seconds) = if options.quick { (1, 1) } else { (3, 3) };
    let folder = run::folder()?;
    let server = Nginx::start(folder.path())?;
    let bench = Bench {
        floodmark,
        server: &server,
        interrupt: &interrupt,
    };
    let before = Reading::now();
    let cpu = cpu::measure(&bench, rounds, seconds)?;
    let elsewhere = Reading::now().since(before, machine.cpus);
    let calls = system_calls::count(&bench, seconds)?;
    let instructions = instructions::of_runs(&bench)?;
    drop(server);
    let versions = programs.map(|(program, package)| (program, programs::debian_version(package)));
    let page = page::Page {
        machine: &machine,
        elsewhere,
        versions: &versions,
        rounds,
        seconds,
        cpu,
        calls,
        instructions,
        apart: instructions::apart(workspace)?,
        thrift: memory::test(workspace)?,
    };
    let page = page.markdown();
    println!("\n{page}");
    if options.quick {
        println!("{FILE} is left as it is: it takes a whole measurement");
        return Ok(());
    }
    settle(
        workspace,
        FILE,
        &page,
        Mode::Write,
        "cargo xtask performance",
    )
}
