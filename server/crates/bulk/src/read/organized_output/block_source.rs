//! The data that blocks consist of, and the heads of the blocks.

use std::sync::Arc;

use resources::references::local_targets;
use store::{Store, Version};

use crate::job::Job;
use crate::job::cursor::ExportCursor;
use crate::plan::export_plan::ExportPlan;
use crate::read::selection::Selection;

/// Maximum number of heads in a batch. Each batch is a pass over all exported resources, so a lower maximum
/// would cost more.
const BATCH_HEADS: usize = 50_000;

/// Access to the data of the blocks of a job.
#[derive(Clone, Copy)]
pub(crate) struct BlockSource<'a> {
    pub store: &'a Store,
    pub job: &'a Job,
    pub plan: &'a ExportPlan,
    pub head_type: &'a str,
}

impl<'a> BlockSource<'a> {
    /// Selects the heads from a cursor on, whether or not they are exported.
    pub fn heads(self, start: ExportCursor) -> Selection<'a> {
        Selection::from(self.store, self.job, self.head_type, self.plan, start).of_every()
    }

    /// Selects the exported resources of a type.
    pub(super) fn resources_of(self, kind: &'a str) -> Selection<'a> {
        Selection::from(self.store, self.job, kind, self.plan, ExportCursor::default())
    }

    /// Whether blocks are read by compartment.
    pub(super) fn uses_compartments(self) -> bool {
        self.head_type == "Patient"
    }

    /// Maximum number of heads in a batch.
    pub fn batch_heads(self) -> usize {
        // A compartment is read for one Patient at a time, and needs no pass over other resources.
        if self.uses_compartments() { 1 } else { BATCH_HEADS }
    }

    /// Ids of the heads to which a resource refers, except itself.
    pub(super) fn referenced_heads<'b>(self, version: &'b Version) -> impl Iterator<Item = &'b str>
    where
        'a: 'b,
    {
        let own_id = (version.key.kind == self.head_type).then_some(&*version.key.id);
        let targets = local_targets(version.body.as_deref().unwrap_or_default(), &self.plan.fhir_base);
        targets.filter_map(move |(kind, id)| (kind == self.head_type && Some(id) != own_id).then_some(id))
    }
}

/// The head of a block, with its position among all heads.
#[derive(Debug)]
pub(crate) struct BlockHead {
    pub(super) id: String,
    /// Cursor of the page on which the head is.
    pub page: Arc<ExportCursor>,
    pub index: usize,
}

/// The heads on a page, without the first `skip`.
pub(crate) fn heads_of_page(
    page: ExportCursor,
    versions: Vec<Version>,
    skip: usize,
) -> impl Iterator<Item = BlockHead> {
    let page = Arc::new(page);
    let head =
        move |(index, version): (usize, Version)| BlockHead { id: version.key.id, page: page.clone(), index };
    versions.into_iter().enumerate().skip(skip).map(head)
}
