//! Output for continuous integration: `--junit` and `--github-summary`.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::exit::Ending;
use crate::files;
use crate::out;

/// Flag that appends to the job summary.
const SUMMARY: &str = "--github-summary";

/// Environment variable with the path of the job summary.
const SUMMARY_FILE: &str = "GITHUB_STEP_SUMMARY";

/// Maximum size of the summary of one step on GitHub, in bytes.
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
    /// Checks before a run that the summary can be appended to.
    ///
    /// # Errors
    /// Fails if the environment names no file, or if the file is not writable.
    pub fn check_summary(&self) -> Result<(), Ending> {
        if self.github_summary {
            files::check_writable(SUMMARY, &summary_file()?)
        } else {
            Ok(())
        }
    }

    /// Returns ` --github-summary` if the flag is set.
    pub fn summary_flag(&self) -> Option<String> {
        self.github_summary.then(|| format!(" {SUMMARY}"))
    }

    /// Appends to the summary if the flag is set. `render` receives the maximum length in bytes,
    /// and returns `None` if the text does not fit.
    ///
    /// # Errors
    /// Fails if the environment names no file, or if the file cannot be written.
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

/// Returns the file that the environment names.
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
