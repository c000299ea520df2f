//! `cargo xtask usage`: the README's usage blocks are the command's real output.
//!
//! A block stands between `<!-- usage: floodmark load --help -->` and `<!-- /usage -->`.

use std::path::Path;
use std::process::Command;

use crate::command;
use crate::error::Error;
use crate::page::{self, Mode};
use crate::release;
use crate::workspace::Workspace;

/// The file, from the root.
const FILE: &str = "README.md";
const BEGIN: &str = "<!-- usage: ";
const BEGIN_END: &str = " -->";
const END: &str = "<!-- /usage -->";
/// Width of the output, in columns.
const COLUMNS: &str = "100";

/// Writes or compares the blocks.
pub fn run(workspace: &Workspace, mode: Mode) -> Result<(), Error> {
    let readme = workspace.text(FILE)?;
    let floodmark = release::floodmark(workspace)?;
    let wanted = rewrite(&readme, |arguments| output(&floodmark, arguments))?;
    page::settle(workspace, FILE, &wanted, mode, "cargo xtask usage")
}

/// What the command prints, away from any terminal and without colours.
fn output(floodmark: &Path, arguments: &[&str]) -> Result<String, Error> {
    let mut usage = Command::new(floodmark);
    usage
        .args(arguments)
        .env("COLUMNS", COLUMNS)
        .env("NO_COLOR", "1");
    command::capture(&mut usage)
}

/// The text with the content of each block replaced by what `output` gives for its arguments.
fn rewrite(text: &str, output: impl Fn(&[&str]) -> Result<String, Error>) -> Result<String, Error> {
    let mut written = String::with_capacity(text.len());
    let mut open_since = None;
    let mut blocks = 0;
    for (index, line) in text.lines().enumerate() {
        let wrong = |what: &str| Err(Error::Found(vec![format!("{FILE}:{}: {what}", index + 1)]));
        if let Some(rest) = line.trim().strip_prefix(BEGIN) {
            if open_since.is_some() {
                return wrong(
                    "a usage block within a usage block; close the first with `<!-- /usage -->`",
                );
            }
            let words: Vec<&str> = rest
                .strip_suffix(BEGIN_END)
                .unwrap_or("")
                .split_whitespace()
                .collect();
            let Some((&"floodmark", arguments)) = words.split_first() else {
                return wrong("expected `<!-- usage: floodmark … -->`");
            };
            let printed = output(arguments)?;
            written.push_str(&format!("{line}\n```text\n{}\n```\n", printed.trim_end()));
            open_since = Some(index + 1);
            blocks += 1;
        } else if line.trim() == END {
            if open_since.take().is_none() {
                return wrong("`<!-- /usage -->` closes nothing");
            }
            written.push_str(line);
            written.push('\n');
        } else if open_since.is_none() {
            written.push_str(line);
            written.push('\n');
        }
    }
    if let Some(line) = open_since {
        return Err(Error::Found(vec![format!(
            "{FILE}:{line}: this usage block is not closed; end it with `{END}`"
        )]));
    }
    if blocks == 0 {
        return Err(Error::Found(vec![format!(
            "{FILE}: no usage block; put `{BEGIN}floodmark load --help{BEGIN_END}` and `{END}` where the usage belongs"
        )]));
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(arguments: &[&str]) -> Result<String, Error> {
        Ok(format!("of {}\n\n", arguments.join("+")))
    }

    const PAGE: &str =
        "# A\n<!-- usage: floodmark load --help -->\n```text\nold\n```\n<!-- /usage -->\nafter\n";

    #[test]
    fn a_block_becomes_the_output_and_the_rest_stays() {
        let new = rewrite(PAGE, echo).unwrap();
        assert_eq!(
            new,
            "# A\n<!-- usage: floodmark load --help -->\n```text\nof load+--help\n```\n<!-- /usage -->\nafter\n"
        );
        assert_eq!(rewrite(&new, echo).unwrap(), new);
    }

    #[test]
    fn says_where_a_block_is_wrong() {
        let error = |text: &str| rewrite(text, echo).unwrap_err().to_string();
        assert!(
            error("<!-- usage: floodmark x -->\n")
                .starts_with("README.md:1: this usage block is not closed")
        );
        assert!(error("a\n<!-- /usage -->\n").starts_with("README.md:2: "));
        assert!(error("<!-- usage: rm -rf -->\n<!-- /usage -->\n").contains("expected"));
        assert!(error("<!-- usage: floodmark x\n<!-- /usage -->\n").contains("expected"));
        assert!(error(&PAGE.replace("old", "<!-- usage: floodmark x -->")).contains("within"));
        assert!(error("# A\n").contains("no usage block"));
    }

    #[test]
    fn a_command_that_fails_is_an_error() {
        let failed = rewrite(PAGE, |_| Err(Error::Found(vec!["it failed".to_owned()])));
        assert_eq!(failed.unwrap_err().to_string(), "it failed");
    }
}
