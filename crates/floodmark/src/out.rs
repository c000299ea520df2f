//! Output to stdout and stderr.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use floodmark_report::{Style, plain};
use serde::Serialize;

use crate::exit::Ending;

/// Width of output that goes to a file or pipe, in columns.
const PLAIN_WIDTH: usize = 100;

/// Maximum width on a terminal, in columns. Longer lines are hard to read.
const MAX_WIDTH: usize = 120;

/// Returns the drawing style for a stream. `NO_COLOR` (no-color.org) and `TERM=dumb` disable
/// colors.
pub fn style(stream: &impl IsTerminal) -> Style {
    let terminal = stream.is_terminal();
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
        || std::env::var_os("TERM").is_some_and(|v| v == "dumb");
    let width = terminal
        .then(terminal_size::terminal_size)
        .flatten()
        .map_or(PLAIN_WIDTH, |(width, _)| usize::from(width.0));
    Style {
        color: terminal && !unwanted,
        width: width.min(MAX_WIDTH),
    }
}

/// Writes to stdout.
///
/// # Errors
/// Fails if stdout cannot be written. A closed pipe (such as `| head`) is not an error.
pub fn print(text: &str) -> Result<(), Ending> {
    deliver(text).map_err(|e| {
        Ending::internal(format!(
            "stdout: {e}; free up disk space or redirect stdout elsewhere"
        ))
    })
}

/// Writes output requested by a flag such as `--json -` to stdout.
///
/// # Errors
/// Fails if stdout cannot be written. A closed pipe is not an error.
pub fn deliver(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Writes to stderr.
pub fn note(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Writes the remarks on a plan to stderr, one per line.
pub fn remarks(remarks: &[String]) {
    for remark in remarks {
        note(&format!("{}\n", plain::line(remark)));
    }
}

/// Writes an error or warning to stderr as one line with the prefix `floodmark: `.
pub fn complain(message: &impl Display) {
    note(&format!(
        "floodmark: {}\n",
        plain::line(&message.to_string())
    ));
}

/// Prints a result on stdout, or on stderr if an output file goes to stdout (`--json -`).
///
/// # Errors
/// Fails if stdout cannot be written.
pub fn show(stdout_is_taken: bool, render: impl FnOnce(Style) -> String) -> Result<(), Ending> {
    if stdout_is_taken {
        note(&render(style(&io::stderr())));
        return Ok(());
    }
    print(&render(style(&io::stdout())))
}

/// Returns a value as indented JSON.
pub fn json(value: &impl Serialize) -> Result<String, Ending> {
    let text = serde_json::to_string_pretty(value).map_err(Ending::internal)?;
    Ok(text + "\n")
}
