//! One request over HTTP/2.

use std::sync::Arc;

use floodmark_wire::h2::{Config, ErrorCode, Event, RequestHeads, Scheme, Session, request_fields};
use floodmark_wire::{RequestError, RequestSpec};

use super::ResponseReader;

/// A connection that carries one request.
pub(super) struct Http2Exchange<'a> {
    session: Session,
    /// Stream of the request.
    stream: u32,
    /// The part of the request's body that is not in the output yet. It waits for the server's
    /// SETTINGS, because servers give no credit for bytes that arrive before a smaller window is
    /// acknowledged.
    unsent: &'a [u8],
    status: Option<u16>,
}

/// What has arrived in one read.
#[derive(Default)]
struct Arrived {
    status: Option<u16>,
    has_settings: bool,
    is_complete: bool,
    failure: Option<String>,
}

impl<'a> Http2Exchange<'a> {
    /// Starts a connection whose output contains the head of the request.
    ///
    /// # Errors
    /// The request is invalid.
    pub(super) fn new(request: &RequestSpec<'a>, scheme: Scheme) -> Result<Self, RequestError> {
        let fields = request_fields(request, scheme, Some(request.body.len()))?;
        let heads = Arc::new(RequestHeads::new(&[fields]));
        let mut session = Session::new(&Config::default(), heads);
        let has_body = !request.body.is_empty();
        // A new session allows at least one stream, and its output is almost empty.
        let stream = session.request(0, has_body, |_, _| ()).unwrap_or_default();
        Ok(Http2Exchange {
            session,
            stream,
            unsent: request.body,
            status: None,
        })
    }

    fn send_body(&mut self) {
        if !self.unsent.is_empty() {
            let sent = self.session.send_body(self.stream, self.unsent, true);
            self.unsent = &self.unsent[sent.unwrap_or(self.unsent.len())..];
        }
    }
}

impl ResponseReader for Http2Exchange<'_> {
    fn begin(&mut self) {}

    fn read(&mut self, bytes: &[u8], body: &mut Vec<u8>) -> Result<Option<(u16, bool)>, String> {
        let mut arrived = Arrived::default();
        let stream = self.stream;
        let fed = self.session.feed(bytes, &mut |event: Event<'_>| {
            arrived.take(event, stream, body);
        });
        self.status = self.status.or(arrived.status);
        if let Some(failure) = arrived.failure {
            return Err(failure);
        }
        match self.status {
            Some(status) if arrived.is_complete => return Ok(Some((status, false))),
            _ => fed.map_err(|error| format!("not an HTTP/2 response: {error}"))?,
        }
        if bytes.is_empty() && self.status.is_some() {
            return Err("the connection was closed within the response".to_owned());
        }
        if arrived.has_settings {
            self.send_body();
        }
        Ok(None)
    }

    fn take_output(&mut self) -> Vec<u8> {
        let output = self.session.output().to_vec();
        self.session.sent(output.len());
        output
    }

    fn status(&self) -> Option<u16> {
        self.status
    }
}

impl Arrived {
    fn take(&mut self, event: Event<'_>, stream: u32, body: &mut Vec<u8>) {
        let named = |code: ErrorCode| code.name().unwrap_or("an unknown code");
        match event {
            Event::Head { status, end, .. } => {
                self.status = Some(status);
                self.is_complete |= end;
            }
            Event::Data { bytes, end, .. } => {
                body.extend_from_slice(bytes);
                self.is_complete |= end;
            }
            Event::Trailers { .. } => self.is_complete = true,
            Event::Reset { code, .. } => {
                let why = format!("the server reset the stream with {}", named(code));
                self.failure.get_or_insert(why);
            }
            Event::Refused { .. } => {
                let why = "the server refused the stream (REFUSED_STREAM)".to_owned();
                self.failure.get_or_insert(why);
            }
            Event::Malformed { reason, .. } => {
                let why = format!("not a valid HTTP/2 response: {reason}");
                self.failure.get_or_insert(why);
            }
            Event::GoAway { last, code } if last < stream => {
                let why = format!(
                    "the server closed the connection (GOAWAY) with {}",
                    named(code)
                );
                self.failure.get_or_insert(why);
            }
            // Both may grant credit for the request's body.
            Event::Settings | Event::WindowUpdate { .. } => self.has_settings = true,
            Event::GoAway { .. } | Event::Pong(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::thread;

    use floodmark_host::ProcessPlacement;
    use floodmark_plan::spec::HttpVersion;
    use floodmark_record::origin::Origin;
    use floodmark_wire::h2::frame::{self, PREFACE, Setting};

    use super::super::{LIMITS, ProbeResponse, ProbeTarget, send};
    use super::*;

    /// Returns a HEADERS frame with `:status: 200` and these flags on the first stream.
    fn head(flags: u8) -> Vec<u8> {
        vec![0, 0, 1, 1, flags, 0, 0, 0, 1, 0x88]
    }

    fn settings(window: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame::settings(&[Setting::InitialWindowSize(window)], &mut bytes);
        bytes
    }

    /// Starts a server that sends `first` and then, whenever the client pauses, the next part of
    /// `later`. The handle returns the bytes that the client sent.
    fn server(first: Vec<u8>, later: Vec<Vec<u8>>) -> (SocketAddr, thread::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serve = move || {
            let (mut stream, _) = listener.accept().unwrap();
            let pause = std::time::Duration::from_millis(50);
            stream.set_read_timeout(Some(pause)).unwrap();
            let mut received = Vec::new();
            for part in [first].into_iter().chain(later) {
                stream.write_all(&part).unwrap();
                let _ = stream.read_to_end(&mut received);
            }
            received
        };
        (address, thread::spawn(serve))
    }

    fn post(address: SocketAddr, body: &[u8]) -> (Option<u16>, Result<ProbeResponse, String>) {
        let target = ProbeTarget {
            from: &ProcessPlacement::default(),
            address,
            http: HttpVersion::V2,
            tls: None,
            origin: Origin::default(),
        };
        let request = RequestSpec {
            method: "POST",
            path: "/",
            authority: "a",
            headers: &[],
            body,
            close: true,
        };
        send(target, &request, LIMITS)
    }

    #[test]
    fn sends_a_body_within_the_servers_window() {
        let mut credit = Vec::new();
        frame::window_update(1, 100, &mut credit);
        let mut data = Vec::new();
        frame::data(1, b"hello", true, &mut data);
        let response = [head(4), data].concat();
        let (address, server) = server(settings(3), vec![credit, response]);
        let (status, response) = post(address, b"body-text");
        let response = response.unwrap();
        assert_eq!((status, response.status), (Some(200), 200));
        assert_eq!(response.body, b"hello");
        let received = server.join().unwrap();
        assert!(received.starts_with(PREFACE));
        let contains = |part: &[u8]| received.windows(part.len()).any(|other| other == part);
        let mut parts = [Vec::new(), Vec::new()];
        frame::data(1, b"bod", false, &mut parts[0]);
        frame::data(1, b"y-text", true, &mut parts[1]);
        assert!(contains(&parts[0]) && contains(&parts[1]), "{received:?}");
    }

    #[test]
    fn describes_the_reason_without_a_response() {
        let mut reset = settings(100);
        frame::reset(1, ErrorCode::INTERNAL_ERROR, &mut reset);
        let mut refused = settings(100);
        frame::reset(1, ErrorCode::REFUSED_STREAM, &mut refused);
        let mut go_away = settings(100);
        frame::go_away(ErrorCode::NO_ERROR, &mut go_away);
        for (bytes, words) in [
            (reset, "reset the stream with INTERNAL_ERROR"),
            (refused, "REFUSED_STREAM"),
            (go_away, "GOAWAY"),
            (
                b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
                "not an HTTP/2 response",
            ),
            (settings(100), "closed without a response"),
        ] {
            let (address, server) = server(bytes, Vec::new());
            let (status, response) = post(address, b"");
            let why = response.unwrap_err();
            assert!(status.is_none() && why.contains(words), "{why}");
            server.join().unwrap();
        }
    }

    #[test]
    fn a_status_needs_no_complete_body() {
        let bytes = [settings(100), head(4)].concat();
        let (address, server) = server(bytes, Vec::new());
        let (status, response) = post(address, b"");
        assert!(status == Some(200) && response.is_err());
        server.join().unwrap();
    }
}
