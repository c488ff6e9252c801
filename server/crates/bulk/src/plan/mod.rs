//! The selection of a job: patients, searches, elements and supporting resources.

pub(crate) mod changes;
pub(crate) mod export_plan;
pub(crate) mod supporting;
