//! `cargo xtask performance`: measures how floodmark spends time on a request.

mod instructions;
mod loads;
mod system_calls;

use std::path::Path;

use clap::Args;
use floodmark_record::units::show_count;

use crate::bench::{Bench, Failure, update};
use crate::conditions::{Conditions, version};
use crate::experiment::{FRESH, HTTPS, KEPT, NginxLoad};
use crate::statistics::estimate;
use crate::table::{cell, table};

use self::loads::{BACKENDS, HTTPS_FRESH, RATE, TWO_THREADS, Variant, VariantRun, measure};

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
    let directory = tempfile::tempdir()?;
    let below = |name: &str| directory.path().join(name);
    let versions = PROGRAMS.map(|command| (command[0], version(&command)));
    let page = format!(
        include_str!("page.md"),
        table = table("what | value", conditions.rows(versions)),
        rounds = rounds,
        seconds = seconds,
        cpu = cpu_table(bench, rounds, seconds, &below("cpu"))?,
        calls = system_calls::section(bench, seconds, &below("calls"))?,
        instructions = instructions::table(bench, &below("instructions"))?,
        wire = instructions::wire_table(bench, &below("wire"))?,
        memory = memory_lines(bench),
        cpus = conditions.cpus,
    );
    println!("\n{page}");
    if options.quick {
        println!("{FILE} not written: this measurement is incomplete");
        return Ok(());
    }
    update(&bench.root, FILE, &page)
}

/// Loads whose CPU time is measured without pinning processes to CPUs.
const LOADS: [NginxLoad; 6] = [KEPT, FRESH, HTTPS, HTTPS_FRESH, RATE, TWO_THREADS];

/// CPU placements for kept connections, each with a name.
#[rustfmt::skip]
const PLACES: [(&str, &str); 2] = [
    ("cpus = { client = \"0\", server = \"0\" }", "kept, one shared CPU"),
    ("cpus = { client = \"1\", server = \"0\" }", "kept, one CPU each"),
];

const HEADS: &str =
    "load | backend | requests/s | CPU µs/request | user µs | system µs | system share";

/// Measures CPU time per request in user mode and in the kernel.
fn cpu_table(
    bench: &Bench,
    rounds: usize,
    seconds: u64,
    directory: &Path,
) -> Result<String, Failure> {
    let mut variants = Variant::all(&LOADS, "");
    for (place, name) in PLACES {
        let load = NginxLoad { name, ..KEPT };
        let placed = Variant::all(&[load], "").into_iter();
        variants.extend(placed.map(|variant| Variant { place, ..variant }));
    }
    let measured = measure(bench, &variants, rounds, seconds, directory)?;
    let rows = variants.iter().zip(&measured).map(|(variant, measured)| {
        let over = |figure: &dyn Fn(&VariantRun) -> f64| estimate(measured.runs.iter().map(figure));
        let per_request = |cpu_s: fn(&VariantRun) -> f64| {
            over(&|run| cpu_s(run) * 1e6 / run.own.requests.sent as f64)
        };
        let median = |cpu_s| cell(per_request(cpu_s), |m| format!("{:.2}", m.median));
        let rate = over(&|run| run.own.throughput_per_s.unwrap_or_default());
        let cpu = per_request(|run| run.outer.client.cpu_s);
        let share = over(&|run| run.outer.client.system_s / run.outer.client.cpu_s);
        vec![
            variant.load.name.to_owned(),
            variant.backend.to_owned(),
            cell(rate, |m| show_count(m.median as u64)),
            cell(cpu, |m| {
                format!("{:.2} ({:.2}–{:.2})", m.median, m.least, m.most)
            }),
            median(|run| run.outer.client.user_s),
            median(|run| run.outer.client.system_s),
            cell(share, |m| format!("{:.0} %", m.median * 100.0)),
        ]
    });
    Ok(table(HEADS, rows))
}

/// Runs tests of `floodmark-load` that measure the allocations under load and the memory of an idle
/// connection. Returns a line per backend.
fn memory_lines(bench: &Bench) -> String {
    let lines = BACKENDS.map(|backend| {
        let run = |name: &str| {
            bench.cargo(&format!(
                "test --package floodmark-load --test allocation -- --exact --nocapture {backend}::{name}"
            ))
        };
        let none = run("load_allocates_nothing");
        let idle = run("an_idle_connection_takes_little").unwrap_or_else(|error| error.to_string());
        memory_line(backend, none.as_deref().ok(), &idle)
    });
    lines.concat()
}

/// Returns the page's line for a backend, from the output of both tests. `none` is the output of
/// the allocation test, or `None` if that test failed.
fn memory_line(backend: &str, none: Option<&str>, idle: &str) -> String {
    let passed = "\ntest result: ok. 1 passed;";
    let allocations = match none {
        Some(output) if output.contains("skipped:") => {
            "not measured (the kernel does not allow this backend)"
        }
        Some(output) if output.contains(passed) => "0 (test passed)",
        _ => "**test failed**",
    };
    let idle = bytes(idle).map_or("not measured".to_owned(), |bytes| format!("{bytes} bytes"));
    format!(
        "- {backend}: allocations by load threads during load: {allocations}; memory per idle connection: {idle}.\n"
    )
}

/// Parses the number N in `N bytes for each connection` or `N bytes per connection`.
fn bytes(output: &str) -> Option<u64> {
    let ends = [" bytes for each connection", " bytes per connection"];
    output.lines().find_map(|line| {
        let (before, _) = ends.iter().find_map(|end| line.split_once(end))?;
        before.rsplit(' ').next()?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_bytes_per_connection() {
        let output = "   Compiling x\ntest uring::an_idle ... 872 bytes for each connection\nok\n";
        assert_eq!(bytes(output), Some(872));
        assert_eq!(bytes("872 bytes per connection"), Some(872));
        assert_eq!(bytes("skipped: no io_uring"), None);
    }

    #[test]
    fn a_test_that_did_not_run_has_not_passed() {
        let result =
            |n: u8| format!("running {n} tests\n\ntest result: ok. {n} passed; 0 failed;\n");
        assert!(memory_line("epoll", Some(&result(1)), "").contains("0 (test passed)"));
        for output in [Some(&result(0)[..]), Some(""), None] {
            let line = memory_line("epoll", output, "");
            assert!(
                line.contains("test failed") && line.contains("not measured"),
                "{line}"
            );
        }
        assert!(memory_line("uring", Some("skipped: no io_uring"), "").contains("does not allow"));
    }
}
