//! Measures how long it takes to read back 10 million records without a snapshot of them:
//! `cargo run --release --package floodmark-journal --example recovery`.

use std::error::Error;
use std::time::Instant;

use floodmark_journal::{Journal, JournalOptions, JournalState};

const RECORDS: u64 = 10_000_000;
const ATTEMPTS: usize = 5;

/// Sum of all records.
#[derive(Clone, Default)]
struct Sum(u64);

impl JournalState for Sum {
    const RECORD_BYTES: usize = 8;

    fn apply(&mut self, records: &[u8]) {
        for record in records.as_chunks().0 {
            self.0 = self.0.wrapping_add(u64::from_le_bytes(*record));
        }
    }

    fn snapshot(&self) -> Vec<u8> {
        self.0.to_le_bytes().to_vec()
    }

    fn restore(bytes: &[u8]) -> Option<Self> {
        Some(Sum(u64::from_le_bytes(bytes.try_into().ok()?)))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = JournalOptions {
        segment_bytes: 128 << 20,
        ..JournalOptions::default()
    };
    for _ in 0..ATTEMPTS {
        let folder = tempfile::tempdir()?;
        let (journal, _) = Journal::open(folder.path(), &options, Sum::default())?;
        for number in 1..=RECORDS {
            while journal.append(&number.to_le_bytes()).is_err() {
                journal.commit();
                std::thread::yield_now();
            }
        }
        journal.close()?;
        let start = Instant::now();
        let (journal, sum) = Journal::open(folder.path(), &options, Sum::default())?;
        let elapsed = start.elapsed();
        assert_eq!(journal.progress().durable, RECORDS);
        assert_eq!(sum.0, RECORDS * (RECORDS + 1) / 2);
        println!("{RECORDS} records in {:.3} s", elapsed.as_secs_f64());
    }
    Ok(())
}
