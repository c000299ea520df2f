//! The wait graph: follows requests from the threads, locks, permits and connections that hold them
//! to the resource that limits them (docs/decisions/0025-following-waits.md).

mod activity;
pub(super) mod cpu;
mod delaying;
pub(super) mod runtime;
pub(super) mod service;
pub(super) mod service_limit;
pub(super) mod store;
mod upstreams;
