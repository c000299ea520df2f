//! Records which checks passed, and skips a check if nothing that it reads has changed since.
//!
//! [Decision 0049](../../../docs/decisions/0049-test-time.md) says which inputs belong to each
//! check.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::command;
use crate::error::TaskError;
use crate::workspace::Workspace;

/// Note about a check that was skipped.
pub const UNCHANGED: &str = "unchanged since its last pass";

/// Age after which a pass no longer counts, because programs on the host may have changed.
const MAX_AGE: Duration = Duration::from_secs(24 * 3600);

/// File with the version of the running kernel.
const KERNEL: &str = "/proc/sys/kernel/osrelease";

/// Passes of checks, recorded in the build directory.
#[derive(Debug)]
pub struct Passes {
    directory: PathBuf,
    /// `None` if every check must run.
    repository: Option<Repository>,
}

/// Everything that a check may depend on.
#[derive(Debug)]
struct Repository {
    /// Hash of the kernel's version and of this program.
    runner: Hash,
    /// Hash of each file in the repository.
    files: Vec<(String, Hash)>,
}

type Hash = [u8; 32];

impl Passes {
    /// Reads the repository. If `fresh` is set or git is missing, no check is skipped.
    pub fn new(workspace: &Workspace, fresh: bool) -> Self {
        let repository = (!fresh).then(|| Repository::read(&workspace.root).ok());
        Passes {
            directory: workspace.target.join("passed"),
            repository: repository.flatten(),
        }
    }

    /// Runs a check, unless it has already passed with the same programs and the same repository
    /// files. `reads` selects the files. Returns the check's notes.
    pub fn run(
        &self,
        check: &str,
        programs: &[PathBuf],
        reads: impl Fn(&str) -> bool,
        run: impl FnOnce() -> Result<Vec<String>, TaskError>,
    ) -> Result<Vec<String>, TaskError> {
        let file = self.directory.join(check.replace('/', "-"));
        let input = self.input(programs, reads);
        if let Some(input) = &input
            && let Some(mut notes) = passed(&file, input)
        {
            notes.push(UNCHANGED.to_owned());
            return Ok(notes);
        }
        // Forget the last pass. If the check fails now, it must run again next time, even if its
        // input does not change.
        if let Err(error) = fs::remove_file(&file)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(TaskError::file(&file)(error));
        }
        let notes = run()?;
        if let Some(input) = input {
            fs::create_dir_all(&self.directory).map_err(TaskError::file(&self.directory))?;
            let lines = [&[input], &notes[..]].concat();
            fs::write(&file, lines.join("\n")).map_err(TaskError::file(&file))?;
        }
        Ok(notes)
    }

    /// Returns a hash of everything that a check reads, or `None` if the check must run.
    fn input(&self, programs: &[PathBuf], reads: impl Fn(&str) -> bool) -> Option<String> {
        let repository = self.repository.as_ref()?;
        let mut input = Sha256::new_with_prefix(repository.runner);
        input.update(hash_of_all(programs).ok()?);
        for (name, hash) in repository.files.iter().filter(|(name, _)| reads(name)) {
            input.update(name);
            input.update(hash);
        }
        let input = input.finalize();
        Some(input.iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl Repository {
    fn read(root: &Path) -> Result<Self, TaskError> {
        let mut list = command::words("git ls-files -z --cached --others --exclude-standard");
        let names = command::capture(list.current_dir(root))?;
        let names = names.split_terminator('\0');
        let files = names.map(|name| Ok((name.to_owned(), hash_of(&root.join(name))?)));
        let program = env::current_exe()
            .map_err(|error| TaskError::found(format!("path of this program: {error}")))?;
        Ok(Repository {
            files: files.collect::<Result<_, TaskError>>()?,
            runner: hash_of_all(&[KERNEL.into(), program])?,
        })
    }
}

/// Returns the notes of a recent pass with this input, if any.
fn passed(file: &Path, input: &str) -> Option<Vec<String>> {
    let age = fs::metadata(file).ok()?.modified().ok()?.elapsed().ok()?;
    let text = fs::read_to_string(file).ok()?;
    let mut lines = text.lines().map(str::to_owned);
    (lines.next()? == input && age < MAX_AGE).then(|| lines.collect())
}

fn hash_of_all(files: &[PathBuf]) -> Result<Hash, TaskError> {
    let mut all = Sha256::new();
    for file in files {
        all.update(hash_of(file)?);
    }
    Ok(all.finalize().into())
}

/// Returns a hash of a file's content. A missing file also has a hash.
fn hash_of(file: &Path) -> Result<Hash, TaskError> {
    match fs::read(file) {
        Ok(content) => Ok(Sha256::digest(content).into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Hash::default()),
        Err(error) => Err(TaskError::file(file)(error)),
    }
}
