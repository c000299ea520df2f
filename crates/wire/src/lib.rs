//! The client side of HTTP/1.1 without sockets or I/O: request bytes, and an incremental response
//! reader that accepts input in pieces of any size. [`h2`] does the same for HTTP/2, and [`grpc`] for
//! the messages of gRPC calls.
//!
//! Reading a response does not allocate if its head arrives in one piece. Terms and rules follow
//! RFC 9110 (semantics) and RFC 9112 (HTTP/1.1).

mod chunked;
mod error;
pub mod grpc;
pub mod h2;
mod head;
mod reader;
mod request;

pub use error::ReadError;
pub use head::{MAX_HEADERS, MAX_SECTION_BYTES};
pub use reader::{BodySink, Fed, MAX_INTERIM, Reader, Response};
pub use request::{RequestError, RequestSpec, is_authority, request_bytes, request_head};
