//! Operations on single resources: create, update, delete, read and history (FHIR R4, RESTful API).

use std::sync::{Arc, RwLock};

use bytes::Bytes;
use jiff::Timestamp;
use store::{
    ExpectVersion, PageLimit, ResourceKey, Seq, Store, StoreError, Version, VersionWrite, Versions,
    WriteEffect,
};

use crate::ResourceError;
use crate::search::type_counts::TypeCounts;
use crate::write::prepare::{IdSource, PreparedResource, ResourceRules, check_id, prepare};
use crate::write::search_guard::SearchGuard;

/// The resources in a store. Clones share the same state and are cheap.
#[derive(Clone)]
pub struct Resources {
    store: Store,
    rules: Arc<RwLock<ResourceRules>>,
    /// Base URL of the FHIR interface; empty if it is not known.
    fhir_base: Arc<str>,
    counts: TypeCounts,
}

/// A stored version of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResource {
    /// The resource type.
    pub kind: &'static str,
    /// The id of the resource.
    pub id: String,
    /// `meta.versionId`.
    pub version: u64,
    /// `meta.lastUpdated`.
    pub updated: Timestamp,
    /// The compartments of the version, such as `Patient/p`.
    pub compartments: Vec<String>,
    /// The resource as JSON, as it is sent to clients.
    pub bytes: Bytes,
}

/// Precondition of a write on the stored resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedVersion {
    /// No precondition.
    Anything,
    /// The resource exists, in any version.
    Present,
    /// The resource does not exist.
    Absent,
    /// The newest version has this number.
    Version(u64),
}

impl ExpectedVersion {
    /// Returns whether a resource with this newest version meets the precondition; `None` if there is none.
    pub(crate) fn is_met(self, version: Option<u64>) -> bool {
        match self {
            Self::Anything => true,
            Self::Present => version.is_some(),
            Self::Absent => version.is_none(),
            Self::Version(expected) => version == Some(expected),
        }
    }
}

impl From<Option<u64>> for ExpectedVersion {
    /// Converts a version number to a precondition. `None` means no precondition.
    fn from(version: Option<u64>) -> Self {
        version.map_or(Self::Anything, Self::Version)
    }
}

/// Result of an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenResource {
    /// The version that was written.
    pub stored: StoredResource,
    /// `true` if the resource did not exist before.
    pub created: bool,
}

/// The version that a delete adds to a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// The resource type.
    pub kind: &'static str,
    /// The id of the resource.
    pub id: String,
    /// Number of the version.
    pub version: u64,
    /// Compartments of the deleted version.
    pub compartments: Vec<String>,
}

/// Result of a delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeleteResult {
    /// The delete added this tombstone.
    Deleted(Tombstone),
    /// The resource did not exist or was already deleted.
    WasAbsent,
}

impl Resources {
    /// Creates the service on a store with the default rules. All absolute references are to other servers.
    pub fn new(store: Store) -> Self {
        Self::at(store, "")
    }

    /// Creates the service on a store. Absolute references below the base URL `fhir_base` are to resources in
    /// this store.
    pub fn at(store: Store, fhir_base: &str) -> Self {
        Self { store, rules: Arc::default(), fhir_base: fhir_base.into(), counts: TypeCounts::default() }
    }

    /// The number of resources of a type. It follows the changes since the last call.
    ///
    /// # Errors
    /// Returns the error of the store.
    pub async fn count(&self, kind: &'static str) -> Result<u64, StoreError> {
        self.counts.of(&self.store, kind).await
    }

    /// The base URL of the FHIR interface; empty if it is not known.
    pub fn fhir_base(&self) -> &str {
        &self.fhir_base
    }

    /// Sets the rules for one resource, for all clones.
    ///
    /// # Panics
    /// Does not panic, because no thread panics while it holds the lock.
    pub fn set_rules(&self, rules: ResourceRules) {
        *self.rules.write().expect("no thread panics while it holds the lock") = rules;
    }

    /// The rules for one resource.
    ///
    /// # Panics
    /// Does not panic, because no thread panics while it holds the lock.
    pub fn rules(&self) -> ResourceRules {
        *self.rules.read().expect("no thread panics while it holds the lock")
    }

    /// The store, for scans. Its keys consist of type and id.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Creates a resource with an id that the caller has chosen. An id in the body is replaced.
    ///
    /// # Errors
    /// Returns [`ResourceError::Body`] if the body is invalid, [`ResourceError::VersionConflict`] if the id
    /// is in use, or a store error.
    pub async fn create(
        &self,
        kind: &'static str,
        id: String,
        body: impl AsRef<[u8]>,
        now: Timestamp,
    ) -> Result<StoredResource, ResourceError> {
        let prepared =
            prepare(body.as_ref(), Some(kind), IdSource::Given(&id), &self.rules(), &self.fhir_base)?;
        // The body is dropped before the store allocates its copy.
        drop(body);
        Ok(self.put(prepared, ExpectVersion::Absent, now).await?.stored)
    }

    /// Writes a new version of a resource, or its first version. The body must contain the same id.
    ///
    /// # Errors
    /// Returns [`ResourceError::Body`] if the body is invalid, [`ResourceError::VersionConflict`] if the
    /// precondition does not hold, or a store error.
    pub async fn update(
        &self,
        kind: &'static str,
        id: &str,
        body: impl AsRef<[u8]>,
        expected: impl Into<ExpectedVersion>,
        now: Timestamp,
    ) -> Result<WrittenResource, ResourceError> {
        check_id(id, self.rules().ids)?;
        let prepared =
            prepare(body.as_ref(), Some(kind), IdSource::Same(id), &self.rules(), &self.fhir_base)?;
        drop(body);
        self.put(prepared, self.condition(kind, id, expected.into()).await?, now).await
    }

    /// Converts a precondition to a condition of the store.
    async fn condition(
        &self,
        kind: &'static str,
        id: &str,
        expected: ExpectedVersion,
    ) -> Result<ExpectVersion, ResourceError> {
        Ok(match expected {
            ExpectedVersion::Anything => ExpectVersion::Any,
            ExpectedVersion::Absent => ExpectVersion::Absent,
            ExpectedVersion::Version(version) => ExpectVersion::Version(version),
            ExpectedVersion::Present => match self.read(kind, id).await {
                Ok(resource) => ExpectVersion::Version(resource.version),
                Err(ResourceError::Store(error)) => return Err(error.into()),
                Err(_) => return Err(ResourceError::VersionConflict { key: format!("{kind}/{id}") }),
            },
        })
    }

    pub(crate) async fn put(
        &self,
        prepared: PreparedResource,
        expect: ExpectVersion,
        now: Timestamp,
    ) -> Result<WrittenResource, ResourceError> {
        self.put_if(prepared, expect, None, now).await
    }

    /// Writes a resource under the condition of a search.
    pub(crate) async fn put_if(
        &self,
        prepared: PreparedResource,
        expect: ExpectVersion,
        guard: Option<SearchGuard>,
        now: Timestamp,
    ) -> Result<WrittenResource, ResourceError> {
        prepared.log_defects();
        let PreparedResource { kind, id, draft, compartments, terms, .. } = prepared;
        let key = ResourceKey::new(kind, &*id);
        let write = VersionWrite::put(key.clone(), draft, compartments).indexed(terms).expecting(expect);
        let write = match guard {
            Some(guard) => guard.apply(write),
            None => write,
        };
        let commit = self.store.commit(vec![write], now).await?;
        let created = commit.written.iter().any(|item| item.effect == WriteEffect::Created);
        let version = self.store.read(&key, commit.seq).await?;
        Ok(WrittenResource { stored: stored(kind, &id, version)?, created })
    }

    /// Deletes a resource. Its earlier versions can still be read.
    ///
    /// # Errors
    /// Returns [`ResourceError::VersionConflict`] if the precondition does not hold, or a store error.
    pub async fn delete(
        &self,
        kind: &'static str,
        id: &str,
        expected: impl Into<ExpectedVersion>,
        now: Timestamp,
    ) -> Result<DeleteResult, ResourceError> {
        let expect = self.condition(kind, id, expected.into()).await?;
        let write = VersionWrite::delete(ResourceKey::new(kind, id)).expecting(expect);
        let commit = self.store.commit(vec![write], now).await?;
        match commit.written[..] {
            [store::WriteResult { effect: WriteEffect::Deleted, .. }] => {
                self.deletion(kind, id, commit.seq).await
            }
            _ => Ok(DeleteResult::WasAbsent),
        }
    }

    /// The tombstone that a commit has written.
    pub(crate) async fn deletion(
        &self,
        kind: &'static str,
        id: &str,
        seq: Seq,
    ) -> Result<DeleteResult, ResourceError> {
        let tombstone = self.store.read(&ResourceKey::new(kind, id), seq).await?;
        let Some(Version { version, compartments, .. }) = tombstone else {
            return Err(ResourceError::NotFound { kind: kind.to_owned(), id: id.to_owned() });
        };
        Ok(DeleteResult::Deleted(Tombstone { kind, id: id.to_owned(), version, compartments }))
    }

    /// The newest version of a resource.
    ///
    /// # Errors
    /// Returns [`ResourceError::NotFound`] if the resource never existed, [`ResourceError::Gone`] if it is
    /// deleted, or a store error.
    pub async fn read(&self, kind: &'static str, id: &str) -> Result<StoredResource, ResourceError> {
        stored(kind, id, self.store.read(&ResourceKey::new(kind, id), Seq::LATEST).await?)
    }

    /// One version of a resource.
    ///
    /// # Errors
    /// Returns [`ResourceError::NotFound`] if the version does not exist, [`ResourceError::Gone`] if it is a
    /// tombstone, or a store error.
    pub async fn read_version(
        &self,
        kind: &'static str,
        id: &str,
        version: u64,
    ) -> Result<StoredResource, ResourceError> {
        match self.version(kind, id, version).await? {
            Some(version) => stored(kind, id, Some(version)),
            None => {
                let id = format!("{id}/_history/{version}");
                Err(ResourceError::NotFound { kind: kind.to_owned(), id })
            }
        }
    }

    pub(crate) async fn version(
        &self,
        kind: &'static str,
        id: &str,
        version: u64,
    ) -> Result<Option<Version>, ResourceError> {
        let mut before = Seq::LATEST;
        loop {
            let page = self.history(kind, id, before, PageLimit::default()).await?;
            let Some(last) = page.last() else { return Ok(None) };
            before = last.seq;
            if let Some(earlier) = page.into_iter().find(|earlier| earlier.version == version) {
                return Ok(Some(earlier));
            }
        }
    }

    /// Returns versions of a resource, including tombstones, newest first, starting before the sequence
    /// number `before` ([`Seq::LATEST`] for the first page). The result is empty after the last version.
    ///
    /// # Errors
    /// Returns [`ResourceError::Store`] if the read fails.
    pub async fn history(
        &self,
        kind: &'static str,
        id: &str,
        before: Seq,
        limit: PageLimit,
    ) -> Result<Vec<Version>, ResourceError> {
        Ok(self.store.history(&ResourceKey::new(kind, id), before, limit).await?)
    }
}

/// Converts a version of the store to a resource. Returns an error if the version does not exist or is a
/// tombstone.
pub(crate) fn stored(
    kind: &'static str,
    id: &str,
    version: Option<Version>,
) -> Result<StoredResource, ResourceError> {
    let Some(Version { version, updated, compartments, body, .. }) = version else {
        return Err(ResourceError::NotFound { kind: kind.to_owned(), id: id.to_owned() });
    };
    let Some(bytes) = body else {
        return Err(ResourceError::Gone { kind: kind.to_owned(), id: id.to_owned() });
    };
    Ok(StoredResource { kind, id: id.to_owned(), version, updated, compartments, bytes })
}
