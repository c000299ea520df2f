//! HTTPS: a backend around a backend. What the core gives is sealed, what comes is opened, and the core never knows.
//!
//! ```text
//! core ──► Secured ──► epoll or io_uring
//!            │ handshake   rustls, on the load thread; it may allocate
//!            │ session     the connection's keys, taken out of rustls when the handshake is over
//!            └ record      sealing and opening in place with ring; nothing is allocated
//! ```
//!
//! rustls allocates for every record it seals or opens; so it does the handshake, keeps session tickets and derives keys, and
//! records are ours ([RFC 8446], section 5; [RFC 5246], section 6.2.3.3; [RFC 5288]; [RFC 7905]).
//!
//! [RFC 8446]: https://www.rfc-editor.org/rfc/rfc8446
//! [RFC 5246]: https://www.rfc-editor.org/rfc/rfc5246
//! [RFC 5288]: https://www.rfc-editor.org/rfc/rfc5288
//! [RFC 7905]: https://www.rfc-editor.org/rfc/rfc7905

mod buffers;
mod config;
mod deliver;
mod failure;
mod handshake;
mod keys;
mod meter;
pub mod record;
mod secured;
mod session;
#[cfg(test)]
mod testing;
mod trust;

pub use config::{Tls, TlsError, server_name};
pub use failure::Failure;
pub use secured::Secured;
