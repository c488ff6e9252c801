//! Users and their permissions.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::mapped_claims::MappedClaims;
pub use crate::model::members::{DEFAULT_SCOPES, StandardClaims};
use crate::model::scope::{NamedScope, ScopeContext, ScopePermissions, Scopes, SmartScope};

/// A user of this server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Subject identifier: random and never reused.
    pub sub: String,
    /// User name for the sign-in, compared without regard to case.
    pub username: String,
    /// Claims that clients may receive.
    pub claims: StandardClaims,
    /// Issuer of the provider that set `email` and `email_verified`. `None` if an administrator set them.
    #[serde(default)]
    pub email_verified_by: Option<String>,
    /// Scopes that this user may grant.
    pub allowed_scopes: Scopes,
    /// FHIR resource that represents the user (`Patient/x`, `Practitioner/y`).
    #[serde(default)]
    pub fhir_user: Option<String>,
    /// Ids of further Patient resources whose data the user may read, as an administrator set them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub patients: Vec<String>,
    /// Ids of the Groups whose members are patients of the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// Ids of the Patient resources to which `fhir_user` relates the user now, if it is a RelatedPerson or a
    /// Person, and of the members of `groups`. They are read with the user (see
    /// [`crate::directory::patient_relations`]) and not stored.
    #[serde(skip)]
    pub related_patients: Vec<String>,
    /// `true` if the user may grant the admin scope.
    #[serde(default)]
    pub administrator: bool,
    /// Hash of the password as a PHC string. `None` if the user has no password.
    #[serde(default)]
    pub password: Option<String>,
    /// Disabled users cannot sign in, and their tokens are invalid.
    #[serde(default)]
    pub disabled: bool,
    /// Counter that is copied into sessions and tokens. A global sign-out increments the counter, which
    /// invalidates all sessions and tokens with a lower value.
    #[serde(default)]
    pub epoch: u64,
    /// Names of the members that an administrator has set. No provider changes them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub set_by_hand: BTreeSet<String>,
    /// Values of declared claims that an administrator has set, as `NAME=VALUE` (see
    /// [`super::declared_claim`]).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub own_claims: Vec<String>,
    /// `true` if a provider has set rights of the user (see [`super::claim_mapping`]).
    #[serde(default)]
    pub is_mapped: bool,
    /// The claims that the last sign-in at a provider has found (see [`super::counted_rights`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapped: Option<MappedClaims>,
    /// Values of declared claims that the provider of the sign-in sent, as long as they count. They are found
    /// with the user and not stored.
    #[serde(skip)]
    pub passed_on: BTreeMap<String, Value>,
    /// Scopes of declared claims, which every user may grant. They are found with the user and not stored.
    #[serde(skip)]
    pub claim_scopes: Scopes,
    /// Time at which rights end that count now. It is found with the user and not stored.
    #[serde(skip)]
    pub rights_until: Option<jiff::Timestamp>,
    /// `true` if a provider gave rights that do not count. It is found with the user and not stored.
    #[serde(skip)]
    pub rights_ended: bool,
    /// `true` if the user is part of the demo project.
    #[serde(default)]
    pub demo: bool,
}

/// Returns [`DEFAULT_SCOPES`] as a set.
pub fn default_scopes() -> Scopes {
    DEFAULT_SCOPES.split(' ').collect()
}

impl User {
    /// The ids of the Patient resources whose data the user may read as this patient, or for these patients:
    /// the one that represents the user, those that an administrator named, and those to which the user is
    /// related. Each occurs once.
    pub fn patients(&self) -> Vec<&str> {
        let own = self.fhir_user.as_deref().and_then(|reference| reference.strip_prefix("Patient/"));
        let others = self.patients.iter().chain(&self.related_patients).map(String::as_str);
        let mut names = HashSet::new();
        own.into_iter().chain(others).filter(|id| names.insert(*id)).collect()
    }

    /// The values of a declared claim that an administrator has set.
    pub fn values_of_own_claim<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let pairs = self.own_claims.iter().filter_map(|pair| pair.split_once('='));
        pairs.filter(move |(claim, _)| *claim == name).map(|(_, value)| value)
    }

    /// `true` if the patients of the user follow from resources, which can change at any time.
    pub fn depends_on_resources(&self) -> bool {
        self.relation().is_some() || !self.groups.is_empty()
    }

    /// The reference to the RelatedPerson or Person that represents the user.
    pub fn relation(&self) -> Option<&str> {
        let is_relation =
            |reference: &&str| reference.starts_with("RelatedPerson/") || reference.starts_with("Person/");
        self.fhir_user.as_deref().filter(is_relation)
    }

    /// Returns `true` if the user may access all Patient resources.
    pub fn sees_patients(&self) -> bool {
        self.allowed_scopes.allow_access(ScopeContext::User, "Patient", ScopePermissions::GET)
    }

    /// Returns `true` if a launch patient can be selected for the user.
    pub fn has_launch_patient(&self) -> bool {
        !self.patients().is_empty() || self.sees_patients()
    }

    /// Returns `true` if the user may access this Patient resource.
    pub fn may_see_patient(&self, id: &str) -> bool {
        let own = self.fhir_user.as_deref().and_then(|reference| reference.strip_prefix("Patient/"));
        own == Some(id)
            || [&self.patients, &self.related_patients].into_iter().flatten().any(|patient| patient == id)
            || self.sees_patients()
    }

    /// Returns `true` if the user may grant the scope. Every user may grant the scopes in `allowed_scopes`. A
    /// user with [patients](Self::patients) may also grant read access to their data. A user who may access
    /// all patients may grant the same access to a single patient.
    pub fn may_grant(&self, scope: &str) -> bool {
        let named_scope = NamedScope::named(scope);
        if named_scope == Some(NamedScope::Admin) {
            return self.administrator;
        }
        if self.allowed_scopes.covers(scope) || self.claim_scopes.contains(scope) {
            return true;
        }
        match SmartScope::parse(scope) {
            Some(smart) => {
                let own =
                    ScopePermissions::READ.contains_all(smart.permissions) && !self.patients().is_empty();
                let all = self.allowed_scopes.allow_access(ScopeContext::User, smart.kind, smart.permissions);
                match smart.context {
                    ScopeContext::Patient => own || all,
                    ScopeContext::User => own,
                    ScopeContext::System => false,
                }
            }
            None => match named_scope {
                // The access ends with the session of the user.
                Some(NamedScope::OnlineAccess) => true,
                // A launch context grants no access by itself.
                Some(NamedScope::Launch | NamedScope::LaunchEncounter | NamedScope::CreateLaunch) => true,
                Some(NamedScope::FhirUser) => self.fhir_user.is_some(),
                Some(NamedScope::LaunchPatient) => self.has_launch_patient(),
                Some(
                    NamedScope::Openid
                    | NamedScope::Email
                    | NamedScope::Phone
                    | NamedScope::Profile
                    | NamedScope::OfflineAccess
                    | NamedScope::Admin
                    | NamedScope::Metrics,
                )
                | None => false,
            },
        }
    }
}
