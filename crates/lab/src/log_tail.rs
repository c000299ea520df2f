//! Quotes the end of a program's log in messages.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use crate::lines::without_colors;

/// Maximum length of a quoted line, in characters.
const LINE_LIMIT: usize = 200;

/// Number of bytes that are read at the end of a log.
const TAIL_LENGTH: u64 = 4096;

/// Quotes the last non-empty line of a log after the first `from` bytes. Returns an empty string if
/// there is no such line.
pub fn last_line(log: &Path, from: u64) -> String {
    quote(lines(log, from).last())
}

/// Quotes the first error in a Maven build log, or the last line if the log contains no error.
pub fn error_line(log: &Path) -> String {
    let lines = lines(log, 0);
    let error = lines.iter().find(|line| line.starts_with("[ERROR]"));
    quote(error.or(lines.last()))
}

fn quote(line: Option<&String>) -> String {
    line.map_or_else(String::new, |line| {
        let line: String = line.chars().take(LINE_LIMIT).collect();
        format!(": \"{line}\"")
    })
}

/// Returns the non-empty lines at the end of a log, without its first `from` bytes.
fn lines(log: &Path, from: u64) -> Vec<String> {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        let start = length.saturating_sub(TAIL_LENGTH).max(from);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(TAIL_LENGTH).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let lines = text
        .lines()
        .map(|line| without_colors(line).trim().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn quotes_the_line_that_names_the_error() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        for (text, quoted) in [
            ("one\ntwo\n\n", ": \"two\""),
            ("\u{1b}[0m\u{1b}[0m\n", ""),
            (
                "a\n\u{1b}[31;1mred\u{1b}[0m thing\u{1b}[",
                ": \"red thing\"",
            ),
        ] {
            fs::write(&log, text).unwrap();
            assert_eq!(last_line(&log, 0), quoted, "{text:?}");
        }
        let maven = "fine\n[ERROR] A.scala:3: not found\n[ERROR] [Help 1] somewhere\n\u{1b}[0m";
        fs::write(&log, maven).unwrap();
        assert_eq!(error_line(&log), ": \"[ERROR] A.scala:3: not found\"");
        assert_eq!(last_line(&folder.path().join("none"), 0), "");
    }

    #[test]
    fn quotes_no_line_of_an_earlier_process() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, "listening\n").unwrap();
        assert_eq!(last_line(&log, 10), "");
        fs::write(&log, "listening\ndisk full\n").unwrap();
        assert_eq!(last_line(&log, 10), ": \"disk full\"");
    }
}
