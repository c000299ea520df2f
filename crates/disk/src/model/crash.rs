//! One crash point: what is durable, and a seeded random choice of the other effects that persist.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::history::DiskHistory;
use super::{SECTOR_BYTES, sectors};
use crate::trace::{BaseNode, EntryName, FileId, NodeKind, Operation};

/// A power loss at one point of a trace.
#[derive(Debug)]
pub struct Crash<'h> {
    pub(super) history: &'h DiskHistory<'h>,
    /// The crash point.
    pub at: u64,
    /// Calls that had begun, in the order of their exits.
    pub(super) calls: Vec<usize>,
    /// Effects that may be missing, in the order of their calls.
    pub effects: Vec<Effect>,
}

/// An effect that was not durable at the crash point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// Index of the call in [`Trace::calls`](crate::Trace::calls).
    pub call: usize,
    /// Part of the call's effect.
    pub part: EffectPart,
}

/// A part of a call's effect that persists independently of the other parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectPart {
    /// The change to the directory; for a rename to another directory, the new name.
    Entry,
    /// The removal of the old name by a rename to another directory.
    Removal,
    /// The new size of the file.
    Size,
    /// The data.
    Data {
        /// Indexes of the 512-byte sectors that may be missing.
        sectors: Vec<u64>,
    },
}

/// Parts of a file that a later durable write implies.
#[derive(Debug, Default)]
struct ImpliedParts {
    sectors: HashSet<u64>,
    size: bool,
    any: bool,
}

impl<'h> Crash<'h> {
    /// Determines what is durable at a crash point. See
    /// [`Trace::crash_points`](crate::Trace::crash_points).
    #[must_use]
    pub fn new(history: &'h DiskHistory<'h>, at: u64) -> Self {
        let calls = &history.trace.calls;
        let has_effect = |operation: &Operation| {
            !matches!(
                operation,
                Operation::Send { .. } | Operation::Sync { .. } | Operation::SyncAll
            )
        };
        let begun =
            |&index: &usize| calls[index].began <= at && has_effect(&calls[index].operation);
        let mut crash = Crash {
            history,
            at,
            calls: (0..calls.len()).filter(begun).collect(),
            effects: Vec::new(),
        };
        let implied = crash.implied_parts();
        let indices = crash.calls.clone();
        for index in indices {
            crash.add_effects(index, implied.get(&index));
        }
        crash
    }

    fn is_durable(&self, call: usize) -> bool {
        self.history.durable_from[call] <= self.at
    }

    fn is_size_durable(&self, call: usize) -> bool {
        self.history.size_durable_from[call] <= self.at
    }

    /// Determines, for each call that changes an unordered file, which parts a later durable call
    /// implies. The kernel writes whole sectors, so a durable sector contains all earlier writes.
    fn implied_parts(&self) -> HashMap<usize, ImpliedParts> {
        let history = self.history;
        let mut implied = HashMap::new();
        if history.unordered.is_empty() {
            return implied;
        }
        let mut later: HashMap<FileId, ImpliedParts> = HashMap::new();
        for &index in self.calls.iter().rev() {
            let operation = &history.trace.calls[index].operation;
            let Some(file) = operation.changed_file() else {
                continue;
            };
            if !history.unordered.contains(&file) {
                continue;
            }
            let later = later.entry(file).or_default();
            let touched = match operation {
                Operation::Write { offset, bytes, .. } => sectors(*offset, bytes.len()),
                _ => 0..0,
            };
            let parts = ImpliedParts {
                sectors: touched
                    .clone()
                    .filter(|s| later.sectors.contains(s))
                    .collect(),
                size: later.size,
                any: later.any,
            };
            // If later data is durable, so is an earlier call that shrinks the file.
            let is_durable = self.is_durable(index) || history.shrinks[index] && later.any;
            if is_durable {
                later.sectors.extend(touched);
                later.any = true;
            }
            // A durable write also makes the file's earlier size durable.
            later.size |=
                is_durable || history.new_size[index].is_some() && self.is_size_durable(index);
            implied.insert(index, parts);
        }
        implied
    }

    fn add_effects(&mut self, call: usize, implied: Option<&ImpliedParts>) {
        let history = self.history;
        let (is_durable, is_size_durable) = (self.is_durable(call), self.is_size_durable(call));
        let mut add = |part| self.effects.push(Effect { call, part });
        let operation = &history.trace.calls[call].operation;
        if !operation.names().is_empty() {
            if !is_durable {
                add(EffectPart::Entry);
            }
            let removal = history.removal_durable_from.get(&call);
            if removal.is_some_and(|from| *from > self.at) {
                add(EffectPart::Removal);
            }
            return;
        }
        let size_implied =
            implied.is_some_and(|implied| implied.size || history.shrinks[call] && implied.any);
        if history.new_size[call].is_some() && !is_size_durable && !size_implied {
            add(EffectPart::Size);
        }
        if let Operation::Write { offset, bytes, .. } = operation
            && !is_durable
        {
            let is_implied =
                |sector: &u64| implied.is_some_and(|implied| implied.sectors.contains(sector));
            let loose = sectors(*offset, bytes.len()).filter(|sector| !is_implied(sector));
            let loose: Vec<u64> = loose.collect();
            if !loose.is_empty() {
                add(EffectPart::Data { sectors: loose });
            }
        }
    }

    /// Describes each effect that does not persist, one line per effect.
    #[must_use]
    pub fn describe(&self, fates: &[Fate]) -> Vec<String> {
        let names = self.names();
        let effects = self.effects.iter().zip(fates);
        let describe = |(effect, fate): (_, &Fate)| {
            (*fate != Fate::Kept).then(|| self.describe_effect(effect, fate, &names))
        };
        effects.filter_map(describe).collect()
    }

    fn describe_effect(
        &self,
        effect: &Effect,
        fate: &Fate,
        names: &HashMap<FileId, String>,
    ) -> String {
        let call = &self.history.trace.calls[effect.call];
        let name = |file: &FileId| names.get(file).map_or("?", String::as_str);
        let path = |entry: &EntryName| path_of(names, entry);
        let mut text = match &call.operation {
            Operation::Create { entry, kind, .. } => {
                let kind = match kind {
                    NodeKind::File => "file",
                    NodeKind::Directory => "directory",
                    NodeKind::Link(_) => "link",
                };
                format!("new {kind} {}", path(entry))
            }
            Operation::Link { entry, .. } => format!("new name {}", path(entry)),
            Operation::Unlink { entry } => format!("removal of {}", path(entry)),
            Operation::Rename { from, to, .. } => {
                let (from, to) = (path(from), path(to));
                match effect.part {
                    EffectPart::Removal => {
                        format!("removal of the old name {from} after the rename to {to}")
                    }
                    _ => format!("rename of {from} to {to}"),
                }
            }
            Operation::Write {
                file,
                offset,
                bytes,
                ..
            } => {
                let (name, count) = (name(file), bytes.len());
                match effect.part {
                    EffectPart::Size => {
                        format!("size of {name} after a write of {count} bytes at offset {offset}")
                    }
                    _ => format!("write of {count} bytes to {name} at offset {offset}"),
                }
            }
            Operation::Resize { file, size } => format!("size {size} of {}", name(file)),
            Operation::Send { .. } | Operation::Sync { .. } | Operation::SyncAll => String::new(),
        };
        if let (Fate::Torn(kept), EffectPart::Data { sectors }) = (fate, &effect.part) {
            let missing = sectors.iter().zip(kept).filter(|(_, kept)| !**kept);
            let missing: Vec<String> = missing
                .map(|(sector, _)| (sector * SECTOR_BYTES).to_string())
                .collect();
            // Writing to a string cannot fail.
            let _ = write!(text, " (torn: sectors at {} missing)", missing.join(", "));
        }
        format!("{text} (call {})", call.ended)
    }

    /// Returns the first path of each file, relative to the watched directory.
    fn names(&self) -> HashMap<FileId, String> {
        let trace = self.history.trace;
        let mut names = HashMap::from([(FileId::ROOT, String::new())]);
        // The base lists each directory before its entries.
        for (directory, node) in (0..).map(FileId).zip(&trace.base) {
            if let BaseNode::Directory(entries) = node {
                for (name, file) in entries {
                    let entry = EntryName {
                        directory,
                        name: name.clone(),
                    };
                    let path = path_of(&names, &entry);
                    names.entry(*file).or_insert(path);
                }
            }
        }
        for call in &trace.calls {
            if let Operation::Create { entry, file, .. } = &call.operation {
                let path = path_of(&names, entry);
                names.entry(*file).or_insert(path);
            }
        }
        names
    }
}

fn path_of(names: &HashMap<FileId, String>, entry: &EntryName) -> String {
    let name = entry.name.to_string_lossy();
    match names.get(&entry.directory).map(String::as_str) {
        Some("") => name.into_owned(),
        Some(directory) => format!("{directory}/{name}"),
        None => format!("?/{name}"),
    }
}

/// What happens to an effect that is not durable at the crash point.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Fate {
    /// The effect persists.
    Kept,
    /// The effect is lost. Later effects on the same name, size or sector are lost too.
    Dropped,
    /// Only some sectors of the data persist: those whose flag is true. There is one flag per
    /// sector of the effect.
    Torn(Vec<bool>),
}

impl Crash<'_> {
    /// Draws fates at random. The method varies, because a uniform choice per effect would rarely
    /// produce the states that reveal faults: those with no effects, all effects, a prefix of the
    /// effects, or all effects but one.
    pub fn draw(&self, random: &mut Xoshiro256PlusPlus) -> Vec<Fate> {
        let count = self.effects.len();
        let one = below(random, count);
        let method = below(random, 8);
        let fate = |index| match method {
            1 => Fate::Kept,
            2 if index < one => Fate::Kept,
            3 | 4 if index != one => Fate::Kept,
            3 | 4 => self.draw_loss(index, random),
            5 if index == one => Fate::Kept,
            0 | 2 | 5 => Fate::Dropped,
            _ if below(random, 2) == 0 => Fate::Kept,
            _ => self.draw_loss(index, random),
        };
        (0..count).map(fate).collect()
    }

    /// Drops an effect. An effect with several sectors may be torn instead.
    fn draw_loss(&self, effect: usize, random: &mut Xoshiro256PlusPlus) -> Fate {
        match &self.effects[effect].part {
            EffectPart::Data { sectors } if sectors.len() > 1 && below(random, 2) == 0 => {
                let kept = sectors.iter().map(|_| below(random, 2) == 0);
                match of_sectors(kept.collect()) {
                    Fate::Kept => Fate::Dropped,
                    fate => fate,
                }
            }
            _ => Fate::Dropped,
        }
    }
}

pub(super) fn of_sectors(kept: Vec<bool>) -> Fate {
    match (kept.iter().any(|kept| *kept), kept.iter().all(|kept| *kept)) {
        (_, true) => Fate::Kept,
        (false, _) => Fate::Dropped,
        _ => Fate::Torn(kept),
    }
}

/// Returns a random number below `count`, or 0 if `count` is 0. The bias is negligible for small
/// counts.
pub(crate) fn below(random: &mut Xoshiro256PlusPlus, count: usize) -> usize {
    let product = u128::from(random.next_u64()) * count as u128;
    usize::try_from(product >> 64).unwrap_or(0)
}
