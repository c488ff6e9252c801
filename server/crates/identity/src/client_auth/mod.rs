//! Client authentication: client secrets, client assertions, and the key sets of clients.

pub mod assertion;
pub mod authenticator;
pub mod error;
pub mod key_set_cache;
