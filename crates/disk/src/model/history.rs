//! When each call of a trace becomes durable. Independent of the crash point.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;

use crate::trace::{BaseNode, EntryName, FileId, Operation, Trace};

/// Which directory entries a sync makes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Persistence {
    /// The minimum that POSIX guarantees: an entry is durable only after a sync of its directory. A
    /// sync of a new file does not make its name durable. Entries with different names can persist
    /// in any order.
    #[default]
    Strict,
    /// Like a journaling file system (ext4, XFS): entries persist in the order of the calls. A sync
    /// makes durable every entry that changed no later than the synced file or directory.
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
    /// Position from which the removal of the old name is durable, for each rename to another
    /// directory, by index of the call. Strict model only. The new name can be durable earlier.
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
        for (index, file, call) in self.trace.file_changes() {
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
        for (index, file, call) in self.trace.file_changes() {
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

    /// Determines from which position each change to a name is durable. If a change is durable, all
    /// earlier changes to the same name are durable too.
    fn find_durable_entries(&mut self, syncs: &Syncs) {
        let mut required: HashMap<&EntryName, u64> = HashMap::new();
        let trace: &'t Trace = self.trace;
        let journal = match self.persistence {
            Persistence::Strict => Vec::new(),
            Persistence::Journaled => durable_from(trace, &self.new_size),
        };
        for (index, call) in trace.calls.iter().enumerate().rev() {
            let names = call.operation.names();
            let Some(last) = names.last() else {
                continue;
            };
            let synced = |name: &EntryName| {
                let sync = syncs.covering(name.directory, call.ended);
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
                && old.directory != to.directory
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
        for (index, file, _) in self.trace.file_changes() {
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

    /// Returns the first successful sync that covers a change to a file. The change ended at
    /// position `ended`.
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

/// Returns, for each call that changes a directory, the position from which the journal on the disk
/// contains this change. The results for other calls have no meaning. `new_size` contains the file
/// size that each call sets.
///
/// ext4 and XFS write all metadata to one journal in the order of the calls. A sync writes the
/// journal up to the last metadata change of the synced file, such as its creation, a rename or a
/// new size (`ext4_fsync_journal`, `xfs_fsync_flush_log`). The sync therefore covers all changes to
/// directories up to this metadata change. If the file has only been overwritten in place since
/// then, the sync may not cover later changes to directories.
pub(super) fn durable_from(trace: &Trace, new_size: &[Option<u64>]) -> Vec<u64> {
    let calls = &trace.calls;
    let mut durable_from = vec![NEVER; calls.len()];
    let changes = metadata_changes(trace, new_size);
    for (own, call) in calls.iter().enumerate() {
        let began = |index: &usize| calls[*index].ended < call.began;
        let last = match call.operation {
            Operation::Sync {
                file,
                succeeded: true,
            }
            | Operation::Write {
                file,
                durable: true,
                ..
            } => {
                let of_file = changes.get(&file).map_or(&[][..], Vec::as_slice);
                // A durable write also covers the new size that it sets itself.
                let is_covered = |index: &usize| began(index) || *index == own;
                let covered = of_file.partition_point(is_covered);
                covered.checked_sub(1).map(|last| of_file[last])
            }
            Operation::SyncAll => calls
                .partition_point(|earlier| earlier.ended < call.began)
                .checked_sub(1),
            _ => None,
        };
        if let Some(last) = last {
            durable_from[last] = durable_from[last].min(call.ended);
        }
    }
    for index in (1..durable_from.len()).rev() {
        durable_from[index - 1] = durable_from[index - 1].min(durable_from[index]);
    }
    durable_from
}

fn key(entry: &EntryName) -> (FileId, &OsStr) {
    (entry.directory, &entry.name)
}

/// Returns, for each file and directory, the indexes of the calls that change its metadata, in
/// order.
fn metadata_changes(trace: &Trace, new_size: &[Option<u64>]) -> HashMap<FileId, Vec<usize>> {
    let mut files: HashMap<(FileId, &OsStr), FileId> = HashMap::new();
    for (directory, node) in (0..).map(FileId).zip(&trace.base) {
        if let BaseNode::Directory(names) = node {
            let names = names.iter();
            files.extend(names.map(|(name, file)| ((directory, name.as_os_str()), *file)));
        }
    }
    let mut changes: HashMap<FileId, Vec<usize>> = HashMap::new();
    for (index, call) in trace.calls.iter().enumerate() {
        let mut changed: Vec<FileId> = Vec::new();
        changed.extend(call.operation.names().iter().map(|name| name.directory));
        match &call.operation {
            Operation::Create { entry, file, .. } | Operation::Link { entry, file } => {
                files.insert(key(entry), *file);
                changed.push(*file);
            }
            Operation::Rename { from, to, swap } => {
                let (moved, replaced) = (files.remove(&key(from)), files.remove(&key(to)));
                files.extend(moved.map(|file| (key(to), file)));
                files.extend(replaced.filter(|_| *swap).map(|file| (key(from), file)));
                changed.extend(moved);
            }
            operation if new_size[index].is_some() => changed.extend(operation.changed_file()),
            _ => {}
        }
        for file in changed {
            changes.entry(file).or_default().push(index);
        }
    }
    changes
}
