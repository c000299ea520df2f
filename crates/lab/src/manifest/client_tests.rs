//! Tests client manifests, and the parsing of figures in client output.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use floodmark_record::client::PrintedFigures;

use super::*;

fn clients() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients")
}

/// Reads the figures from a file that contains the output of a shipped client.
fn read(name: &str, file: &str) -> Result<PrintedFigures, String> {
    let directory = clients().join(name).canonicalize().unwrap();
    let client = Client::read(&directory).unwrap_or_else(|error| panic!("{error}"));
    client
        .manifest
        .figures
        .read(&fs::read_to_string(directory.join(file)).unwrap())
}

/// Builds figures from a throughput, counts (responses, unexpected, errors) and times in µs.
fn said(per_s: Option<f64>, counts: [Option<u64>; 3], times: [Option<f64>; 6]) -> PrintedFigures {
    let [answers, wrong, errors] = counts;
    let [mean_us, p50_us, p90_us, p95_us, p99_us, max_us] = times;
    PrintedFigures {
        throughput_per_s: per_s,
        answers,
        wrong,
        errors,
        mean_us,
        p50_us,
        p90_us,
        p95_us,
        p99_us,
        max_us,
    }
}

fn close(a: &PrintedFigures, b: &PrintedFigures) -> bool {
    let pairs = |s: &PrintedFigures| {
        [
            s.throughput_per_s,
            s.mean_us,
            s.p50_us,
            s.p90_us,
            s.p95_us,
            s.p99_us,
            s.max_us,
        ]
    };
    let alike = |(a, b): (&Option<f64>, &Option<f64>)| match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() < 1e-6 * b.abs().max(1.0),
        (a, b) => a == b,
    };
    let counts = |s: &PrintedFigures| (s.answers, s.wrong, s.errors);
    pairs(a).iter().zip(&pairs(b)).all(alike) && counts(a) == counts(b)
}

#[test]
fn reads_printed_figures() {
    let none = [None; 6];
    let table = [
        (
            "wrk",
            "printed.txt",
            said(
                Some(36_624.9),
                [Some(73_746), Some(0), Some(0)],
                [
                    Some(1_340.0),
                    Some(695.0),
                    Some(3_460.0),
                    None,
                    Some(6_030.0),
                    Some(11_920.0),
                ],
            ),
        ),
        (
            "wrk",
            "printed-wrong.txt",
            said(
                Some(35_800.27),
                [Some(35_910), Some(35_910), Some(0)],
                [
                    Some(1_420.0),
                    Some(758.0),
                    Some(3_580.0),
                    None,
                    Some(6_100.0),
                    Some(10_590.0),
                ],
            ),
        ),
        (
            "ab",
            "printed.txt",
            said(
                Some(36_900.2),
                [Some(73_821), Some(0), Some(0)],
                [
                    Some(1_355.0),
                    Some(1e3),
                    Some(3e3),
                    Some(4e3),
                    Some(6e3),
                    Some(7e3),
                ],
            ),
        ),
        (
            "ab",
            "printed-wrong.txt",
            said(
                Some(34_162.34),
                [Some(1_000), Some(1_000), Some(0)],
                [
                    Some(1_464.0),
                    Some(1e3),
                    Some(2e3),
                    Some(3e3),
                    Some(4e3),
                    Some(7e3),
                ],
            ),
        ),
        (
            "hey",
            "printed.txt",
            said(
                Some(19_167.150_8),
                [Some(38_348), Some(0), Some(0)],
                [
                    Some(2_600.0),
                    Some(2_100.0),
                    Some(4_700.0),
                    Some(5_800.0),
                    Some(13_400.0),
                    Some(33_700.0),
                ],
            ),
        ),
        (
            "hey",
            "printed-wrong.txt",
            said(
                Some(13_192.405_9),
                [Some(200), Some(200), Some(0)],
                [
                    Some(3_300.0),
                    Some(2_200.0),
                    Some(7_700.0),
                    Some(7_700.0),
                    Some(10_600.0),
                    Some(10_900.0),
                ],
            ),
        ),
        (
            "h2load",
            "printed.txt",
            said(
                Some(43_388.0),
                [Some(86_776), Some(0), Some(0)],
                [Some(1_150.0), None, None, None, None, Some(17_210.0)],
            ),
        ),
        (
            "h2load",
            "printed-wrong.txt",
            said(
                Some(42_394.44),
                [Some(1_000), Some(1_000), Some(0)],
                [Some(836.0), None, None, None, None, Some(2_110.0)],
            ),
        ),
        // The output contains the figures from seed B in weighttp's format; see client.toml.
        (
            "weighttp",
            "printed.txt",
            said(Some(43_436.0), [Some(100_000), Some(0), None], none),
        ),
        (
            "jmeter",
            "printed.txt",
            said(
                Some(618.0),
                [Some(6_369), Some(0), None],
                [Some(42_000.0), None, None, None, None, Some(578_000.0)],
            ),
        ),
        (
            "jmeter",
            "printed-wrong.txt",
            said(
                Some(417.5),
                [Some(1_368), Some(1_368), None],
                [Some(49_000.0), None, None, None, None, Some(440_000.0)],
            ),
        ),
        (
            "curl-loop",
            "printed.txt",
            said(None, [Some(54), None, Some(0)], none),
        ),
    ];
    for (client, file, expected) in table {
        let read = read(client, file).unwrap_or_else(|what| panic!("{client} {file}: {what}"));
        assert!(close(&read, &expected), "{client} {file}: {read:?}");
    }
    assert_eq!(
        read("curl-loop", "printed-wrong.txt"),
        Err("reported no responses".to_owned())
    );
    assert_eq!(
        read("hey", "printed-errors.txt"),
        Err("reported no responses".to_owned())
    );
}

#[test]
fn counts_failures_of_each_kind() {
    let of = |name: &str, file: &str, from: &str, to: &str| {
        let directory = clients().join(name).canonicalize().unwrap();
        let text = fs::read_to_string(directory.join(file)).unwrap();
        assert!(text.contains(from), "{from}");
        let said = Client::read(&directory)
            .unwrap()
            .manifest
            .figures
            .read(&text.replace(from, to))
            .unwrap();
        (said.answers, said.wrong, said.errors)
    };
    let errors = "  Socket errors: connect 3, read 5, write 0, timeout 9\nRequests/sec:";
    assert_eq!(
        of("wrk", "printed.txt", "Requests/sec:", errors),
        (Some(73_746), Some(0), Some(8))
    );
    let mixed = "  [200]\t38000 responses\n  [302]\t300 responses\n  [503]\t48 responses\n\nError distribution:\n  [12]\tGet \"u\": reset";
    assert_eq!(
        of("hey", "printed.txt", "  [200]\t38348 responses", mixed),
        (Some(38_348), Some(48), Some(12))
    );
    assert_eq!(
        of(
            "h2load",
            "printed.txt",
            "0 errored, 0 timeout",
            "4 errored, 2 timeout"
        ),
        (Some(86_776), Some(0), Some(6))
    );
    assert_eq!(
        of(
            "weighttp",
            "printed.txt",
            "100000 2xx, 0 3xx, 0 4xx, 0 5xx",
            "70000 2xx, 5000 3xx, 20000 4xx, 5000 5xx"
        ),
        (Some(100_000), Some(25_000), None)
    );
}

const CLIENT: &str = r#"name = "tool"
needs = ["sh"]
version = "sh --version"
success = [0, 3]
[kept]
duration = "tool -c {connections} -t {threads} -d {seconds} {url}"
requests = "tool -n {requests} {url}"
[rate]
duration = "tool -r {rate-each} {host} {port} {path}"
[figures]
answers = { find = '^(\d+) answers' }
p50 = { find = 'p50 (\d+)(us|ms|y)', unit = "printed" }
"#;

fn client(text: &str) -> Result<Client, String> {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("tool");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("client.toml"), text).unwrap();
    Client::read(&directory).map_err(|error| {
        let file = error.place.rsplit('/').next().unwrap();
        format!("{file}: {}", error.what)
    })
}

#[test]
fn names_invalid_figures() {
    let figures = client(CLIENT).unwrap().manifest.figures;
    let read = figures.read("7 answers, p50 2ms").unwrap();
    assert_eq!((read.answers, read.p50_us), (Some(7), Some(2e3)));
    assert_eq!(read.throughput_per_s, None);
    let unit = figures.read("7 answers, p50 2y").unwrap_err();
    assert!(unit.contains("p50 in the unknown unit \"y\""), "{unit}");
    assert_eq!(figures.read("").unwrap_err(), "reported no responses");
    assert_eq!(
        figures.read("0 answers").unwrap_err(),
        "reported no responses"
    );
}

#[test]
fn names_the_line_of_an_invalid_key() {
    for (from, to, said) in [
        (
            "\"tool\"",
            "\"tol\"",
            "client.toml:1: name: \"tol\" must match the directory name",
        ),
        (
            "[\"sh\"]",
            "[\"rm -rf\"]",
            "client.toml:2: needs: \"rm -rf\" is not a valid requirement",
        ),
        (
            "success = [0, 3]",
            "success = [\"x\"]",
            "client.toml:4: success: expected exit codes",
        ),
        (
            "success = [0, 3]",
            "path = \"x\"",
            "client.toml:4: path: expected a path, like",
        ),
        (
            "[kept]",
            "[kpet]",
            "client.toml:5: unknown key \"kpet\"; did you mean \"kept\"?",
        ),
        (
            "{seconds}",
            "{second}",
            "client.toml:6: duration: unknown placeholder {second}; did you mean \"seconds\"?",
        ),
        (
            "requests = \"tool",
            "requests = \"'tool",
            "client.toml:7: requests: the command",
        ),
        (
            "answers =",
            "answer =",
            "client.toml:11: unknown key \"answer\" in [figures]; did you mean \"answers\"?",
        ),
        (
            "answers = { find = '^(\\d+) answers' }",
            "",
            "answers is missing in [figures]",
        ),
        (
            "^(\\d+)",
            "^(\\d+",
            "client.toml:11: answers: invalid regular expression: error: unclosed group",
        ),
        (
            "^(\\d+)",
            "^\\d+",
            "client.toml:11: answers: capture groups: expected 1, found 0",
        ),
        (
            "(us|ms|y)",
            "us",
            "client.toml:12: p50: capture groups: expected 2, found 1",
        ),
        (
            "\"printed\"",
            "\"min\"",
            "client.toml:12: unit: unknown value \"min\"",
        ),
    ] {
        assert!(CLIENT.contains(from), "{from}");
        let error = client(&CLIENT.replacen(from, to, 1)).unwrap_err();
        assert!(error.contains(said), "{from} → {to}: {error}");
    }
    let idle = "name = \"tool\"\n[figures]\nanswers = { find = '(x)' }\n";
    assert!(
        client(idle)
            .unwrap_err()
            .contains("the client has no commands")
    );
}

/// Reads a trial with a client and a load.
fn trial(load: &str, more: &str) -> Result<Trial, String> {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("clients/tool");
    fs::create_dir_all(&directory).unwrap();
    fs::write(
        directory.join("client.toml"),
        CLIENT.replace("success = [0, 3]", more),
    )
    .unwrap();
    let path = root.path().join("e.toml");
    let text = format!(
        "question = \"?\"\n[[trial]]\ncommand = \"x {{port}}\"\nworkload = \"hello\"\nclient = \"tool\"\nload = {{ {load} }}\n"
    );
    fs::write(&path, text).unwrap();
    let experiment = Experiment::read(&path).map_err(|error| {
        let file = error.place.rsplit('/').next().unwrap();
        format!("{file}: {}", error.what)
    })?;
    Ok(experiment.trials[0].clone())
}

#[test]
fn refuses_a_load_that_the_client_does_not_support() {
    let command = |load: &str| {
        let trial = trial(load, "").unwrap();
        let client = trial.client.clone().unwrap();
        (
            client.command(&trial.load).unwrap().join(" "),
            client.within(&trial.load),
        )
    };
    let (kept, within) = command("duration = \"2s\", warmup = \"auto\"");
    assert!(kept.contains("{seconds}"), "{kept}");
    assert_eq!(within, Duration::from_secs(32));
    assert!(command("requests = 10").0.contains("{requests}"));
    assert!(
        command("rate = 100, connections = 4")
            .0
            .contains("{rate-each}")
    );
    for (load, said) in [
        (
            "fresh = true",
            "client tool cannot send load on fresh connections for a duration; supported: at a fixed rate for a duration, on kept",
        ),
        ("rate = 100", "add connections"),
        (
            "rate = 100, connections = 4, fresh = true",
            "remove `rate` or `fresh`",
        ),
        (
            "rate = 100, connections = 4, requests = 7",
            "cannot send load at a fixed rate with a fixed number of requests",
        ),
        ("duration = \"1500ms\"", "in whole seconds, like \"2s\""),
        (
            "check = \"sequence\"",
            "client tool does not support `check`",
        ),
        ("warmup = \"2s\"", "client tool does not support `warmup`"),
    ] {
        let error = trial(load, "").unwrap_err();
        assert!(
            error.starts_with("e.toml:5: ") && error.contains(said),
            "{error}"
        );
    }
    let other = trial("connections = 2", "path = \"/scoring\"").unwrap_err();
    assert!(
        other.contains("requests /scoring, but hello requires /"),
        "{other}"
    );
}

#[test]
fn keeps_the_number_of_requests_of_a_client_without_durations() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("clients/tool");
    fs::create_dir_all(&directory).unwrap();
    let counting = CLIENT.replace(
        "duration = \"tool -c {connections} -t {threads} -d {seconds} {url}\"\n",
        "",
    );
    fs::write(directory.join("client.toml"), counting).unwrap();
    let path = root.path().join("e.toml");
    let text = "question = \"?\"\n[load]\nrequests = 10\n[[trial]]\ncommand = \"x {port}\"\nclient = \"tool\"\n[[trial]]\nname = \"own\"\ncommand = \"x {port}\"\n";
    fs::write(&path, text).unwrap();
    let changed = Experiment::read(&path).unwrap().changed(&Changes {
        duration: Some(Duration::from_secs(2)),
        ..Changes::default()
    });
    let trials = changed.unwrap().trials;
    assert_eq!(trials[0].name, "tool");
    assert_eq!(trials[0].load.requests, Some(10));
    assert_eq!(trials[1].load.duration, Some(Duration::from_secs(2)));
    assert_eq!(trials[1].load.requests, None);
}
