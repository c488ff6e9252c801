//! Atom feeds of releases, as national release centres publish them (NCTS Atom Syndication Format 1.0, with
//! the extension of SNOMED International for dependencies).

mod write;

use std::cmp::Ordering;

use quick_xml::events::BytesStart;

pub use self::write::{PublishedEntry, PublishedFeed};
use crate::error::ImportError;
use crate::release_source::ReleaseSource;
use crate::xml_events::{XmlEvent, attribute, for_each_event, in_one_line};

/// Category of the index of a release that a server of this program publishes.
pub const INDEX_CATEGORY: &str = "TREFOIL_INDEX";
/// Name of the feed in errors.
const FEED: &str = "feed";
/// The categories that can be imported, with the end of the names of their files.
const SUPPORTED: [(&str, &str); 9] = [
    ("SCT_RF2_SNAPSHOT", "zip"),
    ("SCT_RF2_ALL", "zip"),
    ("LOINC", "zip"),
    ("FHIR_CodeSystem", "json"),
    ("FHIR_ValueSet", "json"),
    ("FHIR_ConceptMap", "json"),
    ("FHIR_Bundle", "json"),
    ("FHIR_Package", "tgz"),
    (INDEX_CATEGORY, "index"),
];

/// An entry of a feed: one version of one item.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeedEntry {
    /// Title for people.
    pub title: String,
    /// The kind of content, such as `SCT_RF2_SNAPSHOT`.
    pub category: String,
    /// URI of the item, without its version.
    pub identifier: String,
    /// The version: in SNOMED CT the URI of the version, otherwise that of the resource.
    pub version: String,
    /// The file; `None` if the entry has none that can be read.
    pub file: Option<FeedFile>,
    /// URIs of the versions of SNOMED CT that the package needs.
    pub dependencies: Vec<String>,
}

/// The file of an entry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FeedFile {
    /// Address, which may be relative to that of the feed.
    pub href: String,
    /// Size in bytes.
    pub length: Option<u64>,
    /// SHA-256 of the content in hexadecimal.
    pub sha256: Option<String>,
    /// MD5 of the content in hexadecimal, which some feeds have instead.
    pub md5: Option<String>,
}

impl FeedEntry {
    /// The end of the name of a file with this content; `None` if it cannot be imported.
    pub fn file_ending(&self) -> Option<&'static str> {
        SUPPORTED.iter().find(|(category, _)| *category == self.category).map(|(_, ending)| *ending)
    }

    /// Returns whether the entry has a file whose content can be imported.
    pub fn is_importable(&self) -> bool {
        self.file.is_some() && self.file_ending().is_some()
    }

    /// Returns whether the publisher has withdrawn the item.
    pub fn is_withdrawn(&self) -> bool {
        self.category.ends_with("_RETRACT")
    }

    /// Returns whether a name given by an operator is that of the item or of this version.
    pub fn is_named(&self, name: &str) -> bool {
        let version = name.strip_prefix(self.identifier.as_str()).and_then(|rest| rest.strip_prefix('|'));
        name == self.identifier || name == self.version || version == Some(self.version.as_str())
    }
}

/// Reads a feed.
///
/// # Errors
/// [`ImportError`] if it is not an Atom feed, or if an entry lacks its item or its version.
pub fn read_feed(xml: Vec<u8>) -> Result<Vec<FeedEntry>, ImportError> {
    let mut source = ReleaseSource::in_memory(vec![(FEED.to_owned(), xml)]);
    let (mut entries, mut entry) = (Vec::new(), None::<FeedEntry>);
    let (mut text, mut is_feed) = (String::new(), false);
    for_each_event(&mut source, FEED, |event| {
        match event {
            XmlEvent::Start(start) => {
                text.clear();
                match start.local_name().as_ref() {
                    "feed" => is_feed = true,
                    "entry" => entry = Some(FeedEntry::default()),
                    "category" => {
                        if let (Some(entry), Some(term)) = (&mut entry, attribute(start, "term")?) {
                            entry.category = term;
                        }
                    }
                    "link" => {
                        if let Some(entry) = &mut entry {
                            add_link(entry, start)?;
                        }
                    }
                    _ => {}
                }
            }
            XmlEvent::Text(piece) => text.push_str(piece),
            XmlEvent::End("entry") => {
                let complete_entry = entry.take().ok_or("an entry ends that did not begin")?;
                if complete_entry.identifier.is_empty() || complete_entry.version.is_empty() {
                    let title = &complete_entry.title;
                    return Err(format!(
                        "the entry '{title}' has no contentItemIdentifier or no contentItemVersion"
                    ));
                }
                entries.push(complete_entry);
            }
            XmlEvent::End(name) => {
                let Some(entry) = &mut entry else { return Ok(()) };
                let text = in_one_line(&text);
                match name {
                    "title" => entry.title = text,
                    "contentItemIdentifier" => entry.identifier = text,
                    "contentItemVersion" => entry.version = text,
                    "editionDependency" | "derivativeDependency" | "derivateDependency"
                        if !text.is_empty() =>
                    {
                        entry.dependencies.push(text);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    })?;
    match is_feed {
        true => Ok(entries),
        false => Err(ImportError::in_file(FEED, "the root element is not 'feed': this is not an Atom feed")),
    }
}

/// Adds the file of a link, unless the entry has one or the content is XML.
fn add_link(entry: &mut FeedEntry, start: &BytesStart<'_>) -> Result<(), String> {
    let is_file = attribute(start, "rel")?.is_none_or(|relation| relation == "alternate");
    let is_xml = attribute(start, "type")?.is_some_and(|kind| kind.contains("fhir+xml"));
    let Some(href) = attribute(start, "href")?.filter(|_| is_file && !is_xml && entry.file.is_none()) else {
        return Ok(());
    };
    let mut file = FeedFile { href, ..FeedFile::default() };
    for attribute in start.attributes() {
        let attribute = attribute.map_err(|error| error.to_string())?;
        let value = || {
            let text = quick_xml::escape::unescape(&attribute.value).map_err(|error| error.to_string())?;
            Ok::<_, String>(text.trim().to_ascii_lowercase())
        };
        match attribute.key.local_name().as_ref() {
            "length" => file.length = value()?.parse().ok(),
            "sha256Hash" => file.sha256 = Some(value()?).filter(|hash| !hash.is_empty()),
            "md5Hash" => file.md5 = Some(value()?).filter(|hash| !hash.is_empty()),
            _ => {}
        }
    }
    entry.file = Some(file);
    Ok(())
}

/// The order of two versions: numbers in them count as numbers.
pub fn version_order(a: &str, b: &str) -> Ordering {
    let parts = |text: &str| -> Vec<(u64, String)> {
        let is_digit = |c: char| c.is_ascii_digit();
        let mut rest = text;
        let mut parts = Vec::new();
        while !rest.is_empty() {
            let word = rest.find(is_digit).unwrap_or(rest.len());
            let end = rest[word..].find(|c| !is_digit(c)).map_or(rest.len(), |end| word + end);
            parts.push((rest[word..end].parse().unwrap_or(0), rest[..word].to_owned()));
            rest = &rest[end..];
        }
        parts
    };
    let in_order = |(number, word): (u64, String)| (word, number);
    parts(a).into_iter().map(in_order).cmp(parts(b).into_iter().map(in_order))
}

/// The newest entry of each item that can be imported, in the order of the feed.
pub fn newest_of_each(entries: &[FeedEntry]) -> Vec<&FeedEntry> {
    let mut newest: Vec<&FeedEntry> = Vec::new();
    for entry in entries.iter().filter(|entry| entry.is_importable()) {
        match newest.iter_mut().find(|candidate| candidate.identifier == entry.identifier) {
            None => newest.push(entry),
            Some(other) if version_order(&other.version, &entry.version).is_lt() => *other = entry,
            Some(_) => {}
        }
    }
    newest
}
