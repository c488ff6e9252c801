//! Entries of Bundles that depend on what a search finds (FHIR R4, conditional create, update and delete): the search, and
//! what becomes of an entry once it is made. Searches see what is stored before the Bundle.

use jiff::Timestamp;
use store::ExpectVersion;

use crate::Restriction;
use crate::bundle::Entry;
use crate::filter::TypeFilter;
use crate::prepare::{Id, prepare_named};
use crate::scan::Names;
use crate::transaction::check_once;
use crate::{Action, BodyError, Planned, ResourceError, Resources};

/// What an entry depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Condition {
    /// What this search finds.
    Search {
        /// `Type?parameter=value&…`, which can be read.
        text: String,
        /// What it goes by, where it speaks of times.
        at: Timestamp,
        /// The id that the resource of the entry has itself.
        own: Option<String>,
    },
    /// The search was made, and there is nothing to be written.
    LeftOut,
}

impl Condition {
    /// Reads the search of an entry.
    pub fn read(
        entry: &Entry<'_>,
        action: Action,
        kind: &'static str,
        search: &str,
        resources: &Resources,
        now: Timestamp,
    ) -> Result<Self, BodyError> {
        // FHIR writes the search of a POST with or without the type before it.
        let search = search.strip_prefix(kind).unwrap_or(search);
        let text = format!("{kind}?{}", search.strip_prefix('?').unwrap_or(search));
        TypeFilter::read(&text, resources.fhir_base(), now).map_err(BodyError::Search)?;
        let own = match (action, entry.resource) {
            (Action::Update, Some(resource)) => resources.own_id(resource.get().as_bytes(), kind)?,
            _ => None,
        };
        Ok(Self::Search { text, at: now, own })
    }

    /// The id that the resource of the entry has itself.
    pub fn own_id(&self) -> Option<&str> {
        match self {
            Self::Search { own, .. } => own.as_deref(),
            Self::LeftOut => None,
        }
    }
}

impl Resources {
    /// Makes the searches of the entries of one commit, and settles what each of them writes. What was found takes the
    /// place of what was planned, also where other entries refer to it.
    pub(crate) async fn resolve(&self, entries: &mut [Planned]) -> Result<(), ResourceError> {
        let mut names = Names::new();
        for entry in entries.iter_mut() {
            let Some(Condition::Search { text, at, own }) = entry.condition.take() else { continue };
            let filter = TypeFilter::read(&text, self.fhir_base(), at).map_err(BodyError::Search)?;
            let found = self.restricted_to(Restriction::None).only(entry.kind, &filter).await?;
            let is_there = found.is_some();
            if let Some(found) = found {
                if let Some(own) = own.filter(|own| *own != found.id) {
                    return Err(BodyError::WrongId { expected: found.id, found: own }.into());
                }
                names.insert(format!("{}/{}", entry.kind, entry.id), format!("{}/{}", entry.kind, found.id));
                (entry.id, entry.expect) = (found.id, ExpectVersion::Version(found.version));
            } else {
                entry.expect = ExpectVersion::Absent;
            }
            if is_there == (entry.action == Action::Create) && entry.action != Action::Update {
                entry.condition = Some(Condition::LeftOut);
            }
        }
        if names.is_empty() {
            return Ok(());
        }
        check_once(&*entries)?;
        let limits = self.limits();
        for entry in entries.iter_mut() {
            if let Some(prepared) = &entry.prepared {
                let (text, id) = (&prepared.draft.bytes, Id::Given(&entry.id));
                let prepared =
                    prepare_named(text, Some(entry.kind), id, &limits, self.fhir_base(), Some(&names))?;
                entry.prepared = Some(prepared);
            }
        }
        Ok(())
    }
}
