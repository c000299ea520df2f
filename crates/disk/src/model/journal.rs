//! Determines when folder changes become durable on a file system with a metadata journal.

use std::collections::HashMap;
use std::ffi::OsStr;

use super::history::NEVER;
use crate::trace::{BaseNode, EntryName, FileId, Operation, Trace};

/// Returns the position from which the journal contains each call, if the call changes a folder.
/// `new_size` is the file size that each call sets.
///
/// ext4 and XFS write all metadata to one journal in the order of the calls. A sync writes the
/// journal up to the last metadata change of the synced file, such as its creation, a rename or a
/// new size (`ext4_fsync_journal`, `xfs_fsync_flush_log`). So it covers all earlier changes to
/// folders, but after an overwrite in place it may cover no newer ones.
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
                // A durable write also covers a new size of its own.
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
    (entry.folder, &entry.name)
}

/// Returns the calls that change the metadata of each file and folder, in their order.
fn metadata_changes(trace: &Trace, new_size: &[Option<u64>]) -> HashMap<FileId, Vec<usize>> {
    let mut files: HashMap<(FileId, &OsStr), FileId> = HashMap::new();
    for (folder, node) in (0..).map(FileId).zip(&trace.base) {
        if let BaseNode::Folder(names) = node {
            let names = names.iter();
            files.extend(names.map(|(name, file)| ((folder, name.as_os_str()), *file)));
        }
    }
    let mut changes: HashMap<FileId, Vec<usize>> = HashMap::new();
    for (index, call) in trace.calls.iter().enumerate() {
        let mut changed: Vec<FileId> = Vec::new();
        changed.extend(call.operation.names().iter().map(|name| name.folder));
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
