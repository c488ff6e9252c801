//! Requests for a part of a file or of the content of a Binary, in bytes (RFC 9110 section 14).

use std::ops::Range;

use fhir::IssueCode;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use super::problem;
use super::reply::{self, Response};

/// The requested part of a file or of the content of a Binary.
#[derive(Debug, PartialEq, Eq)]
enum RequestedRange {
    /// All of it.
    WholeFile,
    /// These bytes.
    Part(Range<u64>),
    /// A range that begins at or beyond the end.
    Unsatisfiable,
}

/// Parses `Range` and `If-Range` (RFC 9110 sections 14.2 and 13.1.5): a single range of bytes. Several
/// ranges, other units and malformed values are ignored, as the standard allows.
///
/// `headers::Range` 0.4 drops a suffix that is longer than the file, and does not distinguish a malformed
/// range from one beyond the end; so both headers are parsed here.
fn requested_range(headers: &HeaderMap, etag: &str, length: u64) -> RequestedRange {
    if headers.get(header::IF_RANGE).is_some_and(|value| value.as_bytes() != etag.as_bytes()) {
        return RequestedRange::WholeFile;
    }
    let mut values = headers.get_all(header::RANGE).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return RequestedRange::WholeFile };
    let range = value.to_str().ok().and_then(|value| value.trim().strip_prefix("bytes="));
    let Some((first, last)) = range.and_then(|range| range.trim().split_once('-')) else {
        return RequestedRange::WholeFile;
    };
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()) && text.len() < 20;
    if !digits(first) || !digits(last) {
        return RequestedRange::WholeFile;
    }
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => match first < length {
            true => RequestedRange::Part(first..length.min(last + 1)),
            false => RequestedRange::Unsatisfiable,
        },
        (Ok(first), Err(_)) if last.is_empty() => match first < length {
            true => RequestedRange::Part(first..length),
            false => RequestedRange::Unsatisfiable,
        },
        // A suffix range: the last `count` bytes.
        (Err(_), Ok(count)) if first.is_empty() => match count.min(length) {
            0 => RequestedRange::Unsatisfiable,
            count => RequestedRange::Part(length - count..length),
        },
        _ => RequestedRange::WholeFile,
    }
}

/// The response to a range that begins at or beyond the end, with the length.
fn not_satisfiable(length: u64) -> Response {
    let text = format!("the range must begin before the end of the content, which has {length} bytes");
    let response = problem::fhir_error(StatusCode::RANGE_NOT_SATISFIABLE, IssueCode::Invalid, text);
    reply::with(response, header::CONTENT_RANGE, &format!("bytes */{length}"))
}

/// The bytes of a file that a response has, and the length of the file.
#[derive(Debug)]
pub struct FilePart {
    /// The bytes.
    pub range: Range<u64>,
    length: u64,
    /// Whether the request has a range, which can also be that of the whole file.
    is_partial: bool,
}

impl FilePart {
    /// Selects the part for a request. HEAD and a request without a valid range select the whole file.
    ///
    /// # Errors
    /// Returns the response 416 to a range that begins at or beyond the end.
    pub fn select(method: &Method, headers: &HeaderMap, etag: &str, length: u64) -> Result<Self, Response> {
        let range = match *method == Method::GET {
            true => requested_range(headers, etag, length),
            false => RequestedRange::WholeFile,
        };
        match range {
            RequestedRange::WholeFile => Ok(Self { range: 0..length, length, is_partial: false }),
            RequestedRange::Part(range) => Ok(Self { range, length, is_partial: true }),
            RequestedRange::Unsatisfiable => Err(not_satisfiable(length)),
        }
    }

    /// Adds status, length and range to a response with these bytes, or without a body.
    pub fn describe(&self, mut response: Response) -> Response {
        let Range { start, end } = self.range;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(end - start));
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if !self.is_partial {
            return response;
        }
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let range = format!("bytes {start}-{}/{}", end - 1, self.length);
        reply::with(response, header::CONTENT_RANGE, &range)
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
    fn one_range_is_read() {
        #[track_caller]
        fn check(range_: &str, length: u64, expected: RequestedRange) {
            assert_eq!(
                requested_range(&headers(&[("range", range_)]), "\"e\"", length),
                expected,
                "{range_} of {length}"
            );
        }
        check("bytes=0-0", 10, RequestedRange::Part(0..1));
        check("bytes=2-5", 10, RequestedRange::Part(2..6));
        check("bytes=2-", 10, RequestedRange::Part(2..10));
        check("bytes=2-99", 10, RequestedRange::Part(2..10));
        check("bytes=-3", 10, RequestedRange::Part(7..10));
        check("bytes=-99", 10, RequestedRange::Part(0..10));
        check("bytes=10-", 10, RequestedRange::Unsatisfiable);
        check("bytes=10-11", 10, RequestedRange::Unsatisfiable);
        check("bytes=-0", 10, RequestedRange::Unsatisfiable);
        check("bytes=0-", 0, RequestedRange::Unsatisfiable);
        for odd in ["bytes=5-2", "bytes=", "bytes=-", "lines=0-1", "bytes=0-1,4-5", "bytes=a-b", "bytes=+1-2"]
        {
            check(odd, 10, RequestedRange::WholeFile);
        }
        check("bytes=0-18446744073709551615", 10, RequestedRange::WholeFile);
    }

    #[test]
    fn a_range_needs_the_same_etag() {
        let if_range = |value: &str| {
            requested_range(&headers(&[("range", "bytes=0-0"), ("if-range", value)]), "\"e\"", 9)
        };
        assert_eq!(if_range("\"e\""), RequestedRange::Part(0..1));
        for other in ["\"d\"", "W/\"e\"", "Sat, 21 Nov 2026 08:00:00 GMT"] {
            assert_eq!(if_range(other), RequestedRange::WholeFile, "{other}");
        }
    }
}
