//! The packages of npm and PyPI that the tables are made from.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use xtask::workspace::{root, target_dir};

pub(super) const NPM: &str = "server/tests/it/clients/node_modules";

/// Versions of the packages of PyPI.
pub(super) const REQUIREMENTS: &str = "server/tests/it/clients/requirements.txt";

/// The path of a file in a package of npm.
pub(super) fn npm_file(path: &str) -> PathBuf {
    root().join(NPM).join(path)
}

/// The path of a file in a package of PyPI.
pub(super) fn python_file(path: &str) -> PathBuf {
    target_dir().join("python").join(path)
}

/// The required version of a package of PyPI.
pub(super) fn pypi_version(name: &str) -> Result<String> {
    let requirements = std::fs::read_to_string(root().join(REQUIREMENTS))?;
    let version = requirements.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("=="));
    version.map(str::to_owned).with_context(|| format!("{REQUIREMENTS} has no version of {name}"))
}

/// A table: a comment with the source, and the rows.
pub(super) fn table(source: &str, rows: &[String]) -> String {
    format!("# {source}\n{}\n", rows.join("\n"))
}
