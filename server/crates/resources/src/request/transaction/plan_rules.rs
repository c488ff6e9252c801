//! The rules by which a Bundle of requests is planned.

use crate::write::prepare::ResourceRules;

/// Rules for the plan of a Bundle.
pub(crate) struct PlanRules {
    /// Rules for the resources. The size is also the limit for the Bundle.
    pub resource: ResourceRules,
    /// The rules of an import: created resources keep their ids, so that it can be repeated, unchanged ones
    /// are not written, and conditional references are resolved later.
    pub import: Option<ImportRules>,
}

/// Rules for the entries of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ImportRules {
    /// `true` to replace stored versions with a later source time.
    pub overwrite: bool,
}
