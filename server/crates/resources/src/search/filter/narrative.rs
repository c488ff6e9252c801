//! The words of a narrative, for the search parameter `_text`.

/// The words of a text: runs of letters and digits.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// Elements that do not end a word (XHTML 1.0, inline elements).
const INLINE: [&str; 14] =
    ["a", "abbr", "acronym", "b", "big", "code", "em", "i", "q", "small", "span", "strong", "sub", "sup"];

/// The text of XHTML without its tags and comments.
pub(super) fn plain_text(html: &str) -> String {
    let mut out = String::with_capacity(html.len());
    let mut rest = html;
    while let Some(start) = rest.find(['<', '&']) {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let is_tag = rest.starts_with('<');
        let end = if rest.starts_with("<!--") {
            "-->"
        } else if is_tag {
            ">"
        } else {
            ";"
        };
        let Some(length) = rest.find(end).filter(|length| is_tag || *length <= LONGEST_ENTITY) else {
            // A lone sign, which valid XHTML does not have.
            out.push(' ');
            rest = &rest[1..];
            continue;
        };
        let inside = &rest[1..length];
        rest = &rest[length + end.len()..];
        if !is_tag {
            out.push(character(inside));
            continue;
        }
        let name = inside.trim_start_matches('/').split([' ', '/', '\n', '\t']).next().unwrap_or_default();
        if !INLINE.contains(&name) {
            out.push(' ');
        }
    }
    out.push_str(rest);
    out
}

/// Maximum length of a reference to a character, in bytes.
const LONGEST_ENTITY: usize = 10;

/// The character of a reference such as `&#233;`. Narratives of FHIR may use the names of HTML for others,
/// which are not told apart here.
fn character(reference: &str) -> char {
    let number = reference.strip_prefix('#').and_then(|number| match number.strip_prefix(['x', 'X']) {
        Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16).ok(),
        None => number.parse().ok(),
    });
    number.and_then(char::from_u32).unwrap_or(' ')
}
