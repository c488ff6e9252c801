//! The registered clients and the users, as they are stored.

pub mod client_registry;
pub mod user_directory;
