//! Files of exports: conditions, ranges and encodings of RFC 9110. Token or signed address are checked when the request
//! starts, never within a body.

use bulk::{Encoding, File, FileError, Format, Signature};
use fhir::IssueCode;
use futures_util::TryStreamExt as _;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use std::ops::Range;
use std::sync::Arc;
use warp::Reply as _;

use super::{access, export};
use crate::audit::{self, Actor, Entry, RecordedRequests};
use crate::export_log::ExportLog;
use crate::http::extract::Call;
use crate::http::problem::{self, Dialect};
use crate::http::reply::{self, Response};

/// GET and HEAD {fhir_base}/bulk/{job}/{file}
pub async fn get(call: Call) -> Response {
    let file = match file(&call).await {
        Ok(file) => file,
        Err(response) => return response,
    };
    // What is packed in itself is not packed again.
    let offered = encoding(&call.headers);
    let encoding = if file.format() == Format::Parquet { Some(Encoding::Identity) } else { offered };
    let Some(encoding) = encoding else {
        let text = "files are sent as they are or as gzip; Accept-Encoding refuses both";
        let response = problem::fhir(StatusCode::NOT_ACCEPTABLE, IssueCode::NotSupported, text);
        return reply::with_static(response, header::VARY, "Accept-Encoding");
    };
    let mut etag = file.etag(encoding);
    if names(&call.headers, header::IF_NONE_MATCH, &etag) {
        return described(reply::empty(StatusCode::NOT_MODIFIED), &etag);
    }
    let (mut encoding, mut opened) = (encoding, file.open(encoding).await);
    if let Err(FileError::NoSpace(error)) = &opened {
        tracing::warn!(%error, "a file is sent without gzip");
        encoding = Encoding::Identity;
        etag = file.etag(encoding);
        opened = file.open(encoding).await;
    }
    let opened = match opened {
        Ok(opened) => opened,
        Err(error) => {
            if let Some(log) = &call.app.export_log {
                log.download_error(&call.args[0], &file, 500, &error.to_string());
            }
            return unreadable(&error);
        }
    };
    let length = opened.length;
    let asked = if call.method == Method::GET { range(&call.headers, &etag, length) } else { Asked::Whole };
    let (status, range) = match asked {
        Asked::Whole => (StatusCode::OK, 0..length),
        Asked::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
        Asked::Nothing => {
            let text = format!("the file has {length} bytes; the range lies behind them");
            let response = problem::fhir(StatusCode::RANGE_NOT_SATISFIABLE, IssueCode::Invalid, text);
            let response = described(response, &etag);
            return reply::with(response, header::CONTENT_RANGE, &format!("bytes */{length}"));
        }
    };
    let mut response = if call.method == Method::HEAD {
        reply::empty(status)
    } else {
        // Of a download in parts, the one with the beginning is recorded.
        if range.start == 0 && call.app.audit.records(RecordedRequests::All) {
            let (job, file) = (call.args[0].clone(), call.args[1].clone());
            call.app.audit.add(&Entry::Download { job, file });
        }
        let logged = call.app.export_log.clone().map(|log| Logged::begin(log, &call, &file));
        let mut sent = range.start;
        let stream = opened.stream(range.clone()).and_then(move |piece| {
            sent += piece.len() as u64;
            let ended = if sent == length { logged.clone() } else { None };
            async move {
                if let Some(Logged { log, job, file }) = ended {
                    log.download_complete(&job, &file).await;
                }
                Ok(piece)
            }
        });
        warp::reply::stream(stream).into_response()
    };
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.format().media_type()));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if encoding == Encoding::Gzip {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {}-{}/{length}", range.start, range.end - 1);
        response = reply::with(response, header::CONTENT_RANGE, &range);
    }
    described(response, &etag)
}

/// A download that is told in the export log.
#[derive(Clone)]
struct Logged {
    log: Arc<ExportLog>,
    job: String,
    file: File,
}

impl Logged {
    fn begin(log: Arc<ExportLog>, call: &Call, file: &File) -> Self {
        let job = call.args[0].clone();
        log.download_request(&job, file);
        Self { log, job, file: file.clone() }
    }
}

/// The file that a request may have: by its signed address, or by a token of the client that began the export.
async fn file(call: &Call) -> Result<File, Response> {
    let (job, name) = (&call.args[0], &call.args[1]);
    let params = call.params();
    if let (true, Some(signature)) = (call.app.bulk.signs_addresses(), params.get("signature")) {
        let signature = Signature { expires: params.get("expires").unwrap_or_default(), signature };
        let file = call.app.bulk.signed_file(job, name, &signature, call.now).await;
        return file.map_err(|error| unreadable(&error));
    }
    let (client_id, types) = export::owner(call).await?;
    audit::is_actor(Actor::Client(client_id.clone()));
    let file =
        call.app.bulk.file(job, name, &client_id, call.now).await.map_err(|error| unreadable(&error))?;
    // A token with fewer scopes than the one that began the export opens fewer files.
    match file.kinds().iter().find(|kind| !types.has(kind)) {
        None => Ok(file),
        Some(kind) => Err(access::lacking(&format!("the token has no scope to read {kind}"))),
    }
}

/// The headers that go with every answer about a file.
fn described(mut response: Response, etag: &str) -> Response {
    let headers = response.headers_mut();
    headers.remove(header::PRAGMA);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    reply::with(response, header::ETAG, etag)
}

fn unreadable(error: &FileError) -> Response {
    let text = match error {
        FileError::NotFound { .. } => {
            let text = "there is no such file, or its export was deleted or has expired";
            return problem::fhir(StatusCode::NOT_FOUND, IssueCode::NotFound, text);
        }
        FileError::Busy => {
            let response =
                problem::fhir(StatusCode::SERVICE_UNAVAILABLE, IssueCode::Throttled, error.to_string());
            return reply::with_static(response, header::RETRY_AFTER, "5");
        }
        FileError::BadAddress { why } => {
            let text = format!("the address does not work: {why}; read the manifest again for another one");
            return problem::fhir(StatusCode::FORBIDDEN, IssueCode::Forbidden, text);
        }
        FileError::Store(error) => return problem::store(Dialect::Fhir, error),
        FileError::Damaged { .. } => "the file is damaged; delete this export and begin another one",
        FileError::Files(_) | FileError::Read(_) | FileError::NoSpace(_) => {
            "the file cannot be read; the server's log says why"
        }
    };
    tracing::error!(%error, "file of an export");
    Dialect::Fhir.plain(StatusCode::INTERNAL_SERVER_ERROR, text)
}

/// What follows from `Accept-Encoding` (RFC 9110 12.5.3); `None` where neither is acceptable. gzip is sent to who names
/// it and does not like the other better.
fn encoding(headers: &HeaderMap) -> Option<Encoding> {
    let (mut gzip, mut identity, mut any) = (None, None, None);
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    for item in values.flat_map(|value| value.split(',')) {
        let mut parts = item.split(';').map(str::trim);
        let coding = parts.next().unwrap_or_default().to_ascii_lowercase();
        let weight = parts.find_map(|part| part.strip_prefix("q=").or_else(|| part.strip_prefix("Q=")));
        let weight = weight.map_or(1.0, |text| text.trim().parse::<f32>().unwrap_or(0.0));
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
        (true, _) if packs >= plain => Some(Encoding::Gzip),
        (_, true) => Some(Encoding::Identity),
        (true, false) => Some(Encoding::Gzip),
        (false, false) => None,
    }
}

/// Does a header name this validator, or any (RFC 9110 13.1.2)?
fn names(headers: &HeaderMap, name: header::HeaderName, etag: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|sent| sent == "*" || sent.strip_prefix("W/").unwrap_or(sent) == etag)
}

/// What of a file is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Whole,
    Part(Range<u64>),
    /// A range that lies behind the end.
    Nothing,
}

/// What follows from `Range` and `If-Range` (RFC 9110 14.2, 13.1.5): one range of bytes. Several, other units and what
/// cannot be read are passed over, as the standard allows.
fn range(headers: &HeaderMap, etag: &str, length: u64) -> Asked {
    if headers.get(header::IF_RANGE).is_some_and(|value| value.as_bytes() != etag.as_bytes()) {
        return Asked::Whole;
    }
    let mut values = headers.get_all(header::RANGE).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return Asked::Whole };
    let range = value.to_str().ok().and_then(|value| value.trim().strip_prefix("bytes="));
    let Some((first, last)) = range.and_then(|range| range.trim().split_once('-')) else {
        return Asked::Whole;
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && text.len() < 20;
    if !digits(first) || !digits(last) {
        return Asked::Whole;
    }
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => match first < length {
            true => Asked::Part(first..length.min(last + 1)),
            false => Asked::Nothing,
        },
        (Ok(first), Err(_)) if last.is_empty() => match first < length {
            true => Asked::Part(first..length),
            false => Asked::Nothing,
        },
        // The last so many bytes.
        (Err(_), Ok(count)) if first.is_empty() => match count.min(length) {
            0 => Asked::Nothing,
            count => Asked::Part(length - count..length),
        },
        _ => Asked::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (header::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn encodings_are_chosen_by_weight() {
        use Encoding::{Gzip, Identity};
        #[track_caller]
        fn check(accept: &str, chosen: Option<Encoding>) {
            assert_eq!(encoding(&headers(&[("accept-encoding", accept)])), chosen, "{accept}");
        }
        assert_eq!(encoding(&HeaderMap::new()), Some(Identity));
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

    #[test]
    fn one_range_is_read() {
        #[track_caller]
        fn check(range_: &str, length: u64, asked: Asked) {
            assert_eq!(range(&headers(&[("range", range_)]), "\"e\"", length), asked, "{range_} of {length}");
        }
        check("bytes=0-0", 10, Asked::Part(0..1));
        check("bytes=2-5", 10, Asked::Part(2..6));
        check("bytes=2-", 10, Asked::Part(2..10));
        check("bytes=2-99", 10, Asked::Part(2..10));
        check("bytes=-3", 10, Asked::Part(7..10));
        check("bytes=-99", 10, Asked::Part(0..10));
        check("bytes=10-", 10, Asked::Nothing);
        check("bytes=10-11", 10, Asked::Nothing);
        check("bytes=-0", 10, Asked::Nothing);
        check("bytes=0-", 0, Asked::Nothing);
        for odd in ["bytes=5-2", "bytes=", "bytes=-", "lines=0-1", "bytes=0-1,4-5", "bytes=a-b", "bytes=+1-2"]
        {
            check(odd, 10, Asked::Whole);
        }
        check("bytes=0-18446744073709551615", 10, Asked::Whole);
    }

    #[test]
    fn conditions_compare_validators() {
        let none_match =
            |value: &str| names(&headers(&[("if-none-match", value)]), header::IF_NONE_MATCH, "\"e\"");
        assert!(
            none_match("\"e\"") && none_match("W/\"e\"") && none_match("\"d\", \"e\"") && none_match("*")
        );
        assert!(!none_match("\"d\"") && !none_match("e"));
        let if_range =
            |value: &str| range(&headers(&[("range", "bytes=0-0"), ("if-range", value)]), "\"e\"", 9);
        assert_eq!(if_range("\"e\""), Asked::Part(0..1));
        for other in ["\"d\"", "W/\"e\"", "Sat, 21 Nov 2026 08:00:00 GMT"] {
            assert_eq!(if_range(other), Asked::Whole, "{other}");
        }
    }
}
