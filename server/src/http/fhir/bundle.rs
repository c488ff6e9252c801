//! POST {fhir_base}: a Bundle of requests (FHIR R4, batch and transaction).

use fhir::{IssueCode, OperationOutcome};
use http::StatusCode;
use identity::scope::Permissions;
use resources::{Action, Deletion, Done, ResourceError, Restriction, Stored};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};

use super::{access, check_accept, json_body, recording};
use crate::clock::resource_id;
use crate::http::extract::Call;
use crate::http::problem;
use crate::http::reply::{self, Response};

/// Audit events that are held in memory before they are written.
const RECORDED_TOGETHER: usize = 1_000;

/// Judges every entry before any of them is carried out.
pub async fn post(mut call: Call) -> Response {
    let token = match access::token(&call).await {
        Ok(token) => token,
        Err(response) => return response,
    };
    if let Err(response) = check_accept(&call, &[]) {
        return response;
    }
    let body = match json_body(&mut call).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    let random = call.app.clock.random.clone();
    let plan = match call.app.resources.plan(&body, || resource_id(&*random), call.now) {
        Ok(plan) => plan,
        Err(error) => return problem::resource(&ResourceError::Body(error)),
    };
    for entry in plan.entries.iter().flatten() {
        let permissions = match entry.action {
            Action::Create => Permissions::CREATE,
            Action::Update => Permissions::UPDATE,
            Action::Delete => Permissions::DELETE,
            Action::Read => Permissions::GET,
        };
        let permissions = match entry.is_conditional() {
            true => [permissions, Permissions::SEARCH],
            false => [permissions; 2],
        };
        // Bundles require access to all resources of a type; restricted clients send one resource at a time.
        for permission in permissions {
            match access::restriction(&call, &token, entry.kind, permission).await {
                Ok(Restriction::None) => {}
                Ok(_) => {
                    let text = format!("the token does not allow this on all {} resources", entry.kind);
                    return access::lacking(&text);
                }
                Err(response) => return response,
            }
        }
    }
    let kind = if plan.is_transaction { "transaction-response" } else { "batch-response" };
    let answers = match call.app.resources.carry_out(plan, call.now).await {
        Ok(answers) => answers,
        Err(error) => return problem::resource(&error),
    };
    for (at, done) in answers.iter().enumerate() {
        if let Ok(done) = done {
            recording::bundle_entry(&call, &token, done);
        }
        if at % RECORDED_TOGETHER == RECORDED_TOGETHER - 1 {
            call.app.audit.flush().await;
        }
    }
    if let Err(error) = call.app.follow().await {
        return problem::store(problem::Dialect::Fhir, &error);
    }
    let entry = answers.into_iter().map(entry).collect();
    let answer = Answer { resource_type: "Bundle", kind, entry };
    reply::no_store(reply::fhir_json(StatusCode::OK, &answer))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    resource_type: &'static str,
    #[serde(rename = "type")]
    kind: &'static str,
    entry: Vec<Entry>,
}

/// An answer to one entry.
#[derive(Serialize)]
struct Entry {
    /// As it is stored: a `Value` would write its numbers anew, and 1.10 is not 1.1 in FHIR.
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<Box<RawValue>>,
    response: Value,
}

fn entry(answer: Result<Done, ResourceError>) -> Entry {
    let mut resource = None;
    let response = match answer {
        Ok(Done::Created(stored)) => written("201 Created", &stored),
        Ok(Done::Updated(stored) | Done::Found(stored)) => written("200 OK", &stored),
        Ok(Done::Read(stored)) => {
            resource = serde_json::from_slice(&stored.bytes).ok();
            written("200 OK", &stored)
        }
        Ok(Done::Deleted(Deletion::Deleted(_) | Deletion::WasAbsent)) => {
            json!({ "status": "204 No Content" })
        }
        Err(error) => {
            let status = problem::resource(&error).status();
            let outcome = OperationOutcome::error(IssueCode::Processing, error.to_string());
            json!({ "status": status.to_string(), "outcome": outcome })
        }
    };
    Entry { resource, response }
}

fn written(status: &str, stored: &Stored) -> Value {
    json!({
        "status": status,
        "location": format!("{}/{}/_history/{}", stored.kind, stored.id, stored.version),
        "etag": format!("W/\"{}\"", stored.version),
        "lastModified": fhir::instant::format(stored.updated),
    })
}
