//! Media types (BCP 13: RFC 6838 4.2, with parameters as in RFC 2045 5.1).

use super::parsed_code::ParsedCode;

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

pub(super) fn parse_media_type(code: &str) -> Result<ParsedCode, String> {
    let mut parts = split_outside_quotes(code);
    let name = parts.next().unwrap_or_default();
    let (kind, subtype) = name.trim_end().split_once('/').ok_or("it has no '/' between type and subtype")?;
    let kind = kind.to_ascii_lowercase();
    if !TYPES.contains(&kind.as_str()) {
        return Err(format!("'{kind}' is not a top-level media type"));
    }
    if !is_restricted_name(subtype) {
        return Err(format!("'{subtype}' is not a subtype"));
    }
    for parameter in parts {
        let (name, value) = parameter.trim().split_once('=').ok_or("a parameter has no '='")?;
        let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let fine = match quoted {
            Some(inner) => value.len() > 1 && is_quoted_content(inner),
            None => is_token(value),
        };
        if !is_restricted_name(name) || !fine {
            return Err(format!("'{}' is not a parameter", parameter.trim()));
        }
    }
    // Type and subtype are case-insensitive; values of parameters may be case-sensitive.
    let end = name.len();
    Ok(ParsedCode { code: format!("{}{}", name.to_ascii_lowercase(), &code[end..]), ..ParsedCode::default() })
}

/// The type and the parameters. A quoted value may contain a semicolon, and a quotation mark after a
/// backslash (RFC 2045 5.1, RFC 822 3.3).
fn split_outside_quotes(code: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    code.split(move |character| {
        let was_escaped = std::mem::replace(&mut is_escaped, false);
        match character {
            '\\' if is_quoted && !was_escaped => is_escaped = true,
            '"' if !was_escaped => is_quoted = !is_quoted,
            _ => {}
        }
        character == ';' && !is_quoted
    })
}

/// `true` for printable characters in which each quotation mark follows a backslash.
fn is_quoted_content(inner: &str) -> bool {
    let mut bytes = inner.bytes();
    while let Some(byte) = bytes.next() {
        let is_fine = match byte {
            b'\\' => bytes.next().is_some_and(|escaped| matches!(escaped, b' '..=b'~')),
            b'"' => false,
            other => matches!(other, b' '..=b'~'),
        };
        if !is_fine {
            return false;
        }
    }
    true
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
    fn valid_media_types_are_normalized() {
        for (given, code) in [
            ("text/plain", "text/plain"),
            ("Application/FHIR+json", "application/fhir+json"),
            ("text/plain; charset=UTF-8", "text/plain; charset=UTF-8"),
            ("image/vnd.djvu", "image/vnd.djvu"),
            ("multipart/mixed;boundary=\"a b\"", "multipart/mixed;boundary=\"a b\""),
            ("multipart/related; boundary=\"a;b\"", "multipart/related; boundary=\"a;b\""),
            ("text/plain; a=\"x\\\";y\"; b=c", "text/plain; a=\"x\\\";y\"; b=c"),
            ("model/x3d-vrml", "model/x3d-vrml"),
        ] {
            assert_eq!(parse_media_type(given).unwrap().code, code);
        }
    }

    #[test]
    fn invalid_media_types_are_rejected() {
        for (given, reason) in [
            ("", "no '/'"),
            ("text", "no '/'"),
            ("texts/plain", "not a top-level"),
            ("text/", "not a subtype"),
            ("text/pla in", "not a subtype"),
            ("text/plain/x", "not a subtype"),
            ("text/-x", "not a subtype"),
            ("text/plain; charset", "no '='"),
            ("text/plain; charset=", "not a parameter"),
            ("text/plain; a=\"b", "not a parameter"),
            ("text/plain; a=\"b\"c\"", "not a parameter"),
            ("text/plain; a=\"b\\\"", "not a parameter"),
            ("text/plain; a=b\"c;d\"", "not a parameter"),
        ] {
            let error = parse_media_type(given).unwrap_err();
            assert!(error.contains(reason), "{given}: {error}");
        }
    }
}
