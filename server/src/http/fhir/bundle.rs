//! POST {fhir_base}: a Bundle of requests (FHIR R4, batch and transaction).

use fhir::{IssueCode, OperationOutcome};
use http::StatusCode;
use identity::model::scope::ScopePermissions;
use identity::tokens::access_token::TokenAccess;
use resources::{DeleteResult, EntryAction, EntryResult, ResourceError, Restriction, StoredResource};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use super::{access, check_accept, json_body, recording};
use crate::clock::resource_id;
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::{self, Problem};
use crate::http::reply::{self, Response};

/// Number of audit events that are held in memory before they are written.
const RECORDED_TOGETHER: usize = 1_000;

/// Executes a Bundle. All entries are authorized before the first one is executed.
pub async fn execute_bundle(context: &RequestContext, body: &mut RequestBody) -> Result<Response, Problem> {
    let token = access::authenticate(context).await?;
    check_accept(context, &[])?;
    let body = json_body(context, body).await?;
    let random = context.app.clock.random.clone();
    let plan = context.app.resources.plan(&body, || resource_id(&*random), context.now)?;
    for kind in plan.searched_types() {
        check_all_of_type(context, &token, kind, ScopePermissions::SEARCH).await?;
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
            check_all_of_type(context, &token, entry.kind, permission).await?;
        }
    }
    let kind = if plan.is_transaction { "transaction-response" } else { "batch-response" };
    let answers = context.app.resources.carry_out(plan, context.now).await?;
    for (at, done) in answers.iter().enumerate() {
        if let Ok(done) = done {
            recording::bundle_entry(context, &token, done);
        }
        if at % RECORDED_TOGETHER == RECORDED_TOGETHER - 1 {
            context.app.audit.flush().await;
        }
    }
    context.app.terminology_sync.apply_changes().await?;
    let entry = answers.into_iter().map(response_entry).collect();
    let answer = ResponseBundle { resource_type: "Bundle", kind, entry };
    Ok(reply::no_store(reply::fhir_json(StatusCode::OK, &answer)))
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
            let text = format!("the token does not allow this on all {kind} resources");
            Err(Problem::insufficient_scope(&text))
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

fn stored_response(status: &str, stored: &StoredResource) -> Value {
    json!({
        "status": status,
        "location": format!("{}/{}/_history/{}", stored.kind, stored.id, stored.version),
        "etag": format!("W/\"{}\"", stored.version),
        "lastModified": fhir::instant::format(stored.updated),
    })
}
