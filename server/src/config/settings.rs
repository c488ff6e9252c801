//! The settings that can change while the server runs. A reload of the configuration replaces all of them at
//! once, so that a request sees either the old or the new settings.

use fhir::IdLength;
use std::sync::Arc;

use arc_swap::ArcSwap;
use identity::lifetimes::Lifetimes;
use identity::model::declared_claim::DeclaredClaim;
use identity::model::provider::IdentityProvider;
use identity::sign_in::password::PasswordPolicy;
use identity::sign_in::throttle::ThrottleLimits;
use jiff::SignedDuration;
use resources::{ResourceRules, Validation};
use terminology::{ConceptModelMode, PreferredVersions};

use crate::config::ConfiguredProvider;
use crate::config::PrivateHosts;
use crate::config::TrustedProxies;
use crate::config::brand::Brand;

/// The settings that can change while the server runs.
#[derive(Debug, Default)]
pub struct Settings {
    /// External providers.
    pub providers: Vec<ConfiguredProvider>,
    /// Name, logo and colours of the pages.
    pub brand: Brand,
    /// Scopes declared in the configuration.
    pub scopes: Vec<CustomScope>,
    /// Claims declared in the configuration.
    pub claims: Vec<DeclaredClaim>,
    /// Scopes of the demo project, on a demo server.
    pub demo_scopes: Vec<CustomScope>,
    /// `true` if terminology requests are answered without a token.
    pub anonymous_terminology: bool,
    /// Versions of code systems and value sets that are used if a request names none.
    pub preferred_versions: PreferredVersions,
    /// Use of SNOMED CT's concept model in the validation of expressions.
    pub concept_model: ConceptModelMode,
    /// Maximum size of a FHIR request body and of a resource, in bytes.
    pub body_limit_bytes: usize,
    /// Validation of resources that are written or imported.
    pub validation: Validation,
    /// The lengths of ids that new resources may have.
    pub ids: IdLength,
    /// Proxies whose header with the client's address is trusted.
    pub trusted_proxies: TrustedProxies,
    /// Hosts with private addresses from which key sets may be fetched.
    pub private_key_hosts: PrivateHosts,
    /// Lifetimes of tokens and sessions.
    pub lifetimes: Lifetimes,
    /// Time for which a signing key is active.
    pub rotate_keys_every: SignedDuration,
    /// Requirements for new passwords.
    pub passwords: PasswordPolicy,
    /// Limits on failed sign-ins.
    pub throttle: ThrottleLimits,
}

/// A custom scope and its description for users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomScope {
    /// Name of the scope.
    pub name: String,
    /// Description on the consent page.
    pub description: String,
}

impl Settings {
    /// The rules for resources. The maximum size of a request body is that of a resource, too.
    pub fn resource_rules(&self) -> ResourceRules {
        ResourceRules {
            bytes: self.body_limit_bytes,
            validation: self.validation,
            ids: self.ids,
            ..ResourceRules::default()
        }
    }

    /// The providers, by which rights count.
    pub fn identity_providers(&self) -> Vec<IdentityProvider> {
        self.providers.iter().map(|configured| configured.provider.clone()).collect()
    }

    /// The description of a custom scope, if the scope is declared or belongs to the demo.
    pub fn describe(&self, scope: &str) -> Option<&str> {
        self.scopes
            .iter()
            .chain(&self.demo_scopes)
            .find(|candidate| candidate.name == scope)
            .map(|candidate| candidate.description.as_str())
    }
}

/// The current settings, shared by all services.
pub type SharedSettings = Arc<ArcSwap<Settings>>;
