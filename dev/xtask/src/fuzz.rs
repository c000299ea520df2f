//! `cargo xtask fuzz`: runs libFuzzer on stable Rust for a limited time.
//!
//! The targets are in a separate workspace (`fuzz/`), because all their code is built with coverage
//! counters. The compiler flags are the ones that `cargo fuzz` uses without a sanitizer. Because
//! `--target` is explicit, the flags do not apply to build scripts and macros. The corpus is in a
//! temporary directory, so each run starts from the seeds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::command;
use crate::error::{TaskError, none_found};
use crate::tools::{self, CPLUSPLUS};
use crate::workspace::Workspace;

/// Path of the targets' manifest, relative to the repository's root.
pub const MANIFEST: &str = "fuzz/Cargo.toml";
/// Compiler flags that add coverage counters for libFuzzer.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0 \
    -Ccodegen-units=1";
/// Maximum time per input, in seconds. An input that takes longer is a finding.
const INPUT_SECONDS: &str = "10";
/// Maximum input length, in bytes. Inputs can exceed the maximum length of a response head, which
/// is half as long.
const INPUT_BYTES: u32 = 2 * 64 * 1024;
/// Maximum memory of a target, in MiB. Exceeding the maximum is a finding.
const MEMORY_MIB: &str = "1024";
/// Label of the input count in libFuzzer's statistics.
const INPUTS: &str = "stat::number_of_executed_units:";

/// Runs each target for the given time, or until the first finding.
pub fn run(workspace: &Workspace, seconds: u32) -> Result<(), TaskError> {
    tools::provide(&[CPLUSPLUS])?;
    let manifest = workspace.root.join(MANIFEST);
    let targets = Workspace::read(Some(&manifest))?.binaries();
    if targets.is_empty() {
        let error = format!("{MANIFEST}: no fuzz target; add a binary target");
        return Err(TaskError::found(error));
    }
    let built = build(workspace)?;
    let mut findings = Vec::new();
    for name in &targets {
        let binary = built.join(name);
        findings.extend(fuzz(workspace, name, &binary, seconds)?);
    }
    none_found(findings)
}

/// Builds all targets and returns the directory that contains the binaries.
fn build(workspace: &Workspace) -> Result<PathBuf, TaskError> {
    let host = command::capture(&mut command::words("rustc --print host-tuple"))?;
    let host = host.trim();
    let target = workspace.target.join("fuzz");
    let mut build = command::cargo();
    build.args(["build", "--release", "--manifest-path", MANIFEST]);
    build.args(["--target", host, "--target-dir"]).arg(&target);
    build.env("RUSTFLAGS", FLAGS);
    command::run(build.current_dir(&workspace.root))?;
    Ok(target.join(host).join("release"))
}

/// Runs a target and returns one line per finding. The seeds in `fuzz/seeds/NAME/` and the
/// dictionary `fuzz/NAME.dict` are used if they exist.
fn fuzz(
    workspace: &Workspace,
    name: &str,
    binary: &Path,
    seconds: u32,
) -> Result<Vec<String>, TaskError> {
    let artifacts = workspace.root.join("fuzz/artifacts").join(name);
    fs::create_dir_all(&artifacts).map_err(TaskError::file(&artifacts))?;
    let corpus = tempfile::tempdir().map_err(TaskError::file(&std::env::temp_dir()))?;
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
    println!("$ {}", command::line(&fuzzer));
    let error = match command::collect(fuzzer.current_dir(&workspace.root)) {
        Ok((_, report)) => {
            let missing = || TaskError::output(&fuzzer, format!("no line `{INPUTS} N`"));
            let inputs = inputs(&report).ok_or_else(missing)?;
            println!("{name}: {inputs} inputs in {seconds} s, no findings");
            return Ok(Vec::new());
        }
        Err(error) => error,
    };
    let finding = |input: PathBuf| {
        let input = workspace.relative(&input).display().to_string();
        format!(
            "{name}: finding in {input}; reproduce with `{} {input}`",
            binary.display()
        )
    };
    let mut findings: Vec<String> = written_since(&artifacts, began)
        .into_iter()
        .map(finding)
        .collect();
    if findings.is_empty() {
        findings.push(format!("{name}: {error}"));
    }
    Ok(findings)
}

/// Parses the number of inputs from libFuzzer's statistics.
fn inputs(report: &str) -> Option<u64> {
    let count = report.lines().find_map(|line| line.strip_prefix(INPUTS))?;
    count.trim().parse().ok()
}

/// Lists the files in a directory that were modified after the given time.
fn written_since(directory: &Path, since: SystemTime) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let recent = entries.filter(|entry| {
        let written = entry.metadata().and_then(|metadata| metadata.modified());
        written.is_ok_and(|written| written >= since)
    });
    recent.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn only_recent_files_are_findings() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("crash-1"), "x").unwrap();
        let (hour, now) = (Duration::from_secs(3600), SystemTime::now());
        assert_eq!(written_since(directory.path(), now - hour).len(), 1);
        assert!(written_since(directory.path(), now + hour).is_empty());
        assert!(written_since(&directory.path().join("none"), now - hour).is_empty());
    }

    #[test]
    fn reads_the_number_of_inputs() {
        let report = "INFO: x\nstat::number_of_executed_units: 348546\nstat::peak_rss_mb: 29\n";
        assert_eq!(inputs(report), Some(348_546));
        assert_eq!(inputs("INFO: x\n"), None);
    }
}
