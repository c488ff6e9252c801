//! Writes output in blocks: see [`crate::organized`].

use jiff::Timestamp;

use super::{Run, Stopped};
use crate::criteria::Criteria;
use crate::job::{Job, Place, Section};
use crate::organized::{Block, Round, Source, heads_of};
use crate::selection::Cursor;

/// Longest block that is held while its length is found out, in bytes.
const HELD: u64 = 1 << 20;
/// How files of blocks are called.
const BLOCKS: &str = "blocks";

impl<N: Fn() -> Timestamp + Send + Sync> Run<'_, N> {
    /// Blocks of resources, from the place on.
    pub(super) async fn write_organized(
        &mut self,
        job: &Job,
        criteria: &Criteria,
        by: &str,
    ) -> Result<(), Stopped> {
        let source = Source { store: &self.worker.store, job, criteria, by };
        let part = self.place.part;
        let mut walk = source.heads(self.place.page.clone());
        let (mut skip, mut line) = (self.place.skip, self.place.line);
        let mut heads = Vec::new();
        loop {
            let page = walk.cursor();
            let found = walk.next().await?;
            let is_end = found.is_none();
            heads.extend(heads_of(page, found.unwrap_or_default(), std::mem::take(&mut skip)));
            self.beat(job).await?;
            if !is_end && heads.len() < source.together() {
                continue;
            }
            while !heads.is_empty() {
                let mut round = Round::of(source, std::mem::take(&mut heads));
                while !round.step().await? {
                    self.beat(job).await?;
                }
                for (at, head) in round.heads().iter().enumerate() {
                    let (page, files) = (Cursor::clone(&head.page), self.place.files + 1);
                    let place = Place { part, page, skip: head.at, line: std::mem::take(&mut line), files };
                    self.write_block(job, &round.block(at), place).await?;
                    self.beat(job).await?;
                }
                heads = round.into_put_off();
            }
            if is_end {
                break;
            }
        }
        self.close(Place { part: part + 1, ..Place::default() }).await
    }

    /// One block; `place` is where the next file begins where one begins with it. A block that fits into a file is not
    /// cut; one that does not begins a file, and its header stands in each file that it goes on in.
    async fn write_block(&mut self, job: &Job, block: &Block<'_>, place: Place) -> Result<(), Stopped> {
        let (by, header, file_size) = (block.kind(), block.header(), self.worker.file_size);
        // Of a long block only the length is wanted here; it is read again.
        let (mut held, mut is_whole) = (Vec::new(), true);
        let (mut count, mut bytes) = (0_u64, header.len() as u64 + 1);
        let mut lines = block.lines();
        while bytes <= file_size
            && let Some(page) = lines.next().await?
        {
            for body in page {
                (count, bytes) = (count + 1, bytes + body.len() as u64 + 1);
                is_whole &= bytes <= HELD;
                held.extend(Some(body).filter(|_| is_whole));
            }
            self.beat(job).await?;
        }
        if count == 0 {
            return Ok(());
        }
        let skip = place.line;
        if skip == 0 && self.file.as_ref().is_some_and(|file| file.lines.bytes + bytes > file_size) {
            self.close(place.clone()).await?;
        }
        self.line(Section::Output, by, BLOCKS, &header);
        let mut lines = block.lines();
        let (mut number, mut in_file) = (0, 0_u64);
        loop {
            let page = match is_whole && bytes <= file_size {
                true if number == 0 => std::mem::take(&mut held),
                true => break,
                false => match lines.next().await? {
                    Some(page) => page,
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
                    self.close(Place { line: number - 1, files, ..place.clone() }).await?;
                    self.line(Section::Output, by, BLOCKS, &header);
                    in_file = 0;
                }
                self.line(Section::Output, by, BLOCKS, body);
                in_file += 1;
                self.written += 1;
            }
            self.beat(job).await?;
        }
        Ok(())
    }
}
