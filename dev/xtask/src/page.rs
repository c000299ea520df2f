//! Writes or checks generated files of the repository.

use std::fs;

use crate::error::TaskError;
use crate::workspace::Workspace;

/// Flags for tasks that generate files.
#[derive(Debug, clap::Args)]
pub struct Mode {
    /// Only check the files; fail if a file is out of date
    #[arg(long)]
    pub check: bool,
}

/// Writes the file at `path` (relative to the root). In check mode, nothing is written. If the file
/// differs, the error contains the first line that differs and the task that updates the file.
pub fn update(
    workspace: &Workspace,
    path: &str,
    wanted: &str,
    mode: &Mode,
    task: &str,
) -> Result<(), TaskError> {
    let full = workspace.root.join(path);
    let present = fs::read_to_string(&full).ok();
    if present.as_deref() == Some(wanted) {
        println!("{path} is up to date");
        return Ok(());
    }
    if mode.check {
        let place = match present {
            None => format!("{path} is missing"),
            Some(text) => format!("{path}:{} is out of date", first_difference(&text, wanted)),
        };
        return Err(TaskError::found(format!(
            "{place}: run `{task}` and commit the file"
        )));
    }
    fs::write(&full, wanted).map_err(TaskError::file(&full))?;
    println!("{path} written");
    Ok(())
}

/// Returns the number of the first line that differs. Line numbers start at 1.
fn first_difference(a: &str, b: &str) -> usize {
    let same = a.lines().zip(b.lines()).take_while(|(a, b)| a == b);
    same.count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(root: &std::path::Path) -> Workspace {
        Workspace {
            packages: Vec::new(),
            root: root.to_owned(),
            target: root.join("target"),
        }
    }

    #[test]
    fn finds_the_first_line_that_differs() {
        assert_eq!(first_difference("a\nb\nc\n", "a\nx\nc\n"), 2);
        assert_eq!(first_difference("a\n", "a\nb\n"), 2);
    }

    #[test]
    fn check_fails_and_write_updates() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace(folder.path());
        let file = folder.path().join("page");
        let check =
            |wanted: &str| update(&workspace, "page", wanted, &Mode { check: true }, "task");
        assert!(
            check("new\n")
                .unwrap_err()
                .to_string()
                .contains("page is missing")
        );
        fs::write(&file, "old\n").unwrap();
        let error = check("new\n").unwrap_err().to_string();
        assert_eq!(
            error,
            "page:1 is out of date: run `task` and commit the file"
        );
        assert_eq!(fs::read_to_string(&file).unwrap(), "old\n");
        update(&workspace, "page", "new\n", &Mode { check: false }, "task").unwrap();
        check("new\n").unwrap();
    }
}
