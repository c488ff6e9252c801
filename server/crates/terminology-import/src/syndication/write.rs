//! Writes a feed.

use std::io;

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};

use super::FeedEntry;

const ATOM: &str = "http://www.w3.org/2005/Atom";
const NCTS: &str = "http://ns.electronichealth.net.au/ncts/syndication/asf/extensions/1.0.0";
const SCHEME: &str = "http://ns.electronichealth.net.au/ncts/syndication/asf/scheme/1.0.0";

/// A feed to write.
#[derive(Debug)]
pub struct PublishedFeed {
    /// Address of the feed, which is its id.
    pub url: String,
    /// Title for people.
    pub title: String,
    /// Name of the publisher.
    pub author: String,
    /// Time of the last change, as RFC 3339 writes it.
    pub updated: String,
    /// The entries.
    pub entries: Vec<PublishedEntry>,
}

/// An entry of a feed to write.
#[derive(Debug)]
pub struct PublishedEntry {
    /// The item. Its dependencies are not written.
    pub entry: FeedEntry,
    /// Time of the last change, as RFC 3339 writes it.
    pub updated: String,
}

impl PublishedFeed {
    /// Writes the feed as XML.
    ///
    /// # Errors
    /// Returns [`io::Error`] if a text cannot be written.
    pub fn to_xml(&self) -> io::Result<Vec<u8>> {
        let mut out = Writer::new_with_indent(Vec::new(), b' ', 2);
        out.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
        let feed = out.create_element("feed").with_attributes([("xmlns", ATOM), ("xmlns:ncts", NCTS)]);
        feed.write_inner_content(|out| {
            write_text(out, "id", &self.url)?;
            write_text(out, "title", &self.title)?;
            write_text(out, "updated", &self.updated)?;
            let author = out.create_element("author");
            author.write_inner_content(|out| write_text(out, "name", &self.author))?;
            let own = [("rel", "self"), ("type", "application/atom+xml"), ("href", self.url.as_str())];
            out.create_element("link").with_attributes(own).write_empty()?;
            self.entries.iter().try_for_each(|published| published.write(out))
        })?;
        Ok(out.into_inner())
    }
}

impl PublishedEntry {
    fn write(&self, out: &mut Writer<Vec<u8>>) -> io::Result<()> {
        let FeedEntry { title, category, identifier, version, file, .. } = &self.entry;
        out.create_element("entry").write_inner_content(|out| {
            write_text(out, "id", &format!("{identifier}|{version}"))?;
            write_text(out, "title", title)?;
            write_text(out, "updated", &self.updated)?;
            let terms = [("term", category.as_str()), ("scheme", SCHEME)];
            out.create_element("category").with_attributes(terms).write_empty()?;
            if let Some(file) = file {
                let length = file.length.map(|length| length.to_string());
                let mut link = out.create_element("link").with_attributes([
                    ("rel", "alternate"),
                    ("type", "application/octet-stream"),
                    ("href", file.href.as_str()),
                ]);
                for (name, value) in [("length", &length), ("ncts:sha256Hash", &file.sha256)] {
                    if let Some(value) = value {
                        link = link.with_attribute((name, value.as_str()));
                    }
                }
                link.write_empty()?;
            }
            write_text(out, "ncts:contentItemIdentifier", identifier)?;
            write_text(out, "ncts:contentItemVersion", version)
        })?;
        Ok(())
    }
}

fn write_text(out: &mut Writer<Vec<u8>>, name: &str, text: &str) -> io::Result<()> {
    out.create_element(name).write_text_content(BytesText::new(text))?;
    Ok(())
}
