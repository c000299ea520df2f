//! The content of the disk for one choice of fates.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::crash::{Crash, EffectPart, Fate};
use super::history::Persistence;
use super::{SECTOR_BYTES, sectors};
use crate::trace::{BaseNode, EntryName, FileId, NodeKind, Operation, Trace};

/// The watched directory after a power loss. Paths are relative to the directory, and a directory
/// comes before its entries. Ownership and timestamps are not modeled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Image {
    /// Everything below the directory, excluding the directory itself.
    pub nodes: BTreeMap<PathBuf, ImageNode>,
    /// Permission bits of all files and directories, including the directory itself.
    pub modes: BTreeMap<PathBuf, u32>,
}

/// A file, directory or symbolic link in an [`Image`].
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ImageNode {
    /// A file with its content.
    File(Vec<u8>),
    /// A directory.
    Directory,
    /// A symbolic link with its target.
    Link(PathBuf),
}

impl Image {
    /// Writes the image to an empty directory.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn write_to(&self, directory: &Path) -> io::Result<()> {
        for (path, node) in &self.nodes {
            let path = directory.join(path);
            match node {
                ImageNode::File(content) => fs::write(path, content)?,
                ImageNode::Directory => fs::create_dir(path)?,
                ImageNode::Link(target) => symlink(target, path)?,
            }
        }
        // Set the modes of entries before that of their directory, which may become read-only.
        for (path, mode) in self.modes.iter().rev() {
            fs::set_permissions(directory.join(path), Permissions::from_mode(*mode))?;
        }
        Ok(())
    }
}

/// A file on the disk, and what can no longer change because an earlier change was lost.
#[derive(Debug, Default)]
struct DiskFile {
    content: Vec<u8>,
    size: u64,
    is_size_lost: bool,
    lost_sectors: HashSet<u64>,
    is_shrink_lost: bool,
}

impl DiskFile {
    fn resize(&mut self, size: u64, shrinks: bool, fate: &Fate) {
        if self.is_shrink_lost {
            return;
        }
        if self.is_size_lost || *fate != Fate::Kept {
            self.is_size_lost = true;
            self.is_shrink_lost = shrinks;
            return;
        }
        self.size = size;
        if shrinks {
            // Bytes beyond the new size are zeros if the file grows again.
            let size = usize::try_from(size).unwrap_or(usize::MAX);
            self.content.truncate(size);
        }
    }

    /// Writes the sectors for which `keeps` returns true.
    fn write(&mut self, offset: u64, bytes: &[u8], keeps: impl Fn(u64) -> bool) {
        if self.is_shrink_lost {
            return;
        }
        for sector in sectors(offset, bytes.len()) {
            if self.lost_sectors.contains(&sector) || !keeps(sector) {
                self.lost_sectors.insert(sector);
                continue;
            }
            let from = (sector * SECTOR_BYTES).max(offset);
            let to = ((sector + 1) * SECTOR_BYTES).min(offset + bytes.len() as u64);
            let place = |position: u64| usize::try_from(position).unwrap_or(usize::MAX);
            if self.content.len() < place(to) {
                self.content.resize(place(to), 0);
            }
            let part = &bytes[place(from - offset)..place(to - offset)];
            self.content[place(from)..place(to)].copy_from_slice(part);
        }
    }
}

/// The disk while the effects are applied in the order of the calls.
struct Disk<'t> {
    base: &'t [BaseNode],
    modes: &'t BTreeMap<FileId, u32>,
    files: HashMap<FileId, DiskFile>,
    directories: HashMap<FileId, BTreeMap<OsString, FileId>>,
    links: HashMap<FileId, PathBuf>,
    lost_names: HashSet<EntryName>,
    /// Whether a change in the journal was lost, and so all later changes to directories are lost
    /// too.
    is_journal_cut: bool,
}

impl<'t> Disk<'t> {
    fn of(trace: &'t Trace) -> Self {
        let base = &trace.base;
        let mut disk = Disk {
            base,
            modes: &trace.modes,
            files: HashMap::new(),
            directories: HashMap::from([(FileId::ROOT, BTreeMap::new())]),
            links: HashMap::new(),
            lost_names: HashSet::new(),
            is_journal_cut: false,
        };
        for (file, node) in (0..).map(FileId).zip(base) {
            match node {
                BaseNode::File(_) => {}
                BaseNode::Directory(entries) => {
                    drop(disk.directories.insert(file, entries.clone()))
                }
                BaseNode::Link(target) => drop(disk.links.insert(file, target.clone())),
            }
        }
        disk
    }

    fn file(&mut self, file: FileId) -> &mut DiskFile {
        self.files.entry(file).or_insert_with(|| {
            let content = match self.base.get(file.index()) {
                Some(BaseNode::File(content)) => content.to_vec(),
                _ => Vec::new(),
            };
            DiskFile {
                size: content.len() as u64,
                content,
                ..DiskFile::default()
            }
        })
    }

    fn directory(&mut self, directory: FileId) -> &mut BTreeMap<OsString, FileId> {
        self.directories.entry(directory).or_default()
    }

    /// Applies a change to directory entries, or marks the affected names as lost. For a rename,
    /// `removal` is the fate of the old name's removal.
    fn change_entry(
        &mut self,
        operation: &Operation,
        fate: &Fate,
        removal: &Fate,
        persistence: Persistence,
    ) {
        let names = operation.names();
        let is_lost = self.is_journal_cut
            || *fate != Fate::Kept
            || names.iter().any(|name| self.lost_names.contains(*name));
        if is_lost {
            self.lost_names.extend(names.into_iter().cloned());
            self.is_journal_cut |= persistence == Persistence::Journaled;
            return;
        }
        match operation {
            Operation::Create { entry, file, kind } => {
                match kind {
                    NodeKind::File => {}
                    NodeKind::Directory => drop(self.directories.insert(*file, BTreeMap::new())),
                    NodeKind::Link(target) => drop(self.links.insert(*file, target.clone())),
                }
                self.directory(entry.directory)
                    .insert(entry.name.clone(), *file);
            }
            Operation::Link { entry, file } => {
                self.directory(entry.directory)
                    .insert(entry.name.clone(), *file);
            }
            Operation::Unlink { entry } => {
                self.directory(entry.directory).remove(&entry.name);
            }
            Operation::Rename { from, to, swap } => {
                let old = self.directory(from.directory).remove(&from.name);
                let replaced = self.directory(to.directory).remove(&to.name);
                if let Some(old) = old {
                    self.directory(to.directory).insert(to.name.clone(), old);
                    // A directory never has two names.
                    if *removal != Fate::Kept && !self.directories.contains_key(&old) {
                        self.directory(from.directory)
                            .insert(from.name.clone(), old);
                        self.lost_names.insert(from.clone());
                    }
                }
                if let (true, Some(replaced)) = (*swap, replaced) {
                    self.directory(from.directory)
                        .insert(from.name.clone(), replaced);
                }
            }
            _ => {}
        }
    }

    /// Collects everything that is reachable from a directory.
    fn collect(&mut self, directory: FileId, path: &Path, image: &mut Image) {
        let modes = self.modes;
        let mode_of = |file, path: &Path| Some((path.to_owned(), *modes.get(&file)?));
        image.modes.extend(mode_of(directory, path));
        for (name, file) in self
            .directories
            .get(&directory)
            .cloned()
            .unwrap_or_default()
        {
            let path = path.join(name);
            if self.directories.contains_key(&file) {
                image.nodes.insert(path.clone(), ImageNode::Directory);
                self.collect(file, &path, image);
            } else if let Some(target) = self.links.get(&file) {
                image.nodes.insert(path, ImageNode::Link(target.clone()));
            } else {
                // A second name for the same file becomes a copy.
                let disk_file = self.file(file);
                let mut content = disk_file.content.clone();
                content.resize(usize::try_from(disk_file.size).unwrap_or(usize::MAX), 0);
                image.modes.extend(mode_of(file, &path));
                image.nodes.insert(path, ImageNode::File(content));
            }
        }
    }
}

impl Crash<'_> {
    /// Builds the image for the given fates, one per effect. Missing fates count as kept.
    #[must_use]
    pub fn image(&self, fates: &[Fate]) -> Image {
        let history = self.history;
        let trace = history.trace;
        let mut disk = Disk::of(trace);
        let mut effects = self.effects.iter().zip(fates).peekable();
        for &call in &self.calls {
            let (mut entry_or_size, mut removal, mut data) = (&Fate::Kept, &Fate::Kept, None);
            while let Some((effect, fate)) = effects.next_if(|(effect, _)| effect.call == call) {
                match &effect.part {
                    EffectPart::Entry | EffectPart::Size => entry_or_size = fate,
                    EffectPart::Removal => removal = fate,
                    EffectPart::Data { sectors } => data = Some((sectors, fate)),
                }
            }
            let operation = &trace.calls[call].operation;
            let Some(file) = operation.changed_file() else {
                disk.change_entry(operation, entry_or_size, removal, history.persistence);
                continue;
            };
            let file = disk.file(file);
            if let Some(size) = history.new_size[call] {
                file.resize(size, history.shrinks[call], entry_or_size);
            }
            if let Operation::Write { offset, bytes, .. } = operation {
                file.write(*offset, bytes, |sector| match data {
                    None => true,
                    Some((_, Fate::Kept)) => true,
                    Some((sectors, Fate::Dropped)) => !sectors.contains(&sector),
                    Some((sectors, Fate::Torn(kept))) => sectors
                        .iter()
                        .position(|loose| *loose == sector)
                        .is_none_or(|index| kept.get(index).copied().unwrap_or(true)),
                });
            }
        }
        let mut image = Image::default();
        disk.collect(FileId::ROOT, Path::new(""), &mut image);
        image
    }
}
