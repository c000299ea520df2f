//! When each call of a trace becomes durable. Independent of the crash point.

use std::collections::{HashMap, HashSet};

use super::journal;
use crate::trace::{BaseNode, EntryName, FileId, Operation, Trace};

/// Which directory entries a sync makes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Persistence {
    /// The minimum of POSIX: an entry is durable only after a sync of its folder. A sync of a new
    /// file does not make its name durable. Entries of different names persist in any order.
    #[default]
    Strict,
    /// Like a journaling file system (ext4, XFS): entries persist in the order of the calls. A sync
    /// makes durable every entry that changed no later than the synced file or folder.
    Journaled,
}

/// Position that no crash point reaches.
pub(super) const NEVER: u64 = u64::MAX;

/// A trace, and the position from which each of its calls is durable.
#[derive(Debug)]
pub struct DiskHistory<'t> {
    pub(super) trace: &'t Trace,
    pub(super) persistence: Persistence,
    /// Position from which the entry or the data is durable, per call.
    pub(super) durable_from: Vec<u64>,
    /// Position from which the removal of the old name is durable, per rename to another folder.
    /// Strict model only. The new name can be durable earlier.
    pub(super) removal_durable_from: HashMap<usize, u64>,
    /// Position from which the size is durable, per call.
    pub(super) size_durable_from: Vec<u64>,
    /// File size in bytes that the call sets, if the call changes the size.
    pub(super) new_size: Vec<Option<u64>>,
    /// Whether the call makes the file smaller.
    pub(super) shrinks: Vec<bool>,
    /// Files in which a later write can be durable before an earlier one.
    pub(super) unordered: HashSet<FileId>,
}

impl<'t> DiskHistory<'t> {
    /// Analyses a trace.
    #[must_use]
    pub fn new(trace: &'t Trace, persistence: Persistence) -> Self {
        let count = trace.calls.len();
        let mut history = DiskHistory {
            trace,
            persistence,
            durable_from: vec![NEVER; count],
            removal_durable_from: HashMap::new(),
            size_durable_from: vec![NEVER; count],
            new_size: vec![None; count],
            shrinks: vec![false; count],
            unordered: HashSet::new(),
        };
        history.find_sizes();
        let syncs = Syncs::of(trace);
        history.find_durable_data(&syncs);
        history.find_durable_entries(&syncs);
        history.find_unordered();
        history
    }

    fn find_sizes(&mut self) {
        let mut sizes: HashMap<FileId, u64> = HashMap::new();
        let base = &self.trace.base;
        for (index, call) in self.trace.calls.iter().enumerate() {
            let Some(file) = call.operation.changed_file() else {
                continue;
            };
            let size = sizes.entry(file).or_insert_with(|| base_size(base, file));
            let new_size = match &call.operation {
                Operation::Write { bytes, .. } if bytes.is_empty() => *size,
                Operation::Write { offset, bytes, .. } => (*size).max(offset + bytes.len() as u64),
                Operation::Resize { size, .. } => *size,
                _ => continue,
            };
            if new_size != *size {
                self.new_size[index] = Some(new_size);
                self.shrinks[index] = new_size < *size;
                *size = new_size;
            }
        }
    }

    fn find_durable_data(&mut self, syncs: &Syncs) {
        for (index, call) in self.trace.calls.iter().enumerate() {
            let Some(file) = call.operation.changed_file() else {
                continue;
            };
            let sync = syncs.covering(file, call.ended);
            let mut size = sync.map_or(NEVER, |sync| sync.ended);
            // A failed sync may drop the data, and let a later sync report success (fsync(2)).
            let is_kept = |sync: &SyncSpan| !syncs.has_failed(file, call.began, sync.ended);
            let mut data = sync.filter(is_kept).map_or(NEVER, |sync| sync.ended);
            if matches!(call.operation, Operation::Write { durable: true, .. }) {
                data = call.ended;
                size = call.ended;
            }
            self.durable_from[index] = data;
            self.size_durable_from[index] = size;
        }
    }

    /// A change to a name implies all earlier changes to the name.
    fn find_durable_entries(&mut self, syncs: &Syncs) {
        let mut required: HashMap<&EntryName, u64> = HashMap::new();
        let trace: &'t Trace = self.trace;
        let journal = match self.persistence {
            Persistence::Strict => Vec::new(),
            Persistence::Journaled => journal::durable_from(trace, &self.new_size),
        };
        for (index, call) in trace.calls.iter().enumerate().rev() {
            let names = call.operation.names();
            let Some(last) = names.last() else {
                continue;
            };
            let synced = |name: &EntryName| {
                let sync = syncs.covering(name.folder, call.ended);
                sync.map_or(NEVER, |sync| sync.ended)
            };
            let mut from = match journal.get(index) {
                Some(from) => *from,
                None => synced(last),
            };
            if let (
                Persistence::Strict,
                Operation::Rename {
                    from: old,
                    to,
                    swap,
                },
            ) = (self.persistence, &call.operation)
                && old.folder != to.folder
            {
                let both = from.max(synced(old));
                if *swap {
                    from = both;
                } else {
                    let required = required.get(old).copied().unwrap_or(NEVER);
                    self.removal_durable_from.insert(index, both.min(required));
                }
            }
            let by_name = names.iter().filter_map(|name| required.get(name).copied());
            from = by_name.fold(from, u64::min);
            self.durable_from[index] = from;
            for name in names {
                required.insert(name, from);
            }
        }
    }

    fn find_unordered(&mut self) {
        let mut latest: HashMap<FileId, u64> = HashMap::new();
        for (index, call) in self.trace.calls.iter().enumerate() {
            let Some(file) = call.operation.changed_file() else {
                continue;
            };
            let from = self.durable_from[index];
            let latest = latest.entry(file).or_insert(0);
            if from < *latest {
                self.unordered.insert(file);
            }
            *latest = from.max(*latest);
        }
    }
}

/// Returns the size of a file at the start, in bytes. A new file is empty.
pub(super) fn base_size(base: &[BaseNode], file: FileId) -> u64 {
    match base.get(file.index()) {
        Some(BaseNode::File(content)) => content.len() as u64,
        _ => 0,
    }
}

/// A sync call. The order of the fields makes `min` return the sync that ended first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SyncSpan {
    ended: u64,
    began: u64,
}

/// The syncs of a trace, in the order of their exits.
#[derive(Default)]
struct Syncs {
    successful: HashMap<FileId, Vec<SyncSpan>>,
    failed: HashMap<FileId, Vec<SyncSpan>>,
    /// Syncs of the whole file system.
    all: Vec<SyncSpan>,
}

impl Syncs {
    fn of(trace: &Trace) -> Self {
        let mut syncs = Syncs::default();
        for call in &trace.calls {
            let spans = match call.operation {
                Operation::Sync { file, succeeded } => {
                    if succeeded {
                        syncs.successful.entry(file).or_default()
                    } else {
                        syncs.failed.entry(file).or_default()
                    }
                }
                Operation::SyncAll => &mut syncs.all,
                _ => continue,
            };
            spans.push(SyncSpan {
                ended: call.ended,
                began: call.began,
            });
        }
        syncs
    }

    /// Returns the first successful sync that covers a change of a file that ended at a position.
    fn covering(&self, file: FileId, ended: u64) -> Option<SyncSpan> {
        let of_file = self.successful.get(&file).map_or(&[][..], Vec::as_slice);
        [of_file, &self.all]
            .into_iter()
            .filter_map(|syncs| first_after(syncs, ended))
            .min()
    }

    /// Returns whether a failed sync of a file overlaps with a span of positions.
    fn has_failed(&self, file: FileId, began: u64, ended: u64) -> bool {
        let failed = self.failed.get(&file).map_or(&[][..], Vec::as_slice);
        let first = failed.partition_point(|sync| sync.ended < began);
        failed[first..].iter().any(|sync| sync.began < ended)
    }
}

/// Returns the first sync that began after a position.
fn first_after(syncs: &[SyncSpan], ended: u64) -> Option<SyncSpan> {
    let first = syncs.partition_point(|sync| sync.ended < ended);
    syncs[first..]
        .iter()
        .copied()
        .find(|sync| sync.began > ended)
}
