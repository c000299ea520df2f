//! Bars in an embedded database: a redb file.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use bytes::Bytes;
use floodmark_host::lock;
use floodmark_host::sync_directory;
use redb::backends::FileBackend;
use redb::{Builder, Database, ReadableDatabase, ReadableTable, TableDefinition, TableHandle};

use crate::bars::{
    BarInsert, BarList, BarRequests, MAX_BATCH, StoredBar, answer_inserts, answer_lists,
};
use crate::error::ServeError;
use crate::state_file::{StateError, failed, open_regular};
use crate::store_queue::{QueuedRequests, StoreFault, StoreResult};

/// The bars: id and name.
const BARS: TableDefinition<i64, &str> = TableDefinition::new("bars");
/// Maximum size of the database's cache, in bytes.
const CACHE_BYTES: usize = 256 << 20;
/// Permissions of a new file, which the umask restricts.
const MODE: u32 = 0o666;

/// Threads of an embedded database.
pub(crate) struct EmbeddedBars {
    writer: JoinHandle<Result<(), ServeError>>,
    reader: JoinHandle<()>,
}

impl EmbeddedBars {
    /// Opens the database and starts its threads. Creates the file if necessary.
    pub(crate) fn start(
        path: &Path,
        requests: BarRequests,
        on_failure: fn(&ServeError),
    ) -> Result<Self, ServeError> {
        let (database, next) = open(path)?;
        let database = Arc::new(database);
        let BarRequests { inserts, lists } = requests;
        let writer = BarWriter {
            database: Arc::clone(&database),
            next,
            failure: None,
            path: path.to_owned(),
            on_failure,
        };
        Ok(EmbeddedBars {
            writer: spawn("bars-writer", || writer.run(inserts))?,
            reader: spawn("bars-reader", move || read(&database, lists))?,
        })
    }

    /// Waits until all inserts are stored and the file is closed. Must be called after the queues
    /// have been closed.
    ///
    /// # Errors
    /// The database has failed.
    pub(crate) fn finish(self) -> Result<(), ServeError> {
        let written = self.writer.join();
        self.reader.join().map_err(|_| ServeError::Panicked)?;
        written.map_err(|_| ServeError::Panicked)?
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, ServeError> {
    let thread = thread::Builder::new().name(name.into()).spawn(run);
    thread.map_err(ServeError::Thread)
}

/// Opens or creates a database, and returns it with the id of the next bar.
fn open(path: &Path) -> Result<(Database, i64), ServeError> {
    if matches!(fs::metadata(path), Err(error) if error.kind() == io::ErrorKind::NotFound)
        && !path.is_symlink()
    {
        create(path)?;
    }
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (file, _) = open_regular(path)?;
    let opened = open_database(file).map_err(|error| open_error(path, error))?;
    // The server that created the file may have been killed before it synced the directory.
    sync_directory(path).map_err(|error| failed("sync", path, error))?;
    Ok(opened)
}

/// Creates an empty database under a temporary name, because redb rejects a file that it has not
/// fully initialized. If the server is killed in the meantime, `path` does not exist, and the next
/// start removes the temporary file.
fn create(path: &Path) -> Result<(), ServeError> {
    let cannot_create = |error| failed("create", path, error);
    let directory = path
        .parent()
        .filter(|directory| *directory != Path::new(""));
    let directory = directory.unwrap_or(Path::new("."));
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push(".new-");
    remove_unfinished(directory, &prefix).map_err(cannot_create)?;
    let temporary = tempfile::Builder::new()
        .prefix(&prefix)
        .permissions(Permissions::from_mode(MODE))
        .tempfile_in(directory)
        .map_err(cannot_create)?;
    let file = temporary.reopen().map_err(cannot_create)?;
    open_database(file).map_err(|error| open_error(path, error))?;
    temporary.as_file().sync_all().map_err(cannot_create)?;
    match temporary.persist_noclobber(path) {
        Ok(_) => Ok(()),
        // Another server created the file first.
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(cannot_create(error.error).into()),
    }
}

/// Removes the temporary files that killed servers left behind. Their names start with `prefix`.
/// redb locks an open database, so a file that another server is creating is not removed.
fn remove_unfinished(directory: &Path, prefix: &OsStr) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let is_unfinished = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(prefix.as_encoded_bytes());
        if is_unfinished
            && entry.file_type()?.is_file()
            && let Ok(file) = File::open(entry.path())
            && lock(&file)?
        {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Opens a file, which may be empty, and returns its database with the id of the next bar.
fn open_database(file: File) -> Result<(Database, i64), redb::Error> {
    let backend = FileBackend::new(file)?;
    let database = Builder::new()
        .set_cache_size(CACHE_BYTES)
        // Without the check, redb can panic on a damaged file.
        .set_check_integrity_on_open(true)
        .create_with_backend(backend)?;
    let reading = database.begin_read()?;
    let mut tables = reading.list_tables()?;
    if let Some(other) = tables.find(|table| table.name() != BARS.name()) {
        let reason = format!("it has the table \"{}\"", other.name());
        return Err(redb::Error::Corrupted(reason));
    }
    let transaction = database.begin_write()?;
    let last = {
        let table = transaction.open_table(BARS)?;
        table.last()?.map_or(0, |(id, _)| id.value())
    };
    transaction.commit()?;
    Ok((database, last.saturating_add(1)))
}

fn open_error(path: &Path, cause: redb::Error) -> ServeError {
    let is_content = |error: &io::Error| {
        let kind = error.kind();
        kind == io::ErrorKind::InvalidData || kind == io::ErrorKind::UnexpectedEof
    };
    let cause = match cause {
        redb::Error::DatabaseAlreadyOpen => return StateError::Locked(path.to_owned()).into(),
        redb::Error::Io(error) if !is_content(&error) => {
            return failed("open", path, error).into();
        }
        redb::Error::Io(error) => error.to_string(),
        redb::Error::Corrupted(reason) => reason,
        other => other.to_string(),
    };
    ServeError::NotBars {
        path: path.to_owned(),
        cause,
    }
}

/// Stores inserts, one batch after another.
struct BarWriter {
    database: Arc<Database>,
    next: i64,
    /// Cause of the first failed write. Once it is set, no more bars are stored.
    failure: Option<String>,
    /// Path of the database file, for errors.
    path: PathBuf,
    /// Called after the first failed write.
    on_failure: fn(&ServeError),
}

impl BarWriter {
    /// Runs until the queue is closed.
    ///
    /// # Errors
    /// A write has failed.
    fn run(mut self, mut inserts: QueuedRequests<BarInsert>) -> Result<(), ServeError> {
        let mut batch = Vec::new();
        while inserts.blocking_take(&mut batch, MAX_BATCH) {
            let stored = match &self.failure {
                Some(cause) => Err(failure(cause)),
                None => self.insert(&batch).map_err(|error| {
                    let cause = error.to_string();
                    (self.on_failure)(&self.failed(cause.clone()));
                    failure(self.failure.insert(cause))
                }),
            };
            answer_inserts(batch.drain(..), stored);
        }
        match self.failure.take() {
            None => Ok(()),
            Some(cause) => Err(self.failed(cause)),
        }
    }

    fn failed(&self, cause: String) -> ServeError {
        ServeError::StoreFailed {
            path: self.path.clone(),
            cause,
        }
    }

    /// Stores a batch durably and returns the ids. After an error, the batch may still be stored.
    fn insert(&mut self, batch: &[BarInsert]) -> Result<Vec<i64>, redb::Error> {
        let mut ids = Vec::with_capacity(batch.len());
        // A transaction is durable when `commit` returns (`Durability::Immediate`).
        let transaction = self.database.begin_write()?;
        {
            let mut table = transaction.open_table(BARS)?;
            for (id, insert) in (self.next..i64::MAX).zip(batch) {
                table.insert(id, insert.name.as_str())?;
                ids.push(id);
            }
        }
        transaction.commit()?;
        self.next += ids.len() as i64;
        Ok(ids)
    }
}

fn failure(cause: &str) -> StoreFault {
    StoreFault(format!(
        "the store has failed: {cause}; check that its disk is healthy and has free space, then restart the server"
    ))
}

/// Answers list requests until the queue is closed. All waiting requests share the next result.
fn read(database: &Database, mut lists: QueuedRequests<BarList>) {
    let mut waiting = Vec::new();
    while lists.blocking_take(&mut waiting, usize::MAX) {
        let bars: StoreResult<Bytes> = list(database).map_err(|error| failure(&error.to_string()));
        answer_lists(waiting.drain(..), &bars);
    }
}

fn list(database: &Database) -> Result<Bytes, redb::Error> {
    let table = database.begin_read()?.open_table(BARS)?;
    let mut json = Vec::from(b"[");
    for bar in table.iter()? {
        let (id, name) = bar?;
        if json.len() > 1 {
            json.push(b',');
        }
        let (id, name) = (id.value(), name.value());
        // Writing to a vector cannot fail.
        let _ = serde_json::to_writer(&mut json, &StoredBar { id, name });
    }
    json.push(b']');
    Ok(json.into())
}
