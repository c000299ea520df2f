//! The wait graph: follows requests from the threads, locks, permits and connections that hold them
//! to the resource that limits them (docs/decisions/0025-following-waits.md).

mod activity;
mod service;
mod upstreams;

pub use activity::resource_of_all;
pub use service::{Demand, Holder, Service, evidence_of_times, is_pool, setting_near, writing};
pub use upstreams::full_store_pool;
