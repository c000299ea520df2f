//! `cargo xtask fuzz`: libFuzzer on stable Rust, bounded in time.
//!
//! The targets are a workspace of their own (`fuzz/`), because all of their code is built with coverage counters.
//! These are the flags that `cargo fuzz` gives without a sanitizer; an explicit `--target` keeps them from build
//! scripts and macros. What was learnt goes into a temporary folder, so that each run begins with the seeds alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::command;
use crate::error::{Error, none_found};
use crate::tools::{self, CPLUSPLUS};
use crate::workspace::Workspace;

/// The manifest of the targets, from the root.
pub const MANIFEST: &str = "fuzz/Cargo.toml";
/// Coverage counters for libFuzzer.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0 \
    -Ccodegen-units=1";
/// Longest time for one input, in seconds; longer is a finding.
const INPUT_SECONDS: &str = "10";
/// Longest input, in bytes: twice the longest head that an answer may have, so that the limit is met.
const INPUT_BYTES: u32 = 2 * 64 * 1024;
/// Most memory of a target, in MiB; more is a finding.
const MEMORY_MIB: &str = "1024";
/// The line of libFuzzer's final statistics that says how many inputs it ran.
const INPUTS: &str = "stat::number_of_executed_units:";

/// Runs each target for the given time and fails on the first finding of each.
pub fn run(workspace: &Workspace, seconds: u32) -> Result<(), Error> {
    tools::provide(&[CPLUSPLUS])?;
    let manifest = workspace.root.join(MANIFEST);
    let targets = Workspace::at(&manifest)?.binaries();
    if targets.is_empty() {
        return Err(Error::Found(vec![format!(
            "{MANIFEST} has no binary, so nothing would be fuzzed"
        )]));
    }
    let built = build(workspace)?;
    let mut findings = Vec::new();
    for name in &targets {
        let binary = built.join(name);
        findings.extend(fuzz(workspace, name, &binary, seconds)?);
    }
    none_found(findings)
}

/// Builds all targets and says in which folder they are.
fn build(workspace: &Workspace) -> Result<PathBuf, Error> {
    let host = host()?;
    let target = workspace.target.join("fuzz");
    let mut build = command::cargo();
    build.args([
        "build",
        "--release",
        "--manifest-path",
        MANIFEST,
        "--target",
        &host,
        "--target-dir",
    ]);
    build
        .arg(&target)
        .env("RUSTFLAGS", FLAGS)
        .current_dir(&workspace.root);
    command::run(&mut build)?;
    Ok(target.join(host).join("release"))
}

/// Runs one target, with `fuzz/seeds/NAME/` and `fuzz/NAME.dict` where they exist; returns a line for each finding.
fn fuzz(
    workspace: &Workspace,
    name: &str,
    binary: &Path,
    seconds: u32,
) -> Result<Vec<String>, Error> {
    let artifacts = workspace.root.join("fuzz/artifacts").join(name);
    let write = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::Write { path, source }
    };
    fs::create_dir_all(&artifacts).map_err(write(&artifacts))?;
    let corpus = tempfile::tempdir().map_err(write(&std::env::temp_dir()))?;
    let began = SystemTime::now();
    let mut fuzzer = Command::new(binary);
    fuzzer.arg(corpus.path());
    let seeds = workspace.root.join("fuzz/seeds").join(name);
    if seeds.is_dir() {
        fuzzer.arg(seeds);
    }
    let words = workspace.root.join(format!("fuzz/{name}.dict"));
    if words.is_file() {
        fuzzer.arg(format!("-dict={}", words.display()));
    }
    fuzzer.arg(format!("-max_total_time={seconds}"));
    fuzzer.arg(format!("-max_len={INPUT_BYTES}"));
    fuzzer.arg(format!("-timeout={INPUT_SECONDS}"));
    fuzzer.arg(format!("-rss_limit_mb={MEMORY_MIB}"));
    fuzzer.arg(format!("-artifact_prefix={}/", artifacts.display()));
    fuzzer.args(["-verbosity=0", "-print_final_stats=1"]);
    let error = match command::hush(fuzzer.current_dir(&workspace.root)) {
        Ok(report) => {
            let inputs = inputs(&report).ok_or_else(|| Error::Output {
                command: command::line(&fuzzer),
                why: format!("no line `{INPUTS} N`"),
            })?;
            println!("{name}: {inputs} inputs in {seconds} s, no finding");
            return Ok(Vec::new());
        }
        Err(error) => error,
    };
    let again = |input: PathBuf| {
        let input = workspace.relative(&input).display().to_string();
        format!(
            "{name}: finding in {input}; again: `{} {input}`",
            binary.display()
        )
    };
    let mut findings: Vec<String> = written_since(&artifacts, began)
        .into_iter()
        .map(again)
        .collect();
    if findings.is_empty() {
        findings.push(format!("{name}: {error}"));
    }
    Ok(findings)
}

/// How many inputs libFuzzer says it ran.
fn inputs(report: &str) -> Option<u64> {
    let count = report.lines().find_map(|line| line.strip_prefix(INPUTS))?;
    count.trim().parse().ok()
}

/// The files of a folder that were written since then.
fn written_since(folder: &Path, then: SystemTime) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let recent = entries.filter(|entry| {
        let written = entry.metadata().and_then(|metadata| metadata.modified());
        written.is_ok_and(|written| written >= then)
    });
    recent.map(|entry| entry.path()).collect()
}

/// The platform that rustc builds for by default.
fn host() -> Result<String, Error> {
    let mut rustc = Command::new("rustc");
    rustc.arg("-vV");
    let text = command::capture(&mut rustc)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Error::Output {
        command: command::line(&rustc),
        why: "no line `host: …`".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_files_of_this_run_are_findings() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("crash-1"), "x").unwrap();
        let (hour, now) = (Duration::from_secs(3600), SystemTime::now());
        assert_eq!(written_since(folder.path(), now - hour).len(), 1);
        assert!(written_since(folder.path(), now + hour).is_empty());
        assert!(written_since(&folder.path().join("none"), now - hour).is_empty());
    }

    #[test]
    fn reads_how_many_inputs_were_run() {
        let report = "INFO: x\nstat::number_of_executed_units: 348546\nstat::peak_rss_mb: 29\n";
        assert_eq!(inputs(report), Some(348_546));
        assert_eq!(inputs("INFO: x\n"), None);
    }

    #[test]
    fn rustc_names_its_host() {
        assert!(host().unwrap().contains('-'));
    }
}
