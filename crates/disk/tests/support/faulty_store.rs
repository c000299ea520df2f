//! A small server with known durability faults: a set of numbers over TCP, for tests.
//!
//! `faulty_store STORE DIRECTORY ADDRESS` reads one request per line: `PUT N` is answered with `OK
//! N`, and `LIST` with all numbers on one line. STORE is one of the names in `Method::parse`.

use std::error::Error;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Size of the file of `InPlace`: two sectors.
const IN_PLACE_BYTES: u64 = 1024;

/// How the server stores a number, and when it responds.
#[derive(Clone, Copy, PartialEq)]
enum Method {
    /// Appends a record with a checksum, and syncs.
    Journal,
    /// Like `Journal`, but responds before the write.
    EarlyResponse,
    /// Like `Journal`, but never syncs.
    NoSync,
    /// Like `Journal`, but ignores the error if a sync fails.
    IgnoredError,
    /// Like `Journal`, but repeats a sync that failed.
    RepeatedSync,
    /// Like `Journal`, but does not sync the directory of a new file.
    NoDirectorySync,
    /// Overwrites all numbers in place in a file of constant size, and syncs.
    InPlace,
    /// Replaces the file: writes a new file, syncs it, renames it and syncs the directory.
    Replace,
    /// Like `Replace`, but does not sync the file.
    RenameUnsyncedFile,
    /// Like `Replace`, but does not sync the directory.
    RenameUnsyncedDirectory,
}

impl Method {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "journal" => Method::Journal,
            "early-response" => Method::EarlyResponse,
            "no-sync" => Method::NoSync,
            "ignored-error" => Method::IgnoredError,
            "repeated-sync" => Method::RepeatedSync,
            "no-directory-sync" => Method::NoDirectorySync,
            "in-place" => Method::InPlace,
            "replace" => Method::Replace,
            "rename-unsynced-file" => Method::RenameUnsyncedFile,
            "rename-unsynced-directory" => Method::RenameUnsyncedDirectory,
            _ => return None,
        })
    }

    fn is_journal(self) -> bool {
        !matches!(
            self,
            Method::InPlace
                | Method::Replace
                | Method::RenameUnsyncedFile
                | Method::RenameUnsyncedDirectory
        )
    }
}

struct Store {
    method: Method,
    directory: PathBuf,
    file: File,
    numbers: Vec<u64>,
}

impl Store {
    fn open(method: Method, directory: &Path) -> Outcome<Self> {
        let path = directory.join("numbers");
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false);
        let mut file = file.open(&path)?;
        let mut content = Vec::new();
        file.read_to_end(&mut content)?;
        let mut store = Store {
            method,
            directory: directory.to_owned(),
            file,
            numbers: Vec::new(),
        };
        if method.is_journal() {
            let records = content.chunks_exact(16).map_while(parse);
            store.numbers = records.collect();
            // Cut off a torn record, so that later records follow the last valid one.
            let length = store.numbers.len() as u64 * 16;
            store.file.set_len(length)?;
            store.sync()?;
        } else {
            let numbers = content.chunks_exact(8).map(number);
            store.numbers = numbers.filter(|number| *number > 0).collect();
            store.numbers.reverse();
            if method == Method::InPlace {
                store.file.set_len(IN_PLACE_BYTES)?;
                store.sync()?;
            }
        }
        if method != Method::NoDirectorySync {
            File::open(directory)?.sync_all()?;
        }
        Ok(store)
    }

    fn sync(&self) -> Outcome<()> {
        match self.method {
            Method::NoSync => {}
            Method::IgnoredError => drop(self.file.sync_data()),
            Method::RepeatedSync => {
                if self.file.sync_data().is_err() {
                    self.file.sync_data()?;
                }
            }
            _ => self.file.sync_data()?,
        }
        Ok(())
    }

    fn put(&mut self, number: u64) -> Outcome<()> {
        self.numbers.push(number);
        if self.method.is_journal() {
            let record = [number.to_ne_bytes(), check(number).to_ne_bytes()].concat();
            let offset = (self.numbers.len() as u64 - 1) * 16;
            self.file.write_all_at(&record, offset)?;
            return self.sync();
        }
        // The last number comes first, so each number moves to another place.
        let newest_first = self.numbers.iter().rev();
        let content: Vec<u8> = newest_first
            .flat_map(|number| number.to_ne_bytes())
            .collect();
        if self.method == Method::InPlace {
            self.file.write_all_at(&content, 0)?;
            return self.sync();
        }
        let temporary = self.directory.join("numbers.new");
        let mut file = File::create(&temporary)?;
        file.write_all(&content)?;
        if self.method != Method::RenameUnsyncedFile {
            file.sync_all()?;
        }
        fs::rename(&temporary, self.directory.join("numbers"))?;
        if self.method != Method::RenameUnsyncedDirectory {
            File::open(&self.directory)?.sync_all()?;
        }
        Ok(())
    }

    fn serve(&mut self, client: TcpStream) -> Outcome<()> {
        let mut responses = client.try_clone()?;
        for line in BufReader::new(client).lines() {
            let line = line?;
            let Some(number) = line.strip_prefix("PUT ") else {
                let all: Vec<String> = self.numbers.iter().map(u64::to_string).collect();
                responses.write_all(format!("{}\n", all.join(" ")).as_bytes())?;
                continue;
            };
            let number: u64 = number.parse()?;
            let response = format!("OK {number}\n");
            if self.method == Method::EarlyResponse {
                responses.write_all(response.as_bytes())?;
                self.put(number)?;
            } else {
                self.put(number)?;
                responses.write_all(response.as_bytes())?;
            }
        }
        Ok(())
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

fn check(number: u64) -> u64 {
    (number ^ 0x5bd1_e995).wrapping_mul(0x2545_f491_4f6c_dd1d)
}

fn parse(record: &[u8]) -> Option<u64> {
    let value = number(&record[..8]);
    (number(&record[8..]) == check(value)).then_some(value)
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [method, directory, address] = &arguments[..] else {
        return Err("usage: faulty_store STORE DIRECTORY ADDRESS".into());
    };
    let method = Method::parse(method).ok_or("unknown store")?;
    let mut store = Store::open(method, Path::new(directory))?;
    for client in TcpListener::bind(address)?.incoming() {
        store.serve(client?)?;
    }
    Ok(())
}
