//! Counts instructions per request in user mode with callgrind. The counts depend neither on the
//! clock nor on other processes.
//!
//! Each load runs twice, once with few requests and once with many. Dividing the difference in
//! instructions by the difference in requests excludes startup and shutdown.

use std::path::Path;
use std::process::Command;

use floodmark_record::units::show_count;

use super::callgrind::{self, ByFile};
use super::loads::{RATE, Variant, VariantRuns, measure};
use crate::bench::{Bench, Failure};
use crate::experiment::{FRESH, HTTPS, KEPT};
use crate::table;

/// Number of requests in the short run, and in the long run.
const REQUESTS: [u64; 2] = [2_000, 12_000];

/// Parts of the work per request, each with fragments of source paths. A file belongs to the first
/// part that matches.
#[rustfmt::skip]
const PARTS: [(&str, &[&str]); 9] = [
    ("TLS", &["/load/src/tls", "/rustls-", "/ring-", "/rustls_", "/webpki"]),
    ("reading responses", &["/crates/wire/", "/httparse-"]),
    (
        "recording",
        &["/load/src/recorder", "/load/src/slice", "/crates/stats/", "/hdrhistogram-", "/num-traits-"],
    ),
    ("schedule", &["/load/src/schedule", "/load/src/arrivals"]),
    (
        "rows, once a second",
        &["/load/src/gather", "/load/src/worker", "/base64-", "/miniz_oxide-", "/serde", "/crates/record/"],
    ),
    ("I/O backend", &["/load/src/backend", "/io-uring-"]),
    (
        "clock",
        &["/load/src/clock", "clock_gettime", "/unix/time.rs", "/std/src/time.rs", "/core/src/time.rs"],
    ),
    ("core", &["/crates/load/"]),
    ("Rust's standard library, inlined", &["/library/", "/rustc/"]),
];
/// Name of the part that contains all other files.
const OTHERS: &str = "C library and others";

/// Counts the instructions per request for each load on each backend and returns the table.
pub fn table(bench: &Bench, folder: &Path) -> Result<String, Failure> {
    let wrapper = callgrind::COMMAND.join(" ") + " ";
    let loads = Variant::all(&[KEPT, FRESH, HTTPS, RATE], &wrapper);
    let with = |variant: &Variant, requests| Variant {
        requests: Some(requests),
        ..variant.clone()
    };
    let variants = loads
        .iter()
        .flat_map(|variant| REQUESTS.map(|n| with(variant, n)));
    let variants: Vec<Variant> = variants.collect();
    let measured = measure(bench, &variants, 1, 1, folder)?;
    let (mut heads, mut gaps) = ("instructions per request".to_owned(), String::new());
    let mut columns = Vec::new();
    for (variant, measured) in loads.iter().zip(measured.chunks(REQUESTS.len())) {
        let counted = |i: usize| counted(&measured[i], REQUESTS[i]);
        match counted(0).and_then(|short| Ok(difference(&short, &counted(1)?))) {
            Ok(parts) => {
                heads.push_str(&format!(" | {}", variant.name()));
                columns.push(parts);
            }
            Err(error) => gaps.push_str(&format!("\nNot counted: {}: {error}\n", variant.name())),
        }
    }
    let row = |name: &str, figure: &dyn Fn(&Vec<f64>) -> f64| {
        let figures = columns.iter().map(figure);
        let figures = figures.map(|figure| show_count(figure.max(0.0).round() as u64));
        std::iter::once(name.to_owned()).chain(figures).collect()
    };
    let names = PARTS.iter().map(|(name, _)| *name).chain([OTHERS]);
    let rows = names
        .enumerate()
        .map(|(i, name)| row(name, &|parts| parts[i]));
    let total = row("**total**", &|parts| parts.iter().sum());
    Ok(table::table(&heads, rows.chain([total])) + &gaps)
}

/// Returns the instruction counts of a run's load process.
fn counted(measured: &VariantRuns, requests: u64) -> Result<ByFile, Failure> {
    let run = measured.runs.first().ok_or("the run failed")?;
    match run.own.requests.ok {
        ok if ok == requests => callgrind::of_process(&measured.folder, " worker"),
        ok => Err(format!("only {ok} of {requests} requests were ok").into()),
    }
}

/// Returns the instructions per request for each part.
fn difference(short: &ByFile, long: &ByFile) -> Vec<f64> {
    let mut parts = vec![0.0; PARTS.len() + 1];
    let requests = (REQUESTS[1] - REQUESTS[0]) as f64;
    for (files, sign) in [(short, -1.0), (long, 1.0)] {
        for (file, count) in files {
            parts[part(file)] += sign * *count as f64 / requests;
        }
    }
    parts
}

/// Returns the index of a file's part in [`PARTS`], or `PARTS.len()` if no part matches.
fn part(file: &str) -> usize {
    let matches = |(_, paths): &(&str, &[&str])| paths.iter().any(|path| file.contains(path));
    PARTS.iter().position(matches).unwrap_or(PARTS.len())
}

/// Arguments of the example `instructions`, each with a description. The example runs the described
/// part of `wire` in a loop.
#[rustfmt::skip]
const WIRE_PARTS: [(&str, &str); 5] = [
    ("typical", "reading a response with nine headers"),
    ("least", "reading a response with one header"),
    ("chunked", "reading a chunked response"),
    ("split", "reading a response with nine headers that arrives in two pieces"),
    ("request", "building a request"),
];

/// Counts the instructions of each part of `wire` and returns the table.
pub fn wire_table(bench: &Bench, folder: &Path) -> Result<String, Failure> {
    bench.cargo("build --release --package floodmark-wire --example instructions")?;
    let example = bench.floodmark.with_file_name("examples/instructions");
    let mut rows = Vec::new();
    for (part, what) in WIRE_PARTS {
        let totals = REQUESTS.map(|requests| {
            let folder = folder.join(format!("{part}-{requests}"));
            std::fs::create_dir_all(&folder)?;
            let [program, flags @ ..] = callgrind::COMMAND;
            let mut count = Command::new(program);
            count.args(flags).arg(&example);
            count.args([part, &requests.to_string()]);
            let output = count.current_dir(&folder).output()?;
            if !output.status.success() {
                return Err(format!("valgrind {part}: {}", output.status).into());
            }
            let files = callgrind::of_process(&folder, &format!("{part} {requests}"))?;
            Ok::<u64, Failure>(files.values().sum())
        });
        let [short, long] = totals;
        let each = (long? - short?) / (REQUESTS[1] - REQUESTS[0]);
        rows.push(vec![what.to_owned(), show_count(each)]);
    }
    Ok(table::table("part | instructions", rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assigns_each_file_to_one_part() {
        let name = |file| PARTS.get(part(file)).map_or(OTHERS, |(name, _)| name);
        for (file, expected) in [
            ("/x/crates/load/src/core/mod.rs", "core"),
            ("/x/crates/load/src/recorder.rs", "recording"),
            ("/x/crates/load/src/backend/uring/mod.rs", "I/O backend"),
            (
                "/x/registry/src/index/httparse-1.10.1/src/lib.rs",
                "reading responses",
            ),
            ("/rustc/5980/library/std/src/sys/pal/unix/time.rs", "clock"),
            (
                "/rustc/5980/library/core/src/num/mod.rs",
                "Rust's standard library, inlined",
            ),
            ("./string/memmove.S", OTHERS),
        ] {
            assert_eq!(name(file), expected);
        }
    }

    #[test]
    fn excludes_start_and_end() {
        let of = |core: u64, libc: u64| {
            ByFile::from([
                ("/crates/load/src/core/mod.rs".to_owned(), core),
                ("x.c".to_owned(), libc),
            ])
        };
        let parts = difference(&of(5_000_000, 999), &of(6_000_000, 999));
        assert_eq!(parts[7], 100.0);
        assert_eq!(parts.iter().sum::<f64>(), 100.0);
    }
}
