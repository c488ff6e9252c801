//! Records reads and changes of resources in the audit log, if it is configured to contain them.

use identity::tokens::access_token::TokenAccess;
use resources::{DeleteResult, EntryResult, StoredResource, Tombstone};
use store::Version;

use crate::config::audit::RecordedRequests;
use crate::http::extract::RequestContext;
use crate::records::audit::AuditEntry;
use crate::records::audit::rest::{RestEvent, RestInteraction};

/// Records a read or change of one version.
pub fn version(
    context: &RequestContext,
    access: &TokenAccess,
    interaction: RestInteraction,
    result: &StoredResource,
) {
    if !is_recorded(context, interaction) {
        return;
    }
    let resource = Some(format!("{}/{}/_history/{}", result.kind, result.id, result.version));
    add(context, access, interaction, resource, result.compartments.clone(), None);
}

/// Records the result of an entry of a Bundle.
pub fn bundle_entry(context: &RequestContext, access: &TokenAccess, entry: &EntryResult) {
    match entry {
        EntryResult::Created(stored) => version(context, access, RestInteraction::Create, stored),
        EntryResult::Updated(stored) => version(context, access, RestInteraction::Update, stored),
        EntryResult::Found(stored) => version(context, access, RestInteraction::Read, stored),
        // Recorded when the resource is read.
        EntryResult::Read(_) | EntryResult::Outdated(_) => {}
        EntryResult::Deleted(deletion) => deleted(context, access, deletion),
    }
}

/// Records a delete, unless there was nothing to delete.
pub fn deleted(context: &RequestContext, access: &TokenAccess, deletion: &DeleteResult) {
    let DeleteResult::Deleted(Tombstone { kind, id, version, compartments }) = deletion else { return };
    if is_recorded(context, RestInteraction::Delete) {
        let resource = Some(format!("{kind}/{id}/_history/{version}"));
        add(context, access, RestInteraction::Delete, resource, compartments.clone(), None);
    }
}

/// Records a page of a history: that of a resource, or for `None` that of a type, which is recorded as the
/// request.
pub fn history(context: &RequestContext, access: &TokenAccess, resource: Option<&str>, versions: &[Version]) {
    if is_recorded(context, RestInteraction::History) {
        let compartments = distinct(versions.iter().map(|version| &version.compartments));
        let request = resource.is_none().then(|| request_of(context, &context.query));
        let resource = resource.map(str::to_owned);
        add(context, access, RestInteraction::History, resource, compartments, request);
    }
}

/// Records a page of a search: the request, and the Patients of the results.
pub fn search<'a>(
    context: &RequestContext,
    access: &TokenAccess,
    query: &str,
    results: impl IntoIterator<Item = &'a StoredResource>,
) {
    if is_recorded(context, RestInteraction::Search) {
        let compartments = distinct(results.into_iter().map(|resource| &resource.compartments));
        add(context, access, RestInteraction::Search, None, compartments, Some(request_of(context, query)));
    }
}

/// The request with the parameters of its URL or of its form.
fn request_of(context: &RequestContext, query: &str) -> String {
    format!("{} {}{}?{query}", context.method, context.app.address.base_url, context.path)
}

fn is_recorded(context: &RequestContext, interaction: RestInteraction) -> bool {
    context.app.logs.audit.records(match interaction {
        RestInteraction::Create | RestInteraction::Update | RestInteraction::Delete => {
            RecordedRequests::Changes
        }
        _ => RecordedRequests::All,
    })
}

fn distinct<'a>(compartments: impl Iterator<Item = &'a Vec<String>>) -> Vec<String> {
    let mut all: Vec<_> = compartments.flatten().collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().cloned().collect()
}

fn add(
    context: &RequestContext,
    access: &TokenAccess,
    interaction: RestInteraction,
    resource: Option<String>,
    compartments: Vec<String>,
    query: Option<String>,
) {
    let client_id = access.token.client_id.clone();
    let sub = access.user.as_ref().map(|user| user.sub.clone());
    let event = RestEvent { interaction, client_id, sub, resource, compartments, query };
    context.app.logs.audit.add(&AuditEntry::Rest(event));
}
