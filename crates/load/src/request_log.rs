//! The log of individual requests (`--request-log`): one CSV line for each request that ended in the
//! measurement.
//!
//! ```text
//! load thread ── full block ──► writer thread ── lines ──► file
//!             ◄── empty block ──
//! ```
//!
//! Each load thread has [`BLOCKS`] blocks of [`BLOCK`] requests (3 MiB in total), and does not
//! allocate memory under load. If the writer has not returned a block in time, requests are dropped
//! and counted.

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use floodmark_record::Outcome;
use floodmark_record::events::{Phase, RequestLogEnd};
use floodmark_record::grpc::ResponseStatus;
use floodmark_record::plan::Plan;
use floodmark_record::worker_input::RequestLogInput;

use crate::backend::Slot;
use crate::clock::Ns;
use crate::connection::ConnectionSlot;
use crate::exchange::Exchange;
use crate::request::push_decimal;
use crate::schedule::mix_bits;

/// First line of the file.
pub const HEADER: &str = "attempt,number,request,thread,slot,use,intended_ns,free_ns,sent_ns,first_byte_ns,done_ns,status,outcome,bytes,grpc_status\n";

/// Number of requests in a block.
const BLOCK: usize = 4096;

/// Number of blocks of each load thread.
const BLOCKS: usize = 8;

/// Changes the seed for sampling, so that samples do not depend on other random numbers.
const SAMPLE: u64 = 0x7361_6d70_6c65_5f6f;

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoggedOutcome {
    /// The request was sent and has an outcome.
    Sent(Outcome),
    /// The request was in flight at the end of the run.
    InFlightAtEnd,
    /// No connection could be opened for the request.
    ConnectFailed,
}

impl LoggedOutcome {
    /// Returns the name of the outcome in the record.
    fn name(self) -> &'static str {
        match self {
            LoggedOutcome::Sent(Outcome::Ok) => "ok",
            LoggedOutcome::Sent(Outcome::Rejected) => "rejected",
            LoggedOutcome::Sent(Outcome::Wrong) => "wrong",
            LoggedOutcome::Sent(Outcome::Malformed) => "malformed",
            LoggedOutcome::Sent(Outcome::Reset) => "reset",
            LoggedOutcome::Sent(Outcome::TimedOut) => "timed_out",
            LoggedOutcome::InFlightAtEnd => "in_flight_at_end",
            LoggedOutcome::ConnectFailed => "connect_failed",
        }
    }
}

/// One request. Times are in ns since the start of the measurement; 0 if they are unknown.
#[derive(Debug, Clone, Copy)]
struct LoggedRequest {
    number: u64,
    group: u32,
    slot: Slot,
    /// Number of responses on the connection, including this one.
    uses: u64,
    intended: Ns,
    free: Ns,
    sent: Ns,
    first: Ns,
    done: Ns,
    bytes: u64,
    /// `None` if there is no complete response.
    status: Option<ResponseStatus>,
    outcome: LoggedOutcome,
}

/// Requests on their way to the writer.
#[derive(Debug)]
struct Block {
    thread: u32,
    requests: Vec<LoggedRequest>,
    /// Number of requests dropped before or after the ones in the block.
    dropped: u64,
}

/// The log of one load thread.
#[derive(Debug)]
pub struct RequestLog {
    block: Box<Block>,
    full: SyncSender<Box<Block>>,
    empty: Receiver<Box<Block>>,
    seed: u64,
    /// Requests with a hash above this limit are not in the sample.
    limit: u64,
    /// Start of the measurement; `None` before it.
    start: Option<Ns>,
}

/// The writer of all load threads' requests.
#[derive(Debug)]
pub struct RequestLogWriter<'a> {
    input: &'a RequestLogInput,
    plan: &'a Plan,
    full: Receiver<Box<Block>>,
    /// By thread.
    empty: Vec<Sender<Box<Block>>>,
}

/// Creates the logs of `threads` load threads, and their writer. The writer ends after all logs are
/// finished or dropped.
pub fn request_logs<'a>(
    input: &'a RequestLogInput,
    plan: &'a Plan,
    threads: u32,
) -> (Vec<RequestLog>, RequestLogWriter<'a>) {
    // The channel has room for every block, so no load thread waits.
    let (sender, full) = sync_channel(threads as usize * BLOCKS);
    let log = |thread| {
        let (give_back, empty) = channel();
        let block = || {
            Box::new(Block {
                thread,
                requests: Vec::with_capacity(BLOCK),
                dropped: 0,
            })
        };
        for _ in 1..BLOCKS {
            // The receiver exists, so this cannot fail.
            let _ = give_back.send(block());
        }
        let log = RequestLog {
            block: block(),
            full: sender.clone(),
            empty,
            seed: plan.seed ^ SAMPLE,
            limit: (input.share * u64::MAX as f64) as u64,
            start: None,
        };
        (log, give_back)
    };
    let (logs, empty) = (0..threads).map(log).unzip();
    let writer = RequestLogWriter {
        input,
        plan,
        full,
        empty,
    };
    (logs, writer)
}

impl RequestLog {
    /// Starts a phase at `start`. Only the measurement is logged.
    pub fn begin(&mut self, phase: Phase, start: Ns) {
        self.start = (phase == Phase::Measure).then_some(start);
    }

    /// Logs a request that ended at `done`, if the request is in the sample.
    pub fn add(
        &mut self,
        exchange: &Exchange,
        connection: &ConnectionSlot,
        slot: Slot,
        done: Ns,
        status: Option<ResponseStatus>,
        outcome: LoggedOutcome,
    ) {
        let moments = &exchange.moments;
        let Some(start) = self.start else {
            return;
        };
        if mix_bits(self.seed.wrapping_add(moments.pick.number)) > self.limit {
            return;
        }
        if self.block.requests.len() == BLOCK && !self.hand_over() {
            self.block.dropped += 1;
            return;
        }
        let since = |at: Ns| at.saturating_sub(start);
        self.block.requests.push(LoggedRequest {
            number: moments.pick.number,
            group: moments.pick.group,
            slot,
            uses: connection.used + 1,
            intended: since(moments.intended),
            free: since(moments.free.max(moments.intended)),
            sent: since(moments.last_sent()),
            first: since(moments.first),
            done: since(done),
            // Until the first byte arrives, `received` is the size of the previous response.
            bytes: if moments.first == 0 {
                0
            } else {
                exchange.received
            },
            status,
            outcome,
        });
    }

    /// Sends the block to the writer, and continues with an empty one. Returns whether there is one.
    #[cold]
    fn hand_over(&mut self) -> bool {
        let Ok(empty) = self.empty.try_recv() else {
            return false;
        };
        let full = mem::replace(&mut self.block, empty);
        // Sending fails only after the writer has ended. The block is then not needed.
        let _ = self.full.send(full);
        true
    }

    /// Sends the last block to the writer.
    pub fn finish(self) {
        // Sending fails only after the writer has ended. The block is then not needed.
        let _ = self.full.send(self.block);
    }
}

impl RequestLogWriter<'_> {
    /// Writes the requests of all threads until all logs have ended.
    pub fn run(self) -> RequestLogEnd {
        let mut end = RequestLogEnd {
            file: self.input.file.display().to_string(),
            ..RequestLogEnd::default()
        };
        let mut file = LogFile::open(&self.input.file)
            .map_err(|error| end.error = Some(error.to_string()))
            .ok();
        let mut lines = Vec::new();
        while let Ok(mut block) = self.full.recv() {
            lines.clear();
            for request in &block.requests {
                self.push_line(&mut lines, block.thread, request);
            }
            let count = block.requests.len() as u64;
            let written = file.as_mut().map(|file| file.append(&lines));
            end.dropped += block.dropped;
            match written {
                Some(Ok(())) => end.logged += count,
                Some(Err(error)) => {
                    end.error = Some(error.to_string());
                    end.dropped += count;
                    file = None;
                }
                None => end.dropped += count,
            }
            block.requests.clear();
            block.dropped = 0;
            // Sending fails only after the thread has ended. The block is then not needed.
            let _ = self.empty[block.thread as usize].send(block);
        }
        end
    }

    fn push_line(&self, out: &mut Vec<u8>, thread: u32, of: &LoggedRequest) {
        let comma = |out: &mut Vec<u8>| out.push(b',');
        let known = |out: &mut Vec<u8>, number: u64| {
            if number > 0 {
                push_decimal(number, out);
            }
            comma(out);
        };
        push_decimal(self.input.attempt.into(), out);
        comma(out);
        push_decimal(of.number, out);
        comma(out);
        let requests = self.plan.mix.as_ref().map(|mix| &mix.requests);
        if let Some(request) = requests.and_then(|all| all.get(of.group as usize)) {
            out.extend_from_slice(request.name.as_bytes());
        }
        for number in [thread.into(), of.slot.into(), of.uses, of.intended, of.free] {
            comma(out);
            push_decimal(number, out);
        }
        comma(out);
        known(out, of.sent);
        known(out, of.first);
        push_decimal(of.done, out);
        comma(out);
        known(out, of.status.map_or(0, |status| status.http.into()));
        out.extend_from_slice(of.outcome.name().as_bytes());
        comma(out);
        push_decimal(of.bytes, out);
        comma(out);
        if let Some(grpc) = of.status.and_then(|status| status.grpc) {
            out.extend_from_slice(grpc.name().as_bytes());
        }
        out.push(b'\n');
    }
}

/// The file of the log.
struct LogFile {
    file: File,
    /// Length of the complete blocks, in bytes.
    length: u64,
}

impl LogFile {
    /// Opens the file, to which earlier attempts may have written.
    fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        let length = file.metadata()?.len();
        Ok(LogFile { file, length })
    }

    /// Appends a block. If this fails, removes the part that was written.
    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let written = self.file.write_all(lines);
        match written {
            Ok(()) => self.length += lines.len() as u64,
            // If this fails too, the last line is incomplete.
            Err(_) => drop(self.file.set_len(self.length)),
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_error_counts_the_requests_that_were_not_logged() {
        let plan = crate::testing::closed_plan(1, 1);
        let input = RequestLogInput {
            file: "/dev/full".into(),
            share: 1.0,
            attempt: 1,
        };
        let (mut logs, writer) = request_logs(&input, &plan, 1);
        let mut log = logs.remove(0);
        log.begin(Phase::Measure, 1);
        let (exchange, connection) = (Exchange::default(), ConnectionSlot::default());
        for done in 2..12 {
            let outcome = LoggedOutcome::ConnectFailed;
            log.add(&exchange, &connection, 0, done, None, outcome);
        }
        log.finish();
        let end = writer.run();
        assert_eq!((end.logged, end.dropped), (0, 10));
        assert!(end.error.unwrap().contains("No space left"));
    }
}
