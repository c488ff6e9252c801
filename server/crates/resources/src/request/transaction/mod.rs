//! Bundles of requests (FHIR R4, batch and transaction). A batch processes each entry separately. A
//! transaction processes all entries or none, in one commit.
//!
//! Processing has two steps, [`Resources::plan`] and [`Resources::carry_out`], so that the caller can check
//! access before anything is written. Entries may create (POST `Type`), update (PUT `Type/id`), delete and
//! read (GET) by type and id. Create, update and delete may be conditional (`ifNoneExist`, `Type?search`),
//! and in a transaction, references too. Searches and operations in a batch are left to the caller; in a
//! transaction, they are rejected.

mod condition;
mod entry_action;
mod entry_condition;
mod operation;
mod plan_rules;
mod planned_entry;
mod reference;

use bytes::Bytes;
use jiff::Timestamp;
use store::{ExpectVersion, ResourceKey, Seq, VersionWrite, Versions, WriteEffect};

pub use self::entry_action::EntryAction;
use self::entry_condition::EntryCondition;
pub(crate) use self::plan_rules::{ImportRules, PlanRules};
pub use self::planned_entry::PlannedEntry;
pub(crate) use self::planned_entry::check_once;
use crate::request::conditional::{MAX_SEARCHES, is_overtaken};
use crate::write::bundle::{self, BundleEntry, EntryRequest};
use crate::write::prepare::{IdSource, PreparedResource, prepare_named};
use crate::write::scan::RenamedReferences;
use crate::write::service::stored;
use crate::{DeleteResult, ResourceBodyError, ResourceError, Resources, StoredResource};
pub use operation::{BundleOperation, BundleSearch};
use reference::ConditionalReference;

/// A checked Bundle of requests.
#[derive(Debug, Clone)]
pub struct TransactionPlan {
    /// `true` for a transaction: all entries are processed or none.
    pub is_transaction: bool,
    /// The entries that read or write a resource, in the order of the Bundle. In a transaction, none of them
    /// is an error.
    pub entries: Vec<Result<PlannedEntry, ResourceBodyError>>,
    /// The entries of a batch that call an operation, in the order of the Bundle.
    pub operations: Vec<BundleOperation>,
    /// The entries of a batch that search a type, in the order of the Bundle.
    pub searches: Vec<BundleSearch>,
    references: Vec<ConditionalReference>,
}

impl TransactionPlan {
    /// The resources that are accepted although they have defects.
    pub(crate) fn irregular(&self) -> impl Iterator<Item = &PreparedResource> {
        let entries = self.entries.iter().filter_map(|entry| entry.as_ref().ok());
        let prepared = entries.filter_map(|entry| entry.prepared.as_ref());
        prepared.filter(|prepared| !prepared.defects.is_empty())
    }

    /// The types of the resources that conditional references search for.
    pub fn searched_types(&self) -> impl Iterator<Item = &'static str> {
        self.references.iter().map(ConditionalReference::kind)
    }
}

/// A read that an entry asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryRead {
    kind: &'static str,
    id: String,
    at: Seq,
}

impl EntryRead {
    /// The resource type.
    pub fn kind(&self) -> &'static str {
        self.kind
    }
}

/// Result of an entry. The resources are without their bytes, which no response needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryResult {
    /// The entry created this resource.
    Created(StoredResource),
    /// The entry wrote this new version.
    Updated(StoredResource),
    /// A conditional create found this existing resource.
    Found(StoredResource),
    /// The entry reads this resource. [`Resources::read_entry`] reads it when the response needs it.
    Read(EntryRead),
    /// The entry deleted a resource, or the resource did not exist.
    Deleted(DeleteResult),
    /// The entry of an import is older than the stored resource of this type, which was kept.
    Outdated(&'static str),
}

impl Resources {
    /// Parses a Bundle of type `batch` or `transaction` and checks its entries, without access to the store.
    /// Relative dates in searches refer to `now`.
    ///
    /// # Errors
    /// Returns the defect of the Bundle. For a transaction, also returns the first defect of an entry.
    pub fn plan(
        &self,
        body: &[u8],
        new_id: impl FnMut() -> String,
        now: Timestamp,
    ) -> Result<TransactionPlan, ResourceBodyError> {
        let rules = PlanRules { resource: self.rules(), import: None };
        let plan = self.plan_by(rules, body, new_id, now)?;
        plan.irregular().for_each(PreparedResource::log_defects);
        Ok(plan)
    }

    /// Like [`Resources::plan`], with other rules.
    pub(crate) fn plan_by(
        &self,
        rules: PlanRules,
        body: &[u8],
        mut new_id: impl FnMut() -> String,
        now: Timestamp,
    ) -> Result<TransactionPlan, ResourceBodyError> {
        if body.len() > rules.resource.bytes {
            return Err(ResourceBodyError::TooBig { limit: rules.resource.bytes });
        }
        let head =
            bundle::ResourceHead::of(body).and_then(|head| head.kind).ok_or(ResourceBodyError::NoType)?;
        if head != "Bundle" {
            return Err(ResourceBodyError::WrongType {
                expected: "Bundle".to_owned(),
                found: head.into_owned(),
            });
        }
        let bundle = bundle::parse(body)?;
        let is_transaction = match &*bundle.kind {
            "transaction" => true,
            "batch" => false,
            other => return Err(ResourceBodyError::BundleType(other.to_owned())),
        };
        let bundle_time = bundle.last_updated();
        let (mut operations, mut searches, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for (position, entry) in bundle.entry.into_iter().enumerate() {
            if is_transaction {
                others.push((position, entry));
            } else if let Some(operation) = BundleOperation::of(position, &entry) {
                operations.push(operation);
            } else if let Some(search) = BundleSearch::of(position, &entry) {
                searches.push(search);
            } else {
                others.push((position, entry));
            }
        }
        let (positions, entries): (Vec<usize>, Vec<BundleEntry<'_>>) = others.into_iter().unzip();
        let mut targets: Vec<_> =
            entries.iter().map(|entry| Target::of(entry, self, &mut new_id, now)).collect();
        if rules.import.is_some() {
            for (target, entry) in targets.iter_mut().zip(&entries) {
                if let (Ok(target), Ok(Some((_, id)))) = (target, bundle::place(entry, &mut new_id)) {
                    target.keep_id(id);
                }
            }
        }
        // Entries of a batch are independent, so that they cannot refer to each other by fullUrl.
        let names = if is_transaction { names(&entries, &targets) } else { RenamedReferences::new() };
        let plan = targets.into_iter().zip(&entries).map(|(target, entry)| {
            let target = target?;
            let prepared = match target.action {
                EntryAction::Delete | EntryAction::Read => None,
                EntryAction::Create | EntryAction::Update => {
                    let text = entry.resource.ok_or(ResourceBodyError::Entry("it has no resource"))?.get();
                    let id = match target.action {
                        EntryAction::Create => IdSource::Given(&target.id),
                        _ if target.condition.is_some() => IdSource::Given(&target.id),
                        _ => IdSource::Same(&target.id),
                    };
                    Some(prepare_named(
                        text.as_bytes(),
                        Some(target.kind),
                        id,
                        &rules.resource,
                        self.fhir_base(),
                        Some(&names),
                    )?)
                }
            };
            let Target { action, kind, id, expect, condition } = target;
            let source_time = prepared.as_ref().map_or(bundle_time, |prepared| prepared.last_updated);
            Ok(PlannedEntry {
                action,
                kind,
                id,
                expect,
                condition,
                guard: None,
                created_for: None,
                prepared,
                import: rules.import,
                source_time: rules.import.and(source_time),
            })
        });
        let entries: Vec<Result<PlannedEntry, ResourceBodyError>> = positions
            .into_iter()
            .zip(plan)
            .map(|(index, entry)| entry.map_err(|error: ResourceBodyError| error.in_entry(index)))
            .collect();
        let mut references = Vec::new();
        if is_transaction {
            let all: Result<Vec<_>, _> = entries.iter().map(Result::as_ref).collect();
            // A transaction fails as a whole before anything is read or written.
            let all = all.map_err(Clone::clone)?;
            if rules.import.is_none() {
                references = ConditionalReference::in_entries(&all, self.fhir_base(), now)?;
            }
            check_once(all)?;
        }
        Ok(TransactionPlan { is_transaction, entries, operations, searches, references })
    }

    /// Performs the writes of a plan and returns one result for each entry that reads or writes a resource.
    /// The reads are left to the caller: their results can be thousands of times larger than the Bundle.
    ///
    /// # Errors
    /// Returns the error of a transaction, which has then written nothing. Errors of a batch are in the
    /// results.
    pub async fn carry_out(
        &self,
        plan: TransactionPlan,
        now: Timestamp,
    ) -> Result<Vec<Result<EntryResult, ResourceError>>, ResourceError> {
        if plan.is_transaction {
            let entries: Result<Vec<PlannedEntry>, ResourceBodyError> = plan.entries.into_iter().collect();
            return self.commit(entries?, &plan.references, now).await;
        }
        let has_reads = plan.entries.iter().flatten().any(|entry| entry.action == EntryAction::Read);
        if has_reads {
            self.store().last_seq().await?;
        }
        let mut answers = Vec::with_capacity(plan.entries.len());
        for entry in plan.entries {
            match entry {
                // The state that the entries before it have left, and all acknowledged writes of other nodes.
                Ok(PlannedEntry { action: EntryAction::Read, kind, id, .. }) => {
                    let seq = self.store().heard_seq();
                    answers.push(Ok(EntryResult::Read(EntryRead { kind, id, at: seq })));
                }
                Ok(entry) => match self.commit(vec![entry], &[], now).await {
                    Ok(results) => answers.extend(results),
                    Err(error) => answers.push(Err(error)),
                },
                Err(error) => answers.push(Err(error.into())),
            }
        }
        Ok(answers)
    }

    /// Performs entries in one commit. If another request was faster than one that depends on a search, the
    /// searches are repeated.
    async fn commit(
        &self,
        entries: Vec<PlannedEntry>,
        references: &[ConditionalReference],
        now: Timestamp,
    ) -> Result<Vec<Result<EntryResult, ResourceError>>, ResourceError> {
        if references.is_empty() && !entries.iter().any(PlannedEntry::is_conditional) {
            return self.commit_once(entries, Vec::new(), now).await;
        }
        let mut searches = 0;
        loop {
            let mut resolved = entries.clone();
            let checks = self.resolve(&mut resolved, references).await?;
            let result = self.commit_once(resolved, checks, now).await;
            searches += 1;
            if !is_overtaken(&result) || searches == MAX_SEARCHES {
                return result;
            }
        }
    }

    /// Performs entries in one commit, if the conditions hold. After the commit, only reads can fail, and
    /// each failure affects only its own entry.
    async fn commit_once(
        &self,
        mut entries: Vec<PlannedEntry>,
        checks: Vec<VersionWrite>,
        now: Timestamp,
    ) -> Result<Vec<Result<EntryResult, ResourceError>>, ResourceError> {
        // The conditions come first: they are about the state before the writes.
        let check_count = checks.len();
        let writes = checks.into_iter().chain(entries.iter_mut().filter_map(PlannedEntry::write)).collect();
        let commit = self.store().commit(writes, now).await?;
        let mut effects = commit.written.into_iter().skip(check_count);
        let mut results = Vec::with_capacity(entries.len());
        for entry in entries {
            let is_left_out = entry.is_left_out();
            let PlannedEntry { action, kind, id, .. } = entry;
            if action == EntryAction::Read {
                // Reads return the resources in their state after the commit.
                results.push(Ok(EntryResult::Read(EntryRead { kind, id, at: commit.seq })));
                continue;
            }
            let effect = if is_left_out { None } else { effects.next() };
            if effect.is_some_and(|item| item.effect == WriteEffect::Outdated) {
                results.push(Ok(EntryResult::Outdated(kind)));
                continue;
            }
            if action == EntryAction::Delete {
                let deletion = match effect.map(|item| item.effect) {
                    Some(WriteEffect::Deleted) => self.deletion(kind, &id, commit.seq).await,
                    _ => Ok(DeleteResult::WasAbsent),
                };
                results.push(deletion.map(EntryResult::Deleted));
                continue;
            }
            let version = self.store().read(&ResourceKey::new(kind, &*id), commit.seq).await;
            let resource = version.map_err(Into::into).and_then(|version| stored(kind, &id, version));
            let resource = resource.map(|body| StoredResource { bytes: Bytes::new(), ..body });
            results.push(resource.map(|resource| match effect.map(|item| item.effect) {
                None | Some(WriteEffect::Nothing) => EntryResult::Found(resource),
                Some(WriteEffect::Created) => EntryResult::Created(resource),
                Some(_) => EntryResult::Updated(resource),
            }));
        }
        Ok(results)
    }
}

impl Resources {
    /// Reads the resource of an entry.
    ///
    /// # Errors
    /// See [`Resources::read`].
    pub async fn read_entry(&self, read: &EntryRead) -> Result<StoredResource, ResourceError> {
        let version = self.store().read(&ResourceKey::new(read.kind, &*read.id), read.at).await?;
        stored(read.kind, &read.id, version)
    }
}

/// The target in the request of an entry.
struct Target {
    action: EntryAction,
    kind: &'static str,
    id: String,
    expect: ExpectVersion,
    condition: Option<EntryCondition>,
}

impl Target {
    /// Gives a create the id of its resource, which may exist unless the create is conditional.
    fn keep_id(&mut self, id: String) {
        if self.action == EntryAction::Create {
            self.id = id;
            self.expect = if self.condition.is_none() { ExpectVersion::Any } else { self.expect };
        }
    }

    fn of(
        entry: &BundleEntry<'_>,
        resources: &Resources,
        new_id: &mut impl FnMut() -> String,
        now: Timestamp,
    ) -> Result<Self, ResourceBodyError> {
        let wrong = |reason| Err(ResourceBodyError::Entry(reason));
        let Some(request) = &entry.request else {
            return wrong("it has no request");
        };
        let EntryRequest { method, if_match, if_none_match, if_none_exist, .. } = request;
        let action = match &**method {
            "POST" => EntryAction::Create,
            "PUT" => EntryAction::Update,
            "DELETE" => EntryAction::Delete,
            "GET" => EntryAction::Read,
            _ => return wrong("its method must be DELETE, GET, POST or PUT"),
        };
        let url = request.relative_url();
        if operation::is_operation(url) {
            return wrong("operations are accepted only in a batch, by GET or POST");
        }
        // The search of a conditional entry is in the URL, except that of a conditional create.
        let (url, search) = match (url.split_once('?'), if_none_exist) {
            (None, None) => (url, None),
            (None, Some(search)) if action == EntryAction::Create => (url, Some(&**search)),
            (Some((url, search)), None) if matches!(action, EntryAction::Update | EntryAction::Delete) => {
                (url, Some(search))
            }
            (Some(_), None) => return wrong("searches are accepted only in a batch, by GET"),
            (_, Some(_)) => return wrong("ifNoneExist is accepted only with a POST to a resource type"),
        };
        if action == EntryAction::Create && if_match.is_some() {
            return wrong("ifMatch is not accepted with a POST, because the resource is new");
        }
        let must_be_absent = if_none_match.is_some();
        if if_none_match.as_deref().is_some_and(|tag| tag.trim() != "*" || action != EntryAction::Update)
            || (must_be_absent && (if_match.is_some() || search.is_some()))
        {
            return wrong("ifNoneMatch is accepted as \"*\" with a PUT to a type and an id, without ifMatch");
        }
        let if_match =
            if_match.as_deref().map(version_of_etag).transpose().map_err(ResourceBodyError::Entry)?;
        let (kind, id) = match (action, search, url.split_once('/')) {
            (EntryAction::Create, _, Some(_)) => return wrong("the url of a POST is a resource type"),
            (EntryAction::Create, _, None) | (_, Some(_), None) => (url, None),
            (_, None, Some((kind, id))) if fhir::is_id(id) => (kind, Some(id.to_owned())),
            (_, Some(_), Some(_)) => return wrong("its url is a resource type and a search"),
            _ => return wrong("the url of a DELETE, GET or PUT is a resource type and an id"),
        };
        let kind = fhir::resource_type(kind)
            .ok_or(ResourceBodyError::Entry("its url does not name a resource type of FHIR R4"))?;
        let condition =
            search.map(|search| EntryCondition::read(entry, action, kind, search, if_match, resources, now));
        let condition = condition.transpose()?;
        let own = condition.as_ref().and_then(EntryCondition::own_id).map(str::to_owned);
        let expect = match (action, if_match) {
            (EntryAction::Create, _) => ExpectVersion::Absent,
            _ if must_be_absent => ExpectVersion::Absent,
            (_, Some(version)) => ExpectVersion::Version(version),
            (_, None) => ExpectVersion::Any,
        };
        Ok(Self { action, kind, id: id.or(own).unwrap_or_else(new_id), expect, condition })
    }
}

/// Parses the version number in `W/"3"`, the form of entity tags in FHIR.
fn version_of_etag(tag: &str) -> Result<u64, &'static str> {
    let quoted = tag.strip_prefix("W/").unwrap_or(tag);
    let number = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    number.and_then(|number| number.parse().ok()).ok_or("its ifMatch is not of the form W/\"3\"")
}

fn names(entries: &[BundleEntry<'_>], targets: &[Result<Target, ResourceBodyError>]) -> RenamedReferences {
    let places: Vec<_> = targets
        .iter()
        .map(|target| Some((target.as_ref().ok()?.kind, target.as_ref().ok()?.id.clone())))
        .collect();
    bundle::names(entries, &places)
}
