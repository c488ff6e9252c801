//! Grants, and the tokens issued from them: minting, verification, introspection and revocation.

pub mod access_token;
pub mod acr;
pub(crate) mod auth_time;
pub mod dpop;
pub mod grant;
pub mod grant_store;
pub mod id_token;
mod introspection;
pub(crate) mod key_ring;
pub(crate) mod revocation;
mod revocation_request;
pub mod signing_key;
pub mod signing_keys;
pub mod token_service;
