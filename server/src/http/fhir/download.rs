//! Downloads of export files, with conditions, ranges and encodings (RFC 9110). The token or signed URL is
//! checked at the start of the request only.

use bulk::{AddressSignature, ContentEncoding, ExportFile, FileError};
use fhir::IssueCode;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use std::time::Duration;
use warp::Reply as _;

use super::export;
use crate::config::audit::RecordedRequests;
use crate::http::extract::RequestContext;
use crate::http::problem::{self, Problem};
use crate::http::quality_values::quality_values;
use crate::http::range::FilePart;
use crate::http::reply::{self, Response};
use crate::records::audit::{self, AuditActor, AuditEntry};

/// Time for which a redirected download can begin.
const BUCKET_URL_LIFETIME: Duration = Duration::from_secs(60);

/// GET and HEAD {fhir_base}/bulk/{job}/{file}
///
/// A download with a signed URL can be redirected to the bucket of the files. A request with a token is never
/// redirected, because clients may send the token to the other server.
pub async fn download_file(context: &RequestContext, job: String, name: String) -> Result<Response, Problem> {
    let (file, access) = requested_file(context, &job, &name).await?;
    let Some(encoding) = choose_encoding(&context.headers) else {
        let text =
            "files are available uncompressed or with gzip; Accept-Encoding must allow identity or gzip";
        let response = problem::fhir_error(StatusCode::NOT_ACCEPTABLE, IssueCode::NotSupported, text);
        return Err(reply::with_static(response, header::VARY, "Accept-Encoding").into());
    };
    let mut etag = file.etag(encoding);
    if context.has_version(&etag) {
        return Ok(described(reply::empty(StatusCode::NOT_MODIFIED), &etag));
    }
    if access == FileAccess::SignedUrl
        && context.method == Method::GET
        && !context.headers.contains_key(header::AUTHORIZATION)
        && let Some(url) = file.signed_url(encoding, BUCKET_URL_LIFETIME).await?
    {
        record_download(context, &job, &name);
        return Ok(reply::with(reply::empty(StatusCode::TEMPORARY_REDIRECT), header::LOCATION, &url));
    }
    let (mut encoding, mut opened) = (encoding, file.open(encoding).await);
    if let Err(FileError::NoSpace(error)) = &opened {
        tracing::warn!(%error, "a file is sent without gzip");
        encoding = ContentEncoding::Identity;
        etag = file.etag(encoding);
        opened = file.open(encoding).await;
    }
    let open_file = opened?;
    let part = FilePart::select(&context.method, &context.headers, &etag, open_file.length);
    let part = part.map_err(|response| described(response, &etag))?;
    let response = if context.method == Method::HEAD {
        reply::empty(StatusCode::OK)
    } else {
        // A download in several ranges is recorded once, with the range that contains the beginning.
        if part.range.start == 0 {
            record_download(context, &job, &name);
        }
        warp::reply::stream(open_file.stream(part.range.clone())).into_response()
    };
    let mut response = part.describe(response);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.format().media_type()));
    if encoding == ContentEncoding::Gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Ok(described(response, &etag))
}

/// Records a download in the audit log.
fn record_download(context: &RequestContext, job: &str, name: &str) {
    if context.app.logs.audit.records(RecordedRequests::All) {
        context.app.logs.audit.add(&AuditEntry::Download { job: job.to_owned(), file: name.to_owned() });
    }
}

/// How a request for a file is authorized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileAccess {
    Token,
    SignedUrl,
}

/// The requested file, authorized by a signed URL or by a token of the client that started the export.
async fn requested_file(
    context: &RequestContext,
    job: &str,
    name: &str,
) -> Result<(ExportFile, FileAccess), Problem> {
    let params = context.params();
    if let (true, Some(signature)) = (context.app.bulk.signs_addresses(), params.get("signature")) {
        let signature = AddressSignature { expires: params.get("expires").unwrap_or_default(), signature };
        let file = context.app.bulk.signed_file(job, name, &signature, context.now).await?;
        return Ok((file, FileAccess::SignedUrl));
    }
    let (access, types) = export::job_owner(context).await?;
    let client_id = &access.token.client_id;
    audit::set_actor(AuditActor::Client(client_id.clone()));
    let file = context.app.bulk.file(job, name, client_id, context.now).await?;
    // A token with fewer scopes than that of the kick-off opens fewer files.
    match file.kinds().iter().find(|kind| !types.has(kind)) {
        None => Ok((file, FileAccess::Token)),
        Some(kind) => Err(export::missing_export_scope(context, &access, kind).await),
    }
}

/// Adds the headers of every response about a file.
fn described(mut response: Response, etag: &str) -> Response {
    let headers = response.headers_mut();
    headers.remove(header::PRAGMA);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    reply::with(response, header::ETAG, etag)
}

/// Chooses an encoding by `Accept-Encoding` (RFC 9110 section 12.5.3). Returns `None` if none is acceptable.
/// gzip is chosen if the client names it and does not prefer the other one.
fn choose_encoding(headers: &HeaderMap) -> Option<ContentEncoding> {
    let (mut gzip, mut identity, mut any) = (None, None, None);
    for (coding, weight) in quality_values(headers, &header::ACCEPT_ENCODING) {
        match coding.as_str() {
            "gzip" | "x-gzip" => gzip = Some(weight),
            "identity" => identity = Some(weight),
            "*" => any = Some(weight),
            _ => {}
        }
    }
    let packs = gzip.or(any.filter(|_| identity == Some(0.0))).unwrap_or(0.0);
    let plain = identity.or(any.filter(|weight| *weight == 0.0)).unwrap_or(f32::MIN_POSITIVE);
    match (packs > 0.0, plain > 0.0) {
        (true, _) if packs >= plain => Some(ContentEncoding::Gzip),
        (_, true) => Some(ContentEncoding::Identity),
        (true, false) => Some(ContentEncoding::Gzip),
        (false, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepting(encodings: &str) -> HeaderMap {
        [(header::ACCEPT_ENCODING, HeaderValue::from_str(encodings).unwrap())].into_iter().collect()
    }

    #[test]
    fn encodings_are_chosen_by_weight() {
        use ContentEncoding::{Gzip, Identity};
        #[track_caller]
        fn check(accept: &str, encoding: Option<ContentEncoding>) {
            assert_eq!(choose_encoding(&accepting(accept)), encoding, "{accept}");
        }
        assert_eq!(choose_encoding(&HeaderMap::new()), Some(Identity));
        check("", Some(Identity));
        check("gzip, deflate, br", Some(Gzip));
        check("GZip", Some(Gzip));
        check("br", Some(Identity));
        check("*", Some(Identity));
        check("gzip;q=0", Some(Identity));
        check("gzip;q=0.5, identity;q=0.9", Some(Identity));
        check("gzip;q=0.5, identity;q=0.5", Some(Gzip));
        check("gzip; q=0.001", Some(Gzip));
        check("identity;q=0, gzip", Some(Gzip));
        check("identity;q=0, *", Some(Gzip));
        check("*;q=0, gzip;q=0.1", Some(Gzip));
        check("identity", Some(Identity));
        check("identity;q=0", None);
        check("*;q=0", None);
        check("gzip;q=0, identity;q=0", None);
        check("br, identity;q=0", None);
    }
}
