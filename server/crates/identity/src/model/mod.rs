//! Registered parties and the values of the protocols: clients, users, scopes, redirect URIs, providers.

pub mod client;
pub mod client_metadata;
pub mod error_code;
pub mod pkce;
pub mod provider;
pub mod redirect_uri;
pub mod scope;
pub mod user;
pub mod user_claims;
