//! The specification as data: reads and checks the tables under `specs/`.
//!
//! | module | contents |
//! |---|---|
//! | [`requirement`] | statements of standards, and our own rules |
//! | [`case`] | cases: requests and the expected responses |
//! | [`request`], [`expectation`] | the two halves of a step |
//! | `operation` | the short form of terminology operations |
//! | [`endpoints`] | the endpoints that requests name |
//! | [`resources`] | the FHIR resources that rows name |
//! | [`uses`], [`permits`] | features that cases use, and choices that rows permit |
//! | [`preconditions`] | the initial states of cases |
//! | [`catalogue`] | the specifications that the rows cover |
//! | [`check`] | rules for the tables themselves |
//!
//! `conformance/README.md` describes the language of the tables.

pub mod case;
pub mod catalogue;
pub mod check;
pub mod endpoints;
pub mod expectation;
mod operation;
pub mod permits;
pub mod preconditions;
pub mod request;
pub mod requirement;
pub mod resources;
pub mod uses;

use std::path::Path;

use serde::Deserialize;

use case::{Case, CaseRow};
use preconditions::Precondition;
use requirement::{Level, Requirement};

/// Builds the list of table files, each with name and content.
macro_rules! tables {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("../../specs/", $name)))),*]
    };
}

/// All tables of requirements and cases, in the order of the report.
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
    "console.toml",
    "device.toml",
    "pages.toml",
    "rfc6749.toml",
    "rfc6750.toml",
    "rfc7009.toml",
    "rfc7636.toml",
    "rfc7662.toml",
    "rfc8414.toml",
    "rfc8628.toml",
    "rfc9126.toml",
    "rfc9207.toml",
    "rfc9700.toml",
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
    "fhir-operations.toml",
    "subsumes.toml",
    "closure.toml",
    "translate.toml",
    "ecosystem.toml",
    "lookup.toml",
    "expand.toml",
    "built-in.toml",
    "releases.toml",
    "syndication.toml",
    "resource.toml",
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
    /// Reason for the failure, and the work that would fix it.
    pub reason: String,
}

/// Reads a list of known failures.
///
/// # Errors
/// An error if the text does not have the form of `gaps.toml`.
pub fn gaps(text: &str) -> Result<Vec<KnownGap>, toml::de::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Gaps {
        #[serde(default)]
        gap: Vec<KnownGap>,
    }
    toml::from_str::<Gaps>(text).map(|gaps| gaps.gap)
}

/// The content of all tables.
#[derive(Debug, Default)]
pub struct Specification {
    /// Requirements of all tables.
    pub requirements: Vec<Requirement>,
    /// Cases of all tables.
    pub cases: Vec<Case>,
    /// Cases that are known to fail.
    pub gaps: Vec<KnownGap>,
    /// Preconditions that cases can name.
    pub preconditions: Vec<Precondition>,
}

/// Reasons why a table cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The text is not TOML, or a value has the wrong type.
    #[error("{file}: {error}")]
    Format {
        /// Path of the file.
        file: String,
        /// Position and reason of the error.
        error: toml::de::Error,
    },
    /// A row contradicts itself.
    #[error("{0}")]
    Row(String),
    /// A table cannot be read.
    #[error("failed to read {file}: {error}")]
    Read {
        /// Path of the file or folder.
        file: String,
        /// Error of the operating system.
        error: std::io::Error,
    },
}

impl Specification {
    /// Reads all tables.
    ///
    /// # Errors
    /// [`TableError`] if a table has an unknown key, a value of the wrong type or a contradictory row.
    pub fn load() -> Result<Self, TableError> {
        let mut spec = Self::default();
        for (file, text) in FILES {
            spec.add(&format!("specs/{file}"), text)?;
        }
        let format = |file: &str| {
            let file = format!("specs/{file}");
            move |error| TableError::Format { file, error }
        };
        spec.gaps = gaps(GAPS).map_err(format("gaps.toml"))?;
        spec.preconditions = preconditions::load().map_err(format("preconditions.toml"))?;
        Ok(spec)
    }

    /// Adds the rows of all tables in a folder: its files whose names end with `.toml`.
    ///
    /// # Errors
    /// [`TableError`] if a table cannot be read or has a fault.
    pub fn add_folder(&mut self, folder: &Path) -> Result<(), TableError> {
        let read = |path: &Path| {
            let file = path.display().to_string();
            move |error| TableError::Read { file, error }
        };
        let entries = std::fs::read_dir(folder).map_err(read(folder))?;
        let mut paths = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(read(folder))?;
        paths.sort();
        for path in paths.iter().filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        {
            let text = std::fs::read_to_string(path).map_err(read(path))?;
            self.add(&path.display().to_string(), &text)?;
        }
        let faults = check::faults_of_rows(self);
        if faults.is_empty() { Ok(()) } else { Err(TableError::Row(faults.join("\n"))) }
    }

    /// Adds the rows of a table.
    ///
    /// # Errors
    /// [`TableError`] if the table has an unknown key, a value of the wrong type or a contradictory row.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), TableError> {
        let table: Table =
            toml::from_str(text).map_err(|error| TableError::Format { file: file.to_owned(), error })?;
        self.requirements.extend(table.requirement);
        for row in table.case {
            self.cases.push(row.into_case(file, text).map_err(TableError::Row)?);
        }
        Ok(())
    }

    /// The requirements that a case tests.
    pub fn requirements_of<'a>(&'a self, case: &'a Case) -> impl Iterator<Item = &'a Requirement> {
        self.requirements.iter().filter(|requirement| case.covers.contains(&requirement.id))
    }

    /// The strictest level of the requirements that a case tests.
    pub fn level_of(&self, case: &Case) -> Level {
        self.requirements_of(case).map(|requirement| requirement.level).min().unwrap_or(Level::Must)
    }

    /// Returns whether a case tests a rule of Trefoil.
    pub fn has_house_rule(&self, case: &Case) -> bool {
        self.requirements_of(case).any(|requirement| requirement.house.is_some())
    }

    /// The reason why a case is known to fail; `None` if the case has no known gap.
    pub fn gap_reason(&self, case: &str) -> Option<&str> {
        self.gaps.iter().find(|gap| gap.case == case).map(|gap| gap.reason.as_str())
    }
}
