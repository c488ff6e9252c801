//! The development certificate: the server starts after a power cut while it is generated.

use std::path::Path;

use jiff::Timestamp;
use trefoil_power_cut::{Exploration, NameRule, Recording, explore, mark, recorded_folder};
use trefoil_server::node::data_folder::make_data_folder;
use trefoil_server::node::tls::load_tls;

const TEST: &str = "power_cut::certificate::a_certificate_is_recorded";
/// Number of states that the ordinary tests check.
const STATES: usize = 1_000;

/// If this process is recorded: generates the certificate. Otherwise: also loads it.
#[test]
fn a_certificate_is_recorded() {
    let Some(root) = recorded_folder() else {
        let dir = tempfile::TempDir::new().unwrap();
        check(dir.path(), &[]).unwrap();
        return check(dir.path(), &[]).unwrap();
    };
    check(&root, &[]).unwrap();
    mark("generated");
}

/// Loads the certificate, or generates it if it is not complete.
fn check(root: &Path, _marks: &[&str]) -> Result<(), String> {
    let data = root.join("data");
    make_data_folder(&data).unwrap();
    load_tls(None, &data, Timestamp::now()).map(drop).map_err(|error| format!("{error:#}"))
}

#[test]
fn the_server_starts_after_a_power_cut() {
    let Some(recording) = Recording::of_test(TEST, 1).unwrap() else { return };
    let report = explore(&recording, Exploration::of(NameRule::Strict, STATES), check);
    report.expect_no_failure(&recording, "power_cut::certificate::the_server");

    let (faulty, dropped) = recording.without_syncs(|path| path.ends_with(".part"));
    let report = explore(&faulty, Exploration::of_fault(NameRule::Strict, STATES), check);
    assert!(!report.failures.is_empty(), "the check passes without {dropped} fsyncs of the files");
}
