//! HTTPS: a backend around another backend. It encrypts what the core sends and decrypts what
//! arrives; the core does not notice.
//!
//! ```text
//! core ──► Secured ──► epoll or io_uring
//!            └ connection   rustls: handshake, records, session tickets; allocates per record
//! ```

mod config;
mod connection;
mod failure;
mod secured;
#[cfg(test)]
mod testing;

pub use config::{Tls, TlsError, server_name};
pub use failure::TlsFailure;
pub use secured::Secured;
