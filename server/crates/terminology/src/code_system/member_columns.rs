//! Rows of the reference sets of SNOMED CT whose members are concepts, with the data by which constraints select them.

use super::code_table::CodeTable;
use super::columns::{RowColumn, TextColumn, columns};
use super::descriptions::SEPARATOR;
use super::{AttributeValue, CodeSystem, LITERAL, NONE};

/// Number of columns that precede the fields in a row: the member and the number of its state.
const FIXED: usize = 2;

/// Rows of all reference sets.
#[derive(Debug, Default)]
pub(crate) struct MemberColumns {
    /// Ids of the reference sets.
    names: CodeTable,
    /// Names of the fields of each reference set, separated by spaces.
    fields: TextColumn,
    /// Rows of each reference set, sorted by member: the member, the number of its state, and the value of each field.
    /// A value is a concept, or the number of a text with the bit [`LITERAL`].
    rows: RowColumn<u32>,
    /// States (`1` or `0`, module and date) and values.
    texts: TextColumn,
}

columns!(MemberColumns: names, fields, rows, texts);

/// A row of a reference set.
#[derive(Debug, Clone, Copy)]
pub struct MemberFacts<'a> {
    /// Whether the row is in effect.
    pub is_active: bool,
    /// Module of the row.
    pub module: &'a str,
    /// Date of its current state, as `YYYYMMDD`.
    pub effective_time: &'a str,
}

/// Collects the rows while the index is built.
#[derive(Debug, Default)]
pub(super) struct MemberBuilder {
    names: CodeTable,
    /// Names of the fields of each reference set.
    fields: Vec<Vec<String>>,
    /// Rows of each reference set, with the numbers that concepts have in the builder.
    rows: Vec<Vec<u32>>,
    texts: CodeTable,
    state: String,
}

impl MemberBuilder {
    /// Adds a row. The first row of a reference set determines its fields; others are ignored. `find` returns the concept
    /// with a code.
    ///
    /// # Errors
    /// Returns a message if there is more text than an index can hold.
    pub(super) fn add<'f>(
        &mut self,
        reference_set: &str,
        member: u32,
        facts: MemberFacts<'_>,
        fields: impl Iterator<Item = (&'f str, &'f str)> + Clone,
        find: impl Fn(&str) -> Option<u32>,
    ) -> Result<(), String> {
        let set = self.names.intern(reference_set)? as usize;
        if set == self.rows.len() {
            self.rows.push(Vec::new());
            self.fields.push(fields.clone().map(|(name, _)| name.to_owned()).collect());
        }
        self.state.clear();
        let active = if facts.is_active { "1" } else { "0" };
        for part in [active, facts.module, facts.effective_time] {
            self.state.push_str(part);
            self.state.push(SEPARATOR);
        }
        let state = self.texts.intern(&self.state)?;
        let row = &mut self.rows[set];
        row.extend([member, state]);
        for wanted in &self.fields[set] {
            let value = fields.clone().find(|(name, _)| name == wanted).map(|(_, value)| value);
            row.push(match value {
                None => NONE,
                Some(value) => match find(value) {
                    Some(concept) => concept,
                    None => LITERAL | self.texts.intern(value)?,
                },
            });
        }
        Ok(())
    }

    /// Returns the columns, with the ordinals of the concepts.
    ///
    /// # Errors
    /// Returns a message if there is more text than an index can hold.
    pub(super) fn build(self, ordinals: &[u32]) -> Result<MemberColumns, String> {
        let mut out =
            MemberColumns { names: self.names, texts: self.texts.into_texts(), ..Default::default() };
        out.texts.shrink();
        for (mut data, fields) in self.rows.into_iter().zip(self.fields) {
            let width = FIXED + fields.len();
            for row in data.chunks_exact_mut(width) {
                row[0] = ordinals[row[0] as usize];
                for value in row[FIXED..].iter_mut().filter(|value| **value & LITERAL == 0) {
                    *value = ordinals[*value as usize];
                }
            }
            let mut rows: Vec<&[u32]> = data.chunks_exact(width).collect();
            rows.sort_unstable();
            out.rows.push(rows.into_iter().flatten().copied());
            out.fields.push(&fields.join(" "))?;
        }
        out.rows.shrink();
        Ok(out)
    }
}

impl MemberColumns {
    pub(super) fn build_table(&mut self) {
        self.names.build_table();
    }

    pub(super) fn memory_bytes(&self) -> usize {
        4 * self.rows.items() + self.texts.bytes() + 3 * self.texts.len()
    }
}

/// The rows of one reference set.
pub(crate) struct MemberTable<'a> {
    system: &'a CodeSystem,
    pub(crate) reference_set: &'a str,
    fields: Vec<&'a str>,
    data: &'a [u32],
}

/// A row of a reference set.
#[derive(Clone, Copy)]
pub(crate) struct MemberRow<'a>(&'a [u32]);

impl CodeSystem {
    /// Returns the ids of all reference sets that have rows.
    pub(crate) fn member_tables(&self) -> impl Iterator<Item = &str> {
        (0..self.members.names.len() as u32).map(|set| self.members.names.get(set))
    }

    /// Returns the rows of a reference set.
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

impl<'a> MemberTable<'a> {
    /// Returns all rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = MemberRow<'a>> + use<'a> {
        self.data.chunks_exact(FIXED + self.fields.len()).map(MemberRow)
    }

    /// Returns the rows of a member.
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

    /// Returns the position of a field.
    pub(crate) fn field(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.eq_ignore_ascii_case(name))
    }

    pub(crate) fn field_count(&self) -> usize {
        self.fields.len()
    }

    /// Returns the state of a row.
    pub(crate) fn facts(&self, row: MemberRow<'a>) -> MemberFacts<'a> {
        let mut parts = self.system.members.texts.get(row.0[1]).split(SEPARATOR);
        let mut part = || parts.next().unwrap_or_default();
        MemberFacts { is_active: part() == "1", module: part(), effective_time: part() }
    }

    /// Returns the value of a field.
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
