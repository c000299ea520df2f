//! Output files for a record: `--html`, `--json`, `--csv`, `--hdr` and `--junit`.

use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use floodmark_host::replace_file;
use floodmark_record::{Record, Run};
use floodmark_report::junit::RunFault;
use floodmark_report::markdown;

use crate::exit::Ending;
use crate::out;

/// Paths of the output files. `-` stands for stdout.
#[derive(Debug, Clone, Default, Args)]
pub struct Files {
    /// Write a self-contained HTML page; - for stdout [default: none]
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write the record as JSON; - for stdout [default: none]
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Write per-second figures as CSV; - for stdout [default: none]
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Write the response times in HdrHistogram's percentile format; - for stdout [default: none]
    #[arg(long, value_name = "FILE")]
    pub hdr: Option<PathBuf>,

    /// Output for continuous integration.
    #[command(flatten)]
    pub ci: CiOutput,
}

impl Files {
    /// Checks before a run that all output files are writable, without leaving new files behind.
    ///
    /// # Errors
    /// Fails if a file is not writable, two flags name the same file, or the job summary is
    /// requested but `GITHUB_STEP_SUMMARY` is not set.
    pub fn check_writable(&self) -> Result<(), Ending> {
        let named: Vec<(&str, &Path)> = self.named().collect();
        for (i, (flag, path)) in named.iter().copied().enumerate() {
            if is_device(path) {
                // Opening a pipe or a device can have side effects.
                continue;
            }
            check_different(flag, path, named[..i].iter().copied())?;
            if !is_stdout(path) {
                check_writable(flag, path)?;
            }
        }
        self.ci.check_summary()
    }

    /// Checks before a run that a file to which load processes append is a writable file. A load
    /// process cannot write to the stdout or to the pipes of this process.
    ///
    /// # Errors
    /// Fails if the file is not writable, not a regular file, or also an output file, or if its path
    /// is not UTF-8.
    pub fn check_appendable(&self, flag: &str, path: &Path) -> Result<(), Ending> {
        let refuse = |what: &str| Err(Ending::usage(format!("{flag} {}: {what}", path.display())));
        if is_stdout(path) || is_device(path) {
            return refuse("stdout, pipes and devices are not supported; name a regular file");
        }
        if path.to_str().is_none() {
            return refuse("the path is not UTF-8; choose another path");
        }
        check_different(flag, path, self.named())?;
        check_writable(flag, path)
    }

    /// Checks that no output file overwrites a file from which the record is read (`sources`).
    ///
    /// # Errors
    /// Fails if an output file is one of the sources.
    pub fn check_sources(&self, sources: &[PathBuf]) -> Result<(), Ending> {
        let sources: Vec<PathBuf> = sources
            .iter()
            .filter_map(|path| path.canonicalize().ok())
            .collect();
        for (flag, path) in self.named() {
            if path.canonicalize().is_ok_and(|at| sources.contains(&at)) {
                return Err(Ending::usage(format!(
                    "{flag} {}: the record is read from this file; choose another file",
                    path.display()
                )));
            }
        }
        Ok(())
    }

    /// Returns the output files with their flags.
    fn named(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let all = [
            ("--html", &self.html),
            ("--json", &self.json),
            ("--csv", &self.csv),
            ("--hdr", &self.hdr),
            ("--junit", &self.ci.junit),
        ];
        all.into_iter()
            .filter_map(|(flag, path)| Some((flag, path.as_deref()?)))
    }

    /// Checks that no output format requires runs, because a result with crash rounds contains
    /// none.
    ///
    /// # Errors
    /// Fails if `--csv` or `--hdr` is set.
    pub fn check_crash_formats(&self) -> Result<(), Ending> {
        let mut flags = self.named().map(|(flag, _)| flag);
        let flag = flags.find(|flag| ["--csv", "--hdr"].contains(flag));
        flag.map_or(Ok(()), |flag| Err(no_runs(flag)))
    }

    /// Returns whether no output was requested.
    pub fn is_empty(&self) -> bool {
        self.named().next().is_none() && !self.ci.github_summary
    }

    /// Returns whether one of the output files is stdout.
    pub fn use_stdout(&self) -> bool {
        self.named().any(|(_, path)| is_stdout(path))
    }

    /// Writes the record of a measurement to each output file. `saved` is the result directory, or
    /// `None` if the result was not saved. `fault` returns the fault of a run.
    ///
    /// # Errors
    /// Fails if a file cannot be written. If the result was saved, the message contains a command
    /// that writes the files later.
    pub fn write_result(
        &self,
        record: &Record,
        saved: Option<&Path>,
        fault: &RunFault<'_>,
    ) -> Result<(), Ending> {
        let written = self.write(record, fault, |e| Ending::internal(e));
        let Some(directory) = saved else {
            return written;
        };
        let flags = self.named();
        let flags = flags.map(|(flag, path)| {
            if is_device(path) {
                format!(" {flag} FILE")
            } else {
                format!(" {flag} {}", path.display())
            }
        });
        let flags = flags.chain(self.ci.summary_flag());
        written.map_err(|ending| {
            Ending::internal(format!(
                "{}; then run: floodmark report {}{}",
                ending.message,
                directory.display(),
                String::from_iter(flags)
            ))
        })
    }

    /// Writes the record to each file, and appends it to the job summary. `fault` returns the fault
    /// of a run.
    ///
    /// # Errors
    /// Fails if a file cannot be written. If the record cannot be rendered, `damaged` creates the
    /// error: an internal error after a run, or a usage error if the record was read from disk.
    pub fn write(
        &self,
        record: &Record,
        fault: &RunFault<'_>,
        damaged: fn(&dyn Display) -> Ending,
    ) -> Result<(), Ending> {
        for (flag, path) in self.named() {
            let text = match flag {
                "--json" => out::json(record)?,
                "--html" => {
                    let next = next_step(record);
                    floodmark_report::html::of_record(record, next.as_deref())
                        .map_err(|e| damaged(&e))?
                }
                "--csv" | "--hdr" if has_only_crash_rounds(record) => {
                    return Err(no_runs(flag));
                }
                "--csv" => floodmark_report::csv::of_record(record),
                "--junit" => floodmark_report::junit::of_record(record, fault),
                _ => floodmark_report::hdr::of_record(record).map_err(|e| damaged(&e))?,
            };
            write(flag, path, &text)?;
        }
        let next = next_step(record);
        let summary = |max_bytes| markdown::summary(record, next.as_deref(), max_bytes);
        self.ci.append_summary(summary)
    }
}

fn no_runs(flag: &str) -> Ending {
    Ending::usage(format!(
        "{flag}: the result has crash rounds but no runs; use --html or --json"
    ))
}

/// Checks that no other flag (`others`) names the same file.
///
/// # Errors
/// Fails if another flag names the same file.
fn check_different<'a>(
    flag: &str,
    path: &Path,
    mut others: impl Iterator<Item = (&'static str, &'a Path)>,
) -> Result<(), Ending> {
    let same = others.find(|(_, other)| *other == path);
    same.map_or(Ok(()), |(other, _)| {
        Err(Ending::usage(format!(
            "{flag} {}: {other} names the same file; use different files",
            path.display()
        )))
    })
}

/// Checks that a file is writable, without leaving a new file behind.
///
/// # Errors
/// Fails if the file is not writable.
fn check_writable(flag: &str, path: &Path) -> Result<(), Ending> {
    let is_new = !path.exists();
    let opened = fs::File::options().create(true).append(true).open(path);
    if opened.is_ok() && is_new {
        // If removal fails, the run overwrites the empty file.
        let _ = fs::remove_file(path);
    }
    opened.map(drop).map_err(|e| {
        Ending::usage(format!(
            "{flag} {}: {e}; name a writable file in an existing directory",
            path.display()
        ))
    })
}

/// Writes text to stdout or to the file named by a flag. Replaces regular files atomically.
pub fn write(flag: &str, path: &Path, text: &str) -> Result<(), Ending> {
    let written = if is_stdout(path) {
        out::deliver(text)
    } else if is_device(path) {
        fs::write(path, text)
    } else {
        // Resolve symbolic links, so that the target file is replaced rather than the link.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        replace_file(&path, text.as_bytes())
    };
    let place = if is_stdout(path) {
        "stdout".into()
    } else {
        path.to_string_lossy()
    };
    written.map_err(|e| {
        Ending::internal(format!(
            "{flag} {place}: {e}; free up disk space or choose another file"
        ))
    })
}

/// Returns whether a path is a pipe or device, which must be written in place.
fn is_device(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

/// Returns whether the value of a flag stands for stdout.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

/// Returns whether a result has crash rounds but no runs.
pub fn has_only_crash_rounds(record: &Record) -> bool {
    record.runs.is_empty() && !record.crash.is_empty()
}

/// Returns the recommended next step, based on the last run without an external client.
pub fn next_step(record: &Record) -> Option<String> {
    let own = |run: &&Run| run.client.tool.is_none();
    let last = record.runs.iter().rfind(own)?;
    Some(floodmark_diagnose::next_step(
        last,
        last.client_cpus(record.environment.cpus),
    ))
}

/// Flag that appends to the job summary.
const SUMMARY: &str = "--github-summary";

/// Environment variable with the path of the job summary.
const SUMMARY_FILE: &str = "GITHUB_STEP_SUMMARY";

/// Maximum size of a step's summary on GitHub, in bytes.
const SUMMARY_LIMIT: u64 = 1 << 20;

/// Output for continuous integration.
#[derive(Debug, Clone, Default, Args)]
pub struct CiOutput {
    /// Write measurements, checks, thresholds and claims as JUnit XML; - for stdout [default: none]
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,

    /// Append the result to the job summary of GitHub Actions, that is, to the file that
    /// GITHUB_STEP_SUMMARY names
    #[arg(long)]
    pub github_summary: bool,
}

impl CiOutput {
    /// Checks, before a run, that text can be appended to the summary.
    ///
    /// # Errors
    /// Fails if `GITHUB_STEP_SUMMARY` is not set, or if the file is not writable.
    pub fn check_summary(&self) -> Result<(), Ending> {
        if self.github_summary {
            check_writable(SUMMARY, &summary_file()?)
        } else {
            Ok(())
        }
    }

    /// Returns ` --github-summary` if the flag is set.
    pub fn summary_flag(&self) -> Option<String> {
        self.github_summary.then(|| format!(" {SUMMARY}"))
    }

    /// Appends text to the summary if the flag is set. `render` receives the maximum length in
    /// bytes, and returns `None` if the text does not fit.
    ///
    /// # Errors
    /// Fails if `GITHUB_STEP_SUMMARY` is not set, or if the file cannot be written.
    pub fn append_summary(
        &self,
        render: impl FnOnce(usize) -> Option<String>,
    ) -> Result<(), Ending> {
        if !self.github_summary {
            return Ok(());
        }
        let path = summary_file()?;
        let used = fs::metadata(&path).map_or(0, |file| file.len());
        let Some(text) = render(SUMMARY_LIMIT.saturating_sub(used) as usize) else {
            out::complain(&format!(
                "{SUMMARY} {}: nothing was appended, because the summary of a step is limited to 1 MiB; \
                 use a separate step",
                path.display()
            ));
            return Ok(());
        };
        append(&path, &text).map_err(|e| {
            Ending::internal(format!(
                "{SUMMARY} {}: {e}; free up disk space or set {SUMMARY_FILE} to another file",
                path.display()
            ))
        })
    }
}

/// Returns the path in the environment variable [`SUMMARY_FILE`].
fn summary_file() -> Result<PathBuf, Ending> {
    let path = std::env::var_os(SUMMARY_FILE).filter(|path| !path.is_empty());
    path.map(PathBuf::from).ok_or_else(|| {
        Ending::usage(format!(
            "{SUMMARY}: {SUMMARY_FILE} is not set; set it to a file, or use this flag only in GitHub Actions"
        ))
    })
}

fn append(path: &Path, text: &str) -> std::io::Result<()> {
    let mut file = fs::File::options().create(true).append(true).open(path)?;
    file.write_all(text.as_bytes())
}
