//! Tests that the JSON Schemas and the reader accept the same manifests.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use toml::de::{DeTable, DeValue};

use super::tests::{EXPERIMENT, SYSTEM};
use super::*;

/// Converts TOML to JSON.
fn json(value: &DeValue<'_>) -> Json {
    match value {
        DeValue::String(text) => Json::String(text.to_string()),
        DeValue::Boolean(truth) => Json::Bool(*truth),
        DeValue::Array(all) => all.iter().map(|one| json(one.get_ref())).collect(),
        DeValue::Table(table) => table_json(table),
        DeValue::Integer(number) => number.as_str().parse::<i64>().unwrap().into(),
        DeValue::Float(number) => number.as_str().parse::<f64>().unwrap().into(),
        DeValue::Datetime(_) => Json::Null,
    }
}

fn table_json(table: &DeTable<'_>) -> Json {
    table
        .iter()
        .map(|(key, value)| (key.get_ref().to_string(), json(value.get_ref())))
        .collect()
}

fn fits(schema: &Json, text: &str) -> bool {
    let document = DeTable::parse(text).unwrap();
    let validator = jsonschema::validator_for(schema).unwrap();
    validator.is_valid(&table_json(document.get_ref()))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn files(directory: &str, name: impl Fn(&Path) -> PathBuf) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(directory)).unwrap();
    let paths = entries.map(|entry| name(&entry.unwrap().path()));
    let found: Vec<PathBuf> = paths
        .filter(|path| path.is_file() && path.extension().is_some_and(|e| e == "toml"))
        .collect();
    assert!(found.len() >= 2, "{directory}: {found:?}");
    found
}

#[test]
fn shipped_manifests_are_valid() {
    for path in files("experiments", Path::to_owned) {
        let read = Experiment::read(&path);
        assert!(read.is_ok(), "{}", read.unwrap_err());
        let text = fs::read_to_string(&path).unwrap();
        assert!(fits(&experiment_schema(), &text), "{}", path.display());
    }
    let directories = ["systems", "cases/systems"];
    let manifest = |directory: &Path| directory.join("system.toml");
    for path in directories
        .map(|directory| files(directory, manifest))
        .concat()
    {
        let directory = path.canonicalize().unwrap();
        let read = System::read(directory.parent().unwrap());
        assert!(read.is_ok(), "{}", read.unwrap_err());
        let text = fs::read_to_string(&path).unwrap();
        assert!(fits(&system_schema(), &text), "{}", path.display());
    }
    for path in files("clients", |directory| directory.join("client.toml")) {
        let directory = path.canonicalize().unwrap();
        let read = Client::read(directory.parent().unwrap());
        assert!(read.is_ok(), "{}", read.unwrap_err());
        let text = fs::read_to_string(&path).unwrap();
        assert!(fits(&client_schema(), &text), "{}", path.display());
        assert!(!fits(
            &client_schema(),
            &text.replace("[figures]", "[figure]")
        ));
    }
}

#[test]
fn schemas_accept_what_the_reader_accepts() {
    let schema = experiment_schema();
    assert!(fits(&schema, EXPERIMENT));
    for (from, to) in [
        ("[load]", "[laod]"),
        ("\"2s\"", "2"),
        ("\"2s\"", "\"2\""),
        ("rate = 2500", "rate = -1"),
        ("\"shared\"", "\"shard\""),
        ("processes = 3", "processes = 0"),
        ("question = \"Which?\"", ""),
    ] {
        assert!(!fits(&schema, &EXPERIMENT.replacen(from, to, 1)), "{to}");
    }
    assert!(fits(&system_schema(), SYSTEM));
    assert!(!fits(
        &system_schema(),
        &SYSTEM.replace("[start]", "[strat]")
    ));
}

#[test]
fn templates_are_valid_and_overwrite_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let path = write_template(Template::System, root, "mine").unwrap();
    let system = System::read(path.parent().unwrap()).unwrap();
    assert_eq!(system.name, "mine");
    assert!(fits(&system_schema(), &fs::read_to_string(&path).unwrap()));
    let path = write_template(Template::Experiment, root, "first").unwrap();
    assert_eq!(Experiment::read(&path).unwrap().description.name, "first");
    assert!(fits(
        &experiment_schema(),
        &fs::read_to_string(&path).unwrap()
    ));
    let again = write_template(Template::Experiment, root, "first").unwrap_err();
    assert!(again.contains("already exists"), "{again}");
    let bad = write_template(Template::System, root, "../x").unwrap_err();
    assert!(bad.contains("not a valid name"), "{bad}");
}
