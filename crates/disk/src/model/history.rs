//! When each call of a trace becomes durable. Independent of the crash point.

use std::collections::{HashMap, HashSet};

use crate::trace::{BaseNode, EntryName, FileId, Operation, Trace};

/// Which directory entries a sync makes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Persistence {
    /// The minimum of POSIX: an entry is durable only after a sync of its folder. A sync of a new
    /// file does not make its name durable. Entries of different names persist in any order.
    #[default]
    Strict,
    /// Like a journaling file system (ext4, XFS): entries persist in the order of the calls, and any
    /// successful sync makes all earlier entries durable.
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
            let mut covering = syncs.covering(file, call.ended);
            // After a failed sync, the kernel may have dropped the data and report success for the
            // next sync (fsync(2)). So only the first sync decides.
            let mut data = match covering.next() {
                Some(sync) if sync.succeeded => sync.ended,
                _ => NEVER,
            };
            let mut size = syncs
                .covering(file, call.ended)
                .find(|sync| sync.succeeded)
                .map_or(NEVER, |sync| sync.ended);
            if matches!(call.operation, Operation::Write { durable: true, .. }) {
                data = call.ended;
                size = call.ended;
            }
            self.durable_from[index] = data;
            self.size_durable_from[index] = size;
        }
    }

    /// A sync of a folder covers all earlier changes to its entries. A change also implies all
    /// earlier changes to the same names.
    fn find_durable_entries(&mut self, syncs: &Syncs) {
        let mut required: HashMap<&EntryName, u64> = HashMap::new();
        let trace: &'t Trace = self.trace;
        for (index, call) in trace.calls.iter().enumerate().rev() {
            let names = call.operation.names();
            if names.is_empty() {
                continue;
            }
            let durable = |sync: &SyncSpan| sync.succeeded;
            let first = |file| syncs.covering(file, call.ended).find(durable);
            let by_sync = match self.persistence {
                Persistence::Strict => names.iter().filter_map(|name| first(name.folder)).min(),
                Persistence::Journaled => syncs.any_after(call.ended),
            };
            let by_name = names.iter().filter_map(|name| required.get(name).copied());
            let from = by_name
                .chain(by_sync.map(|sync| sync.ended))
                .min()
                .unwrap_or(NEVER);
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
    succeeded: bool,
}

/// The syncs of a trace, in the order of their exits.
struct Syncs {
    by_file: HashMap<FileId, Vec<SyncSpan>>,
    /// Syncs of the whole file system.
    all: Vec<SyncSpan>,
    /// Successful syncs of anything.
    successful: Vec<SyncSpan>,
}

impl Syncs {
    fn of(trace: &Trace) -> Self {
        let mut syncs = Syncs {
            by_file: HashMap::new(),
            all: Vec::new(),
            successful: Vec::new(),
        };
        for call in &trace.calls {
            let mut sync = SyncSpan {
                ended: call.ended,
                began: call.began,
                succeeded: true,
            };
            match call.operation {
                Operation::Sync { file, succeeded } => {
                    sync.succeeded = succeeded;
                    syncs.by_file.entry(file).or_default().push(sync);
                }
                Operation::SyncAll => syncs.all.push(sync),
                _ => continue,
            }
            if sync.succeeded {
                syncs.successful.push(sync);
            }
        }
        syncs
    }

    /// Returns the syncs that cover a change that ended at a position, in the order of their exits.
    fn covering(&self, file: FileId, ended: u64) -> impl Iterator<Item = SyncSpan> {
        let of_file = self.by_file.get(&file).map_or(&[][..], Vec::as_slice);
        let mut of_file = after(of_file, ended).peekable();
        let mut of_all = after(&self.all, ended).peekable();
        std::iter::from_fn(move || match (of_file.peek(), of_all.peek()) {
            (Some(file), Some(all)) if all < file => of_all.next(),
            (None, _) => of_all.next(),
            _ => of_file.next(),
        })
    }

    fn any_after(&self, ended: u64) -> Option<SyncSpan> {
        after(&self.successful, ended).next()
    }
}

/// Returns the syncs that began after a position.
fn after(syncs: &[SyncSpan], ended: u64) -> impl Iterator<Item = SyncSpan> {
    let first = syncs.partition_point(|sync| sync.ended < ended);
    let later = syncs.get(first..).unwrap_or_default();
    later.iter().copied().filter(move |sync| sync.began > ended)
}
