//! Measures how long it takes to read back 10.48 million records from a directory or from
//! Cassandra:
//!
//! ```sh
//! cargo run --release --package floodmark-journal --example recovery
//! cargo run --release --package floodmark-journal --example recovery 127.0.0.1:9042/KEYSPACE
//! ```
//!
//! The keyspace must be new. Recovery from a directory replays all records, because after a new
//! journal is opened, it writes no snapshot until its second segment is half full. Recovery from
//! Cassandra reads only the last bucket, which is almost full.

use std::env;
use std::error::Error;
use std::time::Instant;

use floodmark_journal::{CassandraAddress, Journal, JournalError, JournalOptions, JournalState};

const RECORDS: u64 = 10_480_000;
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

type Opened = Result<(Journal, Sum), JournalError>;

/// Stores the records, and reads them back `reads` times. Opening a journal in a directory writes a
/// snapshot, so only the first read replays the records.
fn measure(open: impl Fn() -> Opened, reads: usize) -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let (journal, _) = open()?;
    for number in 1..=RECORDS {
        while journal.append(&number.to_le_bytes()).is_err() {
            journal.commit();
            std::thread::yield_now();
        }
    }
    journal.close()?;
    println!("stored in {:.1} s", start.elapsed().as_secs_f64());
    for _ in 0..reads {
        let start = Instant::now();
        let (journal, sum) = open()?;
        let elapsed = start.elapsed();
        assert_eq!(journal.progress().durable, RECORDS);
        assert_eq!(sum.0, RECORDS * (RECORDS + 1) / 2);
        println!("{RECORDS} records read in {:.3} s", elapsed.as_secs_f64());
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    if let Some(address) = env::args().nth(1) {
        let address: CassandraAddress = address.parse()?;
        let options = JournalOptions::default();
        let open = || Journal::open_cassandra(&address, &options, Sum::default());
        return measure(open, ATTEMPTS);
    }
    let options = JournalOptions {
        segment_bytes: 256 << 20,
        ..JournalOptions::default()
    };
    for _ in 0..ATTEMPTS {
        let directory = tempfile::tempdir()?;
        measure(
            || Journal::open(directory.path(), &options, Sum::default()),
            1,
        )?;
    }
    Ok(())
}
