//! The load engine: schedules, connections, I/O backends and recording.
//!
//! Start with [`worker`], which runs a [`Plan`](floodmark_record::Plan) and emits events. `core` is
//! the state machine of one thread, [`backend`] does its I/O, and `recorder` records its times.
//!
//! Invariants: the engine has no knowledge of experiments, systems or servers. Threads share no
//! data while requests are in flight. Requests allocate no memory, except within TLS.

pub mod alternating;
mod arrivals;
pub mod backend;
pub mod budget;
pub mod call;
pub mod clock;
pub mod coalescing;
mod connection;
mod core;
mod exchange;
mod failure;
mod feed;
mod gather;
mod http2;
pub mod judge;
mod kept_responses;
mod list;
mod mix;
mod outgoing;
mod rate_control;
mod recorder;
pub mod replay;
pub mod request;
pub mod request_log;
mod rows;
mod schedule;
mod slice;
pub mod targets;
mod thread;
pub mod tls;
mod usage;
pub mod worker;

#[cfg(test)]
mod testing;
