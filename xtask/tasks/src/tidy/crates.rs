//! The boundaries between the crates (the libraries and the crates of the workspace that each crate may use),
//! and the rules for the packages of others.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use serde::Deserialize;

use super::licences::{DenyRules, source_fault};
use xtask::workspace::cargo;

/// Libraries that only the listed packages may use directly.
const LIBRARY_USERS: [(&str, &[&str]); 5] = [
    ("warp", &["trefoil-server"]),
    // The suite needs it for the proxy that changes answers.
    ("hyper", &["trefoil-conformance", "trefoil-server", "trefoil-simulation", "trefoil-test-object-store"]),
    ("ratatui", &["trefoil-tui"]),
    ("fjall", &["trefoil-store"]),
    ("object_store", &["trefoil-backup", "trefoil-bulk", "trefoil-server", "trefoil-simulation"]),
];

/// Crates of the workspace that each crate may depend on.
const ALLOWED_CRATES: [(&str, &[&str]); 23] = [
    ("trefoil-fhir", &[]),
    ("trefoil-store", &[]),
    ("trefoil-test-database", &[]),
    ("trefoil-test-object-store", &[]),
    ("trefoil-test-server", &[]),
    ("trefoil-resources", &["trefoil-fhir", "trefoil-store"]),
    ("trefoil-identity", &["trefoil-fhir", "trefoil-store"]),
    ("trefoil-terminology", &["trefoil-fhir"]),
    ("trefoil-spreadsheet", &[]),
    ("trefoil-terminology-import", &["trefoil-terminology", "trefoil-spreadsheet"]),
    ("trefoil-bulk", &["trefoil-fhir", "trefoil-store", "trefoil-resources"]),
    ("trefoil-backup", &["trefoil-store", "trefoil-resources"]),
    ("trefoil-fixtures", &[]),
    ("trefoil-power-cut", &[]),
    ("trefoil-test-parties", &[]),
    ("trefoil-node-clients", &["trefoil-store", "trefoil-test-parties"]),
    (
        "trefoil-simulation",
        &[
            "trefoil-server",
            "trefoil-node-clients",
            "trefoil-test-parties",
            "trefoil-bulk",
            "trefoil-identity",
            "trefoil-store",
        ],
    ),
    (
        "trefoil-conformance",
        &["trefoil-fixtures", "trefoil-test-database", "trefoil-test-parties", "trefoil-test-server"],
    ),
    ("trefoil-command-line", &[]),
    ("trefoil-tui", &["trefoil-command-line", "trefoil-spreadsheet"]),
    ("xtask", &["trefoil-test-server"]),
    ("xtask-tasks", &["xtask", "trefoil-test-database", "trefoil-test-server"]),
    (
        "trefoil-server",
        &[
            "trefoil-fhir",
            "trefoil-store",
            "trefoil-resources",
            "trefoil-identity",
            "trefoil-terminology",
            "trefoil-terminology-import",
            "trefoil-bulk",
            "trefoil-backup",
            "trefoil-fixtures",
            "trefoil-command-line",
        ],
    ),
];

#[derive(Deserialize)]
struct CargoMetadata {
    packages: Vec<CargoPackage>,
    workspace_members: BTreeSet<String>,
}

#[derive(Deserialize)]
struct CargoPackage {
    id: String,
    name: String,
    license: Option<String>,
    source: Option<String>,
    dependencies: Vec<CargoDependency>,
}

#[derive(Deserialize)]
struct CargoDependency {
    name: String,
    kind: Option<String>,
}

/// Checks the dependencies of each crate, and the packages of every build.
pub fn check(faults: &mut Vec<String>) -> Result<()> {
    let output = cargo().args(["metadata", "--format-version", "1", "--locked"]).output()?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: CargoMetadata = serde_json::from_slice(&output.stdout)?;
    let ours: Vec<_> =
        metadata.packages.iter().filter(|package| metadata.workspace_members.contains(&package.id)).collect();
    for package in &ours {
        let name = package.name.as_str();
        let dependencies = ALLOWED_CRATES.iter().find(|(of, _)| *of == name).map(|(_, allowed)| *allowed);
        let Some(names) = dependencies else {
            faults.push(format!("crate {name} has no line in ALLOWED_CRATES; add one"));
            continue;
        };
        // Tests may use other crates of the workspace, but not the libraries that are reserved for other
        // packages.
        for dependency in &package.dependencies {
            let is_ours = ours.iter().any(|other| other.name == dependency.name);
            if is_ours && dependency.kind.is_none() && !names.contains(&dependency.name.as_str()) {
                faults.push(format!("{name} must not depend on {}", dependency.name));
            }
            if let Some((_, allowed)) = LIBRARY_USERS.iter().find(|(library, _)| *library == dependency.name)
                && !allowed.contains(&name)
            {
                faults.push(format!("{name} must not use {} directly", dependency.name));
            }
        }
    }
    let rules = DenyRules::read()?;
    for package in &metadata.packages {
        let reasons = rules
            .licence_fault(package.license.as_deref())
            .into_iter()
            .chain(source_fault(package.source.as_deref()));
        faults.extend(reasons.map(|reason| format!("{}: {reason}", package.name)));
    }
    let packages = built_packages()?;
    for name in rules.banned_packages() {
        for (_, version) in packages.iter().filter(|(package, _)| package == name) {
            faults.push(format!("{name} {version} must not be built"));
        }
    }
    for name in ["reqwest", "rustls", "hyper", "tokio"] {
        let versions: Vec<_> = packages.iter().filter(|(package, _)| package == name).collect();
        if versions.len() != 1 {
            faults.push(format!("exactly one version of {name} must be built, not {versions:?}"));
        }
    }
    Ok(())
}

/// Returns names and versions of all packages in builds for all targets. The lock file and `cargo metadata`
/// cannot be used, because they also list optional packages that no feature enables.
fn built_packages() -> Result<BTreeSet<(String, String)>> {
    let mut command = cargo();
    command.args([
        "tree",
        "--workspace",
        "--locked",
        "--target",
        "all",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ]);
    let output = command.output()?;
    if !output.status.success() {
        bail!("cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(output.stdout)?;
    let parts = |line: &str| line.split_once(' ').map(|(name, rest)| (name.to_owned(), rest.to_owned()));
    let version = |rest: &str| rest.split(' ').next().unwrap_or_default().to_owned();
    Ok(text.lines().filter_map(parts).map(|(name, rest)| (name, version(&rest))).collect())
}
