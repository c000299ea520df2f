//! Lines of a server's log that its manifest wants counted, attempt by attempt.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use floodmark_record::logged::{LogErrors, Logged};

/// Part of a line that is looked at, bytes: no line makes the memory grow.
const LONGEST_LINE: usize = 64 * 1024;

/// A server's log, read from where it was when its attempts began.
#[derive(Debug)]
pub struct ServerLog {
    path: PathBuf,
    texts: Vec<String>,
    runtime: Option<String>,
    /// How far it has been read, bytes.
    read_to: u64,
}

impl ServerLog {
    /// The log of a server that runs on `runtime`, from its end on; lines with `texts` are counted.
    #[must_use]
    pub fn from_now(path: &Path, texts: &[String], runtime: Option<&str>) -> Self {
        ServerLog {
            path: path.to_owned(),
            texts: texts.to_vec(),
            runtime: runtime.map(str::to_owned),
            // One that is not there yet is read from its beginning.
            read_to: fs::metadata(path).map_or(0, |meta| meta.len()),
        }
    }

    /// What was said since the last time, up to the last whole line; what could not be read is a line of its own.
    pub fn take(&mut self) -> (Logged, Option<String>) {
        let mut logged = Logged {
            runtime: self.runtime.clone(),
            errors: Vec::new(),
        };
        if self.texts.is_empty() {
            return (logged, None);
        }
        match self.count() {
            Ok(counted) => {
                let texts = self.texts.iter().cloned();
                let counted = texts.zip(counted);
                logged.errors = counted
                    .map(|(text, lines)| LogErrors { text, lines })
                    .collect();
                (logged, None)
            }
            Err(error) => {
                let path = self.path.display();
                let what = format!("errors in the server's log {path}: {error}");
                (logged, Some(what))
            }
        }
    }

    fn count(&mut self) -> io::Result<Vec<u64>> {
        let mut counted = vec![0; self.texts.len()];
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.read_to))?;
        let mut reader = BufReader::with_capacity(LONGEST_LINE, file);
        let (mut line, mut length) = (Vec::new(), 0u64);
        loop {
            let piece = reader.fill_buf()?;
            if piece.is_empty() {
                return Ok(counted);
            }
            let end = piece.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(piece.len(), |end| end + 1);
            let room = LONGEST_LINE.saturating_sub(line.len());
            line.extend_from_slice(&piece[..taken.min(room)]);
            reader.consume(taken);
            length += taken as u64;
            if end.is_some() {
                for (n, text) in counted.iter_mut().zip(&self.texts) {
                    *n += u64::from(holds(&line, text.as_bytes()));
                }
                self.read_to += length;
                line.clear();
                length = 0;
            }
        }
    }
}

fn holds(line: &[u8], text: &[u8]) -> bool {
    line.windows(text.len().max(1)).any(|part| part == text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn lines(log: &mut ServerLog) -> Vec<u64> {
        let (logged, trouble) = log.take();
        assert_eq!(trouble, None);
        logged.errors.iter().map(|errors| errors.lines).collect()
    }

    #[test]
    fn lines_are_counted_attempt_by_attempt() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut file = File::create(&path).unwrap();
        file.write_all(b"AskTimeoutException while starting\n")
            .unwrap();
        let looked_for = texts(&["AskTimeoutException", "rejected"]);
        let mut log = ServerLog::from_now(&path, &looked_for, Some("jvm"));
        assert_eq!(lines(&mut log), [0, 0]);
        file.write_all(
            b"a AskTimeoutException AskTimeoutException\n\nrejected: AskTimeoutException\nAskTime",
        )
        .unwrap();
        assert_eq!(lines(&mut log), [2, 1]);
        // The line that was being written belongs to the attempt in which it ends.
        file.write_all(b"outException\n\xff\xfe rejected\n")
            .unwrap();
        assert_eq!(lines(&mut log), [1, 1]);
        assert_eq!(log.take().0.runtime.as_deref(), Some("jvm"));
    }

    #[test]
    fn a_line_without_end_takes_no_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut log = ServerLog::from_now(&path, &texts(&["x"]), None);
        let mut file = File::create(&path).unwrap();
        file.write_all(&vec![b'.'; 5 * LONGEST_LINE]).unwrap();
        file.write_all(b"x\nx\n").unwrap();
        assert_eq!(
            lines(&mut log),
            [1],
            "what is beyond the part that is looked at is not"
        );
    }

    #[test]
    fn without_texts_nothing_is_read_and_without_a_log_that_is_said() {
        let gone = Path::new("no/such/log");
        let mut log = ServerLog::from_now(gone, &[], None);
        assert_eq!(log.take(), (Logged::default(), None));
        let mut log = ServerLog::from_now(gone, &texts(&["x"]), None);
        let (logged, trouble) = log.take();
        assert_eq!(logged, Logged::default());
        assert!(trouble.unwrap().contains("no/such/log"));
    }
}
