//! Client authentication at the token endpoint: secrets, client assertions, and key sets of clients.

pub mod assertion;
pub mod authenticator;
pub mod key_set_cache;
