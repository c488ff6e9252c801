//! Opens the services that need more than their store: exports and the terminology.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use bulk::{Bulk, BulkOptions, FileLocation};
use identity::Identity;
use jiff::Timestamp;
use resources::Resources;
use store::Store;
use store::space::DiskSpace;
use terminology::Terminology;

use crate::clock::Clock;
use crate::config::{Config, StoreEngine};
use crate::node::descriptors;
use crate::node::saved_indexes::SavedIndexes;
use crate::node::shared_releases::SharedReleases;
use crate::node::terminology_sync::TerminologySync;
use crate::records::audit::{AuditEntry, AuditLog};

/// Opens the exports, and reports a bucket that cannot be used.
///
/// # Errors
/// An error if the folder of the exports cannot be opened.
pub(super) fn open_bulk(
    config: &Config,
    resources: &Resources,
    identity: &Identity,
    audit: &Arc<AuditLog>,
    clock: &Clock,
) -> Result<Bulk> {
    let files = match config.files.bucket.clone() {
        Some(bucket) => {
            let bucket_to_check = bucket.clone();
            // The server starts without its bucket: everything but exports works.
            tokio::spawn(async move {
                if let Err(reason) = bucket_to_check.check().await {
                    tracing::error!(
                        reason,
                        "the bucket of [files] cannot be used; exports fail until it can"
                    );
                }
            });
            FileLocation::Bucket(bucket)
        }
        None => {
            let path = config.data.join("exports");
            FileLocation::Folder { disk: DiskSpace::of(&path), path }
        }
    };
    let signing = config.bulk.signed_urls.map(|lifetime| {
        let secret = Arc::clone(&identity.server_secret);
        bulk::AddressSigning { mac: Arc::new(move |url| secret.mac("file-url", url)), lifetime }
    });
    let options = BulkOptions {
        files,
        lease: config.bulk.lease,
        fhir_base: resources.fhir_base().to_owned(),
        retention: config.bulk.retention,
        file_size: config.bulk.file_size,
        poll_limit: config.bulk.poll_limit,
        signing,
        in_flight: config.bulk.in_flight,
        guide: config.bulk.guide,
        nested_groups: config.bulk.nested_groups,
        supporting: config.bulk.supporting,
        group_leavers: config.bulk.group_leavers,
        open_downloads: descriptors::descriptor_budget().downloads,
    };
    let bulk = Bulk::open(resources.store().clone(), options, clock.for_bulk())?;
    let audit = Arc::clone(audit);
    bulk.on_complete(Arc::new(move |job| {
        audit.add(&AuditEntry::ExportCompleted {
            client_id: job.client_id.clone(),
            job: job.id.clone(),
            files: job.files.len(),
            lines: job.files.iter().map(|file| file.count).sum(),
            bytes: job.files.iter().map(|file| file.bytes).sum(),
        });
    }));
    Ok(bulk)
}

/// Reads the stored terminology.
///
/// # Errors
/// An error if the saved indexes or the stored resources cannot be read.
pub(super) async fn open_terminology(
    config: &Config,
    terminology: &Terminology,
    store: &Store,
    now: Timestamp,
) -> Result<TerminologySync> {
    let indexes = match config.engine {
        StoreEngine::Memory => None,
        StoreEngine::File | StoreEngine::Postgres { .. } => {
            let indexes = SavedIndexes::open(&config.data);
            let swept = indexes.and_then(|indexes| indexes.remove_partial().map(|()| indexes));
            Some(swept.context("failed to open the saved indexes")?)
        }
    };
    // Indexes of releases are shared by the nodes on one database.
    let shared = match (config.files.bucket.clone(), &indexes) {
        (Some(bucket), Some(indexes)) if store.is_shared() => {
            Some(SharedReleases::new(store.clone(), bucket, indexes.clone()))
        }
        _ => None,
    };
    TerminologySync::open(store.clone(), terminology.clone(), indexes, shared, now)
        .await
        .context("failed to read the stored terminology")
}
