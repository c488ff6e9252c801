//! The selection of a job: patients, searches, elements and supporting resources.

pub(crate) mod erased_since;
pub(crate) mod export_plan;
pub(crate) mod joined_types;
pub(crate) mod latest_provenance;
pub(crate) mod listed_resources;
pub(crate) mod member_provenance;
pub(crate) mod membership;
pub(crate) mod restores;
pub(crate) mod scope_changes;
pub(crate) mod supporting;
