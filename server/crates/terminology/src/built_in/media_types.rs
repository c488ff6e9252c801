//! BCP 13: media types (RFC 6838 4.2; parameters as in RFC 2045 5.1).

use super::Word;

/// The top-level types that IANA knows.
const TYPES: &[&str] = &[
    "application",
    "audio",
    "example",
    "font",
    "haptics",
    "image",
    "message",
    "model",
    "multipart",
    "text",
    "video",
];

/// Reads a media type.
pub(super) fn read(code: &str) -> Result<Word, String> {
    let mut parts = code.split(';');
    let name = parts.next().unwrap_or_default();
    let (kind, subtype) = name.trim_end().split_once('/').ok_or("it has no '/' between type and subtype")?;
    let kind = kind.to_ascii_lowercase();
    if !TYPES.contains(&kind.as_str()) {
        return Err(format!("'{kind}' is no top-level media type"));
    }
    if !is_restricted_name(subtype) {
        return Err(format!("'{subtype}' is no subtype"));
    }
    for parameter in parts {
        let (name, value) = parameter.trim().split_once('=').ok_or("a parameter has no '='")?;
        let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let fine = match quoted {
            Some(inner) => value.len() > 1 && inner.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'"'),
            None => is_token(value),
        };
        if !is_restricted_name(name) || !fine {
            return Err(format!("'{}' is no parameter", parameter.trim()));
        }
    }
    // Type and subtype do not depend on case; values of parameters may.
    let end = name.len();
    Ok(Word { code: format!("{}{}", name.to_ascii_lowercase(), &code[end..]), ..Word::default() })
}

fn is_restricted_name(name: &str) -> bool {
    let rest = |b: u8| b.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&b);
    name.len() <= 127
        && name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && name.bytes().all(rest)
}

fn is_token(value: &str) -> bool {
    let other = b"()<>@,;:\\\"/[]?=";
    !value.is_empty() && value.bytes().all(|b| b.is_ascii_graphic() && !other.contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_ones_are_spelled_in_lower_case() {
        for (given, code) in [
            ("text/plain", "text/plain"),
            ("Application/FHIR+json", "application/fhir+json"),
            ("text/plain; charset=UTF-8", "text/plain; charset=UTF-8"),
            ("image/vnd.djvu", "image/vnd.djvu"),
            ("multipart/mixed;boundary=\"a b\"", "multipart/mixed;boundary=\"a b\""),
            ("model/x3d-vrml", "model/x3d-vrml"),
        ] {
            assert_eq!(read(given).unwrap().code, code);
        }
    }

    #[test]
    fn bad_ones_are_refused() {
        for (given, why) in [
            ("", "no '/'"),
            ("text", "no '/'"),
            ("texts/plain", "no top-level"),
            ("text/", "no subtype"),
            ("text/pla in", "no subtype"),
            ("text/plain/x", "no subtype"),
            ("text/-x", "no subtype"),
            ("text/plain; charset", "no '='"),
            ("text/plain; charset=", "no parameter"),
            ("text/plain; a=\"b", "no parameter"),
        ] {
            let error = read(given).unwrap_err();
            assert!(error.contains(why), "{given}: {error}");
        }
    }
}
