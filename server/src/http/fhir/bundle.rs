//! POST {fhir_base}: a Bundle of requests (FHIR R4, batch and transaction).

use fhir::{IssueCode, OperationOutcome};
use http::StatusCode;
use identity::model::scope::ScopePermissions;
use identity::tokens::access_token::TokenAccess;
use percent_encoding::percent_decode_str;
use resources::{
    BundleOperation, DeleteResult, EntryAction, EntryResult, ResourceError, Restriction, StoredResource,
    TransactionPlan,
};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use super::terminology::{BundledAnswer, TerminologyOperation};
use super::{access, check_accept, json_body, recording, terminology};
use crate::clock::resource_id;
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::{self, Problem};
use crate::http::reply::{self, Response};

/// Number of audit events that are held in memory before they are written.
const RECORDED_TOGETHER: usize = 1_000;

/// Executes a Bundle. All entries are authorized before the first one is executed. The operations of a batch follow its
/// other entries, so that they take its writes into account.
pub async fn execute_bundle(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    // Without a token, only terminology operations are allowed, if the settings allow these.
    let is_open = context.app.settings().anonymous_terminology;
    let token = match is_open && context.credentials()?.is_none() {
        true => None,
        false => Some(access::authenticate(context).await?),
    };
    check_accept(context, &[])?;
    let body = json_body(context, body).await?;
    let random = context.app.clock.random.clone();
    let mut plan = context.app.resources.plan(&body, || resource_id(&*random), context.now)?;
    let operations = std::mem::take(&mut plan.operations);
    let mut types: Vec<_> = operations.iter().filter_map(operation_type).collect();
    types.sort_unstable();
    types.dedup();
    // The proof of a DPoP-bound token is spent, so the token that was authenticated above is checked.
    if let Some(token) = token.as_deref().filter(|_| !is_open) {
        for kind in types {
            access::check_all(context, token, kind, ScopePermissions::GET).await?;
        }
    }
    let kind = if plan.is_transaction { "transaction-response" } else { "batch-response" };
    let has_only_operations = plan.entries.is_empty() && !operations.is_empty();
    let entries = match (has_only_operations, token.clone()) {
        (true, _) => Vec::new(),
        (false, Some(token)) => execute_plan(context, &token, plan).await?,
        (false, None) => execute_plan(context, &*access::authenticate(context).await?, plan).await?,
    };
    let positions: Vec<usize> = operations.iter().map(|operation| operation.position).collect();
    let answers = match operations.is_empty() {
        true => Vec::new(),
        false => terminology::answer_bundle(context, token.as_deref(), operations).await?,
    };
    let entry =
        merge_entries(entries, positions.into_iter().zip(answers.into_iter().map(operation_response)));
    let answer = ResponseBundle { resource_type: "Bundle", kind, entry };
    Ok(reply::no_store(reply::fhir_json(StatusCode::OK, &answer)))
}

/// Returns the resource type of the operation that an entry calls, if it is an operation of this server.
fn operation_type(entry: &BundleOperation) -> Option<&'static str> {
    let path = percent_decode_str(&entry.path).decode_utf8_lossy();
    TerminologyOperation::at_path(&path).map(|(operation, _)| operation.resource_type())
}

/// Authorizes and executes the entries that read or write a resource.
async fn execute_plan(
    context: &RequestContext,
    token: &TokenAccess,
    plan: TransactionPlan,
) -> Result<Vec<ResponseEntry>, Problem> {
    for kind in plan.searched_types() {
        check_all_of_type(context, token, kind, ScopePermissions::SEARCH).await?;
    }
    for entry in plan.entries.iter().flatten() {
        let permissions = match entry.action {
            EntryAction::Create => ScopePermissions::CREATE,
            EntryAction::Update => ScopePermissions::UPDATE,
            EntryAction::Delete => ScopePermissions::DELETE,
            EntryAction::Read => ScopePermissions::GET,
        };
        let permissions = match entry.is_conditional() {
            true => [permissions, ScopePermissions::SEARCH],
            false => [permissions; 2],
        };
        for permission in permissions {
            check_all_of_type(context, token, entry.kind, permission).await?;
        }
    }
    let answers = context.app.resources.carry_out(plan, context.now).await?;
    for (at, done) in answers.iter().enumerate() {
        if let Ok(done) = done {
            recording::bundle_entry(context, token, done);
        }
        if at % RECORDED_TOGETHER == RECORDED_TOGETHER - 1 {
            context.app.audit.flush().await;
        }
    }
    context.app.terminology_sync.apply_changes().await?;
    Ok(answers.into_iter().map(response_entry).collect())
}

/// Inserts the responses of operations at their positions in the Bundle, which ascend.
fn merge_entries(
    entries: Vec<ResponseEntry>,
    operations: impl ExactSizeIterator<Item = (usize, ResponseEntry)>,
) -> Vec<ResponseEntry> {
    let mut merged = Vec::with_capacity(entries.len() + operations.len());
    let mut entries = entries.into_iter();
    for (position, response) in operations {
        while merged.len() < position
            && let Some(entry) = entries.next()
        {
            merged.push(entry);
        }
        merged.push(response);
    }
    merged.extend(entries);
    merged
}

/// Checks that the token grants a permission on all resources of a type. Bundles require this; restricted clients send
/// one resource at a time.
async fn check_all_of_type(
    context: &RequestContext,
    token: &TokenAccess,
    kind: &'static str,
    permission: ScopePermissions,
) -> Result<(), Problem> {
    match access::restriction(context, token, kind, permission).await? {
        Restriction::None => Ok(()),
        _ => {
            access::check_all(context, token, kind, permission).await?;
            let text = format!("the client may access only {kind} resources of the members of its Groups");
            Err(Problem::insufficient_scope(&text, None))
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResponseBundle {
    resource_type: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    entry: Vec<ResponseEntry>,
}

/// The response to one entry.
#[derive(Serialize)]
struct ResponseEntry {
    /// The stored text: a `Value` would write its numbers in another way, and 1.10 is not 1.1 in FHIR.
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<Box<RawValue>>,
    response: Value,
}

fn response_entry(answer: Result<EntryResult, ResourceError>) -> ResponseEntry {
    let mut resource = None;
    let response = match answer {
        Ok(EntryResult::Created(stored)) => stored_response("201 Created", &stored),
        Ok(EntryResult::Updated(stored) | EntryResult::Found(stored)) => stored_response("200 OK", &stored),
        Ok(EntryResult::Read(stored)) => {
            resource = serde_json::from_slice(&stored.bytes).ok();
            stored_response("200 OK", &stored)
        }
        Ok(EntryResult::Deleted(DeleteResult::Deleted(_) | DeleteResult::WasAbsent)) => {
            json!({ "status": "204 No Content" })
        }
        Err(error) => {
            let (status, _) = problem::resource_status(&error);
            let outcome = OperationOutcome::error(IssueCode::Processing, error.to_string());
            json!({ "status": status.to_string(), "outcome": outcome })
        }
    };
    ResponseEntry { resource, response }
}

/// The response to an operation. An outcome is also the resource of the entry, because it is the body of the response.
fn operation_response(answer: BundledAnswer) -> ResponseEntry {
    match answer {
        Ok(json) => ResponseEntry {
            resource: serde_json::from_slice(&json).ok(),
            response: json!({ "status": "200 OK" }),
        },
        Err((status, outcome)) => ResponseEntry {
            resource: serde_json::value::to_raw_value(&outcome).ok(),
            response: json!({ "status": status.to_string(), "outcome": outcome }),
        },
    }
}

fn stored_response(status: &str, stored: &StoredResource) -> Value {
    json!({
        "status": status,
        "location": format!("{}/{}/_history/{}", stored.kind, stored.id, stored.version),
        "etag": format!("W/\"{}\"", stored.version),
        "lastModified": fhir::instant::format(stored.updated),
    })
}
