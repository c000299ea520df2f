//! Builds the response to each request as a sequence of steps for the event loop.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::scenario::ResponseFault;

/// A step of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResponseStep {
    /// Wait until this time, CLOCK_MONOTONIC in ns.
    At(u64),
    /// Send these bytes.
    Send(Arc<[u8]>),
    /// Wait forever; the connection stays open.
    Hang,
    /// Close with FIN.
    Close,
    /// Close with RST.
    Reset,
}

/// Bytes that are not HTTP.
const GARBAGE: &[u8] = b"\x15\x03\x01\x00\x02\x02\x28 this is not HTTP\r\n\r\n";

/// Builds responses. The normal responses are prebuilt.
#[derive(Debug)]
pub struct Responses {
    body: String,
    kept: Arc<[u8]>,
    closing: Arc<[u8]>,
}

impl Responses {
    pub fn new(body: &str) -> Responses {
        Responses {
            body: body.to_owned(),
            kept: build(200, body, false),
            closing: build(200, body, true),
        }
    }

    /// Adds the steps for a request that arrived at `now_ns` and whose response is due at `due_ns`.
    /// If `close_header` is set, the response has `Connection: close`. If `close` is set, the
    /// server closes the connection after the response.
    pub fn script(
        &self,
        fault: Option<ResponseFault>,
        (now_ns, due_ns): (u64, u64),
        (close_header, close): (bool, bool),
        steps: &mut VecDeque<ResponseStep>,
    ) {
        if due_ns > now_ns && !matches!(fault, Some(ResponseFault::Status { .. })) {
            steps.push_back(ResponseStep::At(due_ns));
        }
        let response = Arc::clone(if close_header {
            &self.closing
        } else {
            &self.kept
        });
        let head = response.len() - self.body.len();
        let mut send = |bytes| steps.push_back(ResponseStep::Send(bytes));
        match fault {
            None => send(response),
            Some(ResponseFault::Status { code }) => send(build(code, "no", close_header)),
            Some(ResponseFault::WrongBody) => {
                send(build(200, &"#".repeat(self.body.len()), close_header));
            }
            Some(ResponseFault::TruncatedBody | ResponseFault::ResetWithin) => {
                send(response[..head + self.body.len() / 2].into());
            }
            Some(ResponseFault::NoResponse) => steps.push_back(ResponseStep::Hang),
            Some(ResponseFault::Drip { pieces, gap_us }) => {
                let end = |piece: u32| head + self.body.len() * piece as usize / pieces as usize;
                send(response[..end(1)].into());
                for piece in 1..pieces {
                    let bytes = response[end(piece)..end(piece + 1)].into();
                    let at = due_ns + gap_us * 1000 * u64::from(piece);
                    steps.extend([ResponseStep::At(at), ResponseStep::Send(bytes)]);
                }
            }
            Some(ResponseFault::ResetBefore | ResponseFault::CloseBefore) => {}
            Some(ResponseFault::Continue { gap_us }) => {
                send((*b"HTTP/1.1 100 Continue\r\n\r\n").into());
                let at = due_ns + gap_us * 1000;
                steps.extend([ResponseStep::At(at), ResponseStep::Send(response)]);
            }
            Some(ResponseFault::Garbage) => send(GARBAGE.into()),
        }
        match fault {
            Some(ResponseFault::ResetBefore | ResponseFault::ResetWithin) => {
                steps.push_back(ResponseStep::Reset);
            }
            Some(
                ResponseFault::TruncatedBody | ResponseFault::CloseBefore | ResponseFault::Garbage,
            ) => steps.push_back(ResponseStep::Close),
            _ if close => steps.push_back(ResponseStep::Close),
            _ => {}
        }
    }
}

fn build(status: u16, body: &str, close: bool) -> Arc<[u8]> {
    let reason = if status < 400 { "OK" } else { "Error" };
    let connection = if close { "Connection: close\r\n" } else { "" };
    let length = body.len();
    format!("HTTP/1.1 {status} {reason}\r\nContent-Length: {length}\r\nContent-Type: text/plain\r\n{connection}\r\n{body}")
        .into_bytes()
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(fault: ResponseFault) -> (Vec<u8>, Vec<ResponseStep>) {
        let mut steps = VecDeque::new();
        Responses::new("0123456789").script(Some(fault), (5, 5), (false, false), &mut steps);
        let bytes = steps.iter().filter_map(|s| match s {
            ResponseStep::Send(bytes) => Some(bytes.to_vec()),
            _ => None,
        });
        (bytes.flatten().collect(), steps.into())
    }

    #[test]
    fn a_drip_is_the_response_in_pieces() {
        for pieces in [1, 3, 10, 25] {
            let (bytes, steps) = sent(ResponseFault::Drip { pieces, gap_us: 2 });
            assert_eq!(&bytes[..], &*build(200, "0123456789", false));
            let sends = steps
                .iter()
                .filter(|s| matches!(s, ResponseStep::Send(_)))
                .count();
            assert_eq!(sends, pieces as usize);
            let last = steps
                .iter()
                .rev()
                .find(|s| matches!(s, ResponseStep::At(_)));
            assert_eq!(last.is_some(), pieces > 1);
            if let Some(ResponseStep::At(at)) = last {
                assert_eq!(*at, 5 + 2000 * (u64::from(pieces) - 1));
            }
        }
    }

    #[test]
    fn a_truncated_body_lacks_its_second_half() {
        let (bytes, steps) = sent(ResponseFault::TruncatedBody);
        assert!(bytes.ends_with(b"\r\n\r\n01234"));
        assert_eq!(steps.last(), Some(&ResponseStep::Close));
        assert_eq!(
            sent(ResponseFault::ResetWithin).1.last(),
            Some(&ResponseStep::Reset)
        );
    }
}
