//! Writes organized output in blocks (see [`crate::read::organized_output`]).

use jiff::Timestamp;

use super::{JobError, JobRun};
use crate::files::attachment_urls::absolute;
use crate::job::cursor::ExportCursor;
use crate::job::{Checkpoint, Job, ManifestSection};
use crate::plan::export_plan::ExportPlan;
use crate::read::organized_output::{BlockSource, HeadBatch, OutputBlock, heads_of_page};

/// Maximum length in bytes of a block that is held in memory until its length is known.
const HELD: u64 = 1 << 20;
/// Name of the files that contain blocks.
const BLOCKS: &str = "blocks";

impl<N: Fn() -> Timestamp + Send + Sync> JobRun<'_, N> {
    /// Writes the remaining blocks, from the checkpoint.
    pub(super) async fn write_organized(
        &mut self,
        job: &Job,
        plan: &ExportPlan,
        head_type: &str,
    ) -> Result<(), JobError> {
        let source = BlockSource { store: &self.worker.store, job, plan, head_type };
        let part = self.place.part;
        let mut remaining = source.heads(self.place.page.clone());
        let (mut skip, mut line) = (self.place.skip, self.place.line);
        let mut heads = Vec::new();
        loop {
            let page = remaining.cursor();
            let versions = remaining.next().await?;
            let is_end = versions.is_none();
            heads.extend(heads_of_page(page, versions.unwrap_or_default(), std::mem::take(&mut skip)));
            self.record_if_due(job).await?;
            // Many heads share one pass over all exported resources.
            if !is_end && heads.len() < source.batch_heads() {
                continue;
            }
            while !heads.is_empty() {
                let mut batch = HeadBatch::of(source, std::mem::take(&mut heads));
                while !batch.collect_page().await? {
                    self.record_if_due(job).await?;
                }
                for (index, head) in batch.heads().iter().enumerate() {
                    let (page, files) = (ExportCursor::clone(&head.page), self.place.files + 1);
                    let checkpoint =
                        Checkpoint { part, page, skip: head.index, line: std::mem::take(&mut line), files };
                    self.write_block(job, &batch.block(index), checkpoint).await?;
                    self.record_if_due(job).await?;
                }
                heads = batch.into_postponed();
            }
            if is_end {
                break;
            }
        }
        self.close(Checkpoint { part: part + 1, ..Checkpoint::default() }).await
    }

    /// Writes one block. `place` becomes the start of the next file, if a file starts with this block. A
    /// block that fits into a file is not divided. A larger block starts a new file, and its header is
    /// repeated in each file that continues it.
    async fn write_block(
        &mut self,
        job: &Job,
        block: &OutputBlock<'_>,
        checkpoint: Checkpoint,
    ) -> Result<(), JobError> {
        let (head_type, header, file_size) = (block.head_type(), block.header(), self.worker.file_size);
        let fhir_base = block.fhir_base();
        // For a long block, this pass only determines the length; its resources are read again to write them.
        let (mut held, mut is_whole) = (Vec::new(), true);
        let (mut count, mut bytes) = (0_u64, header.len() as u64 + 1);
        let mut lines = block.lines();
        while bytes <= file_size
            && let Some(page) = lines.next().await?
        {
            for body in page {
                let body = absolute(body, fhir_base);
                (count, bytes) = (count + 1, bytes + body.len() as u64 + 1);
                is_whole &= bytes <= HELD;
                held.extend(Some(body).filter(|_| is_whole));
            }
            self.record_if_due(job).await?;
        }
        if count == 0 {
            return Ok(());
        }
        let skip = checkpoint.line;
        if skip == 0 && self.file.as_ref().is_some_and(|file| file.lines.bytes + bytes > file_size) {
            self.close(checkpoint.clone()).await?;
        }
        self.line(ManifestSection::Output, head_type, BLOCKS, &header);
        let mut lines = block.lines();
        let (mut number, mut in_file) = (0, 0_u64);
        loop {
            let page = match is_whole && bytes <= file_size {
                true if number == 0 => std::mem::take(&mut held),
                true => break,
                false => match lines.next().await? {
                    Some(page) => page.into_iter().map(|body| absolute(body, fhir_base)).collect(),
                    None => break,
                },
            };
            for body in &page {
                number += 1;
                if number <= skip {
                    continue;
                }
                if in_file > 0 && self.is_full_with(body) {
                    if let Some(file) = &mut self.file {
                        file.continues = true;
                    }
                    let files = self.place.files + 1;
                    self.close(Checkpoint { line: number - 1, files, ..checkpoint.clone() }).await?;
                    self.line(ManifestSection::Output, head_type, BLOCKS, &header);
                    in_file = 0;
                }
                self.line(ManifestSection::Output, head_type, BLOCKS, body);
                in_file += 1;
                self.written += 1;
            }
            self.record_if_due(job).await?;
        }
        Ok(())
    }
}
