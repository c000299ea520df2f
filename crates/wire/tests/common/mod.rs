//! Code shared by the integration tests.
#![allow(dead_code, reason = "each test binary uses only some of these helpers")]

pub mod check;
pub mod h2;
pub mod mutate;
pub mod responses;
