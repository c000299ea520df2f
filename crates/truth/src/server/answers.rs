//! What is sent for each request, as steps that the event loop carries out in order.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::scenario::Fault;

/// One step of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Go on at this time, CLOCK_MONOTONIC in ns.
    At(u64),
    /// Hand these bytes to the kernel.
    Send(Arc<[u8]>),
    /// Never go on; the connection stays open.
    Hang,
    /// Close with FIN.
    Close,
    /// Close with RST.
    Reset,
}

/// Bytes that are no HTTP.
const GARBAGE: &[u8] = b"\x15\x03\x01\x00\x02\x02\x28 this is no HTTP\r\n\r\n";

/// Builds answers; those that every request gets are built once.
#[derive(Debug)]
pub struct Answers {
    body: String,
    kept: Arc<[u8]>,
    closing: Arc<[u8]>,
}

impl Answers {
    pub fn new(body: &str) -> Answers {
        Answers {
            body: body.to_owned(),
            kept: whole(200, body, false),
            closing: whole(200, body, true),
        }
    }

    /// Adds the steps for a request: due at `due_ns`, arrived at `now_ns`. With `announce` the answer says
    /// `Connection: close`; with `close` the connection is closed after it.
    pub fn script(
        &self,
        fault: Option<Fault>,
        (now_ns, due_ns): (u64, u64),
        (announce, close): (bool, bool),
        steps: &mut VecDeque<Step>,
    ) {
        if due_ns > now_ns && !matches!(fault, Some(Fault::Status { .. })) {
            steps.push_back(Step::At(due_ns));
        }
        let half = self.body.len() / 2;
        match fault {
            None => steps.push_back(Step::Send(self.answer(announce))),
            Some(Fault::Status { code }) => {
                steps.push_back(Step::Send(whole(code, "no", announce)));
            }
            Some(Fault::WrongBody) => {
                let wrong = "#".repeat(self.body.len());
                steps.push_back(Step::Send(whole(200, &wrong, announce)));
            }
            Some(Fault::TruncatedBody) => {
                steps.push_back(Step::Send(self.cut(half, announce)));
                steps.push_back(Step::Close);
            }
            Some(Fault::NoAnswer) => steps.push_back(Step::Hang),
            Some(Fault::Drip { pieces, gap_us }) => {
                self.drip(u64::from(pieces), (due_ns, gap_us * 1000), announce, steps);
            }
            Some(Fault::ResetBefore) => steps.push_back(Step::Reset),
            Some(Fault::ResetWithin) => {
                steps.push_back(Step::Send(self.cut(half, announce)));
                steps.push_back(Step::Reset);
            }
            Some(Fault::CloseBefore) => steps.push_back(Step::Close),
            Some(Fault::Continue { gap_us }) => {
                steps.push_back(Step::Send((*b"HTTP/1.1 100 Continue\r\n\r\n").into()));
                steps.push_back(Step::At(due_ns + gap_us * 1000));
                steps.push_back(Step::Send(self.answer(announce)));
            }
            Some(Fault::Garbage) => {
                steps.push_back(Step::Send(GARBAGE.into()));
                steps.push_back(Step::Close);
            }
        }
        if close {
            steps.push_back(Step::Close);
        }
    }

    fn answer(&self, announce: bool) -> Arc<[u8]> {
        Arc::clone(if announce { &self.closing } else { &self.kept })
    }

    /// The answer up to `bytes` of its body.
    fn cut(&self, bytes: usize, announce: bool) -> Arc<[u8]> {
        let whole = self.answer(announce);
        whole[..whole.len() - self.body.len() + bytes].into()
    }

    fn drip(
        &self,
        pieces: u64,
        (due_ns, gap_ns): (u64, u64),
        announce: bool,
        steps: &mut VecDeque<Step>,
    ) {
        let whole = self.answer(announce);
        let head = whole.len() - self.body.len();
        let end = |piece: u64| head + (self.body.len() as u64 * piece / pieces) as usize;
        steps.push_back(Step::Send(whole[..end(1)].into()));
        for piece in 1..pieces {
            steps.push_back(Step::At(due_ns + gap_ns * piece));
            steps.push_back(Step::Send(whole[end(piece)..end(piece + 1)].into()));
        }
    }
}

fn whole(status: u16, body: &str, close: bool) -> Arc<[u8]> {
    let reason = match status {
        200 => "OK",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Other",
    };
    let connection = if close { "Connection: close\r\n" } else { "" };
    let length = body.len();
    format!("HTTP/1.1 {status} {reason}\r\nContent-Length: {length}\r\nContent-Type: text/plain\r\n{connection}\r\n{body}")
        .into_bytes()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(fault: Fault) -> (Vec<u8>, Vec<Step>) {
        let mut steps = VecDeque::new();
        Answers::new("0123456789").script(Some(fault), (5, 5), (false, false), &mut steps);
        let bytes = steps.iter().filter_map(|s| match s {
            Step::Send(bytes) => Some(bytes.to_vec()),
            _ => None,
        });
        (bytes.flatten().collect(), steps.into())
    }

    #[test]
    fn a_drip_is_the_answer_in_pieces() {
        for pieces in [1, 3, 10, 25] {
            let (bytes, steps) = sent(Fault::Drip { pieces, gap_us: 2 });
            assert_eq!(&bytes[..], &*whole(200, "0123456789", false));
            let sends = steps.iter().filter(|s| matches!(s, Step::Send(_))).count();
            assert_eq!(sends, pieces as usize);
            let last = steps.iter().rev().find(|s| matches!(s, Step::At(_)));
            assert_eq!(last.is_some(), pieces > 1);
            if let Some(Step::At(at)) = last {
                assert_eq!(*at, 5 + 2000 * (u64::from(pieces) - 1));
            }
        }
    }

    #[test]
    fn a_truncated_body_lacks_its_second_half() {
        let (bytes, steps) = sent(Fault::TruncatedBody);
        assert!(bytes.ends_with(b"\r\n\r\n01234"));
        assert_eq!(steps.last(), Some(&Step::Close));
        assert_eq!(sent(Fault::ResetWithin).1.last(), Some(&Step::Reset));
    }
}
