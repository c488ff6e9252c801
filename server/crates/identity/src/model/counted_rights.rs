//! The rights of a user in one session or grant: what an administrator has set, and what the claims of a
//! provider give, if the user signed in there and not too long ago.

use jiff::Timestamp;

use crate::model::claim_mapping::MappedRights;
use crate::model::mapped_claims::MappedClaims;
use crate::model::provider::IdentityProvider;
use crate::model::scope::ADMIN_SCOPE;
use crate::model::user::{User, default_scopes};

impl User {
    /// The user with the rights that count after a sign-in at this provider, or with an own method if there
    /// is none.
    pub(crate) fn with_counted_rights(mut self, provider: Option<&IdentityProvider>, now: Timestamp) -> Self {
        if !self.is_mapped {
            return self;
        }
        let mapped = self.mapped.clone().filter(MappedClaims::is_effective);
        let of_provider = provider.zip(mapped.as_ref()).filter(|(provider, mapped)| {
            let is_issuer = mapped.issuer.as_ref().is_none_or(|issuer| *issuer == provider.issuer);
            is_issuer && now < mapped.ends(provider.rights_max_age)
        });
        self.rights_until = of_provider.map(|(provider, mapped)| mapped.ends(provider.rights_max_age));
        // A node of an earlier version does not store the claims: only another sign-in can tell.
        self.rights_ended = of_provider.is_none() && (mapped.is_some() || self.mapped.is_none());
        let rights = match of_provider {
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
            let allowed_scopes = rights.allowed_scopes.filter(|scope| scope != ADMIN_SCOPE);
            self.allowed_scopes = default_scopes().iter().chain(allowed_scopes.iter()).collect();
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
