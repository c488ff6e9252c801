//! The two places where output files can be kept: a folder of this machine, or a bucket that all nodes share.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use object_store::aws::{AmazonS3Builder, Checksum};
use object_store::path::Path;
use object_store::signer::Signer;
use object_store::{BackoffConfig, ObjectStore, RetryConfig};
use store::space::DiskSpace;

use super::bucket_requests::{BucketRequests, CountingConnector};

/// The place of output files.
#[derive(Debug, Clone)]
pub enum FileLocation {
    /// A folder.
    Folder {
        /// Path of the folder.
        path: PathBuf,
        /// Disk that contains the folder.
        disk: DiskSpace,
    },
    /// A part of a bucket. The keys of all objects begin with the prefix and the id of the store.
    Bucket(ObjectBucket),
}

/// A bucket in an object store.
#[derive(Clone)]
pub struct ObjectBucket {
    /// The object store.
    pub store: Arc<dyn ObjectStore>,
    /// Beginning of the keys of all objects of this server.
    pub prefix: Path,
    /// Signs addresses of files for downloads directly from the bucket. `None` means that all files are sent
    /// by this server.
    pub signer: Option<Arc<dyn Signer>>,
}

impl ObjectBucket {
    /// Time for which a request that fails is repeated, with growing pauses. It is shorter than a lease.
    pub const PATIENCE: Duration = Duration::from_secs(15);

    /// Opens a bucket of an S3 server. Uploads have checksums, which the server compares, and a request that
    /// fails for another reason than the request itself (`SlowDown`, 5xx, no connection) is repeated for
    /// `patience`. With `signs_urls`, clients can read files directly from the bucket. `requests` counts each
    /// request.
    ///
    /// # Errors
    /// Returns an error if the settings of the client are incomplete.
    pub fn s3(
        builder: AmazonS3Builder,
        prefix: Path,
        patience: Duration,
        signs_urls: bool,
        requests: Arc<BucketRequests>,
    ) -> object_store::Result<Self> {
        let backoff = BackoffConfig { max_backoff: patience / 3, ..BackoffConfig::default() };
        let retry = RetryConfig { backoff, max_retries: usize::MAX, retry_timeout: patience };
        let builder = builder.with_retry(retry).with_checksum_algorithm(Checksum::SHA256);
        let builder = builder.with_http_connector(CountingConnector(requests));
        let store = Arc::new(builder.build()?);
        let signer = signs_urls.then(|| Arc::clone(&store) as Arc<dyn Signer>);
        Ok(Self { store, prefix, signer })
    }
}

impl ObjectBucket {
    /// Checks that the bucket exists and answers.
    ///
    /// # Errors
    /// Returns a description of the fault.
    pub async fn check(&self) -> Result<(), String> {
        let mut objects = self.store.list(Some(&self.prefix));
        match tokio::time::timeout(Self::PATIENCE, objects.next()).await {
            Ok(None | Some(Ok(_))) => Ok(()),
            Ok(Some(Err(error))) => Err(error.to_string()),
            Err(_) => Err(format!("it has not answered within {} s", Self::PATIENCE.as_secs())),
        }
    }

    /// The beginning of the keys of one kind of objects of a store. Nothing else in the bucket is accessed.
    pub fn folder(&self, store_id: &str, kind: &str) -> Path {
        self.prefix.clone().join(store_id).join(kind)
    }
}

/// The clients of an object store hold credentials, so that they are not printed.
impl fmt::Debug for ObjectBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectBucket").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}
