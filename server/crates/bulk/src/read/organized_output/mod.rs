//! `organizeOutputBy` (Bulk Data Access 3.0.0, output file organization): output in blocks. Each block belongs to one
//! resource of a type, the head. A block consists of a header, the head if it is exported itself, and the exported
//! resources that belong to the head, by type and in the order of the store. To a Patient belong the resources of its
//! compartment and their Provenance; to any other head, the resources that refer to it. A resource that belongs to two
//! heads is in both blocks. A resource that belongs to no head is omitted.
//!
//! Blocks of Patients are read by compartment. There is no such index for other types: one pass over all exported
//! resources collects the references to many heads. If the references exceed a memory limit, the pass covers fewer
//! heads. If they exceed it for a single head, its block is read in a separate pass.

mod provenance;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use resources::references::local_targets;
use serde_json::json;
use store::{ResourceKey, Store, StoreError, Version, Versions as _};

use crate::job::Job;
use crate::job::cursor::ExportCursor;
use crate::plan::export_plan::{ExportPlan, PatientScope};
use crate::read::selection::{Selection, SelectionError};
use crate::request::kick_off::in_compartments;
use provenance::ProvenanceLookup;

/// Maximum memory for collected references in bytes, enough for about a million references.
const LIMIT: usize = 48 << 20;
/// Maximum number of heads in a round. Each round is a pass over all exported resources, so a lower maximum would cost
/// more.
const HEADS: usize = 50_000;
/// Number of resources that are read at a time, for blocks that are read by reference.
const READ: usize = 100;

/// Access to the data that the blocks of a job consist of.
#[derive(Clone, Copy)]
pub(crate) struct BlockSource<'a> {
    pub store: &'a Store,
    pub job: &'a Job,
    pub criteria: &'a ExportPlan,
    /// Type of the resources that head the blocks.
    pub by: &'a str,
}

impl<'a> BlockSource<'a> {
    /// Returns a selection of the heads from a cursor, whether or not they are exported.
    pub fn heads(self, at: ExportCursor) -> Selection<'a> {
        Selection::from(self.store, self.job, self.by, self.criteria, at).of_every()
    }

    fn of_kind(self, kind: &'a str) -> Selection<'a> {
        Selection::from(self.store, self.job, kind, self.criteria, ExportCursor::default())
    }

    /// Returns `true` if blocks are read by compartment.
    fn by_compartment(self) -> bool {
        self.by == "Patient"
    }

    /// Returns the maximum number of heads in a round.
    pub fn together(self) -> usize {
        if self.by_compartment() { 1 } else { HEADS }
    }

    /// Returns the ids of the heads that a resource refers to, except itself.
    fn referred<'b>(self, version: &'b Version) -> impl Iterator<Item = &'b str>
    where
        'a: 'b,
    {
        let own = (version.key.kind == self.by).then_some(&*version.key.id);
        let found = local_targets(version.body.as_deref().unwrap_or_default(), &self.criteria.fhir_base);
        found.filter_map(move |(kind, id)| (kind == self.by && Some(id) != own).then_some(id))
    }
}

/// Head of a block, with its position among all heads.
#[derive(Debug)]
pub(crate) struct BlockHead {
    id: String,
    /// Cursor of the page, and index on the page.
    pub page: Arc<ExportCursor>,
    pub at: usize,
}

/// Returns the heads of a page, without the first `skip`.
pub(crate) fn heads_of(
    page: ExportCursor,
    versions: Vec<Version>,
    skip: usize,
) -> impl Iterator<Item = BlockHead> {
    let page = Arc::new(page);
    let head =
        move |(at, version): (usize, Version)| BlockHead { id: version.key.id, page: page.clone(), at };
    versions.into_iter().enumerate().skip(skip).map(head)
}

/// A reference of a resource to a head.
#[derive(Clone, Copy)]
struct HeadReference {
    /// Index of the head in the round.
    head: u32,
    /// Index of the resource's type in the job.
    kind: u32,
    /// Offset and length of the resource's id in the string of all ids.
    id: (u32, u32),
}

/// Several heads, with the resources that belong to each.
pub(crate) struct BlockRound<'a> {
    source: BlockSource<'a>,
    heads: Vec<BlockHead>,
    /// Heads that are left to a later round.
    put_off: Vec<BlockHead>,
    places: HashMap<String, u32>,
    ids: String,
    notes: Vec<HeadReference>,
    /// Number of types that the pass has completed.
    kind: usize,
    walk: Option<Selection<'a>>,
    limit: usize,
    /// `true` if the references to the only head exceed the limit, so that none are collected.
    is_large: bool,
}

impl<'a> BlockRound<'a> {
    /// Creates a round for these heads. [`BlockRound::step`] collects the references.
    pub fn of(source: BlockSource<'a>, heads: Vec<BlockHead>) -> Self {
        let is_noted = !source.by_compartment();
        let noted = heads.iter().zip(0..).filter(|_| is_noted);
        Self {
            source,
            places: noted.map(|(head, at)| (head.id.clone(), at)).collect(),
            heads,
            put_off: Vec::new(),
            ids: String::new(),
            notes: Vec::new(),
            kind: 0,
            walk: None,
            limit: LIMIT,
            is_large: false,
        }
    }

    /// Reads one more page. Returns `true` when all references are collected.
    pub async fn step(&mut self) -> Result<bool, SelectionError> {
        let job = self.source.job;
        let is_noted = !self.source.by_compartment() && !self.is_large;
        let Some(kind) = job.kinds.get(self.kind).filter(|_| is_noted) else {
            // The sort is stable, so the references to a head stay in the order of the pass.
            self.notes.sort_by_key(|note| note.head);
            return Ok(true);
        };
        let walk = self.walk.get_or_insert_with(|| self.source.of_kind(kind).whole());
        match walk.next().await? {
            Some(versions) => versions.iter().for_each(|version| self.note(version)),
            None => (self.kind, self.walk) = (self.kind + 1, None),
        }
        Ok(false)
    }

    /// Collects the references of a resource to heads.
    fn note(&mut self, version: &Version) {
        let referred = self.source.referred(version).filter_map(|head| self.places.get(head).copied());
        let mut heads: Vec<u32> = referred.collect();
        if heads.is_empty() {
            return;
        }
        heads.sort_unstable();
        heads.dedup();
        let id = &version.key.id;
        let at = (self.ids.len() as u32, id.len() as u32);
        self.ids.push_str(id);
        self.notes.extend(heads.into_iter().map(|head| HeadReference {
            head,
            kind: self.kind as u32,
            id: at,
        }));
        while self.ids.len() + self.notes.len() * size_of::<HeadReference>() > self.limit {
            self.put_off();
        }
    }

    /// Leaves the second half of the heads to a later round. If there is only one head, its references are not
    /// collected.
    fn put_off(&mut self) {
        let kept = self.heads.len() / 2;
        if kept == 0 {
            self.is_large = true;
            (self.ids, self.notes, self.places) = Default::default();
            return;
        }
        let later = self.heads.split_off(kept);
        self.put_off.splice(0..0, later);
        self.places.retain(|_, place| (*place as usize) < kept);
        self.notes.retain(|note| (note.head as usize) < kept);
        let mut ids = String::new();
        for note in &mut self.notes {
            let (start, length) = (note.id.0 as usize, note.id.1);
            note.id = (ids.len() as u32, length);
            ids.push_str(&self.ids[start..start + length as usize]);
        }
        self.ids = ids;
    }

    /// Returns the heads of the round, which may be fewer than were passed to [`BlockRound::of`].
    pub fn heads(&self) -> &[BlockHead] {
        &self.heads
    }

    /// Returns the heads that are left to a later round.
    pub fn into_put_off(self) -> Vec<BlockHead> {
        self.put_off
    }

    /// Returns the block of the head with this index.
    pub fn block(&self, at: usize) -> OutputBlock<'_> {
        let head = &self.heads[at];
        let from = self.notes.partition_point(|note| (note.head as usize) < at);
        let to = self.notes.partition_point(|note| (note.head as usize) <= at);
        let key = ResourceKey::new(self.source.by, &*head.id);
        let patients = PatientScope::Members(Arc::new([&head.id].into_iter().collect()));
        OutputBlock { round: self, key, patients, notes: from..to }
    }
}

/// A head, with the resources that belong to it.
pub(crate) struct OutputBlock<'a> {
    round: &'a BlockRound<'a>,
    /// Type and id of the head.
    key: ResourceKey,
    patients: PatientScope,
    notes: Range<usize>,
}

impl OutputBlock<'_> {
    /// Returns the type of the head.
    pub fn kind(&self) -> &str {
        self.round.source.by
    }

    /// Returns the header line. It precedes the resources of the block in each file that contains them.
    pub fn header(&self) -> Vec<u8> {
        let reference = json!({ "reference": self.key.to_string() });
        let parameter = json!([{ "name": "header", "valueReference": reference }]);
        json!({ "resourceType": "Parameters", "parameter": parameter }).to_string().into_bytes()
    }

    /// Returns a reader at the first resource of the block.
    pub fn lines(&self) -> BlockLines<'_> {
        BlockLines { block: self, stage: BlockStage::Head }
    }
}

/// Reads the resources of a block page by page.
pub(crate) struct BlockLines<'a> {
    block: &'a OutputBlock<'a>,
    stage: BlockStage<'a>,
}

enum BlockStage<'a> {
    Head,
    /// Reads this type of the job by compartment.
    Kind(usize, Option<Selection<'a>>),
    /// Reads the Provenance of the compartment. The number is the index of the next type.
    Provenance(usize, ProvenanceLookup<'a>),
    /// Reads the collected references from this index.
    Notes(usize),
    /// Reads all resources of this type of the job and keeps those that refer to the head.
    Walk(usize, Option<Selection<'a>>),
}

impl<'a> BlockLines<'a> {
    /// Returns the next resources, or `None` at the end. A page may be empty.
    pub async fn next(&mut self) -> Result<Option<Vec<Bytes>>, SelectionError> {
        let block = self.block;
        let source = block.round.source;
        match &mut self.stage {
            BlockStage::Head => {
                self.stage = match source.by_compartment() {
                    true => BlockStage::Kind(0, None),
                    false if block.round.is_large => BlockStage::Walk(0, None),
                    false => BlockStage::Notes(block.notes.start),
                };
                let head = source.store.read(&block.key, source.job.seq()).await?;
                let Some(head) = head else { return Ok(Some(Vec::new())) };
                Ok(Some(source.of_kind(source.by).chosen(head).await?.into_iter().collect()))
            }
            BlockStage::Kind(at, walk) => {
                let Some(kind) = source.job.kinds.get(*at) else { return Ok(None) };
                if kind == "Provenance" {
                    let provenances = ProvenanceLookup::of(block).await?;
                    self.stage = BlockStage::Provenance(*at + 1, provenances);
                    return Ok(Some(Vec::new()));
                }
                if kind == source.by || !in_compartments(kind) {
                    self.stage = BlockStage::Kind(*at + 1, None);
                    return Ok(Some(Vec::new()));
                }
                let walk = walk.get_or_insert_with(|| source.of_kind(kind).within(&block.patients));
                let Some(versions) = walk.next().await? else {
                    self.stage = BlockStage::Kind(*at + 1, None);
                    return Ok(Some(Vec::new()));
                };
                Ok(Some(versions.into_iter().filter_map(|version| version.body).collect()))
            }
            BlockStage::Provenance(next, provenances) => match provenances.next().await? {
                Some(found) => Ok(Some(found)),
                None => {
                    self.stage = BlockStage::Kind(*next, None);
                    Ok(Some(Vec::new()))
                }
            },
            BlockStage::Notes(at) => {
                let notes = &block.round.notes[*at..block.notes.end];
                let notes = &notes[..notes.len().min(READ)];
                *at += notes.len();
                if notes.is_empty() {
                    return Ok(None);
                }
                let mut found = Vec::with_capacity(notes.len());
                for note in notes {
                    let kind = &source.job.kinds[note.kind as usize];
                    let (start, length) = (note.id.0 as usize, note.id.1 as usize);
                    let key = ResourceKey::new(kind, &block.round.ids[start..start + length]);
                    let version = source.store.read(&key, source.job.seq()).await?;
                    let version = version.map(|version| source.of_kind(kind).projected(version));
                    found.extend(version.transpose()?.and_then(|version| version.body));
                }
                Ok(Some(found))
            }
            BlockStage::Walk(at, walk) => {
                let Some(kind) = source.job.kinds.get(*at) else { return Ok(None) };
                let walk = walk.get_or_insert_with(|| source.of_kind(kind).whole());
                let Some(versions) = walk.next().await? else {
                    self.stage = BlockStage::Walk(*at + 1, None);
                    return Ok(Some(Vec::new()));
                };
                let found = versions.into_iter().filter(|v| source.referred(v).any(|id| id == block.key.id));
                let selection = source.of_kind(kind);
                let bodies = found.map(|version| Ok(selection.projected(version)?.body));
                Ok(Some(bodies.filter_map(Result::transpose).collect::<Result<_, StoreError>>()?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use store::{ResourceDraft, VersionWrite};

    use super::*;
    use crate::job::Lease;
    use crate::plan::export_plan::GroupReader;
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
            for at in 0..number * 3 {
                let heads = [format!("e{number:02}"), format!("e{:02}", at % 5)];
                writes.push(put("Observation", format!("o{number:02}-{at}"), &heads));
            }
        }
        let store = Store::memory();
        store.commit(writes, Timestamp::UNIX_EPOCH).await.unwrap();
        store
    }

    /// Returns all blocks with their lines, and the number of rounds that were needed.
    async fn blocks(limit: usize) -> (Vec<(Vec<u8>, Vec<Bytes>)>, usize) {
        let store = filled().await;
        let kinds = vec!["Encounter".to_owned(), "Observation".to_owned()];
        let lease = Lease {
            owner: String::new(),
            attempt: 1,
            attempts_without_progress: 0,
            until: Timestamp::UNIX_EPOCH,
        };
        let (id, client, url) = (String::new(), String::new(), String::new());
        let at = store.snapshot(Timestamp::UNIX_EPOCH).await.unwrap();
        let (level, parameters) = (ExportLevel::System, ExportParameters::default());
        let guide = crate::GuideVersion::V3;
        let job = Job::new(id, client, level, parameters, kinds, guide, url, at.seq, at.time, lease);
        let reading = GroupReader { fhir_base: String::new(), nested_groups: false };
        let criteria = ExportPlan::of(&job, &store, &reading).await.unwrap();
        let source = BlockSource { store: &store, job: &job, criteria: &criteria, by: "Encounter" };
        let mut walk = source.heads(ExportCursor::default());
        let mut heads = Vec::new();
        while let Some(found) = walk.next().await.unwrap() {
            heads.extend(heads_of(ExportCursor::default(), found, 0));
        }
        let (mut all, mut rounds) = (Vec::new(), 0);
        while !heads.is_empty() {
            rounds += 1;
            let mut round = BlockRound { limit, ..BlockRound::of(source, heads) };
            while !round.step().await.unwrap() {}
            for at in 0..round.heads().len() {
                let block = round.block(at);
                let (mut lines, mut found) = (block.lines(), Vec::new());
                while let Some(page) = lines.next().await.unwrap() {
                    found.extend(page);
                }
                all.push((block.header(), found));
            }
            heads = round.into_put_off();
        }
        (all, rounds)
    }

    #[tokio::test]
    async fn blocks_do_not_depend_on_the_memory_limit() {
        let (expected, rounds) = blocks(LIMIT).await;
        let lines: usize = expected.iter().map(|(_, lines)| lines.len()).sum();
        // Expected: one block for each Encounter, each Encounter except the first also in a second block, and the
        // Observations.
        assert_eq!((expected.len(), lines, rounds), (20, 20 + 19 + 1_134, 1));
        let mut before = 21;
        for limit in [0, 4_000, 10_000] {
            let (found, rounds) = blocks(limit).await;
            assert!(found == expected, "{limit}");
            assert!(1 < rounds && rounds < before, "{limit}: {rounds} rounds after {before}");
            before = rounds;
        }
    }
}
