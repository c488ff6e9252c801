//! The imported releases that several nodes on one database share. The index of a release is an object
//! `{prefix}/{store_id}/terminology/{sha256}.index` in the bucket of `[files]`, and a record of the ledger
//! names it. Each node keeps a copy of every index in its data folder.
//!
//! A release can also be imported into the data folder of a stopped node. The file `ID.shared` contains the
//! source that the node and the ledger had last in common, which shows whether the folder or the record is
//! newer.
//!
//! Objects that no record names are removed by [`SharedReleases::repair`], not by the node that replaces
//! them: a node that stopped before the removal would leave them, or remove what another node has published
//! since.

use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use bulk::ObjectBucket;
use futures_util::TryStreamExt as _;
use jiff::{SignedDuration, Timestamp};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore as _, ObjectStoreExt as _, WriteMultipart};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use store::blocking::run_blocking;
use store::{Expect, Ledger as _, LedgerRecord, LedgerWrite, Store};
use terminology::TerminologyChange;
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::node::saved_indexes::{LocalRelease, SavedIndexes};

/// Prefix of the keys of the records; the id of the release follows.
const RECORDS: &str = "terminology/release/";
/// Length of a part of an object, in bytes.
const PART: usize = 8 << 20;
/// Age from which an object that no record names is removed.
const UNUSED_AGE: SignedDuration = SignedDuration::from_hours(1);

/// The releases that all nodes share.
pub struct SharedReleases {
    store: Store,
    bucket: ObjectBucket,
    indexes: SavedIndexes,
}

#[derive(Debug, Serialize, Deserialize)]
struct ReleaseRecord {
    /// Hash of the source from which the release was imported.
    source: String,
    /// SHA-256 of the index, in hexadecimal digits.
    sha256: String,
    bytes: u64,
}

impl SharedReleases {
    /// The releases of a store in a bucket.
    pub fn new(store: Store, bucket: ObjectBucket, indexes: SavedIndexes) -> Self {
        Self { store, bucket, indexes }
    }

    /// Uploads the releases that were imported into the data folder of this node, and fetches those that
    /// other nodes have imported. `apply` receives each fetched one at once. A release that fails does not
    /// delay the others.
    ///
    /// # Errors
    /// The last error of the ledger, the bucket or the data folder. The next call continues.
    pub async fn synchronize(&self, now: Timestamp, apply: impl Fn(TerminologyChange)) -> Result<()> {
        let indexes = self.indexes.clone();
        let local = run_blocking(move || indexes.local_releases()).await??;
        let mut records = self.records(now).await?;
        let mut result = Ok(());
        for release in local {
            let record = records.remove(&release.id);
            if let Err(error) = self.synchronize_local(release, record, now, &apply).await {
                result = Err(error);
            }
        }
        for (id, (record, _)) in records {
            let release = LocalRelease { id, source: None, shared: None };
            match self.fetch(release, record).await {
                Ok(fetched) => fetched.into_iter().for_each(&apply),
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// Uploads indexes of this node that are missing in the bucket, and removes objects that no record names.
    ///
    /// # Errors
    /// The first error of the ledger, the bucket or the data folder.
    pub async fn repair(&self, now: Timestamp) -> Result<()> {
        // The objects are listed before the records are read, so that a release that is published meanwhile
        // is not removed.
        let folder = self.bucket.folder(&self.store.id(), "terminology");
        let objects: Vec<ObjectMeta> = self.bucket.store.list(Some(&folder)).try_collect().await?;
        let (records, indexes) = (self.records(now).await?, self.indexes.clone());
        for release in run_blocking(move || indexes.local_releases()).await?? {
            let Some((record, _)) = records.get(&release.id) else { continue };
            let object = self.object(&record.sha256);
            if release.source.as_ref() == Some(&record.source)
                && !objects.iter().any(|meta| meta.location == object)
                && digest(&self.indexes.release_path(&release.id)).await?.0 == record.sha256
            {
                self.upload(&self.indexes.release_path(&release.id), &object).await?;
                tracing::warn!(
                    id = release.id,
                    "the index of a release was missing in the bucket and was uploaded again"
                );
            }
        }
        let used: HashSet<Path> = records.values().map(|(record, _)| self.object(&record.sha256)).collect();
        let oldest = now.as_second() - UNUSED_AGE.as_secs();
        for meta in objects {
            if !used.contains(&meta.location) && meta.last_modified.timestamp() < oldest {
                self.bucket.store.delete(&meta.location).await?;
            }
        }
        Ok(())
    }

    /// Uploads a release of this node, or replaces it by that of another node.
    async fn synchronize_local(
        &self,
        release: LocalRelease,
        record: Option<(ReleaseRecord, LedgerRecord)>,
        now: Timestamp,
        apply: impl Fn(TerminologyChange),
    ) -> Result<()> {
        // A release without a source is being imported.
        let Some(source) = &release.source else { return Ok(()) };
        match record {
            Some((record, _)) if record.source == *source => {
                if release.shared.as_ref() != Some(source) {
                    self.note_shared(&release.id, source).await?;
                }
            }
            Some((record, _)) if release.shared.as_ref() != Some(&record.source) => {
                self.fetch(release, record).await?.into_iter().for_each(apply);
            }
            // All nodes had this release, and one of them has removed it.
            None if release.shared.as_ref() == Some(source) => {
                let (indexes, id) = (self.indexes.clone(), release.id.clone());
                run_blocking(move || indexes.remove_release(&id)).await??;
                tracing::info!(id = release.id, "removed a release that another node has removed");
                apply(TerminologyChange::release_removed(&release.id));
            }
            older => self.publish(&release.id, source, older, now).await?,
        }
        Ok(())
    }

    /// Removes the record of a release, so that the other nodes remove it, too.
    ///
    /// # Errors
    /// An error of the ledger.
    pub async fn withdraw(&self, id: &str, now: Timestamp) -> Result<()> {
        let delete = LedgerWrite::delete(format!("{RECORDS}{id}"), Expect::Any);
        self.store.write(vec![delete], now).await?;
        Ok(())
    }

    async fn records(&self, now: Timestamp) -> Result<BTreeMap<String, (ReleaseRecord, LedgerRecord)>> {
        const PAGE: usize = 1_000;
        let (mut records, mut after) = (BTreeMap::new(), None::<String>);
        loop {
            let page = self.store.scan(RECORDS, after.as_deref(), PAGE, now).await?;
            let Some((last, _)) = page.last() else { return Ok(records) };
            after = Some(last.clone());
            for (key, record) in page {
                let id = key.strip_prefix(RECORDS).unwrap_or_default();
                let release = serde_json::from_slice(&record.value).ok().filter(|_| fhir::is_id(id));
                let release: ReleaseRecord =
                    release.with_context(|| format!("the record {key} is corrupt"))?;
                records.insert(id.to_owned(), (release, record));
            }
        }
    }

    fn object(&self, sha256: &str) -> Path {
        self.bucket.folder(&self.store.id(), "terminology").join(format!("{sha256}.index"))
    }

    async fn note_shared(&self, id: &str, source: &str) -> Result<()> {
        let (indexes, id, source) = (self.indexes.clone(), id.to_owned(), source.to_owned());
        Ok(run_blocking(move || indexes.note_shared(&id, &source)).await??)
    }

    /// Uploads the index of a release, and then writes its record. Another node that writes it first wins.
    async fn publish(
        &self,
        id: &str,
        source: &str,
        older: Option<(ReleaseRecord, LedgerRecord)>,
        now: Timestamp,
    ) -> Result<()> {
        let path = self.indexes.release_path(id);
        let (sha256, bytes) = digest(&path).await?;
        let object = self.object(&sha256);
        // An object that is nearly old enough to be removed is renewed.
        let oldest = now.as_second() - UNUSED_AGE.as_secs() / 2;
        let is_there = |meta: ObjectMeta| meta.size == bytes && meta.last_modified.timestamp() > oldest;
        if !self.bucket.store.head(&object).await.is_ok_and(is_there) {
            self.upload(&path, &object).await.context("failed to upload the index of a release")?;
        }
        let record = ReleaseRecord { source: source.to_owned(), sha256, bytes };
        let value = serde_json::to_vec(&record)?;
        let expect = older.map_or(Expect::Absent, |(_, older)| Expect::Revision(older.revision));
        self.store.write(vec![LedgerWrite::put(format!("{RECORDS}{id}"), value, expect)], now).await?;
        self.note_shared(id, source).await?;
        tracing::info!(id, "a release is available on all nodes");
        Ok(())
    }

    async fn upload(&self, from: &std::path::Path, to: &Path) -> Result<()> {
        let mut file = File::open(from).await?;
        let upload = self.bucket.store.put_multipart(to).await?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, PART);
        let mut part = vec![0; PART];
        loop {
            // Up to two parts are uploaded while the next one is read.
            let ready = upload.wait_for_capacity(2).await;
            let length = match ready.map_err(io::Error::other) {
                Ok(()) => file.read(&mut part).await,
                Err(error) => Err(error),
            };
            match length {
                Ok(0) => break,
                Ok(length) => upload.write(&part[..length]),
                Err(error) => {
                    drop(upload.abort().await);
                    return Err(error.into());
                }
            }
        }
        upload.finish().await?;
        Ok(())
    }

    /// Fetches the index of a release and compares its hash. Returns `None` if this node imports the release
    /// itself meanwhile.
    async fn fetch(&self, release: LocalRelease, record: ReleaseRecord) -> Result<Option<TerminologyChange>> {
        let id = release.id.clone();
        let part = self.indexes.fetched_path(&id);
        let downloaded = self.download(&record, &part).await;
        let indexes = self.indexes.clone();
        let index_path = downloaded.with_context(|| format!("failed to fetch the index of the release {id}"));
        if let Err(error) = index_path {
            drop(tokio::fs::remove_file(&part).await);
            return Err(error);
        }
        let index = run_blocking(move || indexes.save_fetched(&release, &record.source)).await??;
        Ok(index.map(|index| {
            tracing::info!(id, "fetched a release that another node has imported");
            TerminologyChange::release(&id, index)
        }))
    }

    async fn download(&self, record: &ReleaseRecord, to: &PathBuf) -> Result<()> {
        let object = self.object(&record.sha256);
        let (mut file, mut hasher) = (File::create(to).await?, Sha256::new());
        for start in (0..record.bytes).step_by(PART) {
            let end = record.bytes.min(start + PART as u64);
            let part = self.bucket.store.get_range(&object, start..end).await?;
            hasher.update(&part);
            file.write_all(&part).await?;
        }
        file.sync_all().await?;
        ensure!(hex(&hasher.finalize()) == record.sha256, "the checksum of the object {object} differs");
        Ok(())
    }
}

/// The SHA-256 of a file, and its length.
async fn digest(path: &std::path::Path) -> Result<(String, u64)> {
    let path = path.to_owned();
    let digest = run_blocking(move || -> io::Result<_> {
        let mut hasher = Sha256::new();
        let bytes = io::copy(&mut std::fs::File::open(path)?, &mut hasher)?;
        Ok((hex(&hasher.finalize()), bytes))
    });
    Ok(digest.await??)
}

/// Bytes in hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
