//! `includeAssociatedData=_supporting`: the resources outside of compartments that exported data refer to, each once.
//!
//! The first part of a job that wants them walks what the job exports once more, page by page, and notes which resources
//! of these types are referred to; then it walks these types until none refers to one that is not noted yet, as a
//! PractitionerRole does to its Practitioner. So what is noted depends on the snapshot alone, and whoever takes the job up
//! notes the same. Only ids are kept, as one text and a table of places in it, up to a limit: beyond it the job fails.
//! When a resource was changed last does not matter: what refers to it may be new.

use std::hash::BuildHasher as _;

use bytes::Bytes;
use hashbrown::{DefaultHashBuilder, HashTable};
use memchr::memmem;

use resources::compartment::local;

/// The types that support others.
pub const SUPPORTING: [&str; 6] =
    ["Device", "Location", "Medication", "Organization", "Practitioner", "PractitionerRole"];

/// Most bytes of ids and their table; some two million ids.
const LIMIT: usize = 48 << 20;

/// There are more than can be noted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany;

/// The supporting resources that were referred to, as `Practitioner/1`.
#[derive(Debug, Default)]
pub(crate) struct References {
    text: String,
    /// Where each begins; it ends where the next begins.
    starts: Vec<u32>,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl References {
    /// How many.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Is this one among them?
    pub fn has(&self, kind: &str, id: &str) -> bool {
        let key = format!("{kind}/{id}");
        self.table.find(self.hasher.hash_one(&key), |at| self.at(*at) == key).is_some()
    }

    fn at(&self, at: u32) -> &str {
        let at = at as usize;
        let end = self.starts.get(at + 1).map_or(self.text.len(), |end| *end as usize);
        &self.text[self.starts[at] as usize..end]
    }

    /// Notes what a stored resource refers to, of the types that `wants` lets pass.
    ///
    /// # Errors
    /// [`TooMany`].
    pub fn add(
        &mut self,
        resource: &Bytes,
        fhir_base: &str,
        wants: impl Fn(&str) -> bool,
    ) -> Result<(), TooMany> {
        for (kind, id) in references(resource, fhir_base) {
            if SUPPORTING.contains(&kind) && wants(kind) {
                self.note(kind, id)?;
            }
        }
        Ok(())
    }

    fn note(&mut self, kind: &str, id: &str) -> Result<(), TooMany> {
        if self.has(kind, id) {
            return Ok(());
        }
        if self.text.len() + kind.len() + id.len() + 16 * self.starts.len() > LIMIT {
            return Err(TooMany);
        }
        let place = self.starts.len() as u32;
        self.starts.push(self.text.len() as u32);
        self.text.push_str(kind);
        self.text.push('/');
        self.text.push_str(id);
        let hash = self.hasher.hash_one(self.at(place));
        let (text, starts, hasher) = (&self.text, &self.starts, &self.hasher);
        let key = |at: u32| {
            let end = starts.get(at as usize + 1).map_or(text.len(), |end| *end as usize);
            &text[starts[at as usize] as usize..end]
        };
        self.table.insert_unique(hash, place, |at| hasher.hash_one(key(*at)));
        Ok(())
    }
}

/// What a stored resource refers to on this server, as type and id.
pub(crate) fn references<'a>(
    resource: &'a [u8],
    fhir_base: &'a str,
) -> impl Iterator<Item = (&'static str, &'a str)> {
    // Stored resources have no whitespace between tokens, and a quote within a text has a backslash before it: this
    // stands nowhere but before the value of a member.
    const MEMBER: &[u8] = br#""reference":""#;
    memmem::find_iter(resource, MEMBER).filter_map(move |at| {
        let value = &resource[at + MEMBER.len()..];
        let end = memchr::memchr(b'"', value).unwrap_or(value.len());
        local(std::str::from_utf8(&value[..end]).ok()?, fhir_base)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted() {
        let mut references = References::default();
        let resource = br#"{"a":{"reference":"Practitioner/1"},"b":[{"reference":"https://here.example/r4/Organization/2"},{"reference":"https://elsewhere.example/r4/Organization/3"},{"reference":"Location/4/_history/1"},{"reference":"Patient/5"},{"reference":"Device/6"}],"c":"\"reference\":\"Practitioner/7","d":{"reference":"Practitioner/1"}}"#;
        let resource = Bytes::from_static(resource);
        references.add(&resource, "https://here.example/r4", |kind| kind != "Device").unwrap();
        let noted: Vec<_> = (0..references.len()).map(|at| references.at(at as u32)).collect();
        assert_eq!(noted, ["Practitioner/1", "Organization/2", "Location/4"]);
        assert!(references.has("Practitioner", "1") && !references.has("Organization", "1"));
    }

    #[test]
    fn there_is_a_limit() {
        let mut references = References::default();
        let mut count = 0_u32;
        while references.note("Practitioner", &format!("{count:064}")).is_ok() {
            count += 1;
        }
        assert!(count > 400_000, "{count}");
        assert!(references.text.len() < LIMIT);
        assert!(references.has("Practitioner", &format!("{:064}", count - 1)));
        // What is noted already is no more.
        assert_eq!(references.note("Practitioner", &format!("{:064}", 7)), Ok(()));
    }
}
