//! The specification as data: every table under `specs/`, read once and checked.
//!
//! | module | what lives there |
//! |---|---|
//! | [`row`] | the types of a row, which are the language that cases are written in |
//! | [`check`] | what must hold of the tables themselves |

pub mod check;
pub mod row;

use serde::Deserialize;

use row::{Case, Requirement};

/// The table files: name and content.
macro_rules! tables {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../specs/", $name)))),*]
    };
}

/// Every table but the gaps, in the order in which sections are shown.
pub const FILES: &[(&str, &str)] = tables![
    "service.toml",
    "authorize.toml",
    "authorize-errors.toml",
    "par.toml",
    "federation.toml",
    "sign-in.toml",
    "consent.toml",
    "passkey.toml",
    "account.toml",
    "device.toml",
    "pages.toml",
    "oauth.toml",
    "token.toml",
    "refresh.toml",
    "dpop.toml",
    "introspection.toml",
    "client-keys.toml",
    "signing-keys.toml",
    "userinfo.toml",
    "sign-out.toml",
    "smart.toml",
    "discovery.toml",
    "oidf.toml",
    "admin.toml",
    "validate-code.toml",
    "subsumes.toml",
    "ecosystem.toml",
    "lookup.toml",
    "expand.toml",
    "built-in.toml",
    "releases.toml",
    "metadata.toml",
    "kick-off.toml",
    "export.toml",
    "bulkdata.toml",
    "bulkdata-3.toml",
    "resources.toml",
    "malformed.toml",
];

/// The gaps: cases that are known to fail, with reasons.
pub const GAPS: &str = include_str!("../../specs/gaps.toml");

/// One table file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Its requirements.
    #[serde(default)]
    pub requirement: Vec<Requirement>,
    /// Its cases.
    #[serde(default)]
    pub case: Vec<Case>,
}

/// A case that is known to fail.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gap {
    /// Id of the case.
    pub case: String,
    /// Why it fails and what would have to be done.
    pub reason: String,
}

/// All tables together.
#[derive(Debug, Default)]
pub struct Spec {
    /// Every requirement.
    pub requirements: Vec<Requirement>,
    /// Every case.
    pub cases: Vec<Case>,
    /// Every gap.
    pub gaps: Vec<Gap>,
}

/// A table that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("specs/{file}: {error}")]
pub struct TableError {
    /// File under `specs/`.
    pub file: &'static str,
    /// Line and fault.
    pub error: toml::de::Error,
}

impl Spec {
    /// Reads every table.
    ///
    /// # Errors
    /// [`TableError`]: unknown keys, wrong types, with their line.
    pub fn load() -> Result<Self, TableError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Gaps {
            #[serde(default)]
            gap: Vec<Gap>,
        }
        let mut spec = Self::default();
        for (file, text) in FILES {
            let table: Table = toml::from_str(text).map_err(|error| TableError { file, error })?;
            spec.requirements.extend(table.requirement);
            spec.cases.extend(table.case);
        }
        let gaps: Gaps = toml::from_str(GAPS).map_err(|error| TableError { file: "gaps.toml", error })?;
        spec.gaps = gaps.gap;
        Ok(spec)
    }

    /// The cases whose id, or a requirement that they cover, contains one of the filters; all
    /// without a filter.
    pub fn select<'a>(&'a self, filters: &'a [String]) -> impl Iterator<Item = &'a Case> {
        let fits = |case: &&Case| {
            let mut names = std::iter::once(&case.id).chain(&case.covers);
            filters.is_empty()
                || names.any(|name| filters.iter().any(|filter| name.contains(filter.as_str())))
        };
        self.cases.iter().filter(fits)
    }

    /// Why a case is known to fail.
    pub fn gap(&self, case: &str) -> Option<&str> {
        self.gaps.iter().find(|gap| gap.case == case).map(|gap| gap.reason.as_str())
    }
}
