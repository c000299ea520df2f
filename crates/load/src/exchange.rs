//! The engine's view of an exchange: one request and its response.

use floodmark_wire::grpc::GrpcResponse;

use crate::clock::Ns;
use crate::list::{Link, ListItem};
use crate::recorder::Moments;

/// Index of an exchange within its load thread.
pub type ExchangeIndex = u32;

/// State of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExchangeState {
    /// No request was assigned, or the request has an outcome.
    #[default]
    Ended,
    /// The request waits for the handshake of its connection.
    Waiting,
    /// The request was assigned to an established connection, and the response is incomplete.
    InFlight,
}

/// The engine's state for one exchange. It is small, because there may be 100,000 exchanges.
#[derive(Debug, Default)]
pub struct Exchange {
    /// State of the exchange.
    pub state: ExchangeState,
    /// Why the request's first connection ended, if the request is a retry.
    pub retried: Option<&'static str>,
    /// Number of times that the server refused the request (HTTP/2).
    pub refusals: u8,
    /// Number of times that the request returned to the queue before it was sent (HTTP/2).
    pub returns: u8,
    /// Stream identifier (HTTP/2).
    pub stream: u32,
    /// Status of the response, after its head has arrived (HTTP/2).
    pub status: u16,
    /// State of the response to a gRPC call.
    pub grpc: GrpcResponse,
    /// Whether the request asks the server to close the connection.
    pub last: bool,
    /// Length of the request in bytes.
    pub length: usize,
    /// Number of bytes of the response so far, if requests are logged.
    pub received: u64,
    /// The time at which the request times out.
    pub deadline: Ns,
    /// The request and its timestamps. Kept until the next exchange starts, because bytes that
    /// arrive before then count towards the request's group.
    pub moments: Moments,
    /// The part of the response body from earlier reads, if bodies are kept.
    pub body: Vec<u8>,
    /// Whether to keep the response body because it is the first with a status that is not ok.
    pub keeps_body: bool,
    /// Position in the list of exchanges in flight.
    pub link: Link,
}

impl ListItem for Exchange {
    fn link(&mut self) -> &mut Link {
        &mut self.link
    }

    fn deadline(&self) -> Ns {
        self.deadline
    }
}
