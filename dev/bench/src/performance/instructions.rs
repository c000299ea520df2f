//! Counts user-mode instructions per request with callgrind. The counts depend neither on the clock
//! nor on other processes.
//!
//! Each load runs twice, once with few requests and once with many. Dividing the difference in
//! instructions by the difference in requests excludes startup and shutdown.

use std::fs;
use std::path::Path;
use std::process::Command;

use floodmark_record::units::show_count;

use super::loads::{RATE, Variant, VariantRuns, measure};
use crate::bench::{Bench, Failure};
use crate::experiment::{FRESH, HTTPS, KEPT};
use crate::table;

/// Command that counts the instructions of a program and its child processes. The output file of
/// each process is `callgrind.PID` in the working directory.
const CALLGRIND: [&str; 4] = [
    "valgrind",
    "--tool=callgrind",
    "--trace-children=yes",
    "--callgrind-out-file=callgrind.%p",
];

/// Number of requests in the short run, and in the long run.
const REQUESTS: [u64; 2] = [2_000, 12_000];

/// Counts the instructions per request for each load on each backend and returns the table.
pub fn table(bench: &Bench, directory: &Path) -> Result<String, Failure> {
    let wrapper = CALLGRIND.join(" ") + " ";
    let loads = Variant::all(&[KEPT, FRESH, HTTPS, RATE], &wrapper);
    let with = |variant: &Variant, requests| Variant {
        requests: Some(requests),
        ..variant.clone()
    };
    let variants = loads
        .iter()
        .flat_map(|variant| REQUESTS.map(|n| with(variant, n)));
    let variants: Vec<Variant> = variants.collect();
    let measured = measure(bench, &variants, 1, 1, directory)?;
    let (mut rows, mut gaps) = (Vec::new(), String::new());
    for (variant, measured) in loads.iter().zip(measured.chunks(REQUESTS.len())) {
        let counted = |i: usize| counted(&measured[i], REQUESTS[i]);
        match counted(0).and_then(|short| per_request([short, counted(1)?])) {
            Ok(each) => rows.push(vec![variant.name(), show_count(each)]),
            Err(error) => gaps.push_str(&format!("\nNot counted: {}: {error}\n", variant.name())),
        }
    }
    Ok(table::table("load | instructions per request", rows) + &gaps)
}

/// Returns the number of instructions that a run's load process executed.
fn counted(measured: &VariantRuns, requests: u64) -> Result<u64, Failure> {
    let run = measured.runs.first().ok_or("the run failed")?;
    match run.own.requests.ok {
        ok if ok == requests => of_process(&measured.directory, " worker"),
        ok => Err(format!("only {ok} of {requests} requests were ok").into()),
    }
}

/// Computes the instructions per request from the counts of the short run and the long run. Fails
/// if the long run executed fewer instructions than the short run.
fn per_request([short, long]: [u64; 2]) -> Result<u64, Failure> {
    let more = long.checked_sub(short);
    let more = more.ok_or("the longer run executed fewer instructions than the shorter run")?;
    Ok(more / (REQUESTS[1] - REQUESTS[0]))
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
pub fn wire_table(bench: &Bench, directory: &Path) -> Result<String, Failure> {
    bench.cargo("build --release --package floodmark-wire --example instructions")?;
    let example = bench.floodmark.with_file_name("examples/instructions");
    let mut rows = Vec::new();
    for (part, what) in WIRE_PARTS {
        let totals = REQUESTS.map(|requests| {
            let directory = directory.join(format!("{part}-{requests}"));
            fs::create_dir_all(&directory)?;
            let [program, flags @ ..] = CALLGRIND;
            let mut count = Command::new(program);
            count.args(flags).arg(&example);
            count.args([part, &requests.to_string()]);
            let output = count.current_dir(&directory).output()?;
            if !output.status.success() {
                return Err(format!("valgrind {part}: {}", output.status).into());
            }
            of_process(&directory, &format!("{part} {requests}"))
        });
        let [short, long] = totals;
        let each = per_request([short?, long?])?;
        rows.push(vec![what.to_owned(), show_count(each)]);
    }
    Ok(table::table("part | instructions", rows))
}

/// Reads callgrind's output in `directory`. Returns the number of instructions executed by the
/// process whose command line ends with `words`. The format is defined in the Valgrind manual,
/// "Callgrind Format Specification".
fn of_process(directory: &Path, words: &str) -> Result<u64, Failure> {
    for file in fs::read_dir(directory)?.flatten() {
        if !file.file_name().to_string_lossy().starts_with("callgrind.") {
            continue;
        }
        let text = fs::read_to_string(file.path())?;
        let mut lines = text.lines();
        if lines.any(|line| line.starts_with("cmd:") && line.trim_end().ends_with(words)) {
            let totals = lines.find_map(|line| line.strip_prefix("totals: "));
            let totals =
                totals.ok_or_else(|| format!("incomplete callgrind output for `{words}`"))?;
            return Ok(totals.trim().parse()?);
        }
    }
    Err(format!("no callgrind output for `{words}`").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# callgrind format\nversion: 1\ncmd:  floodmark worker\npositions: line\nevents: Ir\nsummary: 17\n\n\
        ob=(1) /bin/floodmark\nfl=(1) a.rs\nfn=(1) main\n10 5\n+1 12\n\ntotals: 17\n";

    #[test]
    fn finds_a_process_by_its_last_words() {
        let directory = tempfile::tempdir().unwrap();
        let other = TEXT.replace("floodmark worker", "floodmark load x");
        fs::write(directory.path().join("callgrind.1"), other).unwrap();
        assert!(of_process(directory.path(), " worker").is_err());
        fs::write(directory.path().join("callgrind.2"), TEXT).unwrap();
        assert_eq!(of_process(directory.path(), " worker").unwrap(), 17);
        let cut = TEXT.split_once("totals").unwrap().0;
        fs::write(directory.path().join("callgrind.2"), cut).unwrap();
        let error = of_process(directory.path(), " worker")
            .unwrap_err()
            .to_string();
        assert!(error.contains("incomplete"), "{error}");
    }

    #[test]
    fn excludes_start_and_end() {
        assert_eq!(per_request([5_000_999, 6_000_999]).unwrap(), 100);
        assert!(per_request([6_000_999, 5_000_999]).is_err());
    }
}
