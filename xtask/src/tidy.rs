//! `cargo xtask tidy`: the walls between the crates (DESIGN 1) and the habits of the tree.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use crate::{cargo, root};

/// Direct dependencies that only these packages may have.
const WALLS: [(&str, &[&str]); 5] = [
    ("warp", &["trefoil-server"]),
    ("hyper", &["trefoil-server"]),
    ("ratatui", &["trefoil-tui"]),
    ("fjall", &["trefoil-store"]),
    ("object_store", &["trefoil-bulk"]),
];

/// Which crates of ours each crate may know.
const MAY_KNOW: [(&str, &[&str]); 11] = [
    ("trefoil-fhir", &[]),
    ("trefoil-store", &[]),
    ("trefoil-resources", &["trefoil-fhir", "trefoil-store"]),
    ("trefoil-identity", &["trefoil-fhir", "trefoil-store"]),
    ("trefoil-terminology", &["trefoil-fhir"]),
    ("trefoil-bulk", &["trefoil-fhir", "trefoil-store", "trefoil-resources"]),
    ("trefoil-fixtures", &[]),
    ("trefoil-conformance", &[]),
    ("trefoil-tui", &[]),
    ("xtask", &[]),
    (
        "trefoil-server",
        &[
            "trefoil-fhir",
            "trefoil-store",
            "trefoil-resources",
            "trefoil-identity",
            "trefoil-terminology",
            "trefoil-bulk",
            "trefoil-fixtures",
        ],
    ),
];

/// Packages that no build for any target may contain.
const NEVER: [&str; 4] = ["ring", "openssl", "openssl-sys", "native-tls"];

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_members: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

/// Checks everything; lists all that is wrong.
pub fn run() -> Result<()> {
    let mut wrong = Vec::new();
    walls(&mut wrong)?;
    for file in tracked()? {
        habits(&file, &mut wrong);
    }
    if wrong.is_empty() {
        return Ok(());
    }
    for line in &wrong {
        println!("tidy: {line}");
    }
    bail!("{} things to put right", wrong.len())
}

fn walls(wrong: &mut Vec<String>) -> Result<()> {
    let output = cargo().args(["metadata", "--format-version", "1", "--locked"]).output()?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    let metadata: Metadata = serde_json::from_slice(&output.stdout)?;
    let ours: Vec<_> =
        metadata.packages.iter().filter(|package| metadata.workspace_members.contains(&package.id)).collect();
    for package in &ours {
        let name = package.name.as_str();
        let known = MAY_KNOW.iter().find(|(of, _)| *of == name).map(|(_, known)| *known);
        let Some(known) = known else {
            wrong.push(format!("crate {name} has no line in MAY_KNOW"));
            continue;
        };
        // Tests may look over the walls of our own crates, never over those around a library.
        for dependency in &package.dependencies {
            let is_ours = ours.iter().any(|other| other.name == dependency.name);
            if is_ours && dependency.kind.is_none() && !known.contains(&dependency.name.as_str()) {
                wrong.push(format!("{name} may not know {}", dependency.name));
            }
            if let Some((_, allowed)) = WALLS.iter().find(|(library, _)| *library == dependency.name)
                && !allowed.contains(&name)
            {
                wrong.push(format!("{name} may not use {} directly", dependency.name));
            }
        }
    }
    let built = built()?;
    for name in NEVER {
        for (_, version) in built.iter().filter(|(package, _)| package == name) {
            wrong.push(format!("{name} {version} must not be built"));
        }
    }
    for name in ["reqwest", "rustls", "hyper", "tokio"] {
        let versions: Vec<_> = built.iter().filter(|(package, _)| package == name).collect();
        if versions.len() != 1 {
            wrong.push(format!("there is to be one version of {name}, not {versions:?}"));
        }
    }
    Ok(())
}

/// Names and versions of all packages that a build for any target contains. The lock file and
/// `cargo metadata` also list optional packages that no feature turns on.
fn built() -> Result<BTreeSet<(String, String)>> {
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

/// The files of the tree.
fn tracked() -> Result<Vec<String>> {
    let output = std::process::Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .context("failed to ask git for the files")?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().map(str::to_owned).filter(|file| root().join(file).is_file()).collect())
}

fn habits(file: &str, wrong: &mut Vec<String>) {
    const TOP: [&str; 10] = [
        "Cargo.toml",
        "Cargo.lock",
        "LICENSE",
        "CHANGELOG.md",
        "README.md",
        "server",
        "client-tui",
        "conformance",
        "fixtures",
        "xtask",
    ];
    let top = file.split('/').next().unwrap_or_default();
    if !top.starts_with('.') && !TOP.contains(&top) {
        wrong.push(format!("{file}: not in the fixed layout"));
    }
    if Path::new(file).extension().is_none_or(|ending| ending != "rs") {
        return;
    }
    let Ok(text) = std::fs::read_to_string(root().join(file)) else { return };
    if !text.starts_with("//!") && !text.starts_with("#!") {
        wrong.push(format!("{file}: a file says at its top, with //!, what lives there"));
    }
    // Written in two halves, so that this file does not find itself.
    for (word, why) in [
        (concat!("todo", "!("), "finish it"),
        (concat!("unimplemented", "!("), "finish it"),
        (concat!("#[ign", "ore"), "a test that does not run is no test"),
        (concat!("allow(dead", "_code)"), "take the dead code out"),
    ] {
        for (number, line) in text.lines().enumerate().filter(|(_, line)| line.contains(word)) {
            if !line.trim_start().starts_with("//") {
                wrong.push(format!("{file}:{}: {word}: {why}", number + 1));
            }
        }
    }
}
