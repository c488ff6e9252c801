//! The content of a Binary (FHIR R4, Binary): from raw bytes to the resource, and back in ranges.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use fhir::primitive::are_base64_digits;
use memchr::memmem;
use serde::Deserialize;
use serde_json::json;

use crate::body::references::local;

/// Maximum number of characters of base64 that are decoded at a time; a multiple of four.
const DECODED_AT_ONCE: usize = 64 << 10;

/// The resource for raw content, as JSON. `id` is the id if the URL of the request has one.
///
/// ```
/// use trefoil_resources::binary::resource_of;
/// let resource = resource_of(Some("b"), "text/plain", None, b"Hello");
/// assert_eq!(resource, br#"{"resourceType":"Binary","id":"b","contentType":"text/plain","data":"SGVsbG8="}"#);
/// ```
pub fn resource_of(
    id: Option<&str>,
    content_type: &str,
    security_context: Option<&str>,
    content: &[u8],
) -> Vec<u8> {
    let mut text = String::with_capacity(content.len().div_ceil(3) * 4 + 512);
    text.push_str(r#"{"resourceType":"Binary""#);
    let mut member = |name: &str, value: serde_json::Value| text.push_str(&format!(r#","{name}":{value}"#));
    if let Some(id) = id {
        member("id", json!(id));
    }
    member("contentType", json!(content_type));
    if let Some(reference) = security_context {
        member("securityContext", json!({ "reference": reference }));
    }
    if !content.is_empty() {
        text.push_str(r#","data":""#);
        STANDARD.encode_string(content, &mut text);
        text.push('"');
    }
    text.push('}');
    text.into_bytes()
}

/// Length of the longest raw content whose resource has at most `resource_bytes` bytes.
pub fn longest_content(resource_bytes: usize) -> usize {
    // The other members of the resource.
    const ENVELOPE: usize = 1 << 10;
    resource_bytes.saturating_sub(ENVELOPE) / 4 * 3
}

/// Type and id of the resource that decides who may read a stored Binary: its `securityContext`, if that is
/// on the server at `fhir_base`.
pub fn security_context(binary: &[u8], fhir_base: &str) -> Option<(&'static str, String)> {
    #[derive(Deserialize)]
    struct Context {
        reference: Option<String>,
    }
    // Stored JSON has no whitespace between tokens, and a quotation mark inside a string is escaped.
    const MEMBER: &[u8] = br#""securityContext":"#;
    let value = &binary[memmem::find(binary, MEMBER)? + MEMBER.len()..];
    let context = serde_json::Deserializer::from_slice(value).into_iter::<Context>().next()?.ok()?;
    let reference = context.reference?;
    local(&reference, fhir_base).map(|(kind, id)| (kind, id.to_owned()))
}

/// The content of a stored Binary. It is decoded while it is sent: memory is needed only for the resource.
#[derive(Debug, Clone)]
pub struct BinaryContent {
    /// The media type, `contentType`.
    pub media_type: String,
    /// The reference in `securityContext`.
    pub security_context: Option<String>,
    /// The base64 of the content, without whitespace.
    base64: Bytes,
    /// Length of the content, in bytes.
    length: usize,
}

impl BinaryContent {
    /// The content of a stored Binary. `None` if `data` is not valid base64, or another element has a wrong
    /// JSON type.
    ///
    /// ```
    /// use trefoil_resources::binary::BinaryContent;
    /// let binary = br#"{"resourceType":"Binary","contentType":"text/plain","data":"SGVs\nbG8="}"#;
    /// let content = BinaryContent::read(&binary.to_vec().into()).unwrap();
    /// let part: Vec<u8> = content.part(1..4).flatten().flatten().collect();
    /// assert_eq!((content.length(), &part[..]), (5, &b"ell"[..]));
    /// ```
    pub fn read(binary: &Bytes) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Binary<'a> {
            content_type: Option<String>,
            security_context: Option<Reference>,
            #[serde(borrow, default)]
            data: fhir::Text<'a>,
        }
        #[derive(Deserialize)]
        struct Reference {
            reference: Option<String>,
        }
        let Binary { content_type, security_context, data } = serde_json::from_slice(binary).ok()?;
        let has_others = !are_base64_digits(data.trim_end_matches('=').as_bytes());
        let base64 = match &*data {
            text if has_others => text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect(),
            // Text without escapes is a part of the resource, which is not copied.
            text if binary.as_ptr_range().contains(&text.as_ptr()) => binary.slice_ref(text.as_bytes()),
            text => Bytes::copy_from_slice(text.as_bytes()),
        };
        Some(Self {
            media_type: content_type.unwrap_or_else(|| "application/octet-stream".to_owned()),
            security_context: security_context.and_then(|context| context.reference),
            length: decoded_length(&base64)?,
            base64,
        })
    }

    /// Length of the content, in bytes.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The bytes of a range of the content, in pieces. The range must be within the content.
    pub fn part(&self, range: Range<usize>) -> impl Iterator<Item = Option<Bytes>> + Send + use<> {
        let (base64, Range { start, end }) = (self.base64.clone(), range);
        let first = start / 3 * 4;
        let last = if start < end { base64.len().min(end.div_ceil(3) * 4) } else { first };
        (first..last).step_by(DECODED_AT_ONCE).map(move |at| {
            let piece = STANDARD.decode(&base64[at..last.min(at + DECODED_AT_ONCE)]).ok()?;
            let begin = at / 4 * 3;
            let (from, to) = (start.max(begin) - begin, piece.len().min(end - begin));
            Some(Bytes::from(piece).slice(from..to))
        })
    }
}

/// Length in bytes of what a text in base64 encodes, or `None` for an invalid text.
fn decoded_length(base64: &[u8]) -> Option<usize> {
    let padding = base64.iter().rev().take(2).take_while(|byte| **byte == b'=').count();
    let (digits, _) = base64.split_at(base64.len() - padding);
    // The last group shows whether its unused bits are zero.
    let last = &base64[base64.len().saturating_sub(4)..];
    let is_valid =
        base64.len().is_multiple_of(4) && are_base64_digits(digits) && STANDARD.decode(last).is_ok();
    is_valid.then(|| base64.len() / 4 * 3 - padding)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content(data: &str) -> Option<BinaryContent> {
        let resource = json!({ "resourceType": "Binary", "contentType": "text/plain", "data": data });
        BinaryContent::read(&resource.to_string().into())
    }

    fn bytes(content: &BinaryContent, range: Range<usize>) -> Vec<u8> {
        content.part(range).flat_map(|piece| piece.expect("the text was checked")).collect()
    }

    proptest! {
        #[test]
        fn every_range_is_decoded(
            raw in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..20),
                prop::collection::vec(any::<u8>(), 49_140..49_170),
            ],
            ends in (any::<prop::sample::Index>(), any::<prop::sample::Index>()),
        ) {
            let resource = Bytes::from(resource_of(None, "a/b", Some("Patient/p"), &raw));
            let content = BinaryContent::read(&resource).unwrap();
            prop_assert_eq!(content.length(), raw.len());
            prop_assert_eq!(&bytes(&content, 0..raw.len()), &raw);
            let (one, other) = (ends.0.index(raw.len() + 1), ends.1.index(raw.len() + 1));
            let range = one.min(other)..one.max(other);
            prop_assert_eq!(&bytes(&content, range.clone())[..], &raw[range]);
            prop_assert_eq!(security_context(&resource, ""), Some(("Patient", "p".to_owned())));
        }
    }

    #[test]
    fn base64_is_checked_before_the_first_byte_is_sent() {
        #[track_caller]
        fn check(data: &str, expected: Option<&str>) {
            let part = content(data).map(|content| bytes(&content, 0..content.length()));
            assert_eq!(part.as_deref(), expected.map(str::as_bytes), "{data}");
        }
        check("", Some(""));
        check("SGVsbG8=", Some("Hello"));
        check(" SGVs\r\n\tbG8= ", Some("Hello"));
        check("SGVsbG8", None);
        check("SGVsbG9=", None);
        check("SGV=bG8=", None);
        check("SGVsb===", None);
        check("SGVs_G8=", None);
        check("é", None);
    }

    #[test]
    fn escapes_of_json_are_resolved() {
        let binary = br#"{"resourceType":"Binary","data":"\u0053GVsbG\/v","contentType":"text\/plain"}"#;
        let content = BinaryContent::read(&Bytes::from_static(binary)).unwrap();
        assert_eq!(content.media_type, "text/plain");
        assert_eq!(bytes(&content, 0..6), b"Hello\xef".map(|byte| byte).to_vec());
    }

    #[test]
    fn the_security_context_is_a_resource_of_this_server() {
        #[track_caller]
        fn check(context: serde_json::Value, expected: Option<(&'static str, &str)>) {
            let binary = json!({ "contentType": "a/b", "securityContext": context }).to_string();
            let context = security_context(binary.as_bytes(), "https://here.example/r4");
            assert_eq!(context, expected.map(|(kind, id)| (kind, id.to_owned())), "{binary}");
        }
        check(json!({ "reference": "Patient/p" }), Some(("Patient", "p")));
        check(json!({ "reference": "https://here.example/r4/Patient/p" }), Some(("Patient", "p")));
        check(json!({ "reference": "https://there.example/r4/Patient/p" }), None);
        check(json!({ "display": "Patient/p" }), None);
        check(json!(7), None);
        let escaped = br#"{"securityContext":{"reference":"DocumentReference\/d"}}"#;
        assert_eq!(security_context(escaped, ""), Some(("DocumentReference", "d".to_owned())));
    }
}
