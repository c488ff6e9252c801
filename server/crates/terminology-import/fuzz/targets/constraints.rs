//! libFuzzer target for expression constraints and regular expressions of filters.

#![no_main]

#[path = "../../tests/it/fuzz/targets.rs"]
#[expect(dead_code, reason = "each fuzz target uses only some of the shared test helpers")]
mod targets;

libfuzzer_sys::fuzz_target!(|text: &[u8]| targets::constraints(text));
