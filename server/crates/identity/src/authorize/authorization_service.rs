//! The service for authorization requests. Its methods are defined in `request`, `pushed_request` and
//! `interaction`.

use std::sync::Arc;

use crate::audit::AuditSink;
use crate::authorize::consent::ConsentStore;
use crate::directory::client_registry::ClientRegistry;
use crate::random::Random;
use crate::sign_in::large_request_quota::LargeRequestQuota;
use crate::storage::epoch_ledger::EpochLedger;
use crate::storage::server_secret::ServerSecret;
use crate::tokens::grant_store::GrantStore;
use crate::tokens::token_service::TokenService;

/// Checks authorization requests, and grants them after the user has signed in and consented.
pub struct AuthorizationService {
    pub(crate) ledger: Arc<EpochLedger>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) audit: Arc<dyn AuditSink>,
    pub(crate) clients: Arc<ClientRegistry>,
    pub(crate) consents: Arc<ConsentStore>,
    pub(crate) grants: Arc<GrantStore>,
    pub(crate) tokens: Arc<TokenService>,
    pub(crate) server_secret: Arc<ServerSecret>,
    pub(crate) large_requests: LargeRequestQuota,
    pub(crate) supports_query: SupportsQuery,
    pub(crate) issuer: String,
    pub(crate) fhir_base: String,
}

/// Tests whether a query of a granular scope on a resource type can be evaluated.
pub type SupportsQuery = fn(kind: &str, query: &str) -> bool;

/// Maximum length of the query of an authorization request in bytes.
pub const MAX_QUERY_BYTES: usize = 8 * 1024;
