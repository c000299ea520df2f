//! Reads arbitrary bytes as the frames on one HTTP/2 connection. The events and answers must be the
//! same for every split of the bytes.
#![no_main]

#[path = "../../crates/wire/tests/common/check.rs"]
#[allow(dead_code, reason = "only the random number generator is used")]
mod check;
#[path = "../../crates/wire/tests/common/h2.rs"]
#[allow(dead_code, reason = "another target uses the rest")]
mod h2;

libfuzzer_sys::fuzz_target!(|input: &[u8]| h2::check_session(input));
