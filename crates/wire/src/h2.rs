//! The client side of HTTP/2 (RFC 9113) without sockets or I/O, and its header compression (HPACK,
//! RFC 7541).
//!
//! A [`Session`] holds the state of one connection. It reads received bytes in pieces of any size,
//! reports [`Event`]s, and appends the bytes to send to its output. [`RequestHeads`] are encoded
//! once and sent many times.
//!
//! A session allocates its memory when it is created. Later, only its output grows, up to a fixed
//! limit.

mod error;
pub mod frame;
pub mod hpack;
mod request;
mod response;
mod session;
mod streams;

pub use error::{ConnectionError, ErrorCode, Malformed, Unavailable};
pub use request::{FieldValue, RequestField, RequestHeads, Scheme, request_fields};
pub use session::{
    Config, Event, EventSink, MAX_CONTINUATIONS, MAX_OUTPUT_BYTES, PeerSettings, Session,
};
