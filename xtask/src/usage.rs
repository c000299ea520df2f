//! `cargo xtask usage`: writes the help of every command to `docs/cli.md`.

use std::path::Path;
use std::process::Command;

use crate::command;
use crate::error::TaskError;
use crate::page::{self, Mode};
use crate::release;
use crate::workspace::Workspace;

/// Path of the page, relative to the repository's root.
const FILE: &str = "docs/cli.md";
/// Width of the help, in columns.
const COLUMNS: &str = "100";
const INTRODUCTION: &str = "# Commands

The help of every command, written by `cargo xtask usage`. [The guide](guide/README.md) explains
what the flags are for.
";

/// Writes or checks `docs/cli.md`.
pub fn run(workspace: &Workspace, mode: &Mode) -> Result<(), TaskError> {
    let floodmark = release::build(workspace, "floodmark")?;
    let mut text = INTRODUCTION.to_owned();
    add_command(&mut text, &[], &|command| help(&floodmark, command))?;
    page::update(workspace, FILE, &text, mode, "cargo xtask usage")
}

/// Returns the plain-text help of a command.
fn help(floodmark: &Path, command: &[&str]) -> Result<String, TaskError> {
    let mut process = Command::new(floodmark);
    process
        .args(command)
        .arg("--help")
        .env("COLUMNS", COLUMNS)
        .env("NO_COLOR", "1");
    command::capture(&mut process)
}

/// Appends the help of a command and of its subcommands.
fn add_command(
    text: &mut String,
    command: &[&str],
    help: &impl Fn(&[&str]) -> Result<String, TaskError>,
) -> Result<(), TaskError> {
    let printed = help(command)?;
    let name = [&["floodmark"], command].concat().join(" ");
    text.push_str(&format!(
        "\n## {name}\n\n```text\n{}\n```\n",
        printed.trim_end()
    ));
    for subcommand in subcommands(&printed) {
        add_command(text, &[command, &[subcommand]].concat(), help)?;
    }
    Ok(())
}

/// Parses the command names in the `Commands:` section of a help text.
fn subcommands(help: &str) -> impl Iterator<Item = &str> {
    help.lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|name| *name != "help")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example(command: &[&str]) -> Result<String, TaskError> {
        Ok(match command {
            [] => "A lab\n\nCommands:\n  load  Load it, at length,\n          as told\n  init  Write files\n  \
                   help  Print this\n\nOptions:\n  -h\n\n",
            ["init"] => "Write files\n\nCommands:\n  system  A server\n",
            ["load"] => "Load it\n",
            ["init", "system"] => "A server\n",
            _ => panic!("unexpected {command:?}"),
        }
        .to_owned())
    }

    #[test]
    fn lists_every_command_with_its_subcommands() {
        let mut text = String::new();
        add_command(&mut text, &[], &example).unwrap();
        let headings: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("## "))
            .collect();
        assert_eq!(
            headings,
            [
                "## floodmark",
                "## floodmark load",
                "## floodmark init",
                "## floodmark init system"
            ]
        );
        assert!(text.contains("\n```text\nLoad it\n```\n"), "{text}");
    }

    #[test]
    fn returns_the_error_of_a_failing_command() {
        let failing = |_: &[&str]| Err(TaskError::found("it failed"));
        let error = add_command(&mut String::new(), &[], &failing).unwrap_err();
        assert_eq!(error.to_string(), "it failed");
    }
}
