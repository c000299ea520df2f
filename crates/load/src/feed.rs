//! The values of a data file in memory, shared by all load threads.

use floodmark_record::feed::{Feed, RowChoice};

use crate::schedule::mix_bits;

/// Changes the seed for random rows, so that they do not depend on other random numbers.
const ROWS: u64 = 0x726f_7773_5f6f_665f;

/// The values of a feed. They take as much memory as in the file, plus 4 bytes each.
#[derive(Debug, PartialEq, Eq)]
pub struct FeedTable {
    take: RowChoice,
    rows: u64,
    columns: usize,
    /// End of each value in `bytes`, row by row.
    ends: Vec<u32>,
    bytes: Vec<u8>,
    /// Length in bytes of the longest value of each column.
    longest: Vec<usize>,
}

impl FeedTable {
    /// Returns the values of a feed, or `None` if they are missing, because the feed comes from a
    /// record, or invalid.
    #[must_use]
    pub fn of(feed: &Feed) -> Option<Self> {
        let mut rest = feed.values.bytes()?;
        let columns = feed.columns.len();
        let mut table = FeedTable {
            take: feed.take,
            rows: feed.rows,
            columns,
            ends: Vec::with_capacity(rest.len() / 8),
            bytes: Vec::with_capacity(rest.len()),
            longest: vec![0; columns],
        };
        for _ in 0..feed.rows {
            for longest in &mut table.longest {
                let (length, after) = rest.split_first_chunk()?;
                let length = u32::from_le_bytes(*length) as usize;
                let (value, after) = after.split_at_checked(length)?;
                table.bytes.extend_from_slice(value);
                table.ends.push(table.bytes.len().try_into().ok()?);
                *longest = length.max(*longest);
                rest = after;
            }
        }
        (rest.is_empty() && feed.rows > 0).then_some(table)
    }

    /// Returns the length in bytes of the longest value of a column.
    #[must_use]
    pub fn longest(&self, column: usize) -> usize {
        self.longest[column]
    }

    /// Returns the value that request `number` takes from a column.
    #[inline]
    #[must_use]
    pub fn value(&self, seed: u64, number: u64, column: usize) -> &[u8] {
        let row = match self.take {
            // A load with unique rows ends before the rows start again.
            RowChoice::InTurn | RowChoice::Unique => number.wrapping_sub(1) % self.rows,
            RowChoice::Random => {
                let hash = mix_bits((seed ^ ROWS).wrapping_add(mix_bits(number)));
                ((u128::from(hash) * u128::from(self.rows)) >> 64) as u64
            }
        };
        let cell = row as usize * self.columns + column;
        let from = cell.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[from as usize..self.ends[cell] as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::feed;

    fn table(take: RowChoice, rows: &[[&str; 2]]) -> FeedTable {
        FeedTable::of(&feed(take, ["a", "b"], rows)).unwrap()
    }

    #[test]
    fn rows_are_taken_in_turn() {
        let rows = [["1", "x"], ["", "yy"], ["333", ""]];
        let table = table(RowChoice::InTurn, &rows);
        for number in 1..=7 {
            let [a, b] = rows[(number - 1) % 3];
            assert_eq!(table.value(5, number as u64, 0), a.as_bytes());
            assert_eq!(table.value(5, number as u64, 1), b.as_bytes());
        }
        assert_eq!([table.longest(0), table.longest(1)], [3, 2]);
    }

    #[test]
    fn random_rows_depend_on_seed_and_number() {
        let table = table(RowChoice::Random, &[["1", "1"], ["2", "2"], ["3", "3"]]);
        let picks = |seed| -> Vec<&[u8]> { (1..=300).map(|n| table.value(seed, n, 0)).collect() };
        assert_eq!(picks(1), picks(1));
        assert_ne!(picks(1), picks(2));
        for value in [b"1", b"2", b"3"] {
            let count = picks(1).iter().filter(|pick| **pick == value).count();
            assert!((70..130).contains(&count), "{count}");
        }
        let is_same_row = |n| table.value(1, n, 0) == table.value(1, n, 1);
        assert!((1..100).all(is_same_row));
    }

    #[test]
    fn refuses_missing_or_truncated_values() {
        let mut of = feed(RowChoice::InTurn, ["a", "b"], &[["1", "2"]]);
        of.rows = 2;
        assert_eq!(FeedTable::of(&of), None);
        of.rows = 0;
        assert_eq!(FeedTable::of(&of), None);
    }
}
