//! The entry point of libFuzzer for a code system as CSV.

#![no_main]

#[path = "../../tests/it/fuzz/targets.rs"]
#[expect(dead_code, reason = "a target uses its part of what the tests share")]
mod targets;

libfuzzer_sys::fuzz_target!(|text: &[u8]| targets::csv(text));
