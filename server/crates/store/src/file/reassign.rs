//! Other compartments of stored versions (see [`crate::reassignment`]).

use std::collections::{BTreeSet, HashMap};

use super::batch::BatchEntries;
use super::disk;
use super::engine::OpenEngine;
use super::keys::{self, StoreTable};
use crate::{IndexEntry, PageLimit, Reassignment, Seq, StoreError};

/// Adds the versions of a resource with other compartments, and their entries in the indexes. The home of the
/// resource stays the same, so that the order of scans does too.
///
/// # Errors
/// Returns [`StoreError::Conflict`] if its newest version is another one than the caller has read.
pub(super) fn add_compartments(
    engine: &OpenEngine,
    reassignment: &Reassignment,
    entries: &mut BatchEntries,
) -> Result<(), StoreError> {
    let Reassignment { key, newest, versions, terms } = reassignment;
    let view = engine.view();
    let compartments: HashMap<Seq, &Vec<String>> =
        versions.iter().map(|(seq, names)| (*seq, names)).collect();
    let home = disk::home(&engine.tables, key)?.unwrap_or_default();
    let (mut newest_seq, mut before) = (None, Seq::LATEST);
    let (mut seqs, mut names) = (Vec::new(), BTreeSet::new());
    loop {
        let page = view.history(key, before, PageLimit::default())?;
        let Some(last) = page.last() else { break };
        before = last.seq;
        for mut version in page {
            let is_newest = newest_seq.is_none();
            if is_newest && version.version != *newest {
                return Err(StoreError::Conflict { key: key.to_string() });
            }
            newest_seq = newest_seq.or(Some(version.seq));
            seqs.push(version.seq);
            let Some(&compartments) = compartments.get(&version.seq) else { continue };
            names.extend(std::mem::replace(&mut version.compartments, compartments.clone()));
            let body = version.body.take();
            let (table, place) = match is_newest {
                true => (StoreTable::Current, keys::current(key, &home)),
                false => (StoreTable::History, keys::history(key, version.seq)),
            };
            entries.put(table, place, keys::encode_version(&version, body));
        }
    }
    let Some(newest_seq) = newest_seq else { return Err(StoreError::Conflict { key: key.to_string() }) };
    for name in &names {
        for seq in &seqs {
            entries.remove(StoreTable::Members, keys::member(name, key, *seq));
        }
    }
    for (compartment, moves) in reassignment.moves() {
        // A scan finds a resource in its home compartment without an index entry.
        for (seq, is_in) in moves.into_iter().filter(|_| compartment != home) {
            entries.put(StoreTable::Members, keys::member(compartment, key, seq), vec![u8::from(is_in)]);
        }
    }
    for term in terms {
        let entry = IndexEntry { term: term.clone(), id: key.id.clone() };
        entries.put(StoreTable::Terms, keys::term(&entry), newest_seq.0.to_be_bytes().to_vec());
    }
    Ok(())
}
