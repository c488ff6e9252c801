//! Parses a Bundle (FHIR R4): its entries, their ids on this server, and the URLs by which they refer to each
//! other.

use std::borrow::Cow;
use std::collections::HashMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::ResourceBodyError;
use crate::write::scan::RenamedReferences;

/// A parsed Bundle. Its resources are still JSON text.
#[derive(Debug, Deserialize)]
pub(crate) struct ParsedBundle<'a> {
    /// `Bundle.type`.
    #[serde(borrow, rename = "type")]
    pub kind: Cow<'a, str>,
    #[serde(borrow, default)]
    meta: Option<BundleMeta<'a>>,
    #[serde(borrow, default)]
    pub entry: Vec<BundleEntry<'a>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BundleMeta<'a> {
    #[serde(borrow)]
    last_updated: Option<Cow<'a, str>>,
}

impl ParsedBundle<'_> {
    /// The Bundle without the requests of its entries.
    pub fn resources(&self) -> Self {
        let entry = self.entry.iter().map(|entry| BundleEntry { request: None, ..entry.clone() });
        Self { kind: self.kind.clone(), meta: self.meta.clone(), entry: entry.collect() }
    }

    /// `meta.lastUpdated`, if it is an instant.
    pub fn last_updated(&self) -> Option<Timestamp> {
        self.meta.as_ref()?.last_updated.as_ref()?.parse().ok()
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BundleEntry<'a> {
    #[serde(borrow)]
    pub full_url: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub resource: Option<&'a RawValue>,
    #[serde(borrow)]
    pub request: Option<EntryRequest<'a>>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EntryRequest<'a> {
    #[serde(borrow)]
    pub method: Cow<'a, str>,
    #[serde(borrow)]
    pub url: Cow<'a, str>,
    #[serde(borrow)]
    pub if_match: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub if_none_match: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub if_none_exist: Option<Cow<'a, str>>,
}

/// The two members that identify a resource.
#[derive(Deserialize)]
pub(crate) struct ResourceHead<'a> {
    #[serde(borrow, rename = "resourceType")]
    pub kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub id: Option<Cow<'a, str>>,
}

impl EntryRequest<'_> {
    /// The URL without a slash at its beginning, which many clients write.
    pub fn relative_url(&self) -> &str {
        self.url.strip_prefix('/').unwrap_or(&self.url)
    }
}

impl<'a> ResourceHead<'a> {
    /// `None` if the text is not an object in which these members are strings.
    pub fn of(text: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }
}

/// Parses a text whose `resourceType` is Bundle.
pub(crate) fn parse(text: &[u8]) -> Result<ParsedBundle<'_>, ResourceBodyError> {
    serde_json::from_slice(text).map_err(|error| ResourceBodyError::BadBundle(error.to_string()))
}

/// Type and id of the resource of an entry, if it has one. The id is that of the resource, else the id in
/// `fullUrl`, else a new one.
pub(crate) fn place(
    entry: &BundleEntry<'_>,
    new_id: &mut impl FnMut() -> String,
) -> Result<Option<(&'static str, String)>, ResourceBodyError> {
    let Some(resource) = entry.resource else { return Ok(None) };
    let head = ResourceHead::of(resource.get().as_bytes()).ok_or(ResourceBodyError::NoType)?;
    let kind = head.kind.ok_or(ResourceBodyError::NoType)?;
    let kind = fhir::resource_type(&kind).ok_or_else(|| ResourceBodyError::UnknownType(kind.into_owned()))?;
    let of_url = || {
        let url = entry.full_url.as_deref().filter(|url| url.contains("://"))?;
        crate::body::references::target(url).filter(|(named, _)| *named == kind).map(|(_, id)| id.to_owned())
    };
    let id = head.id.map(Cow::into_owned).or_else(of_url).unwrap_or_else(new_id);
    Ok(Some((kind, id)))
}

/// A map from the `urn:` names of entries to their ids on this server. For Patients, every `fullUrl` is such
/// a name. For other types, a `fullUrl` may be a canonical URL, which must not be replaced.
pub(crate) fn names(
    entries: &[BundleEntry<'_>],
    places: &[Option<(&'static str, String)>],
) -> RenamedReferences {
    let mut names = HashMap::new();
    for (entry, place) in entries.iter().zip(places) {
        if let (Some(url), Some((kind, id))) = (&entry.full_url, place)
            && (url.starts_with("urn:") || *kind == "Patient")
        {
            names.insert(url.to_string(), format!("{kind}/{id}"));
        }
    }
    names
}
