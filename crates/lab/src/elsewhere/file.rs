//! The file of `floodmark observe`, read while it grows.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use floodmark_record::elsewhere::{FILE_VERSION, Group, Line, Opened, Second};
use serde_json::Value;

/// Longest line: a second with all its series takes a few KiB.
const LONGEST_LINE: usize = 4 << 20;

/// Seconds that are kept of what was observed before the load. They are there to tell two clocks apart, which are not farther off
/// than that.
const KEPT: usize = 20 * 60;

/// Lines that are kept on what could not be read.
const MOST_MISSING: usize = 200;

/// How often a file is looked at that is to grow.
const GLANCE: Duration = Duration::from_millis(50);

/// Why a file is not taken.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It cannot be read.
    #[error("{}: {source}; name the file that floodmark observe writes", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It says something else than it should.
    #[error("{}:{line}: {what}", path.display())]
    Says {
        /// Which.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong, and the mend.
        what: String,
    },
}

/// An observation that goes on.
#[derive(Debug)]
pub struct ObserverFile {
    path: PathBuf,
    reader: BufReader<File>,
    /// A line that has not been written to its end yet.
    begun: Vec<u8>,
    /// Lines read.
    pub lines: usize,
    /// What is observed.
    pub opened: Opened,
    /// What values are of, with where the next of each group begin, ms.
    groups: BTreeMap<u32, (Group, Option<u64>)>,
    /// What was read.
    pub seconds: VecDeque<Second>,
    /// Why it ended, where it has.
    pub ended: Option<String>,
    /// What could not be read there so far.
    pub missing: Vec<String>,
}

impl ObserverFile {
    /// Opens a file and reads what it holds so far.
    ///
    /// # Errors
    /// It is not there, is no file of `observe`, or of another version.
    pub fn open(path: &Path) -> Result<Self, Unusable> {
        let unread = |source| Unusable::Read {
            path: path.to_owned(),
            source,
        };
        let metadata = path.metadata().map_err(unread)?;
        if !metadata.is_file() {
            return Err(unread(io::Error::other(
                "is no regular file, which is read again after each attempt",
            )));
        }
        let mut reader = BufReader::new(File::open(path).map_err(unread)?);
        let mut begun = Vec::new();
        let whole = read_line(&mut reader, &mut begun).map_err(unread)?;
        let opened = match whole {
            true => parse_opened(&begun),
            false => Err("is empty or its first line is not whole".to_owned()),
        };
        let opened = opened.map_err(|what| Unusable::Says {
            path: path.to_owned(),
            line: 1,
            what: format!("{what}; name the file that floodmark observe writes"),
        })?;
        let mut file = Self {
            path: path.to_owned(),
            reader,
            begun: Vec::new(),
            lines: 1,
            opened,
            groups: BTreeMap::new(),
            seconds: VecDeque::new(),
            ended: None,
            missing: Vec::new(),
        };
        file.read_on()?;
        let old = file.seconds.len().saturating_sub(KEPT);
        file.seconds.drain(..old);
        Ok(file)
    }

    /// Reads what has been added.
    ///
    /// # Errors
    /// It cannot be read, or says something else than it should.
    pub fn read_on(&mut self) -> Result<(), Unusable> {
        loop {
            let whole = read_line(&mut self.reader, &mut self.begun);
            let whole = whole.map_err(|source| Unusable::Read {
                path: self.path.clone(),
                source,
            })?;
            if !whole {
                return Ok(());
            }
            self.lines += 1;
            let line = std::mem::take(&mut self.begun);
            self.take(&line).map_err(|what| Unusable::Says {
                path: self.path.clone(),
                line: self.lines,
                what,
            })?;
        }
    }

    /// Reads on until something holds of it, it has ended, or a time is over; whether it holds.
    ///
    /// # Errors
    /// Those of [`ObserverFile::read_on`].
    pub fn wait_for(
        &mut self,
        at_most: Duration,
        mut holds: impl FnMut(&Self) -> bool,
    ) -> Result<bool, Unusable> {
        let end = Instant::now() + at_most;
        loop {
            self.read_on()?;
            if holds(self) {
                return Ok(true);
            }
            if self.ended.is_some() || Instant::now() >= end {
                return Ok(false);
            }
            std::thread::sleep(GLANCE);
        }
    }

    /// What values are of, by the number of their group.
    pub fn groups(&self) -> impl Iterator<Item = (u32, &Group)> {
        let groups = self.groups.iter();
        groups.map(|(number, (group, _))| (*number, group))
    }

    /// Forgets all but the latest of what was read.
    pub fn forget(&mut self) {
        let old = self.seconds.len().saturating_sub(KEPT);
        self.seconds.drain(..old);
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn take(&mut self, line: &[u8]) -> Result<(), String> {
        let garbled = |what: &str| format!("{what}: the file was changed or cut; observe anew");
        let line: Line = serde_json::from_slice(line)
            .map_err(|error| garbled(&format!("no line of floodmark observe ({error})")))?;
        match line {
            Line::Opened(_) => Err(garbled("a second observation begins here")),
            Line::Group(group) => match self.groups.get_mut(&group.group) {
                None => {
                    self.groups.insert(group.group, (group, None));
                    Ok(())
                }
                // Series that were found while it was being read, behind those that were known.
                Some((known, _)) if group.series.starts_with(&known.series) => {
                    *known = group;
                    Ok(())
                }
                Some(_) => {
                    let what = format!("group {} is described anew", group.group);
                    Err(garbled(&what))
                }
            },
            Line::Second(second) => {
                self.follows(&second).map_err(|what| garbled(&what))?;
                // Each line stands there once.
                let room = MOST_MISSING.saturating_sub(self.missing.len());
                self.missing
                    .extend(second.missing.iter().take(room).cloned());
                self.seconds.push_back(second);
                Ok(())
            }
            Line::Ended { why } => {
                self.ended = Some(why);
                Ok(())
            }
        }
    }

    /// Holds a second against those before it.
    fn follows(&mut self, second: &Second) -> Result<(), String> {
        let before = self.seconds.back().map_or(second.from_ms, |s| s.to_ms);
        if second.from_ms != before || second.to_ms < second.from_ms {
            return Err(format!(
                "a second from {} to {} ms, after one that ends at {before} ms",
                second.from_ms, second.to_ms
            ));
        }
        for values in &second.groups {
            let number = values.group;
            let Some((group, next)) = self.groups.get_mut(&number) else {
                return Err(format!("values of group {number}, which is not described"));
            };
            let steps = values.values.first().map_or(0, Vec::len);
            let even = values.values.iter().all(|series| series.len() == steps);
            if values.values.len() != group.series.len() || !even || values.step_ms == 0 {
                return Err(format!("values of group {number} that do not fit it"));
            }
            if next.is_some_and(|next| next != values.start_ms) {
                return Err(format!("values of group {number} with a gap before them"));
            }
            let length = values.step_ms.checked_mul(steps as u64);
            *next = length.and_then(|length| values.start_ms.checked_add(length));
            if next.is_none() {
                return Err(format!("values of group {number} beyond all time"));
            }
        }
        Ok(())
    }
}

/// Reads up to the end of a line, without its line feed; whether that has been reached.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        let available = reader.fill_buf()?;
        if available.is_empty() {
            return Ok(false);
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let taken = end.unwrap_or(available.len());
        line.extend_from_slice(&available[..taken]);
        reader.consume(taken + usize::from(end.is_some()));
        if line.len() > LONGEST_LINE {
            return Err(io::Error::other("a line is longer than 4 MiB"));
        }
        if end.is_some() {
            return Ok(true);
        }
    }
}

/// Reads the first line.
fn parse_opened(line: &[u8]) -> Result<Opened, String> {
    if let Ok(Line::Opened(opened)) = serde_json::from_slice(line)
        && opened.schema == FILE_VERSION
    {
        return Ok(opened);
    }
    // What the first line of every version has.
    let any: Value = serde_json::from_slice(line).unwrap_or_default();
    Err(match any["schema"].as_u64() {
        Some(version) if any["line"] == "opened" && version != u64::from(FILE_VERSION) => format!(
            "is of version {version} of the format, this floodmark reads version {FILE_VERSION}: have the same floodmark on \
             both machines"
        ),
        _ => "is no file of floodmark observe".to_owned(),
    })
}
