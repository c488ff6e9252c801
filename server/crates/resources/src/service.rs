//! One resource at a time: create, update, delete, read, history (FHIR R4, RESTful API).

use std::sync::{Arc, RwLock};

use bytes::Bytes;
use jiff::Timestamp;
use store::{
    ExpectVersion, PageLimit, ResourceKey, Seq, Store, Version, VersionWrite, Versions, WriteEffect,
};
use tokio::sync::{Mutex, MutexGuard};

use crate::prepare::{IdSource, PreparedResource, ResourceLimits, prepare};
use crate::{ResourceBodyError, ResourceError};

/// The resources in a store. Cheap to clone.
#[derive(Clone)]
pub struct Resources {
    store: Store,
    limits: Arc<RwLock<ResourceLimits>>,
    /// Address of the FHIR side; empty where none is known.
    fhir_base: Arc<str>,
    /// Conditional requests go one after the other: of two alike the second finds what the first wrote.
    conditional: Arc<Mutex<()>>,
}

/// A stored version of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResource {
    /// The resource type.
    pub kind: &'static str,
    /// The id.
    pub id: String,
    /// `meta.versionId`.
    pub version: u64,
    /// `meta.lastUpdated`.
    pub updated: Timestamp,
    /// The compartments of the version, such as `Patient/p`.
    pub compartments: Vec<String>,
    /// The resource as JSON, ready to be sent.
    pub bytes: Bytes,
}

/// Precondition of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedVersion {
    /// Whatever there is.
    Anything,
    /// A resource, in any version.
    Present,
    /// No resource.
    Absent,
    /// This version.
    Version(u64),
}

impl From<Option<u64>> for ExpectedVersion {
    /// A version, or whatever there is.
    fn from(version: Option<u64>) -> Self {
        version.map_or(Self::Anything, Self::Version)
    }
}

/// Result of an update.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenResource {
    /// The current version.
    pub stored: StoredResource,
    /// Did it not exist before?
    pub created: bool,
}

/// The version that a delete adds to a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tombstone {
    /// The resource type.
    pub kind: &'static str,
    /// The id.
    pub id: String,
    /// The number of the version.
    pub version: u64,
    /// The compartments of the deleted version.
    pub compartments: Vec<String>,
}

/// Result of a delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeleteResult {
    /// The resource is deleted now.
    Deleted(Tombstone),
    /// There was nothing to delete.
    WasAbsent,
}

impl Resources {
    /// Resources in this store, with the usual limits. Absolute references are to other servers.
    pub fn new(store: Store) -> Self {
        Self::at(store, "")
    }

    /// Resources in this store; absolute references below this address of the FHIR side are to them.
    pub fn at(store: Store, fhir_base: &str) -> Self {
        Self { store, limits: Arc::default(), fhir_base: fhir_base.into(), conditional: Arc::default() }
    }

    /// Address of the FHIR side; empty where none is known.
    pub fn fhir_base(&self) -> &str {
        &self.fhir_base
    }

    /// Sets the limits of a resource for all clones.
    ///
    /// # Panics
    /// Never: no thread panics while it holds the lock.
    pub fn set_limits(&self, limits: ResourceLimits) {
        *self.limits.write().expect("no thread panics while it holds the lock") = limits;
    }

    /// Returns the limits of a resource.
    ///
    /// # Panics
    /// Never: no thread panics while it holds the lock.
    pub fn limits(&self) -> ResourceLimits {
        *self.limits.read().expect("no thread panics while it holds the lock")
    }

    pub(crate) async fn one_conditional(&self) -> MutexGuard<'_, ()> {
        self.conditional.lock().await
    }

    /// The store, for those who scan: its keys are type and id.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Adds a resource under an id that the caller chose; an id in the body is replaced.
    ///
    /// # Errors
    /// [`ResourceError::Body`]; [`ResourceError::VersionConflict`] where the id is taken.
    pub async fn create(
        &self,
        kind: &'static str,
        id: String,
        body: impl AsRef<[u8]>,
        now: Timestamp,
    ) -> Result<StoredResource, ResourceError> {
        let prepared =
            prepare(body.as_ref(), Some(kind), IdSource::Given(&id), &self.limits(), &self.fhir_base)?;
        // The caller's copy is dropped before the store makes its own.
        drop(body);
        Ok(self.put(prepared, ExpectVersion::Absent, now).await?.stored)
    }

    /// Writes a new version of a resource, or the first one. The body must have the same id.
    ///
    /// # Errors
    /// [`ResourceError::Body`]; [`ResourceError::VersionConflict`] where it is not as expected.
    pub async fn update(
        &self,
        kind: &'static str,
        id: &str,
        body: impl AsRef<[u8]>,
        expected: impl Into<ExpectedVersion>,
        now: Timestamp,
    ) -> Result<WrittenResource, ResourceError> {
        if !fhir::is_id(id) {
            return Err(ResourceBodyError::BadId(id.to_owned()).into());
        }
        let prepared =
            prepare(body.as_ref(), Some(kind), IdSource::Same(id), &self.limits(), &self.fhir_base)?;
        drop(body);
        self.put(prepared, self.condition(kind, id, expected.into()).await?, now).await
    }

    /// Converts the precondition for the store.
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
                Ok(stored) => ExpectVersion::Version(stored.version),
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
        let PreparedResource { kind, id, draft, compartments } = prepared;
        let key = ResourceKey::new(kind, &*id);
        let write = VersionWrite::put(key.clone(), draft, compartments).expecting(expect);
        let commit = self.store.commit(vec![write], now).await?;
        let created = commit.written.iter().any(|written| written.effect == WriteEffect::Created);
        let version = self.store.read(&key, commit.seq).await?;
        Ok(WrittenResource { stored: stored(kind, &id, version)?, created })
    }

    /// Deletes a resource; its versions stay readable.
    ///
    /// # Errors
    /// [`ResourceError::VersionConflict`] where it is not as expected.
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

    /// Reads the tombstone that a commit has written.
    pub(crate) async fn deletion(
        &self,
        kind: &'static str,
        id: &str,
        at: Seq,
    ) -> Result<DeleteResult, ResourceError> {
        let tombstone = self.store.read(&ResourceKey::new(kind, id), at).await?;
        let Some(Version { version, compartments, .. }) = tombstone else {
            return Err(ResourceError::NotFound { kind: kind.to_owned(), id: id.to_owned() });
        };
        Ok(DeleteResult::Deleted(Tombstone { kind, id: id.to_owned(), version, compartments }))
    }

    /// The newest version of a resource.
    ///
    /// # Errors
    /// [`ResourceError::NotFound`], [`ResourceError::Gone`].
    pub async fn read(&self, kind: &'static str, id: &str) -> Result<StoredResource, ResourceError> {
        stored(kind, id, self.store.read(&ResourceKey::new(kind, id), Seq::LATEST).await?)
    }

    /// One version of a resource.
    ///
    /// # Errors
    /// [`ResourceError::NotFound`], [`ResourceError::Gone`] where this version is a delete.
    pub async fn read_version(
        &self,
        kind: &'static str,
        id: &str,
        version: u64,
    ) -> Result<StoredResource, ResourceError> {
        match self.version(kind, id, version).await? {
            Some(found) => stored(kind, id, Some(found)),
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
            if let Some(found) = page.into_iter().find(|found| found.version == version) {
                return Ok(Some(found));
            }
        }
    }

    /// The versions of a resource, tombstones included, the newest first, beginning before the sequence
    /// number `before` ([`Seq::LATEST`] for the first page). Empty where nothing is left.
    ///
    /// # Errors
    /// [`ResourceError::Store`].
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

/// Converts a version that was read, or explains why it cannot be returned.
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
