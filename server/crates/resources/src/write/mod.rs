//! Writes: from a text to a resource that can be stored, and its versions in the store.

pub mod assign_stored;
pub mod assignment;
pub(crate) mod bundle;
pub mod check;
pub mod erase;
pub mod prepare;
pub(crate) mod scan;
pub(crate) mod search_guard;
pub mod service;
pub mod stored;
