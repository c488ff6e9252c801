//! The specification as data: the tables under `specs/`, read and checked.
//!
//! | module | contents |
//! |---|---|
//! | [`requirement`] | statements of standards, and our own rules |
//! | [`case`] | cases: requests and the expected responses |
//! | [`request`], [`expectation`] | the two halves of a step |
//! | `operation` | terminology operations in short |
//! | [`endpoints`] | the endpoints that requests name |
//! | [`resources`] | the FHIR resources that rows name |
//! | [`preconditions`] | the states that cases begin from |
//! | [`check`] | rules for the tables themselves |
//!
//! `conformance/README.md` describes the language of the tables.

pub mod case;
pub mod check;
pub mod endpoints;
pub mod expectation;
mod operation;
pub mod preconditions;
pub mod request;
pub mod requirement;
pub mod resources;

use serde::Deserialize;

use case::{Case, CaseRow};
use preconditions::Precondition;
use requirement::Requirement;

/// The table files: name and content.
macro_rules! tables {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../specs/", $name)))),*]
    };
}

/// Every table of requirements and cases, in the order of the report.
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

/// The table of cases that are known to fail.
pub const GAPS: &str = include_str!("../../specs/gaps.toml");

/// A table file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    requirement: Vec<Requirement>,
    #[serde(default)]
    case: Vec<CaseRow>,
}

/// A case that is known to fail.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownGap {
    /// Id of the case.
    pub case: String,
    /// Reason for the failure, and the necessary work.
    pub reason: String,
}

/// All tables together.
#[derive(Debug, Default)]
pub struct Specification {
    /// Every requirement.
    pub requirements: Vec<Requirement>,
    /// Every case.
    pub cases: Vec<Case>,
    /// Cases that are known to fail.
    pub gaps: Vec<KnownGap>,
    /// Every precondition.
    pub preconditions: Vec<Precondition>,
}

/// A table that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The text is not TOML, or a value has the wrong type.
    #[error("specs/{file}: {error}")]
    Format {
        /// File below `specs/`.
        file: &'static str,
        /// Line and fault.
        error: toml::de::Error,
    },
    /// A row contradicts itself.
    #[error("specs/{0}")]
    Row(String),
}

impl Specification {
    /// Reads every table.
    ///
    /// # Errors
    /// [`TableError`] if a table has an unknown key, a wrong type or a contradictory row.
    pub fn load() -> Result<Self, TableError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Gaps {
            #[serde(default)]
            gap: Vec<KnownGap>,
        }
        let mut spec = Self::default();
        for (file, text) in FILES {
            spec.add(file, text)?;
        }
        let format = |file| move |error| TableError::Format { file, error };
        spec.gaps = toml::from_str::<Gaps>(GAPS).map_err(format("gaps.toml"))?.gap;
        spec.preconditions = preconditions::load().map_err(format("preconditions.toml"))?;
        Ok(spec)
    }

    /// Adds the rows of a table.
    ///
    /// # Errors
    /// [`TableError`] if the table has an unknown key, a wrong type or a contradictory row.
    pub fn add(&mut self, file: &'static str, text: &str) -> Result<(), TableError> {
        let table: Table = toml::from_str(text).map_err(|error| TableError::Format { file, error })?;
        self.requirements.extend(table.requirement);
        for row in table.case {
            self.cases.push(row.into_case(file, text).map_err(TableError::Row)?);
        }
        Ok(())
    }

    /// Returns the cases whose id, or a requirement that they cover, contains one of the filters; all cases without a
    /// filter.
    pub fn select<'a>(&'a self, filters: &'a [String]) -> impl Iterator<Item = &'a Case> {
        let fits = |case: &&Case| {
            let mut names = std::iter::once(&case.id).chain(&case.covers);
            filters.is_empty()
                || names.any(|name| filters.iter().any(|filter| name.contains(filter.as_str())))
        };
        self.cases.iter().filter(fits)
    }

    /// Returns why a case is known to fail.
    pub fn gap_reason(&self, case: &str) -> Option<&str> {
        self.gaps.iter().find(|gap| gap.case == case).map(|gap| gap.reason.as_str())
    }
}
