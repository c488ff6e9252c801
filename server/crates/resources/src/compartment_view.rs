//! Resources restricted to what a caller may see: all, the compartments of some Patients, or some ids of a type.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use store::{ExpectVersion, Limit, ResourceKey, Seq, Version, Versions};

use crate::prepare::{Id, Prepared, prepare};
use crate::service::{Written, stored};
use crate::{BodyError, Deletion, Expected, ResourceError, Resources, Stored, compartment};

/// What a caller may see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Restriction {
    /// All resources.
    #[default]
    None,
    /// Resources in these compartments: `Patient/p1`, …; sorted.
    Compartments(Arc<[String]>),
    /// Resources with these ids, which the caller may read and not write.
    ReadOnly(Arc<[String]>),
}

impl Restriction {
    /// The compartments of the Patients with these ids.
    pub fn patients<'a>(ids: impl IntoIterator<Item = &'a str>) -> Self {
        let mut compartments: Vec<_> = ids.into_iter().map(|id| format!("Patient/{id}")).collect();
        compartments.sort_unstable();
        compartments.dedup();
        Self::Compartments(compartments.into())
    }
}

/// A view of the resources under a [`Restriction`]. A resource outside is reported as missing; it is neither read nor
/// replaced, and none can be created outside. A resource that is also in the compartment of another Patient is read, but
/// not written.
#[derive(Clone)]
pub struct CompartmentView<'a> {
    resources: &'a Resources,
    restriction: Restriction,
}

impl Resources {
    /// The view under a restriction.
    pub fn restricted_to(&self, restriction: Restriction) -> CompartmentView<'_> {
        CompartmentView { resources: self, restriction }
    }
}

/// Whether a sorted list of compartments has this one.
fn has(compartments: &[String], wanted: &str) -> bool {
    compartments.binary_search_by(|own| own.as_str().cmp(wanted)).is_ok()
}

impl CompartmentView<'_> {
    pub(crate) fn resources(&self) -> &Resources {
        self.resources
    }

    pub(crate) fn restriction(&self) -> &Restriction {
        &self.restriction
    }

    fn is_unrestricted(&self) -> bool {
        self.restriction == Restriction::None
    }

    /// Whether the view contains a resource with this id and these compartments.
    pub(crate) fn contains(&self, id: &str, compartments: &[String]) -> bool {
        match &self.restriction {
            Restriction::None => true,
            Restriction::Compartments(own) => compartments.iter().any(|c| has(own, c)),
            Restriction::ReadOnly(ids) => ids.iter().any(|own| own == id),
        }
    }

    fn contains_version(&self, version: &Version) -> bool {
        self.contains(&version.key.id, &version.compartments)
    }

    /// Whether the caller may write a resource with these compartments: it is inside, and in the compartment of no other
    /// Patient. Otherwise the performer of an observation could write one of any subject.
    fn may_write(&self, compartments: &[String]) -> bool {
        match &self.restriction {
            Restriction::None => true,
            Restriction::Compartments(own) => {
                let mut patients = compartments.iter().filter(|c| c.starts_with("Patient/"));
                compartments.iter().any(|c| has(own, c)) && patients.all(|c| has(own, c))
            }
            Restriction::ReadOnly(_) => false,
        }
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

    /// Checks that the targets of a Provenance are inside: an export of a Patient contains the Provenance of each of its
    /// resources, so one about another Patient's resource would be written into that Patient's data.
    async fn check_targets(&self, prepared: &Prepared) -> Result<(), ResourceError> {
        if self.is_unrestricted() || prepared.kind != "Provenance" {
            return Ok(());
        }
        let outside = || ResourceError::Outside { kind: prepared.kind.to_owned(), id: prepared.id.clone() };
        let provenance: Provenance = serde_json::from_slice(&prepared.draft.bytes).map_err(|_| outside())?;
        for target in provenance.target {
            let reference = target.reference.as_deref();
            let local =
                reference.and_then(|reference| compartment::local(reference, self.resources.fhir_base()));
            let Some((kind, id)) = local else { continue };
            // Patients were compared when the compartments were checked.
            if kind == "Patient" {
                continue;
            }
            let version = self.newest(kind, id).await?;
            if !version.is_some_and(|version| !version.is_deleted() && self.contains_version(&version)) {
                return Err(outside());
            }
        }
        Ok(())
    }

    async fn newest(&self, kind: &'static str, id: &str) -> Result<Option<Version>, ResourceError> {
        Ok(self.resources.store().read(&ResourceKey::new(kind, id), Seq::LATEST).await?)
    }

    /// The newest version of a resource, where it lies inside.
    ///
    /// # Errors
    /// [`ResourceError::NotFound`], also for what lies outside; [`ResourceError::Gone`].
    pub async fn read(&self, kind: &'static str, id: &str) -> Result<Stored, ResourceError> {
        if self.is_unrestricted() {
            return self.resources.read(kind, id).await;
        }
        let version = self.newest(kind, id).await?.filter(|version| self.contains_version(version));
        stored(kind, id, version)
    }

    /// One version of a resource, where that version lies inside.
    ///
    /// # Errors
    /// As of [`CompartmentView::read`].
    pub async fn read_version(
        &self,
        kind: &'static str,
        id: &str,
        version: u64,
    ) -> Result<Stored, ResourceError> {
        if self.is_unrestricted() {
            return self.resources.read_version(kind, id, version).await;
        }
        let found = self.resources.version(kind, id, version).await?;
        stored(kind, id, found.filter(|version| self.contains_version(version)))
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
        let seen: Vec<_> = page.into_iter().filter(|version| self.contains_version(version)).collect();
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
        self.check_targets(&prepared).await?;
        Ok(self.resources.put(prepared, ExpectVersion::Absent, now).await?.stored)
    }

    /// Replaces a resource of the view; see [`Resources::update`]. Under a restriction it creates none: the answer would
    /// reveal whether the id is taken outside.
    ///
    /// # Errors
    /// Returns [`ResourceError::Outside`] if the new version, or what is stored under the id, is not in the view.
    pub async fn update(
        &self,
        kind: &'static str,
        id: &str,
        body: impl AsRef<[u8]>,
        expected: impl Into<Expected>,
        now: Timestamp,
    ) -> Result<Written, ResourceError> {
        if self.is_unrestricted() {
            return self.resources.update(kind, id, body, expected, now).await;
        }
        if !fhir::is_id(id) {
            return Err(BodyError::BadId(id.to_owned()).into());
        }
        let prepared = self.prepared(body.as_ref(), kind, Id::Same(id))?;
        drop(body);
        self.check_targets(&prepared).await?;
        let target = self.write_target(kind, id).await?;
        let Some(expect) = target.precondition(kind, id, expected.into())? else {
            return Err(ResourceError::Outside { kind: kind.to_owned(), id: id.to_owned() });
        };
        self.resources.put(prepared, expect, now).await
    }

    /// Writes a new version of a resource that was found.
    pub(crate) async fn replace(
        &self,
        kind: &'static str,
        found: &Stored,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Written, ResourceError> {
        let prepared = self.prepared(body, kind, Id::Given(&found.id))?;
        self.check_targets(&prepared).await?;
        let outside = || ResourceError::Outside { kind: kind.to_owned(), id: found.id.clone() };
        let expect = match self.is_unrestricted() {
            true => ExpectVersion::Version(found.version),
            false => {
                let target = self.write_target(kind, &found.id).await?;
                target.precondition(kind, &found.id, Expected::Version(found.version))?.ok_or_else(outside)?
            }
        };
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
        if self.is_unrestricted() {
            return self.resources.delete(kind, id, expected, now).await;
        }
        match self.write_target(kind, id).await?.precondition(kind, id, expected.into())? {
            Some(ExpectVersion::Version(found)) => {
                self.resources.delete(kind, id, Expected::Version(found), now).await
            }
            _ => Ok(Deletion::WasAbsent),
        }
    }

    pub(crate) fn inside(&self, prepared: Prepared) -> Result<Prepared, ResourceError> {
        if self.may_write(&prepared.compartments) {
            return Ok(prepared);
        }
        Err(ResourceError::Outside { kind: prepared.kind.to_owned(), id: prepared.id })
    }

    /// Finds what the caller would replace. Whether an id outside exists is not revealed: it is reported like a free one.
    pub(crate) async fn write_target(
        &self,
        kind: &'static str,
        id: &str,
    ) -> Result<WriteTarget, ResourceError> {
        match self.newest(kind, id).await? {
            Some(version) if self.may_write(&version.compartments) => Ok(match version.is_deleted() {
                true => WriteTarget::Tombstone,
                false => WriteTarget::Version(version.version),
            }),
            Some(version) if !version.is_deleted() && self.contains_version(&version) => {
                Err(ResourceError::Outside { kind: kind.to_owned(), id: id.to_owned() })
            }
            _ => Ok(WriteTarget::Unseen),
        }
    }
}

/// What a restricted caller finds under an id that it writes.
pub(crate) enum WriteTarget {
    /// This version, which may be replaced. The write is bound to it, so that the resource cannot leave the view in
    /// between.
    Version(u64),
    /// A deleted resource of the view.
    Tombstone,
    /// No resource, or one outside.
    Unseen,
}

impl WriteTarget {
    /// The precondition of a write under this id; `None` if the target is unseen.
    fn precondition(
        &self,
        kind: &str,
        id: &str,
        expected: Expected,
    ) -> Result<Option<ExpectVersion>, ResourceError> {
        let conflict = || ResourceError::VersionConflict { key: format!("{kind}/{id}") };
        Ok(Some(match (self, expected) {
            (Self::Version(version), Expected::Anything | Expected::Present) => {
                ExpectVersion::Version(*version)
            }
            (Self::Version(_) | Self::Tombstone, Expected::Version(version)) => {
                ExpectVersion::Version(version)
            }
            (Self::Version(_), Expected::Absent) => return Err(conflict()),
            (Self::Tombstone, Expected::Anything | Expected::Absent) => ExpectVersion::Absent,
            (Self::Tombstone | Self::Unseen, Expected::Present) => return Err(conflict()),
            (Self::Unseen, Expected::Version(_)) => return Err(conflict()),
            (Self::Unseen, Expected::Anything | Expected::Absent) => return Ok(None),
        }))
    }
}

/// The targets of a Provenance.
#[derive(Deserialize)]
struct Provenance {
    #[serde(default)]
    target: Vec<Reference>,
}

#[derive(Deserialize)]
struct Reference {
    reference: Option<String>,
}
