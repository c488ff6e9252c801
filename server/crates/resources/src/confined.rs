//! Resources as a caller sees them: all, or the compartments of some Patients and nothing else.

use jiff::Timestamp;
use store::{ExpectVersion, Limit, ResourceKey, Seq, Version, Versions};

use crate::prepare::{Id, Prepared, prepare};
use crate::service::{Written, stored};
use crate::{BodyError, Deletion, Expected, ResourceError, Resources, Stored};

/// What a caller sees. What lies outside is not there: it is neither read nor replaced, and nothing can be put
/// there. What lies in somebody else's compartment as well is read, and not written.
#[derive(Clone)]
pub struct Confined<'a> {
    resources: &'a Resources,
    /// `Patient/p1`, …; `None` is all.
    compartments: Option<Vec<String>>,
}

impl Resources {
    /// The view of the compartments of the Patients with these ids; `None` of everything.
    pub fn confined_to(&self, patients: Option<Vec<&str>>) -> Confined<'_> {
        let compartments = patients.map(|ids| ids.into_iter().map(|id| format!("Patient/{id}")).collect());
        Confined { resources: self, compartments }
    }
}

impl Confined<'_> {
    pub(crate) fn resources(&self) -> &Resources {
        self.resources
    }

    /// The compartments that are seen; `None` is everything.
    pub(crate) fn compartments(&self) -> Option<&[String]> {
        self.compartments.as_deref()
    }

    pub(crate) fn holds(&self, compartments: &[String]) -> bool {
        self.compartments.as_ref().is_none_or(|mine| compartments.iter().any(|c| mine.contains(c)))
    }

    /// May the caller write it: does it lie inside, and in no other Patient's compartment besides? Else who
    /// performs an observation could write it of anybody.
    fn may_write(&self, compartments: &[String]) -> bool {
        let is_mine = |c: &String| self.compartments.as_ref().is_none_or(|mine| mine.contains(c));
        self.holds(compartments) && compartments.iter().filter(|c| c.starts_with("Patient/")).all(is_mine)
    }

    /// Prepares a resource that is to lie inside.
    pub(crate) fn prepared(
        &self,
        body: &[u8],
        kind: &'static str,
        id: Id<'_>,
    ) -> Result<Prepared, ResourceError> {
        let (limits, fhir_base) = (self.resources.limits(), self.resources.fhir_base());
        self.inside(prepare(body, Some(kind), id, &limits, fhir_base)?)
    }

    async fn newest(&self, kind: &'static str, id: &str) -> Result<Option<Version>, ResourceError> {
        Ok(self.resources.store().read(&ResourceKey::new(kind, id), Seq::LATEST).await?)
    }

    /// The newest version of a resource, where it lies inside.
    ///
    /// # Errors
    /// [`ResourceError::NotFound`], also for what lies outside; [`ResourceError::Gone`].
    pub async fn read(&self, kind: &'static str, id: &str) -> Result<Stored, ResourceError> {
        if self.compartments.is_none() {
            return self.resources.read(kind, id).await;
        }
        let version = self.newest(kind, id).await?.filter(|version| self.holds(&version.compartments));
        stored(kind, id, version)
    }

    /// One version of a resource, where that version lies inside.
    ///
    /// # Errors
    /// As of [`Confined::read`].
    pub async fn read_version(
        &self,
        kind: &'static str,
        id: &str,
        version: u64,
    ) -> Result<Stored, ResourceError> {
        if self.compartments.is_none() {
            return self.resources.read_version(kind, id, version).await;
        }
        let found = self.resources.version(kind, id, version).await?;
        stored(kind, id, found.filter(|version| self.holds(&version.compartments)))
    }

    /// The versions of a resource that lie inside, tombstones included, the newest first; see
    /// [`Resources::history`]. The second value says where to go on, where there may be more.
    ///
    /// # Errors
    /// [`ResourceError::NotFound`] where there is none on the first page.
    pub async fn history(
        &self,
        kind: &'static str,
        id: &str,
        before: Seq,
        limit: Limit,
    ) -> Result<(Vec<Version>, Option<Seq>), ResourceError> {
        let page = self.resources.history(kind, id, before, limit).await?;
        let next = page.last().filter(|last| last.version > 1).map(|last| last.seq);
        let seen: Vec<_> = page.into_iter().filter(|version| self.holds(&version.compartments)).collect();
        if seen.is_empty() && before == Seq::LATEST {
            return Err(ResourceError::NotFound { kind: kind.to_owned(), id: id.to_owned() });
        }
        // That there are versions outside is not told either.
        let next = next.filter(|_| !seen.is_empty());
        Ok((seen, next))
    }

    /// Adds a resource that lies inside; see [`Resources::create`].
    ///
    /// # Errors
    /// [`ResourceError::Outside`] where it would not.
    pub async fn create(
        &self,
        kind: &'static str,
        id: String,
        body: impl AsRef<[u8]>,
        now: Timestamp,
    ) -> Result<Stored, ResourceError> {
        let prepared = self.prepared(body.as_ref(), kind, Id::Given(&id))?;
        drop(body);
        Ok(self.resources.put(prepared, ExpectVersion::Absent, now).await?.stored)
    }

    /// Writes a version that lies inside over one that does, or where there is none; see
    /// [`Resources::update`].
    ///
    /// # Errors
    /// [`ResourceError::Outside`] where either does not.
    pub async fn update(
        &self,
        kind: &'static str,
        id: &str,
        body: impl AsRef<[u8]>,
        expected: impl Into<Expected>,
        now: Timestamp,
    ) -> Result<Written, ResourceError> {
        if self.compartments.is_none() {
            return self.resources.update(kind, id, body, expected, now).await;
        }
        if !fhir::is_id(id) {
            return Err(BodyError::BadId(id.to_owned()).into());
        }
        let prepared = self.prepared(body.as_ref(), kind, Id::Same(id))?;
        drop(body);
        let expect = self.expected(kind, id, expected.into()).await?;
        self.resources.put(prepared, expect, now).await
    }

    /// Deletes a resource that lies inside; see [`Resources::delete`].
    ///
    /// # Errors
    /// [`ResourceError::Outside`] where it does not.
    pub async fn delete(
        &self,
        kind: &'static str,
        id: &str,
        expected: impl Into<Expected>,
        now: Timestamp,
    ) -> Result<Deletion, ResourceError> {
        if self.compartments.is_none() {
            return self.resources.delete(kind, id, expected, now).await;
        }
        match self.expected(kind, id, expected.into()).await? {
            ExpectVersion::Version(judged) => {
                self.resources.delete(kind, id, Expected::Version(judged), now).await
            }
            ExpectVersion::Absent | ExpectVersion::Any => Ok(Deletion::WasAbsent),
        }
    }

    pub(crate) fn inside(&self, prepared: Prepared) -> Result<Prepared, ResourceError> {
        if self.may_write(&prepared.compartments) {
            return Ok(prepared);
        }
        Err(ResourceError::Outside { kind: prepared.kind.to_owned(), id: prepared.id })
    }

    /// The very version that was judged, so that nobody moves the resource outside in between.
    pub(crate) async fn expected(
        &self,
        kind: &'static str,
        id: &str,
        expected: Expected,
    ) -> Result<ExpectVersion, ResourceError> {
        match self.newest(kind, id).await? {
            // A tombstone keeps its compartments: what was somebody else's is not taken over.
            Some(version) if !self.may_write(&version.compartments) => {
                Err(ResourceError::Outside { kind: kind.to_owned(), id: id.to_owned() })
            }
            Some(version) if !version.is_deleted() => Ok(match expected {
                Expected::Anything | Expected::Present => ExpectVersion::Version(version.version),
                Expected::Absent => ExpectVersion::Absent,
                Expected::Version(expected) => ExpectVersion::Version(expected),
            }),
            _ => match expected {
                Expected::Anything | Expected::Absent => Ok(ExpectVersion::Absent),
                Expected::Version(expected) => Ok(ExpectVersion::Version(expected)),
                Expected::Present => Err(ResourceError::VersionConflict { key: format!("{kind}/{id}") }),
            },
        }
    }
}
