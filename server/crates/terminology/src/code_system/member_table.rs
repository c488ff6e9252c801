//! Rows of reference sets.

use super::CodeSystem;
use super::concept_attribute::{AttributeValue, LITERAL, NONE};
use super::description_facts::SEPARATOR;
use super::member_columns::MemberFacts;

/// The rows of one reference set.
pub(crate) struct MemberTable<'a> {
    pub(super) system: &'a CodeSystem,
    pub(crate) reference_set: &'a str,
    pub(super) fields: Vec<&'a str>,
    pub(super) data: &'a [u32],
}

/// A row of a reference set.
#[derive(Clone, Copy)]
pub(crate) struct MemberRow<'a>(&'a [u32]);

impl<'a> MemberTable<'a> {
    pub(crate) fn rows(&self) -> impl Iterator<Item = MemberRow<'a>> + use<'a> {
        self.data.chunks_exact(FIXED + self.fields.len()).map(MemberRow)
    }

    pub(crate) fn rows_of(&self, member: u32) -> impl Iterator<Item = MemberRow<'a>> + use<'a> {
        let rows = self.data;
        let width = FIXED + self.fields.len();
        let (mut begin, mut end) = (0, rows.len() / width);
        while begin < end {
            let middle = usize::midpoint(begin, end);
            match rows[middle * width] < member {
                true => begin = middle + 1,
                false => end = middle,
            }
        }
        let following = rows[begin * width..].chunks_exact(width);
        following.take_while(move |row| row[0] == member).map(MemberRow)
    }

    pub(crate) fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.eq_ignore_ascii_case(name))
    }

    pub(crate) fn field_count(&self) -> usize {
        self.fields.len()
    }

    pub(crate) fn facts(&self, row: MemberRow<'a>) -> MemberFacts<'a> {
        let mut parts = self.system.members.texts.get(row.0[1]).split(SEPARATOR);
        let mut part = || parts.next().unwrap_or_default();
        MemberFacts { is_active: part() == "1", module: part(), effective_time: part() }
    }

    pub(crate) fn value(&self, row: MemberRow<'a>, field: usize) -> Option<AttributeValue<'a>> {
        match row.0[FIXED + field] {
            NONE => None,
            text if text & LITERAL != 0 => {
                Some(AttributeValue::Literal(self.system.members.texts.get(text ^ LITERAL)))
            }
            concept => Some(AttributeValue::Concept(concept)),
        }
    }
}

impl MemberRow<'_> {
    pub(crate) fn member(self) -> u32 {
        self.0[0]
    }
}

impl CodeSystem {
    /// The ids of all reference sets that have rows.
    pub(crate) fn member_tables(&self) -> impl Iterator<Item = &str> {
        (0..self.members.names.len() as u32).map(|set| self.members.names.get(set))
    }

    /// The rows of a reference set.
    pub(crate) fn member_table<'a>(&'a self, name: &str) -> Option<MemberTable<'a>> {
        let columns = &self.members;
        let set = columns.names.find(name)?;
        Some(MemberTable {
            system: self,
            reference_set: columns.names.get(set),
            fields: columns.fields.get(set).split(' ').filter(|name| !name.is_empty()).collect(),
            data: columns.rows.row(set),
        })
    }
}

/// Number of columns that precede the fields in a row: the member and the number of its state.
pub(super) const FIXED: usize = 2;
