//! Takes a Bundle (FHIR R4) apart: its entries, the ids they get, and what they call each other.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::BodyError;
use crate::scan::Names;

/// A Bundle as it was sent; resources are still text.
#[derive(Debug, Deserialize)]
pub(crate) struct Bundle<'a> {
    /// `Bundle.type`.
    #[serde(borrow, rename = "type")]
    pub kind: Cow<'a, str>,
    #[serde(borrow, default)]
    pub entry: Vec<Entry<'a>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry<'a> {
    #[serde(borrow)]
    pub full_url: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub resource: Option<&'a RawValue>,
    #[serde(borrow)]
    pub request: Option<Request<'a>>,
}

/// `Bundle.entry.request`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request<'a> {
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

/// The two members that say what a text is.
#[derive(Deserialize)]
pub(crate) struct Head<'a> {
    #[serde(borrow, rename = "resourceType")]
    pub kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub id: Option<Cow<'a, str>>,
}

impl<'a> Head<'a> {
    /// `None` where the text is no object with these members as strings.
    pub fn of(text: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }
}

/// Reads a text whose `resourceType` is Bundle.
pub(crate) fn parse(text: &[u8]) -> Result<Bundle<'_>, BodyError> {
    serde_json::from_slice(text).map_err(|error| BodyError::BadBundle(error.to_string()))
}

/// Gives each entry with a resource its type and id: its own id, else the one in `fullUrl`, else a new one.
/// Entries without resource get `None`.
pub(crate) fn places(
    entries: &[Entry<'_>],
    new_id: &mut impl FnMut() -> String,
) -> Result<Vec<Option<(&'static str, String)>>, BodyError> {
    entries
        .iter()
        .enumerate()
        .map(|(at, entry)| place(entry, new_id).map_err(|error| error.in_entry(at)))
        .collect()
}

fn place(
    entry: &Entry<'_>,
    new_id: &mut impl FnMut() -> String,
) -> Result<Option<(&'static str, String)>, BodyError> {
    let Some(resource) = entry.resource else { return Ok(None) };
    let head = Head::of(resource.get().as_bytes()).ok_or(BodyError::NoType)?;
    let kind = head.kind.ok_or(BodyError::NoType)?;
    let kind = fhir::resource_type(&kind).ok_or_else(|| BodyError::UnknownType(kind.into_owned()))?;
    let of_url = || {
        let url = entry.full_url.as_deref().filter(|url| url.contains("://"))?;
        crate::compartment::target(url).filter(|(named, _)| *named == kind).map(|(_, id)| id.to_owned())
    };
    let id = head.id.map(Cow::into_owned).or_else(of_url).unwrap_or_else(new_id);
    Ok(Some((kind, id)))
}

/// What entries call each other by `urn:` names, and what these are here. Patients are called by whatever their full URL
/// is; that of other types may be their canonical URL, which stays what it is.
pub(crate) fn names(entries: &[Entry<'_>], places: &[Option<(&'static str, String)>]) -> Names {
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
