//! The native servers of floodmark: `hello`, `json` and `dispatcher` on hyper and tokio, built to be the ceiling that
//! other systems are compared with. [`serve`] runs one workload until it is told to stop; it prints nothing.
//!
//! Where to start reading: `server.rs` starts and ends everything, `worker.rs` is one thread with its connections,
//! `connection.rs` one connection, `answer.rs` what is answered. The dispatcher's numbers are in `numbers.rs`, and what
//! keeps them over a crash in `state_file.rs`.
//!
//! Invariant: knows nothing of the load side, and holds only bounded queues and buffers.

mod answer;
mod connection;
mod desk;
mod error;
mod listen;
mod numbers;
mod pace;
mod server;
mod settings;
mod socket;
mod state_file;
mod worker;
mod workload;

pub use error::ServeError;
pub use server::{Summary, serve};
pub use settings::{Limits, Settings};
pub use state_file::StateError;
pub use workload::{UnknownWorkload, Workload};
