//! Runs the checks of each fuzz target on its seeds and on a fixed number of damaged copies of each
//! seed.

mod common;

use common::check::{Random, check, read};
use common::h2::{self, check_hpack, check_session};
use common::mutate::mutate;
use std::path::Path;

/// Number of damaged copies per seed.
const COPIES: u64 = 1000;

/// Runs `check` on the seeds of a target and on damaged copies. `check_seed` checks only seeds.
fn check_seeds(target: &str, check: fn(&[u8]), check_seed: impl Fn(&[u8])) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/seeds")
        .join(target);
    let mut paths: Vec<_> = std::fs::read_dir(&directory)
        .expect("the seeds are in the repository")
        .map(|entry| entry.expect("a readable directory").path())
        .collect();
    paths.sort();
    assert!(
        paths.len() >= 8,
        "seeds are missing in {}",
        directory.display()
    );
    for path in paths {
        let seed = std::fs::read(&path).expect("a readable seed");
        println!("{}", path.display());
        check_seed(&seed);
        check(&seed);
        for copy in 0..COPIES {
            let mut damaged = seed.clone();
            mutate(&mut damaged, &mut Random(copy));
            check(&damaged);
        }
    }
}

#[test]
fn reads_seeds_and_damaged_copies() {
    check_seeds("reader", check, |seed| {
        let transcript = read(seed, false, || usize::MAX);
        assert!(
            !transcript.responses.is_empty() && transcript.end.is_ok(),
            "the seed is not a valid response: {transcript:?}"
        );
    });
}

#[test]
fn reads_frames_and_damaged_copies() {
    check_seeds("h2_session", check_session, |seed| {
        let (transcript, result) = h2::read(seed, || usize::MAX);
        assert_eq!(result, Ok(()), "{transcript:?}");
        assert!(!transcript.items.is_empty(), "the seed causes no event");
    });
}

#[test]
fn decodes_blocks_and_damaged_copies() {
    let check = |blocks: &[u8]| {
        check_hpack(blocks);
    };
    check_seeds("h2_hpack", check, |seed| {
        assert!(check_hpack(seed), "no table suits all blocks of the seed");
    });
}

/// The result must not depend on how reads are split, even if a line feed or the end of the bytes
/// comes before it is clear which protocol the server speaks.
#[test]
fn reads_other_protocols_at_any_split() {
    for start in [
        &b"\x15\x03\x01\0\x02\x02\x28"[..],
        b"\0\0\x12\x04\0\0\0\0\0",
    ] {
        for length in 0..=start.len() {
            for end in [&b""[..], b"\n", b"\n 2\0@e", b"\r\n\r\n"] {
                check(&[&start[..length], end].concat());
            }
        }
    }
    check(b"\0\0\n 2\0@e");
}
