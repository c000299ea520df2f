use proptest::prelude::*;

use super::*;

const HEADER: SegmentHeader = SegmentHeader {
    record_bytes: 8,
    sequence: 1,
    salt: 0x1234_5678_9abc_def0,
};
/// Size of the test segments, in blocks.
const BLOCKS: usize = 24;

/// A segment, and the offset and number of records after each batch.
struct Written {
    bytes: Vec<u8>,
    ends: Vec<(usize, u64)>,
}

/// Writes batches of these sizes, in records. Record `n` contains the number `n`.
fn written(batches: &[usize]) -> Written {
    let mut bytes = HEADER.encode();
    let mut ends = vec![(BLOCK, 0)];
    let mut next = 0_u64;
    for &records in batches {
        let mut batch = vec![0; BATCH_HEADER];
        for n in next..next + records as u64 {
            batch.extend_from_slice(&n.to_le_bytes());
        }
        seal(&mut batch, next, HEADER.salt);
        next += records as u64;
        bytes.extend_from_slice(&batch);
        ends.push((bytes.len(), next));
    }
    bytes.resize(BLOCKS * BLOCK, 0);
    Written { bytes, ends }
}

/// Returns the result and the records.
fn scanned(bytes: &[u8]) -> (SegmentScan, Vec<u64>) {
    let mut records = Vec::new();
    let mut next = 0;
    let end = scan(bytes, &HEADER, &mut next, |batch| {
        let numbers = batch.as_chunks::<8>().0.iter();
        records.extend(numbers.map(|bytes| u64::from_le_bytes(*bytes)));
    });
    assert_eq!(next, records.len() as u64);
    (end, records)
}

fn is_prefix(records: &[u64]) -> bool {
    records.iter().copied().eq(0..records.len() as u64)
}

#[test]
fn a_segment_cut_at_any_byte_keeps_all_whole_batches() {
    let Written { bytes, ends } = written(&[1, 700, 3, 511]);
    for cut in BLOCK..=ends[4].0 + 1 {
        for padded in [false, true] {
            let mut torn = bytes[..cut].to_vec();
            if padded {
                torn.resize(bytes.len(), 0);
            }
            let (end, records) = scanned(&torn);
            // The padding of a batch carries no data, so a batch may be valid without it.
            let kept = ends.iter().rfind(|(end, _)| *end <= cut).unwrap();
            assert!(records.len() as u64 >= kept.1, "cut at {cut}");
            assert!(is_prefix(&records), "cut at {cut}");
            assert!(matches!(end, SegmentScan::End(_)), "cut at {cut}");
        }
    }
}

#[test]
fn leftovers_of_an_earlier_use_are_not_batches() {
    let Written { mut bytes, .. } = written(&[5, 5]);
    let other = SegmentHeader { salt: 7, ..HEADER };
    let mut next = 0;
    let end = scan(&bytes, &other, &mut next, |_| panic!("no valid batch"));
    assert_eq!((end, next), (SegmentScan::End(BLOCK), 0));
    // A record that imitates a batch has the wrong salt.
    let mut imitation = vec![0; BATCH_HEADER + 8];
    seal(&mut imitation, 10, other.salt);
    bytes[5 * BLOCK..6 * BLOCK].copy_from_slice(&imitation);
    assert_eq!(scanned(&bytes).0, SegmentScan::End(3 * BLOCK));
}

#[test]
fn a_segment_that_starts_too_late_has_a_gap() {
    let Written { bytes, .. } = written(&[4]);
    let mut next = 3;
    let end = scan(&bytes, &HEADER, &mut next, |_| panic!("wrong records"));
    assert_eq!(end, SegmentScan::Gap);
}

proptest! {
    /// If a byte other than padding has changed in the last batch, the scan ends before that batch.
    /// If the change is in an earlier batch, the scan reports the damage. The scan never returns a
    /// wrong record.
    #[test]
    fn a_changed_byte_is_refused_or_cut(
        batches in prop::collection::vec(1..700_usize, 1..8),
        at in any::<prop::sample::Index>(),
        flip in 1..=u8::MAX,
    ) {
        let Written { mut bytes, ends } = written(&batches);
        let (last_end, _) = *ends.last().unwrap();
        let at = BLOCK + at.index(last_end - BLOCK);
        bytes[at] ^= flip;
        let (end, records) = scanned(&bytes);
        prop_assert!(is_prefix(&records));
        let hit = ends.iter().position(|(end, _)| at < *end).unwrap();
        let is_last = hit == ends.len() - 1;
        let before = ends[hit - 1];
        match end {
            // A change of the padding has no effect.
            SegmentScan::End(end) if end == last_end => {
                prop_assert_eq!(records.len() as u64, ends.last().unwrap().1);
            }
            SegmentScan::End(end) => {
                prop_assert!(is_last);
                prop_assert_eq!((end, records.len() as u64), before);
            }
            SegmentScan::Damaged { offset } => {
                prop_assert!(!is_last);
                prop_assert_eq!((offset, records.len() as u64), before);
            }
            SegmentScan::Gap => prop_assert!(false, "no record is missing"),
        }
    }

    /// Unsynced blocks of the last write may be missing in any combination.
    #[test]
    fn a_write_that_lost_blocks_is_cut(
        batches in prop::collection::vec(1..700_usize, 1..6),
        last in 600..3000_usize,
        lost in prop::collection::vec(any::<bool>(), 48),
    ) {
        let mut sizes = batches;
        sizes.push(last);
        let Written { mut bytes, ends } = written(&sizes);
        let [.., before, after] = ends[..] else { unreachable!() };
        // Disks write sectors of at least 512 bytes.
        let sectors = bytes[before.0..after.0].chunks_mut(512);
        let used = (BATCH_HEADER + 8 * last).div_ceil(512);
        let mut is_torn = false;
        for (n, (sector, lost)) in sectors.zip(lost).enumerate() {
            if lost {
                sector.fill(0);
                is_torn |= n < used;
            }
        }
        let (end, records) = scanned(&bytes);
        let expected = if is_torn { before } else { after };
        prop_assert_eq!(end, SegmentScan::End(expected.0));
        prop_assert_eq!(records.len() as u64, expected.1);
        prop_assert!(is_prefix(&records));
    }
}
