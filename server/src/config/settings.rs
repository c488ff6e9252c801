//! The settings that can change while the server runs. They are replaced as a whole when the configuration is read
//! again, so that a request sees either the old or the new settings.

use std::sync::Arc;

use arc_swap::ArcSwap;
use identity::sign_in::password::PasswordPolicy;
use identity::sign_in::throttle::ThrottleLimits;
use jiff::SignedDuration;

use crate::config::ConfiguredProvider;
use crate::config::PrivateHosts;
use crate::config::TrustedProxies;

/// The settings that can change while the server runs.
#[derive(Debug, Default)]
pub struct Settings {
    /// External providers.
    pub providers: Vec<ConfiguredProvider>,
    /// Custom scopes.
    pub scopes: Vec<CustomScope>,
    /// Answer terminology requests without a token.
    pub anonymous_terminology: bool,
    /// Maximum size of a FHIR request body and of a resource.
    pub body_limit_bytes: usize,
    /// Proxies that are trusted to name the client.
    pub trusted_proxies: TrustedProxies,
    /// Hosts with private addresses from which key sets may be fetched.
    pub private_key_hosts: PrivateHosts,
    /// Time for which a signing key is active.
    pub rotate_keys_every: SignedDuration,
    /// Requirements for new passwords.
    pub passwords: PasswordPolicy,
    /// Limits for failed sign-ins.
    pub throttle: ThrottleLimits,
}

/// A custom scope and its text on the consent page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomScope {
    /// The scope.
    pub name: String,
    /// Text on the consent page.
    pub description: String,
}

impl Settings {
    /// Returns the text of a custom scope.
    pub fn describe(&self, scope: &str) -> Option<&str> {
        self.scopes.iter().find(|known| known.name == scope).map(|known| known.description.as_str())
    }
}

/// The current settings, shared by all services.
pub type SharedSettings = Arc<ArcSwap<Settings>>;
