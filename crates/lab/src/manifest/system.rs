//! `system.toml`: how a server is built, started and probed, and what can be set on it.

use std::ops::Deref;
use std::path::Path;

use super::fields::{Field, Kind, field, needed};
use super::program::{BUILT, FILES, KNOBS, NEEDS, Program, READY_WITHIN, STOP_WITHIN};
use super::section::Section;
use super::workload::{WORKLOADS, Workload};
use crate::source::{FileError, Source, did_you_mean, read_text};

/// Name of the file in a system's folder.
pub const FILE: &str = "system.toml";

/// What its command, or that of a server of the user's own, is told.
pub(super) const PLACEHOLDERS: [&str; 7] = [
    "host",
    "port",
    "threads",
    "run",
    "floodmark",
    "workload",
    "store",
];

/// Keys of `system.toml`.
pub(super) const SYSTEM: &[Field] = &[
    needed(
        "name",
        Kind::Name,
        "Name of the system, the same as its folder's.",
    ),
    field("about", Kind::Text, "What it is, in one line."),
    needed("workloads", Kind::Texts, "The workloads that it serves."),
    NEEDS,
    field(
        "runtime",
        Kind::OneOf(&["jvm", "native", "node", "python"]),
        "What it runs on, for the record.",
    ),
    field(
        "errors",
        Kind::Texts,
        "Texts like \"AskTimeoutException\": lines of its log with each of them are counted, attempt by attempt.",
    ),
    BUILT,
    needed("start", Kind::Table(START), "How it is started."),
    KNOBS,
];

const START: &[Field] = &[
    needed(
        "command",
        Kind::Text,
        "The command, run in its folder, without a shell; it must stay in the foreground. {host} and {port} are the address and the free port to listen on, {run} is a folder for this run's files, {threads} half the CPUs, all of its own where the experiment gives it some, or the knob of that name, {floodmark} the floodmark that runs, {workload} the workload, {store} address and port of the trial's store, or none.",
    ),
    FILES,
    field(
        "ready",
        Kind::Text,
        "What is asked until it answers with a status from 200 to 399. Without it the path of the workload.",
    ),
    READY_WITHIN,
    STOP_WITHIN,
];

/// A server under test.
#[derive(Debug, Clone)]
pub struct System {
    /// How it is built and started.
    pub program: Program,
    /// What it serves.
    pub workloads: Vec<Workload>,
    /// What it runs on.
    pub runtime: Option<String>,
    /// Lines of its log with these texts are counted.
    pub errors: Vec<String>,
}

impl Deref for System {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl System {
    /// Reads the `system.toml` of a folder.
    ///
    /// # Errors
    /// A file that cannot be read or says what it may not, with the line and the mend.
    pub fn read(folder: &Path) -> Result<Self, FileError> {
        let path = folder.join(FILE);
        let text = read_text(&path)?;
        let source = Source {
            path: &path,
            text: &text,
        };
        let document = source.document()?;
        let file = Section::file(source, &document, SYSTEM)?;
        let program = Program::of(&file, folder, (START, &PLACEHOLDERS))?;
        let mut workloads = Vec::new();
        for word in file.list("workloads") {
            workloads.push(Workload::of(&word).ok_or_else(|| {
                let mend = did_you_mean(&word, WORKLOADS.into_iter());
                file.error(
                    "workloads",
                    format!("workloads: unknown workload \"{word}\"; {mend}"),
                )
            })?);
        }
        let errors = file.list("errors");
        if errors
            .iter()
            .any(|text| text.trim().is_empty() || text.contains('\n'))
        {
            let what = "errors: each is a text within one line, like \"AskTimeoutException\"";
            return Err(file.error("errors", what.to_owned()));
        }
        Ok(System {
            program,
            workloads,
            runtime: file.text("runtime").map(str::to_owned),
            errors,
        })
    }
}
