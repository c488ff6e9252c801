//! Users and their permissions.

use serde::{Deserialize, Serialize};

pub use crate::model::members::StandardClaims;
use crate::model::scope::{ADMIN_SCOPE, LAUNCH_SCOPE, ScopeContext, ScopePermissions, Scopes, SmartScope};

/// A user of this server.
#[derive(Debug, Clone, Serialize, Deserialize)]
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
    /// `true` if the user is part of the demo project.
    #[serde(default)]
    pub demo: bool,
}

impl User {
    /// Returns the id of the Patient resource that represents the user, or `None` if the user is not a
    /// patient.
    pub fn own_patient(&self) -> Option<&str> {
        self.fhir_user.as_deref()?.strip_prefix("Patient/")
    }

    /// Returns `true` if the user may access all Patient resources.
    pub fn sees_patients(&self) -> bool {
        self.allowed_scopes.allow_access(ScopeContext::User, "Patient", ScopePermissions::GET)
    }

    /// Returns `true` if the user may access this Patient resource.
    pub fn may_see_patient(&self, id: &str) -> bool {
        self.own_patient() == Some(id) || self.sees_patients()
    }

    /// Returns `true` if the user may grant the scope. Every user may grant the scopes in `allowed_scopes`. A
    /// user whom a Patient resource represents may also grant read access to that patient's data. A user who
    /// may access all patients may grant the same access to a single patient.
    pub fn may_grant(&self, scope: &str) -> bool {
        if scope == ADMIN_SCOPE {
            return self.administrator;
        }
        if self.allowed_scopes.covers(scope) {
            return true;
        }
        match SmartScope::parse(scope) {
            Some(smart) => {
                let own =
                    self.own_patient().is_some() && ScopePermissions::READ.contains_all(smart.permissions);
                let all = self.allowed_scopes.allow_access(ScopeContext::User, smart.kind, smart.permissions);
                match smart.context {
                    ScopeContext::Patient => own || all,
                    ScopeContext::User => own,
                    ScopeContext::System => false,
                }
            }
            None => match scope {
                // The access ends with the session of the user.
                "online_access" => true,
                // A launch context grants no access by itself.
                "launch" | "launch/encounter" | LAUNCH_SCOPE => true,
                "fhirUser" => self.fhir_user.is_some(),
                "launch/patient" => self.own_patient().is_some() || self.sees_patients(),
                _ => false,
            },
        }
    }
}
