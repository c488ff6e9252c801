//! Fuzz tests: each target runs on mutations of valid inputs, and must not panic. cargo-fuzz runs the same
//! targets guided by coverage, and limits time and memory (`../../fuzz`).

mod targets;

use trefoil_fixtures::mutation::run_fuzz_target;

#[test]
fn rf2() {
    run_fuzz_target(&targets::seed_folder("rf2"), targets::rf2);
}

#[test]
fn csv() {
    run_fuzz_target(&targets::seed_folder("csv"), targets::csv);
}

#[test]
fn constraints() {
    run_fuzz_target(&targets::seed_folder("constraints"), targets::constraints);
}
