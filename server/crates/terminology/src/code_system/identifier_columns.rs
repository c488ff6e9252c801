//! Alternate identifiers of concepts: codes of other schemes, such as LOINC, that SNOMED CT assigns to its
//! concepts.

use super::code_table::CodeTable;
use super::columns::columns;

/// Alternate identifiers, each with its concept.
#[derive(Debug, Default)]
pub(crate) struct IdentifierColumns {
    /// Concepts of the schemes, by code.
    schemes: CodeTable,
    /// Keys `SCHEME#IDENTIFIER`.
    keys: CodeTable,
    concepts: Vec<u32>,
}

columns!(IdentifierColumns: schemes, keys, concepts);

impl IdentifierColumns {
    /// Adds an identifier. Of two equal identifiers, the first is used.
    ///
    /// # Errors
    /// A message if there is more text than an index can hold.
    pub(super) fn add(&mut self, scheme: &str, identifier: &str, concept: u32) -> Result<(), String> {
        self.schemes.intern(scheme)?;
        self.keys.push(&format!("{scheme}#{identifier}"))?;
        self.concepts.push(concept);
        Ok(())
    }

    /// Replaces the numbers of the builder with ordinals.
    pub(super) fn renumber(&mut self, ordinals: &[u32]) {
        self.concepts.iter_mut().for_each(|concept| *concept = ordinals[*concept as usize]);
    }

    pub(super) fn build_tables(&mut self) {
        self.schemes.build_table();
        self.keys.build_table();
    }

    /// The concept with this identifier in a scheme.
    pub(crate) fn find(&self, scheme: &str, identifier: &str) -> Option<u32> {
        let key = self.keys.find(&format!("{scheme}#{identifier}"))?;
        self.concepts.get(key as usize).copied()
    }

    pub(crate) fn schemes(&self) -> impl Iterator<Item = &str> {
        (0..self.schemes.len() as u32).map(|scheme| self.schemes.get(scheme))
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.keys.texts().bytes() + 44 * self.keys.len()
    }
}
