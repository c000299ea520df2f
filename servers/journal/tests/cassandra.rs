//! Journals in a real Cassandra: takeovers, bucket switches, outages and damage.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use floodmark_cql::{CqlConnection, CqlValue};
use floodmark_journal::{
    AppendError, CassandraAddress, Journal, JournalError, JournalOptions, JournalState,
};
use floodmark_truth::store::StartedStore;
use support::{Counted, LongSnapshot};

/// Time after which a write survives if Cassandra is killed. Cassandra replays its commit log only
/// up to the last marker, and writes a marker every 100 ms.
const REPLAYABLE: Duration = Duration::from_millis(500);

const TIMEOUT: Duration = Duration::from_secs(60);

struct Cassandra {
    store: StartedStore,
    /// Number of the last journal's keyspace.
    keyspaces: u32,
}

impl Cassandra {
    /// Returns the address of a new journal.
    fn address(&mut self) -> CassandraAddress {
        self.keyspaces += 1;
        let text = format!("{}/k{}", self.store.address, self.keyspaces);
        text.parse().unwrap()
    }

    fn client(&self) -> CqlConnection {
        let stream = TcpStream::connect(self.store.address).unwrap();
        CqlConnection::open(stream, TIMEOUT).unwrap()
    }

    /// Executes a statement on `batches` and `owner`, the tables of the last journal.
    fn execute(&self, statement: &str) -> Vec<Vec<CqlValue>> {
        let keyspace = format!("k{}", self.keyspaces);
        let statement = statement
            .replace("batches", &format!("{keyspace}.batches"))
            .replace("owner", &format!("{keyspace}.owner"));
        self.client().rows(&statement).unwrap()
    }
}

fn open(address: &CassandraAddress) -> (Journal, Counted) {
    let options = JournalOptions::default();
    Journal::open_cassandra(address, &options, Counted::default()).unwrap()
}

fn open_error(address: &CassandraAddress) -> String {
    let opened = Journal::open_cassandra(address, &JournalOptions::default(), Counted::default());
    opened.map(drop).unwrap_err().to_string()
}

/// Appends numbered records, each in its own batch, and waits until they are durable.
fn store(journal: &Journal, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        assert_eq!(journal.append(&number.to_le_bytes()), Ok(number));
        journal.commit();
        await_durable(journal, number);
    }
}

fn await_durable(journal: &Journal, number: u64) {
    let until = Instant::now() + TIMEOUT;
    while journal.progress().durable < number {
        let failure = journal.progress().failure;
        assert!(failure.is_none(), "{failure:?}");
        assert!(Instant::now() < until, "{number} is not durable");
        thread::sleep(Duration::from_micros(50));
    }
}

/// Appends a record, which must not be stored. Returns the journal's failure.
fn failure(journal: &Journal, number: u64) -> String {
    journal.append(&number.to_le_bytes()).unwrap();
    journal.commit();
    let until = Instant::now() + TIMEOUT;
    loop {
        if let Some(failure) = journal.progress().failure {
            assert_eq!(journal.append(&[0; 8]), Err(AppendError::Failed));
            return failure.to_string();
        }
        assert!(journal.progress().durable < number, "the record was stored");
        assert!(Instant::now() < until, "the journal does not fail");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn keeps_records_in_a_real_cassandra() {
    let Some(store) = StartedStore::cassandra() else {
        return;
    };
    let mut cassandra = Cassandra {
        store,
        keyspaces: 0,
    };
    records_survive_and_numbers_continue(&mut cassandra);
    switches_buckets_and_deletes_old_ones(&mut cassandra);
    a_later_server_supersedes_an_earlier_one(&mut cassandra);
    reads_long_snapshots(&mut cassandra);
    servers_stay_apart_after_a_lost_takeover(&mut cassandra);
    continues_after_a_crash_between_two_buckets(&mut cassandra);
    refuses_damage(&mut cassandra);
    repeats_a_write_while_cassandra_pauses(&mut cassandra);
    survives_a_restart_of_cassandra(&mut cassandra);
}

fn records_survive_and_numbers_continue(cassandra: &mut Cassandra) {
    let address = cassandra.address();
    let mut stored = 0;
    for _ in 0..3 {
        let (journal, state) = open(&address);
        assert_eq!(state, Counted(stored));
        assert_eq!(journal.progress().durable, stored);
        store(&journal, stored + 1..=stored + 20);
        // These records form one batch.
        for number in stored + 21..=stored + 500 {
            journal.append(&number.to_le_bytes()).unwrap();
        }
        journal.close().unwrap();
        stored += 500;
    }
    assert_eq!(open(&address).1, Counted(1500));
}

fn switches_buckets_and_deletes_old_ones(cassandra: &mut Cassandra) {
    let address = cassandra.address();
    // A bucket ends after 4,096 batches, or after 4 MiB.
    let (journal, _) = open(&address);
    store(&journal, 1..=4100);
    let buckets = || cassandra.execute("SELECT DISTINCT bucket FROM batches");
    assert_eq!(buckets(), [[CqlValue::Integer(2)]]);
    let mut number = 4100_u64;
    while number < 1_200_000 {
        match journal.append(&(number + 1).to_le_bytes()) {
            Ok(_) => number += 1,
            Err(AppendError::Full) => {
                journal.commit();
                thread::yield_now();
            }
            Err(AppendError::Failed) => panic!("{:?}", journal.progress().failure),
        }
    }
    journal.close().unwrap();
    assert_eq!(buckets(), [[CqlValue::Integer(4)]]);
    assert_eq!(open(&address).1, Counted(1_200_000));
}

fn a_later_server_supersedes_an_earlier_one(cassandra: &mut Cassandra) {
    let address = cassandra.address();
    let (first, _) = open(&address);
    store(&first, 1..=3);
    let (second, state) = open(&address);
    assert_eq!(state, Counted(3));
    store(&second, 4..=5);
    let error = failure(&first, 4);
    assert!(error.contains("another server has taken over"), "{error}");
    store(&second, 6..=6);
    assert!(matches!(
        *first.close().unwrap_err(),
        JournalError::Superseded(_)
    ));
    let (third, state) = open(&address);
    assert_eq!(state, Counted(6));
    drop(third);

    // Several servers open the journal at once. No two of them store a record with the same number.
    let servers = (0..4).map(|_| {
        let address = address.clone();
        thread::spawn(move || {
            let options = JournalOptions::default();
            let opened = Journal::open_cassandra(&address, &options, Counted::default());
            let Ok((journal, state)) = opened else {
                return 0;
            };
            let number = state.0 + 1;
            journal.append(&number.to_le_bytes()).unwrap();
            journal.close().map_or(0, |()| number)
        })
    });
    let servers = Vec::from_iter(servers);
    let stored = servers.into_iter().map(|server| server.join().unwrap());
    let mut stored = Vec::from_iter(stored.filter(|number| *number > 0));
    stored.sort_unstable();
    assert!(stored.is_sorted_by(|a, b| a < b), "{stored:?}");
    let (_, state) = open(&address);
    assert!(Some(&state.0) >= stored.last(), "{state:?} {stored:?}");
}

fn reads_long_snapshots(cassandra: &mut Cassandra) {
    let address = cassandra.address();
    let open = || {
        let options = JournalOptions::default();
        Journal::open_cassandra(&address, &options, LongSnapshot::default()).unwrap()
    };
    let (journal, _) = open();
    // If Cassandra returned the snapshot with each batch, the response would be too long.
    store(&journal, 1..=10);
    drop(journal);
    assert_eq!(open().1.0, Counted(10));
}

/// Simulates that Cassandra loses a takeover while the server that took over is running.
fn servers_stay_apart_after_a_lost_takeover(cassandra: &mut Cassandra) {
    let address = cassandra.address();
    let (first, _) = open(&address);
    cassandra.execute("UPDATE owner SET epoch = 0 WHERE name = 'journal' IF epoch > 0");
    cassandra.execute("UPDATE batches SET epoch = 0 WHERE bucket = 1 IF epoch > 0");
    let (second, _) = open(&address);
    let error = failure(&first, 1);
    assert!(
        error.contains("has taken over") || error.contains("has lost acknowledged writes"),
        "{error}"
    );
    store(&second, 1..=2);
    drop(second);
    assert_eq!(open(&address).1, Counted(2));
}

/// Prepares the states that a killed server leaves behind.
fn continues_after_a_crash_between_two_buckets(cassandra: &mut Cassandra) {
    let address = cassandra.address();
    let (journal, _) = open(&address);
    store(&journal, 1..=3);
    drop(journal);
    // A server was killed after it had sealed its bucket.
    cassandra.execute("UPDATE batches SET is_sealed = true WHERE bucket = 1 IF epoch > 0");
    let (journal, state) = open(&address);
    assert_eq!(state, Counted(3));
    let owner = "SELECT bucket FROM owner";
    assert_eq!(cassandra.execute(owner), [[CqlValue::Integer(2)]]);
    let buckets = "SELECT DISTINCT bucket FROM batches";
    assert_eq!(cassandra.execute(buckets), [[CqlValue::Integer(2)]]);
    store(&journal, 4..=6);
    drop(journal);
    // The second server was killed after it had sealed its bucket. Its delayed attempts to create
    // the next bucket and to store a batch there are not applied.
    let epoch = match cassandra.execute("SELECT epoch FROM owner")[0][..] {
        [CqlValue::Integer(epoch)] => epoch,
        ref other => panic!("{other:?}"),
    };
    cassandra.execute("UPDATE batches SET is_sealed = true WHERE bucket = 2 IF epoch > 0");
    let (journal, state) = open(&address);
    assert_eq!(state, Counted(6));
    store(&journal, 7..=7);
    let late = format!("UPDATE batches SET epoch = {epoch} WHERE bucket = 3 IF epoch = NULL");
    assert_eq!(cassandra.execute(&late)[0][0], CqlValue::Flag(false));
    let late = format!(
        "UPDATE batches SET records = 0x00 WHERE bucket = 3 AND first = 6 IF epoch = {epoch}"
    );
    assert_eq!(cassandra.execute(&late)[0][0], CqlValue::Flag(false));
    drop(journal);
    assert_eq!(open(&address).1, Counted(7));
}

/// Records of another size.
#[derive(Debug, Clone)]
struct Other;

impl JournalState for Other {
    const RECORD_BYTES: usize = 4;

    fn apply(&mut self, _: &[u8]) {}

    fn snapshot(&self) -> Vec<u8> {
        Vec::new()
    }

    fn restore(_: &[u8]) -> Option<Self> {
        Some(Other)
    }
}

fn refuses_damage(cassandra: &mut Cassandra) {
    for (statement, message) in [
        ("DELETE FROM batches WHERE bucket = 1", "it is missing"),
        (
            "DELETE FROM batches WHERE bucket = 1 AND first = 1",
            "a batch is missing",
        ),
        (
            "UPDATE batches SET records = 0x00 WHERE bucket = 1 AND first = 1",
            "a batch is invalid",
        ),
        (
            "UPDATE batches SET snapshot = 0x00 WHERE bucket = 1",
            "its snapshot is invalid",
        ),
        (
            "DELETE FROM batches WHERE bucket = 1 AND first = 2",
            "its last batch is missing",
        ),
        ("TRUNCATE owner", "its owner is missing"),
    ] {
        let address = cassandra.address();
        let (journal, _) = open(&address);
        store(&journal, 1..=3);
        drop(journal);
        // Lightweight transactions use timestamps slightly ahead of the clock. An earlier timestamp
        // would make the plain statement ineffective.
        thread::sleep(Duration::from_millis(5));
        cassandra.execute(statement);
        let error = open_error(&address);
        assert!(error.contains(message), "{statement}: {error}");
        assert!(
            error.contains("bucket 1 is damaged"),
            "{statement}: {error}"
        );
    }
    let address = cassandra.address();
    let (journal, _) = open(&address);
    store(&journal, 1..=3);
    drop(journal);
    cassandra.execute("UPDATE batches SET is_sealed = true WHERE bucket = 1 IF epoch > 0");
    drop(open(&address));
    cassandra.execute("TRUNCATE owner");
    let error = open_error(&address);
    assert!(
        error.contains("bucket 2 is damaged: its owner is missing"),
        "{error}"
    );

    let address = cassandra.address();
    let (journal, _) = open(&address);
    store(&journal, 1..=3);
    cassandra.execute("UPDATE batches SET total = 2 WHERE bucket = 1 IF epoch > 0");
    let error = failure(&journal, 4);
    assert!(error.contains("has lost acknowledged writes"), "{error}");

    let address = cassandra.address();
    drop(open(&address));
    // The magic number, followed by version 2.
    let later = "SET snapshot = 0x464d736e6170736802000000 WHERE bucket = 1 IF epoch > 0";
    cassandra.execute(&format!("UPDATE batches {later}"));
    let error = open_error(&address);
    assert!(
        error.contains("bucket 1 was written by a later version of floodmark; use that"),
        "{error}"
    );

    let address = cassandra.address();
    drop(open(&address));
    let opened = Journal::open_cassandra(&address, &JournalOptions::default(), Other);
    let error = opened.map(drop).unwrap_err().to_string();
    assert!(error.contains("another workload"), "{error}");

    cassandra.execute("DROP TABLE batches");
    cassandra.execute("CREATE TABLE batches (bucket bigint PRIMARY KEY)");
    let error = open_error(&address);
    assert!(error.contains("error 0x2200"), "{error}");
}

fn repeats_a_write_while_cassandra_pauses(cassandra: &mut Cassandra) {
    let address = cassandra.address();
    let (journal, _) = open(&address);
    store(&journal, 1..=3);
    cassandra.store.pause();
    journal.append(&4_u64.to_le_bytes()).unwrap();
    journal.commit();
    // The first attempt times out after 2.5 s.
    thread::sleep(Duration::from_millis(2700));
    assert_eq!(journal.progress().durable, 3);
    cassandra.store.resume();
    await_durable(&journal, 4);
    store(&journal, 5..=6);
    drop(journal);
    assert_eq!(open(&address).1, Counted(6));
}

fn survives_a_restart_of_cassandra(cassandra: &mut Cassandra) {
    let address = cassandra.address();
    let (journal, _) = open(&address);
    store(&journal, 1..=3);
    thread::sleep(REPLAYABLE);
    // A restart of Cassandra between two writes does not make the journal fail.
    cassandra.store.kill();
    cassandra.store.restart();
    store(&journal, 4..=5);
    thread::sleep(REPLAYABLE);
    cassandra.store.kill();
    let error = failure(&journal, 6);
    assert!(error.contains("cannot store a batch: "), "{error}");
    assert!(error.contains("start Cassandra"), "{error}");
    drop(journal);
    let error = open_error(&address);
    assert!(
        error.contains("cannot connect: Connection refused"),
        "{error}"
    );
    cassandra.store.restart();
    assert_eq!(open(&address).1, Counted(5));
}
