//! A file of the repository that is made from something else: written, or only compared.

use std::fs;

use crate::error::Error;
use crate::workspace::Workspace;

/// What to do with a file that differs from what it is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Write it anew.
    Write,
    /// Leave it and fail.
    Check,
}

impl Mode {
    /// The mode that a `--check` flag asks for.
    pub fn of(check: bool) -> Self {
        if check { Mode::Check } else { Mode::Write }
    }
}

/// Brings the file at `path` (from the root) to `wanted`, or says at which line it differs and which chore mends it.
pub fn settle(
    workspace: &Workspace,
    path: &str,
    wanted: &str,
    mode: Mode,
    chore: &str,
) -> Result<(), Error> {
    let full = workspace.root.join(path);
    let present = fs::read_to_string(&full).ok();
    if present.as_deref() == Some(wanted) {
        println!("{path} is up to date");
        return Ok(());
    }
    if mode == Mode::Check {
        let place = match present {
            None => format!("{path} is missing"),
            Some(text) => format!("{path}:{} is out of date", first_difference(&text, wanted)),
        };
        return Err(Error::Found(vec![format!(
            "{place}: run `{chore}` and commit it"
        )]));
    }
    fs::write(&full, wanted).map_err(|source| Error::Write { path: full, source })?;
    println!("{path} written");
    Ok(())
}

/// Number of the first line, from 1, in which two texts differ.
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
    fn the_first_line_that_differs() {
        assert_eq!(first_difference("a\nb\nc\n", "a\nx\nc\n"), 2);
        assert_eq!(first_difference("a\n", "a\nb\n"), 2);
    }

    #[test]
    fn check_fails_and_leaves_the_file_and_write_mends_it() {
        let folder = tempfile::tempdir().unwrap();
        let workspace = workspace(folder.path());
        let file = folder.path().join("page");
        let check = |wanted: &str| settle(&workspace, "page", wanted, Mode::Check, "chore");
        assert!(
            check("new\n")
                .unwrap_err()
                .to_string()
                .contains("page is missing")
        );
        fs::write(&file, "old\n").unwrap();
        let error = check("new\n").unwrap_err().to_string();
        assert_eq!(error, "page:1 is out of date: run `chore` and commit it");
        assert_eq!(fs::read_to_string(&file).unwrap(), "old\n");
        settle(&workspace, "page", "new\n", Mode::Write, "chore").unwrap();
        check("new\n").unwrap();
    }
}
