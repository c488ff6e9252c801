//! Records reads and changes of resources in the audit log, if it is configured to contain them.

use identity::token::Access;
use resources::{Deletion, Done, Stored, Tombstone};
use store::Version;

use crate::audit::rest::{Interaction, RestEvent};
use crate::audit::{Entry, RecordedRequests};
use crate::http::extract::Call;

/// Records a read or change of one version.
pub fn version(call: &Call, access: &Access, interaction: Interaction, stored: &Stored) {
    if !is_recorded(call, interaction) {
        return;
    }
    let resource = Some(format!("{}/{}/_history/{}", stored.kind, stored.id, stored.version));
    add(call, access, interaction, resource, stored.compartments.clone(), None);
}

/// Records what became of an entry of a Bundle.
pub fn bundle_entry(call: &Call, access: &Access, done: &Done) {
    match done {
        Done::Created(stored) => version(call, access, Interaction::Create, stored),
        Done::Updated(stored) => version(call, access, Interaction::Update, stored),
        Done::Found(stored) | Done::Read(stored) => version(call, access, Interaction::Read, stored),
        Done::Deleted(deletion) => deleted(call, access, deletion),
    }
}

/// Records a delete, unless there was nothing to delete.
pub fn deleted(call: &Call, access: &Access, deletion: &Deletion) {
    let Deletion::Deleted(Tombstone { kind, id, version, compartments }) = deletion else { return };
    if is_recorded(call, Interaction::Delete) {
        let resource = Some(format!("{kind}/{id}/_history/{version}"));
        add(call, access, Interaction::Delete, resource, compartments.clone(), None);
    }
}

/// Records a page of the history of a resource.
pub fn history(call: &Call, access: &Access, kind: &str, id: &str, versions: &[Version]) {
    if is_recorded(call, Interaction::History) {
        let compartments = distinct(versions.iter().map(|version| &version.compartments));
        add(call, access, Interaction::History, Some(format!("{kind}/{id}")), compartments, None);
    }
}

/// Records a page of a search: the request, and the Patients of the results.
pub fn search(call: &Call, access: &Access, query: &str, results: &[Stored]) {
    if is_recorded(call, Interaction::Search) {
        let compartments = distinct(results.iter().map(|stored| &stored.compartments));
        let request = format!("{} {}{}?{query}", call.method, call.app.base_url, call.path);
        add(call, access, Interaction::Search, None, compartments, Some(request));
    }
}

fn is_recorded(call: &Call, interaction: Interaction) -> bool {
    call.app.audit.records(match interaction {
        Interaction::Create | Interaction::Update | Interaction::Delete => RecordedRequests::Changes,
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
    call: &Call,
    access: &Access,
    interaction: Interaction,
    resource: Option<String>,
    compartments: Vec<String>,
    query: Option<String>,
) {
    let client_id = access.token.client_id.clone();
    let sub = access.user.as_ref().map(|user| user.sub.clone());
    let event = RestEvent { interaction, client_id, sub, resource, compartments, query };
    call.app.audit.add(&Entry::Rest(event));
}
