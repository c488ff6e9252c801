//! Types of clients, users and external providers, and of protocol values such as scopes and redirect URIs.

pub mod claim_mapping;
pub mod client;
pub mod client_metadata;
pub mod client_values;
pub mod counted_rights;
pub mod declared_claim;
pub mod error_code;
pub mod mapped_claims;
pub mod members;
pub mod nearest_name;
pub mod pkce;
pub mod provider;
pub mod redirect_uri;
pub mod scope;
pub mod user;
pub mod user_claims;
pub mod user_name;
