//! Rows of the reference sets of SNOMED CT whose members are concepts, with the data by which constraints
//! select them.

use super::code_table::CodeTable;
use super::columns::columns;
use super::concept_attribute::{LITERAL, NONE};
use super::description_facts::SEPARATOR;
use super::member_table::FIXED;
use super::row_column::{RowColumn, TextColumn};

#[derive(Debug, Default)]
pub(crate) struct MemberColumns {
    pub(super) names: CodeTable,
    /// Names of the fields of each reference set, separated by spaces.
    pub(super) fields: TextColumn,
    /// Rows of each reference set, sorted by member: the member, the number of its state, and the value of
    /// each field. A value is a concept, or the number of a text with the bit [`LITERAL`].
    pub(super) rows: RowColumn<u32>,
    /// States (`1` or `0`, module and date) and values.
    pub(super) texts: TextColumn,
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
    /// Adds a row. The first row of a reference set determines its fields; others are ignored. `find` returns
    /// the concept with a code.
    ///
    /// # Errors
    /// A message if there is more text than an index can hold.
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
        for field in &self.fields[set] {
            let value = fields.clone().find(|(name, _)| name == field).map(|(_, value)| value);
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

    /// The columns, with the ordinals of the concepts.
    ///
    /// # Errors
    /// A message if there is more text than an index can hold.
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
