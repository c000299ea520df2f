use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;
use rand_core::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;

use super::crash::of_sectors;
use super::*;
use crate::trace::{BaseNode, EntryName, FileId, NodeKind, Operation, Trace, TracedCall};

fn entry(name: &str) -> EntryName {
    EntryName {
        directory: FileId::ROOT,
        name: name.into(),
    }
}

fn create(name: &str, file: u32) -> Operation {
    Operation::Create {
        entry: entry(name),
        file: FileId(file),
        kind: NodeKind::File,
    }
}

fn create_directory(name: &str, file: u32) -> Operation {
    Operation::Create {
        entry: entry(name),
        file: FileId(file),
        kind: NodeKind::Directory,
    }
}

fn write(file: u32, offset: u64, bytes: &[u8]) -> Operation {
    Operation::Write {
        file: FileId(file),
        offset,
        bytes: Arc::from(bytes),
        durable: false,
    }
}

/// A write to the start of `old`, with `O_DSYNC`.
fn durable_write(bytes: &[u8]) -> Operation {
    Operation::Write {
        file: FileId(1),
        offset: 0,
        bytes: Arc::from(bytes),
        durable: true,
    }
}

fn sync(file: u32) -> Operation {
    Operation::Sync {
        file: FileId(file),
        succeeded: true,
    }
}

fn failed_sync(file: u32) -> Operation {
    Operation::Sync {
        file: FileId(file),
        succeeded: false,
    }
}

fn rename(from: &str, to: &str) -> Operation {
    Operation::Rename {
        from: entry(from),
        to: entry(to),
        swap: false,
    }
}

/// A rename to the directory with ID 9.
fn move_out(from: &str, to: &str) -> Operation {
    Operation::Rename {
        from: entry(from),
        to: EntryName {
            directory: FileId(9),
            name: to.into(),
        },
        swap: false,
    }
}

/// A trace in which each call returns before the next one begins. The directory has a file `old`
/// with ID 1.
fn trace(operations: impl IntoIterator<Item = Operation>) -> Trace {
    let entries = BTreeMap::from([("old".into(), FileId(1))]);
    let calls = (0..).zip(operations).map(|(index, operation)| TracedCall {
        began: 2 * index + 1,
        ended: 2 * index + 2,
        operation,
    });
    Trace {
        base: vec![
            BaseNode::Directory(entries),
            BaseNode::File(Arc::from(&b"base"[..])),
        ],
        calls: calls.collect(),
        ..Trace::default()
    }
}

/// Returns all images at the end of a trace.
fn images(trace: &Trace, persistence: Persistence) -> BTreeSet<BTreeMap<PathBuf, Vec<u8>>> {
    let history = DiskHistory::new(trace, persistence);
    let crash = Crash::new(&history, u64::MAX - 1);
    let images = combinations(&crash).map(|fates| files(crash.image(&fates)));
    images.collect()
}

/// Returns all combinations of fates. Each combination corresponds to an integer, in which a 0 bit
/// keeps an effect or sector.
fn combinations(crash: &Crash<'_>) -> impl Iterator<Item = Vec<Fate>> {
    let parts = |effect: &Effect| match &effect.part {
        EffectPart::Data { sectors } => sectors.len(),
        EffectPart::Entry | EffectPart::Removal | EffectPart::Size => 1,
    };
    let bits: usize = crash.effects.iter().map(parts).sum();
    assert!(bits <= 12, "too many combinations: {bits} bits");
    (0_usize..1 << bits).map(move |number| {
        let mut rest = number;
        let mut is_kept = |_| {
            let bit = rest % 2;
            rest /= 2;
            bit == 0
        };
        let effects = crash.effects.iter();
        effects
            .map(|effect| of_sectors((0..parts(effect)).map(&mut is_kept).collect()))
            .collect()
    })
}

fn files(image: Image) -> BTreeMap<PathBuf, Vec<u8>> {
    let file = |(path, node)| match node {
        ImageNode::File(content) => Some((path, content)),
        _ => None,
    };
    image.nodes.into_iter().filter_map(file).collect()
}

/// Returns the possible contents of a file at the end of a trace. `None`: the file is missing.
fn contents(trace: &Trace, name: &str) -> BTreeSet<Option<Vec<u8>>> {
    let images = images(trace, Persistence::Strict);
    let content = |image: &BTreeMap<PathBuf, Vec<u8>>| image.get(Path::new(name)).cloned();
    images.iter().map(content).collect()
}

fn set<const N: usize>(contents: [Option<&str>; N]) -> BTreeSet<Option<Vec<u8>>> {
    let contents = contents.into_iter();
    contents
        .map(|content| content.map(|text| text.as_bytes().to_vec()))
        .collect()
}

#[test]
fn a_sync_of_file_and_directory_leaves_one_state() {
    let done = [create("new", 2), write(2, 0, b"data"), sync(2), sync(0)];
    let expected = BTreeMap::from([
        ("new".into(), b"data".to_vec()),
        ("old".into(), b"base".to_vec()),
    ]);
    assert_eq!(images(&trace(done), Persistence::Strict), [expected].into());
}

#[test]
fn a_sync_of_the_file_does_not_cover_its_name_in_the_strict_model() {
    let trace = trace([create("new", 2), write(2, 0, b"data"), sync(2)]);
    assert_eq!(contents(&trace, "new"), set([None, Some("data")]));
    let journaled = images(&trace, Persistence::Journaled);
    assert_eq!(journaled.len(), 1);
    assert!(journaled.iter().all(|image| image.len() == 2));
}

#[test]
fn a_synced_name_does_not_cover_the_data() {
    let trace = trace([create("new", 2), write(2, 0, b"data"), sync(0)]);
    // The size can reach the disk before the data.
    let expected = set([Some(""), Some("data"), Some("\0\0\0\0")]);
    assert_eq!(contents(&trace, "new"), expected);
}

#[test]
fn a_rename_happens_as_a_whole_or_not_at_all() {
    let replace = [
        create("new", 2),
        write(2, 0, b"data"),
        sync(2),
        rename("new", "old"),
    ];
    let text = |names: &[(&str, &str)]| {
        let files = names
            .iter()
            .map(|(name, text)| (PathBuf::from(name), text.as_bytes().to_vec()));
        files.collect::<BTreeMap<_, _>>()
    };
    let expected = BTreeSet::from([
        text(&[("old", "base")]),
        text(&[("old", "base"), ("new", "data")]),
        text(&[("old", "data")]),
    ]);
    assert_eq!(
        images(&trace(replace.clone()), Persistence::Strict),
        expected
    );
    let synced = replace.into_iter().chain([sync(0)]);
    let expected = BTreeSet::from([text(&[("old", "data")])]);
    assert_eq!(images(&trace(synced), Persistence::Strict), expected);
}

/// A new name in another directory is durable only after a sync of that directory. Until both
/// directories are synced, the old name may remain. The file always has at least one name.
#[test]
fn a_rename_to_another_directory_needs_both_syncs() {
    let names = |syncs: &[u32]| -> BTreeSet<String> {
        let calls = [create_directory("dir", 9), sync(0), move_out("old", "new")];
        let trace = trace(calls.into_iter().chain(syncs.iter().copied().map(sync)));
        let images = images(&trace, Persistence::Strict).into_iter();
        let shown = images.map(|image| {
            let paths = image.keys().map(|path| path.to_string_lossy());
            Vec::from_iter(paths).join(" ")
        });
        shown.collect()
    };
    let of = |states: &[&str]| states.iter().map(|state| (*state).to_owned()).collect();
    let (before, both, after) = ("old", "dir/new old", "dir/new");
    let all: BTreeSet<String> = of(&[before, both, after]);
    assert_eq!(names(&[]), all);
    assert_eq!(names(&[0]), all);
    assert_eq!(names(&[9]), of(&[both, after]));
    assert_eq!(names(&[9, 0]), of(&[after]));
    assert_eq!(names(&[0, 9]), of(&[after]));
}

#[test]
fn a_directory_that_moved_has_one_name() {
    let directories = [
        create_directory("dir", 9),
        create_directory("sub", 8),
        sync(0),
    ];
    let trace = trace(directories.into_iter().chain([move_out("sub", "sub")]));
    let history = DiskHistory::new(&trace, Persistence::Strict);
    let crash = Crash::new(&history, u64::MAX - 1);
    for fates in combinations(&crash) {
        let image = crash.image(&fates);
        let has = |path: &str| image.nodes.contains_key(Path::new(path));
        assert_ne!(has("sub"), has("dir/sub"), "{image:?}");
    }
}

#[test]
fn a_sync_writes_the_journal_up_to_the_last_change_of_the_file() {
    let is_durable = |calls: &[Operation]| {
        let calls = [create("new", 2)].into_iter().chain(calls.iter().cloned());
        let images = images(&trace(calls), Persistence::Journaled);
        images
            .iter()
            .all(|image| image.contains_key(Path::new("new")))
    };
    assert!(is_durable(&[sync(2)]));
    assert!(is_durable(&[sync(0)]));
    assert!(is_durable(&[Operation::SyncAll]));
    // An overwrite in place changes no metadata, unlike an append or a rename.
    assert!(!is_durable(&[write(1, 0, b"BASE"), sync(1)]));
    assert!(is_durable(&[write(1, 4, b"more"), sync(1)]));
    assert!(is_durable(&[rename("old", "moved"), sync(1)]));
    assert!(!is_durable(&[rename("old", "moved"), failed_sync(1)]));
}

#[test]
fn names_persist_in_order_only_in_the_journaled_model() {
    let trace = trace([create("a", 2), create("b", 3)]);
    let names = |persistence| {
        let images = images(&trace, persistence).into_iter();
        images.map(|image| image.len() - 1).collect::<Vec<_>>()
    };
    assert_eq!(names(Persistence::Strict).len(), 4);
    assert_eq!(names(Persistence::Journaled).len(), 3);
    let only_b = |image: &BTreeMap<PathBuf, Vec<u8>>| {
        image.contains_key(Path::new("b")) && !image.contains_key(Path::new("a"))
    };
    assert!(images(&trace, Persistence::Strict).iter().any(only_b));
    assert!(!images(&trace, Persistence::Journaled).iter().any(only_b));
}

#[test]
fn a_sector_persists_as_a_whole() {
    // The second write goes to the same sector, so the first cannot be missing alone.
    let trace = trace([write(1, 0, b"AA"), write(1, 2, b"BB")]);
    let expected = set([Some("base"), Some("AAse"), Some("AABB")]);
    assert_eq!(contents(&trace, "old"), expected);
}

#[test]
fn a_write_can_be_torn_between_sectors() {
    let before = vec![b'a'; 1024];
    let after = vec![b'b'; 1024];
    let trace = trace([write(1, 0, &before), sync(1), write(1, 0, &after)]);
    let mixed = |first: u8, second: u8| Some([[first; 512], [second; 512]].concat());
    let expected = [
        mixed(b'a', b'a'),
        mixed(b'a', b'b'),
        mixed(b'b', b'a'),
        mixed(b'b', b'b'),
    ];
    assert_eq!(contents(&trace, "old"), expected.into());
}

#[test]
fn nothing_persists_before_a_lost_truncation() {
    let resize = Operation::Resize {
        file: FileId(1),
        size: 0,
    };
    let trace = trace([resize, write(1, 0, b"new")]);
    let expected = set([Some("base"), Some(""), Some("new"), Some("\0\0\0")]);
    assert_eq!(contents(&trace, "old"), expected);
}

#[test]
fn a_sync_after_a_failed_sync_does_not_save_the_data() {
    let lost = trace([write(1, 0, b"DATA"), failed_sync(1), sync(1)]);
    assert_eq!(contents(&lost, "old"), set([Some("base"), Some("DATA")]));
    // Writing the same sector again makes the kernel write it again.
    let again = trace([
        write(1, 0, b"DATA"),
        failed_sync(1),
        write(1, 0, b"x"),
        sync(1),
    ]);
    assert_eq!(contents(&again, "old"), set([Some("xATA")]));
}

#[test]
fn a_failed_sync_during_a_write_may_lose_the_data() {
    let lost = set([Some("base"), Some("DATA")]);
    let contents = |write_ended, failed| {
        let mut trace = trace([write(1, 0, b"DATA"), failed_sync(1), sync(1)]);
        trace.calls[0].ended = write_ended;
        (trace.calls[1].began, trace.calls[1].ended) = failed;
        (trace.calls[2].began, trace.calls[2].ended) = (10, 20);
        contents(&trace, "old")
    };
    assert_eq!(contents(4, (2, 3)), lost);
    assert_eq!(contents(4, (3, 5)), lost);
    // The failed sync returns after the successful one.
    assert_eq!(contents(4, (3, 25)), lost);
    assert_eq!(contents(4, (21, 22)), set([Some("DATA")]));
}

#[test]
fn a_crash_comes_only_where_the_possible_states_change() {
    let send = |socket| Operation::Send {
        socket,
        bytes: Arc::from(&b"OK"[..]),
    };
    let calls = [
        write(1, 0, b"DATA"),
        sync(1),
        send(7),
        send(8),
        failed_sync(1),
        durable_write(b"X"),
    ];
    let mut trace = trace(calls);
    trace.ports.insert(7, crate::TcpPorts { local: 1, peer: 2 });
    assert_eq!(trace.crash_points(), [0, 1, 4, 6, 11, 12]);
    trace.first_error = Some(10);
    assert_eq!(trace.crash_points(), [0, 1, 4, 6, 10, 11, 12]);
}

#[test]
fn a_call_in_progress_may_have_happened() {
    let trace = trace([write(1, 0, b"DATA"), sync(1)]);
    let history = DiskHistory::new(&trace, Persistence::Strict);
    let effects = |at| Crash::new(&history, at).effects.len();
    // Before the write, during the write, before and during the sync, after the sync.
    assert_eq!([0, 1, 2, 3, 4].map(effects), [0, 1, 1, 1, 0]);
}

#[test]
fn a_sync_covers_only_calls_that_returned_before_it() {
    let mut trace = trace([write(1, 0, b"DATA"), sync(1)]);
    trace.calls[0].began = 2;
    trace.calls[0].ended = 4;
    trace.calls[1].began = 3;
    trace.calls[1].ended = 5;
    assert_eq!(contents(&trace, "old"), set([Some("base"), Some("DATA")]));
}

#[test]
fn a_durable_write_needs_no_sync() {
    let trace = trace([durable_write(b"DATA")]);
    assert_eq!(contents(&trace, "old"), set([Some("DATA")]));
}

#[test]
fn a_durable_write_makes_the_size_durable() {
    let preallocate = Operation::Resize {
        file: FileId(1),
        size: 8,
    };
    let trace = trace([preallocate, durable_write(b"X")]);
    assert_eq!(contents(&trace, "old"), set([Some("Xase\0\0\0\0")]));
}

#[test]
fn describes_what_is_missing() {
    let trace = trace([create("new", 2), write(2, 3, b"data"), rename("new", "old")]);
    let history = DiskHistory::new(&trace, Persistence::Strict);
    let crash = Crash::new(&history, 6);
    let all = vec![Fate::Dropped; crash.effects.len()];
    let expected = [
        "new file new (call 2)",
        "size of new after a write of 4 bytes at offset 3 (call 4)",
        "write of 4 bytes to new at offset 3 (call 4)",
        "rename of new to old (call 6)",
    ];
    assert_eq!(crash.describe(&all), expected);
}

/// Any call on `old`, on two further files, or on their names.
fn any_operation() -> impl Strategy<Value = Operation> {
    let file = 1..4_u32;
    let bytes = prop::collection::vec(any::<u8>(), 1..1500);
    prop_oneof![
        4 => (file.clone(), 0..2000_u64, bytes).prop_map(|(file, at, bytes)| write(file, at, &bytes)),
        2 => file.clone().prop_map(sync),
        1 => file.prop_map(failed_sync),
        1 => Just(sync(0)),
    ]
}

/// Writes to three files that exist from the start, so that each file keeps its name.
fn any_trace() -> impl Strategy<Value = Trace> {
    let start = [create("2", 2), create("3", 3), sync(0)];
    prop::collection::vec(any_operation(), 1..20)
        .prop_map(move |operations| trace(start.iter().cloned().chain(operations)))
}

/// Applies the first calls of a trace to one file, as the kernel does.
fn replay(trace: &Trace, file: FileId, calls: usize) -> Vec<u8> {
    let mut content = match file {
        FileId(1) => b"base".to_vec(),
        _ => Vec::new(),
    };
    for call in &trace.calls[..calls] {
        if let Operation::Write {
            file: changed,
            offset,
            bytes,
            ..
        } = &call.operation
            && *changed == file
        {
            let (from, to) = (*offset as usize, *offset as usize + bytes.len());
            content.resize(content.len().max(to), 0);
            content[from..to].copy_from_slice(bytes);
        }
    }
    content
}

fn sector(content: &[u8], number: usize) -> Vec<u8> {
    let mut padded = content.to_vec();
    padded.resize(padded.len().max((number + 1) * 512), 0);
    padded[number * 512..(number + 1) * 512].to_vec()
}

proptest! {
    #[test]
    fn keeping_everything_gives_the_state_of_the_running_system(trace in any_trace()) {
        let history = DiskHistory::new(&trace, Persistence::Strict);
        let crash = Crash::new(&history, u64::MAX - 1);
        let image = files(crash.image(&[]));
        for (name, file) in [("old", 1), ("2", 2), ("3", 3)] {
            let expected = replay(&trace, FileId(file), trace.calls.len());
            prop_assert_eq!(&image[Path::new(name)], &expected);
        }
    }

    /// Each sector has a value that it had at some time since its last sync, and a file that was
    /// synced last has its final content.
    #[test]
    fn sectors_persist_only_with_values_that_they_had(trace in any_trace(), at in 0..50_u64, seed: u64) {
        let history = DiskHistory::new(&trace, Persistence::Strict);
        let crash = Crash::new(&history, at);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let image = files(crash.image(&crash.draw(&mut random)));
        let begun = trace.calls.iter().filter(|call| call.began <= at).count();
        for (name, file) in [("old", 1), ("2", 2), ("3", 3)] {
            let Some(content) = image.get(Path::new(name)) else {
                continue;
            };
            let file = FileId(file);
            let calls = trace.calls[..begun].iter().enumerate();
            let is_synced = |call: &TracedCall| {
                call.ended <= at && call.operation == Operation::Sync { file, succeeded: true }
            };
            let has_failed = trace.calls.iter().any(|call| {
                call.operation == Operation::Sync { file, succeeded: false }
            });
            let last = calls.filter(|(_, call)| is_synced(call)).map(|(index, _)| index).next_back();
            let durable = last.filter(|_| !has_failed).unwrap_or(0);
            let versions: Vec<Vec<u8>> = (durable..=begun).map(|n| replay(&trace, file, n)).collect();
            prop_assert!(versions.iter().any(|version| version.len() == content.len()));
            for number in 0..content.len().div_ceil(512) {
                let cut = |version: &Vec<u8>| {
                    let mut version = version.clone();
                    version.resize(content.len(), 0);
                    sector(&version, number)
                };
                let found = versions.iter().any(|version| cut(version) == sector(content, number));
                prop_assert!(found, "sector {} of {}", number, name);
            }
        }
    }
}
