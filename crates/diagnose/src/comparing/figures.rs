//! One figure for each server process, and what is to be said of them.

use floodmark_record::comparison::Metric;
use floodmark_record::run::{Run, Status, SteadyClass};
use floodmark_record::times::Times;
use floodmark_record::units::{show_ns, show_rate};
use floodmark_stats::attempts::{OUTLIER_Z, median, outliers, slow_first};

use super::side::Side;
use crate::validity::plural;

/// The figures of a side's processes.
pub(super) struct Figures {
    /// In the metric's unit; infinite where it is only known to be above the timeout, 0 where nothing was answered.
    pub values: Vec<f64>,
    /// Attempts that they were taken from.
    pub attempts: usize,
    pub notes: Vec<String>,
}

impl Figures {
    pub fn of(side: &Side<'_>, metric: Metric) -> Self {
        let mut figures = Figures {
            values: Vec::new(),
            attempts: 0,
            notes: Vec::new(),
        };
        let (mut invalid, mut unmeasured, mut warming) = (0, 0, 0);
        let mut slow = Vec::new();
        let mut numbers = Vec::new();
        for (number, attempts) in (1..).zip(&side.processes) {
            let counted = |run: &&&Run| run.validity.status != Status::Invalid;
            let valid: Vec<&Run> = attempts.iter().filter(counted).copied().collect();
            invalid += attempts.len() - valid.len();
            let steady: Vec<&Run> = valid
                .iter()
                .copied()
                .filter(|run| run.steady.class != SteadyClass::Warming)
                .collect();
            let used = if steady.is_empty() {
                valid
            } else {
                warming += valid.len() - steady.len();
                steady
            };
            let values: Vec<f64> = used.iter().filter_map(|run| figure(run, metric)).collect();
            unmeasured += used.len() - values.len();
            if metric == Metric::Throughput {
                let rates: Vec<f64> = attempts.iter().filter_map(|r| r.throughput_per_s).collect();
                slow.extend(slow_first(&rates));
            }
            if !values.is_empty() {
                figures.attempts += values.len();
                figures.values.push(middle(&values));
                numbers.push(number);
            }
        }
        let name = &side.name;
        let attempts = |n: usize| plural(n as u64, "attempt", "attempts");
        let mut note = |text: String| figures.notes.push(format!("{name}: {text}"));
        if invalid > 0 {
            note(format!("{} left out as invalid", attempts(invalid)));
        }
        if warming > 0 {
            note(format!(
                "{} left out as still warming up",
                attempts(warming)
            ));
        }
        if unmeasured > 0 {
            note(format!(
                "{} without this figure left out",
                attempts(unmeasured)
            ));
        }
        if !slow.is_empty() {
            note(format!(
                "in {} of {} the first attempt was the slowest, {:.0} % below the others: the server was warming up; \
                 load it before with a warm-up",
                slow.len(),
                plural(side.processes.len() as u64, "process", "processes"),
                median(&slow) * 100.0
            ));
        }
        for text in figures.unusable(metric, side) {
            figures.notes.push(format!("{name}: {text}"));
        }
        for text in far_off(&figures.values, &numbers, metric) {
            figures.notes.push(format!("{name}: {text}"));
        }
        figures
    }

    /// The figures, where each is a number that can be divided by.
    pub fn usable(&self) -> Option<&[f64]> {
        let known = |v: &f64| v.is_finite() && *v > 0.0;
        (!self.values.is_empty() && self.values.iter().all(known)).then_some(&self.values[..])
    }

    /// Why they cannot be compared.
    fn unusable(&self, metric: Metric, side: &Side<'_>) -> Vec<String> {
        let all = plural(self.values.len() as u64, "process", "processes");
        let mut why = Vec::new();
        if self.values.is_empty() {
            why.push("no process has this figure".to_owned());
        }
        let above = self.values.iter().filter(|v| v.is_infinite()).count();
        if above > 0 {
            let timeout_s = side
                .runs()
                .map(|run| run.plan.timeout_s)
                .fold(0.0, f64::max);
            why.push(format!(
                "in {above} of {all} the {metric} lies among requests that timed out ({}): it is not known; \
                 measure again with a longer --timeout or less load",
                show_ns(timeout_s * 1e9)
            ));
        }
        let none = self.values.iter().filter(|v| **v <= 0.0).count();
        if none > 0 {
            why.push(format!(
                "in {none} of {all} the {metric} is 0: there is no ratio"
            ));
        }
        why
    }
}

/// The middle one; of an even number the geometric mean of the two in the middle, so that ratios turn over with the sides.
fn middle(values: &[f64]) -> f64 {
    let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
    median(&logs).exp()
}

/// A run's figure, in the metric's unit; infinite where it is only known to be above the timeout.
fn figure(run: &Run, metric: Metric) -> Option<f64> {
    let time = |times: &Times, of: fn(&Times) -> Option<f64>| {
        of(times).or((times.censored > 0).then_some(f64::INFINITY))
    };
    match metric {
        Metric::Throughput => run.throughput_per_s,
        Metric::Goodput => run.goodput_per_s,
        Metric::P50 => time(&run.response_time_us, |t| t.p50),
        Metric::P99 => time(&run.response_time_us, |t| t.p99),
        Metric::ServiceP50 => time(&run.service_time_us, |t| t.p50),
        Metric::ServiceP99 => time(&run.service_time_us, |t| t.p99),
        Metric::CpuPerRequest => run.client.cpu_us_per_request,
        Metric::ServerCpuPerRequest => {
            let server = run.server.as_ref()?.cpu_us_per_request?;
            match &run.store {
                None => Some(server),
                Some(store) => Some(server + store.cpu_us_per_request?),
            }
        }
    }
}

/// Processes that are far from the others; they count all the same.
fn far_off(values: &[f64], numbers: &[u32], metric: Metric) -> Vec<String> {
    if values.iter().any(|v| !v.is_finite()) {
        return Vec::new();
    }
    let show = |value: f64| match metric {
        Metric::Throughput | Metric::Goodput => format!("{}/s", show_rate(value)),
        _ => show_ns(value * 1e3),
    };
    outliers(values)
        .into_iter()
        .map(|(i, _)| {
            format!(
                "process {} is far from the others ({} against a median of {}, more than {OUTLIER_Z} times their median \
                 distance from it, hyperfine's bound): it counts and widens the interval; look for what else happened in it",
                numbers[i],
                show(values[i]),
                show(median(values))
            )
        })
        .collect()
}
