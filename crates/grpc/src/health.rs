//! Messages of the gRPC Health Checking Protocol (`grpc.health.v1`).

use floodmark_wire::grpc::PREFIX_BYTES;
use prost::Message;

/// Path of the method.
pub const PATH: &str = "/grpc.health.v1.Health/Check";

/// Request for the status of the whole server, with its prefix: an empty message.
pub const REQUEST: [u8; PREFIX_BYTES] = [0; PREFIX_BYTES];

#[derive(Clone, PartialEq, Message)]
struct HealthReply {
    #[prost(enumeration = "ServingStatus", tag = "1")]
    status: i32,
}

/// Status of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
pub enum ServingStatus {
    /// The server does not know its status, or its response is invalid.
    Unknown = 0,
    /// The server accepts calls.
    Serving = 1,
    /// The server does not accept calls.
    NotServing = 2,
    /// The server does not know the service.
    ServiceUnknown = 3,
}

impl ServingStatus {
    /// Returns the name in the protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ServingStatus::Unknown => "UNKNOWN",
            ServingStatus::Serving => "SERVING",
            ServingStatus::NotServing => "NOT_SERVING",
            ServingStatus::ServiceUnknown => "SERVICE_UNKNOWN",
        }
    }
}

/// Reads a response. `message` has no prefix.
#[must_use]
pub fn status(message: &[u8]) -> ServingStatus {
    let reply = HealthReply::decode(message).unwrap_or_default();
    reply.status()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_responses() {
        for (message, expected) in [
            (&b"\x08\x01"[..], ServingStatus::Serving),
            (b"\x08\x02", ServingStatus::NotServing),
            (b"", ServingStatus::Unknown),
            (b"\x08\x09", ServingStatus::Unknown),
            (b"\xff", ServingStatus::Unknown),
        ] {
            assert_eq!(status(message), expected);
        }
    }
}
