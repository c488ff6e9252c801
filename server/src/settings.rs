//! What can be changed while the server runs: swapped whole when the configuration is read again, so that a
//! request sees the old settings or the new ones and never a mixture.

use std::sync::Arc;

use arc_swap::ArcSwap;
use identity::password::PasswordPolicy;
use identity::throttle::ThrottleLimits;
use jiff::SignedDuration;

use crate::config::ConfiguredProvider;
use crate::http::peer::TrustedProxies;
use crate::key_fetch::PrivateHosts;

/// The settings that swap.
#[derive(Debug, Default)]
pub struct Settings {
    /// External providers.
    pub providers: Vec<ConfiguredProvider>,
    /// Scopes of the operator's own.
    pub scopes: Vec<CustomScope>,
    /// Answer terminology without a token?
    pub anonymous_terminology: bool,
    /// Largest body of a FHIR request, and largest resource.
    pub body_limit_bytes: usize,
    /// Proxies that may say who called.
    pub trusted_proxies: TrustedProxies,
    /// Hosts with private addresses that key sets may be fetched from.
    pub private_key_hosts: PrivateHosts,
    /// How long signing keys sign.
    pub rotate_keys_every: SignedDuration,
    /// What a new password must be.
    pub passwords: PasswordPolicy,
    /// How many failed sign-ins are free, and how long a lock lasts.
    pub throttle: ThrottleLimits,
}

/// A scope with what the consent page says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomScope {
    /// The scope.
    pub name: String,
    /// For people.
    pub description: String,
}

impl Settings {
    /// What people are told of a scope of the operator's own.
    pub fn describe(&self, scope: &str) -> Option<&str> {
        self.scopes.iter().find(|known| known.name == scope).map(|known| known.description.as_str())
    }
}

/// The settings of now, shared by all who need them.
pub type Live = Arc<ArcSwap<Settings>>;
