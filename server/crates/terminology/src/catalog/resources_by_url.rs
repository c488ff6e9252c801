//! The resources of one type by id and canonical URL, and the preference among versions.

use std::collections::HashMap;
use std::sync::Arc;

use hashbrown::DefaultHashBuilder;

use super::compiled_resource::CompiledResource;
use super::stored_resource::StoredResource;
use crate::model::canonical;
use crate::model::editions::{EditionRelease, default_edition};
use crate::model::resource_json::{ContentMode, ResourceHeader};
use crate::model::version_choice::{self, DatedVersion, VersionReason};
use crate::value_set::ValueSet;

/// The value set of all codes of a code system, whose URL is in `CodeSystem.valueSet`.
#[derive(Debug)]
pub(super) struct AllCodesValueSet<T> {
    pub(super) resource: Arc<StoredResource<T>>,
    pub(super) set: Arc<ValueSet>,
}

impl<T> Clone for AllCodesValueSet<T> {
    fn clone(&self) -> Self {
        Self { resource: self.resource.clone(), set: self.set.clone() }
    }
}

/// A map by id or URL, with a random key and a faster hash function than the standard library's.
pub(super) type KeyedMap<T> = HashMap<String, T, DefaultHashBuilder>;

/// All resources of one type.
#[derive(Debug)]
pub(super) struct ResourcesByUrl<T> {
    pub(super) by_id: KeyedMap<Arc<StoredResource<T>>>,
    /// Resources by canonical URL: first the preferred one, then the others, the last one stored first.
    pub(super) by_url: KeyedMap<Vec<Arc<StoredResource<T>>>>,
    /// Value sets of all codes of a code system, by `CodeSystem.valueSet`.
    pub(super) by_value_set: KeyedMap<Vec<AllCodesValueSet<T>>>,
}

impl<T> Default for ResourcesByUrl<T> {
    fn default() -> Self {
        Self { by_id: KeyedMap::default(), by_url: KeyedMap::default(), by_value_set: KeyedMap::default() }
    }
}

impl<T> Clone for ResourcesByUrl<T> {
    fn clone(&self) -> Self {
        let Self { by_id, by_url, by_value_set } = self;
        Self { by_id: by_id.clone(), by_url: by_url.clone(), by_value_set: by_value_set.clone() }
    }
}

impl<T: CompiledResource> ResourcesByUrl<T> {
    pub(super) fn put(&mut self, resource: Arc<StoredResource<T>>) {
        let id = resource.id.clone();
        self.remove(&id);
        if let Some(url) = resource.header().and_then(|header| header.url.clone()) {
            let versions = self.by_url.entry(url).or_default();
            // The new resource precedes resources of equal rank, so that the last one stored is preferred.
            versions.insert(0, resource.clone());
            move_preferred_to_front(versions);
        }
        if let Some((url, header)) = resource.header().and_then(|h| Some((h.value_set.clone()?, h))) {
            let system = header.url.clone().unwrap_or_default();
            let set = Arc::new(ValueSet::of_all(url.clone(), header.version.clone(), system));
            self.by_value_set
                .entry(url)
                .or_default()
                .push(AllCodesValueSet { resource: resource.clone(), set });
        }
        self.by_id.insert(id, resource);
    }

    pub(super) fn remove(&mut self, id: &str) {
        let Some(old) = self.by_id.remove(id) else { return };
        let Some(header) = old.header() else { return };
        if let Some(url) = &header.url {
            remove_from(&mut self.by_url, url, |resource| resource.id != id);
            if let Some(versions) = self.by_url.get_mut(url) {
                move_preferred_to_front(versions);
            }
        }
        if let Some(url) = &header.value_set {
            remove_from(&mut self.by_value_set, url, |all| all.resource.id != id);
        }
    }

    /// All versions of a URL, the preferred one first.
    pub(super) fn versions(&self, url: &str) -> &[Arc<StoredResource<T>>] {
        self.by_url.get(url).map_or(&[], Vec::as_slice)
    }

    /// The preferred resource of a URL among those that match a version or pattern.
    pub(super) fn find(&self, url: &str, version: Option<&str>) -> Option<&StoredResource<T>> {
        let versions = self.versions(url);
        let Some(version) = version else { return versions.first().map(|resource| &**resource) };
        preferred(versions.iter().map(|resource| &**resource).filter(|resource| {
            let have = resource.header().and_then(|header| header.version.as_deref());
            have.is_some_and(|have| canonical::matches(version, have))
        }))
    }
}

/// Moves the preferred resource to the front of a list.
fn move_preferred_to_front<T: CompiledResource>(versions: &mut [Arc<StoredResource<T>>]) {
    if let Some(index) = preferred_position(versions.iter().map(|resource| &**resource)) {
        versions[..=index].rotate_right(1);
    }
}

/// The preferred resource; of equal ones the first.
pub(super) fn preferred<'a, T: CompiledResource + 'a>(
    candidates: impl Iterator<Item = &'a StoredResource<T>> + Clone,
) -> Option<&'a StoredResource<T>> {
    let mut rest = candidates.clone();
    let (first, second) = (rest.next(), rest.next());
    match second {
        None => first,
        Some(_) => candidates.clone().nth(preferred_position(candidates)?),
    }
}

/// The position of the preferred resource; of equal ones the first.
///
/// The criteria are those of [`VersionRank`], the default edition of SNOMED CT (see
/// [`crate::model::editions`]), then the newest version (see [`version_choice`]).
fn preferred_position<'a, T: CompiledResource + 'a>(
    candidates: impl Iterator<Item = &'a StoredResource<T>> + Clone,
) -> Option<usize> {
    let headers = || candidates.clone().enumerate().filter_map(|(index, r)| Some((index, r.header()?)));
    let best = headers().map(|(_, header)| rank(header)).min()?;
    let of_rank = || headers().filter(|(_, header)| rank(header) == best);
    let edition = default_edition(of_rank().filter_map(|(_, header)| EditionRelease::of(header)));
    let of_best = || of_rank().filter(|(_, header)| is_of_edition(header, edition));
    let newest = version_choice::newest(of_best().map(|(_, header)| dated_version(header)))?;
    of_best().nth(newest).map(|(index, _)| index)
}

/// The rank of a resource before its version is compared; the preferred one is less. The criteria are in
/// descending order.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct VersionRank {
    /// `true` for a release of SNOMED CT that is not published.
    is_unpublished: bool,
    /// Complete, then fragment, then any other content.
    content: ContentMode,
    /// `true` for a resource of FHIR itself in another release than R4, which is the one of this server.
    is_of_other_release: bool,
    /// `true` for a retired resource, and for a version that precedes a release, such as a ballot.
    is_not_in_use: bool,
}

fn rank(header: &ResourceHeader) -> VersionRank {
    let version = header.version.as_deref().unwrap_or_default();
    let is_of_fhir = header.url.as_deref().is_some_and(is_of_fhir);
    VersionRank {
        is_unpublished: EditionRelease::of(header).is_some_and(|release| !release.is_published()),
        content: header.content.unwrap_or(ContentMode::Complete),
        is_of_other_release: is_of_fhir && !version.starts_with("4.0."),
        is_not_in_use: header.status.as_deref() == Some("retired") || version_choice::is_pre_release(version),
    }
}

fn is_of_edition(header: &ResourceHeader, edition: Option<&str>) -> bool {
    edition.is_none_or(|edition| EditionRelease::of(header).is_some_and(|own| own.edition == edition))
}

/// Returns whether a code system or value set belongs to FHIR itself, such as
/// `http://hl7.org/fhir/encounter-status`. Those of HL7's terminology (`terminology.hl7.org`), of
/// implementation guides and of other organizations (`http://hl7.org/fhir/sid/…`) have versions of their own.
fn is_of_fhir(url: &str) -> bool {
    let Some(path) = url.strip_prefix("http://hl7.org/fhir/") else { return false };
    let name = path.strip_prefix("ValueSet/").or(path.strip_prefix("CodeSystem/")).unwrap_or(path);
    !name.contains('/')
}

fn dated_version(header: &ResourceHeader) -> DatedVersion<'_> {
    DatedVersion::new(header.version.as_deref(), header.date.as_deref())
}

/// Returns why a resource is preferred to another one, as a short text for the log.
pub(super) fn reason(winner: &ResourceHeader, other: &ResourceHeader) -> &'static str {
    let (rank, other_rank) = (rank(winner), rank(other));
    if rank.is_unpublished != other_rank.is_unpublished {
        return "it is published";
    }
    if rank.content != other_rank.content {
        return "its content is more complete";
    }
    if rank.is_of_other_release != other_rank.is_of_other_release {
        return "it is of FHIR R4";
    }
    if rank.is_not_in_use != other_rank.is_not_in_use {
        return "it is in use, and the other one is retired or precedes a release";
    }
    let editions = [winner, other].map(|header| EditionRelease::of(header).map(|release| release.edition));
    if editions[0] != editions[1] && editions.iter().all(Option::is_some) {
        return "it is of the default edition of SNOMED CT";
    }
    match dated_version(winner).compare(&dated_version(other)).1 {
        VersionReason::Newer => "it is newer by the scheme of both versions",
        VersionReason::LaterDate => "its date is later, and the versions have different schemes",
        VersionReason::Scheme => "its version has the preferred scheme, and no date decides",
        VersionReason::Equal => "it was stored last",
    }
}

/// Keeps the items of a URL that pass a test, and removes the URL if none is left.
fn remove_from<T>(map: &mut KeyedMap<Vec<T>>, url: &str, keep: impl FnMut(&T) -> bool) {
    if let Some(list) = map.get_mut(url) {
        list.retain(keep);
        if list.is_empty() {
            map.remove(url);
        }
    }
}

/// Returns whether a resource existed on a day, according to its `date`.
pub(super) fn existed_on(header: &ResourceHeader, day: &str) -> bool {
    header.date.as_deref().is_none_or(|date| date.get(..day.len()).unwrap_or(date) <= day)
}

/// Returns whether a resource is a supplement of another code system.
pub(super) fn is_supplement(header: &ResourceHeader) -> bool {
    header.content == Some(ContentMode::Supplement)
}
