//! Reads back the items of a set (`--check`) before a load, and after an attempt, a crash round or
//! a power loss.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use floodmark_check::FoundItems;
use floodmark_host::{ProcessPlacement, Stop};
use floodmark_load::tls::{Tls, TlsError};
use floodmark_plan::Planned;
use floodmark_record::api_check::{ItemsFile, Readback};
use floodmark_record::origin::Origin;
use floodmark_record::plan::{Http, Plan};
use floodmark_record::pointer::PointedValue;
use floodmark_record::units::{show_count, show_duration};
use floodmark_wire::RequestSpec;

use crate::probe::{self, ProbeLimits, ProbeResponse, ProbeTarget};

/// Maximum length of one page, in bytes.
const MAX_PAGE_LENGTH: usize = 1 << 30;

/// Placeholder for the number of the page.
const PAGE: &str = "{page}";

/// Maximum number of pages.
const MAX_PAGES: u64 = 1_000_000;

/// Maximum number of items found per item sent. If more items are found, the server is assumed to
/// never return an empty page. The limit leaves room to report duplicates, such as each item stored
/// twice.
const MAX_COPIES: u64 = 10;

/// A set on a server.
pub(crate) struct SetReader<'a> {
    from: &'a ProcessPlacement,
    address: SocketAddr,
    http: Http,
    tls: Result<Option<Tls>, TlsError>,
    origin: Origin,
    /// Value of the `Host` header.
    authority: String,
    readback: Readback,
    /// Maximum time for one page, and for the items to stop changing.
    timeout: Duration,
    /// Flag that stops the reading.
    stop: Option<&'a AtomicBool>,
}

/// A set that cannot be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetFault {
    /// The set is not empty before the load. Contains the error message.
    NotEmpty(String),
    /// The items cannot be read back. Contains the error message.
    Unreadable(String),
    /// The reading was stopped.
    Interrupted,
}

/// Checks before a load that the plan's set can be read back and is empty. Succeeds if the plan
/// does not check a set.
///
/// # Errors
/// The set has items or cannot be read back, or `stop` is set.
pub fn check_set(from: &ProcessPlacement, planned: &Planned, stop: &Stop) -> Result<(), SetFault> {
    let flag = stop.flag();
    let Some(set) = SetReader::of(from, &planned.plan, planned, &flag) else {
        return Ok(());
    };
    let path = set.readback.path.replace(PAGE, "1");
    let fix = "start the server, or correct its address or `readback.path`";
    let page = set.get(&path).map_err(|why| format!("{why}; {fix}"));
    let page = page.and_then(|page| set.items_in(&path, &page));
    match page.map(|items| items.count()) {
        _ if stop.is_set() => Err(SetFault::Interrupted),
        Ok(0) => Ok(()),
        Ok(count) => Err(SetFault::NotEmpty(format!(
            "GET {path}: the set already has {} items; start with an empty set",
            show_count(count)
        ))),
        Err(why) => Err(SetFault::Unreadable(why)),
    }
}

impl<'a> SetReader<'a> {
    /// Returns the set that a plan writes to, or `None` if the plan does not check a set.
    /// `planned` contains the certificates and the source of the settings.
    pub(crate) fn of(
        from: &'a ProcessPlacement,
        plan: &Plan,
        planned: &Planned,
        stop: &'a AtomicBool,
    ) -> Option<Self> {
        let readback = plan.check.as_ref()?.api()?.readback.clone()?;
        let address = plan.target.ip_addresses().next()?;
        let mut set = SetReader::new(from, address, readback, plan.timeout, Some(stop));
        set.http = plan.http;
        set.tls = Tls::of(plan, &planned.credentials);
        set.origin = planned.origin;
        set.authority.clone_from(&plan.target.authority);
        if let Some(headers) = plan.target.authorize(&set.readback.headers) {
            set.readback.headers = headers.into_owned();
        }
        Some(set)
    }

    /// Returns the set on the HTTP/1.1 server at this address. `timeout` is the maximum time for
    /// one page.
    pub(crate) fn new(
        from: &'a ProcessPlacement,
        address: SocketAddr,
        readback: Readback,
        timeout: Duration,
        stop: Option<&'a AtomicBool>,
    ) -> Self {
        SetReader {
            from,
            address,
            http: Http::V1,
            tls: Ok(None),
            origin: Origin::default(),
            authority: address.to_string(),
            readback,
            timeout,
            stop,
        }
    }

    /// Reads all items, and writes them to a file in `directory`. `sent` is an upper bound on the
    /// number of items sent to the server.
    pub(crate) fn write_items(&self, sent: u64, directory: &Path, name: String) -> ItemsFile {
        let path = directory.join(&name);
        let mut file = ItemsFile {
            file: name,
            ..ItemsFile::default()
        };
        match self.items(sent) {
            Ok(items) => {
                file.count = items.numbers.len() as u64;
                file.unreadable = items.unreadable;
                let written = write(&path, &items.numbers).err();
                file.failure = written.map(|error| format!("{}: {error}", path.display()));
            }
            Err(why) => {
                file.failure = Some(why);
                file.interrupted = self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
            }
        }
        file
    }

    /// Reads all items. `sent` is an upper bound on the number of items sent to the server.
    ///
    /// The server may still be executing inserts. If it executes one between two pages, the later
    /// pages shift, and an item can be missing or occur twice. All pages are therefore read again
    /// until two consecutive passes return the same items.
    ///
    /// # Errors
    /// A page cannot be read, the pages do not end, the items keep changing for longer than the
    /// timeout, or the reading was stopped.
    pub(crate) fn items(&self, sent: u64) -> Result<FoundItems, String> {
        if !self.readback.path.contains(PAGE) {
            return self.items_in(&self.readback.path, &self.get(&self.readback.path)?);
        }
        let mut items = self.all_pages(sent)?;
        let begin = Instant::now();
        loop {
            let again = self.all_pages(sent)?;
            if again == items {
                return Ok(items);
            }
            if begin.elapsed() > self.timeout {
                return Err(format!(
                    "GET {}: the items were still changing after {}; make the server return the \
                     pages in a fixed order, or increase the timeout",
                    self.readback.path,
                    show_duration(self.timeout)
                ));
            }
            items = again;
        }
    }

    /// Reads all pages once. Returns their items in ascending order.
    fn all_pages(&self, sent: u64) -> Result<FoundItems, String> {
        let mut items = self.pages(sent)?;
        items.numbers.sort_unstable();
        Ok(items)
    }

    fn pages(&self, sent: u64) -> Result<FoundItems, String> {
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
            if all.count() > sent.max(1).saturating_mul(MAX_COPIES) {
                return Err(format!(
                    "GET {}: {} items on {} pages, but at most {} were sent; make the server return an empty page after the last item",
                    self.readback.path,
                    show_count(all.count()),
                    show_count(number),
                    show_count(sent)
                ));
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
        let request = RequestSpec {
            method: "GET",
            path,
            authority: &self.authority,
            headers: &self.readback.headers,
            body: &[],
            close: true,
        };
        let limits = ProbeLimits {
            timeout: self.timeout,
            length: MAX_PAGE_LENGTH,
            stop: self.stop,
        };
        let target = ProbeTarget {
            from: self.from,
            address: self.address,
            http: self.http.into(),
            tls: self.tls.as_ref().map_err(|error| failed(error))?.as_ref(),
            origin: self.origin,
        };
        let (_, response) = probe::send(target, &request, limits);
        response.map_err(|why| failed(&why))
    }

    /// Returns the items in a response.
    fn items_in(&self, path: &str, response: &ProbeResponse) -> Result<FoundItems, String> {
        let failed = |why: &dyn std::fmt::Display| format!("GET {path}: {why}");
        if response.status != 200 {
            return Err(failed(&format_args!(
                "status {}; the server must return the items with status 200",
                response.status
            )));
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
            .map_err(|why| {
                failed(&format_args!(
                    "{why}; set `readback.items` in the check file to the location of the array, such as \"/data\""
                ))
            })?;
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
