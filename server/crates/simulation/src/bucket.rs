//! The bucket of the nodes: objects in memory, behind a link with faults.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};

use crate::store_link::NodeLink;

/// The bucket as one node reaches it.
pub struct LinkedBucket {
    /// The objects, which all nodes share.
    pub objects: Arc<InMemory>,
    /// The link of the node.
    pub link: Arc<NodeLink>,
}

impl fmt::Debug for LinkedBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LinkedBucket")
    }
}

impl fmt::Display for LinkedBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the simulated bucket")
    }
}

async fn cross(link: &NodeLink) -> Result<()> {
    match link.cross().await {
        true => Ok(()),
        false => Err(Error::Generic { store: "simulation", source: "the bucket cannot be reached".into() }),
    }
}

#[async_trait]
impl ObjectStore for LinkedBucket {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        cross(&self.link).await?;
        let put = self.objects.put_opts(location, payload, opts).await;
        cross(&self.link).await?;
        put
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        cross(&self.link).await?;
        let upload = self.objects.put_multipart_opts(location, opts).await?;
        Ok(Box::new(LinkedUpload { upload, link: Arc::clone(&self.link) }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        cross(&self.link).await?;
        self.objects.get_opts(location, options).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let link = Arc::clone(&self.link);
        let passed = locations.then(move |location| {
            let link = Arc::clone(&link);
            async move {
                cross(&link).await?;
                location
            }
        });
        self.objects.delete_stream(passed.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (link, listed) = (Arc::clone(&self.link), self.objects.list(prefix));
        futures_util::stream::once(async move { cross(&link).await.map(|()| listed) }).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        cross(&self.link).await?;
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        cross(&self.link).await?;
        self.objects.copy_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct LinkedUpload {
    upload: Box<dyn MultipartUpload>,
    link: Arc<NodeLink>,
}

#[async_trait]
impl MultipartUpload for LinkedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (part, link) = (self.upload.put_part(data), Arc::clone(&self.link));
        Box::pin(async move {
            cross(&link).await?;
            let put = part.await;
            cross(&link).await?;
            put
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        cross(&self.link).await?;
        let put = self.upload.complete().await;
        cross(&self.link).await?;
        put
    }

    async fn abort(&mut self) -> Result<()> {
        cross(&self.link).await?;
        self.upload.abort().await
    }
}
