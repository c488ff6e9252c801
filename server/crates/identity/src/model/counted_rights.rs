//! The rights of a user in one session or grant: what an administrator has set, and what the claims of a
//! provider give, if the user signed in there and not too long ago.

use std::collections::BTreeSet;

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
        self.count_passed_on(provider, now);
        if !self.is_mapped {
            return self;
        }
        let mapped = self.mapped.clone().filter(MappedClaims::is_effective);
        let of_provider = provider.zip(mapped.as_ref()).filter(|(provider, mapped)| {
            let is_issuer = mapped.issuer.as_ref().is_none_or(|issuer| *issuer == provider.issuer);
            is_issuer && now < mapped.ends(provider.rights_max_age)
        });
        let rights_end = of_provider.map(|(provider, mapped)| mapped.ends(provider.rights_max_age));
        self.rights_until = rights_end.or(self.rights_until);
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

    /// Finds the values of declared claims that the last sign-in at this provider gave, as long as they
    /// count.
    fn count_passed_on(&mut self, provider: Option<&IdentityProvider>, now: Timestamp) {
        let Some((provider, mapped)) = provider.zip(self.mapped.as_ref()) else { return };
        let is_issuer = mapped.issuer.as_ref() == Some(&provider.issuer);
        if !is_issuer || mapped.passed_on.is_empty() || now >= mapped.ends(provider.rights_max_age) {
            return;
        }
        let names: BTreeSet<_> = provider.mapping.passed_on.iter().map(|claim| &claim.name).collect();
        let values = mapped.passed_on.iter().filter(|(name, _)| names.contains(name));
        self.passed_on = values.map(|(name, value)| (name.clone(), value.clone())).collect();
        self.rights_until = Some(mapped.ends(provider.rights_max_age));
    }
}
