//! The load engine: schedules, connections, I/O backends and recording.
//!
//! Start with [`worker`], which runs a [`Plan`](floodmark_record::Plan) and emits events. [`core`]
//! is the state machine of one thread, [`backend`] does its I/O, and [`recorder`] records its
//! times.
//!
//! Invariants: the engine has no knowledge of experiments, systems or servers. Threads share no
//! data while requests are in flight. Requests allocate no memory, except within TLS.

pub mod alternating;
pub mod arrivals;
pub mod backend;
pub mod budget;
pub mod clock;
pub mod coalescing;
pub mod connection;
pub mod core;
pub mod failure;
pub mod gather;
pub mod group_times;
pub mod indices;
pub mod judge;
pub mod kept_responses;
mod libc_calls;
pub mod mix;
pub mod outgoing;
pub mod pace;
pub mod recorder;
pub mod replay;
pub mod request;
pub mod rows;
pub mod schedule;
pub mod scoring;
pub mod slice;
pub mod sources;
pub mod targets;
pub mod template;
pub mod thread;
pub mod tls;
pub mod usage;
pub mod worker;

#[cfg(test)]
mod testing;
