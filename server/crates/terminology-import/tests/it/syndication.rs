//! Feeds of releases.

use std::cmp::Ordering;

use proptest::prelude::*;
use trefoil_terminology_import::syndication::{
    FeedEntry, FeedFile, INDEX_CATEGORY, PublishedEntry, PublishedFeed, newest_of_each, read_feed,
    version_order,
};

const FEED: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<feed xmlns="http://www.w3.org/2005/Atom" xmlns:ncts="http://ns.electronichealth.net.au/ncts/syndication/asf/extensions/1.0.0" xmlns:sct="http://snomed.info/syndication/sct-extension/1.0.0">
  <title>Garden releases</title>
  <link rel="self" href="https://feed.example/feed.xml"/>
  <entry>
    <title>Garden edition, March &amp; April</title>
    <category term="SCT_RF2_SNAPSHOT" label="snapshot" scheme="http://ns.electronichealth.net.au/ncts/syndication/asf/scheme/1.0.0"/>
    <link rel="related" type="application/pdf" href="notes.pdf"/>
    <link rel="alternate" type="application/zip" href="files/edition.zip" length="1200" ncts:sha256Hash="ABCDEF"/>
    <ncts:contentItemIdentifier>http://snomed.info/sct/11000000009</ncts:contentItemIdentifier>
    <ncts:contentItemVersion>http://snomed.info/sct/11000000009/version/20250301</ncts:contentItemVersion>
    <sct:packageDependency>
      <sct:editionDependency>http://snomed.info/sct/900000000000207008/version/20250101</sct:editionDependency>
      <sct:derivativeDependency/>
    </sct:packageDependency>
  </entry>
  <entry>
    <title>Garden edition</title>
    <category term="SCT_RF2_SNAPSHOT"/>
    <link rel="alternate" href="old.zip" sct:md5Hash="00ff"/>
    <ncts:contentItemIdentifier>http://snomed.info/sct/11000000009</ncts:contentItemIdentifier>
    <ncts:contentItemVersion>http://snomed.info/sct/11000000009/version/20240301</ncts:contentItemVersion>
  </entry>
  <entry>
    <title>Plants</title>
    <category term="FHIR_ValueSet"/>
    <link rel="alternate" type="application/fhir+xml" href="plants.xml"/>
    <link rel="alternate" type="application/fhir+json" href="plants.json"/>
    <ncts:contentItemIdentifier>https://garden.example/ValueSet/plants</ncts:contentItemIdentifier>
    <ncts:contentItemVersion>1.10.0</ncts:contentItemVersion>
  </entry>
  <entry>
    <title>A binary index</title>
    <category term="BINARY_INDEX"/>
    <link rel="alternate" href="index.bin"/>
    <ncts:contentItemIdentifier>http://snomed.info/sct/11000000009</ncts:contentItemIdentifier>
    <ncts:contentItemVersion>http://snomed.info/sct/11000000009/version/20260301</ncts:contentItemVersion>
  </entry>
  <entry>
    <title>Weeds</title>
    <category term="FHIR_ValueSet_RETRACT"/>
    <ncts:contentItemIdentifier>https://garden.example/ValueSet/weeds</ncts:contentItemIdentifier>
    <ncts:contentItemVersion>1.0.0</ncts:contentItemVersion>
  </entry>
</feed>"#;

fn entries() -> Vec<FeedEntry> {
    read_feed(FEED.as_bytes().to_vec()).unwrap()
}

#[test]
fn entries_have_their_file_and_what_they_need() {
    let entries = entries();
    let first = &entries[0];
    let file = first.file.as_ref().unwrap();
    assert_eq!(
        (first.title.as_str(), file.href.as_str()),
        ("Garden edition, March & April", "files/edition.zip")
    );
    assert_eq!(
        (file.length, file.sha256.as_deref(), file.md5.as_deref()),
        (Some(1_200), Some("abcdef"), None)
    );
    assert_eq!(first.dependencies, ["http://snomed.info/sct/900000000000207008/version/20250101"]);
    assert_eq!(entries[1].file.as_ref().unwrap().md5.as_deref(), Some("00ff"));
    assert_eq!(entries[2].file.as_ref().unwrap().href, "plants.json");
    assert!(entries[4].is_withdrawn() && entries[4].file.is_none());
    let newest: Vec<_> = newest_of_each(&entries).iter().map(|entry| entry.title.as_str()).collect();
    assert_eq!(newest, ["Garden edition, March & April", "Plants"]);
}

#[test]
fn an_entry_is_named_by_its_item_or_its_version() {
    let entries = entries();
    let count_of = |name: &str| entries.iter().filter(|entry| entry.is_named(name)).count();
    assert_eq!(count_of("http://snomed.info/sct/11000000009"), 3);
    assert_eq!(count_of("http://snomed.info/sct/11000000009/version/20240301"), 1);
    assert_eq!(count_of("https://garden.example/ValueSet/plants|1.10.0"), 1);
    assert_eq!(count_of("https://garden.example/ValueSet/plants|1.1"), 0);
}

#[test]
fn numbers_in_versions_count_as_numbers() {
    for (a, b) in
        [("1.9.0", "1.10.0"), ("2024-09", "2024-10"), ("1.0", "1.0.1"), ("1.0-ballot", "2"), ("a", "b")]
    {
        assert_eq!(version_order(a, b), Ordering::Less, "{a} {b}");
        assert_eq!(version_order(b, a), Ordering::Greater, "{b} {a}");
    }
    assert_eq!(version_order("20250101", "20250101"), Ordering::Equal);
}

#[test]
fn a_fault_of_a_feed_names_the_line() {
    #[track_caller]
    fn check(xml: &str, expected: &str) {
        assert_eq!(read_feed(xml.as_bytes().to_vec()).unwrap_err().to_string(), expected);
    }
    check("<html></html>", "feed: the root element is not 'feed': this is not an Atom feed");
    check("<feed>\n<entry>\n", "feed:3: the file ends within 2 open elements; copy it again");
    check(
        "<feed>\n<entry><title>A</title></entry></feed>",
        "feed:2: the entry 'A' has no contentItemIdentifier or no contentItemVersion",
    );
}

/// A text without blanks at its ends, which a reader removes, with the characters that XML escapes.
fn text() -> impl Strategy<Value = String> {
    "[a-zé<>&\"'|:/?#]{1,12}( [a-z<&]{1,5})?"
}

proptest! {
    #[test]
    fn a_feed_that_was_written_is_read_unchanged(
        items in prop::collection::vec((text(), text(), text(), text(), prop::option::of(0..=u64::MAX)), 0..5)
    ) {
        let entry = |(title, identifier, version, href, length): (String, String, String, String, Option<u64>)| {
            let file = FeedFile { href, length, sha256: Some("00ff".repeat(16)), md5: None };
            FeedEntry {
                title, identifier, version, category: INDEX_CATEGORY.to_owned(), file: Some(file), dependencies: Vec::new(),
            }
        };
        let entries: Vec<FeedEntry> = items.into_iter().map(entry).collect();
        let published = |entry: &FeedEntry| PublishedEntry {
            entry: entry.clone(), updated: "2026-03-01T00:00:00Z".to_owned(),
        };
        let feed = PublishedFeed {
            url: "https://garden.example/feed?a=b&c=d".to_owned(),
            title: "Releases of <Garden>".to_owned(),
            author: "Garden".to_owned(),
            updated: "2026-03-01T00:00:00Z".to_owned(),
            entries: entries.iter().map(published).collect(),
        };
        prop_assert_eq!(read_feed(feed.to_xml().unwrap()).unwrap(), entries);
    }
}
