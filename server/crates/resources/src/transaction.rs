//! Bundles of requests (FHIR R4, batch and transaction): a batch does each entry for itself, a transaction
//! all or none in one commit.
//!
//! Two steps, so that the caller can judge what a Bundle asks for before anything is done:
//! [`Resources::plan`], then [`Resources::carry_out`]. Entries may create (POST `Type`), update (PUT
//! `Type/id`), delete and read (GET) by type and id, and the first three on a condition (`ifNoneExist`, `Type?search`);
//! searches are refused.

use std::collections::HashSet;

use jiff::Timestamp;
use store::{Effect, ExpectVersion, ResourceKey, VersionWrite, Versions};

use crate::bundle::{self, Entry, Request};
use crate::condition::Condition;
use crate::prepare::{Id, Prepared, prepare_named};
use crate::scan::Names;
use crate::service::stored;
use crate::{BodyError, Deletion, ResourceError, Resources, Stored};

/// What an entry asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// POST: a new resource under a new id.
    Create,
    /// PUT.
    Update,
    /// DELETE.
    Delete,
    /// GET.
    Read,
}

/// An entry that can be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// What it asks for.
    pub action: Action,
    /// The type of the resource.
    pub kind: &'static str,
    /// Its id; a new one for [`Action::Create`]. Where it is conditional another one may take its place.
    pub id: String,
    pub(crate) expect: ExpectVersion,
    pub(crate) condition: Option<Condition>,
    pub(crate) prepared: Option<Prepared>,
}

impl Planned {
    /// Does it depend on what a search finds?
    pub fn is_conditional(&self) -> bool {
        self.condition.is_some()
    }
}

/// A Bundle that can be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// All or none?
    pub is_transaction: bool,
    /// In the order of the Bundle. In a transaction none is an error.
    pub entries: Vec<Result<Planned, BodyError>>,
}

/// What became of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Done {
    /// A resource that did not exist before.
    Created(Stored),
    /// A new version.
    Updated(Stored),
    /// What was found where it was to be created.
    Found(Stored),
    /// What was read.
    Read(Stored),
    /// What a delete did.
    Deleted(Deletion),
}

impl Resources {
    /// Reads a Bundle of type `batch` or `transaction` and prepares what it asks for. Nothing is read from
    /// the store or written. `now` is what searches by time go by.
    ///
    /// # Errors
    /// What is wrong with the Bundle; in a transaction also what is wrong with any entry.
    pub fn plan(
        &self,
        body: &[u8],
        mut new_id: impl FnMut() -> String,
        now: Timestamp,
    ) -> Result<Plan, BodyError> {
        let limits = self.limits();
        if body.len() > limits.bytes {
            return Err(BodyError::TooBig { limit: limits.bytes });
        }
        let head = bundle::Head::of(body).and_then(|head| head.kind).ok_or(BodyError::NoType)?;
        if head != "Bundle" {
            return Err(BodyError::WrongType { expected: "Bundle".to_owned(), found: head.into_owned() });
        }
        let bundle = bundle::parse(body)?;
        let is_transaction = match &*bundle.kind {
            "transaction" => true,
            "batch" => false,
            other => return Err(BodyError::BundleType(other.to_owned())),
        };
        let targets: Vec<_> =
            bundle.entry.iter().map(|entry| Target::of(entry, self, &mut new_id, now)).collect();
        let names = if is_transaction { names(&bundle.entry, &targets) } else { Names::new() };
        let planned = targets.into_iter().zip(&bundle.entry).map(|(target, entry)| {
            let target = target?;
            let prepared = match target.action {
                Action::Delete | Action::Read => None,
                Action::Create | Action::Update => {
                    let text = entry.resource.ok_or(BodyError::Entry("it has no resource"))?.get();
                    let id = match target.action {
                        Action::Create => Id::Given(&target.id),
                        _ if target.condition.is_some() => Id::Given(&target.id),
                        _ => Id::Same(&target.id),
                    };
                    Some(prepare_named(
                        text.as_bytes(),
                        Some(target.kind),
                        id,
                        &limits,
                        self.fhir_base(),
                        Some(&names),
                    )?)
                }
            };
            let Target { action, kind, id, expect, condition } = target;
            Ok(Planned { action, kind, id, expect, condition, prepared })
        });
        let entries: Vec<Result<Planned, BodyError>> = planned
            .enumerate()
            .map(|(at, entry)| entry.map_err(|error: BodyError| error.in_entry(at)))
            .collect();
        if is_transaction {
            let all: Result<Vec<_>, _> = entries.iter().map(Result::as_ref).collect();
            check_once(all.map_err(Clone::clone)?)?;
        }
        Ok(Plan { is_transaction, entries })
    }

    /// Carries out a plan; gives one answer for each entry.
    ///
    /// # Errors
    /// Of a transaction: nothing was written. A batch has its errors in its answers, and so have the reads
    /// of a transaction.
    pub async fn carry_out(
        &self,
        plan: Plan,
        now: Timestamp,
    ) -> Result<Vec<Result<Done, ResourceError>>, ResourceError> {
        if plan.is_transaction {
            let entries: Result<Vec<Planned>, BodyError> = plan.entries.into_iter().collect();
            return self.commit(entries?, now).await;
        }
        let mut answers = Vec::with_capacity(plan.entries.len());
        for entry in plan.entries {
            match entry {
                Ok(entry) => match self.commit(vec![entry], now).await {
                    Ok(done) => answers.extend(done),
                    Err(error) => answers.push(Err(error)),
                },
                Err(error) => answers.push(Err(error.into())),
            }
        }
        Ok(answers)
    }

    /// Carries out entries in one commit. Once that is done only a read can still fail, for itself.
    async fn commit(
        &self,
        mut entries: Vec<Planned>,
        now: Timestamp,
    ) -> Result<Vec<Result<Done, ResourceError>>, ResourceError> {
        // What a search finds is still so when it is written.
        let _turn = match entries.iter().any(Planned::is_conditional) {
            true => Some(self.one_conditional().await),
            false => None,
        };
        self.resolve(&mut entries).await?;
        let writes: Vec<VersionWrite> = entries.iter_mut().filter_map(Planned::write).collect();
        let commit = self.store().commit(writes, now).await?;
        let mut written = commit.written.into_iter();
        let mut done = Vec::with_capacity(entries.len());
        for Planned { action, kind, id, condition, .. } in entries {
            let is_left_out = matches!(condition, Some(Condition::LeftOut));
            let effect = match action {
                Action::Read => None,
                _ if is_left_out => None,
                _ => written.next(),
            };
            if action == Action::Delete {
                let deletion = match effect.map(|written| written.effect) {
                    Some(Effect::Deleted) => self.deletion(kind, &id, commit.seq).await,
                    _ => Ok(Deletion::WasAbsent),
                };
                done.push(deletion.map(Done::Deleted));
                continue;
            }
            // Reads see the resources as the commit left them.
            let version = self.store().read(&ResourceKey::new(kind, &*id), commit.seq).await;
            let stored = version.map_err(Into::into).and_then(|version| stored(kind, &id, version));
            done.push(stored.map(|stored| match effect.map(|written| written.effect) {
                None if is_left_out => Done::Found(stored),
                None => Done::Read(stored),
                Some(Effect::Created) => Done::Created(stored),
                Some(_) => Done::Updated(stored),
            }));
        }
        Ok(done)
    }
}

impl Planned {
    /// The write that this entry asks for, if it asks for one; takes the text out.
    fn write(&mut self) -> Option<VersionWrite> {
        let key = ResourceKey::new(self.kind, &*self.id);
        let write = match (self.action, &self.condition, self.prepared.take()) {
            (Action::Read, ..) | (_, Some(Condition::LeftOut), _) => return None,
            (_, _, Some(Prepared { draft, compartments, .. })) => VersionWrite::put(key, draft, compartments),
            (_, _, None) => VersionWrite::delete(key),
        };
        Some(write.expecting(self.expect))
    }
}

/// In a transaction each resource stands once.
pub(crate) fn check_once<'a>(entries: impl IntoIterator<Item = &'a Planned>) -> Result<(), BodyError> {
    let mut seen = HashSet::new();
    for (at, entry) in entries.into_iter().enumerate() {
        if !seen.insert((entry.kind, &*entry.id)) {
            return Err(BodyError::Entry("its resource stands in the transaction twice").in_entry(at));
        }
    }
    Ok(())
}

/// What the request of an entry is about.
struct Target {
    action: Action,
    kind: &'static str,
    id: String,
    expect: ExpectVersion,
    condition: Option<Condition>,
}

impl Target {
    fn of(
        entry: &Entry<'_>,
        resources: &Resources,
        new_id: &mut impl FnMut() -> String,
        now: Timestamp,
    ) -> Result<Self, BodyError> {
        let wrong = |why| Err(BodyError::Entry(why));
        let Some(Request { method, url, if_match, if_none_match, if_none_exist }) = &entry.request else {
            return wrong("it has no request");
        };
        let action = match &**method {
            "POST" => Action::Create,
            "PUT" => Action::Update,
            "DELETE" => Action::Delete,
            "GET" => Action::Read,
            _ => return wrong("its method is none of DELETE, GET, POST, PUT"),
        };
        let (url, search) = match (url.split_once('?'), if_none_exist) {
            (None, None) => (&**url, None),
            (None, Some(search)) if action == Action::Create => (&**url, Some(&**search)),
            (Some((url, search)), None) if matches!(action, Action::Update | Action::Delete) => {
                (url, Some(search))
            }
            (Some(_), None) => return wrong("searches are not supported"),
            (_, Some(_)) => return wrong("ifNoneExist goes with a POST to a resource type"),
        };
        if if_none_match.is_some() || (search.is_some() && if_match.is_some()) {
            return wrong("ifNoneMatch is not supported, nor ifMatch beside a search");
        }
        let (kind, id) = match (action, search, url.split_once('/')) {
            (Action::Create, _, Some(_)) => return wrong("the url of a POST is a resource type"),
            (Action::Create, _, None) | (_, Some(_), None) => (url, None),
            (_, None, Some((kind, id))) if fhir::is_id(id) => (kind, Some(id.to_owned())),
            (_, Some(_), Some(_)) => return wrong("its url is a resource type and a search"),
            _ => return wrong("the url of a DELETE, GET or PUT is a resource type and an id"),
        };
        let kind = fhir::resource_type(kind)
            .ok_or(BodyError::Entry("its url does not name a resource type of FHIR R4"))?;
        let condition = search.map(|search| Condition::read(entry, action, kind, search, resources, now));
        let condition = condition.transpose()?;
        let own = condition.as_ref().and_then(Condition::own_id).map(str::to_owned);
        let if_match = if_match.as_deref().map(version_of_etag).transpose().map_err(BodyError::Entry)?;
        let expect = match (action, if_match) {
            (Action::Create, _) => ExpectVersion::Absent,
            (_, Some(version)) => ExpectVersion::Version(version),
            (_, None) => ExpectVersion::Any,
        };
        Ok(Self { action, kind, id: id.or(own).unwrap_or_else(new_id), expect, condition })
    }
}

/// The version in `W/"3"`, the form in which FHIR writes entity tags.
fn version_of_etag(tag: &str) -> Result<u64, &'static str> {
    let quoted = tag.strip_prefix("W/").unwrap_or(tag);
    let number = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    number.and_then(|number| number.parse().ok()).ok_or("its ifMatch is not of the form W/\"3\"")
}

fn names(entries: &[Entry<'_>], targets: &[Result<Target, BodyError>]) -> Names {
    let places: Vec<_> = targets
        .iter()
        .map(|target| Some((target.as_ref().ok()?.kind, target.as_ref().ok()?.id.clone())))
        .collect();
    bundle::names(entries, &places)
}
