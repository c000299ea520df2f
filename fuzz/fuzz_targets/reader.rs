//! Reads arbitrary bytes as the responses on one connection. The responses must match the bytes,
//! and must be the same for every split of the bytes.
#![no_main]

#[path = "../../crates/wire/tests/common/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::check(input));
