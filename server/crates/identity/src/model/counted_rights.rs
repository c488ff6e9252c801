//! The rights of a user in one session or grant: what an administrator has set, and what the claims of a
//! provider give, if the user signed in there and not too long ago.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::claim_mapping::MappedRights;
use crate::model::provider::IdentityProvider;
use crate::model::scope::ADMIN_SCOPE;
use crate::model::user::{User, default_scopes};

/// What the last sign-in at a provider has found of the claims that give rights.
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
}

impl MappedClaims {
    /// `true` if the claims gave anything.
    fn is_effective(&self) -> bool {
        self.fhir_user.is_some() || self.values.as_ref().is_none_or(|values| !values.is_empty())
    }

    /// The time at which the rights end.
    pub fn ends(&self, provider: &IdentityProvider) -> Timestamp {
        self.at + provider.rights_max_age
    }
}

impl User {
    /// The user with the rights that count after a sign-in at this provider, or with an own method if there
    /// is none.
    pub(crate) fn with_counted_rights(mut self, provider: Option<&IdentityProvider>, now: Timestamp) -> Self {
        if !self.is_mapped {
            return self;
        }
        let mapped = self.mapped.clone().filter(MappedClaims::is_effective);
        let counted = provider.zip(mapped.as_ref()).filter(|(provider, mapped)| {
            let is_issuer = mapped.issuer.as_ref().is_none_or(|issuer| *issuer == provider.issuer);
            is_issuer && now < mapped.ends(provider)
        });
        self.rights_until = counted.map(|(provider, mapped)| mapped.ends(provider));
        self.rights_ended = mapped.is_some() && counted.is_none();
        let rights = match counted {
            Some((provider, mapped)) => provider.mapping.counted(&self, mapped),
            None => MappedRights::default(),
        };
        let is_mapped = |name: &str| !self.set_by_hand.contains(name);
        let members = ["allowed_scopes", "groups", "fhir_user", "administrator"].map(is_mapped);
        let [maps_scopes, maps_groups, maps_fhir_user, maps_administrator] = members;
        if maps_administrator {
            self.administrator = rights.allowed_scopes.contains(ADMIN_SCOPE);
        }
        if maps_scopes {
            let given = rights.allowed_scopes.filter(|scope| scope != ADMIN_SCOPE);
            self.allowed_scopes = default_scopes().iter().chain(given.iter()).collect();
        }
        if maps_groups {
            self.groups = rights.groups;
        }
        if maps_fhir_user {
            self.fhir_user = rights.fhir_user;
        }
        self
    }
}
