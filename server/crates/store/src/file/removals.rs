//! The entries of a resource in all tables, as removals.

use std::collections::BTreeSet;

use super::batch::BatchEntries;
use super::disk;
use super::engine::OpenEngine;
use super::keys::{self, StoreTable};
use crate::{Erasure, IndexEntry, PageLimit, Seq, StoreError};

/// The entries of a resource in all tables, as removals.
///
/// # Errors
/// Returns [`StoreError::Conflict`] if its newest version is another one than the caller has read.
pub(super) fn add_removals(
    engine: &OpenEngine,
    erasure: Erasure,
    entries: &mut BatchEntries,
) -> Result<(), StoreError> {
    let Erasure { key, newest, terms } = erasure;
    let view = engine.view();
    let conflict = || StoreError::Conflict { key: key.to_string() };
    let (mut seqs, mut compartments, mut before) = (Vec::new(), BTreeSet::new(), Seq::LATEST);
    loop {
        let page = view.history(&key, before, PageLimit::default())?;
        let Some(last) = page.last() else { break };
        if seqs.is_empty() && page[0].version != newest {
            return Err(conflict());
        }
        before = last.seq;
        seqs.extend(page.iter().map(|version| version.seq));
        compartments.extend(page.into_iter().flat_map(|version| version.compartments));
    }
    if seqs.is_empty() {
        return Err(conflict());
    }
    let home = disk::home(&engine.tables, &key)?.unwrap_or_default();
    entries.remove(StoreTable::Homes, keys::home(&key));
    entries.remove(StoreTable::Current, keys::current(&key, &home));
    for seq in seqs {
        entries.remove(StoreTable::History, keys::history(&key, seq));
        entries.remove(StoreTable::Changes, seq.0.to_be_bytes().to_vec());
        for compartment in &compartments {
            entries.remove(StoreTable::Members, keys::member(compartment, &key, seq));
        }
    }
    for term in terms {
        entries.remove(StoreTable::Terms, keys::term(&IndexEntry { term, id: key.id.clone() }));
    }
    Ok(())
}
