//! `/fhir/R4/*`: the handlers of terminology, export and resources.

pub mod access;
pub mod bundle;
pub mod download;
pub mod export;
pub mod metadata;
mod recording;
pub mod resource;
pub mod search;
pub mod terminology;

use bytes::Bytes;
use fhir::IssueCode;
use http::{StatusCode, header};

use super::extract::Call;
use super::problem::{self, Dialect};
use super::reply::Response;

/// Media types that can be sent here.
const JSON: [&str; 4] = ["application/fhir+json", "application/json", "text/json", "application/json+fhir"];

/// Can the caller read JSON? `_format` wins over `Accept` (FHIR R4, RESTful API).
fn check_accept(call: &Call, also: &[&str]) -> Result<(), Response> {
    let legible = |media_type: &str| {
        let name = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        JSON.contains(&name.as_str())
            || also.contains(&name.as_str())
            || matches!(name.as_str(), "*/*" | "application/*" | "json")
    };
    // Most queries have none, and need not be cut into parameters for it.
    let params = call.query.contains("_format").then(|| call.params());
    let accepted =
        match (params.as_ref().and_then(|params| params.get("_format")), call.header(header::ACCEPT)) {
            // A raw `+` in a query arrives as a space.
            (Some(format), _) => legible(&format.replace(' ', "+")),
            (None, Some(accept)) => accept.trim().is_empty() || accept.split(',').any(legible),
            (None, None) => true,
        };
    if accepted {
        return Ok(());
    }
    let text = "answers are application/fhir+json; ask for that";
    Err(problem::fhir(StatusCode::NOT_ACCEPTABLE, IssueCode::NotSupported, text))
}

/// Reads a JSON body.
async fn json_body(call: &mut Call) -> Result<Bytes, Response> {
    let refused = match call.content_type() {
        Some(name) if JSON.contains(&name.as_str()) => None,
        Some(other) => Some(format!("a body of '{other}' is not understood; send application/fhir+json")),
        None => Some("Content-Type is missing; send application/fhir+json".to_owned()),
    };
    if let Some(text) = refused {
        return Err(problem::fhir(StatusCode::UNSUPPORTED_MEDIA_TYPE, IssueCode::NotSupported, text));
    }
    let limit = call.app.resources.limits().bytes;
    call.bytes(limit).await.map_err(|error| problem::unreadable(Dialect::Fhir, &error))
}
