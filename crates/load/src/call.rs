//! A single gRPC call before a load, on its own connection.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use floodmark_record::grpc::GrpcStatus;
use floodmark_record::plan::{Address, Http, Http2};
use floodmark_wire::grpc::{GrpcFault, GrpcResponse, PREFIX_BYTES, decode_message};
use floodmark_wire::h2::{
    Config, ConnectionError, ErrorCode, Event, EventSink, RequestHeads, Scheme, Session,
    request_fields,
};
use floodmark_wire::{RequestError, RequestSpec};

use crate::tls::{Stream, Tls, connect, secure, until};

/// Maximum length of a response, in bytes.
const MAX_RESPONSE: usize = 4 << 20;

/// Maximum length of an error message in a response, in bytes.
const MAX_MESSAGE: usize = 1000;

/// A server, and how to reach it.
#[derive(Debug, Clone, Copy)]
pub struct CallTarget<'a> {
    /// Addresses to connect to. Each is tried in turn until one accepts the connection.
    pub addresses: &'a [Address],
    /// TLS settings; `None` for plaintext.
    pub tls: Option<&'a Tls>,
    /// Value of `:authority`.
    pub authority: &'a str,
    /// Further headers.
    pub headers: &'a [(String, String)],
    /// Maximum time until the response is complete.
    pub timeout: Duration,
}

/// The reason why a call returned no message.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server is unreachable, or the connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server violates HTTP/2.
    #[error("{0}")]
    Connection(#[from] ConnectionError),
    /// The call cannot be sent.
    #[error("{0}")]
    Request(#[from] RequestError),
    /// The server closed the connection before the response was complete.
    #[error("the server closed the connection before the response was complete")]
    Closed,
    /// The response was not complete in time.
    #[error("no complete response within {0:?}")]
    TimedOut(Duration),
    /// The server reset the stream.
    #[error("the server reset the stream{}", .0.name().map(|name| format!(" with {name}")).unwrap_or_default())]
    Reset(ErrorCode),
    /// The response is not valid HTTP/2.
    #[error("{0}")]
    Malformed(floodmark_wire::h2::Malformed),
    /// The response is not valid gRPC.
    #[error("{0}")]
    Grpc(#[from] GrpcFault),
    /// The response has an HTTP status other than 200.
    #[error("the response has HTTP status {0}")]
    Http(u16),
    /// The response is too long.
    #[error("the response is longer than {MAX_RESPONSE} bytes")]
    TooLong,
    /// The call failed.
    #[error("{}{}", .0.name(), separated(.1))]
    Status(GrpcStatus, String),
}

fn separated(message: &str) -> String {
    match message {
        "" => String::new(),
        message => format!(": {message:?}"),
    }
}

/// Calls a unary method and returns the message in the response, without its prefix. `path` is
/// `/SERVICE/METHOD`, and `body` a message with its prefix. Also accepts a streaming method if one
/// message in each direction is enough.
///
/// # Errors
/// The server cannot be reached or does not return one message with status OK.
pub fn call(target: &CallTarget<'_>, path: &str, body: &[u8]) -> Result<Vec<u8>, CallError> {
    let end = Instant::now() + target.timeout;
    let (mut stream, scheme) = open(target, end)?;
    let spec = RequestSpec {
        method: "POST",
        path,
        authority: target.authority,
        headers: target.headers,
        body,
        close: false,
    };
    let fields = request_fields(&spec, scheme, Some(body.len()))?;
    let config = Config {
        stream_window: MAX_RESPONSE as u32,
        connection_window: MAX_RESPONSE as u32,
        ..Config::default()
    };
    let mut session = Session::new(&config, Arc::new(RequestHeads::new(&[fields])));
    let mut response = CallResponse::default();
    let mut unsent = Some(body);
    let mut buffer = vec![0; 64 * 1024];
    let id = session.request(0, true, |_, _| ());
    let id = id.expect("a new session has room for a request");
    let result = loop {
        if let Some(part) = unsent.take()
            && let Some(sent) = session.send_body(id, part, true)
            && sent < part.len()
        {
            unsent = Some(&part[sent..]);
        }
        stream.write_all(session.output())?;
        session.sent(session.output().len());
        stream.flush()?;
        if let Some(result) = response.result.take() {
            break result;
        }
        if Instant::now() >= end {
            return Err(CallError::TimedOut(target.timeout));
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Err(CallError::Closed),
            Ok(n) => session.feed(&buffer[..n], &mut response)?,
            // A read with a timeout is not restarted after a signal (signal(7)).
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if is_timeout(&error) => {
                return Err(CallError::TimedOut(target.timeout));
            }
            Err(error) => return Err(error.into()),
        }
    };
    session.go_away();
    // The response is complete, so an error while closing does not matter.
    let _ = stream.write_all(session.output());
    result?;
    Ok(response.body.split_off(PREFIX_BYTES))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// Opens a connection for HTTP/2. A TLS handshake must be complete at `end`.
fn open(target: &CallTarget<'_>, end: Instant) -> Result<(Box<dyn Stream>, Scheme), CallError> {
    let mut stream = Err(io::Error::from(io::ErrorKind::AddrNotAvailable));
    for address in target.addresses {
        stream = connect(address, target.timeout);
        if stream.is_ok() {
            break;
        }
    }
    let stream = stream?;
    Ok(match target.tls {
        Some(tls) => {
            let http2 = Http::V2(Http2::default());
            let secured = secure(tls, Some(http2), stream, until(end));
            let secured = secured.map_err(|error| {
                if is_timeout(&error) {
                    CallError::TimedOut(target.timeout)
                } else {
                    error.into()
                }
            })?;
            (Box::new(secured), Scheme::Https)
        }
        None => (stream, Scheme::Http),
    })
}

/// The response to a call.
#[derive(Debug, Default)]
struct CallResponse {
    http: u16,
    body: Vec<u8>,
    grpc: GrpcResponse,
    message: Vec<u8>,
    /// The result, after the end of the stream.
    result: Option<Result<(), CallError>>,
}

impl CallResponse {
    fn complete(&mut self) {
        let status = match self.http {
            200 => self.grpc.finish().map(GrpcStatus::from_code),
            http => return self.result = Some(Err(CallError::Http(http))),
        };
        self.result = Some(match status {
            Ok(GrpcStatus::Ok) => Ok(()),
            Ok(status) => {
                let message = String::from_utf8_lossy(&self.message).into_owned();
                Err(CallError::Status(status, message))
            }
            Err(fault) => Err(fault.into()),
        });
    }
}

impl EventSink for CallResponse {
    fn reads_fields(&self) -> bool {
        true
    }

    fn field(&mut self, _stream: u32, name: &[u8], value: &[u8]) {
        match name {
            b"grpc-status" => self.grpc.status(value),
            b"grpc-message" => decode_message(value, MAX_MESSAGE, &mut self.message),
            _ => {}
        }
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Head { status, end, .. } => {
                self.http = status;
                if end {
                    self.complete();
                }
            }
            Event::Data { bytes, end, .. } => {
                self.grpc.data(bytes);
                if self.body.len() + bytes.len() > MAX_RESPONSE {
                    self.result = Some(Err(CallError::TooLong));
                    return;
                }
                self.body.extend_from_slice(bytes);
                if end {
                    self.complete();
                }
            }
            Event::Trailers { .. } => self.complete(),
            Event::Reset { code, .. } => self.result = Some(Err(CallError::Reset(code))),
            Event::Refused { .. } => {
                self.result = Some(Err(CallError::Reset(ErrorCode::REFUSED_STREAM)));
            }
            Event::Malformed { reason, .. } => {
                self.result = Some(Err(CallError::Malformed(reason)));
            }
            Event::GoAway { last: 0, code } => {
                self.result = Some(Err(CallError::Reset(code)));
            }
            Event::GoAway { .. }
            | Event::Settings
            | Event::Pong(_)
            | Event::WindowUpdate { .. } => {}
        }
    }
}
