//! The entry point of libFuzzer for Parameters of the operations.

#![no_main]

#[path = "../../tests/it/support.rs"]
#[expect(dead_code, reason = "a target uses its part of what the tests share")]
mod support;
#[path = "../../tests/it/fuzz/targets.rs"]
#[expect(dead_code, reason = "a target uses its part of what the tests share")]
mod targets;

libfuzzer_sys::fuzz_target!(|text: &[u8]| targets::parameters(text));
