//! Requests that depend on a search or consist of several: conditional requests and Bundles.

pub(crate) mod conditional;
pub mod transaction;
