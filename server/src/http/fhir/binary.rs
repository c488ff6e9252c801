//! The raw content of a Binary (FHIR R4, Binary): sent unless the client asks for FHIR JSON, and stored if
//! the media type of the request is not one of FHIR.

use std::io;

use bytes::Bytes;
use fhir::IssueCode;
use futures_util::stream;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use resources::binary::{self, BinaryContent};
use resources::{StoredResource, references};
use warp::Reply as _;

use super::{JSON, check_accept, json_body};
use crate::http::answer_memory::AnswerMemory;
use crate::http::extract::{RequestBody, RequestContext};
use crate::http::problem::Problem;
use crate::http::quality_values::quality_values;
use crate::http::range::FilePart;
use crate::http::reply::{self, Response};

/// The resource type.
pub const BINARY: &str = "Binary";
/// The header with the `securityContext` of raw content.
const SECURITY_CONTEXT: HeaderName = HeaderName::from_static("x-security-context");
/// The policy that keeps a browser from running raw content, which has the origin of the sign-in pages.
const SANDBOX: &str =
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; media-src data:";
/// Media types of forms. A client that sends them to a Binary has wrapped its content by mistake.
const FORMS: [&str; 2] = ["application/x-www-form-urlencoded", "multipart/form-data"];

/// The form in which a client wants to receive a resource.
pub enum RequestedForm {
    /// FHIR JSON, as for all other types.
    Resource,
    /// The raw content of a Binary, or FHIR JSON, by the weights in `Accept`.
    ByWeight(AcceptWeights),
}

/// Media ranges of `Accept` with their weights (RFC 9110 section 12.5.1).
pub struct AcceptWeights(Vec<(String, f32)>);

impl AcceptWeights {
    fn read(context: &RequestContext) -> Self {
        let mut ranges = quality_values(&context.headers, &header::ACCEPT);
        // A request without `Accept` accepts everything.
        if ranges.is_empty() {
            ranges.push(("*/*".to_owned(), 1.0));
        }
        Self(ranges)
    }

    /// The weight of the most specific range that contains a media type; 0 if none does.
    fn of(&self, media_type: &str) -> f32 {
        let essence = essence(media_type);
        let (family, _) = essence.split_once('/').unwrap_or_default();
        let weight = |range: &str| self.0.iter().find(|(own, _)| own == range).map(|(_, weight)| *weight);
        weight(&essence).or_else(|| weight(&format!("{family}/*"))).or_else(|| weight("*/*")).unwrap_or(0.0)
    }

    /// The greatest weight of a name of FHIR JSON. A wildcard does not request it.
    fn of_fhir_json(&self) -> f32 {
        let ranges = self.0.iter().filter(|(range, _)| JSON.contains(&range.as_str()));
        ranges.map(|(_, weight)| *weight).fold(0.0, f32::max)
    }
}

/// A media type in lower case, without parameters.
fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

impl RequestedForm {
    /// The form that a request to read a resource asks for. `_format` takes precedence over `Accept`, and
    /// elements can be selected only in FHIR JSON.
    ///
    /// # Errors
    /// A 406 problem if the client accepts none of the forms of this type.
    pub fn of(context: &RequestContext, kind: &str) -> Result<Self, Problem> {
        let selects_resource = || {
            let params = context.params();
            ["_format", "_summary", "_elements"].iter().any(|name| params.get(name).is_some())
        };
        if kind != BINARY || selects_resource() {
            check_accept(context, &[])?;
            return Ok(Self::Resource);
        }
        Ok(Self::ByWeight(AcceptWeights::read(context)))
    }

    /// The raw content of a stored resource, if it is sent instead of FHIR JSON.
    ///
    /// # Errors
    /// A 406 problem if the client accepts neither.
    pub fn content(&self, resource: &StoredResource) -> Result<Option<BinaryContent>, Problem> {
        let Self::ByWeight(weights) = self else { return Ok(None) };
        let of_resource = weights.of_fhir_json();
        let not_acceptable =
            |text: String| Problem::fhir(StatusCode::NOT_ACCEPTABLE, IssueCode::NotSupported, text);
        let Some(content) = BinaryContent::read(&resource.bytes) else {
            if of_resource > 0.0 {
                return Ok(None);
            }
            let id = &resource.id;
            return Err(not_acceptable(format!(
                "the data of Binary/{id} is not valid base64, so that it has no raw content; send 'Accept: application/fhir+json' to read the resource"
            )));
        };
        let of_content = weights.of(&content.media_type);
        if of_resource > 0.0 && of_resource >= of_content {
            return Ok(None);
        }
        if of_content > 0.0 {
            return Ok(Some(content));
        }
        let media_type = &content.media_type;
        Err(not_acceptable(format!(
            "the content is {media_type}, and the resource application/fhir+json; Accept must include one of them"
        )))
    }
}

/// The ETag of raw content. It is strong, unlike that of the resource, so that a download can be continued.
fn content_etag(version: u64) -> String {
    format!("\"{version}\"")
}

/// The response with raw content, or a part of it.
///
/// # Errors
/// A 416 problem for a range that begins at or beyond the end.
pub fn content_response(
    context: &RequestContext,
    memory: AnswerMemory,
    resource: StoredResource,
    content: BinaryContent,
) -> Result<Response, Problem> {
    let etag = content_etag(resource.version);
    let described = |response| {
        let response = reply::with(response, header::ETAG, &etag);
        let response = reply::with(response, header::LAST_MODIFIED, &reply::http_date(resource.updated));
        reply::no_store(reply::with_static(response, header::VARY, "Accept"))
    };
    // Another form of the same version has the same number in a weak ETag.
    let etags = context.headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    if etags
        .flat_map(|value| value.split(','))
        .any(|candidate| [etag.as_str(), "*"].contains(&candidate.trim()))
    {
        return Ok(described(reply::empty(StatusCode::NOT_MODIFIED)));
    }
    let part = FilePart::select(&context.method, &context.headers, &etag, content.length() as u64);
    let part = part.map_err(&described)?;
    let response = match context.method == Method::HEAD {
        true => reply::empty(StatusCode::OK),
        false => {
            // The memory is returned when the last piece was sent.
            let attached = memory.attach(resource.bytes.clone());
            let pieces = content.part(part.range.start as usize..part.range.end as usize).map(move |piece| {
                let _ = &attached;
                piece.ok_or_else(|| io::Error::other("the data of a Binary is not base64"))
            });
            warp::reply::stream(stream::iter(pieces)).into_response()
        }
    };
    let mut response = part.describe(response);
    let headers = response.headers_mut();
    let octets = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_str(&content.media_type).unwrap_or(octets));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(SANDBOX));
    if !is_shown_in_browsers(&content.media_type) {
        headers.insert(header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    }
    if let Some(reference) = &content.security_context {
        response = reply::with(response, SECURITY_CONTEXT, reference);
    }
    Ok(described(response))
}

/// `true` for content that cannot run scripts: text, images that are no documents, and PDF.
fn is_shown_in_browsers(media_type: &str) -> bool {
    let essence = essence(media_type);
    let is_image = essence.starts_with("image/") && !essence.contains("svg") && !essence.ends_with("xml");
    is_image || matches!(essence.as_str(), "text/plain" | "application/pdf")
}

/// Body of a request that writes a resource.
pub struct WrittenBody {
    /// The resource as JSON.
    pub resource: Bytes,
    /// `true` if the request contained raw content, which the response does not repeat.
    pub is_raw: bool,
}

/// Reads the body of a request that writes a resource. `id` is the id in the URL, if there is one.
///
/// # Errors
/// A 415 problem if the media type does not fit, or a problem with the body.
pub async fn written_body(
    context: &RequestContext,
    kind: &str,
    id: Option<&str>,
    body: &mut RequestBody,
) -> Result<WrittenBody, Problem> {
    let essence = context.content_type().filter(|own| kind == BINARY && is_raw(own));
    let (Some(essence), Some(stated_type)) = (essence, context.header(header::CONTENT_TYPE)) else {
        return Ok(WrittenBody { resource: json_body(context, body).await?, is_raw: false });
    };
    let (family, name) = essence.split_once('/').unwrap_or_default();
    if family.is_empty() || name.is_empty() || essence.contains(' ') {
        let text = format!("'{essence}' is not a media type, such as text/plain");
        return Err(Problem::fhir(StatusCode::UNSUPPORTED_MEDIA_TYPE, IssueCode::NotSupported, text));
    }
    if FORMS.contains(&essence.as_str()) {
        let text = format!(
            "'{essence}' is the media type of a form; send the content itself with its own, for example with curl --data-binary @note.txt -H 'Content-Type: text/plain'"
        );
        return Err(Problem::fhir(StatusCode::UNSUPPORTED_MEDIA_TYPE, IssueCode::NotSupported, text));
    }
    let security_context = context.header(&SECURITY_CONTEXT).map(str::trim);
    if let Some(reference) = security_context
        && references::local(reference, &context.app.address.fhir_base).is_none()
    {
        let text = format!(
            "'{reference}' in X-Security-Context is not a reference to a resource of this server, such as Patient/123"
        );
        return Err(Problem::fhir(StatusCode::BAD_REQUEST, IssueCode::Value, text));
    }
    let limit = binary::longest_content(context.app.resources.rules().bytes);
    let content = body.bytes(limit).await?;
    let resource = binary::resource_of(id, stated_type.trim(), security_context, &content);
    Ok(WrittenBody { resource: resource.into(), is_raw: true })
}

/// `true` for a media type of raw content. The formats of FHIR are read as resources.
fn is_raw(essence: &str) -> bool {
    !JSON.contains(&essence) && !matches!(essence, "application/fhir+xml" | "application/fhir+turtle")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weights(accept: &[(&str, f32)]) -> AcceptWeights {
        AcceptWeights(accept.iter().map(|(range, weight)| ((*range).to_owned(), *weight)).collect())
    }

    #[test]
    fn the_most_specific_range_decides() {
        let accept = weights(&[("*/*", 0.1), ("text/*", 0.5), ("text/plain", 0.0)]);
        assert_eq!(accept.of("text/plain; charset=utf-8"), 0.0);
        assert_eq!(accept.of("Text/HTML"), 0.5);
        assert_eq!(accept.of("image/png"), 0.1);
        assert_eq!(weights(&[("image/png", 1.0)]).of("text/plain"), 0.0);
    }

    #[test]
    fn wildcards_ask_for_the_content() {
        assert_eq!(weights(&[("*/*", 1.0), ("application/*", 1.0)]).of_fhir_json(), 0.0);
        assert_eq!(weights(&[("application/fhir+json", 0.9), ("*/*", 0.1)]).of_fhir_json(), 0.9);
    }

    #[test]
    fn browsers_show_only_what_cannot_run_scripts() {
        for content_type in
            ["text/plain", "text/plain;charset=utf-8", "image/png", "IMAGE/JPEG", "application/pdf"]
        {
            assert!(is_shown_in_browsers(content_type), "{content_type}");
        }
        for saved in ["text/html", "image/svg+xml", "application/xhtml+xml", "text/xml", "", "video/mp4"] {
            assert!(!is_shown_in_browsers(saved), "{saved}");
        }
    }
}
