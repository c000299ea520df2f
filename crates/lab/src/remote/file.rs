//! Reads the file of `floodmark observe` while it grows.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use floodmark_plan::FileError;
use floodmark_record::watch::{
    ClockReading, MeasuredOffset, OBSERVER_FILE_VERSION, ObservedSecond, ObserverLine,
    ObserverOpened, SeriesGroup,
};
use serde_json::Value;

use floodmark_workers::read_line;

/// Maximum length of a line, in bytes. A second with all its series takes a few KiB.
const LINE_LIMIT: usize = 4 << 20;

/// Number of seconds to keep after an attempt. The next attempt may need these seconds.
const KEPT_SECONDS: usize = 60;

/// Maximum number of messages about failed samples to keep.
const MISSING_LIMIT: usize = 200;

/// Interval between two reads of new lines.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Advice if floodmark observe did not write the file.
const NAME_THE_FILE: &str = "name the file that floodmark observe writes";

/// The file of an observation in progress.
#[derive(Debug)]
pub struct ObserverFile {
    path: PathBuf,
    reader: BufReader<File>,
    /// Beginning of a line whose end has not been read yet.
    partial: Vec<u8>,
    /// Number of lines read.
    pub lines: usize,
    /// The first line.
    pub opened: ObserverOpened,
    /// Series groups by number. Each entry also contains the expected start of the group's next
    /// values, in ms.
    groups: BTreeMap<u32, (SeriesGroup, Option<u64>)>,
    /// The latest seconds.
    pub seconds: VecDeque<ObservedSecond>,
    /// The measured offset of the observer's clock; `None` if it was not measured.
    pub offset: Option<MeasuredOffset>,
    /// Why the observation ended; `None` while it is in progress.
    pub ended: Option<String>,
    /// One-line messages about the samples that have failed so far.
    pub missing: Vec<String>,
}

impl ObserverFile {
    /// Opens a file and reads its current content.
    ///
    /// # Errors
    /// The file is missing, or was not written by an observer of this version.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let metadata = path.metadata().map_err(|error| unreadable(path, error))?;
        if !metadata.is_file() {
            return Err(unreadable(path, io::Error::other("not a regular file")));
        }
        let file = File::open(path).map_err(|error| unreadable(path, error))?;
        let mut reader = BufReader::new(file);
        let mut first = Vec::new();
        let complete = read_line(&mut reader, &mut first, LINE_LIMIT)
            .map_err(|error| unreadable(path, error))?;
        let opened = if complete {
            parse_opened(&first)
        } else {
            Err("the file is empty or its first line is incomplete".to_owned())
        };
        let opened = opened
            .map_err(|what| FileError::on_line(path, 1, format!("{what}; {NAME_THE_FILE}")))?;
        let mut file = Self {
            path: path.to_owned(),
            reader,
            partial: Vec::new(),
            lines: 1,
            opened,
            groups: BTreeMap::new(),
            seconds: VecDeque::new(),
            offset: None,
            ended: None,
            missing: Vec::new(),
        };
        file.read_on()?;
        file.drop_old();
        Ok(file)
    }

    /// Reads the lines appended since the last call.
    ///
    /// # Errors
    /// The file cannot be read, or a line is invalid.
    pub fn read_on(&mut self) -> Result<(), FileError> {
        loop {
            let complete = read_line(&mut self.reader, &mut self.partial, LINE_LIMIT)
                .map_err(|error| unreadable(&self.path, error))?;
            if !complete {
                return Ok(());
            }
            self.lines += 1;
            let line = std::mem::take(&mut self.partial);
            self.take(&line).map_err(|what| {
                self.invalid(format!(
                    "{what}; the file was changed or truncated, so restart floodmark observe"
                ))
            })?;
        }
    }

    /// Reads new lines until a condition holds, the observation ends, or the timeout expires.
    /// Returns whether the condition holds.
    ///
    /// # Errors
    /// See [`ObserverFile::read_on`].
    pub fn wait_for(
        &mut self,
        timeout: Duration,
        mut condition: impl FnMut(&Self) -> bool,
    ) -> Result<bool, FileError> {
        let deadline = Instant::now() + timeout;
        loop {
            self.read_on()?;
            if condition(self) {
                return Ok(true);
            }
            if self.ended.is_some() || Instant::now() >= deadline {
                return Ok(false);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns the series groups by number.
    pub fn groups(&self) -> impl Iterator<Item = (u32, &SeriesGroup)> {
        let groups = self.groups.iter();
        groups.map(|(number, (group, _))| (*number, group))
    }

    /// Returns the latest clock reading from the observed host.
    pub fn clocks(&self) -> &ClockReading {
        let last = self.seconds.back();
        last.map_or(&self.opened.clocks, |second| &second.clocks)
    }

    /// Drops all but the latest seconds.
    pub fn drop_old(&mut self) {
        let old = self.seconds.len().saturating_sub(KEPT_SECONDS);
        self.seconds.drain(..old);
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns an error about the line that was read last.
    pub fn invalid(&self, message: String) -> FileError {
        FileError::on_line(&self.path, self.lines, message)
    }

    fn take(&mut self, line: &[u8]) -> Result<(), String> {
        let line = ObserverLine::from_line(line)
            .map_err(|error| format!("not a line written by floodmark observe ({error})"))?;
        match line {
            ObserverLine::Opened(_) => {
                return Err("the file contains a second observation".to_owned());
            }
            ObserverLine::Group(group) => match self.groups.get_mut(&group.group) {
                None => {
                    self.groups.insert(group.group, (group, None));
                }
                // A later description may append new series to the known ones.
                Some((known, _)) if group.series.starts_with(&known.series) => *known = group,
                Some(_) => return Err(format!("group {} is described twice", group.group)),
            },
            ObserverLine::Second(second) => {
                self.check_continuity(&second)?;
                let room = MISSING_LIMIT.saturating_sub(self.missing.len());
                self.missing
                    .extend(second.missing.iter().take(room).cloned());
                self.seconds.push_back(second);
            }
            ObserverLine::Offset(offset) => self.offset = Some(offset),
            ObserverLine::Pong { .. } => {
                return Err(
                    "unexpected pong line; use a file written by floodmark observe".to_owned(),
                );
            }
            ObserverLine::Ended { why } => self.ended = Some(why),
        }
        Ok(())
    }

    /// Checks that `second` starts where the previous line ends, and that no series has a gap.
    fn check_continuity(&mut self, second: &ObservedSecond) -> Result<(), String> {
        let before = self.seconds.back().map_or(second.from_ms, |s| s.to_ms);
        if second.from_ms != before || second.to_ms < second.from_ms {
            return Err(format!(
                "the line covers {} to {} ms, but the previous line ends at {before} ms",
                second.from_ms, second.to_ms
            ));
        }
        for values in &second.groups {
            let number = values.group;
            let Some((group, next)) = self.groups.get_mut(&number) else {
                return Err(format!("group {number} has values but no description"));
            };
            let steps = values.values.first().map_or(0, Vec::len);
            let even = values.values.iter().all(|series| series.len() == steps);
            if values.values.len() != group.series.len() || !even || values.step_ms == 0 {
                return Err(format!(
                    "the values of group {number} do not match its description"
                ));
            }
            if next.is_some_and(|next| next != values.start_ms) {
                return Err(format!("the values of group {number} have a gap"));
            }
            let length = values.step_ms.checked_mul(steps as u64);
            *next = length.and_then(|length| values.start_ms.checked_add(length));
            if next.is_none() {
                return Err(format!("the times of group {number} overflow"));
            }
        }
        Ok(())
    }
}

fn unreadable(path: &Path, error: io::Error) -> FileError {
    FileError::in_file(path, format!("{error}; {NAME_THE_FILE}"))
}

/// Parses the first line.
fn parse_opened(line: &[u8]) -> Result<ObserverOpened, String> {
    if let Ok(ObserverLine::Opened(opened)) = ObserverLine::from_line(line)
        && opened.schema == OBSERVER_FILE_VERSION
    {
        return Ok(*opened);
    }
    // The first line contains these fields in every version.
    let any: Value = serde_json::from_slice(line).unwrap_or_default();
    Err(match any["schema"].as_u64() {
        Some(version) if any["line"] == "opened" && version != u64::from(OBSERVER_FILE_VERSION) => {
            format!(
                "format version {version} is not supported (expected {OBSERVER_FILE_VERSION}); \
                 use the same floodmark version on both hosts"
            )
        }
        _ => "not a file written by floodmark observe".to_owned(),
    })
}
