//! Reads a resource as JSON in one pass over its bytes, without building a tree. The scanner checks the text
//! strictly (RFC 8259, UTF-8, depth), copies it without whitespace between tokens, and collects the data that
//! [`prepare`](crate::write::prepare) needs. Strings, numbers and the order of members are preserved.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use jiff::Timestamp;
use smallvec::SmallVec;

use crate::ResourceBodyError;
use crate::search::index::collect::TermCollector;
use crate::search::index::elements::{self, ElementNode, ReferenceRole};

/// Result of a scan, with the copy of the resource.
#[derive(Debug, Default)]
pub(crate) struct ResourceScan {
    /// The resource without whitespace between tokens. `meta`, if there is one, begins with empty strings for
    /// `versionId` and `lastUpdated`.
    pub out: Vec<u8>,
    pub kind: Option<String>,
    /// Position in `out` after the member `resourceType`.
    pub after_type: usize,
    /// The value of the member `id`.
    pub id: Option<String>,
    /// Range of the id in `out`, without the quotation marks.
    pub id_range: Range<usize>,
    pub meta: Option<ScannedMeta>,
    /// `meta.lastUpdated` of the text, if it is an instant.
    pub last_updated: Option<Timestamp>,
    /// The values of the references that may lead to a Patient.
    pub references: Vec<(ReferenceRole, String)>,
    pub terms: TermCollector,
    /// `true` if a number has more digits or a greater exponent than a 64-bit floating-point number.
    pub has_imprecise_number: bool,
    /// `true` if another member preceded `resourceType`.
    pub late_type: bool,
}

/// Positions in `out` of the two values in `meta`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScannedMeta {
    pub version_at: usize,
    pub updated_at: usize,
}

/// Replacements for whole strings: from the URLs of entries in a Bundle to the new references.
pub(crate) type RenamedReferences = HashMap<String, String>;

/// Scans `body`, which must be UTF-8 without byte order mark. `kind` is the type if it is already known.
/// Otherwise the type is taken from the member `resourceType`.
pub(crate) fn scan(
    body: &[u8],
    kind: Option<&str>,
    depth_limit: usize,
    names: Option<&RenamedReferences>,
) -> Result<ResourceScan, ResourceBodyError> {
    let mut scanner = ResourceScanner {
        bytes: body,
        at: 0,
        copied: 0,
        depth: 0,
        depth_limit,
        elements: kind.and_then(elements::of),
        names: names.filter(|names| !names.is_empty()),
        found: ResourceScan { out: Vec::with_capacity(body.len() + 256), ..ResourceScan::default() },
    };
    scanner.resource()?;
    Ok(scanner.found)
}

struct ResourceScanner<'a> {
    bytes: &'a [u8],
    /// Position of the next byte to read.
    at: usize,
    /// Position up to which the bytes were copied to `out` or dropped.
    copied: usize,
    depth: usize,
    depth_limit: usize,
    /// The elements of the type that are collected. `None` before the type is known.
    elements: Option<&'static ElementNode>,
    names: Option<&'a RenamedReferences>,
    found: ResourceScan,
}

/// The collected elements at the current position. `None` outside of them.
type ElementTrail = Option<&'static ElementNode>;

/// The member names of one object. They must be unique, because two readers of the same bytes could otherwise
/// use different values.
#[derive(Default)]
struct MemberNames<'a> {
    /// Names of an object with few members. Comparing them is faster than hashing.
    few: SmallVec<[Cow<'a, str>; 16]>,
    many: HashSet<Cow<'a, str>>,
}

impl<'a> MemberNames<'a> {
    fn add(&mut self, name: Cow<'a, str>) -> Result<(), ResourceBodyError> {
        if self.few.contains(&name) || self.many.contains(&name) {
            return Err(ResourceBodyError::DuplicateMember { name: name.into_owned() });
        }
        if self.few.len() < self.few.inline_size() {
            self.few.push(name);
        } else {
            self.many.insert(name);
        }
        Ok(())
    }
}

impl<'a> ResourceScanner<'a> {
    fn resource(&mut self) -> Result<(), ResourceBodyError> {
        self.space();
        if self.peek() != Some(b'{') {
            // A text that does not begin with a JSON value is reported as invalid JSON instead of as another
            // JSON type.
            let kind_of_value = match self.peek() {
                Some(b'[') => "an array",
                Some(b'"') => "a string",
                Some(b'-' | b'0'..=b'9') => "a number",
                Some(b't' | b'f') => "a boolean",
                Some(b'n') => "null",
                Some(_) => return Err(self.wrong("expected '{'")),
                None => return Err(self.wrong("the text is empty")),
            };
            self.value(None)?;
            return Err(ResourceBodyError::NotObject { found: kind_of_value });
        }
        self.members(|scanner, key| scanner.top_member(&key))?;
        self.space();
        if self.at < self.bytes.len() {
            return Err(self.wrong("text after the end of the resource"));
        }
        self.flush();
        Ok(())
    }

    fn top_member(&mut self, key: &MemberKey<'a>) -> Result<(), ResourceBodyError> {
        let name = key.text();
        match &*name {
            "resourceType" => {
                let kind = self.text_value()?.ok_or(ResourceBodyError::NoType)?;
                self.elements = self.elements.or_else(|| elements::of(&kind));
                self.found.kind = Some(kind.into_owned());
                self.flush();
                self.found.after_type = self.found.out.len();
            }
            "id" => {
                self.flush();
                let start = self.found.out.len() + 1;
                let id =
                    self.text_value()?.ok_or_else(|| ResourceBodyError::BadId("not a string".to_owned()))?;
                self.found.id = Some(id.into_owned());
                self.flush();
                self.found.id_range = start..self.found.out.len() - 1;
            }
            "meta" => {
                self.found.late_type |= self.found.kind.is_none();
                self.meta()?;
            }
            name => {
                self.found.late_type |= self.found.kind.is_none();
                self.value(self.elements.and_then(|elements| elements.child(name)))?;
            }
        }
        Ok(())
    }

    /// Copies `meta`. `versionId` and `lastUpdated` are moved to the front and left empty.
    fn meta(&mut self) -> Result<(), ResourceBodyError> {
        if self.peek() != Some(b'{') {
            return Err(ResourceBodyError::BadMeta);
        }
        self.flush();
        let out = &mut self.found.out;
        out.extend_from_slice(br#"{"versionId":""#);
        let version_at = out.len();
        out.extend_from_slice(br#"","lastUpdated":""#);
        let updated_at = out.len();
        out.push(b'"');
        self.found.meta = Some(ScannedMeta { version_at, updated_at });
        // The scan appends braces, commas and the two dropped members after `end`; they are removed again.
        let mut end = out.len();
        self.members(|scanner, key| {
            scanner.found.out.truncate(end);
            scanner.copied = scanner.at;
            let name = key.text();
            if matches!(&*name, "versionId" | "lastUpdated") {
                let has_imprecise_number = scanner.found.has_imprecise_number;
                let start = scanner.at;
                scanner.value(None)?;
                if name == "lastUpdated" {
                    let text = serde_json::from_slice::<Cow<'_, str>>(&scanner.bytes[start..scanner.at]);
                    scanner.found.last_updated = text.ok().and_then(|text| text.parse().ok());
                }
                scanner.found.has_imprecise_number = has_imprecise_number;
                return Ok(());
            }
            scanner.found.out.push(b',');
            scanner.found.out.extend_from_slice(key.quoted);
            scanner.found.out.push(b':');
            let meta = scanner.elements.and_then(|elements| elements.child("meta"));
            scanner.value(meta.and_then(|meta| meta.child(&name)))?;
            scanner.flush();
            end = scanner.found.out.len();
            Ok(())
        })?;
        self.found.out.truncate(end);
        self.found.out.push(b'}');
        self.copied = self.at;
        Ok(())
    }

    /// Reads an object. `member` is called after each colon and reads the value.
    fn members(
        &mut self,
        mut member: impl FnMut(&mut Self, MemberKey<'a>) -> Result<(), ResourceBodyError>,
    ) -> Result<(), ResourceBodyError> {
        self.enter()?;
        self.space();
        if self.peek() == Some(b'}') {
            self.leave();
            return Ok(());
        }
        let mut names = MemberNames::default();
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.wrong("expected a member name in quotes"));
            }
            let start = self.at;
            let escaped = self.string()?;
            let key = MemberKey { quoted: &self.bytes[start..self.at], escaped };
            names.add(key.text())?;
            self.space();
            if self.peek() != Some(b':') {
                return Err(self.wrong("expected ':'"));
            }
            self.at += 1;
            self.space();
            member(self, key)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.leave();
                    return Ok(());
                }
                _ => return Err(self.wrong("expected ',' or '}'")),
            }
            self.space();
        }
    }

    fn array(&mut self, trail: ElementTrail) -> Result<(), ResourceBodyError> {
        self.enter()?;
        self.space();
        if self.peek() == Some(b']') {
            self.leave();
            return Ok(());
        }
        loop {
            self.value(trail)?;
            self.space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.leave();
                    return Ok(());
                }
                _ => return Err(self.wrong("expected ',' or ']'")),
            }
            self.space();
        }
    }

    /// Reads a value, and collects it if it is indexed.
    fn value(&mut self, trail: ElementTrail) -> Result<(), ResourceBodyError> {
        let is_single = !matches!(self.peek(), Some(b'[' | b'n'));
        let Some(node) = trail.filter(|node| is_single && !node.indexed.is_empty()) else {
            return self.copied_value(trail);
        };
        self.flush();
        let start = self.found.out.len();
        self.copied_value(trail)?;
        self.flush();
        let ResourceScan { out, terms, .. } = &mut self.found;
        node.indexed.iter().for_each(|element| terms.add(element, &out[start..]));
        Ok(())
    }

    fn copied_value(&mut self, trail: ElementTrail) -> Result<(), ResourceBodyError> {
        match (self.peek(), trail) {
            (Some(b'{'), None) => self.members(|scanner, key| match scanner.names {
                Some(names) if key.text() == "div" => scanner.narrative(names),
                _ => scanner.value(None),
            }),
            (Some(b'{'), Some(node)) => self.members(|scanner, key| {
                let name = key.text();
                if let Some(role) = node.reference
                    && name == "reference"
                    && scanner.peek() == Some(b'"')
                {
                    let reference = scanner
                        .text_value()?
                        .expect("the next character is a quotation mark, so a string follows")
                        .into_owned();
                    scanner.found.references.push((role, reference));
                    return Ok(());
                }
                scanner.value(node.child(&name))
            }),
            (Some(b'['), _) => self.array(trail),
            (Some(b'"'), _) if self.names.is_some() => self.text_value().map(drop),
            (Some(b'"'), _) => self.string().map(drop),
            (Some(b'-' | b'0'..=b'9'), _) => self.number(),
            (Some(b't'), _) => self.literal(b"true"),
            (Some(b'f'), _) => self.literal(b"false"),
            (Some(b'n'), _) => self.literal(b"null"),
            (Some(_), _) => Err(self.wrong("expected a value")),
            (None, _) => Err(self.wrong("the text ends early")),
        }
    }

    /// Reads a string and returns its text, or its replacement if it is a renamed reference. Returns `None`
    /// for other values.
    fn text_value(&mut self) -> Result<Option<Cow<'a, str>>, ResourceBodyError> {
        if self.peek() != Some(b'"') {
            self.value(None)?;
            return Ok(None);
        }
        let start = self.at;
        let escaped = self.string()?;
        let text = MemberKey { quoted: &self.bytes[start..self.at], escaped }.text();
        let Some(name) = self.names.and_then(|names| names.get(&*text)) else { return Ok(Some(text)) };
        self.found.out.extend_from_slice(&self.bytes[self.copied..start]);
        self.found.out.push(b'"');
        self.found.out.extend_from_slice(name.as_bytes());
        self.found.out.push(b'"');
        self.copied = self.at;
        Ok(Some(Cow::Borrowed(name)))
    }

    /// Reads the XHTML of a narrative, and replaces the names of other entries in links and images (FHIR R4,
    /// transaction).
    fn narrative(&mut self, names: &RenamedReferences) -> Result<(), ResourceBodyError> {
        if self.peek() != Some(b'"') {
            return self.value(None);
        }
        let start = self.at;
        let escaped = self.string()?;
        let text = MemberKey { quoted: &self.bytes[start..self.at], escaped }.text();
        let Some(renamed) = renamed_attributes(&text, names) else { return Ok(()) };
        self.found.out.extend_from_slice(&self.bytes[self.copied..start]);
        serde_json::to_writer(&mut self.found.out, &renamed).expect("a text serialises to JSON");
        self.copied = self.at;
        Ok(())
    }

    /// Reads a string. Returns `true` if the string contains an escape.
    fn string(&mut self) -> Result<bool, ResourceBodyError> {
        self.at += 1;
        let mut escaped = false;
        loop {
            let rest = &self.bytes[self.at..];
            let plain = rest.iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < 0x20);
            self.at += plain.unwrap_or(rest.len());
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escaped);
                }
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                Some(_) => return Err(self.wrong("a control character within a string")),
                None => return Err(self.wrong("the text ends within a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), ResourceBodyError> {
        match self.bytes.get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
            Some(b'u') => match self.unit(self.at)? {
                0xD800..0xDC00 => match self.unit(self.at + 6)? {
                    0xDC00..0xE000 => self.at += 12,
                    _ => return Err(self.wrong("half of a surrogate pair")),
                },
                0xDC00..0xE000 => return Err(self.wrong("half of a surrogate pair")),
                _ => self.at += 6,
            },
            _ => return Err(self.wrong("an invalid escape sequence")),
        }
        Ok(())
    }

    /// The value of `\uXXXX` at this position.
    fn unit(&self, index: usize) -> Result<u16, ResourceBodyError> {
        let digits = self.bytes.get(index..index + 6).and_then(|text| text.strip_prefix(b"\\u"));
        digits
            .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u16::from_str_radix(digits, 16).ok())
            .ok_or_else(|| self.wrong("half of a surrogate pair, or an escape without four hex digits"))
    }

    fn number(&mut self) -> Result<(), ResourceBodyError> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits()?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        self.found.has_imprecise_number |= is_imprecise(&self.bytes[start..self.at]);
        Ok(())
    }

    fn digits(&mut self) -> Result<(), ResourceBodyError> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(self.wrong("expected a digit")) } else { Ok(()) }
    }

    fn literal(&mut self, word: &'static [u8]) -> Result<(), ResourceBodyError> {
        if !self.bytes[self.at..].starts_with(word) {
            return Err(self.wrong("expected a value"));
        }
        self.at += word.len();
        Ok(())
    }

    fn enter(&mut self) -> Result<(), ResourceBodyError> {
        if self.depth == self.depth_limit {
            return Err(ResourceBodyError::TooDeep { limit: self.depth_limit, line: self.place().0 });
        }
        self.depth += 1;
        self.at += 1;
        Ok(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
        self.at += 1;
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Skips whitespace, which is not copied.
    fn space(&mut self) {
        if !matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            return;
        }
        self.flush();
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.copied = self.at;
    }

    fn flush(&mut self) {
        self.found.out.extend_from_slice(&self.bytes[self.copied..self.at]);
        self.copied = self.at;
    }

    /// Returns line and column of the current position, both counted from 1.
    fn place(&self) -> (usize, usize) {
        let before = &self.bytes[..self.at.min(self.bytes.len())];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        let column = before.iter().rev().take_while(|&&byte| byte != b'\n').count() + 1;
        (line, column)
    }

    fn wrong(&self, what: &'static str) -> ResourceBodyError {
        let (line, column) = self.place();
        ResourceBodyError::Json { line, column, what }
    }
}

/// The XHTML with renamed values of attributes, if any is renamed.
fn renamed_attributes(html: &str, names: &RenamedReferences) -> Option<String> {
    let mut renamed = String::new();
    let mut copied = 0;
    for (at, _) in html.match_indices('=') {
        let quoted = html[at + 1..].trim_ascii_start();
        let Some(quote) = quoted.chars().next().filter(|quote| matches!(quote, '"' | '\'')) else { continue };
        let start = html.len() - quoted.len() + 1;
        let Some(length) = html[start..].find(quote) else { continue };
        if let Some(name) = names.get(&html[start..start + length])
            && start >= copied
        {
            renamed.push_str(&html[copied..start]);
            renamed.push_str(name);
            copied = start + length;
        }
    }
    (copied > 0).then(|| renamed + &html[copied..])
}

/// A checked string as in the text, with its quotation marks.
struct MemberKey<'a> {
    quoted: &'a [u8],
    escaped: bool,
}

impl<'a> MemberKey<'a> {
    fn text(&self) -> Cow<'a, str> {
        if self.escaped {
            let text = serde_json::from_slice(self.quoted).expect("the scanner has checked this string");
            return Cow::Owned(text);
        }
        let inner = &self.quoted[1..self.quoted.len() - 1];
        Cow::Borrowed(std::str::from_utf8(inner).expect("the body was checked to be UTF-8"))
    }
}

/// `true` if a 64-bit floating-point number cannot hold the number: it has more than 17 significant digits,
/// or is too large. Most readers of JSON round such a number or reject it.
fn is_imprecise(number: &[u8]) -> bool {
    // A number of up to four characters is always exact.
    if number.len() <= 4 {
        return false;
    }
    let mantissa = number.split(|byte| matches!(byte, b'e' | b'E')).next().unwrap_or_default();
    let digits = mantissa.iter().filter(|byte| byte.is_ascii_digit());
    let significant = digits.skip_while(|byte| **byte == b'0').count();
    let text = std::str::from_utf8(number).ok();
    let is_finite = text.and_then(|text| text.parse::<f64>().ok()).is_some_and(f64::is_finite);
    significant > 17 || !is_finite
}

#[cfg(test)]
mod tests {
    use super::is_imprecise;

    #[test]
    fn links_of_narratives_are_renamed() {
        let names = [("urn:uuid:1".to_owned(), "Patient/p".to_owned())].into();
        #[track_caller]
        fn check(html: &str, names: &super::RenamedReferences, expected: Option<&str>) {
            assert_eq!(super::renamed_attributes(html, names).as_deref(), expected, "{html}");
        }
        check(
            r#"<div><a href="urn:uuid:1">a=b</a><img src = 'urn:uuid:1'/></div>"#,
            &names,
            Some(r#"<div><a href="Patient/p">a=b</a><img src = 'Patient/p'/></div>"#),
        );
        for same in
            [r#"<a href="urn:uuid:12">urn:uuid:1</a>"#, "<a href=urn:uuid:1>", "=", "=\"", "é='urn:uuid:1"]
        {
            check(same, &names, None);
        }
    }

    #[test]
    fn numbers_that_most_readers_round_are_recognized() {
        for number in ["0", "1.10", "-0.000000000000000000012345", "12345678901234567", "1.7e308"] {
            assert!(!is_imprecise(number.as_bytes()), "{number}");
        }
        for number in ["123456789012345678", "0.123456789012345678", "1E400", "-1e309"] {
            assert!(is_imprecise(number.as_bytes()), "{number}");
        }
    }
}
