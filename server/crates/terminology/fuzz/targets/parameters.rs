//! libFuzzer target for the Parameters of the terminology operations.

#![no_main]

#[path = "../../tests/it/support.rs"]
#[expect(dead_code, reason = "each fuzz target uses only some of the shared test helpers")]
mod support;
#[path = "../../tests/it/fuzz/targets.rs"]
#[expect(dead_code, reason = "each fuzz target uses only some of the shared test helpers")]
mod targets;

libfuzzer_sys::fuzz_target!(|text: &[u8]| targets::parameters(text));
