//! The designations of all concepts, by columns.

use super::columns::columns;
use super::row_column::TextColumn;
use super::row_offsets::RowOffsets;

#[derive(Debug, Default)]
pub(super) struct DesignationColumns {
    pub(super) ends: RowOffsets,
    pub(super) texts: TextColumn,
    /// Language, use, and the other facts, as numbers of texts in `values`. The other facts are the standards
    /// status and the id of the description that a resource states, and of a release of SNOMED CT the module,
    /// date and dialects.
    pub(super) facts: Vec<[u32; 3]>,
    /// Ids of the descriptions of a release of SNOMED CT; empty in other code systems.
    pub(super) description_ids: Vec<u64>,
}

impl DesignationColumns {
    pub(super) fn range(&self, concept: u32) -> std::ops::Range<u32> {
        let range = self.ends.range(concept);
        range.start as u32..range.end as u32
    }
}

columns!(DesignationColumns: ends, texts, facts, description_ids);
