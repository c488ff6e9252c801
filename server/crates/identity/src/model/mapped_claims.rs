//! The claims of a provider that gave rights, as they are stored with a user.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The claims that the last sign-in at a provider has found, of those that give rights.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappedClaims {
    /// Issuer of the provider. `None` for rights of before this was stored.
    pub issuer: Option<String>,
    /// Time of the sign-in, or of the upgrade.
    pub at: Timestamp,
    /// The claims with the values that rules named. `None` for rights of before this was stored: then the
    /// members of the user are what the claims gave.
    pub values: Option<BTreeSet<(String, String)>>,
    /// The FHIR resource that the claims name.
    pub fhir_user: Option<String>,
    /// The values of declared claims, which apps receive.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub passed_on: BTreeMap<String, Value>,
}

impl MappedClaims {
    /// `true` if the claims gave anything.
    pub(super) fn is_effective(&self) -> bool {
        self.fhir_user.is_some() || self.values.as_ref().is_none_or(|values| !values.is_empty())
    }

    /// The time at which the rights end.
    pub fn ends(&self, max_age: SignedDuration) -> Timestamp {
        self.at + max_age
    }
}
