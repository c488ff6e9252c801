//! Comments, strings and test attributes of Rust sources.

use syn::Attribute;

/// A piece of text in a source, with its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// The text of a line comment, without the slashes.
    Comment(usize, String),
    /// The content of a string literal.
    Literal(usize, String),
}

/// `true` for an item with `#[cfg(test)]`.
pub fn is_test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Ident>().is_ok_and(|condition| condition == "test")
    })
}

/// The comments and strings of a source, in order.
pub fn pieces(source: &str) -> Vec<Piece> {
    let bytes = source.as_bytes();
    let mut pieces = Vec::new();
    let (mut offset, mut line) = (0, 1);
    while offset < bytes.len() {
        let rest = &source[offset..];
        let length = if rest.starts_with("//") {
            let end = rest.find('\n').unwrap_or(rest.len());
            let text = rest[..end].trim_start_matches('/').trim_start_matches('!').trim();
            pieces.push(Piece::Comment(line, text.to_owned()));
            end
        } else if let Some(hashes) = raw_string_hashes(rest, offset, bytes) {
            let open = rest.find('"').unwrap_or_default() + 1;
            let close = format!("\"{}", "#".repeat(hashes));
            let end = rest[open..].find(&close).map_or(rest.len(), |end| open + end);
            pieces.push(Piece::Literal(line, rest[open..end].to_owned()));
            (end + close.len()).min(rest.len())
        } else if rest.starts_with('"') {
            let end = string_end(rest);
            pieces.push(Piece::Literal(line, rest[1..end].to_owned()));
            (end + 1).min(rest.len())
        } else if rest.starts_with('\'') {
            character_length(rest)
        } else {
            rest.chars().next().map_or(1, char::len_utf8)
        };
        line += source[offset..offset + length].matches('\n').count();
        offset += length;
    }
    pieces
}

/// The number of hashes if a raw string begins here.
fn raw_string_hashes(rest: &str, index: usize, bytes: &[u8]) -> Option<usize> {
    let after_prefix = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    if index > 0 && (bytes[index - 1].is_ascii_alphanumeric() || bytes[index - 1] == b'_') {
        return None;
    }
    let hashes = after_prefix.len() - after_prefix.trim_start_matches('#').len();
    after_prefix[hashes..].starts_with('"').then_some(hashes)
}

fn string_end(rest: &str) -> usize {
    let mut is_escaped = false;
    for (offset, c) in rest.char_indices().skip(1) {
        match c {
            '"' if !is_escaped => return offset,
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    rest.len()
}

/// The length of a character literal, or 1 for a lifetime.
fn character_length(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    let second = chars.next().map(|(_, c)| c);
    if second == Some('\\') {
        return rest[2..].find('\'').map_or(1, |end| 2 + end + 1).max(4).min(rest.len());
    }
    match chars.next() {
        Some((at, '\'')) => at + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_found() {
        let source = "//! Top.\nlet a = \"x // \\\" y\"; // Why.\nlet b = r#\"raw \"text\"\"#; let c = '\"'; fn f<'a>() {}";
        let comment = |line, text: &str| Piece::Comment(line, text.to_owned());
        let literal = |line, text: &str| Piece::Literal(line, text.to_owned());
        assert_eq!(
            pieces(source),
            [comment(1, "Top."), literal(2, "x // \\\" y"), comment(2, "Why."), literal(3, "raw \"text\"")]
        );
    }
}
