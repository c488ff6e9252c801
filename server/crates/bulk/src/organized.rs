//! `organizeOutputBy` (Bulk Data Access 3.0.0, output file organization): output in blocks, each for one resource of a
//! type, its head. A block has a header, the head where it is exported itself, and the exported resources that belong to
//! it, by type and in the store's order: for a Patient its compartment and the Provenance of what lies there, for any
//! other type what refers to the head. What belongs to two heads stands in both blocks, what belongs to none is left out.
//!
//! Blocks of Patients are read by compartment. There is no such index for other types: what refers to a page of heads is
//! noted in one walk over all that is exported, up to a limit, beyond which fewer heads are taken at once.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use hashbrown::HashMap;
use serde_json::json;
use store::{ResourceKey, Scan, Store, StoreError, Version, Versions as _};

use crate::criteria::{Criteria, Whose};
use crate::job::Job;
use crate::kick_off::in_compartments;
use crate::selection::{Cursor, PAGE, Selection, SelectionError};
use crate::supporting::references;

/// Most bytes of what is noted at once; about a million references.
const LIMIT: usize = 48 << 20;
/// Resources of a block that are read at once where they are noted one by one.
const READ: usize = 100;

/// What the blocks of a job are made from.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub store: &'a Store,
    pub job: &'a Job,
    pub criteria: &'a Criteria,
    /// The type of the heads.
    pub by: &'a str,
}

impl<'a> Source<'a> {
    /// The heads, exported themselves or not, from a place on.
    pub fn heads(self, at: Cursor) -> Selection<'a> {
        Selection::from(self.store, self.job, self.by, self.criteria, at).of_every()
    }

    fn of_kind(self, kind: &'a str) -> Selection<'a> {
        Selection::from(self.store, self.job, kind, self.criteria, Cursor::default())
    }

    /// By compartment?
    fn by_compartment(self) -> bool {
        self.by == "Patient"
    }
}

/// Where a resource that refers to a head is to be found.
#[derive(Clone, Copy)]
struct Note {
    /// Which of the heads.
    head: u32,
    /// Number of its type in the job.
    kind: u32,
    /// Where its id begins among all ids, and its length.
    id: (u32, u32),
}

/// Some heads, and what belongs to them.
pub(crate) struct Round<'a> {
    source: Source<'a>,
    heads: Vec<Version>,
    places: HashMap<String, u32>,
    ids: String,
    notes: Vec<Note>,
    /// The types that were walked.
    kind: usize,
    walk: Option<Selection<'a>>,
    limit: usize,
}

impl<'a> Round<'a> {
    /// Of these heads; [`Round::step`] makes it ready.
    pub fn of(source: Source<'a>, heads: Vec<Version>) -> Self {
        let places = heads.iter().zip(0..).map(|(head, at)| (head.key.id.clone(), at)).collect();
        let (ids, notes) = (String::new(), Vec::new());
        Self { source, heads, places, ids, notes, kind: 0, walk: None, limit: LIMIT }
    }

    /// Goes one page further; says whether it is ready.
    pub async fn step(&mut self) -> Result<bool, SelectionError> {
        let job = self.source.job;
        let Some(kind) = job.kinds.get(self.kind).filter(|_| !self.source.by_compartment()) else {
            // For each head what it was found in, in that order.
            self.notes.sort_by_key(|note| note.head);
            return Ok(true);
        };
        let walk = self.walk.get_or_insert_with(|| self.source.of_kind(kind).whole());
        match walk.next().await? {
            Some(versions) => {
                for version in &versions {
                    self.note(version)?;
                }
            }
            None => (self.kind, self.walk) = (self.kind + 1, None),
        }
        Ok(false)
    }

    /// Notes which heads a resource refers to.
    fn note(&mut self, version: &Version) -> Result<(), SelectionError> {
        let Some(body) = &version.body else { return Ok(()) };
        let (by, id) = (self.source.by, &version.key.id);
        let own = |head: &str| version.key.kind == by && head == id;
        let referred = references(body, &self.source.criteria.fhir_base)
            .filter(|(kind, head)| *kind == by && !own(head))
            .filter_map(|(_, head)| self.places.get(head).copied());
        let mut heads: Vec<u32> = referred.collect();
        if heads.is_empty() {
            return Ok(());
        }
        heads.sort_unstable();
        heads.dedup();
        let at = (self.ids.len() as u32, id.len() as u32);
        self.ids.push_str(id);
        self.notes.extend(heads.into_iter().map(|head| Note { head, kind: self.kind as u32, id: at }));
        if self.ids.len() + self.notes.len() * size_of::<Note>() > self.limit {
            self.put_off()?;
        }
        Ok(())
    }

    /// Leaves the later half of the heads to another round.
    fn put_off(&mut self) -> Result<(), SelectionError> {
        if self.heads.len() == 1 {
            let head = self.heads[0].key.to_string();
            return Err(SelectionError::TooManyReferences { head });
        }
        self.heads.truncate(self.heads.len() / 2);
        let kept = self.heads.len() as u32;
        self.places.retain(|_, place| *place < kept);
        self.notes.retain(|note| note.head < kept);
        let mut ids = String::new();
        for note in &mut self.notes {
            let (start, length) = (note.id.0 as usize, note.id.1);
            note.id = (ids.len() as u32, length);
            ids.push_str(&self.ids[start..start + length as usize]);
        }
        self.ids = ids;
        Ok(())
    }

    /// How many heads are in it, from the first one on; fewer than were given where too much refers to them.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// The block of a head.
    pub fn block(&self, at: usize) -> Block<'_> {
        let head = &self.heads[at];
        let from = self.notes.partition_point(|note| (note.head as usize) < at);
        let to = self.notes.partition_point(|note| (note.head as usize) <= at);
        let id = &head.key.id;
        Block {
            round: self,
            head,
            whose: Whose::Members(std::sync::Arc::new([id].into_iter().collect())),
            notes: from..to,
        }
    }
}

/// One head, and what belongs to it.
pub(crate) struct Block<'a> {
    round: &'a Round<'a>,
    head: &'a Version,
    whose: Whose,
    notes: Range<usize>,
}

impl Block<'_> {
    /// The type of its head.
    pub fn kind(&self) -> &str {
        self.round.source.by
    }

    /// The line that stands before its resources, in each file that has some of them.
    pub fn header(&self) -> Vec<u8> {
        let reference = json!({ "reference": self.head.key.to_string() });
        let parameter = json!([{ "name": "header", "valueReference": reference }]);
        json!({ "resourceType": "Parameters", "parameter": parameter }).to_string().into_bytes()
    }

    /// Its resources, from the first one on.
    pub fn lines(&self) -> Lines<'_> {
        Lines { block: self, stage: Stage::Head }
    }
}

/// The resources of a block, page by page.
pub(crate) struct Lines<'a> {
    block: &'a Block<'a>,
    stage: Stage<'a>,
}

enum Stage<'a> {
    Head,
    /// This type of the job, by compartment.
    Kind(usize, Option<Selection<'a>>),
    /// The Provenance of what lies in the compartment; then the type behind it.
    Provenance(usize, Provenances<'a>),
    /// From this note on.
    Notes(usize),
}

impl<'a> Lines<'a> {
    /// The next resources; `None` at the end. A page may be empty.
    pub async fn next(&mut self) -> Result<Option<Vec<Bytes>>, SelectionError> {
        let block = self.block;
        let source = block.round.source;
        match &mut self.stage {
            Stage::Head => {
                let found = source.of_kind(source.by).chosen(block.head.clone()).await?;
                self.stage = match source.by_compartment() {
                    true => Stage::Kind(0, None),
                    false => Stage::Notes(block.notes.start),
                };
                Ok(Some(found.into_iter().collect()))
            }
            Stage::Kind(at, walk) => {
                let Some(kind) = source.job.kinds.get(*at) else { return Ok(None) };
                if kind == "Provenance" {
                    let provenances = Provenances::of(block).await?;
                    self.stage = Stage::Provenance(*at + 1, provenances);
                    return Ok(Some(Vec::new()));
                }
                if kind == source.by || !in_compartments(kind) {
                    self.stage = Stage::Kind(*at + 1, None);
                    return Ok(Some(Vec::new()));
                }
                let walk = walk.get_or_insert_with(|| source.of_kind(kind).within(&block.whose));
                let Some(versions) = walk.next().await? else {
                    self.stage = Stage::Kind(*at + 1, None);
                    return Ok(Some(Vec::new()));
                };
                Ok(Some(versions.into_iter().filter_map(|version| version.body).collect()))
            }
            Stage::Provenance(next, provenances) => match provenances.next().await? {
                Some(found) => Ok(Some(found)),
                None => {
                    self.stage = Stage::Kind(*next, None);
                    Ok(Some(Vec::new()))
                }
            },
            Stage::Notes(at) => {
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
        }
    }
}

/// The Provenance of what lies in the compartment of a Patient, each once.
struct Provenances<'a> {
    block: &'a Block<'a>,
    chosen: Selection<'a>,
    compartment: String,
    /// The types that can lie there.
    kinds: Vec<String>,
    kind: usize,
    after: Option<String>,
    /// What lies there of the type, and where in the Provenance of the first of them.
    targets: VecDeque<String>,
    behind: Option<String>,
}

impl<'a> Provenances<'a> {
    async fn of(block: &'a Block<'a>) -> Result<Self, StoreError> {
        let source = block.round.source;
        let mut kinds = source.store.kinds(source.job.seq()).await?;
        kinds.retain(|kind| kind != "Provenance" && in_compartments(kind));
        Ok(Self {
            block,
            chosen: source.of_kind("Provenance").within(&block.whose),
            compartment: block.head.key.to_string(),
            kinds,
            kind: 0,
            after: None,
            targets: VecDeque::new(),
            behind: None,
        })
    }

    async fn next(&mut self) -> Result<Option<Vec<Bytes>>, StoreError> {
        let Source { store, job, .. } = self.block.round.source;
        if let Some(target) = self.targets.front().cloned() {
            let scan = Scan::at(job.seq()).limit(PAGE).after(self.behind.as_deref());
            let page = store.scan_compartment(&target, "Provenance", scan).await?;
            self.behind = page.next;
            if self.behind.is_none() {
                self.targets.pop_front();
            }
            let mut found = Vec::new();
            for version in page.versions {
                if self.is_first(&version, &target).await? {
                    found.extend(self.chosen.chosen(version).await?);
                }
            }
            return Ok(Some(found));
        }
        let Some(kind) = self.kinds.get(self.kind) else { return Ok(None) };
        let scan = Scan::at(job.seq()).limit(PAGE).after(self.after.as_deref());
        let page = store.scan_compartment(&self.compartment, kind, scan).await?;
        self.after = page.next;
        if self.after.is_none() {
            self.kind += 1;
        }
        self.targets.extend(page.versions.iter().filter(|v| !v.is_deleted()).map(|v| v.key.to_string()));
        Ok(Some(Vec::new()))
    }

    /// Is this the first of its targets that lies in the compartment?
    async fn is_first(&self, provenance: &Version, target: &str) -> Result<bool, StoreError> {
        let Source { store, job, .. } = self.block.round.source;
        for before in provenance.compartments.iter().take_while(|before| *before != target) {
            let Some((kind, id)) = before.split_once('/') else { continue };
            let lies_there = *before == self.compartment
                || store.read(&ResourceKey::new(kind, id), job.seq()).await?.is_some_and(|found| {
                    !found.is_deleted() && found.compartments.contains(&self.compartment)
                });
            if lies_there {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
