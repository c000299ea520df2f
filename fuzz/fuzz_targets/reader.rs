//! Any bytes as the answers on one connection: every split must come to the same, and every answer be what its bytes say.
#![no_main]

#[path = "../../crates/wire/tests/common/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|input: &[u8]| check::check(input));
