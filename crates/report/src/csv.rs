//! A record's series as CSV (RFC 4180, with LF line endings).

use std::borrow::Cow;

use floodmark_record::Record;
use floodmark_record::run::{Run, SeriesRow};

use crate::model::figures::setting_pairs;

const RUN_COLUMNS: &str = "system,workload,setting,process,attempt,started_unix_ms";

/// A function that returns the value for one second, or `None` if the value was not measured.
type SeriesValue = fn(&SeriesRow) -> Option<f64>;

/// Columns with values for one second. The name includes the unit if there is one.
const COLUMNS: [(&str, SeriesValue); 17] = [
    ("from_s", |row| Some(row.from_s)),
    ("to_s", |row| Some(row.to_s)),
    ("throughput_per_s", |row| Some(row.throughput_per_s)),
    ("goodput_per_s", |row| Some(row.goodput_per_s)),
    ("failed", |row| Some(row.failed as f64)),
    ("response_p50_us", |row| row.p50_us),
    ("response_p90_us", |row| row.p90_us),
    ("response_p99_us", |row| row.p99_us),
    ("response_p99_9_us", |row| row.p99_9_us),
    ("response_max_us", |row| row.max_us),
    ("client_user_cpus", |row| Some(row.client_user_cpus)),
    ("client_system_cpus", |row| Some(row.client_system_cpus)),
    ("server_user_cpus", |row| row.server_user_cpus),
    ("server_system_cpus", |row| row.server_system_cpus),
    ("store_user_cpus", |row| row.store_user_cpus),
    ("store_system_cpus", |row| row.store_system_cpus),
    ("open_connections", |row| Some(row.open_connections as f64)),
];

/// Returns a header line, followed by the lines for each second of each run: one line for all
/// requests, and one line per group of a mix. The last column names the group and is empty in a
/// line for all requests. Unmeasured values are empty.
#[must_use]
pub fn of_record(record: &Record) -> String {
    let columns = COLUMNS.map(|(name, _)| name).join(",");
    let mut out = format!("{RUN_COLUMNS},{columns},group\n");
    for run in &record.runs {
        let names = names(run);
        let mut line = |values: Vec<String>, group: &str| {
            out.push_str(&format!("{names},{},{}\n", values.join(","), quoted(group)));
        };
        for row in &run.series {
            line(COLUMNS.map(|(_, value)| number(value(row))).into(), "");
            for (group, point) in run.groups.iter().zip(&row.groups) {
                let (rate, goodput) = (point.throughput_per_s, point.goodput_per_s);
                let measured = [row.from_s, row.to_s, rate, goodput, point.failed as f64];
                let mut values = vec![String::new(); COLUMNS.len()];
                values[..5].clone_from_slice(&measured.map(|value| number(Some(value))));
                line(values, &group.name);
            }
        }
    }
    out
}

fn names(run: &Run) -> String {
    let setting = setting_pairs(&run.setting);
    let [system, workload, setting] =
        [&run.system, &run.workload, &setting].map(|text| quoted(text));
    let (process, attempt, started) = (run.process, run.attempt, run.started_unix_ms);
    format!("{system},{workload},{setting},{process},{attempt},{started}")
}

/// Formats a number, or returns an empty string if the number was not measured.
pub(crate) fn number(value: Option<f64>) -> String {
    let value = value.filter(|v| v.is_finite());
    value.map_or_else(String::new, |v| v.to_string())
}

/// Escapes a text field. Names come from URLs and may contain control characters.
pub(crate) fn quoted(text: &str) -> Cow<'_, str> {
    let text = crate::plain::line(text);
    if text.contains([',', '"']) {
        format!("\"{}\"", text.replace('"', "\"\"")).into()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn each_line_has_as_many_fields_as_the_header() {
        let record = fixture::record(vec![fixture::closed(), fixture::closed()]);
        let text = of_record(&record);
        let mut lines = text.lines();
        let columns = lines.next().unwrap().split(',').count();
        assert_eq!(lines.clone().count(), 20);
        for line in lines {
            assert_eq!(line.split(',').count(), columns, "{line}");
        }
    }

    #[test]
    fn each_group_has_a_line() {
        let text = of_record(&fixture::record(vec![fixture::mixed()]));
        let lines: Vec<&str> = text.lines().collect();
        let columns = lines[0].split(',').count();
        assert!(lines.iter().all(|line| line.split(',').count() == columns));
        assert_eq!(lines.len(), 1 + 10 * 4);
        assert!(lines[1].ends_with(",50,") && lines[2].ends_with(",search"));
        assert!(lines[2].contains(",0,1,140000,139000,3,,,"), "{}", lines[2]);
    }

    #[test]
    fn missing_values_are_empty() {
        let mut run = fixture::closed();
        run.series.truncate(1);
        run.series[0].p50_us = None;
        run.series[0].p99_us = Some(1234.5);
        run.series[0].p90_us = Some(f64::NAN);
        let text = of_record(&fixture::record(vec![run]));
        let line = text.lines().nth(1).unwrap();
        assert_eq!(
            line,
            "127.0.0.1:8080,/,,1,1,1700000000000,0,1,184210,184210,0,,,1234.5,1520,2300,0.3,0.51,0.4,0.75,,,50,"
        );
    }

    #[test]
    fn store_columns_follow_the_server() {
        let text = of_record(&fixture::record(vec![fixture::with_store()]));
        let mut lines = text.lines();
        let mut fields = || lines.next().unwrap().split(',').map(str::to_owned);
        let (heads, values): (Vec<_>, Vec<_>) = (fields().collect(), fields().collect());
        let of = |name: &str| &values[heads.iter().position(|head| head == name).unwrap()];
        assert_eq!(
            (
                of("server_user_cpus").as_str(),
                of("store_user_cpus").as_str()
            ),
            ("0.4", "0.2")
        );
        assert_eq!(of("store_system_cpus"), "0.08");
    }

    #[test]
    fn quotes_and_escapes_names_from_urls() {
        let mut run = fixture::closed();
        run.series.truncate(1);
        run.workload = "/a,b?\"c\"\u{1b}[31m".to_owned();
        let text = of_record(&fixture::record(vec![run]));
        assert!(text.contains(",\"/a,b?\"\"c\"\"\\u{1b}[31m\","), "{text}");
    }
}
