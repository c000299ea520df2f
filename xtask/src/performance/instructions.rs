//! Instructions of a request in user mode, by callgrind: no clock and no other process moves them.
//!
//! Each run is done twice, with few and with many requests; the difference over the difference in requests is what a
//! request takes, without start and end.

use std::process::Command;

use super::callgrind::{self, ByFile};
use super::run::{Asked, BACKENDS, Bench, FRESH, HTTPS, KEPT, Load, RATE, folder};
use crate::command;
use crate::error::Error;
use crate::measuring::table::{Table, grouped};
use crate::workspace::Workspace;

/// Requests of the short and of the long run.
const REQUESTS: [u64; 2] = [2_000, 12_000];

/// Where in the sources the work of a request is: a part's name, and what its files' paths contain. The first that fits
/// counts.
const PARTS: [(&str, &[&str]); 9] = [
    (
        "TLS",
        &["/load/src/tls", "/rustls-", "/ring-", "/rustls_", "/webpki"],
    ),
    ("reading answers", &["/crates/wire/", "/httparse-"]),
    (
        "recording",
        &[
            "/load/src/recorder",
            "/load/src/slice",
            "/crates/stats/",
            "/hdrhistogram-",
            "/num-traits-",
        ],
    ),
    ("schedule", &["/load/src/schedule", "/load/src/arrivals"]),
    (
        "rows, once a second",
        &[
            "/load/src/gather",
            "/load/src/worker",
            "/base64-",
            "/miniz_oxide-",
            "/serde",
            "/crates/record/",
        ],
    ),
    ("I/O backend", &["/load/src/backend", "/io-uring-"]),
    (
        "clock",
        &[
            "/load/src/clock",
            "clock_gettime",
            "/unix/time.rs",
            "/std/src/time.rs",
            "/core/src/time.rs",
        ],
    ),
    ("core", &["/crates/load/"]),
    (
        "Rust's library, inlined anywhere",
        &["/library/", "/rustc/"],
    ),
];
/// What no part holds.
const OTHERS: &str = "C library and others";

/// Instructions of a request.
#[derive(Debug)]
pub struct Count {
    /// Load and backend.
    name: String,
    /// By part, in the order of [`PARTS`], others last; in words why there are none.
    parts: Result<Vec<f64>, String>,
}

/// Counts a request of each load on each backend.
pub fn of_runs(bench: &Bench) -> Result<Vec<Count>, Error> {
    let mut counts = Vec::new();
    for load in [KEPT, FRESH, HTTPS, RATE] {
        for backend in BACKENDS {
            let name = format!("{}, {backend}", load.name);
            let parts = of_run(bench, load, backend)?;
            match &parts {
                Ok(parts) => println!(
                    "{name}: {:.0} instructions per request",
                    parts.iter().sum::<f64>()
                ),
                Err(why) => println!("{name}: instructions not counted: {why}"),
            }
            counts.push(Count { name, parts });
        }
    }
    Ok(counts)
}

fn of_run(bench: &Bench, load: Load, backend: &str) -> Result<Result<Vec<f64>, String>, Error> {
    let mut runs: Vec<ByFile> = Vec::new();
    for requests in REQUESTS {
        let folder = folder()?;
        let asked = Asked {
            load,
            backend,
            length: &["-n".to_owned(), requests.to_string()],
        };
        let run = bench.run(asked, &callgrind::wrapper(folder.path()), folder.path())?;
        let counted = run.and_then(|(_, run)| match run.requests.ok == requests {
            true => callgrind::of_process(folder.path(), " worker"),
            false => Err(format!(
                "only {} of {requests} requests were ok",
                run.requests.ok
            )),
        });
        match counted {
            Ok(counted) => runs.push(counted),
            Err(why) => return Ok(Err(why)),
        }
    }
    Ok(Ok(difference(&runs[0], &runs[1])))
}

/// What each part takes for a request, of a short and of a long run.
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

/// Which of [`PARTS`] a file belongs to; their number where none.
fn part(file: &str) -> usize {
    let fits = |(_, places): &(&str, &[&str])| places.iter().any(|place| file.contains(place));
    PARTS.iter().position(fits).unwrap_or(PARTS.len())
}

/// The table, and why columns are missing.
pub fn table(counts: &[Count]) -> String {
    let taken = || {
        counts
            .iter()
            .filter_map(|c| Some((c, c.parts.as_ref().ok()?)))
    };
    let mut heads = vec!["instructions per request"];
    heads.extend(taken().map(|(count, _)| count.name.as_str()));
    let mut table = Table::new(&heads);
    let names = PARTS.iter().map(|(name, _)| *name).chain([OTHERS]);
    for (index, name) in names.enumerate() {
        let mut row = vec![name.to_owned()];
        row.extend(taken().map(|(_, parts)| grouped(parts[index])));
        table.row(row);
    }
    let mut row = vec!["**all**".to_owned()];
    row.extend(taken().map(|(_, parts)| grouped(parts.iter().sum())));
    table.row(row);
    let mut text = table.markdown();
    for count in counts {
        if let Err(why) = &count.parts {
            text.push_str(&format!("\nNot counted: {}: {why}\n", count.name));
        }
    }
    text
}

/// Parts of `wire` done apart, with their names in its example.
const APART: [(&str, &str); 5] = [
    ("typical", "reading an answer of nine headers"),
    ("least", "reading an answer of one header"),
    ("chunked", "reading an answer in chunks"),
    (
        "split",
        "reading an answer of nine headers that comes in two pieces",
    ),
    ("request", "building a request"),
];

/// Counts each part of `wire` apart; a row for each: what, and instructions.
pub fn apart(workspace: &Workspace) -> Result<Vec<(&'static str, f64)>, Error> {
    let mut build = command::cargo();
    build.args(["build", "--release", "--package", "floodmark-wire"]);
    build.args(["--example", "instructions"]);
    command::run(build.current_dir(&workspace.root))?;
    let example = workspace.target.join("release/examples/instructions");
    let mut rows = Vec::new();
    for (part, what) in APART {
        let mut totals = Vec::new();
        for requests in REQUESTS {
            let folder = folder()?;
            let wrapper = callgrind::wrapper(folder.path());
            let mut count = Command::new(&wrapper[0]);
            count.args(&wrapper[1..]).arg(&example);
            count.args([part, &requests.to_string()]);
            command::capture(&mut count)?;
            let files = callgrind::of_process(folder.path(), &format!("{part} {requests}"));
            let files = files.map_err(|why| Error::Found(vec![why]))?;
            totals.push(files.values().sum::<u64>() as f64);
        }
        let each = (totals[1] - totals[0]) / (REQUESTS[1] - REQUESTS[0]) as f64;
        println!("{what}: {each:.0} instructions");
        rows.push((what, each));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_belongs_to_one_part() {
        let name = |file| PARTS.get(part(file)).map_or(OTHERS, |(name, _)| name);
        assert_eq!(name("/x/crates/load/src/core/mod.rs"), "core");
        assert_eq!(name("/x/crates/load/src/recorder.rs"), "recording");
        assert_eq!(
            name("/x/crates/load/src/backend/uring/mod.rs"),
            "I/O backend"
        );
        assert_eq!(
            name("/x/registry/src/index/httparse-1.10.1/src/lib.rs"),
            "reading answers"
        );
        assert_eq!(
            name("/rustc/5980/library/std/src/sys/pal/unix/time.rs"),
            "clock"
        );
        assert_eq!(
            name("/rustc/5980/library/core/src/num/mod.rs"),
            "Rust's library, inlined anywhere"
        );
        assert_eq!(name("./string/memmove.S"), OTHERS);
    }

    #[test]
    fn start_and_end_cancel_out() {
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
