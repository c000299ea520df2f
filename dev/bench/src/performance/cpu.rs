//! Measures CPU time per request in user mode and in the kernel.

use std::path::Path;

use floodmark_record::units::show_count;

use super::loads::{HTTPS_FRESH, RATE, TWO_THREADS, Variant, VariantRun, measure};
use crate::bench::{Bench, Failure};
use crate::experiment::{FRESH, HTTPS, KEPT, NginxLoad};
use crate::statistics::estimate;
use crate::table::{self, cell};

/// Loads that are measured without a CPU placement.
const LOADS: [NginxLoad; 6] = [KEPT, FRESH, HTTPS, HTTPS_FRESH, RATE, TWO_THREADS];

/// CPU placements for kept connections, each with a name.
#[rustfmt::skip]
const PLACES: [(&str, &str); 2] = [
    ("cpus = { client = \"0\", server = \"0\" }", "kept, one shared CPU"),
    ("cpus = { client = \"1\", server = \"0\" }", "kept, one CPU each"),
];

const HEADS: &str =
    "load | backend | requests/s | CPU µs/request | user µs | system µs | system share";

/// Measures all loads and returns the table.
pub fn table(bench: &Bench, rounds: usize, seconds: u64, folder: &Path) -> Result<String, Failure> {
    let mut variants = Variant::all(&LOADS, "");
    for (place, name) in PLACES {
        let load = NginxLoad { name, ..KEPT };
        let placed = Variant::all(&[load], "").into_iter();
        variants.extend(placed.map(|variant| Variant { place, ..variant }));
    }
    let measured = measure(bench, &variants, rounds, seconds, folder)?;
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
    Ok(table::table(HEADS, rows))
}
