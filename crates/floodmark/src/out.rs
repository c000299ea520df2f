//! Writing to the terminal: how wide it is, whether it takes colour, and what happens when the reader has gone.

use std::io::{self, IsTerminal, Write};

use floodmark_report::Style;

/// Width where there is no terminal to ask.
const PLAIN_WIDTH: usize = 100;

/// Widest line even on a wide terminal: longer ones are hard to read.
const WIDEST: usize = 120;

/// The style for a stream. `NO_COLOR` (no-color.org) and `TERM=dumb` turn colours off.
pub fn style(stream: &impl IsTerminal) -> Style {
    let terminal = stream.is_terminal();
    let unwanted = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
        || std::env::var_os("TERM").is_some_and(|v| v == "dumb");
    let width = terminal
        .then(terminal_size::terminal_size)
        .flatten()
        .map_or(PLAIN_WIDTH, |(width, _)| usize::from(width.0));
    Style {
        colour: terminal && !unwanted,
        width: width.min(WIDEST),
    }
}

/// Writes to stdout. A reader that has gone (`| head`) is no error: there is nobody left to tell.
pub fn print(text: &str) {
    write(&mut io::stdout().lock(), text);
}

/// Writes what was asked for by a flag to stdout.
///
/// # Errors
/// When it cannot be written although there is a reader.
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
    write(&mut io::stderr().lock(), text);
}

fn write(stream: &mut impl Write, text: &str) {
    let _ = stream
        .write_all(text.as_bytes())
        .and_then(|()| stream.flush());
}
