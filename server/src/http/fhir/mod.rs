//! `/fhir/R4/*`: handlers of terminology, exports and resources.

pub mod access;
pub mod binary;
pub mod bundle;
mod bundle_writer;
pub mod closure;
pub mod download;
pub mod export;
pub mod history;
mod included;
pub mod metadata;
mod missing_scope;
pub mod operation;
mod recording;
pub mod resource;
pub mod search;
mod search_result;
pub mod syndication;

use bytes::Bytes;
use fhir::IssueCode;
use http::{StatusCode, header};

use super::extract::{RequestBody, RequestContext};
use super::problem::Problem;

/// Accepted media types of FHIR JSON.
const JSON: [&str; 4] = ["application/fhir+json", "application/json", "text/json", "application/json+fhir"];

/// Checks that the client accepts JSON. `_format` takes precedence over `Accept` (FHIR R4, RESTful API).
fn check_accept(context: &RequestContext, also: &[&str]) -> Result<(), Problem> {
    let legible = |media_type: &str| {
        let name = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        JSON.contains(&name.as_str())
            || also.contains(&name.as_str())
            || matches!(name.as_str(), "*/*" | "application/*" | "json")
    };
    // Most queries have no `_format`, and need not be parsed for it.
    let params = context.query.contains("_format").then(|| context.params());
    let is_acceptable =
        match (params.as_ref().and_then(|params| params.get("_format")), context.header(header::ACCEPT)) {
            // A raw `+` in a query arrives as a space.
            (Some(format), _) => legible(&format.replace(' ', "+")),
            (None, Some(accept)) => accept.trim().is_empty() || accept.split(',').any(legible),
            (None, None) => true,
        };
    if is_acceptable {
        return Ok(());
    }
    let text = "responses are application/fhir+json; Accept does not include it";
    Err(Problem::fhir(StatusCode::NOT_ACCEPTABLE, IssueCode::NotSupported, text))
}

async fn json_body(context: &RequestContext, body: &mut RequestBody) -> Result<Bytes, Problem> {
    let wrong_type = match context.content_type() {
        Some(name) if JSON.contains(&name.as_str()) => None,
        Some(other) => Some(format!("'{other}' is not a supported media type; send application/fhir+json")),
        None => Some("Content-Type is missing; send application/fhir+json".to_owned()),
    };
    if let Some(text) = wrong_type {
        return Err(Problem::fhir(StatusCode::UNSUPPORTED_MEDIA_TYPE, IssueCode::NotSupported, text));
    }
    let limit = context.app.resources.rules().bytes;
    Ok(body.bytes(limit).await?)
}
