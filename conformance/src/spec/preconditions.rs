//! Preconditions: the initial states of cases, as `specs/preconditions.toml` describes them.

use std::sync::LazyLock;

use serde::Deserialize;

use super::request::one_or_many;
use super::uses::Use;

const TABLE: &str = include_str!("../../specs/preconditions.toml");

/// Cost of a precondition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SetupCost {
    /// The setup sends no request.
    None,
    /// The setup runs once per run.
    OncePerRun,
    /// The setup sends requests or signs in for each case.
    EachCase,
    /// The setup starts a server once per run.
    ServerPerRun,
    /// The setup starts a server for each case.
    ServerEachCase,
}

/// An initial state of cases.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Precondition {
    /// Name that cases use.
    pub name: String,
    /// Description of the state.
    pub gist: String,
    /// Variables that the setup sets.
    #[serde(default)]
    pub sets: Vec<String>,
    /// Paths of members of the profile that the setup uses.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Features of the tested server that the setup uses.
    #[serde(default, deserialize_with = "one_or_many")]
    pub uses: Vec<Use>,
    /// Whether the suite must have started the tested server.
    #[serde(default)]
    pub own_server: bool,
    /// Cost of the setup.
    pub cost: SetupCost,
}

impl SetupCost {
    /// The name that the table uses.
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

/// The precondition of this name.
pub fn named(name: &str) -> Option<&'static Precondition> {
    static LOADED: LazyLock<Vec<Precondition>> = LazyLock::new(|| load().unwrap_or_default());
    LOADED.iter().find(|precondition| precondition.name == name)
}

/// Reads the table.
///
/// # Errors
/// An error with the line if the table does not have the form of [`Precondition`].
pub fn load() -> Result<Vec<Precondition>, toml::de::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Table {
        precondition: Vec<Precondition>,
    }
    toml::from_str::<Table>(TABLE).map(|table| table.precondition)
}
