//! Response times in HdrHistogram's percentile format (`.hgrm`), which many plotters read.

use std::fmt::Write;

use base64::{Engine, engine::general_purpose::STANDARD};
use floodmark_record::result::Record;
use floodmark_record::run::Run;
use floodmark_record::units::plural;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

use crate::model::chart::DamagedHistogram;
use crate::model::figures::seconds;
use crate::plain;

/// Number of lines per halving of the distance to 100 %, as in HdrHistogram's tools.
const TICKS_PER_HALF_DISTANCE: u32 = 5;

/// Returns the response-time distribution of each run, in milliseconds. Comment lines (`#`) name
/// the runs.
///
/// # Errors
/// Fails if a histogram in the record is damaged.
pub fn of_record(record: &Record) -> Result<String, DamagedHistogram> {
    let parts: Result<Vec<String>, DamagedHistogram> = record.runs.iter().map(of_run).collect();
    Ok(parts?.join("\n"))
}

/// Returns the response-time distribution of one run. Censored requests are counted at a lower
/// bound of their response time: the timeout, or their age at the end of the run. A comment line
/// gives the number of these requests.
///
/// # Errors
/// Fails if the run's histogram is damaged.
pub fn of_run(run: &Run) -> Result<String, DamagedHistogram> {
    let times = &run.response_time_us;
    let (system, workload) = (plain::line(&run.system), plain::line(&run.workload));
    let mut out = format!(
        "# response time in milliseconds: {system} {workload}, process {}, attempt {}\n",
        run.process, run.attempt
    );
    if let Some(above_us) = times.censored_above(run.plan.timeout) {
        let requests = plural(times.censored, "request");
        let above = seconds(above_us / 1e6);
        let _ = writeln!(
            out,
            "# {requests} got no response: recorded with a lower bound of the response time (at least {above})"
        );
    }
    match &times.histogram {
        None => out.push_str("# not measured\n"),
        Some(text) => {
            let histogram = decode(text).map_err(|reason| DamagedHistogram {
                name: format!("attempt {} of {system}", run.attempt),
                reason,
            })?;
            distribution(&mut out, &histogram);
        }
    }
    Ok(out)
}

/// Decodes a histogram. The returned type supports cumulative counts, unlike
/// [`floodmark_stats::Histogram`].
fn decode(text: &str) -> Result<Histogram<u64>, String> {
    let bytes = STANDARD.decode(text).map_err(|e| e.to_string())?;
    Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|e| e.to_string())
}

/// Writes a histogram in the layout of HdrHistogram's `outputPercentileDistribution` (Java and C).
/// Values have six decimals instead of three, to preserve nanoseconds.
fn distribution(out: &mut String, histogram: &Histogram<u64>) {
    let ms = |ns: f64| ns / 1e6;
    let _ = writeln!(
        out,
        "{:>12} {:>14} {:>10} {:>14}\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    let mut total = 0;
    for step in histogram.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        total += step.count_since_last_iteration();
        let value = ms(step.value_iterated_to() as f64);
        let quantile = step.quantile_iterated_to();
        let _ = write!(out, "{value:>12.6} {quantile:>14.12} {total:>10}");
        // The quotient is infinite at 100 %, so the last line has no fourth column.
        if quantile < 1.0 {
            let _ = write!(out, " {:>14.2}", 1.0 / (1.0 - quantile));
        }
        out.push('\n');
    }
    let _ = writeln!(
        out,
        "#[Mean    = {:>12.6}, StdDeviation   = {:>12.6}]\n\
         #[Max     = {:>12.6}, Total count    = {:>12}]\n\
         #[Buckets = {:>12}, SubBuckets     = {:>12}]",
        ms(histogram.mean()),
        ms(histogram.stdev()),
        ms(histogram.max() as f64),
        histogram.len(),
        histogram.buckets(),
        (2 * 10u64.pow(histogram.sigfig().into())).next_power_of_two()
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn writes_the_columns_that_plotters_expect() {
        let text = of_run(&fixture::closed()).unwrap();
        let rows: Vec<Vec<f64>> = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.contains("Value"))
            .map(|line| {
                line.split_whitespace()
                    .map(|n| n.parse().unwrap())
                    .collect()
            })
            .filter(|row: &Vec<f64>| !row.is_empty())
            .collect();
        assert!(rows.len() > 10);
        assert!(
            rows.windows(2)
                .all(|w| w[0][0] <= w[1][0] && w[0][2] <= w[1][2])
        );
        let last = rows.last().unwrap();
        assert_eq!((last.len(), last[1], last[2]), (3, 1.0, 1000.0));
        // The times are 1 to 1000 µs, so the median is half a millisecond.
        let median = rows.iter().find(|row| row[1] >= 0.5).unwrap();
        assert!((median[0] - 0.5).abs() < 0.001, "{median:?}");
    }

    #[test]
    fn layout() {
        let mut run = fixture::closed();
        run.response_time_us = fixture::times(&[1_000_000, 2_000_000, 3_000_000, 4_000_000], 1);
        insta::assert_snapshot!(of_run(&run).unwrap());
    }

    #[test]
    fn reports_missing_and_damaged_histograms() {
        let mut run = fixture::closed();
        run.response_time_us = fixture::times(&[], 0);
        assert!(of_run(&run).unwrap().contains("# not measured"));
        run.response_time_us.histogram = Some("AAAA".to_owned());
        let error = of_record(&fixture::record(vec![run])).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("attempt 1 of 127.0.0.1:8080:")
        );
    }
}
