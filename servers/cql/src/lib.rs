//! A small blocking client for Cassandra's native protocol, version 4 (`native_protocol_v4.spec`).
//!
//! A [`CqlConnection`] executes one query at a time, with a timeout. It checks all lengths, and
//! rejects damaged frames and responses in other protocols. The client supports neither passwords
//! nor TLS, and has no connection pool (see `docs/decisions/0019-watching-the-store.md`).
//!
//! Start with `query.rs` (queries and the bodies of responses), then read `connection.rs`.
//!
//! Invariant: this crate contains no CQL statements and starts no threads.

mod connection;
mod query;

pub use connection::CqlConnection;
pub use query::{CqlError, CqlParameter, CqlQuery, CqlResult, CqlValue, ReadConsistency};
