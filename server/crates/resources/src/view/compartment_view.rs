//! A view of the resources that a caller may access: all, those in the compartments of some Patients, or
//! those with some ids of a type.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde::Deserialize;
use store::{
    ChangePage, ChangeRecord, ChangesBefore, ExpectVersion, PageLimit, ResourceKey, Seq, Version, Versions,
    cpu_budget,
};

use crate::body::binary::security_context;
use crate::search::filter::TypeFilter;
use crate::search::index::referrers::local_targets;
use crate::view::referrers::ReferrerSearch;
use crate::view::relations;
use crate::view::restriction::{OtherTypes, Restriction, Visibility, has};
use crate::write::assignment::UNASSIGNED;
use crate::write::prepare::{IdSource, PreparedResource, check_id, prepare};
use crate::write::search_guard::SearchGuard;
use crate::write::service::{WrittenResource, stored};
use crate::{DeleteResult, ExpectedVersion, ResourceError, Resources, StoredResource, references};

/// Maximum number of versions, of other types too, that are examined for a page of the history of a type.
const EXAMINED: usize = 20_000;

/// A part of a view: the resources under a restriction that match a search, if one is given.
#[derive(Debug, Clone)]
pub struct ViewPart {
    /// The restriction of the part.
    pub restriction: Restriction,
    /// The search.
    pub filter: Option<TypeFilter>,
}

impl ViewPart {
    fn meets_search(&self, version: &Version) -> bool {
        let is_met = |filter: &TypeFilter| version.body.as_deref().is_some_and(|body| filter.is_met(body));
        self.filter.as_ref().is_none_or(is_met)
    }
}

/// The restrictions of a caller by resource type. A Binary with a `securityContext` of one of these types can
/// be read by the callers who may read that resource (FHIR R4, Binary).
pub type ContextRestrictions = HashMap<&'static str, Restriction>;

/// A view of the resources under a [`Restriction`]. A resource outside of the view is reported as missing. It
/// can be neither read nor replaced, and no resource can be created outside of the view. A resource that is
/// also in the compartment of another Patient can be read but not written.
#[derive(Clone)]
pub struct CompartmentView<'a> {
    resources: &'a Resources,
    restriction: Restriction,
    /// The restrictions of the caller by type, in a view of Binaries.
    contexts: Option<Arc<ContextRestrictions>>,
    /// Parts of the view, if one of them has a search. The restriction then contains all of them, and nothing
    /// can be written.
    parts: Option<Arc<[ViewPart]>>,
}

impl Resources {
    /// The view under a restriction.
    pub fn restricted_to(&self, restriction: Restriction) -> CompartmentView<'_> {
        CompartmentView { resources: self, restriction, contexts: None, parts: None }
    }

    /// The view of the resources of one type that are in at least one of these parts. Nothing can be written
    /// through it, unless its only part has no search.
    pub fn restricted_to_parts(&self, parts: Vec<ViewPart>) -> CompartmentView<'_> {
        if let [ViewPart { restriction, filter: None }] = &parts[..] {
            return self.restricted_to(restriction.clone());
        }
        let restriction = Restriction::union(parts.iter().map(|part| &part.restriction));
        CompartmentView { resources: self, restriction, contexts: None, parts: Some(parts.into()) }
    }
}

impl<'a> CompartmentView<'a> {
    pub(crate) fn resources(&self) -> &'a Resources {
        self.resources
    }

    pub(crate) fn restriction(&self) -> &Restriction {
        &self.restriction
    }

    pub(crate) fn is_unrestricted(&self) -> bool {
        self.restriction == Restriction::None && self.parts.is_none() && self.contexts.is_none()
    }

    /// The view of Binaries of a caller with these restrictions. A Binary without `securityContext` is in the
    /// view as other resources are.
    #[must_use]
    pub fn by_security_context(self, contexts: Arc<ContextRestrictions>) -> Self {
        Self { contexts: Some(contexts), ..self }
    }

    /// The parts of a view with searches.
    pub(crate) fn parts(&self) -> &[ViewPart] {
        self.parts.as_deref().unwrap_or_default()
    }

    /// `true` if the view contains a version of a resource.
    pub(crate) async fn contains_version(&self, version: &Version) -> Result<bool, ResourceError> {
        if let Some(body) = &version.body
            && let Some(may_read) = self.may_read_context(body).await?
        {
            return Ok(may_read && self.meets_search(version));
        }
        let Some(parts) = &self.parts else { return self.is_visible(&self.restriction, version).await };
        for part in parts.iter().filter(|part| part.meets_search(version)) {
            if self.is_visible(&part.restriction, version).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn is_visible(&self, restriction: &Restriction, version: &Version) -> Result<bool, ResourceError> {
        match restriction.visibility(version) {
            Visibility::Visible => Ok(true),
            Visibility::Hidden => Ok(false),
            Visibility::ByReference => {
                // The future of a search is large, and few versions need it.
                let mut search = ReferrerSearch::new(self.resources, restriction);
                Box::pin(search.is_referred_to(&version.key)).await
            }
        }
    }

    /// `true` if no part of the view has a search, or a version matches that of a part.
    fn meets_search(&self, version: &Version) -> bool {
        self.parts().is_empty() || self.parts().iter().any(|part| part.meets_search(version))
    }

    /// Whether the caller may read the resource to which the `securityContext` of a Binary refers. `None` if
    /// this is not a view of Binaries, or the Binary has none.
    async fn may_read_context(&self, binary: &[u8]) -> Result<Option<bool>, ResourceError> {
        let Some(contexts) = &self.contexts else { return Ok(None) };
        let Some((kind, id)) = security_context(binary, self.resources.fhir_base()) else { return Ok(None) };
        let Some(restriction) = contexts.get(kind) else { return Ok(Some(false)) };
        if restriction.contains_key(kind, &id) {
            return Ok(Some(true));
        }
        match self.newest(kind, &id).await?.filter(|context| !context.is_deleted()) {
            Some(context) => self.is_visible(restriction, &context).await.map(Some),
            None => Ok(Some(false)),
        }
    }

    /// A resource that was read from the store without this view, if its `securityContext` lets the caller
    /// read it.
    ///
    /// # Errors
    /// Returns [`ResourceError::NotFound`] if it does not, or a store error.
    pub async fn check_context(&self, resource: StoredResource) -> Result<StoredResource, ResourceError> {
        match self.may_read_context(&resource.bytes).await? {
            None | Some(true) => Ok(resource),
            Some(false) => Err(ResourceError::NotFound { kind: resource.kind.to_owned(), id: resource.id }),
        }
    }

    /// `true` if the caller may write a version with these names.
    fn may_write(&self, kind: &str, names: &[String]) -> bool {
        self.parts.is_none() && self.restriction.permits_write(kind, names)
    }

    /// Prepares a resource, which must be in the view.
    pub(crate) fn prepared(
        &self,
        body: &[u8],
        kind: &'static str,
        id: IdSource<'_>,
    ) -> Result<PreparedResource, ResourceError> {
        let (rules, fhir_base) = (self.resources.rules(), self.resources.fhir_base());
        self.inside(prepare(body, Some(kind), id, &rules, fhir_base)?)
    }

    /// Checks that the targets of a Provenance are in the view. An export of a Patient contains the
    /// Provenance of each of its resources. A Provenance about another Patient's resource would therefore
    /// become part of that Patient's data.
    async fn check_targets(&self, prepared: &PreparedResource) -> Result<(), ResourceError> {
        if self.is_unrestricted() || prepared.kind != "Provenance" {
            return Ok(());
        }
        let outside = || ResourceError::Outside { kind: prepared.kind.to_owned(), id: prepared.id.clone() };
        let provenance: Provenance = serde_json::from_slice(&prepared.draft.bytes).map_err(|_| outside())?;
        for target in provenance.target {
            let reference = target.reference.as_deref();
            let local =
                reference.and_then(|reference| references::local(reference, self.resources.fhir_base()));
            let Some((kind, id)) = local else { continue };
            // Targets that are Patients were checked with the compartments.
            if kind == "Patient" {
                continue;
            }
            let Some(version) = self.newest(kind, id).await?.filter(|version| !version.is_deleted()) else {
                return Err(outside());
            };
            if !self.contains_version(&version).await? {
                return Err(outside());
            }
        }
        Ok(())
    }

    /// Checks what a new version must not change, or make visible to the caller.
    async fn check_replacement(&self, prepared: &PreparedResource) -> Result<(), ResourceError> {
        if self.is_unrestricted() {
            return Ok(());
        }
        let replaced = self.newest(prepared.kind, &prepared.id).await?;
        relations::check_unchanged(prepared, replaced.as_ref())?;
        self.check_shared_targets(prepared, replaced.as_ref()).await
    }

    /// Checks that the caller may see the resources without a Patient to which a written resource refers. The
    /// reference makes them visible to the caller, so that it must not be a way to see what others store. The
    /// caller may refer to what the replaced version refers to, and to content to which nothing refers yet.
    async fn check_shared_targets(
        &self,
        prepared: &PreparedResource,
        replaced: Option<&Version>,
    ) -> Result<(), ResourceError> {
        if self.is_unrestricted() {
            return Ok(());
        }
        let fhir_base = self.resources.fhir_base();
        let body = replaced.and_then(|version| version.body.as_ref());
        let targets = body.map(|body| local_targets(body, fhir_base)).unwrap_or_default();
        for target in local_targets(&prepared.draft.bytes, fhir_base) {
            if targets.contains(&target) {
                continue;
            }
            let (kind, id) = target;
            let version = self.newest(kind, &id).await?.filter(|version| !version.is_deleted());
            let is_permitted = match &version {
                Some(version) => {
                    self.is_visible(&self.restriction, version).await?
                        || has(&version.compartments, UNASSIGNED)
                            && !self.resources.has_referrer(&version.key).await?
                }
                // Whether the resource exists must not be revealed.
                None => false,
            };
            if !is_permitted {
                let key = format!("{}/{}", prepared.kind, prepared.id);
                return Err(ResourceError::HiddenTarget { key, target: format!("{kind}/{id}") });
            }
        }
        Ok(())
    }

    async fn newest(&self, kind: &'static str, id: &str) -> Result<Option<Version>, ResourceError> {
        Ok(self.resources.store().read(&ResourceKey::new(kind, id), Seq::LATEST).await?)
    }

    /// The newest version of a resource in the view.
    ///
    /// # Errors
    /// Returns [`ResourceError::NotFound`] for missing resources and resources outside of the view, and
    /// [`ResourceError::Gone`] for deleted ones.
    pub async fn read(&self, kind: &'static str, id: &str) -> Result<StoredResource, ResourceError> {
        if self.is_unrestricted() {
            return self.resources.read(kind, id).await;
        }
        stored(kind, id, self.visible(self.newest(kind, id).await?).await?)
    }

    /// One version of a resource, if that version is in the view.
    ///
    /// # Errors
    /// Returns the errors of [`CompartmentView::read`].
    pub async fn read_version(
        &self,
        kind: &'static str,
        id: &str,
        version: u64,
    ) -> Result<StoredResource, ResourceError> {
        if self.is_unrestricted() {
            return self.resources.read_version(kind, id, version).await;
        }
        stored(kind, id, self.visible(self.resources.version(kind, id, version).await?).await?)
    }

    /// A version, if it is in the view.
    async fn visible(&self, version: Option<Version>) -> Result<Option<Version>, ResourceError> {
        Ok(match version {
            Some(version) if self.contains_version(&version).await? => Some(version),
            _ => None,
        })
    }

    /// The versions of a resource that are in the view, including tombstones, newest first (see
    /// [`Resources::history`]). The second value is the start of the next page, if there may be more
    /// versions.
    ///
    /// # Errors
    /// Returns [`ResourceError::NotFound`] if the first page is empty.
    pub async fn history(
        &self,
        kind: &'static str,
        id: &str,
        before: Seq,
        limit: PageLimit,
    ) -> Result<(Vec<Version>, Option<Seq>), ResourceError> {
        let page = self.resources.history(kind, id, before, limit).await?;
        let next = page.last().filter(|last| last.version > 1).map(|last| last.seq);
        let mut visible = Vec::with_capacity(page.len());
        for version in page {
            visible.extend(self.visible(Some(version)).await?);
        }
        if visible.is_empty() && before == Seq::LATEST {
            return Err(ResourceError::NotFound { kind: kind.to_owned(), id: id.to_owned() });
        }
        // A next page must not reveal that versions outside of the view exist.
        let next = next.filter(|_| !visible.is_empty());
        Ok((visible, next))
    }

    /// The versions of all resources of a type that are in the view, including tombstones, newest first. They
    /// precede the sequence number `before` and follow `after`. The second value is the start of the next
    /// page, if there may be more versions. A page may contain fewer than `limit` because others are outside
    /// of the view, or because many versions of other types were examined.
    ///
    /// # Errors
    /// A store error.
    pub async fn type_history(
        &self,
        kind: &'static str,
        before: Seq,
        after: Seq,
        limit: PageLimit,
    ) -> Result<(Vec<Version>, Option<Seq>), ResourceError> {
        let store = self.resources.store();
        let range = ChangesBefore { before, after, count: limit.count, examined: EXAMINED };
        let ChangePage { changes, next } = store.changes_before(Some(kind), range).await?;
        let (mut seen, mut bytes) = (Vec::with_capacity(changes.len()), 0);
        for change in changes {
            cpu_budget::check()?;
            let version = self.changed_version(&change).await?;
            bytes += version.as_ref().and_then(|version| version.body.as_ref()).map_or(0, Bytes::len);
            seen.extend(version);
            if bytes >= limit.bytes {
                return Ok((seen, Some(change.seq)));
            }
        }
        Ok((seen, next))
    }

    /// The version that a change has written, if it is in the view.
    ///
    /// # Errors
    /// A store error.
    pub async fn changed_version(&self, change: &ChangeRecord) -> Result<Option<Version>, ResourceError> {
        self.visible(self.resources.store().read(&change.key, change.seq).await?).await
    }

    /// Creates a resource in the view (see [`Resources::create`]).
    ///
    /// # Errors
    /// Returns [`ResourceError::Outside`] if the resource would be outside of the view.
    pub async fn create(
        &self,
        kind: &'static str,
        id: String,
        body: impl AsRef<[u8]>,
        now: Timestamp,
    ) -> Result<StoredResource, ResourceError> {
        self.create_if(kind, id, body, None, now).await
    }

    /// Creates a resource under the condition of a search.
    pub(crate) async fn create_if(
        &self,
        kind: &'static str,
        id: String,
        body: impl AsRef<[u8]>,
        guard: Option<SearchGuard>,
        now: Timestamp,
    ) -> Result<StoredResource, ResourceError> {
        let prepared = self.prepared(body.as_ref(), kind, IdSource::Given(&id))?;
        drop(body);
        self.check_targets(&prepared).await?;
        self.check_shared_targets(&prepared, None).await?;
        Ok(self.resources.put_if(prepared, ExpectVersion::Absent, guard, now).await?.stored)
    }

    /// Replaces a resource in the view (see [`Resources::update`]). Under a restriction it does not create a
    /// resource, because the response would reveal whether a resource outside of the view has the id.
    ///
    /// # Errors
    /// Returns [`ResourceError::Outside`] if the new version, or the stored resource with the id, is not in
    /// the view.
    pub async fn update(
        &self,
        kind: &'static str,
        id: &str,
        body: impl AsRef<[u8]>,
        expected: impl Into<ExpectedVersion>,
        now: Timestamp,
    ) -> Result<WrittenResource, ResourceError> {
        if self.is_unrestricted() {
            return self.resources.update(kind, id, body, expected, now).await;
        }
        check_id(id, self.resources.rules().ids)?;
        let prepared = self.prepared(body.as_ref(), kind, IdSource::Same(id))?;
        drop(body);
        self.check_targets(&prepared).await?;
        let target = self.write_target(kind, id).await?;
        let Some(expect) = target.precondition(kind, id, expected.into())? else {
            return Err(ResourceError::Outside { kind: kind.to_owned(), id: id.to_owned() });
        };
        self.check_replacement(&prepared).await?;
        self.resources.put(prepared, expect, now).await
    }

    /// Writes a new version of an existing resource.
    pub(crate) async fn replace(
        &self,
        kind: &'static str,
        current: &StoredResource,
        body: &[u8],
        now: Timestamp,
    ) -> Result<WrittenResource, ResourceError> {
        let prepared = self.prepared(body, kind, IdSource::Given(&current.id))?;
        self.check_targets(&prepared).await?;
        self.check_replacement(&prepared).await?;
        let outside = || ResourceError::Outside { kind: kind.to_owned(), id: current.id.clone() };
        let expect = match self.is_unrestricted() {
            true => ExpectVersion::Version(current.version),
            false => {
                let target = self.write_target(kind, &current.id).await?;
                target
                    .precondition(kind, &current.id, ExpectedVersion::Version(current.version))?
                    .ok_or_else(outside)?
            }
        };
        self.resources.put(prepared, expect, now).await
    }

    /// Deletes a resource in the view (see [`Resources::delete`]).
    ///
    /// # Errors
    /// Returns [`ResourceError::Outside`] if the caller may read the resource but not write it, and
    /// [`ResourceError::NotFound`] if it is missing or outside of the view.
    pub async fn delete(
        &self,
        kind: &'static str,
        id: &str,
        expected: impl Into<ExpectedVersion>,
        now: Timestamp,
    ) -> Result<DeleteResult, ResourceError> {
        if self.is_unrestricted() {
            return self.resources.delete(kind, id, expected, now).await;
        }
        match self.write_target(kind, id).await?.precondition(kind, id, expected.into())? {
            Some(ExpectVersion::Version(found)) => {
                relations::check_deletable(kind, id)?;
                self.resources.delete(kind, id, ExpectedVersion::Version(found), now).await
            }
            Some(_) => Ok(DeleteResult::WasAbsent),
            // Whether the id is in use outside of the view must not be revealed.
            None => Err(ResourceError::NotFound { kind: kind.to_owned(), id: id.to_owned() }),
        }
    }

    pub(crate) fn inside(&self, prepared: PreparedResource) -> Result<PreparedResource, ResourceError> {
        // A client stores the content of a document before the document that refers to it. It cannot
        // replace the content then.
        let is_content = prepared.kind == "Binary"
            && self.parts.is_none()
            && matches!(self.restriction, Restriction::Patients { others: OtherTypes::Visible, .. })
            && has(&prepared.compartments, UNASSIGNED);
        if is_content || self.may_write(prepared.kind, &prepared.compartments) {
            return Ok(prepared);
        }
        Err(ResourceError::Outside { kind: prepared.kind.to_owned(), id: prepared.id })
    }

    /// Finds the resource that the caller would replace. An id that is used outside of the view is treated
    /// like an unused id, so that the result does not reveal it.
    pub(crate) async fn write_target(
        &self,
        kind: &'static str,
        id: &str,
    ) -> Result<WriteTarget, ResourceError> {
        match self.newest(kind, id).await? {
            Some(version) if self.may_write(kind, &version.compartments) => Ok(match version.is_deleted() {
                true => WriteTarget::Tombstone,
                false => WriteTarget::Version(version.version),
            }),
            Some(version) if !version.is_deleted() && self.contains_version(&version).await? => {
                Err(ResourceError::Outside { kind: kind.to_owned(), id: id.to_owned() })
            }
            _ => Ok(WriteTarget::Unseen),
        }
    }
}

/// Result of looking up the id that a restricted caller writes.
pub(crate) enum WriteTarget {
    /// The resource exists with this version and may be replaced. The write requires this version, because
    /// the resource could leave the view in between.
    Version(u64),
    /// The resource is in the view and deleted.
    Tombstone,
    /// There is no resource with this id, or it is outside of the view.
    Unseen,
}

impl WriteTarget {
    /// The precondition of a write to this id, or `None` if the target is unseen.
    fn precondition(
        &self,
        kind: &str,
        id: &str,
        expected: ExpectedVersion,
    ) -> Result<Option<ExpectVersion>, ResourceError> {
        let conflict = || ResourceError::VersionConflict { key: format!("{kind}/{id}") };
        Ok(Some(match (self, expected) {
            (Self::Version(version), ExpectedVersion::Anything | ExpectedVersion::Present) => {
                ExpectVersion::Version(*version)
            }
            (Self::Version(_) | Self::Tombstone, ExpectedVersion::Version(version)) => {
                ExpectVersion::Version(version)
            }
            (Self::Version(_), ExpectedVersion::Absent) => return Err(conflict()),
            (Self::Tombstone, ExpectedVersion::Anything | ExpectedVersion::Absent) => ExpectVersion::Absent,
            (Self::Tombstone | Self::Unseen, ExpectedVersion::Present) => return Err(conflict()),
            (Self::Unseen, ExpectedVersion::Version(_)) => return Err(conflict()),
            (Self::Unseen, ExpectedVersion::Anything | ExpectedVersion::Absent) => return Ok(None),
        }))
    }
}

/// The members of a Provenance that contain its targets.
#[derive(Deserialize)]
struct Provenance {
    #[serde(default)]
    target: Vec<Reference>,
}

#[derive(Deserialize)]
struct Reference {
    reference: Option<String>,
}
