//! Measures how long it takes to store 10.48 million records in Cassandra and to read them back:
//! `cargo run --release --package floodmark-journal --example cassandra_recovery 127.0.0.1:9042/new`.
//! The keyspace must be new.

use std::error::Error;
use std::time::Instant;

use floodmark_journal::{CassandraAddress, Journal, JournalOptions, JournalState};

/// The last bucket is then almost full.
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

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).ok_or("which HOST:PORT/KEYSPACE?")?;
    let address: CassandraAddress = address.parse()?;
    let options = JournalOptions::default();
    let start = Instant::now();
    let (journal, _) = Journal::open_cassandra(&address, &options, Sum::default())?;
    for number in 1..=RECORDS {
        while journal.append(&number.to_le_bytes()).is_err() {
            journal.commit();
            std::thread::yield_now();
        }
    }
    journal.close()?;
    let elapsed = start.elapsed().as_secs_f64();
    println!("{RECORDS} records stored in {elapsed:.1} s");
    for _ in 0..ATTEMPTS {
        let start = Instant::now();
        let (journal, sum) = Journal::open_cassandra(&address, &options, Sum::default())?;
        let elapsed = start.elapsed().as_secs_f64();
        assert_eq!(journal.progress().durable, RECORDS);
        assert_eq!(sum.0, RECORDS * (RECORDS + 1) / 2);
        println!("{RECORDS} records read in {elapsed:.3} s");
    }
    Ok(())
}
