//! Runs the fuzz target's checks on its seeds and on a fixed number of damaged copies of each seed.

mod common;

use common::check::{Random, check, read};
use common::mutate::mutate;
use std::path::Path;

/// Number of damaged copies per seed.
const COPIES: u64 = 1000;

#[test]
fn reads_seeds_and_damaged_copies() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/reader");
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
        let transcript = read(&seed, false, || usize::MAX);
        assert!(
            !transcript.responses.is_empty() && transcript.end.is_ok(),
            "{} is not a valid response: {transcript:?}",
            path.display()
        );
        check(&seed);
        for copy in 0..COPIES {
            let mut damaged = seed.clone();
            mutate(&mut damaged, &mut Random(copy));
            check(&damaged);
        }
    }
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
