//! The imported releases, as the command line and the administration API show and remove them.

use anyhow::Result;
use resources::{ExpectedVersion, Resources};
use schemars::JsonSchema;
use serde::Serialize;
use store::blocking::run_blocking;
use store::{ScanOptions, Versions as _};
use terminology::{CodeSystemIndex, PreferredVersions, Terminology, pins_version};

use crate::clock::Clock;
use crate::node::app::App;
use crate::node::saved_indexes::{SavedIndexes, SavedRelease};
use crate::records::audit::{AuditEntry, AuditLog};

/// Maximum number of value sets that an error names.
const MAX_NAMED: usize = 10;

/// A release as it is shown.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Release")]
pub struct ShownRelease {
    /// Id, by which it is removed.
    pub id: String,
    /// Canonical URL of the code system.
    pub url: String,
    /// Version of the code system.
    pub version: Option<String>,
    title: Option<String>,
    /// Number of concepts.
    pub concepts: usize,
    languages: Vec<String>,
    language_reference_sets: Vec<String>,
    /// Time of the import, as FHIR writes it.
    pub imported: String,
}

impl ShownRelease {
    fn new(SavedRelease { id, imported, index }: &SavedRelease) -> Self {
        let texts = |texts: Vec<&str>| texts.into_iter().map(str::to_owned).collect();
        Self {
            id: id.clone(),
            url: index.url().to_owned(),
            version: index.version().map(str::to_owned),
            title: index.title().map(str::to_owned),
            concepts: index.concepts(),
            languages: texts(index.languages()),
            language_reference_sets: texts(index.language_reference_sets()),
            imported: fhir::instant::format(*imported),
        }
    }
}

/// Reasons why a release is not removed.
#[derive(Debug, thiserror::Error)]
pub enum RemoveReleaseError {
    /// No release has this id.
    #[error("release '{0}' does not exist; `trefoil release list` shows all releases")]
    Unknown(String),
    /// Stored value sets name the version of the release: their references.
    #[error(
        "stored value sets name the version of this release ({}): {}; change them, or force the removal (--force, or force=true)",
        .0.len(), .0.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>().join(", ")
    )]
    Named(Vec<String>),
    /// The server is stopped, and other nodes have the release.
    #[error(
        "other nodes share this release and would bring it back; run this command while the server of this folder runs"
    )]
    Shared,
    /// The data folder, the store or the ledger failed.
    #[error(transparent)]
    Failed(#[from] anyhow::Error),
}

/// The releases of a data folder.
pub struct Releases<'a> {
    /// The folder of the indexes.
    pub indexes: SavedIndexes,
    /// The stored resources, among them one that describes each release.
    pub resources: &'a Resources,
}

impl Releases<'_> {
    /// All releases, in the order of their ids.
    ///
    /// # Errors
    /// An error if the folder cannot be read.
    pub async fn list(&self) -> Result<Vec<ShownRelease>> {
        let indexes = self.indexes.clone();
        run_blocking(move || Ok(indexes.saved_releases()?.iter().map(ShownRelease::new).collect())).await?
    }

    /// A release, and the stored value sets that name its version; `None` if there is none with this id.
    ///
    /// # Errors
    /// An error if the folder or the store cannot be read.
    pub async fn show(&self, id: &str) -> Result<Option<(ShownRelease, Vec<String>)>> {
        let Some(release) = self.find(id).await? else { return Ok(None) };
        let named_by = self.pinned_by(&release.index).await?;
        Ok(Some((ShownRelease::new(&release), named_by)))
    }

    /// Describes which of several editions of SNOMED CT answers a request without a version, if the server is
    /// stopped.
    ///
    /// # Errors
    /// An error if the folder cannot be read.
    pub async fn describe_default_edition(&self, preferred: PreferredVersions) -> Result<Option<String>> {
        let indexes = self.indexes.clone();
        let describe = move || {
            let terminology = Terminology::default();
            terminology.prefer_versions(preferred);
            terminology.apply(indexes.releases()?);
            Ok(terminology.describe_default_edition())
        };
        run_blocking(describe).await?
    }

    async fn find(&self, id: &str) -> Result<Option<SavedRelease>> {
        let (indexes, id) = (self.indexes.clone(), id.to_owned());
        Ok(run_blocking(move || indexes.saved_release(&id)).await??)
    }

    /// Removes a release from all nodes, with the resource that describes it. `app` is the running server, if
    /// there is one.
    ///
    /// # Errors
    /// [`RemoveReleaseError`] if there is no such release, or without `is_forced` if value sets name its
    /// version.
    pub async fn remove(
        &self,
        id: &str,
        is_forced: bool,
        app: Option<&App>,
        audit: &AuditLog,
        clock: &Clock,
    ) -> Result<(), RemoveReleaseError> {
        let unknown = || RemoveReleaseError::Unknown(id.to_owned());
        let SavedRelease { index, .. } = self.find(id).await?.ok_or_else(unknown)?;
        let pins = self.pinned_by(&index).await?;
        if !pins.is_empty() && !is_forced {
            return Err(RemoveReleaseError::Named(pins));
        }
        match app {
            Some(app) => app.terminology_sync.remove_release(id, clock.now()).await?,
            None if self.indexes.is_shared(id).map_err(anyhow::Error::from)? => {
                return Err(RemoveReleaseError::Shared);
            }
            None => {
                let (indexes, id) = (self.indexes.clone(), id.to_owned());
                let removed = run_blocking(move || indexes.remove_release(&id)).await;
                removed.map_err(anyhow::Error::from)?.map_err(anyhow::Error::from)?;
            }
        }
        self.remove_description(id, clock).await?;
        audit.add(&AuditEntry::ReleaseRemoved { id: id.to_owned() });
        Ok(())
    }

    /// Deletes the CodeSystem resource that describes a release.
    async fn remove_description(&self, id: &str, clock: &Clock) -> Result<()> {
        let Ok(code_system) = self.resources.read("CodeSystem", id).await else { return Ok(()) };
        let resource: serde_json::Value = serde_json::from_slice(&code_system.bytes)?;
        if resource["content"] == "not-present" {
            let expected = ExpectedVersion::Anything;
            self.resources.delete("CodeSystem", id, expected, clock.now()).await?;
        }
        Ok(())
    }

    /// The stored ValueSets that name the version of a release.
    async fn pinned_by(&self, index: &CodeSystemIndex) -> Result<Vec<String>> {
        let store = self.resources.store();
        let (seq, mut after, mut found) = (store.last_seq().await?, None::<String>, Vec::new());
        let (url, version) = (index.url(), index.version().unwrap_or_default());
        loop {
            let page = store.scan_kind("ValueSet", ScanOptions::at(seq).after(after.as_deref())).await?;
            for resource_version in page.versions {
                if resource_version.body.is_some_and(|body| pins_version(&body, url, version)) {
                    found.push(format!("ValueSet/{}", resource_version.key.id));
                }
            }
            after = page.next;
            if after.is_none() {
                return Ok(found);
            }
        }
    }
}
