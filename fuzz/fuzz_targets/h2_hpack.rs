//! Decodes arbitrary bytes as HPACK field blocks. The decoded fields must stay within their limit,
//! and must be the same after encoding and decoding them again.
#![no_main]

#[path = "../../crates/wire/tests/common/check.rs"]
#[allow(dead_code, reason = "only the random number generator is used")]
mod check;
#[path = "../../crates/wire/tests/common/h2.rs"]
#[allow(dead_code, reason = "another target uses the rest")]
mod h2;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    h2::check_hpack(input);
});
