//! The providers and claims as they are configured now. What the claims of a sign-in gave counts by them at
//! each use, so that a reload ends the rights of a mapping that was removed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::model::declared_claim::DeclaredClaim;
use crate::model::provider::IdentityProvider;

/// How the user of a session or grant signed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignedInBy<'a> {
    /// With a method of this server.
    OwnMethod,
    /// At the provider with this name.
    Provider(&'a str),
    /// At a provider, whose name was not stored by an earlier version.
    UnnamedProvider,
}

/// The configured providers and claims.
#[derive(Debug, Default)]
pub struct ProviderRules {
    providers: RwLock<Arc<[IdentityProvider]>>,
    claims: RwLock<Arc<[DeclaredClaim]>>,
    generation: AtomicU64,
}

impl ProviderRules {
    /// Uses these providers from now on.
    pub fn configure(&self, providers: Vec<IdentityProvider>) {
        *self.providers.write().unwrap_or_else(PoisonError::into_inner) = providers.into();
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Uses these declared claims from now on.
    pub fn declare_claims(&self, claims: Vec<DeclaredClaim>) {
        *self.claims.write().unwrap_or_else(PoisonError::into_inner) = claims.into();
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// The declared claims.
    pub fn claims(&self) -> Arc<[DeclaredClaim]> {
        self.claims.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The providers.
    pub fn current(&self) -> Arc<[IdentityProvider]> {
        self.providers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A number that differs after each change.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}
