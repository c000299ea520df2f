//! One measurement, from its flags to its exit code. The commands load, capacity, run and tune
//! share this code.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;

use clap::Args;
use floodmark_host::Stop;
use floodmark_lab::Directory;
use floodmark_observe::{Root, environment::environment};
use floodmark_plan::target::without_credentials;
use floodmark_record::Record;
use floodmark_record::comparison::Threshold;
use floodmark_record::host::{Label, ToolInfo};
use floodmark_record::units::Rate;
use floodmark_report::Style;
use floodmark_report::junit::RunFault;

use crate::endings;
use crate::exit::{self, Ending, report_all};
use crate::export::{ExportArgs, MetricsExport};
use crate::files::Files;
use crate::out;
use crate::progress::{LineKind, Progress};

/// Flags for the result of a measurement.
#[derive(Debug, Clone, Args)]
pub struct OutputArgs {
    /// Output files.
    #[command(flatten)]
    pub files: Files,

    /// Metrics while running.
    #[command(flatten)]
    pub export: ExportArgs,

    /// New directory for the result [default: a new directory in the temporary directory; only the
    /// latest 20 are kept]
    #[arg(long, value_name = "DIRECTORY")]
    pub out: Option<PathBuf>,

    /// Label for the result, such as branch=main, by which `trend --label` selects results;
    /// repeatable [default: none]
    #[arg(long, value_name = "KEY=VALUE")]
    pub label: Vec<Label>,

    /// Print neither progress nor result
    #[arg(short, long)]
    pub quiet: bool,
}

/// What a command measures, and how it reports the result.
pub trait Measurement {
    /// Whether the printed result says that the measurement was interrupted.
    const SHOWS_INTERRUPTION: bool = false;

    /// Runs the measurement and writes its result to `directory`.
    ///
    /// # Errors
    /// Fails if there is no record to report.
    fn measure(
        &mut self,
        session: &Session<'_>,
        directory: &mut Directory,
    ) -> Result<Measured, Ending>;

    /// Returns whether the record contains anything to print.
    fn has_result(&self, record: &Record) -> bool;

    /// Renders the result for a terminal.
    fn render(&self, record: &Record, directory: &Path, style: Style) -> String {
        with_directory(
            &floodmark_report::terminal::experiment(record, style),
            directory,
        )
    }

    /// Returns the function that finds the fault of a run for the JUnit report.
    fn fault(&self) -> &RunFault<'_> {
        &endings::run_fault
    }

    /// Returns each [`Ending`] that follows from the record.
    fn endings(&self, record: &Record) -> Vec<Ending>;
}

/// The result of a measurement.
pub struct Measured {
    pub record: Record,
    /// Internal error: a failed load process, or a record that could not be saved.
    pub failure: Option<String>,
}

impl Measured {
    /// Evaluates the thresholds of a measurement, and saves them in its record.
    pub fn judged<E: Display>(
        measured: Result<(Record, Option<String>), E>,
        directory: &mut Directory,
        judge: impl FnOnce(&Record) -> Vec<Threshold>,
    ) -> Self {
        let (mut record, mut failure) = measured.unwrap_or_else(|error| {
            let message = error.to_string();
            (empty_record(message.clone()), Some(message))
        });
        record.thresholds = judge(&record);
        if failure.is_none() && !record.thresholds.is_empty() {
            failure = directory.write_record(&record).err().map(|e| e.to_string());
        }
        Measured { record, failure }
    }
}

/// A measurement in progress.
pub struct Session<'a> {
    pub output: &'a OutputArgs,
    /// Result directory of the interrupted measurement to resume.
    pub resume: Option<&'a Path>,
    pub stop: &'a Stop,
    export: MetricsExport,
}

impl<'a> Session<'a> {
    /// Runs the measurement in a new or resumed result directory, prints the result, writes the
    /// output files, and returns how the command ended.
    pub fn run(
        output: &'a OutputArgs,
        resume: Option<&'a Path>,
        stop: &'a Stop,
        mut measurement: impl Measurement,
    ) -> Result<(), Ending> {
        let session = Session {
            output,
            resume,
            stop,
            export: output.export.start(output.quiet)?,
        };
        let mut directory = match (&output.out, resume) {
            (Some(path), _) => Directory::create(path),
            (None, Some(path)) => Directory::reopen(path, "--resume"),
            (None, None) => Directory::create_temporary(),
        }
        .map_err(Ending::usage)?;
        let measured = measurement.measure(&session, &mut directory);
        session.export.finish();
        report(output, stop, &measurement, measured?, directory.path())
    }

    /// Describes this program and its command line for the record.
    pub fn tool(&self) -> ToolInfo {
        ToolInfo {
            labels: self.output.label.iter().cloned().collect(),
            ..tool()
        }
    }

    /// Starts displaying progress and exporting events.
    pub fn progress(&self, kind: LineKind) -> Progress<'_> {
        self.progress_with_keys(kind, None)
    }

    /// Starts displaying progress and exporting events. Rates that the user sets by keys are sent
    /// to `rates`.
    pub fn progress_with_keys(&self, kind: LineKind, rates: Option<Sender<Rate>>) -> Progress<'_> {
        Progress::new(kind, self.output.quiet, self.stop, rates, &self.export)
    }

    /// Prints a line on stderr, unless --quiet is set.
    pub fn note(&self, line: &str) {
        if !self.output.quiet {
            out::note(&format!("{line}\n"));
        }
    }

    /// Reports that a result is already complete, and returns it.
    pub fn complete(&self, directory: &Directory, record: Record) -> Measured {
        let path = directory.path().display();
        self.note(&format!(
            "--resume {path}: the result is already complete; nothing was measured"
        ));
        Measured {
            record,
            failure: None,
        }
    }
}

/// Prints the result, writes the output files, and returns how the command ended.
fn report<M: Measurement>(
    output: &OutputArgs,
    stop: &Stop,
    measurement: &M,
    Measured { record, failure }: Measured,
    directory: &Path,
) -> Result<(), Ending> {
    let files = &output.files;
    let shown = if output.quiet || !measurement.has_result(&record) {
        Ok(())
    } else {
        out::show(files.use_stdout(), |style| {
            measurement.render(&record, directory, style)
        })
    };
    let saved = failure.is_none().then_some(directory);
    let written = files.write_result(&record, saved, measurement.fault());
    let failures: Vec<Ending> = failure
        .map(Ending::internal)
        .into_iter()
        .chain(written.err())
        .chain(shown.err())
        .collect();
    let is_reported = M::SHOWS_INTERRUPTION && !output.quiet && !record.runs.is_empty();
    let interrupted = endings::interrupted(&record, stop, !failures.is_empty(), is_reported);
    let mut all = report_all(failures);
    all.extend(interrupted);
    all.extend(measurement.endings(&record));
    exit::worst(all)
}

/// Returns a record without runs. The record lists `message` as the failure.
pub fn empty_record(message: String) -> Record {
    let mut record = Record::new(tool(), environment(&Root::host()));
    record.failures.push(message.clone());
    record.skipped.push(message);
    record
}

/// Describes this program and its command line for the record.
pub fn tool() -> ToolInfo {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let shown = |(index, argument): (usize, &OsString)| {
        let argument = argument.to_string_lossy();
        let hidden = without_credentials(&argument);
        // The value of a flag, such as `--agents ssh:user@host`, is no URL.
        let is_value = || index > 0 && crate::takes_value(&arguments[index - 1]);
        if hidden == argument || is_value() {
            argument.into_owned()
        } else {
            hidden
        }
    };
    let command = arguments.iter().enumerate().map(shown).collect();
    ToolInfo::floodmark(env!("CARGO_PKG_VERSION"), command)
}

/// Adds the path of the result directory to a rendered result.
pub fn with_directory(result: &str, directory: &Path) -> String {
    format!("{result}\nresult: {}\n", directory.display())
}
