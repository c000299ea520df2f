//! Property test: flags and manifests with the same settings yield the same plan.

use std::fs;

use clap::Parser;
use floodmark_lab::manifest::Experiment;
use floodmark_plan::{PlanSpec, plan, target};
use floodmark_record::Plan;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::select;

use crate::load::args::LoadArgs;

const URL: &str = "http://127.0.0.1:8080/";

#[derive(Parser)]
#[command(no_binary_name = true)]
struct LoadCommand {
    #[command(flatten)]
    load: LoadArgs,
}

/// Load settings as key-value pairs.
type Settings = Vec<(&'static str, String)>;

fn count(key: &'static str, max: u64) -> impl Strategy<Value = Settings> {
    let plain = (1..max).prop_map(|n| n.to_string());
    let thousands = (1..=max / 1000).prop_map(|n| format!("{n}k"));
    let text = if max >= 1000 {
        prop_oneof![plain, thousands].boxed()
    } else {
        plain.boxed()
    };
    text.prop_map(move |text| vec![(key, text)])
}

fn duration(key: &'static str) -> impl Strategy<Value = Settings> {
    (1..90_000u32, select(vec!["us", "ms", "s"]))
        .prop_map(move |(n, unit)| vec![(key, format!("{n}{unit}"))])
}

fn word(key: &'static str, words: &[&'static str]) -> impl Strategy<Value = Settings> {
    select(words.to_vec()).prop_map(move |word| vec![(key, word.to_owned())])
}

fn optional(part: impl Strategy<Value = Settings>) -> impl Strategy<Value = Settings> {
    of(part).prop_map(Option::unwrap_or_default)
}

fn joined(
    a: impl Strategy<Value = Settings>,
    b: impl Strategy<Value = Settings>,
) -> impl Strategy<Value = Settings> {
    (a, b).prop_map(|(a, b)| [a, b].concat())
}

/// Generates load settings, including invalid combinations.
fn settings() -> impl Strategy<Value = Settings> {
    let rate = || {
        let text = (1..4_000_000u32).prop_map(|n| format!("{}.{:03}", n / 1000 + 1, n % 1000));
        text.prop_map(|text| vec![("rate", text)])
    };
    let length = || prop_oneof![duration("duration"), count("requests", 1_000_000)];
    let closed = joined(optional(length()), optional(count("connections", 2000)));
    let open = joined(
        joined(rate(), optional(word("arrivals", &["constant", "poisson"]))),
        joined(optional(length()), optional(count("connections", 2000))),
    );
    let burst = joined(count("burst", 1_000_000), duration("within"));
    let any = prop_oneof![
        optional(length()),
        optional(rate()),
        optional(duration("within")),
        word("arrivals", &["poisson"]),
    ];
    let schedule =
        prop_oneof![4 => closed, 4 => open, 2 => burst, 1 => joined(closed_again(), any)];
    let fresh = joined(
        word("fresh", &["true"]),
        optional(word("close-first", &["server", "client", "reset"])),
    );
    let some = joined(
        count("requests-per-connection", 100_000),
        optional(word("close-first", &["server", "client", "reset"])),
    );
    let kept = word("fresh", &["false"]);
    let connections = prop_oneof![Just(Vec::new()), kept, fresh, some];
    let settings_of_http2 = joined(
        optional(count("streams", 1000)),
        joined(
            optional(word("h2-window", &["65535", "64KiB", "64MiB", "1KiB"])),
            optional(word("h2-table", &["0", "4096", "64KiB"])),
        ),
    );
    let http = prop_oneof![
        6 => Just(Vec::new()),
        2 => word("http", &["1.1"]).boxed(),
        2 => joined(word("http", &["2", "auto"]), settings_of_http2.boxed()),
        1 => word("streams", &["2"]),
    ];
    let times = joined(
        joined(
            optional(duration("timeout")),
            optional(duration("deadline")),
        ),
        optional(prop_oneof![
            word("warmup", &["auto", "0s"]).boxed(),
            duration("warmup").boxed()
        ]),
    );
    let rest = joined(
        joined(optional(count("threads", 64)), optional(count("seed", 999))),
        joined(
            optional(word("sources", &["127.0.0.2-127.0.0.9", "127.0.0.3"])),
            optional(word("check", &["sequence"])),
        ),
    );
    joined(
        joined(schedule, joined(connections, http)),
        joined(times, rest),
    )
}

fn closed_again() -> impl Strategy<Value = Settings> {
    joined(duration("duration"), optional(count("burst", 1000)))
}

fn planned(spec: &PlanSpec) -> Result<Plan, String> {
    let resolved = target::resolve(URL, spec).map_err(|error| error.to_string())?;
    Ok(plan(spec, resolved, Some(4096))?.plan)
}

fn plan_of_flags(settings: &Settings) -> Result<Plan, String> {
    let flags = settings
        .iter()
        .filter_map(|(key, text)| match text.as_str() {
            "true" => Some(format!("--{key}")),
            "false" => None,
            text => Some(format!("--{key}={text}")),
        });
    let all = std::iter::once(URL.to_owned()).chain(flags);
    let command = LoadCommand::try_parse_from(all).map_err(|error| error.to_string())?;
    planned(&command.load.spec()).map_err(|error| error.to_string())
}

fn plan_of_manifest(settings: &Settings) -> Result<Plan, String> {
    let load: String = settings
        .iter()
        .map(|(key, text)| match (*key, text.as_str()) {
            ("fresh", text) => format!("{key} = {text}\n"),
            (_, text) if text.bytes().all(|b| b.is_ascii_digit()) => format!("{key} = {text}\n"),
            (_, text) => format!("{key} = \"{text}\"\n"),
        })
        .collect();
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let path = directory.path().join("e.toml");
    let text =
        format!("question = \"?\"\n[load]\n{load}[[trial]]\ncommand = \"server {{port}}\"\n");
    fs::write(&path, text).map_err(|error| error.to_string())?;
    let experiment = Experiment::read(&path).map_err(|error| error.to_string())?;
    planned(&experiment.trials[0].spec(None)).map_err(|error| error.to_string())
}

proptest! {
    #[test]
    fn flags_and_manifest_yield_the_same_plan(settings in settings()) {
        let mut keys: Vec<&str> = settings.iter().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys.dedup();
        // Neither flags nor keys may be repeated.
        prop_assume!(keys.len() == settings.len());
        match (plan_of_flags(&settings), plan_of_manifest(&settings)) {
            (Ok(by_flags), Ok(by_manifest)) => prop_assert_eq!(by_flags, by_manifest),
            (Err(_), Err(_)) => {}
            (by_flags, by_manifest) => prop_assert!(
                false,
                "{settings:?}: flags {by_flags:?}, manifest {by_manifest:?}"
            ),
        }
    }
}

#[test]
fn most_random_settings_are_valid() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let valid = (0..100).filter(|_| {
        let tree = settings().new_tree(&mut runner).unwrap();
        plan_of_flags(&tree.current()).is_ok()
    });
    assert!(valid.count() >= 50);
}
