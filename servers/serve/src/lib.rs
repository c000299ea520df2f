//! The native servers of floodmark: `hello`, `json`, `dispatcher`, `scoring` and `bars` on hyper
//! and tokio. Their throughput is a reference for other systems. [`serve`] runs one workload until
//! shutdown and prints nothing.
//!
//! Start reading in `server.rs`, then read `worker.rs` (one thread), `connection.rs` (HTTP/1.1),
//! `http2.rs`, `tls.rs` and `service.rs`. The dispatcher's numbers are in `numbers.rs`, and the
//! state file is in `state_file.rs`. The scores and their journal are in `scoring.rs` and
//! `commits.rs`. The bars are in `bars.rs`, `store_queue.rs`, `embedded_bars.rs` (a database file)
//! and `postgresql/`.
//!
//! Invariants: the server does not use the load engine, and all queues and buffers are bounded,
//! except the list of bars, which grows with the number of bars.

mod accepting;
mod bars;
mod commits;
mod connection;
mod embedded_bars;
mod error;
mod http;
mod http2;
mod numbers;
mod pace;
#[cfg(feature = "postgresql")]
mod postgresql;
mod scoring;
mod server;
mod service;
mod settings;
mod socket;
mod state_file;
mod store_queue;
mod tls;
mod worker;
mod workload;

pub use error::ServeError;
pub use floodmark_journal::{CassandraAddress, JournalError};
#[cfg(feature = "postgresql")]
pub use postgresql::{PostgresqlError, PostgresqlSetting};
pub use server::serve;
pub use settings::{JournalSetting, Limits, Settings, StoreSetting};
pub use state_file::StateError;
pub use worker::ServeSummary;
pub use workload::NativeWorkload;
