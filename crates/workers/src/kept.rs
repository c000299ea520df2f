//! Joins the agents' kept responses into one file, with all times on one clock.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;

use floodmark_record::kept::{KEPT_BYTES, KeptScore, TotalLine};
use floodmark_record::operation::KeptOperation;
use floodmark_record::plan::Check;

/// Size of the buffers for reading and writing, in bytes.
const BUFFER: usize = 1 << 20;

/// The kept responses of one agent, and the agent's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeptPart<'a> {
    /// File with the responses, in the format of
    /// [`AnswersFile`](floodmark_record::events::AnswersFile).
    pub path: &'a Path,
    /// Offset in ns to add to the agent's times to convert them to the coordinator's clock.
    pub shift_ns: i64,
    /// Maximum error of `shift_ns` in ns.
    pub bound_ns: u64,
    /// Expected totals of the agent's scores; `None` for other checks, or if there are no
    /// responses.
    pub line: Option<TotalLine>,
}

/// Writes the responses of all agents to `to`, with times on the coordinator's clock. Converts
/// scores to the [`TotalLine`] of the first part that has one. Returns the number of responses.
///
/// Each request's interval from sending to completion is widened by the agent's `bound_ns` on both
/// sides. A check therefore reports only violations that are certain.
///
/// # Errors
/// A file cannot be read or written, or its length is not a multiple of 24 bytes.
pub(crate) fn join_kept(check: &Check, parts: &[KeptPart<'_>], to: &Path) -> io::Result<u64> {
    let first_line = parts.iter().find_map(|part| part.line);
    let unwritten = |error: io::Error| at(to, &error);
    let mut out = BufWriter::with_capacity(BUFFER, File::create(to).map_err(unwritten)?);
    let mut count = 0;
    for part in parts {
        let ahead_by = match (part.line, first_line) {
            (Some(line), Some(first)) => line.ahead_of(&first),
            _ => Some(0),
        };
        let unread = |error: io::Error| at(part.path, &error);
        let file = File::open(part.path).map_err(unread)?;
        let bytes = file.metadata().map_err(unread)?.len();
        if !bytes.is_multiple_of(KEPT_BYTES as u64) {
            let error = format!("the size, {bytes} bytes, is not a multiple of {KEPT_BYTES} bytes");
            return Err(unread(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        let mut file = BufReader::with_capacity(BUFFER, file);
        let responses = bytes / KEPT_BYTES as u64;
        for _ in 0..responses {
            let mut words = [[0; 8]; 3];
            file.read_exact(words.as_flattened_mut()).map_err(unread)?;
            let words = part.convert(check, words.map(u64::from_le_bytes), ahead_by);
            let bytes = words.map(u64::to_le_bytes);
            out.write_all(bytes.as_flattened()).map_err(unwritten)?;
        }
        count += responses;
    }
    out.flush().map_err(unwritten)?;
    Ok(count)
}

impl KeptPart<'_> {
    /// Converts a response. The agent's line is `ahead_by` scores above the common line.
    fn convert(&self, check: &Check, words: [u64; 3], ahead_by: Option<i32>) -> [u64; 3] {
        match check {
            Check::Sequence => {
                let [number, sent_ns, done_ns] = words;
                [number, self.earliest(sent_ns), self.latest(done_ns)]
            }
            Check::Scoring { .. } => {
                let score = KeptScore(words).moved(ahead_by, 0);
                let (sent_ns, done_ns) =
                    (self.earliest(score.sent_ns()), self.latest(score.done_ns()));
                KeptScore::new(score.number(), score.distance(), sent_ns, done_ns).0
            }
            Check::Api(_) => {
                let operation = KeptOperation(words);
                let sent_ns = self.earliest(operation.sent_ns());
                operation.at(sent_ns, self.latest(operation.done_ns())).0
            }
        }
    }

    /// Returns the lower bound of an agent's time on the coordinator's clock.
    fn earliest(&self, ns: u64) -> u64 {
        ns.saturating_add_signed(self.shift_ns)
            .saturating_sub(self.bound_ns)
    }

    /// Returns the upper bound of an agent's time on the coordinator's clock.
    fn latest(&self, ns: u64) -> u64 {
        ns.saturating_add_signed(self.shift_ns)
            .saturating_add(self.bound_ns)
    }
}

/// Adds a file's path to an error.
fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
#[path = "kept_tests.rs"]
mod tests;
