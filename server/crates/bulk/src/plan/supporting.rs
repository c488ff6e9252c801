//! `includeAssociatedData=_supporting`: resources outside of patient compartments that exported resources
//! refer to. Each is exported once.
//!
//! The first part of such a job reads the exported resources page by page and collects their references to
//! these types. It then reads the collected resources, which may refer to further ones (a PractitionerRole to
//! its Practitioner), until a pass finds no new reference. The result depends only on the snapshot, so
//! another worker collects the same references. Only ids are held in memory, as one string with a hash table
//! of offsets. If they exceed a limit, the job fails.
//!
//! An export since a time compares the supporting resources of two full exports, at that time and now
//! ([`SupportingSets`]): a resource can become supporting, or cease to be, without being changed.

use std::hash::BuildHasher as _;

use bytes::Bytes;
use hashbrown::{DefaultHashBuilder, HashTable};

use resources::references::local_targets;

use crate::request::kick_off::SUPPORTING;

/// Maximum memory for ids and their hash table in bytes, enough for about two million ids.
const LIMIT: usize = 48 << 20;

/// The supporting resources of an increment: those of the export at `_since`, and those of the present one.
#[derive(Debug, Default)]
pub(crate) struct SupportingSets {
    pub before: ReferenceSet,
    pub now: ReferenceSet,
}

impl SupportingSets {
    /// The references that are in one of the sets only, as type and id.
    pub fn differences(&self) -> impl Iterator<Item = (&str, &str)> {
        let former = self.before.iter().filter(|(kind, id)| !self.now.has(kind, id));
        former.chain(self.now.iter().filter(|(kind, id)| !self.before.has(kind, id)))
    }
}

/// The error for references that exceed [`LIMIT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooManyReferences;

/// A set of references such as `Practitioner/1`.
#[derive(Debug, Default)]
pub(crate) struct ReferenceSet {
    text: String,
    /// Start of each entry as an offset. An entry ends where the next one begins.
    starts: Vec<u32>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl ReferenceSet {
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// `true` if the set contains this reference.
    pub fn has(&self, kind: &str, id: &str) -> bool {
        let key = format!("{kind}/{id}");
        self.table.find(self.hasher.hash_one(&key), |offset| self.at(*offset) == key).is_some()
    }

    /// The references as type and id, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        (0..self.starts.len()).filter_map(|index| self.at(index as u32).split_once('/'))
    }

    /// The ids of the references to a type, in any order.
    pub fn ids_of(&self, kind: &str) -> Vec<String> {
        let entries = (0..self.starts.len()).map(|index| self.at(index as u32));
        let ids = entries.filter_map(|entry| entry.strip_prefix(kind)?.strip_prefix('/'));
        ids.map(str::to_owned).collect()
    }

    fn at(&self, index: u32) -> &str {
        let index = index as usize;
        let end = self.starts.get(index + 1).map_or(self.text.len(), |end| *end as usize);
        &self.text[self.starts[index] as usize..end]
    }

    /// Adds the references of a stored resource to the types that `wants` accepts.
    ///
    /// # Errors
    /// Returns [`TooManyReferences`] if the limit is reached.
    pub fn add(
        &mut self,
        resource: &Bytes,
        fhir_base: &str,
        wants: impl Fn(&str) -> bool,
    ) -> Result<(), TooManyReferences> {
        for (kind, id) in local_targets(resource, fhir_base) {
            if SUPPORTING.contains(&kind) && wants(kind) {
                self.note(kind, id)?;
            }
        }
        Ok(())
    }

    fn note(&mut self, kind: &str, id: &str) -> Result<(), TooManyReferences> {
        if self.has(kind, id) {
            return Ok(());
        }
        if self.text.len() + kind.len() + id.len() + 16 * self.starts.len() > LIMIT {
            return Err(TooManyReferences);
        }
        let place = self.starts.len() as u32;
        self.starts.push(self.text.len() as u32);
        self.text.push_str(kind);
        self.text.push('/');
        self.text.push_str(id);
        let hash = self.hasher.hash_one(self.at(place));
        let (text, starts, hasher) = (&self.text, &self.starts, &self.hasher);
        let key = |index: u32| {
            let end = starts.get(index as usize + 1).map_or(text.len(), |end| *end as usize);
            &text[starts[index as usize] as usize..end]
        };
        self.table.insert_unique(hash, place, |index| hasher.hash_one(key(*index)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_of_supporting_types_are_collected() {
        let mut references = ReferenceSet::default();
        let resource = br#"{"a":{"reference":"Practitioner/1"},"b":[{"reference":"https://here.example/r4/Organization/2"},{"reference":"https://elsewhere.example/r4/Organization/3"},{"reference":"Location/4/_history/1"},{"reference":"Patient/5"},{"reference":"Device/6"}],"c":"\"reference\":\"Practitioner/7","d":{"reference":"Practitioner/1"}}"#;
        let resource = Bytes::from_static(resource);
        references.add(&resource, "https://here.example/r4", |kind| kind != "Device").unwrap();
        let noted: Vec<_> = (0..references.len()).map(|index| references.at(index as u32)).collect();
        assert_eq!(noted, ["Practitioner/1", "Organization/2", "Location/4"]);
        assert!(references.has("Practitioner", "1") && !references.has("Organization", "1"));
    }

    #[test]
    fn the_memory_for_references_is_limited() {
        let mut references = ReferenceSet::default();
        let mut count = 0_u32;
        while references.note("Practitioner", &format!("{count:064}")).is_ok() {
            count += 1;
        }
        assert!(count > 400_000, "{count}");
        assert!(references.text.len() < LIMIT);
        assert!(references.has("Practitioner", &format!("{:064}", count - 1)));
        // A reference that is already in the set takes no space.
        assert_eq!(references.note("Practitioner", &format!("{:064}", 7)), Ok(()));
    }
}
