//! Tests of the help text, printed without a terminal.

use crate::support::{code, run, text};

fn help(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(code(&output), 0);
    assert!(output.stderr.is_empty());
    text(&output.stdout)
}

#[test]
fn of_floodmark() {
    insta::assert_snapshot!(help(&["--help"]));
}

#[test]
fn of_load() {
    insta::assert_snapshot!(help(&["load", "--help"]));
}

#[test]
fn of_run() {
    insta::assert_snapshot!(help(&["run", "--help"]));
}

#[test]
fn of_tune() {
    insta::assert_snapshot!(help(&["tune", "--help"]));
}

#[test]
fn of_serve() {
    insta::assert_snapshot!(help(&["serve", "--help"]));
}

#[test]
fn of_disk() {
    insta::assert_snapshot!(help(&["disk", "--help"]));
}

#[test]
fn of_doctor() {
    insta::assert_snapshot!(help(&["doctor", "--help"]));
}

#[test]
fn of_report() {
    insta::assert_snapshot!(help(&["report", "--help"]));
}

#[test]
fn of_compare() {
    insta::assert_snapshot!(help(&["compare", "--help"]));
}

#[test]
fn of_observe() {
    insta::assert_snapshot!(help(&["observe", "--help"]));
}

#[test]
fn no_line_exceeds_100_columns() {
    for command in [
        &["--help"][..],
        &["load", "--help"],
        &["run", "--help"],
        &["tune", "--help"],
        &["init", "--help"],
        &["disk", "--help"],
        &["serve", "--help"],
        &["report", "--help"],
        &["compare", "--help"],
        &["observe", "--help"],
    ] {
        for line in help(command).lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}

#[test]
fn every_flag_with_a_value_names_its_default() {
    for command in ["load", "run", "tune", "serve", "observe"] {
        let help = help(&[command, "--help"]);
        let flags = help.split("\n\n").filter(|part| part.contains("--"));
        let mut seen = 0;
        let parts: Vec<&str> = flags.collect();
        for name in parts.iter().flat_map(|part| part.lines()) {
            let line = name.trim_start();
            if line.starts_with('-') && line.ends_with('>') {
                seen += 1;
                let from = help.find(name).unwrap() + name.len();
                let rest = &help[from..];
                let end = rest.find("\n      -").unwrap_or(rest.len());
                let end = end.min(rest.find("\n  -").unwrap_or(rest.len()));
                let text = &rest[..end];
                let has_default = text.contains("default:") || text.contains("[required]");
                assert!(has_default, "{command} {line}");
            }
        }
        assert!(seen >= 5, "{command}: {seen}");
    }
}
