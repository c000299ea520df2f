//! Tests of floodmark outside a clone of its repository: embedded experiments, completions and
//! manual pages.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::{code, finish, floodmark, text};

/// Runs floodmark in an empty directory, with its own cache directory.
fn run_in(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = floodmark(arguments);
    command
        .current_dir(directory)
        .env("XDG_CACHE_HOME", directory.join("cache"));
    finish(command.spawn().unwrap())
}

#[test]
fn runs_the_embedded_quickstart() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["run", "quickstart", "--only", "rate", "--duration", "1s"];
    let output = run_in(directory.path(), &arguments);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("rate"), "{output:?}");
    let unpacked = fs::read_dir(directory.path().join("cache/floodmark")).unwrap();
    let names: Vec<String> = unpacked
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let version = concat!(env!("CARGO_PKG_VERSION"), "-");
    assert!(
        names.len() == 1 && names[0].starts_with(version),
        "{names:?}"
    );
}

#[test]
fn prefers_files_of_the_current_directory() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("experiments")).unwrap();
    fs::write(
        directory.path().join("experiments/quickstart.toml"),
        "x = 1\n",
    )
    .unwrap();
    let output = run_in(directory.path(), &["run", "quickstart"]);
    assert_eq!(code(&output), 2);
    let message = text(&output.stderr);
    assert!(
        message.contains("experiments/quickstart.toml:1"),
        "{message}"
    );
    assert!(
        !directory.path().join("cache").exists(),
        "nothing is unpacked"
    );
}

#[test]
fn suggests_an_embedded_experiment() {
    let directory = tempfile::tempdir().unwrap();
    let output = run_in(directory.path(), &["run", "quikstart"]);
    assert_eq!(code(&output), 2);
    let message = text(&output.stderr);
    assert!(
        message.contains("did you mean \"quickstart\"?"),
        "{message}"
    );
}

#[test]
fn names_the_cache_directory_that_is_not_writable() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("cache"), "").unwrap();
    let output = run_in(directory.path(), &["run", "quickstart"]);
    assert_eq!(code(&output), 2);
    let message = text(&output.stderr);
    assert!(
        message.contains("set XDG_CACHE_HOME to a writable directory"),
        "{message}"
    );
}

#[test]
fn bash_completes_commands_and_flags() {
    let directory = tempfile::tempdir().unwrap();
    let script = run_in(directory.path(), &["completions", "bash"]);
    assert_eq!(code(&script), 0);
    fs::write(directory.path().join("floodmark.bash"), script.stdout).unwrap();
    let complete = |words: &str| {
        let last = words.split(' ').count() - 1;
        let shell = format!(
            "source ./floodmark.bash; COMP_WORDS=({words}); COMP_CWORD={last}; \
             _floodmark floodmark \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{last}-1]}}\"; \
             echo \"${{COMPREPLY[@]}}\""
        );
        let mut bash = Command::new("bash");
        bash.args(["--norc", "-c", &shell])
            .current_dir(directory.path());
        text(&bash.output().unwrap().stdout)
    };
    assert_eq!(complete("floodmark qui"), "\n");
    assert_eq!(complete("floodmark doc"), "doctor\n");
    assert_eq!(complete("floodmark load --durat"), "--duration\n");
}

#[test]
fn zsh_and_fish_scripts_contain_each_command() {
    let directory = tempfile::tempdir().unwrap();
    for shell in ["zsh", "fish"] {
        let script = run_in(directory.path(), &["completions", shell]);
        let script = text(&script.stdout);
        for word in ["load", "quiet", "observe"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}

#[test]
fn writes_a_manual_page_per_command() {
    let directory = tempfile::tempdir().unwrap();
    let output = run_in(directory.path(), &["man", "man1"]);
    assert_eq!(code(&output), 0, "{output:?}");
    let page = |name: &str| fs::read_to_string(directory.path().join("man1").join(name));
    assert!(page("floodmark.1").unwrap().contains("floodmark\\-load(1)"));
    assert!(page("floodmark-load.1").unwrap().contains("\\-\\-duration"));
    assert!(
        page("floodmark-slow.1").is_err(),
        "hidden commands have no page"
    );
}
