//! Tests of `floodmark trend`.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use floodmark_record::comparison::{ComparedMetric, TrendReport};
use floodmark_truth::scenario::Service;
use floodmark_truth::{Scenario, TruthServer};

use crate::compare::all_valid;
use crate::support::{code, run, succeeds, text};

/// Starts a server that takes `delay_us` for each request, and measures it once per name. Returns
/// the server's address.
fn measure(directory: &Path, at: SocketAddr, delay_us: u64, names: &[&str]) -> SocketAddr {
    let scenario = Scenario::from(Service::Fixed { delay_us });
    let server = TruthServer::start_at(at, scenario).unwrap();
    let url = format!("http://{}/", server.address());
    for name in names {
        let out = directory.join(name);
        let arguments = [
            "-c",
            "2",
            "-n",
            "60",
            "--quiet",
            "--out",
            out.to_str().unwrap(),
        ];
        succeeds(&run(&[&["load", &url][..], &arguments].concat()));
    }
    let address = server.address();
    server.stop().unwrap();
    address
}

/// Any free port.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Returns four fast results, followed by four slow ones. Their names are not in this order.
fn results() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    // Reuse the address: results from a different address would form a separate series.
    let address = measure(directory.path(), ANY, 5_000, &["w", "v", "u", "t"]);
    measure(directory.path(), address, 10_000, &["d", "c", "b", "a"]);
    all_valid(directory.path());
    directory
}

#[test]
fn finds_the_first_slow_result() {
    let directory = results();
    fs::create_dir(directory.path().join("damaged")).unwrap();
    fs::write(directory.path().join("damaged/record.json"), "{").unwrap();
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (json, page) = (at("trend.json"), at("trend.html"));
    let results = directory.path().to_str().unwrap();
    let arguments = [
        "--json",
        &json,
        "--html",
        &page,
        "--metric",
        "throughput",
        "--metric",
        "p50",
    ];
    let output = run(&[&["trend", results][..], &arguments].concat());
    succeeds(&output);
    let report: TrendReport = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    let [series] = &report.series[..] else {
        panic!("{report:?}")
    };
    let names: String = series
        .results
        .iter()
        .map(|result| result.name.as_str())
        .collect();
    assert_eq!(names, "wvutdcba");
    for (metric, factor) in [
        (ComparedMetric::Throughput, 0.5),
        (ComparedMetric::P50, 2.0),
    ] {
        let mut trends = series.trends.iter();
        let trend = trends.find(|trend| trend.metric == metric).unwrap();
        let [_, slow] = &trend.levels[..] else {
            panic!("{trend:?}")
        };
        assert_eq!(slow.first, 4, "{trend:?}");
        let change = slow.change.unwrap().ratio / factor;
        // The tolerance is wide because the truth server adds at most 0.5 ms to each response, and
        // parallel tests slow down client and server.
        assert!((0.6..1.6).contains(&change), "{metric}: {change}");
    }
    let printed = text(&output.stdout);
    assert!(printed.contains("worse since d: "), "{printed}");
    assert!(
        printed.contains("not shown: ") && printed.contains("damaged"),
        "{printed}"
    );
    assert!(
        fs::read_to_string(page)
            .unwrap()
            .contains("worse since d: ")
    );

    let table = [
        "--format",
        "csv",
        "--table",
        "trend_changes",
        "--metric",
        "p50",
    ];
    let output = run(&[&["trend", results][..], &table].concat());
    succeeds(&output);
    let csv = text(&output.stdout);
    let rows: Vec<&str> = csv.lines().skip(1).collect();
    assert!(rows.len() == 1 && rows[0].starts_with("d,"), "{csv}");
}

#[test]
fn names_what_cannot_be_shown() {
    let directory = tempfile::tempdir().unwrap();
    let empty = directory.path().to_str().unwrap().to_owned();
    measure(directory.path(), ANY, 1_000, &["only"]);
    let only = directory.path().join("only");
    let only = only.to_str().unwrap();
    for (arguments, words) in [
        (vec!["trend"], "<RESULT>"),
        (vec!["trend", "absent"], "absent: "),
        (
            vec!["trend", only, "--metric", "speed"],
            "unknown metric \"speed\"",
        ),
        (
            vec!["trend", only, "--metric", "capacity"],
            "no result has a figure for \"capacity\"",
        ),
        (
            vec!["trend", only, "--json", &format!("{only}/record.json")],
            "read from this file",
        ),
    ] {
        let output = run(&arguments);
        let printed = text(&output.stderr);
        assert_eq!(code(&output), 2, "{printed}");
        assert!(printed.contains(words), "no {words:?} in {printed}");
    }
    let output = run(&["trend", &empty]);
    succeeds(&output);
    let printed = text(&output.stdout);
    assert!(
        printed.contains("too few measured results to find a change"),
        "{printed}"
    );
}

#[test]
fn labels_are_shown_and_select_results() {
    let directory = tempfile::tempdir().unwrap();
    let server = TruthServer::start(Scenario::from(Service::Fixed { delay_us: 1_000 })).unwrap();
    let url = format!("http://{}/", server.address());
    let at = |name: &str| directory.path().join(name).display().to_string();
    for (name, branch) in [("a", "branch=main"), ("b", "branch=fix")] {
        let output = at(name);
        let arguments = ["-n", "20", "--quiet", "--out", &output, "--label", branch];
        succeeds(&run(&[&["load", &url], &arguments[..]].concat()));
    }
    let shows = |arguments: &[&str], words: &str, other: &str| {
        let output = run(arguments);
        let printed = text(&[&output.stdout[..], &output.stderr].concat());
        assert!(printed.contains(words), "no {words:?} in {printed}");
        assert!(!printed.contains(other), "{other:?} in {printed}");
    };
    let (all, a, b) = (directory.path().to_str().unwrap(), at("a"), at("b"));
    shows(&["report", &a], "branch=main", "branch=fix");
    shows(&["compare", &a, &b], "a (branch=main)", "not a label");
    shows(&["trend", all], "a (branch=main)", "not a label");
    let selected = ["trend", all, "--label", "branch=fix"];
    shows(&selected, "b (branch=fix)", "branch=main");
    let absent = ["trend", all, "--label", "branch=none"];
    shows(&absent, "no result has the label branch=none", "throughput");
    shows(&["load", &url, "--label", "main"], "write KEY=VALUE", "ok");
    server.stop().unwrap();
}
