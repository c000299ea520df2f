//! HTTP/1.1 from the client's side, without sockets and without I/O: the bytes of a request, and an incremental
//! reader of answers that takes its input in any pieces.
//!
//! Nothing here allocates per answer as long as its head arrives in one piece. Terms and rules are those of
//! RFC 9110 (semantics) and RFC 9112 (HTTP/1.1).

mod answer;
mod chunked;
mod error;
mod fields;
mod head;
mod reader;
mod request;
mod section;

pub use answer::{Answer, BodySink, Fed};
pub use error::ReadError;
pub use reader::{MAX_INTERIM, Reader};
pub use request::{RequestError, RequestSpec, head_around_length, request_bytes};
pub use section::{MAX_HEADERS, MAX_SECTION_BYTES};
