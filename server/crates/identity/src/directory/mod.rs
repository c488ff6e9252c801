//! Directories of the registered clients and of the users in the ledger.

pub mod account_links;
pub mod client_registry;
pub mod lifetime_settings;
pub mod patient_relations;
pub mod provider_rules;
pub mod user_directory;
