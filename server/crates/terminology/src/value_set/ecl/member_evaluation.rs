//! Evaluation of filters on the rows of reference sets, and of the fields that a constraint selects.

use super::evaluation::EclEvaluator;
use super::filter_evaluation::{BYTES_PER_STEP, ComponentState};
use super::filters::{ComponentTest, EclFilter, FieldTest, MemberQuery, MemberTest, SelectedFields};
use super::syntax::{EclError, EclExpression};
use crate::code_system::concept_attribute::AttributeValue;
use crate::code_system::concept_set::ConceptSet;
use crate::code_system::member_table::{MemberRow, MemberTable};

/// Columns of each row that are not among the fields of the reference set.
const MEMBER: &str = "referencedComponentId";
const REFERENCE_SET: &str = "refsetId";

impl<'a> EclEvaluator<'a> {
    /// The concepts that a query selects.
    pub(super) fn select_members(&self, query: &MemberQuery) -> Result<ConceptSet, EclError> {
        let mut out = ConceptSet::empty(self.system.len());
        self.budget.spend_words(self.system.len().div_ceil(64), true)?;
        for table in self.member_tables(query)? {
            for row in table.rows() {
                if self.row_passes(query, &table, row)? {
                    self.selected_concepts(query, &table, row).for_each(|concept| out.insert(concept));
                }
            }
        }
        Ok(out)
    }

    /// Returns whether a query selects a concept.
    pub(super) fn is_selected(&self, query: &MemberQuery, concept: u32) -> Result<bool, EclError> {
        for table in self.member_tables(query)? {
            let is_found = match query.selected {
                SelectedFields::Members => {
                    self.any_holds(table.rows_of(concept), |row| self.row_passes(query, &table, row))?
                }
                _ => self.any_holds(table.rows(), |row| {
                    self.spend_step()?;
                    let selects =
                        self.selected_concepts(query, &table, row).any(|selected| selected == concept);
                    Ok(selects && self.row_passes(query, &table, row)?)
                })?,
            };
            if is_found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The reference sets of a query.
    fn member_tables(&self, query: &MemberQuery) -> Result<Vec<MemberTable<'a>>, EclError> {
        if let EclExpression::Concept(code) = &query.reference_sets {
            let name = self.find_concept(code)?.map(|concept| self.system.code(concept));
            let Some(table) = name.and_then(|name| self.system.member_table(name)) else {
                return Ok(Vec::new());
            };
            check_fields(query, &table)?;
            return Ok(vec![table]);
        }
        let mut tables = Vec::new();
        for name in self.system.member_tables() {
            self.spend_step()?;
            if let Some(concept) = self.system.find(name)
                && self.contains(&query.reference_sets, concept)?
            {
                tables.extend(self.system.member_table(name));
            }
        }
        Ok(tables)
    }

    /// The concepts in the selected fields of a row.
    fn selected_concepts<'q>(
        &self,
        query: &'q MemberQuery,
        table: &'q MemberTable<'a>,
        row: MemberRow<'a>,
    ) -> impl Iterator<Item = u32> + use<'a, 'q> {
        let of_field = move |field: usize| match table.value(row, field) {
            Some(AttributeValue::Concept(concept)) => Some(concept),
            _ => None,
        };
        let (named, takes_all): (&[String], bool) = match &query.selected {
            SelectedFields::Members => (&[], false),
            SelectedFields::All => (&[], true),
            SelectedFields::Named(names) => (names, false),
        };
        let takes = |column: &str| named.iter().any(|name| name.eq_ignore_ascii_case(column));
        let member = (named.is_empty() || takes(MEMBER)).then_some(row.member());
        let reference_set = takes(REFERENCE_SET).then(|| self.system.find(table.reference_set)).flatten();
        let all = if takes_all { table.field_count() } else { 0 };
        let fields = named.iter().filter_map(|name| table.field(name));
        member.into_iter().chain(reference_set).chain((0..all).chain(fields).filter_map(of_field))
    }

    /// Returns whether a row passes all filters. Without a filter on the state, it must be active.
    fn row_passes(
        &self,
        query: &MemberQuery,
        table: &MemberTable<'a>,
        row: MemberRow<'a>,
    ) -> Result<bool, EclError> {
        self.spend_step()?;
        let facts = table.facts(row);
        let state = ComponentState {
            is_active: facts.is_active,
            module: Some(facts.module),
            effective_time: Some(facts.effective_time),
        };
        let is_state = |filter: &EclFilter<MemberTest>| {
            matches!(filter.test, MemberTest::Component(ComponentTest::Active(_)))
        };
        if !facts.is_active && !query.filters.iter().any(is_state) {
            return Ok(false);
        }
        self.all_hold(&query.filters, |filter| {
            let passes = match &filter.test {
                MemberTest::Component(test) => self.component_passes(test, &state)?,
                MemberTest::Field(name, test) => self.field_passes(name, test, table, row)?,
            };
            Ok(passes.is_some_and(|passes| passes != filter.negated))
        })
    }

    /// The result of a test of a field; `None` if the row has no value of the type.
    fn field_passes(
        &self,
        name: &str,
        test: &FieldTest,
        table: &MemberTable<'a>,
        row: MemberRow<'a>,
    ) -> Result<Option<bool>, EclError> {
        let value = if name.eq_ignore_ascii_case(MEMBER) {
            Some(AttributeValue::Concept(row.member()))
        } else if name.eq_ignore_ascii_case(REFERENCE_SET) {
            Some(AttributeValue::Literal(table.reference_set))
        } else {
            table.field(name).and_then(|field| table.value(row, field))
        };
        let Some(value) = value else { return Ok(None) };
        let text = match value {
            AttributeValue::Concept(at) => self.system.code(at),
            AttributeValue::Literal(text) => text,
        };
        let compares =
            |actual: std::cmp::Ordering, order, or_equal| actual == order || (or_equal && actual.is_eq());
        Ok(match test {
            FieldTest::Concepts(expression) => {
                // Fields that can hold an id also hold other texts in some reference sets.
                let is_id = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
                if is_id { Some(self.names_component(expression, text)?) } else { None }
            }
            FieldTest::Number(order, or_equal, wanted) => {
                let number: Option<f64> = text.parse().ok();
                let actual = number.and_then(|number| number.partial_cmp(wanted));
                actual.map(|actual| compares(actual, *order, *or_equal))
            }
            FieldTest::Text(terms) => Some(self.any_holds(terms, |term| {
                self.budget.spend(term.steps() * (1 + text.len() / BYTES_PER_STEP))?;
                Ok(term.finds(text))
            })?),
            FieldTest::Time(order, or_equal, dates) => {
                self.budget.spend(dates.len() / 8)?;
                Some(dates.iter().any(|date| compares(text.cmp(date), *order, *or_equal)))
            }
            FieldTest::Boolean(wanted) => match text {
                "1" | "true" => Some(*wanted),
                "0" | "false" => Some(!*wanted),
                _ => None,
            },
        })
    }
}

/// Checks that a reference set has the fields that a query names.
fn check_fields(query: &MemberQuery, table: &MemberTable<'_>) -> Result<(), EclError> {
    let of_filters = query.filters.iter().filter_map(|filter| match &filter.test {
        MemberTest::Field(name, _) => Some(name),
        MemberTest::Component(_) => None,
    });
    let selected: &[String] = match &query.selected {
        SelectedFields::Named(names) => names,
        SelectedFields::Members | SelectedFields::All => &[],
    };
    let is_known = |name: &str| {
        [MEMBER, REFERENCE_SET].iter().any(|candidate| candidate.eq_ignore_ascii_case(name))
            || table.field(name).is_some()
    };
    match of_filters.chain(selected).find(|name| !is_known(name)) {
        Some(field) => Err(EclError::UnknownField {
            reference_set: table.reference_set.to_owned(),
            field: field.clone(),
        }),
        None => Ok(()),
    }
}
