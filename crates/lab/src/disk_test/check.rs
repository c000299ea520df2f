//! The check of a disk test: requests to the traced server, and the data that must survive.

use std::net::SocketAddr;

use floodmark_disk::Trace;
use floodmark_plan::{CheckFile, WriteRequest};
use floodmark_record::api_check::Readback;

use super::client::responses;
use super::{DiskTestError, NumberCheck};

/// Requests that clients send to a server, and data that the server must keep.
#[derive(Debug)]
pub enum DiskCheck {
    /// Each response contains a number.
    Numbers {
        /// How to read the responses.
        check: NumberCheck,
        /// Request path.
        path: String,
    },
    /// Each request inserts an item into a set.
    Set {
        /// The check file, of kind `set`.
        file: Box<CheckFile>,
        /// How to read back the items.
        readback: Readback,
    },
}

impl DiskCheck {
    /// Returns the check that a file describes, or `None` if its kind is not `set`.
    #[must_use]
    pub fn of_file(file: CheckFile) -> Option<Self> {
        let readback = file.check.readback.clone()?;
        let file = Box::new(file);
        Some(DiskCheck::Set { file, readback })
    }

    /// Returns the name of the check or of the check file.
    pub(super) fn name(&self) -> String {
        match self {
            DiskCheck::Numbers { check, .. } => check.to_string(),
            DiskCheck::Set { file, .. } => file.mix.file.clone(),
        }
    }

    pub(super) fn requests(&self, server: SocketAddr) -> Result<TestRequests, DiskTestError> {
        Ok(match self {
            DiskCheck::Numbers { check, path } => TestRequests::Fixed(check.request(path, server)?),
            DiskCheck::Set { file, .. } => {
                let write = file.write_request(&server.to_string());
                TestRequests::Inserts(write.map_err(DiskTestError::Write)?)
            }
        })
    }

    /// Returns the error for a server that acknowledged nothing.
    pub(super) fn nothing_acknowledged(&self, trace: &Trace) -> DiskTestError {
        let sent = trace.sent(|_| true);
        let responses = sent.values().flat_map(|bytes| responses(bytes));
        let status = match responses.map(|(status, _)| status).next() {
            Some(status) => format!("the first response has status {status}"),
            None => "there is no complete HTTP/1.1 response".to_owned(),
        };
        DiskTestError::NothingAcknowledged(match self {
            DiskCheck::Numbers { path, .. } => format!(
                "no response to {path} contained a number ({status}); check --check and --path"
            ),
            DiskCheck::Set { file, .. } => {
                let write = &file.mix.requests[0];
                let (method, path) = (&write.request.method, &write.path);
                format!(
                    "the server acknowledged no {method} {path} ({status}); correct `write` in {}",
                    file.mix.file
                )
            }
        })
    }
}

/// The requests of a test.
pub(super) enum TestRequests {
    /// The same bytes for every request.
    Fixed(Vec<u8>),
    /// Each request inserts an item with the request's number.
    Inserts(WriteRequest),
}

impl TestRequests {
    /// Returns the bytes of the request with this number.
    pub(super) fn bytes(&self, number: u64) -> Vec<u8> {
        match self {
            TestRequests::Fixed(bytes) => bytes.clone(),
            TestRequests::Inserts(write) => write.bytes(number),
        }
    }
}
