//! Counts the error lines in a server's log for each attempt, and quotes a line of a program's log
//! in messages.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use floodmark_host::{failure_line, without_colors};
use floodmark_record::watch::{LogErrors, Logged};

/// Maximum number of bytes that are searched in each line.
const LINE_LIMIT: usize = 64 * 1024;

/// Maximum length of a quoted line, in characters.
const QUOTE_LIMIT: usize = 200;

/// Number of bytes read from the end of a log.
const TAIL_LENGTH: u64 = 4096;

/// A server's log. Lines written before the attempts started are skipped.
#[derive(Debug)]
pub struct ServerLog {
    path: PathBuf,
    texts: Vec<String>,
    runtime: Option<String>,
    /// Position of the first unread byte.
    read_to: u64,
}

impl ServerLog {
    /// Starts at the current end of a log. Counts lines that contain any of `texts`.
    #[must_use]
    pub fn from_now(path: &Path, texts: &[String], runtime: Option<&str>) -> Self {
        ServerLog {
            path: path.to_owned(),
            texts: texts.to_vec(),
            runtime: runtime.map(str::to_owned),
            // A log that does not exist yet is read from its start.
            read_to: fs::metadata(path).map_or(0, |meta| meta.len()),
        }
    }

    /// Counts the complete lines written since the last call. Returns an error message if the log
    /// cannot be read.
    pub fn take(&mut self) -> (Logged, Option<String>) {
        let mut logged = Logged {
            runtime: self.runtime.clone(),
            errors: Vec::new(),
        };
        if self.texts.is_empty() {
            return (logged, None);
        }
        let counted = self.count().map(|counted| logged.errors = counted);
        let path = self.path.display();
        let failed = |error| format!("the server's log {path}: {error}");
        (logged, counted.err().map(failed))
    }

    fn count(&mut self) -> io::Result<Vec<LogErrors>> {
        let texts = self.texts.iter().cloned();
        let counted = texts.map(|text| LogErrors { text, lines: 0 });
        let mut counted: Vec<LogErrors> = counted.collect();
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.read_to))?;
        let mut reader = BufReader::with_capacity(LINE_LIMIT, file);
        let (mut line, mut length) = (Vec::new(), 0u64);
        loop {
            let piece = reader.fill_buf()?;
            if piece.is_empty() {
                return Ok(counted);
            }
            let end = piece.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(piece.len(), |end| end + 1);
            let room = LINE_LIMIT.saturating_sub(line.len());
            line.extend_from_slice(&piece[..taken.min(room)]);
            reader.consume(taken);
            length += taken as u64;
            if end.is_some() {
                for errors in &mut counted {
                    errors.lines += u64::from(contains(&line, errors.text.as_bytes()));
                }
                self.read_to += length;
                line.clear();
                length = 0;
            }
        }
    }
}

fn contains(line: &[u8], text: &[u8]) -> bool {
    line.windows(text.len().max(1)).any(|part| part == text)
}

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
        let line: String = line.chars().take(QUOTE_LIMIT).collect();
        format!(": \"{line}\"")
    })
}

/// Returns the end of a log, excluding the log's first `from` bytes.
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
    use std::io::Write;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn lines(log: &mut ServerLog) -> Vec<u64> {
        let (logged, error) = log.take();
        assert_eq!(error, None);
        logged.errors.iter().map(|errors| errors.lines).collect()
    }

    #[test]
    fn counts_lines_per_attempt() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"AskTimeoutException while starting\n")
            .unwrap();
        let errors = texts(&["AskTimeoutException", "rejected"]);
        let mut log = ServerLog::from_now(&path, &errors, Some("jvm"));
        assert_eq!(lines(&mut log), [0, 0]);
        file.write_all(
            b"a AskTimeoutException AskTimeoutException\n\nrejected: AskTimeoutException\nAskTime",
        )
        .unwrap();
        assert_eq!(lines(&mut log), [2, 1]);
        // A line belongs to the attempt in which it ends.
        file.write_all(b"outException\n\xff\xfe rejected\n")
            .unwrap();
        assert_eq!(lines(&mut log), [1, 1]);
        assert_eq!(log.take().0.runtime.as_deref(), Some("jvm"));
    }

    #[test]
    fn searches_only_the_start_of_a_long_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut log = ServerLog::from_now(&path, &texts(&["x"]), None);
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![b'.'; 5 * LINE_LIMIT]).unwrap();
        file.write_all(b"x\nx\n").unwrap();
        assert_eq!(
            lines(&mut log),
            [1],
            "the end of the long line is not searched"
        );
    }

    #[test]
    fn reads_nothing_without_texts_and_names_a_missing_log() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing");
        let mut log = ServerLog::from_now(&missing, &[], None);
        assert_eq!(log.take(), (Logged::default(), None));
        let mut log = ServerLog::from_now(&missing, &texts(&["x"]), None);
        let (logged, error) = log.take();
        assert_eq!(logged, Logged::default());
        assert!(error.unwrap().contains("missing"));
    }

    #[test]
    fn quotes_the_line_that_names_the_error() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        fs::write(&log, "error: no disk\nUsage: serve\n").unwrap();
        assert_eq!(quote_failure(&log, 0), ": \"error: no disk\"");
        let maven = "fine\n[ERROR] A.scala:3: not found\n[ERROR] [Help 1] somewhere\n\u{1b}[0m";
        fs::write(&log, maven).unwrap();
        assert_eq!(
            quote_build_failure(&log),
            ": \"[ERROR] A.scala:3: not found\""
        );
        assert_eq!(quote_failure(&directory.path().join("none"), 0), "");
    }

    #[test]
    fn ignores_lines_of_an_earlier_process() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        fs::write(&log, "listening\n").unwrap();
        assert_eq!(quote_failure(&log, 10), "");
        fs::write(&log, "listening\ndisk full\n").unwrap();
        assert_eq!(quote_failure(&log, 10), ": \"disk full\"");
    }
}
