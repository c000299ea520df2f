//! Reads arbitrary bytes as the responses on one connection. Every split must yield the same
//! responses, and the responses must match the bytes.
#![no_main]

#[path = "../../crates/wire/tests/common/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::check(input));
