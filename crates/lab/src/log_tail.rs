//! Quotes a line of a program's log in messages.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use floodmark_host::{failure_line, without_colors};

/// Maximum length of a quoted line, in characters.
const LINE_LIMIT: usize = 200;

/// Number of bytes read from the end of a log.
const TAIL_LENGTH: u64 = 4096;

/// Quotes the log line that best explains a failure. Ignores the first `from` bytes of the log.
/// Returns an empty string if there is no such line.
pub fn quote_failure(log: &Path, from: u64) -> String {
    quote(failure_line(&tail(log, from)))
}

/// Quotes the first Maven error in the tail of a build log. Without a Maven error, quotes the line
/// that best explains a failure.
pub fn quote_build_failure(log: &Path) -> String {
    let tail = without_colors(&tail(log, 0));
    let mut lines = tail.lines().map(str::trim);
    let error = lines.find(|line| line.starts_with("[ERROR]"));
    quote(error.map(str::to_owned).or_else(|| failure_line(&tail)))
}

fn quote(line: Option<String>) -> String {
    line.map_or_else(String::new, |line| {
        let line: String = line.chars().take(LINE_LIMIT).collect();
        format!(": \"{line}\"")
    })
}

/// Returns the end of a log, without its first `from` bytes.
fn tail(log: &Path, from: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        let start = length.saturating_sub(TAIL_LENGTH).max(from);
        file.seek(SeekFrom::Start(start))?;
        let mut bytes = Vec::new();
        file.take(TAIL_LENGTH).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn quotes_the_line_that_names_the_error() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, "error: no disk\nUsage: serve\n").unwrap();
        assert_eq!(quote_failure(&log, 0), ": \"error: no disk\"");
        let maven = "fine\n[ERROR] A.scala:3: not found\n[ERROR] [Help 1] somewhere\n\u{1b}[0m";
        fs::write(&log, maven).unwrap();
        assert_eq!(
            quote_build_failure(&log),
            ": \"[ERROR] A.scala:3: not found\""
        );
        assert_eq!(quote_failure(&folder.path().join("none"), 0), "");
    }

    #[test]
    fn ignores_lines_of_an_earlier_process() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        fs::write(&log, "listening\n").unwrap();
        assert_eq!(quote_failure(&log, 10), "");
        fs::write(&log, "listening\ndisk full\n").unwrap();
        assert_eq!(quote_failure(&log, 10), ": \"disk full\"");
    }
}
