//! A small blocking client for Cassandra's native protocol, version 4 (`native_protocol_v4.spec`).
//!
//! A [`CqlConnection`] executes one query at a time, with a timeout. It checks all lengths, and
//! rejects damaged frames and other protocols. The client supports neither passwords nor TLS, and
//! has no connection pool (see `docs/decisions/0019-watching-the-store.md`).
//!
//! Start with `query.rs`, then read `connection.rs` and `body.rs` (frame bodies).
//!
//! Invariant: this crate contains no queries and starts no threads.

mod body;
mod connection;
mod error;
mod query;

pub use connection::CqlConnection;
pub use error::CqlError;
pub use query::{CqlParameter, CqlQuery, CqlResult, CqlValue, ReadConsistency};
