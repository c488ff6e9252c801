//! The files of the Debian package: the unit of the service and its settings.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{TREFOIL, have};

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/systemd").join(file)
}

/// systemd accepts the unit, and rates its exposure at 2.0 of 10 or less.
#[test]
fn the_unit_is_valid_and_confined() {
    if !have("systemd-analyze", "the unit of the service") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let unit = std::fs::read_to_string(deploy("trefoil.service")).unwrap();
    assert!(unit.contains("ExecStart=/usr/bin/trefoil serve --config /etc/trefoil/trefoil.toml\n"));
    let here = folder.path().join("trefoil.service");
    std::fs::write(&here, unit.replace("/usr/bin/trefoil", TREFOIL)).unwrap();
    for check in
        [&["verify", "--man=no"][..], &["security", "--offline=true", "--threshold=20", "--no-pager"]]
    {
        let output = Command::new("systemd-analyze").args(check).arg(&here).output().unwrap();
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{check:?}: {text}");
    }
}

#[test]
fn the_settings_of_the_package_are_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let (settings, data) = (deploy("trefoil.toml"), folder.path().to_str().unwrap());
    let status = ["status", "--config", settings.to_str().unwrap(), "--data", data];
    let output = Command::new(TREFOIL).args(status).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && text.contains("contains no store"), "{text}");
}
