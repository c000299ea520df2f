//! The per-second series of a record as CSV (RFC 4180, but lines end in LF as Unix tools expect).

use std::borrow::Cow;

use floodmark_record::groups::GroupPoint;
use floodmark_record::result::Record;
use floodmark_record::run::{Run, SeriesRow};

/// Columns of the run, then of the second, then the group that the line is of: empty where it is of all requests. Units are in the names, an empty field was not measured.
const HEADER: &str = "system,workload,setting,process,attempt,started_unix_ms,\
from_s,to_s,throughput_per_s,goodput_per_s,failed,\
response_p50_us,response_p90_us,response_p99_us,response_p99_9_us,response_max_us,\
client_user_cpus,client_system_cpus,server_user_cpus,server_system_cpus,store_user_cpus,store_system_cpus,open_connections,group";

/// Columns of the second.
const COLUMNS: usize = 17;

/// One line for each second of each run, below a header, each followed by one for each group of a mix.
#[must_use]
pub fn of_record(record: &Record) -> String {
    let mut out = String::from(HEADER);
    out.push('\n');
    for run in &record.runs {
        let id = identification(run);
        for row in &run.series {
            line(&mut out, &id, &values(row), "");
            for (group, point) in run.groups.iter().zip(&row.groups) {
                line(&mut out, &id, &group_values(row, point), &group.name);
            }
        }
    }
    out
}

fn line(out: &mut String, id: &str, values: &[String], group: &str) {
    out.push_str(id);
    for value in values {
        out.push(',');
        out.push_str(value);
    }
    out.push(',');
    out.push_str(&quoted(group));
    out.push('\n');
}

fn identification(run: &Run) -> String {
    let setting: Vec<String> = run
        .setting
        .iter()
        .map(|(knob, value)| format!("{knob}={value}"))
        .collect();
    [
        quoted(&run.system),
        quoted(&run.workload),
        quoted(&setting.join(";")),
        run.process.to_string().into(),
        run.attempt.to_string().into(),
        run.started_unix_ms.to_string().into(),
    ]
    .join(",")
}

fn values(row: &SeriesRow) -> [String; COLUMNS] {
    [
        number(Some(row.from_s)),
        number(Some(row.to_s)),
        number(Some(row.throughput_per_s)),
        number(Some(row.goodput_per_s)),
        row.failed.to_string(),
        number(row.p50_us),
        number(row.p90_us),
        number(row.p99_us),
        number(row.p99_9_us),
        number(row.max_us),
        number(Some(row.client_user_cpus)),
        number(Some(row.client_system_cpus)),
        number(row.server_user_cpus),
        number(row.server_system_cpus),
        number(row.store_user_cpus),
        number(row.store_system_cpus),
        row.open_connections.to_string(),
    ]
}

/// The columns that a group has second by second.
fn group_values(row: &SeriesRow, group: &GroupPoint) -> [String; COLUMNS] {
    let mut values = <[String; COLUMNS]>::default();
    values[..5].clone_from_slice(&[
        number(Some(row.from_s)),
        number(Some(row.to_s)),
        number(Some(group.throughput_per_s)),
        number(Some(group.goodput_per_s)),
        group.failed.to_string(),
    ]);
    values
}

/// Empty for what was not measured, or is no number.
fn number(value: Option<f64>) -> String {
    value
        .filter(|v| v.is_finite())
        .map_or_else(String::new, |v| v.to_string())
}

/// A text field; names come from URLs, so they are made harmless for a terminal first.
fn quoted(text: &str) -> Cow<'_, str> {
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
    fn every_line_has_as_many_fields_as_the_header() {
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
    fn groups_have_lines_of_their_own() {
        let text = of_record(&fixture::record(vec![fixture::mixed()]));
        let lines: Vec<&str> = text.lines().collect();
        let columns = lines[0].split(',').count();
        assert!(lines.iter().all(|line| line.split(',').count() == columns));
        assert_eq!(lines.len(), 1 + 10 * 4);
        assert!(lines[1].ends_with(",50,") && lines[2].ends_with(",search"));
        assert!(lines[2].contains(",0,1,140000,139000,3,,,"), "{}", lines[2]);
    }

    #[test]
    fn what_was_not_measured_is_empty() {
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
    fn the_store_is_beside_the_server() {
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
    fn names_from_urls_are_quoted_and_harmless() {
        let mut run = fixture::closed();
        run.series.truncate(1);
        run.workload = "/a,b?\"c\"\u{1b}[31m".to_owned();
        let text = of_record(&fixture::record(vec![run]));
        assert!(text.contains(",\"/a,b?\"\"c\"\"\\u{1b}[31m\","), "{text}");
    }
}
