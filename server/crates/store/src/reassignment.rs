//! Reassignment: other compartments of stored versions, after the rules for compartments have changed.
//!
//! A version keeps its number, its time and its bytes. Scans of a compartment at an earlier sequence number
//! see the new compartments, too. A reassignment has a sequence number of its own, as an erasure has, and
//! no entry in the change feed.

use std::collections::{BTreeMap, BTreeSet};

use crate::{IndexTerm, ResourceKey, Seq};

/// The new compartments of all versions of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reassignment {
    /// Type and id of the resource.
    pub key: ResourceKey,
    /// Number of its newest version, so that no version is left out that the caller has not seen.
    pub newest: u64,
    /// The sequence number and the compartments, sorted, of each version, the oldest first.
    pub versions: Vec<(Seq, Vec<String>)>,
    /// Terms that are added to the search index.
    pub terms: Vec<IndexTerm>,
}

impl Reassignment {
    /// For each compartment that a version is in, the sequence numbers at which the resource enters
    /// (`true`) or leaves it.
    pub(crate) fn moves(&self) -> BTreeMap<&str, Vec<(Seq, bool)>> {
        let mut moves: BTreeMap<&str, Vec<(Seq, bool)>> = BTreeMap::new();
        let mut before = BTreeSet::new();
        for (seq, compartments) in &self.versions {
            let now: BTreeSet<&str> = compartments.iter().map(String::as_str).collect();
            for joined in now.difference(&before) {
                moves.entry(joined).or_default().push((*seq, true));
            }
            for former in before.difference(&now) {
                moves.entry(former).or_default().push((*seq, false));
            }
            before = now;
        }
        moves
    }
}
