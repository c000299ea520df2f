//! The journal's tables, and all statements that use them.

use std::cmp::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use floodmark_cql::CqlParameter::{self, Blob, Integer};
use floodmark_cql::{CqlResult, CqlValue};

use super::session::{ConditionalResult, JournalSession};
use crate::error::JournalError;
use crate::format::HeaderFault;

/// Maximum time to wait for schema agreement after a schema change.
const AGREEMENT_TIME: Duration = Duration::from_secs(30);
const AGREEMENT_PAUSE: Duration = Duration::from_millis(100);

/// Key of the only row in table `owner`.
const OWNER: CqlParameter<'static> = CqlParameter::Text("journal");

/// Describes a bucket that has no epoch.
pub(super) const MISSING: &str = "it is missing";

/// Describes a bucket that lacks records or the server's epoch, although Cassandra acknowledged
/// writing them.
const LOST: &str = "Cassandra has lost acknowledged writes";

/// Statement that stores a batch.
const STORE: &str = "UPDATE {batches} SET records = ?, total = ? WHERE bucket = ? AND first = ? \
                     IF epoch = ? AND total = ?";

/// The tables of a journal. In a statement, `{owner}` and `{batches}` stand for the table names.
pub(super) struct JournalTables {
    pub(super) session: JournalSession,
    /// [`STORE`] with the table names filled in.
    store: String,
}

/// The row in table `owner`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OwnerRow {
    /// Epoch of the server that opened the journal most recently.
    pub(super) epoch: i64,
    /// First bucket that recovery reads. Earlier buckets are never read again.
    pub(super) bucket: i64,
}

/// The static columns of a bucket.
#[derive(Debug)]
pub(super) struct BucketHead {
    /// Number of records up to and including the last batch.
    pub(super) total: i64,
    /// Whether the next bucket may exist.
    pub(super) is_sealed: bool,
    pub(super) snapshot: Vec<u8>,
}

/// A bucket, as read from Cassandra.
#[derive(Debug)]
pub(super) struct BucketContent {
    pub(super) head: BucketHead,
    /// The batches in order, each with the number of records before it.
    pub(super) batches: Vec<(i64, Vec<u8>)>,
}

impl JournalTables {
    /// Opens the tables. Creates them and the keyspace if they are missing.
    pub(super) fn open(session: JournalSession) -> Result<Self, JournalError> {
        let mut tables = JournalTables {
            store: named(&session, STORE),
            session,
        };
        tables.create()?;
        Ok(tables)
    }

    fn create(&mut self) -> Result<(), JournalError> {
        let keyspace = format!(
            "CREATE KEYSPACE IF NOT EXISTS {} \
             WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}",
            self.session.address.keyspace
        );
        for statement in [
            keyspace.as_str(),
            "CREATE TABLE IF NOT EXISTS {owner} (name text PRIMARY KEY, epoch bigint, bucket bigint)",
            "CREATE TABLE IF NOT EXISTS {batches} (bucket bigint, first bigint, \
             epoch bigint static, total bigint static, is_sealed boolean static, \
             snapshot blob static, records blob, PRIMARY KEY (bucket, first))",
        ] {
            let statement = named(&self.session, statement);
            let created = self.session.execute("create the tables", &statement, &[])?;
            if created == CqlResult::SchemaChanged {
                self.await_agreement()?;
            }
        }
        Ok(())
    }

    /// Waits until all nodes have the same schema. Until then, a node may refuse a statement on a
    /// table that it does not know yet.
    fn await_agreement(&mut self) -> Result<(), JournalError> {
        const DOING: &str = "read the schema version";
        let until = Instant::now() + AGREEMENT_TIME;
        loop {
            let mut versions = Vec::new();
            for table in ["system.local", "system.peers"] {
                // The client cannot decode UUIDs, so Cassandra converts them to JSON text.
                let query = format!("SELECT toJson(schema_version) FROM {table}");
                versions.extend(self.rows(DOING, &query, &[])?.into_iter().flatten());
            }
            if versions.iter().all(|version| *version == versions[0]) {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(JournalError::NoAgreement(self.session.address.to_string()));
            }
            thread::sleep(AGREEMENT_PAUSE);
        }
    }

    /// Returns the owner, or `None` for a new journal.
    pub(super) fn read_owner(&mut self) -> Result<Option<OwnerRow>, JournalError> {
        const DOING: &str = "read the owner";
        let query = "SELECT epoch, bucket FROM {owner} WHERE name = ?";
        let rows = self.rows(DOING, query, &[OWNER])?;
        match rows.first().map(Vec::as_slice) {
            None => Ok(None),
            Some([CqlValue::Integer(epoch), CqlValue::Integer(bucket)]) => Ok(Some(OwnerRow {
                epoch: *epoch,
                bucket: *bucket,
            })),
            Some(_) => Err(self.session.unexpected(DOING)),
        }
    }

    /// Creates the owner row if it does not exist.
    pub(super) fn create_owner(&mut self, owner: OwnerRow) -> Result<(), JournalError> {
        let text = "INSERT INTO {owner} (name, epoch, bucket) VALUES (?, ?, ?) IF NOT EXISTS";
        let values = [OWNER, Integer(owner.epoch), Integer(owner.bucket)];
        self.execute_if("create the owner", text, &values).map(drop)
    }

    /// Changes the owner's epoch from `previous` to `epoch`, unless another server has changed it.
    pub(super) fn claim(
        &mut self,
        previous: i64,
        epoch: i64,
    ) -> Result<ConditionalResult, JournalError> {
        let text = "UPDATE {owner} SET epoch = ? WHERE name = ? IF epoch = ?";
        let values = [Integer(epoch), OWNER, Integer(previous)];
        self.execute_if("take over the journal", text, &values)
    }

    /// Sets the first bucket that recovery reads.
    pub(super) fn advance(&mut self, epoch: i64, bucket: i64) -> Result<(), JournalError> {
        // Without the second condition, a delayed attempt could undo a later call.
        let text = "UPDATE {owner} SET bucket = ? WHERE name = ? IF epoch = ? AND bucket < ?";
        let values = [Integer(bucket), OWNER, Integer(epoch), Integer(bucket)];
        let set = self.execute_if("set the first bucket", text, &values)?;
        if set == ConditionalResult::Applied {
            return Ok(());
        }
        let owner = self.read_owner()?;
        match owner {
            // An earlier attempt has set the bucket.
            Some(owner) if owner == (OwnerRow { epoch, bucket }) => Ok(()),
            _ => Err(self.superseded()),
        }
    }

    /// Takes over a bucket from servers with a lower epoch, whose later writes are not applied.
    pub(super) fn fence(
        &mut self,
        bucket: i64,
        epoch: i64,
    ) -> Result<ConditionalResult, JournalError> {
        let text = "UPDATE {batches} SET epoch = ? WHERE bucket = ? IF epoch < ?";
        let values = [Integer(epoch), Integer(bucket), Integer(epoch)];
        self.execute_if("take over a bucket", text, &values)
    }

    /// Creates a bucket if it does not exist. `total` is the number of records in `snapshot`.
    pub(super) fn create_bucket(
        &mut self,
        bucket: i64,
        epoch: i64,
        (snapshot, total): (&[u8], i64),
    ) -> Result<ConditionalResult, JournalError> {
        let text = "UPDATE {batches} SET epoch = ?, snapshot = ?, total = ? WHERE bucket = ? \
                    IF epoch = NULL";
        let values = [
            Integer(epoch),
            Blob(snapshot),
            Integer(total),
            Integer(bucket),
        ];
        self.execute_if("create a bucket", text, &values)
    }

    /// Creates the bucket after a sealed one.
    ///
    /// # Errors
    /// Another server has taken over the journal and created the bucket.
    pub(super) fn create_own_bucket(
        &mut self,
        bucket: i64,
        epoch: i64,
        snapshot: (&[u8], i64),
    ) -> Result<(), JournalError> {
        match self.create_bucket(bucket, epoch, snapshot)? {
            ConditionalResult::Refused(found) if found != Some(epoch) => Err(self.superseded()),
            // An earlier attempt may have created the bucket.
            ConditionalResult::Applied | ConditionalResult::Refused(_) => Ok(()),
        }
    }

    /// Marks a bucket as complete. Only then may the server create the next bucket.
    pub(super) fn seal(&mut self, bucket: i64, epoch: i64) -> Result<(), JournalError> {
        let text = "UPDATE {batches} SET is_sealed = true WHERE bucket = ? IF epoch = ?";
        let values = [Integer(bucket), Integer(epoch)];
        match self.execute_if("seal a bucket", text, &values)? {
            ConditionalResult::Applied => Ok(()),
            ConditionalResult::Refused(Some(_)) => Err(self.superseded()),
            ConditionalResult::Refused(None) => Err(self.damaged(bucket, MISSING)),
        }
    }

    /// Stores a batch. `first` is the number of records before the batch, and `total` also includes
    /// the records in the batch.
    pub(super) fn store(
        &mut self,
        (bucket, epoch): (i64, i64),
        (first, total): (i64, i64),
        batch: &[u8],
    ) -> Result<(), JournalError> {
        const DOING: &str = "store a batch";
        let values = [
            Blob(batch),
            Integer(total),
            Integer(bucket),
            Integer(first),
            Integer(epoch),
            Integer(first),
        ];
        if self.session.execute_if(DOING, &self.store, &values)? == ConditionalResult::Applied {
            return Ok(());
        }
        if self.read_head(DOING, bucket, epoch)?.total == total {
            // An earlier attempt has stored the batch.
            Ok(())
        } else {
            Err(self.damaged(bucket, LOST))
        }
    }

    /// Reads a bucket that already has the server's epoch.
    pub(super) fn read_bucket(
        &mut self,
        bucket: i64,
        epoch: i64,
    ) -> Result<BucketContent, JournalError> {
        const DOING: &str = "read a bucket";
        let query = "SELECT first, records FROM {batches} WHERE bucket = ?";
        let mut batches = Vec::new();
        for row in self.rows(DOING, query, &[Integer(bucket)])? {
            let Ok([first, records]) = <[CqlValue; 2]>::try_from(row) else {
                return Err(self.session.unexpected(DOING));
            };
            match (first, records) {
                (CqlValue::Integer(first), CqlValue::Blob(records)) => {
                    batches.push((first, records));
                }
                // For a bucket without batches, Cassandra returns one row with static columns only.
                (CqlValue::Nothing, CqlValue::Nothing) => {}
                _ => return Err(self.damaged(bucket, "a row has no records")),
            }
        }
        // If the bucket still has the server's epoch, the batches have not changed since they were
        // read.
        let head = self.read_head(DOING, bucket, epoch)?;
        Ok(BucketContent { head, batches })
    }

    /// Reads a bucket's static columns. `DISTINCT` returns them once; other queries would repeat
    /// them in each row.
    ///
    /// # Errors
    /// The query fails, or the bucket is missing or does not have the server's epoch.
    fn read_head(
        &mut self,
        doing: &'static str,
        bucket: i64,
        epoch: i64,
    ) -> Result<BucketHead, JournalError> {
        let query =
            "SELECT DISTINCT epoch, total, is_sealed, snapshot FROM {batches} WHERE bucket = ?";
        let row = self.rows(doing, query, &[Integer(bucket)])?.pop();
        let row = row.ok_or_else(|| self.damaged(bucket, MISSING))?;
        let Ok([found, total, is_sealed, snapshot]) = <[CqlValue; 4]>::try_from(row) else {
            return Err(self.session.unexpected(doing));
        };
        let (CqlValue::Integer(found), CqlValue::Integer(total)) = (found, total) else {
            return Err(self.damaged(bucket, MISSING));
        };
        match found.cmp(&epoch) {
            Ordering::Equal => Ok(BucketHead {
                total,
                is_sealed: is_sealed == CqlValue::Flag(true),
                snapshot: match snapshot {
                    CqlValue::Blob(snapshot) => snapshot,
                    _ => Vec::new(),
                },
            }),
            Ordering::Greater => Err(self.superseded()),
            Ordering::Less => Err(self.damaged(bucket, LOST)),
        }
    }

    /// Returns the numbers of all buckets.
    pub(super) fn read_buckets(&mut self) -> Result<Vec<i64>, JournalError> {
        const DOING: &str = "list the buckets";
        let query = "SELECT DISTINCT bucket FROM {batches}";
        let rows = self.rows(DOING, query, &[])?.into_iter();
        let numbers = rows.map(|row| match row[..] {
            [CqlValue::Integer(number)] => Ok(number),
            _ => Err(self.session.unexpected(DOING)),
        });
        numbers.collect()
    }

    /// Deletes a bucket that recovery no longer reads.
    pub(super) fn delete(&mut self, bucket: i64) -> Result<(), JournalError> {
        let text = named(&self.session, "DELETE FROM {batches} WHERE bucket = ?");
        let values = [Integer(bucket)];
        self.session
            .execute("delete a bucket", &text, &values)
            .map(drop)
    }

    /// Returns the error for a server that no longer owns the journal.
    pub(super) fn superseded(&self) -> JournalError {
        JournalError::Superseded(self.session.address.to_string())
    }

    /// Returns the error for a damaged bucket.
    pub(super) fn damaged(&self, bucket: i64, what: &'static str) -> JournalError {
        JournalError::DamagedBucket {
            place: self.session.address.to_string(),
            bucket,
            what,
        }
    }

    /// Returns the error for a bucket whose snapshot is invalid.
    pub(super) fn snapshot_fault(&self, bucket: i64, fault: HeaderFault) -> JournalError {
        match fault {
            HeaderFault::LaterVersion => JournalError::LaterBucket {
                place: self.session.address.to_string(),
                bucket,
            },
            HeaderFault::Foreign | HeaderFault::Damaged => {
                self.damaged(bucket, "its snapshot is invalid")
            }
        }
    }

    fn execute_if(
        &mut self,
        doing: &'static str,
        text: &str,
        values: &[CqlParameter<'_>],
    ) -> Result<ConditionalResult, JournalError> {
        let text = named(&self.session, text);
        self.session.execute_if(doing, &text, values)
    }

    fn rows(
        &mut self,
        doing: &'static str,
        query: &str,
        values: &[CqlParameter<'_>],
    ) -> Result<Vec<Vec<CqlValue>>, JournalError> {
        let query = named(&self.session, query);
        match self.session.execute(doing, &query, values)? {
            CqlResult::Rows(rows) => Ok(rows),
            CqlResult::Done | CqlResult::SchemaChanged => Err(self.session.unexpected(doing)),
        }
    }
}

/// Replaces `{owner}` and `{batches}` with the table names.
fn named(session: &JournalSession, text: &str) -> String {
    let keyspace = &session.address.keyspace;
    let text = text.replace("{owner}", &format!("{keyspace}.owner"));
    text.replace("{batches}", &format!("{keyspace}.batches"))
}
