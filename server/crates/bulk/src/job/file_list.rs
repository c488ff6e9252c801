//! The list of a job's output files: one ledger record for each file, under `bulk/file/{job}/{name}`.
//!
//! A record of the job that contained the list would be rewritten with each file. The record of the job
//! contains only their number ([`Job::file_count`]). The list is removed after the record of its job.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Expect, Ledger as _, LedgerWrite, Store, StoreError};

use super::{Job, OutputFile, decode};

/// Number of records in one read or write.
const PAGE: usize = 1_000;

#[derive(Serialize, Deserialize)]
struct ListedFile {
    at: usize,
    file: OutputFile,
}

fn prefix(job: &str) -> String {
    format!("bulk/file/{job}/")
}

/// The writes that add the files from position `from` on to the list.
pub(crate) fn writes(job: &Job, from: usize) -> impl Iterator<Item = LedgerWrite> {
    job.files.iter().enumerate().skip(from).map(|(index, file)| {
        let item = ListedFile { at: index, file: file.clone() };
        let value = serde_json::to_vec(&item).expect("a file has string keys only, so it serializes to JSON");
        LedgerWrite::put(format!("{}{}", prefix(&job.id), file.name), value, Expect::Any)
    })
}

/// Reads the list of a job.
pub(crate) async fn load(store: &Store, job: &Job, now: Timestamp) -> Result<Vec<OutputFile>, StoreError> {
    let (prefix, mut after) = (prefix(&job.id), None::<String>);
    let mut items = Vec::new();
    loop {
        let page = store.scan(&prefix, after.as_deref(), PAGE, now).await?;
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        for (key, record) in &page {
            items.push(decode::<ListedFile>(key, &record.value)?);
        }
    }
    items.retain(|file| file.at < job.file_count);
    items.sort_unstable_by_key(|file| file.at);
    if items.len() != job.file_count {
        let what = format!("{}: {} of {} files are listed", job.key(), items.len(), job.file_count);
        return Err(StoreError::Corrupt { what });
    }
    Ok(items.into_iter().map(|item| item.file).collect())
}

/// The file with this name and its position in the list of the job.
pub(crate) async fn find(
    store: &Store,
    job: &Job,
    name: &str,
    now: Timestamp,
) -> Result<Option<(usize, OutputFile)>, StoreError> {
    let key = format!("{}{name}", prefix(&job.id));
    let Some(record) = store.get(&key, now).await? else { return Ok(None) };
    let ListedFile { at, file } = decode(&key, &record.value)?;
    Ok((at < job.file_count).then_some((at, file)))
}

/// The writes that remove the list of a job.
pub(crate) async fn deletes(
    store: &Store,
    job: &str,
    now: Timestamp,
) -> Result<Vec<LedgerWrite>, StoreError> {
    let (mut deletes, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = store.scan(&prefix(job), after.as_deref(), PAGE, now).await?;
        let Some((last, _)) = page.last() else { return Ok(deletes) };
        after = Some(last.clone());
        deletes.extend(page.into_iter().map(|(key, _)| LedgerWrite::delete(key, Expect::Any)));
    }
}

/// Removes the list of a job.
pub(crate) async fn remove(store: &Store, job: &str, now: Timestamp) -> Result<(), StoreError> {
    for page in deletes(store, job, now).await?.chunks(PAGE) {
        store.write(page.to_vec(), now).await?;
    }
    Ok(())
}
