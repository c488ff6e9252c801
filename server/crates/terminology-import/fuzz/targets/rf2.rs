//! libFuzzer target for a file of an RF2 release.

#![no_main]

#[path = "../../tests/it/fuzz/targets.rs"]
#[expect(dead_code, reason = "each fuzz target uses only some of the shared test helpers")]
mod targets;

libfuzzer_sys::fuzz_target!(|text: &[u8]| targets::rf2(text));
