//! The versions of releases and terminology resources that are stored, for comparison with a feed.

use std::collections::BTreeSet;

use anyhow::Result;
use serde::Deserialize;
use serde_json::Value;
use store::{ScanOptions, Versions as _};
use terminology_import::syndication::{FeedEntry, version_order};

use crate::administration::services::AdminServices;
use crate::node::releases::Releases;
use crate::node::saved_indexes::SavedIndexes;

/// The types of resources that an entry of a feed can contain.
const RESOURCE_TYPES: [&str; 3] = ["CodeSystem", "ValueSet", "ConceptMap"];

/// Whether an item of a feed is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemState {
    Stored,
    /// An older version is stored.
    Update,
    New,
}

impl ItemState {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stored => "stored",
            Self::Update => "update",
            Self::New => "new",
        }
    }
}

/// URLs and versions of the stored releases and terminology resources.
pub(super) struct StoredVersions(BTreeSet<(String, String)>);

impl StoredVersions {
    /// Reads the versions from the indexes of the releases and from the store.
    ///
    /// # Errors
    /// Returns an error if the data folder or the store cannot be read.
    pub(super) async fn read(services: &AdminServices<'_>) -> Result<Self> {
        let indexes = SavedIndexes::open(services.data)?;
        let releases = Releases { indexes, resources: services.resources }.list().await?;
        let mut versions: BTreeSet<_> =
            releases.into_iter().map(|release| (release.url, release.version.unwrap_or_default())).collect();
        let store = services.resources.store();
        let seq = store.last_seq().await?;
        for kind in RESOURCE_TYPES {
            let mut after = None::<String>;
            loop {
                let page = store.scan_kind(kind, ScanOptions::at(seq).after(after.as_deref())).await?;
                versions.extend(page.versions.iter().filter_map(|version| canonical(version.body.as_ref()?)));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(Self(versions))
    }

    pub(super) fn has(&self, entry: &FeedEntry) -> bool {
        self.versions_of(entry).any(|version| version == entry.version)
    }

    /// The stored versions of an item. Those of SNOMED CT begin with the URI of their edition.
    fn versions_of<'a>(&'a self, entry: &'a FeedEntry) -> impl Iterator<Item = &'a str> {
        let is_of = |(url, version): &&(String, String)| {
            *url == entry.identifier
                || version.strip_prefix(&entry.identifier).is_some_and(|rest| rest.starts_with("/version/"))
        };
        self.0.iter().filter(is_of).map(|(_, version)| version.as_str())
    }

    pub(super) fn state(&self, entry: &FeedEntry) -> ItemState {
        match self.versions_of(entry).max_by(|a, b| version_order(a, b)) {
            _ if self.has(entry) => ItemState::Stored,
            None => ItemState::New,
            Some(newest) if version_order(newest, &entry.version).is_lt() => ItemState::Update,
            // A newer version than that of the feed is stored.
            Some(_) => ItemState::Stored,
        }
    }
}

/// URL and version of a resource.
fn canonical(body: &[u8]) -> Option<(String, String)> {
    #[derive(Deserialize)]
    struct Canonical {
        url: String,
        #[serde(default)]
        version: Value,
    }
    let Canonical { url, version } = serde_json::from_slice(body).ok()?;
    Some((url, version.as_str().unwrap_or_default().to_owned()))
}
