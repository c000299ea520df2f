//! Reads arbitrary bytes as the responses on one connection. However the bytes are split, the
//! reader must yield the same responses, and the responses must match the bytes.
#![no_main]

#[path = "../../crates/wire/tests/common/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::check(input));
