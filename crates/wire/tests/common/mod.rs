//! Code shared by the integration tests.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod check;
pub mod mutate;
pub mod responses;
