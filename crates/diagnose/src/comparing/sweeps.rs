//! Sweeps: how throughput goes with the values of knobs, and which values are enough.

use floodmark_record::Record;
use floodmark_record::comparison::Metric;
use floodmark_record::sweep::{Measured, Swept};
use floodmark_stats::comparison::{geometric_mean, over_processes};

use super::figures::Figures;
use super::side::{Side, sides};

/// A point that reaches this share of the highest throughput is enough: on one machine fresh processes differ by as much.
const ENOUGH: f64 = 0.95;

/// What the sweeps of a record's experiment came to.
#[must_use]
pub fn sweeps(record: &Record) -> Vec<Swept> {
    let sides = sides(record);
    let asked = record.experiment.iter().flat_map(|asked| &asked.sweeps);
    asked
        .map(|sweep| {
            let of = |trial: &str| {
                sides
                    .iter()
                    .find(|side| side.is_trial() && side.name == trial)
            };
            let points = sweep.points.iter();
            let measured: Vec<Measured> = points.map(|point| measured(of(&point.trial))).collect();
            let highest = measured
                .iter()
                .filter_map(|point| point.throughput_per_s)
                .fold(0.0, f64::max);
            let first = |least: f64| {
                let reaches = |point: &Measured| point.throughput_per_s.is_some_and(|x| x >= least);
                let at = measured
                    .iter()
                    .position(reaches)
                    .filter(|_| highest > 0.0)?;
                Some(sweep.points[at].trial.clone())
            };
            Swept {
                best: first(highest),
                enough: first(highest * ENOUGH),
                sweep: sweep.clone(),
                measured,
            }
        })
        .collect()
}

fn measured(side: Option<&Side<'_>>) -> Measured {
    let figures = side.map(|side| Figures::of(side, Metric::Throughput));
    let values = figures.as_ref().and_then(Figures::usable).unwrap_or(&[]);
    let interval = over_processes(values);
    Measured {
        throughput_per_s: geometric_mean(values),
        low: interval.as_ref().map(|i| i.low),
        high: interval.as_ref().map(|i| i.high),
        processes: values.len() as u32,
    }
}
