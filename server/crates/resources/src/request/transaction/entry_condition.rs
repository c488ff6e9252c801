//! The condition of an entry of a Bundle.

use jiff::Timestamp;

use crate::search::filter::TypeFilter;
use crate::write::bundle::BundleEntry;
use crate::{EntryAction, ResourceBodyError, Resources};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryCondition {
    /// The entry depends on the result of a search.
    Search {
        /// The search as `Type?parameter=value&…`, already checked.
        text: String,
        /// The time that relative dates in the search refer to.
        at: Timestamp,
        /// The id in the resource of the entry, if any.
        own: Option<String>,
        /// The version that the resource must have that is found (`ifMatch`).
        if_match: Option<u64>,
    },
    /// The search found a resource, and the entry writes nothing.
    LeftOut,
}

impl EntryCondition {
    /// Parses the search of an entry.
    pub fn read(
        entry: &BundleEntry<'_>,
        action: EntryAction,
        kind: &'static str,
        search: &str,
        if_match: Option<u64>,
        resources: &Resources,
        now: Timestamp,
    ) -> Result<Self, ResourceBodyError> {
        // FHIR examples write the search of a POST with or without the type.
        let search = search.strip_prefix(kind).unwrap_or(search);
        let text = format!("{kind}?{}", search.strip_prefix('?').unwrap_or(search));
        TypeFilter::read(&text, resources.fhir_base(), now).map_err(ResourceBodyError::Search)?;
        let own = match (action, entry.resource) {
            (EntryAction::Update, Some(resource)) => resources.own_id(resource.get().as_bytes(), kind)?,
            _ => None,
        };
        Ok(Self::Search { text, at: now, own, if_match })
    }

    /// The id in the resource of the entry, if any.
    pub fn own_id(&self) -> Option<&str> {
        match self {
            Self::Search { own, .. } => own.as_deref(),
            Self::LeftOut => None,
        }
    }
}
