//! Reads back all items of a set after an attempt (`--check`), a crash round or a power loss.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use floodmark_check::FoundItems;
use floodmark_host::ProcessPlacement;
use floodmark_record::api_check::{ItemsFile, Readback};
use floodmark_record::plan::Plan;
use floodmark_record::pointer::PointedValue;
use floodmark_wire::{RequestSpec, request_bytes};

use crate::probe::{self, ProbeLimits, ProbeResponse};

/// Maximum time for one page after an attempt or a crash round.
const PAGE_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum length of one page, in bytes.
const MAX_PAGE_LENGTH: usize = 1 << 30;

/// Placeholder for the number of the page.
const PAGE: &str = "{page}";

/// Maximum number of pages.
const MAX_PAGES: u64 = 1_000_000;

/// A set on a server.
pub(crate) struct SetReader<'a> {
    from: &'a ProcessPlacement,
    address: SocketAddr,
    /// Value of the `Host` header.
    authority: String,
    readback: Readback,
    /// Maximum time for one page.
    timeout: Duration,
    /// Number of items before the first attempt, or why they could not be read.
    before: Result<u64, String>,
}

impl<'a> SetReader<'a> {
    /// Returns the set that a plan writes to, or `None` if the plan does not check a set. Before the
    /// first attempt, counts the items.
    pub(crate) fn of(from: &'a ProcessPlacement, plan: &Plan, is_first: bool) -> Option<Self> {
        let api = plan.check.as_ref()?.api()?;
        let address = plan.target.ip_addresses().next()?;
        let mut set = SetReader::new(from, address, api.readback.clone()?, PAGE_TIMEOUT);
        set.authority.clone_from(&plan.target.authority);
        if is_first {
            set.before = set.items().map(|items| items.count());
        }
        Some(set)
    }

    /// Returns the set on the server at this address. `timeout` is the maximum time for one page.
    pub(crate) fn new(
        from: &'a ProcessPlacement,
        address: SocketAddr,
        readback: Readback,
        timeout: Duration,
    ) -> Self {
        SetReader {
            from,
            address,
            authority: address.to_string(),
            readback,
            timeout,
            before: Ok(0),
        }
    }

    /// Reads all items, and writes them to a file in `folder`.
    pub(crate) fn write_items(&self, folder: &Path, name: String) -> ItemsFile {
        let before = |why: &String| format!("before the first attempt: {why}");
        let mut file = ItemsFile {
            before: *self.before.as_ref().unwrap_or(&0),
            failure: self.before.as_ref().err().map(before),
            ..ItemsFile::default()
        };
        if file.failure.is_some() {
            return file;
        }
        match self.items() {
            Ok(items) => {
                file.count = items.numbers.len() as u64;
                file.unreadable = items.unreadable;
                let path = folder.join(&name);
                let written = write(&path, &items.numbers);
                file.failure = written
                    .err()
                    .map(|error| format!("{}: {error}", path.display()));
            }
            Err(why) => file.failure = Some(why),
        }
        file.file = name;
        file
    }

    /// Reads all items.
    pub(crate) fn items(&self) -> Result<FoundItems, String> {
        if !self.readback.path.contains(PAGE) {
            return self.items_in(&self.readback.path, &self.get(&self.readback.path)?);
        }
        let mut all = FoundItems::default();
        let mut previous: Option<(ProbeResponse, u64)> = None;
        for number in 1..=MAX_PAGES {
            let path = self.readback.path.replace(PAGE, &number.to_string());
            let response = self.get(&path)?;
            // Some servers have no page after the last one, or return the last page again.
            let is_end = |(previous, _): &(ProbeResponse, u64)| {
                response.status == 404 || response.body == previous.body
            };
            if previous.as_ref().is_some_and(is_end) {
                return Ok(all);
            }
            let page = self.items_in(&path, &response)?;
            let count = page.count();
            all.numbers.extend_from_slice(&page.numbers);
            all.unreadable += page.unreadable;
            if count == 0 || previous.is_some_and(|(_, previous)| count < previous) {
                return Ok(all);
            }
            previous = Some((response, count));
        }
        Err(format!(
            "GET {}: more than {MAX_PAGES} pages; use larger pages",
            self.readback.path
        ))
    }

    /// Requests one page.
    fn get(&self, path: &str) -> Result<ProbeResponse, String> {
        let failed = |why: &dyn std::fmt::Display| format!("GET {path}: {why}");
        let request = request_bytes(&RequestSpec {
            method: "GET",
            path,
            authority: &self.authority,
            headers: &self.readback.headers,
            body: &[],
            close: true,
        })
        .map_err(|error| failed(&error))?;
        let limits = ProbeLimits {
            timeout: self.timeout,
            length: MAX_PAGE_LENGTH,
        };
        probe::send(self.from, self.address, &request, limits).map_err(|why| failed(&why))
    }

    /// Returns the items in a response.
    fn items_in(&self, path: &str, response: &ProbeResponse) -> Result<FoundItems, String> {
        let failed = |why: &dyn std::fmt::Display| format!("GET {path}: {why}");
        if response.status != 200 {
            return Err(failed(&format_args!("status {}", response.status)));
        }
        let mut items = FoundItems::default();
        let mut take = |value| match value {
            PointedValue::Number(number) => items.numbers.push(number),
            PointedValue::Null | PointedValue::Other => items.unreadable += 1,
        };
        let Readback {
            items: place,
            value,
            ..
        } = &self.readback;
        place
            .each_number(&response.body, value, &mut take)
            .map_err(|why| failed(&why))?;
        Ok(items)
    }
}

fn write(path: &Path, numbers: &[u64]) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    for number in numbers {
        file.write_all(&number.to_le_bytes())?;
    }
    file.flush()
}
