//! The state of a resource: whether it is intended for use, by its status and its standards status.

use crate::code_system::CodeSystem;
use crate::model::known_systems::SNOMED_CT_UNPUBLISHED;
use crate::value_set::ValueSet;

/// Status values that determine whether a resource is intended for use.
pub(crate) struct ResourceState<'s> {
    standards_status: Option<&'s str>,
    status: Option<&'s str>,
    experimental: bool,
}

impl<'s> ResourceState<'s> {
    pub(crate) fn of_value_set(set: &'s ValueSet) -> Self {
        let (standards_status, status) = (set.standards_status.as_deref(), set.status.as_deref());
        Self { standards_status, status, experimental: set.experimental }
    }

    pub(crate) fn of_system(system: &'s CodeSystem) -> Self {
        // The version of a release says that it is not published: each answer has it.
        let is_unpublished =
            system.version.as_deref().is_some_and(|version| version.starts_with(SNOMED_CT_UNPUBLISHED));
        let status = system.status.as_deref().filter(|_| !is_unpublished);
        let standards_status = system.standards_status.as_deref();
        Self { standards_status, status, experimental: system.experimental }
    }

    fn is_draft(&self) -> bool {
        self.status == Some("draft") || self.standards_status == Some("draft")
    }

    /// The state to report if the resource is used by `source`. A draft may use drafts and an experimental
    /// resource experimental ones, but a retired resource is always reported.
    pub(crate) fn state_to_report(&self, source: &ResourceState<'_>) -> Option<&'s str> {
        match (self.standards_status, self.status) {
            (Some(status @ ("deprecated" | "withdrawn")), _) => Some(status),
            (_, Some(status @ "retired")) => Some(status),
            _ if self.experimental && !source.experimental => Some("experimental"),
            _ if self.is_draft() && !source.is_draft() => Some("draft"),
            _ => None,
        }
    }
}
