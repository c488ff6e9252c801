//! Heads whose references are collected in one pass over all exported resources.

use std::sync::Arc;

use hashbrown::HashMap;
use store::{ResourceKey, Version};

use super::block::OutputBlock;
use super::block_source::{BlockHead, BlockSource};
use crate::plan::membership::PatientScope;
use crate::read::organized_output::collected_references::CollectedReferences;
use crate::read::selection::{Selection, SelectionError};

/// Maximum memory for collected references in bytes, enough for about a million references.
const REFERENCE_BYTES: usize = 48 << 20;

/// Several heads, with the references to each.
pub(crate) struct HeadBatch<'a> {
    pub(super) source: BlockSource<'a>,
    heads: Vec<BlockHead>,
    /// Heads that are left to a later batch.
    postponed: Vec<BlockHead>,
    /// Index of each head by its id; empty if no references are collected.
    index_by_id: HashMap<String, u32>,
    pub(super) collected: CollectedReferences,
    /// Number of types that the pass has completed.
    completed_kinds: usize,
    /// The rest of the type that is being read.
    remaining: Option<Selection<'a>>,
    max_bytes: usize,
    /// Whether the references to the only head exceed the limit, so that none are collected.
    pub(super) is_too_large: bool,
}

impl<'a> HeadBatch<'a> {
    /// A batch of these heads. [`HeadBatch::collect_page`] collects the references.
    pub fn of(source: BlockSource<'a>, heads: Vec<BlockHead>) -> Self {
        let collects = !source.uses_compartments();
        let indexed = heads.iter().zip(0..).filter(|_| collects);
        Self {
            source,
            index_by_id: indexed.map(|(head, index)| (head.id.clone(), index)).collect(),
            heads,
            postponed: Vec::new(),
            collected: CollectedReferences::default(),
            completed_kinds: 0,
            remaining: None,
            max_bytes: REFERENCE_BYTES,
            is_too_large: false,
        }
    }

    /// Reads one more page. Returns `true` when all references are collected.
    pub async fn collect_page(&mut self) -> Result<bool, SelectionError> {
        let job = self.source.job;
        let collects = !self.source.uses_compartments() && !self.is_too_large;
        let Some(kind) = job.kinds.get(self.completed_kinds).filter(|_| collects) else {
            // The sort is stable, so the references to a head stay in the order of the pass.
            self.collected.references.sort_by_key(|reference| reference.head);
            return Ok(true);
        };
        let remaining = self.remaining.get_or_insert_with(|| self.source.resources_of(kind).whole());
        match remaining.next().await? {
            Some(versions) => versions.iter().for_each(|version| self.collect(version)),
            None => (self.completed_kinds, self.remaining) = (self.completed_kinds + 1, None),
        }
        Ok(false)
    }

    /// Collects the references of a resource to heads.
    fn collect(&mut self, version: &Version) {
        let referenced = self.source.referenced_heads(version);
        let mut heads: Vec<u32> = referenced.filter_map(|id| self.index_by_id.get(id).copied()).collect();
        if heads.is_empty() {
            return;
        }
        heads.sort_unstable();
        heads.dedup();
        self.collected.add(heads.into_iter(), self.completed_kinds, &version.key.id);
        while self.collected.bytes() > self.max_bytes {
            self.postpone_half();
        }
    }

    /// Leaves the second half of the heads to a later batch. If there is only one head, its references are
    /// not collected.
    fn postpone_half(&mut self) {
        let kept = self.heads.len() / 2;
        if kept == 0 {
            self.is_too_large = true;
            (self.collected, self.index_by_id) = Default::default();
            return;
        }
        let later = self.heads.split_off(kept);
        self.postponed.splice(0..0, later);
        self.index_by_id.retain(|_, index| (*index as usize) < kept);
        self.collected.truncate_heads(kept);
    }

    /// The heads of the batch, which may be fewer than were passed to [`HeadBatch::of`].
    pub fn heads(&self) -> &[BlockHead] {
        &self.heads
    }

    /// The heads that are left to a later batch.
    pub fn into_postponed(self) -> Vec<BlockHead> {
        self.postponed
    }

    /// The block of the head with this index.
    pub fn block(&self, index: usize) -> OutputBlock<'_> {
        let head = &self.heads[index];
        OutputBlock {
            source: self.source,
            key: ResourceKey::new(self.source.head_type, &*head.id),
            patients: PatientScope::Members(Arc::new([&head.id].into_iter().collect())),
            collected: (!self.is_too_large).then_some(&self.collected),
            references: self.collected.of_head(index),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use jiff::Timestamp;
    use serde_json::json;
    use store::{ResourceDraft, Store, VersionWrite, Versions as _};

    use super::*;
    use crate::job::cursor::ExportCursor;
    use crate::job::{Job, Lease};
    use crate::plan::export_plan::ExportPlan;
    use crate::plan::membership::GroupReader;
    use crate::read::organized_output::heads_of_page;
    use crate::request::kick_off::ExportLevel;
    use crate::request::parameters::ExportParameters;

    async fn filled() -> Store {
        let put = |kind: &str, id: String, refers: &[String]| {
            let to: Vec<_> =
                refers.iter().map(|id| json!({ "reference": format!("Encounter/{id}") })).collect();
            let body = json!({ "resourceType": kind, "id": id, "to": to });
            let draft = ResourceDraft { bytes: body.to_string().into_bytes(), version_at: 0, updated_at: 0 };
            VersionWrite::put(ResourceKey::new(kind, id), draft, Vec::new())
        };
        let mut writes = Vec::new();
        for number in 0..20 {
            let before = [format!("e{:02}", number / 2)];
            writes.push(put("Encounter", format!("e{number:02}"), &before));
            for observation in 0..number * 3 {
                let heads = [format!("e{number:02}"), format!("e{:02}", observation % 5)];
                writes.push(put("Observation", format!("o{number:02}-{observation}"), &heads));
            }
        }
        let store = Store::memory();
        store.commit(writes, Timestamp::UNIX_EPOCH).await.unwrap();
        store
    }

    /// All blocks with their lines, and the number of batches that were needed.
    async fn blocks(max_bytes: usize) -> (Vec<(Vec<u8>, Vec<Bytes>)>, usize) {
        let store = filled().await;
        let kinds = vec!["Encounter".to_owned(), "Observation".to_owned()];
        let lease = Lease {
            owner: String::new(),
            attempt: 1,
            attempts_without_progress: 0,
            until: Timestamp::UNIX_EPOCH,
        };
        let (id, client, url) = (String::new(), String::new(), String::new());
        let snapshot = store.snapshot(Timestamp::UNIX_EPOCH).await.unwrap();
        let (level, parameters) = (ExportLevel::System, ExportParameters::default());
        let guide = crate::GuideVersion::V3;
        let job =
            Job::new(id, client, level, parameters, kinds, guide, url, snapshot.seq, snapshot.time, lease);
        let reading = GroupReader { fhir_base: String::new(), nested_groups: false };
        let plan = ExportPlan::of(&job, &store, &reading).await.unwrap();
        let source = BlockSource { store: &store, job: &job, plan: &plan, head_type: "Encounter" };
        let mut remaining = source.heads(ExportCursor::default());
        let mut heads = Vec::new();
        while let Some(versions) = remaining.next().await.unwrap() {
            heads.extend(heads_of_page(ExportCursor::default(), versions, 0));
        }
        let (mut blocks, mut batches) = (Vec::new(), 0);
        while !heads.is_empty() {
            batches += 1;
            let mut batch = HeadBatch { max_bytes, ..HeadBatch::of(source, heads) };
            while !batch.collect_page().await.unwrap() {}
            for index in 0..batch.heads().len() {
                let block = batch.block(index);
                let (mut lines, mut bodies) = (block.lines(), Vec::new());
                while let Some(page) = lines.next().await.unwrap() {
                    bodies.extend(page);
                }
                blocks.push((block.header(), bodies));
            }
            heads = batch.into_postponed();
        }
        (blocks, batches)
    }

    #[tokio::test]
    async fn blocks_do_not_depend_on_the_memory_limit() {
        let (expected, batches) = blocks(REFERENCE_BYTES).await;
        let lines: usize = expected.iter().map(|(_, lines)| lines.len()).sum();
        // Expected: one block for each Encounter, each Encounter except the first also in a second block, and
        // the Observations.
        assert_eq!((expected.len(), lines, batches), (20, 20 + 19 + 1_134, 1));
        let mut before = 21;
        for max_bytes in [0, 4_000, 10_000] {
            let (actual, batches) = blocks(max_bytes).await;
            assert!(actual == expected, "{max_bytes}");
            assert!(1 < batches && batches < before, "{max_bytes}: {batches} batches after {before}");
            before = batches;
        }
    }
}
