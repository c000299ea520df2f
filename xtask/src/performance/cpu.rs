//! CPU of a request: in user mode and in the kernel, and how often the thread gives way.

use super::run::{
    Asked, BACKENDS, Bench, FRESH, HTTPS, HTTPS_FRESH, KEPT, Load, RATE, TWO_THREADS, folder,
};
use crate::error::Error;
use crate::measuring::statistics::{Estimate, estimate};
use crate::measuring::table::{Table, grouped};

/// Where client and server run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Where the kernel puts them.
    Free,
    /// Both on the first CPU.
    OneCpu,
    /// The server on the first, the client on the second.
    TwoCpus,
}

/// One case: a load in a place.
#[derive(Debug, Clone, Copy)]
struct Case {
    load: Load,
    place: Place,
}

const CASES: [Case; 8] = [
    free(KEPT),
    free(FRESH),
    free(HTTPS),
    free(HTTPS_FRESH),
    free(RATE),
    free(TWO_THREADS),
    Case {
        load: KEPT,
        place: Place::OneCpu,
    },
    Case {
        load: KEPT,
        place: Place::TwoCpus,
    },
];

const fn free(load: Load) -> Case {
    Case {
        load,
        place: Place::Free,
    }
}

impl Case {
    fn name(&self) -> String {
        match self.place {
            Place::Free => self.load.name.to_owned(),
            Place::OneCpu => format!("{}, one CPU for both", self.load.name),
            Place::TwoCpus => format!("{}, a CPU for each", self.load.name),
        }
    }
}

/// What one run took.
#[derive(Debug, Clone, Copy)]
struct Sample {
    /// None where the run was too short or too sparse for it.
    per_s: Option<f64>,
    user_us: f64,
    system_us: f64,
    voluntary: f64,
    involuntary: f64,
}

/// A row of the table: its names and the samples.
#[derive(Debug)]
pub struct Row {
    case: String,
    backend: &'static str,
    samples: Vec<Sample>,
    /// Why there are none.
    failed: Option<String>,
}

/// Runs all cases `rounds` times, the cases within each round one after the other.
pub fn measure(bench: &Bench, rounds: usize, seconds: u64) -> Result<Vec<Row>, Error> {
    let cpus = crate::measuring::machine::allowed_cpus();
    let cases = CASES.iter().filter(|case| match case.place {
        Place::TwoCpus => cpus.len() > 1,
        Place::Free | Place::OneCpu => true,
    });
    let both = cases.flat_map(|case| BACKENDS.map(|backend| (*case, backend)));
    let both: Vec<(Case, &'static str)> = both.collect();
    let rows = both.iter().map(|(case, backend)| Row {
        case: case.name(),
        backend,
        samples: Vec::new(),
        failed: None,
    });
    let mut rows: Vec<Row> = rows.collect();
    for round in 0..rounds {
        for ((case, backend), row) in both.iter().zip(&mut rows) {
            let (server, client) = match case.place {
                Place::Free => (cpus.clone(), None),
                Place::OneCpu => (vec![cpus[0]], Some(cpus[0])),
                Place::TwoCpus => (vec![cpus[0]], Some(cpus[1])),
            };
            let pinned = bench.server.pin(&server);
            pinned.map_err(|e| Error::Found(vec![format!("nginx cannot be bound: {e}")]))?;
            let wrapper =
                client.map(|cpu| ["taskset".to_owned(), "-c".to_owned(), cpu.to_string()]);
            let wrapper: Vec<String> = wrapper.into_iter().flatten().collect();
            let asked = Asked {
                load: case.load,
                backend,
                length: &["-d".to_owned(), format!("{seconds}s")],
            };
            match bench.run(asked, &wrapper, folder()?.path())? {
                Ok((used, run)) => {
                    let requests = run.requests.sent as f64;
                    let each = |total: f64| total / requests;
                    let sample = Sample {
                        per_s: run.throughput_per_s,
                        user_us: each(used.user_s * 1e6),
                        system_us: each(used.system_s * 1e6),
                        voluntary: each(used.voluntary as f64),
                        involuntary: each(used.involuntary as f64),
                    };
                    println!(
                        "round {} {} on {backend}: {:.2} µs user, {:.2} µs system",
                        round + 1,
                        row.case,
                        sample.user_us,
                        sample.system_us
                    );
                    row.samples.push(sample);
                }
                Err(why) => {
                    println!(
                        "round {} {} on {backend} failed: {why}",
                        round + 1,
                        row.case
                    );
                    row.failed = Some(why);
                }
            }
        }
    }
    let all = bench.server.pin(&cpus);
    all.map_err(|e| Error::Found(vec![format!("nginx cannot be released: {e}")]))?;
    Ok(rows)
}

/// The table, and why rows have gaps.
pub fn table(rows: &[Row]) -> String {
    let mut table = Table::new(&[
        "load",
        "backend",
        "requests/s",
        "CPU µs/request",
        "user µs",
        "system µs",
        "system share",
        "waits",
        "pre-empted",
    ]);
    let mut failures = String::new();
    for row in rows {
        let of = |figure: fn(&Sample) -> f64| estimate(row.samples.iter().map(figure).collect());
        let per_s = row.samples.iter().filter_map(|s| s.per_s);
        let cell = |e: Option<Estimate>, show: &dyn Fn(f64) -> String| {
            e.map_or("–".to_owned(), |e| show(e.median))
        };
        let two = |figure: f64| format!("{figure:.2}");
        let three = |figure: f64| format!("{figure:.3}");
        let cpu = of(|s| s.user_us + s.system_us).map_or("–".to_owned(), |e| {
            format!("{:.2} ({:.2}–{:.2})", e.median, e.least, e.most)
        });
        table.row(vec![
            row.case.clone(),
            row.backend.to_owned(),
            cell(estimate(per_s.collect()), &grouped),
            cpu,
            cell(of(|s| s.user_us), &two),
            cell(of(|s| s.system_us), &two),
            cell(of(|s| s.system_us / (s.user_us + s.system_us)), &|share| {
                format!("{:.0} %", share * 100.0)
            }),
            cell(of(|s| s.voluntary), &three),
            cell(of(|s| s.involuntary), &three),
        ]);
        if let Some(why) = &row.failed {
            failures.push_str(&format!(
                "\n{} on {} failed: {why}\n",
                row.case, row.backend
            ));
        }
    }
    table.markdown() + &failures
}
