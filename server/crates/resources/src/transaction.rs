//! Bundles of requests (FHIR R4, batch and transaction): a batch does each entry for itself, a transaction
//! all or none in one commit.
//!
//! Two steps, so that the caller can judge what a Bundle asks for before anything is done:
//! [`Resources::plan`], then [`Resources::carry_out`]. Entries may create (POST `Type`), update (PUT
//! `Type/id`), delete and read (GET) by type and id; searches and conditional requests are refused.

use std::collections::HashSet;

use jiff::Timestamp;
use store::{Effect, ExpectVersion, ResourceKey, VersionWrite, Versions};

use crate::bundle::{self, Entry, Request};
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
    /// Its id; a new one for [`Action::Create`].
    pub id: String,
    if_match: Option<u64>,
    prepared: Option<Prepared>,
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
    /// What was read.
    Read(Stored),
    /// What a delete did.
    Deleted(Deletion),
}

impl Resources {
    /// Reads a Bundle of type `batch` or `transaction` and prepares what it asks for. Nothing is read from
    /// the store or written.
    ///
    /// # Errors
    /// What is wrong with the Bundle; in a transaction also what is wrong with any entry.
    pub fn plan(&self, body: &[u8], mut new_id: impl FnMut() -> String) -> Result<Plan, BodyError> {
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
        let targets: Vec<_> = bundle
            .entry
            .iter()
            .map(|entry| Target::of(entry, &mut new_id).map_err(BodyError::Entry))
            .collect();
        let names = if is_transaction { names(&bundle.entry, &targets) } else { Names::new() };
        let planned = targets.into_iter().zip(&bundle.entry).map(|(target, entry)| {
            let target = target?;
            let prepared = match target.action {
                Action::Delete | Action::Read => None,
                Action::Create | Action::Update => {
                    let text = entry.resource.ok_or(BodyError::Entry("it has no resource"))?.get();
                    let id = match target.action {
                        Action::Create => Id::Given(&target.id),
                        _ => Id::Same(&target.id),
                    };
                    Some(prepare_named(text.as_bytes(), Some(target.kind), id, &limits, Some(&names))?)
                }
            };
            let Target { action, kind, id, if_match } = target;
            Ok(Planned { action, kind, id, if_match, prepared })
        });
        let entries: Vec<Result<Planned, BodyError>> = planned
            .enumerate()
            .map(|(at, entry)| entry.map_err(|error: BodyError| error.in_entry(at)))
            .collect();
        if is_transaction {
            let mut seen = HashSet::new();
            for (at, entry) in entries.iter().enumerate() {
                let entry = entry.as_ref().map_err(Clone::clone)?;
                if !seen.insert((entry.kind, &*entry.id)) {
                    return Err(BodyError::Entry("its resource stands in the transaction twice").in_entry(at));
                }
            }
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
        let writes: Vec<VersionWrite> = entries.iter_mut().filter_map(Planned::write).collect();
        let commit = self.store().commit(writes, now).await?;
        let mut written = commit.written.into_iter();
        let mut done = Vec::with_capacity(entries.len());
        for Planned { action, kind, id, .. } in entries {
            let effect = match action {
                Action::Read => None,
                _ => written.next(),
            };
            if let (Action::Delete, Some(written)) = (action, effect) {
                done.push(Ok(Done::Deleted(match written.effect {
                    Effect::Deleted => Deletion::Deleted { version: written.version },
                    _ => Deletion::WasAbsent,
                })));
                continue;
            }
            // Reads see the resources as the commit left them.
            let version = self.store().read(&ResourceKey::new(kind, &*id), commit.seq).await;
            let stored = version.map_err(Into::into).and_then(|version| stored(kind, &id, version));
            done.push(stored.map(|stored| match effect.map(|written| written.effect) {
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
        let expect = match self.action {
            Action::Create => ExpectVersion::Absent,
            _ => self.if_match.map_or(ExpectVersion::Any, ExpectVersion::Version),
        };
        let write = match (self.action, self.prepared.take()) {
            (Action::Read, _) => return None,
            (_, Some(Prepared { draft, compartments, .. })) => VersionWrite::put(key, draft, compartments),
            (_, None) => VersionWrite::delete(key),
        };
        Some(write.expecting(expect))
    }
}

/// What the request of an entry is about.
struct Target {
    action: Action,
    kind: &'static str,
    id: String,
    if_match: Option<u64>,
}

impl Target {
    fn of(entry: &Entry<'_>, new_id: &mut impl FnMut() -> String) -> Result<Self, &'static str> {
        let Request { method, url, if_match, if_none_match, if_none_exist } =
            entry.request.as_ref().ok_or("it has no request")?;
        if if_none_match.is_some() || if_none_exist.is_some() || url.contains('?') {
            return Err("searches and conditional requests are not supported");
        }
        let action = match &**method {
            "POST" => Action::Create,
            "PUT" => Action::Update,
            "DELETE" => Action::Delete,
            "GET" => Action::Read,
            _ => return Err("its method is none of DELETE, GET, POST, PUT"),
        };
        let (kind, id) = match (action, url.split_once('/')) {
            (Action::Create, None) => (&**url, new_id()),
            (Action::Create, Some(_)) => return Err("the url of a POST is a resource type"),
            (_, Some((kind, id))) if fhir::is_id(id) => (kind, id.to_owned()),
            _ => return Err("the url of a DELETE, GET or PUT is a resource type and an id"),
        };
        let kind = fhir::resource_type(kind).ok_or("its url does not name a resource type of FHIR R4")?;
        let if_match = if_match.as_deref().map(version_of_etag).transpose()?;
        Ok(Self { action, kind, id, if_match })
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
