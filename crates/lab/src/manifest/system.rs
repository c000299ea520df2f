//! Reads `system.toml`, which defines how to build, start and probe a server, and the server's
//! settings.

use std::ops::Deref;
use std::path::Path;

use floodmark_plan::FileError;
use floodmark_plan::toml_file::{Located, LocatedMap, TomlFile};
use floodmark_plan::values::Name;
use schemars::JsonSchema;
use serde::Deserialize;
use strum::VariantNames;

use super::need::Need;
use super::program::{Build, Knob, ManifestPackage, Program, Start};
use super::workload::Workload;
use floodmark_plan::did_you_mean;

/// Placeholders in a server's command.
pub(super) const PLACEHOLDERS: [&str; 7] = [
    "host",
    "port",
    "threads",
    "run",
    "floodmark",
    "workload",
    "store",
];

/// `system.toml`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SystemManifest {
    /// Name of the system and its folder.
    name: Located<Name>,
    /// One-line description of the system.
    #[serde(rename = "about")]
    _about: Option<String>,
    /// Workloads that the system serves; [] for a server with an API of its own.
    workloads: Located<Vec<String>>,
    /// Programs that must be installed, such as "java >= 17". If one is missing, the system is
    /// skipped.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    needs: Vec<Need>,
    /// Runtime of the server, for the record. Default: not stated.
    runtime: Option<Runtime>,
    /// Strings that mark errors in the server's log, such as "AskTimeoutException". For each
    /// attempt, floodmark counts the log lines that contain any of these strings.
    errors: Option<Located<Vec<String>>>,
    /// How to build the system. Default: nothing to build.
    build: Option<Build>,
    /// How to start the system.
    start: Start,
    /// Settings that experiments can change. {name} in a command stands for the value of the
    /// setting with this name.
    #[serde(default)]
    knobs: LocatedMap<Knob>,
}

/// Runtime of a server.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Runtime {
    Jvm,
    Native,
    Node,
    Python,
}

/// A server under test.
#[derive(Debug, Clone)]
pub struct System {
    /// How to build and start the system.
    pub program: Program,
    /// Workloads that the system serves.
    pub workloads: Vec<Workload>,
    /// Runtime of the server, if given.
    pub runtime: Option<String>,
    /// Strings that mark errors in the server's log.
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
    /// The file cannot be read or is invalid.
    pub fn read(folder: &Path) -> Result<Self, FileError> {
        let file = TomlFile::read(&folder.join("system.toml"))?;
        let manifest: SystemManifest = file.parse()?;
        let (name, needs, build) = (&manifest.name, manifest.needs, manifest.build);
        let package = ManifestPackage::new(&file, folder, name, needs, build)?;
        let program = Program::new(
            &file,
            package,
            manifest.start,
            manifest.knobs,
            &PLACEHOLDERS,
        )?;
        let mut workloads = Vec::new();
        for word in manifest.workloads.iter() {
            workloads.push(word.parse().map_err(|_| {
                let fix = did_you_mean(word, Workload::VARIANTS.iter().copied());
                let what = format!("workloads: unknown workload \"{word}\"; {fix}");
                file.error(&manifest.workloads.span(), what)
            })?);
        }
        if let Some(errors) = &manifest.errors
            && errors
                .iter()
                .any(|text| text.trim().is_empty() || text.contains('\n'))
        {
            let what = "errors: expected single-line strings, like \"AskTimeoutException\"";
            return Err(file.error(&errors.span(), what));
        }
        Ok(System {
            program,
            workloads,
            runtime: manifest
                .runtime
                .map(|runtime| format!("{runtime:?}").to_lowercase()),
            errors: manifest.errors.map(Located::into_inner).unwrap_or_default(),
        })
    }
}
