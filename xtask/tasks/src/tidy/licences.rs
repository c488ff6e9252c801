//! Licences, bans and sources of all packages, by the rules of `.cargo/deny.toml`.

use anyhow::{Context as _, Result};
use serde::Deserialize;
use spdx::{Expression, ParseMode};

use xtask::workspace::root;

/// The part of `.cargo/deny.toml` that is checked here. Advisories need a network.
#[derive(Deserialize)]
pub struct DenyRules {
    licenses: LicenceRules,
    bans: BanRules,
}

#[derive(Deserialize)]
struct LicenceRules {
    allow: Vec<String>,
}

#[derive(Deserialize)]
struct BanRules {
    /// Names of packages that must not be built.
    deny: Vec<String>,
}

impl DenyRules {
    pub fn read() -> Result<Self> {
        let path = root().join(".cargo/deny.toml");
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("failed to read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("failed to parse {}", path.display()))
    }

    /// The names of packages that must not be built.
    pub fn banned_packages(&self) -> &[String] {
        &self.bans.deny
    }

    /// Returns why the licence of a package is rejected, or `None` if it is allowed.
    pub fn licence_fault(&self, licence: Option<&str>) -> Option<String> {
        let Some(licence) = licence else { return Some("it states no licence".to_owned()) };
        let expression = match Expression::parse_mode(licence, ParseMode::LAX) {
            Ok(expression) => expression,
            Err(error) => return Some(format!("its licence '{licence}' cannot be parsed: {}", error.reason)),
        };
        let is_allowed = expression.evaluate(|requirement| {
            let id = requirement.license.id().map(|id| id.name);
            id.is_some_and(|id| self.licenses.allow.iter().any(|allowed| allowed == id))
        });
        (!is_allowed).then(|| format!("its licence '{licence}' is not allowed by .cargo/deny.toml"))
    }
}

/// Returns why the source of a package is rejected: only crates.io and the workspace itself are allowed.
pub fn source_fault(source: Option<&str>) -> Option<String> {
    let source = source?;
    let is_allowed = source.starts_with("registry+") && source.ends_with("/crates.io-index");
    (!is_allowed).then(|| format!("its source {source} is not crates.io"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_and_sources_are_checked() {
        let rules: DenyRules =
            toml::from_str("licenses.allow = [\"MIT\", \"ISC\"]\nbans.deny = [\"ring\"]").unwrap();
        for licence in ["MIT", "MIT/Apache-2.0", "GPL-2.0-only OR ISC", "MIT AND ISC"] {
            assert_eq!(rules.licence_fault(Some(licence)), None, "{licence}");
        }
        for licence in [None, Some("GPL-3.0-only"), Some("MIT AND Apache-2.0"), Some("not a licence")] {
            assert!(rules.licence_fault(licence).is_some(), "{licence:?}");
        }
        assert_eq!(source_fault(None), None);
        assert!(source_fault(Some("git+https://git.example/crate")).is_some());
    }
}
