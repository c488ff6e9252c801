//! Supporting resources at two times, for an increment ([`SupportingSets`]). The search reads what two full
//! exports contain, page by page, so that a worker can extend its lease between.

use store::{Store, Versions as _};

use crate::group::GroupError;
use crate::job::Job;
use crate::job::cursor::ExportCursor;
use crate::plan::export_plan::ExportPlan;
use crate::plan::membership::GroupReader;
use crate::plan::supporting::{ReferenceSet, SupportingSets};
use crate::read::selection::{Selection, SelectionError};

/// A full export whose supporting resources are searched.
struct SearchedExport {
    job: Job,
    plan: ExportPlan,
}

/// The search for the supporting resources of an increment.
pub(crate) struct SupportingComparison<'a> {
    store: &'a Store,
    /// The exports at `_since`, unless its Group did not exist or could not be read, and now.
    before: Option<SearchedExport>,
    now: SearchedExport,
}

impl<'a> SupportingComparison<'a> {
    /// Prepares the search. Returns `None` for a full export, and for one without supporting resources.
    pub async fn of(job: &Job, store: &'a Store, reading: &GroupReader) -> Result<Option<Self>, GroupError> {
        let Some(since) = job.parameters.since.filter(|_| job.has_supporting()) else { return Ok(None) };
        let prepare = async |job: Job| -> Result<SearchedExport, GroupError> {
            let plan = ExportPlan::of(&job, store, reading, None).await?;
            Ok(SearchedExport { job, plan })
        };
        let before = match prepare(job.in_full(store.seq_at(since).await?, since)).await {
            Ok(before) => Some(before),
            // No earlier export contained anything of this Group.
            Err(GroupError::NoGroup(_) | GroupError::Bad(_)) => None,
            Err(error) => return Err(error),
        };
        let now = prepare(job.in_full(job.seq(), job.transaction_time)).await?;
        Ok(Some(Self { store, before, now }))
    }

    /// Reads one more page of an export. Returns `true` when all supporting resources are known.
    pub async fn advance(&self) -> Result<bool, SelectionError> {
        for SearchedExport { job, plan } in self.before.iter().chain([&self.now]) {
            // The search is the same for each type.
            let kind = job.kinds.first().map_or("", String::as_str);
            let selection = Selection::from(self.store, job, kind, plan, ExportCursor::default());
            if !Box::pin(selection.know_supporting()).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The supporting resources of both exports, once they are known.
    pub fn into_sets(self) -> SupportingSets {
        let references =
            |export: SearchedExport| -> ReferenceSet { export.plan.supporting.into_inner().references };
        SupportingSets { before: self.before.map(references).unwrap_or_default(), now: references(self.now) }
    }
}
