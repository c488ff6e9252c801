//! `organizeOutputBy` (Bulk Data Access 3.0.0, output file organization): output in blocks, each for one resource of a
//! type, its head. A block has a header, the head where it is exported itself, and the exported resources that belong to
//! it, by type and in the store's order: for a Patient its compartment and the Provenance of what lies there, for any
//! other type what refers to the head. What belongs to two heads stands in both blocks, what belongs to none is left out.
//!
//! Blocks of Patients are read by compartment. There is no such index for other types: what refers to many heads is noted
//! in one walk over all that is exported, up to a limit, beyond which fewer heads are taken at once. Where the limit is too
//! low for a single one, its block is a walk of its own.

mod provenance;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use serde_json::json;
use store::{ResourceKey, Store, StoreError, Version, Versions as _};

use crate::criteria::{Criteria, Whose};
use crate::job::Job;
use crate::kick_off::in_compartments;
use crate::selection::{Cursor, Selection, SelectionError};
use crate::supporting::references;
use provenance::Provenances;

/// Most bytes of what is noted at once; about a million references.
const LIMIT: usize = 48 << 20;
/// Heads that are taken at once, where so many are not too many: a walk costs the more the fewer they are.
const HEADS: usize = 50_000;
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

    /// How many heads are best taken at once.
    pub fn together(self) -> usize {
        if self.by_compartment() { 1 } else { HEADS }
    }

    /// The heads that a resource refers to, itself left out.
    fn referred<'b>(self, version: &'b Version) -> impl Iterator<Item = &'b str>
    where
        'a: 'b,
    {
        let own = (version.key.kind == self.by).then_some(&*version.key.id);
        let found = references(version.body.as_deref().unwrap_or_default(), &self.criteria.fhir_base);
        found.filter_map(move |(kind, id)| (kind == self.by && Some(id) != own).then_some(id))
    }
}

/// A resource that a block is for, and where it stands among the heads.
#[derive(Debug)]
pub(crate) struct Head {
    id: String,
    /// The page, and which of the page.
    pub page: Arc<Cursor>,
    pub at: usize,
}

/// Those of a page, but for so many.
pub(crate) fn heads_of(page: Cursor, versions: Vec<Version>, skip: usize) -> impl Iterator<Item = Head> {
    let page = Arc::new(page);
    let head = move |(at, version): (usize, Version)| Head { id: version.key.id, page: page.clone(), at };
    versions.into_iter().enumerate().skip(skip).map(head)
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
    heads: Vec<Head>,
    /// Those that are left to another round.
    put_off: Vec<Head>,
    places: HashMap<String, u32>,
    ids: String,
    notes: Vec<Note>,
    /// The types that were walked.
    kind: usize,
    walk: Option<Selection<'a>>,
    limit: usize,
    /// What refers to the only head is not noted, since it is too much.
    is_large: bool,
}

impl<'a> Round<'a> {
    /// Of these heads; [`Round::step`] makes it ready.
    pub fn of(source: Source<'a>, heads: Vec<Head>) -> Self {
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

    /// Goes one page further; says whether it is ready.
    pub async fn step(&mut self) -> Result<bool, SelectionError> {
        let job = self.source.job;
        let is_noted = !self.source.by_compartment() && !self.is_large;
        let Some(kind) = job.kinds.get(self.kind).filter(|_| is_noted) else {
            // For each head what it was found in, in that order.
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

    /// Notes which heads a resource refers to.
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
        self.notes.extend(heads.into_iter().map(|head| Note { head, kind: self.kind as u32, id: at }));
        while self.ids.len() + self.notes.len() * size_of::<Note>() > self.limit {
            self.put_off();
        }
    }

    /// Leaves the later half of the heads to another round; of a single one nothing is noted.
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

    /// The heads that are in it; fewer than were given where too much refers to them.
    pub fn heads(&self) -> &[Head] {
        &self.heads
    }

    /// The heads that another round is for.
    pub fn into_put_off(self) -> Vec<Head> {
        self.put_off
    }

    /// The block of a head.
    pub fn block(&self, at: usize) -> Block<'_> {
        let head = &self.heads[at];
        let from = self.notes.partition_point(|note| (note.head as usize) < at);
        let to = self.notes.partition_point(|note| (note.head as usize) <= at);
        let key = ResourceKey::new(self.source.by, &*head.id);
        let whose = Whose::Members(Arc::new([&head.id].into_iter().collect()));
        Block { round: self, key, whose, notes: from..to }
    }
}

/// One head, and what belongs to it.
pub(crate) struct Block<'a> {
    round: &'a Round<'a>,
    /// That of the head.
    key: ResourceKey,
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
        let reference = json!({ "reference": self.key.to_string() });
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
    /// This type of the job, resource by resource.
    Walk(usize, Option<Selection<'a>>),
}

impl<'a> Lines<'a> {
    /// The next resources; `None` at the end. A page may be empty.
    pub async fn next(&mut self) -> Result<Option<Vec<Bytes>>, SelectionError> {
        let block = self.block;
        let source = block.round.source;
        match &mut self.stage {
            Stage::Head => {
                self.stage = match source.by_compartment() {
                    true => Stage::Kind(0, None),
                    false if block.round.is_large => Stage::Walk(0, None),
                    false => Stage::Notes(block.notes.start),
                };
                let head = source.store.read(&block.key, source.job.seq()).await?;
                let Some(head) = head else { return Ok(Some(Vec::new())) };
                Ok(Some(source.of_kind(source.by).chosen(head).await?.into_iter().collect()))
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
            Stage::Walk(at, walk) => {
                let Some(kind) = source.job.kinds.get(*at) else { return Ok(None) };
                let walk = walk.get_or_insert_with(|| source.of_kind(kind).whole());
                let Some(versions) = walk.next().await? else {
                    self.stage = Stage::Walk(*at + 1, None);
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
    use store::{Draft, VersionWrite};

    use super::*;
    use crate::criteria::Reading;
    use crate::job::Lease;
    use crate::kick_off::{Level, Parameters};

    async fn filled() -> Store {
        let put = |kind: &str, id: String, refers: &[String]| {
            let to: Vec<_> =
                refers.iter().map(|id| json!({ "reference": format!("Encounter/{id}") })).collect();
            let body = json!({ "resourceType": kind, "id": id, "to": to });
            let draft = Draft { bytes: body.to_string().into_bytes(), version_at: 0, updated_at: 0 };
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

    /// All blocks, each with its lines, and how many rounds they took.
    async fn blocks(limit: usize) -> (Vec<(Vec<u8>, Vec<Bytes>)>, usize) {
        let store = filled().await;
        let kinds = vec!["Encounter".to_owned(), "Observation".to_owned()];
        let lease = Lease { owner: String::new(), attempt: 1, in_vain: 0, until: Timestamp::UNIX_EPOCH };
        let (id, client, url) = (String::new(), String::new(), String::new());
        let at = store.snapshot(Timestamp::UNIX_EPOCH).await.unwrap();
        let (level, parameters) = (Level::System, Parameters::default());
        let guide = crate::Guide::V3;
        let job = Job::new(id, client, level, parameters, kinds, guide, url, at.seq, at.time, lease);
        let reading = Reading { fhir_base: String::new(), nested_groups: false };
        let criteria = Criteria::of(&job, &store, &reading).await.unwrap();
        let source = Source { store: &store, job: &job, criteria: &criteria, by: "Encounter" };
        let mut walk = source.heads(Cursor::default());
        let mut heads = Vec::new();
        while let Some(found) = walk.next().await.unwrap() {
            heads.extend(heads_of(Cursor::default(), found, 0));
        }
        let (mut all, mut rounds) = (Vec::new(), 0);
        while !heads.is_empty() {
            rounds += 1;
            let mut round = Round { limit, ..Round::of(source, heads) };
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
    async fn blocks_are_the_same_whatever_can_be_noted_at_once() {
        let (expected, rounds) = blocks(LIMIT).await;
        let lines: usize = expected.iter().map(|(_, lines)| lines.len()).sum();
        // Each Encounter, each but the first one under another one, and the Observations.
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
