//! The requests in a batch or transaction Bundle, as an import applies them: creates, updates and deletes.
//! Other than at the API, a created resource keeps its id, so that an import can be repeated.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::value::RawValue;
use store::{ResourceKey, VersionWrite};

use crate::write::bundle::{self, EntryRequest, ParsedBundle, ResourceHead};
use crate::write::prepare::{IdSource, PreparedResource, ResourceRules, prepare_named};
use crate::write::scan::RenamedReferences;
use crate::{ResourceBodyError, references};

pub(super) enum EntryWrite {
    Put(PreparedResource),
    Delete(VersionWrite),
}

pub(super) enum BundleWrites {
    /// These writes. They depend only on the Bundle.
    Known(Vec<EntryWrite>),
    /// At least one depends on a search or on a version, so that only the store can determine it.
    Conditional,
}

/// A request, as far as an import applies it.
enum EntryRequestKind<'a> {
    /// Store the resource of the entry with its own id.
    Create,
    /// Store the resource of the entry with this id.
    Update(&'static str, &'a str),
    Delete(&'static str, &'a str),
    Conditional,
}

impl<'a> EntryRequestKind<'a> {
    fn of(request: Option<&'a EntryRequest<'_>>) -> Result<Self, ResourceBodyError> {
        // Some programs write transactions without requests.
        let Some(EntryRequest { method, url, if_match, if_none_match, if_none_exist }) = request else {
            return Ok(Self::Create);
        };
        let target = references::target(url)
            .ok_or(ResourceBodyError::Entry("its url is not a resource type and an id"));
        let is_conditional =
            url.contains('?') || [if_match, if_none_match, if_none_exist].into_iter().any(Option::is_some);
        match &**method {
            "POST" | "PUT" | "DELETE" if is_conditional => Ok(Self::Conditional),
            "POST" if fhir::resource_type(url.rsplit('/').next().unwrap_or_default()).is_some() => {
                Ok(Self::Create)
            }
            "POST" => Err(ResourceBodyError::Entry("the url of a POST is a resource type")),
            "PUT" => target.map(|(kind, id)| Self::Update(kind, id)),
            "DELETE" => target.map(|(kind, id)| Self::Delete(kind, id)),
            _ => Err(ResourceBodyError::Entry(
                "an import applies only DELETE, POST and PUT; send the Bundle to the server",
            )),
        }
    }
}

/// Determines the writes of a Bundle, and the faults of its entries. In a transaction, the first fault is an
/// error, so that nothing is written.
pub(super) fn writes_of(
    bundle: &ParsedBundle<'_>,
    new_id: &mut impl FnMut() -> String,
    rules: &ResourceRules,
    fhir_base: &str,
) -> Result<(BundleWrites, Vec<ResourceBodyError>), ResourceBodyError> {
    let requests: Vec<_> =
        bundle.entry.iter().map(|entry| EntryRequestKind::of(entry.request.as_ref())).collect();
    // Its result depends on what is stored, so that it must run in its order with the others.
    if requests.iter().any(|request| matches!(request, Ok(EntryRequestKind::Conditional))) {
        return Ok((BundleWrites::Conditional, Vec::new()));
    }
    let (mut places, mut unplaced) = (Vec::with_capacity(requests.len()), Vec::new());
    for (entry, request) in bundle.entry.iter().zip(&requests) {
        let (mut place, error) = match bundle::place(entry, new_id) {
            Ok(place) => (place, None),
            Err(error) => (None, Some(error)),
        };
        if let (Some((_, id)), Ok(EntryRequestKind::Update(_, named))) = (&mut place, request) {
            (*named).clone_into(id);
        }
        places.push(place);
        unplaced.push(error);
    }
    let names = bundle::names(&bundle.entry, &places);
    let (mut writes, mut faults) = (Vec::with_capacity(requests.len()), Vec::new());
    for (index, request) in requests.into_iter().enumerate() {
        let (entry, place) = (&bundle.entry[index], &places[index]);
        let placed = unplaced[index].take().map_or(request, Err);
        let write = placed.and_then(|request| match (request, place, entry.resource) {
            (EntryRequestKind::Delete(kind, id), ..) => {
                let write = VersionWrite::delete(ResourceKey::new(kind, id));
                Ok(Some(EntryWrite::Delete(write.from_source(bundle.last_updated()))))
            }
            (EntryRequestKind::Update(kind, id), Some(_), Some(text)) => {
                check_own_id(text.get(), id)?;
                prepared((kind, id, text), &names, rules, fhir_base).map(Some)
            }
            (_, Some((kind, id)), Some(text)) => {
                prepared((kind, id, text), &names, rules, fhir_base).map(Some)
            }
            // A Bundle of searched resources has entries without a request.
            (EntryRequestKind::Create, ..) if entry.request.is_none() => Ok(None),
            _ => Err(ResourceBodyError::Entry("it has no resource")),
        });
        match write {
            Ok(write) => writes.extend(write),
            // A transaction fails as a whole (FHIR R4 http.html#trules); the entries of other Bundles are
            // independent.
            Err(fault) if bundle.kind == "transaction" => return Err(fault.in_entry(index)),
            Err(fault) => faults.push(fault.in_entry(index)),
        }
    }
    Ok((BundleWrites::Known(writes), faults))
}

fn prepared(
    (kind, id, text): (&'static str, &str, &RawValue),
    names: &RenamedReferences,
    rules: &ResourceRules,
    fhir_base: &str,
) -> Result<EntryWrite, ResourceBodyError> {
    let text = text.get().as_bytes();
    prepare_named(text, Some(kind), IdSource::Given(id), rules, fhir_base, Some(names)).map(EntryWrite::Put)
}

/// Checks that the id in a resource, if it has one, is that of the URL.
fn check_own_id(resource: &str, expected: &str) -> Result<(), ResourceBodyError> {
    match ResourceHead::of(resource.as_bytes()).and_then(|head| head.id) {
        Some(own) if own != expected => {
            Err(ResourceBodyError::WrongId { expected: expected.to_owned(), found: own.into_owned() })
        }
        _ => Ok(()),
    }
}

/// The writes of a Bundle that lists the deletions between an earlier export and `time` (Bulk Data Access,
/// `deleted`).
pub(super) fn deletions_of(
    bundle: &ParsedBundle<'_>,
    time: Option<Timestamp>,
) -> Result<Vec<VersionWrite>, ResourceBodyError> {
    let entries = bundle.entry.iter().enumerate().map(|(index, entry)| {
        let request = entry.request.as_ref();
        let url =
            request.filter(|request| request.method == "DELETE").map(|request| Cow::as_ref(&request.url));
        let target = url.and_then(references::target);
        let wrong = || ResourceBodyError::Entry("a list of deletions has only DELETE with a type and an id");
        let (kind, id) = target.ok_or_else(|| wrong().in_entry(index))?;
        Ok(VersionWrite::delete(ResourceKey::new(kind, id)).from_source(time))
    });
    entries.collect()
}
