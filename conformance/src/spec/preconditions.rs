//! Preconditions: the states that cases begin from, as `specs/preconditions.toml` describes them.

use serde::Deserialize;

/// Text of the table.
const TABLE: &str = include_str!("../../specs/preconditions.toml");

/// Cost of a precondition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SetupCost {
    /// No request.
    None,
    /// Set up once for a run.
    OncePerRun,
    /// Requests or a sign-in for each case.
    EachCase,
    /// A server is started once for a run.
    ServerPerRun,
    /// A server is started for each case.
    ServerEachCase,
}

/// A state that a case begins from.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Precondition {
    /// Name that cases use.
    pub name: String,
    /// Description.
    pub gist: String,
    /// Variables that it sets.
    #[serde(default)]
    pub sets: Vec<String>,
    /// Cost of the setup.
    pub cost: SetupCost,
}

impl SetupCost {
    /// Returns the name that the table uses.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::OncePerRun => "once-per-run",
            Self::EachCase => "each-case",
            Self::ServerPerRun => "server-per-run",
            Self::ServerEachCase => "server-each-case",
        }
    }
}

/// Reads the table.
///
/// # Errors
/// The table does not have the form of [`Precondition`]; the error has the line.
pub fn load() -> Result<Vec<Precondition>, toml::de::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Table {
        precondition: Vec<Precondition>,
    }
    toml::from_str::<Table>(TABLE).map(|table| table.precondition)
}
