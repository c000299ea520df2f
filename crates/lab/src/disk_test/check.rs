//! The check of a disk test: requests to the traced server, and the data that must survive.

use std::net::SocketAddr;

use floodmark_plan::{CheckFile, WriteRequest};
use floodmark_record::api_check::Readback;

use super::client::{ends_at_close, responses};
use super::run::TracedRun;
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
                let authority = server.to_string();
                let write = file.write_request(&authority);
                let write = write.map_err(DiskTestError::CheckFile)?;
                file.check_readback(&authority)
                    .map_err(DiskTestError::CheckFile)?;
                TestRequests::Inserts(write)
            }
        })
    }

    /// Returns the error for a server that acknowledged nothing.
    pub(super) fn nothing_acknowledged(&self, run: &TracedRun) -> DiskTestError {
        let mut sent = run.trace.sent(|_| true);
        sent.retain(|socket, _| run.requests(*socket).is_some());
        let (what, fix) = match self {
            DiskCheck::Numbers { path, .. } => (
                format!("no response to {path} contained a number"),
                "check --check and --path".to_owned(),
            ),
            DiskCheck::Set { file, .. } => {
                let write = &file.mix.requests[0];
                let (method, path) = (&write.request.method, &write.path);
                (
                    format!("the server acknowledged no {method} {path}"),
                    format!("correct `write` in {}", file.mix.file),
                )
            }
        };
        let status = sent.values().flat_map(|bytes| responses(bytes)).next();
        DiskTestError::NothingAcknowledged(match status {
            Some((status, _)) => {
                format!("{what} (the first response has status {status}); {fix}")
            }
            None if sent.values().any(|bytes| ends_at_close(bytes)) => format!(
                "{what}: the response has no Content-Length, so floodmark cannot detect its end; \
                 make the server send Content-Length"
            ),
            None => format!("{what} (there is no complete HTTP/1.1 response); {fix}"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn explains_why_nothing_is_acknowledged() {
        let check = DiskCheck::Numbers {
            check: NumberCheck::Sequence,
            path: "/next".to_owned(),
        };
        let foreign = b"HTTP/1.1 408 Timeout\r\nContent-Length: 0\r\n\r\n";
        let explain = |response: &[u8]| {
            let run = TracedRun::of_sends(&[(2, response.to_vec()), (3, foreign.to_vec())]);
            check.nothing_acknowledged(&run).to_string()
        };
        for (response, expected) in [
            (
                &b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"[..],
                " (the first response has status 404); check --check and --path",
            ),
            (
                b"HTTP/1.0 200 OK\r\n\r\n7",
                ": the response has no Content-Length, so floodmark cannot detect its end; make \
                 the server send Content-Length",
            ),
            (
                b"OK",
                " (there is no complete HTTP/1.1 response); check --check and --path",
            ),
        ] {
            let expected = format!("no response to /next contained a number{expected}");
            assert_eq!(explain(response), expected);
        }
    }
}
