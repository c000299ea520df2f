//! A small blocking client for Cassandra's native protocol, version 4 (`native_protocol_v4.spec`).
//!
//! A [`CqlConnection`] executes one query at a time and bounds every wait. All lengths are checked. A
//! damaged frame, or a frame of another protocol, is an error. The client supports neither passwords
//! nor TLS, and has no connection pool: `docs/decisions/0019-watching-the-store.md`.
//!
//! Start with `query.rs`, then read `connection.rs` and `body.rs` (frame bodies).
//!
//! Invariant: this crate knows no table and starts no thread.

mod body;
mod connection;
mod error;
mod query;
mod value;

pub use connection::CqlConnection;
pub use error::CqlError;
pub use query::{CqlQuery, CqlResult, ReadConsistency};
pub use value::{CqlParameter, CqlValue};
