//! Fuzz tests: each target runs on mutations of valid inputs, and must not panic. cargo-fuzz runs the same
//! targets guided by coverage, and limits time and memory (`../../fuzz`).

mod targets;

use trefoil_fixtures::mutation::run_fuzz_target;

#[test]
fn parameters() {
    run_fuzz_target(&targets::seed_folder("parameters"), targets::parameters);
}
