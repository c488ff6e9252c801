//! The parser of filters, `{{ C … }}`, `{{ D … }}` and `{{ M … }}`, and of the texts in them.

use std::cmp::Ordering::Equal;

use super::filters::{
    Acceptability, ComponentTest, ConceptTest, DescriptionTest, DialectTest, EclFilter, FieldTest,
    MemberQuery, MemberTest, SearchTerm, SelectedFields,
};
use super::parser::{Comparison, EclParser, is_alias};
use super::syntax::{EclError, EclExpression};
use crate::model::dialects::{self, ACCEPTABLE, PREFERRED};
use crate::model::known_systems::{SNOMED_CT_DEFINITION, SNOMED_CT_NAME, SNOMED_CT_SYNONYM};
use crate::model::text_folding::fold;

const DEFINED: &str = "900000000000073002";
const PRIMITIVE: &str = "900000000000074008";

/// The filters after an operand.
#[derive(Default)]
pub(super) struct OperandFilters {
    concept: Vec<EclFilter<ConceptTest>>,
    /// Each pair of braces applies to one description.
    descriptions: Vec<Vec<EclFilter<DescriptionTest>>>,
}

impl OperandFilters {
    /// An expression with these filters. A filter on the state of `*` applies to all concepts.
    pub(super) fn apply_to(self, mut set: EclExpression) -> EclExpression {
        let is_state = |filter: &EclFilter<ConceptTest>| {
            matches!(filter.test, ConceptTest::Component(ComponentTest::Active(_)))
        };
        if set == EclExpression::Any && self.concept.iter().any(is_state) {
            set = EclExpression::AnyState;
        }
        if !self.concept.is_empty() {
            set = EclExpression::Filtered(Box::new(set), self.concept);
        }
        self.descriptions
            .into_iter()
            .fold(set, |set, filters| EclExpression::Described(Box::new(set), filters))
    }
}

impl EclParser<'_> {
    /// Parses the filters in one pair of braces, after the opening braces.
    pub(super) fn parse_filters(&mut self, out: &mut OperandFilters) -> Result<(), EclError> {
        if self.take_keyword("C") || self.take_keyword("concept") {
            return self.parse_filter_list(&mut out.concept, Self::parse_concept_filter);
        }
        if self.take_keyword("M") || self.take_keyword("member") {
            return Err(self.expected("filters on members must follow '^' and its reference sets directly"));
        }
        // The letter of filters on descriptions may be omitted.
        let _ = self.take_keyword("D") || self.take_keyword("description");
        let mut filters = Vec::new();
        self.parse_filter_list(&mut filters, Self::parse_description_filter)?;
        // Texts are the slowest to compare.
        filters.sort_by_key(|filter| matches!(filter.test, DescriptionTest::Term(_)));
        out.descriptions.push(filters);
        Ok(())
    }

    /// Parses the operand of `^` after this symbol: fields in square brackets, the reference sets, and
    /// filters on rows.
    pub(super) fn parse_members(&mut self) -> Result<EclExpression, EclError> {
        let selected = self.parse_selected_fields()?;
        let reference_sets = self.parse_operand()?;
        let mut filters = Vec::new();
        loop {
            let here = self.at;
            if !(self.take("{{") && (self.take_keyword("M") || self.take_keyword("member"))) {
                self.at = here;
                break;
            }
            self.parse_filter_list(&mut filters, Self::parse_member_filter)?;
        }
        Ok(match selected {
            SelectedFields::Members if filters.is_empty() => {
                EclExpression::MemberOf(Box::new(reference_sets))
            }
            selected => EclExpression::Members(Box::new(MemberQuery { reference_sets, selected, filters })),
        })
    }

    fn parse_selected_fields(&mut self) -> Result<SelectedFields, EclError> {
        if !self.take("[") {
            return Ok(SelectedFields::Members);
        }
        let selected = if self.take("*") {
            SelectedFields::All
        } else {
            let mut names = vec![self.parse_field_name()?];
            while self.take(",") {
                names.push(self.parse_field_name()?);
            }
            SelectedFields::Named(names)
        };
        match self.take("]") {
            true => Ok(selected),
            false => Err(self.expected("expected ',' or ']'")),
        }
    }

    fn parse_field_name(&mut self) -> Result<String, EclError> {
        let here = self.at;
        let name = self.take_while(|c| c.is_ascii_alphabetic());
        if ["id", "moduleId", "effectiveTime", "active"].iter().any(|other| other.eq_ignore_ascii_case(name))
        {
            self.at = here;
            return Err(self.expected("this column is not a field that can be selected or compared"));
        }
        match name {
            "" => Err(self.expected("expected the name of a field")),
            name => Ok(name.to_owned()),
        }
    }

    fn parse_member_filter(&mut self) -> Result<EclFilter<MemberTest>, EclError> {
        const NAMES: [&str; 3] = ["active", "moduleId", "effectiveTime"];
        let here = self.at;
        if NAMES.iter().any(|name| self.take_keyword(name)) {
            self.at = here;
            let (name, comparison) = self.parse_filter_name(&NAMES, "expected a filter on members")?;
            let test = MemberTest::Component(self.parse_component_test(name, comparison)?);
            return Ok(EclFilter { negated: comparison.negated, test });
        }
        let name = self.parse_field_name()?;
        let Comparison { order, or_equal, negated } = self.parse_comparison()?;
        let test = if self.take("#") {
            FieldTest::Number(order, or_equal, self.parse_number("expected a number")?)
        } else if order != Equal {
            FieldTest::Time(order, or_equal, self.parse_texts()?)
        } else if let Ok(value) = self.parse_boolean(false) {
            FieldTest::Boolean(value)
        } else {
            // An alternate identifier in quotation marks takes precedence over a text of the same form.
            let here = self.at;
            match self.parse_set() {
                Ok(concepts) => FieldTest::Concepts(concepts),
                Err(fault) => {
                    self.at = here;
                    match self.parse_list(Self::parse_search_term) {
                        Ok(terms) => FieldTest::Text(terms),
                        Err(other) => return Err(fault.farther(other)),
                    }
                }
            }
        };
        Ok(EclFilter { negated, test: MemberTest::Field(name, test) })
    }

    fn parse_filter_list<T>(
        &mut self,
        out: &mut Vec<T>,
        parse: fn(&mut Self) -> Result<T, EclError>,
    ) -> Result<(), EclError> {
        loop {
            out.push(parse(self)?);
            if !self.take(",") {
                return self.close_filter();
            }
        }
    }

    fn parse_concept_filter(&mut self) -> Result<EclFilter<ConceptTest>, EclError> {
        const NAMES: [&str; 6] =
            ["active", "moduleId", "effectiveTime", "definitionStatusId", "definitionStatus", "semanticTag"];
        let (name, comparison) = self.parse_filter_name(
            &NAMES,
            "expected active, definitionStatus, definitionStatusId, moduleId, effectiveTime or semanticTag",
        )?;
        let test = match name {
            "definitionStatus" => {
                let statuses = [("defined", DEFINED), ("primitive", PRIMITIVE)];
                ConceptTest::DefinitionStatus(self.parse_tokens(&statuses, "expected defined or primitive")?)
            }
            "definitionStatusId" => ConceptTest::DefinitionStatus(self.parse_concepts()?),
            "semanticTag" => ConceptTest::SemanticTag(self.parse_texts()?),
            name => ConceptTest::Component(self.parse_component_test(name, comparison)?),
        };
        Ok(EclFilter { negated: comparison.negated, test })
    }

    fn parse_description_filter(&mut self) -> Result<EclFilter<DescriptionTest>, EclError> {
        const NAMES: [&str; 11] = [
            "active",
            "moduleId",
            "effectiveTime",
            "term",
            "language",
            "typeId",
            "type",
            "dialectId",
            "dialect",
            "id",
            "semanticTag",
        ];
        let (name, comparison) = self.parse_filter_name(
            &NAMES,
            "expected C, D, +HISTORY or a filter on descriptions: active, dialect, dialectId, effectiveTime, id, language, moduleId, \
             semanticTag, term, type or typeId",
        )?;
        let test = match name {
            "term" => DescriptionTest::Term(self.parse_list(Self::parse_search_term)?),
            "language" => DescriptionTest::Language(self.parse_list(Self::parse_language)?),
            "type" => {
                let types =
                    [("syn", SNOMED_CT_SYNONYM), ("fsn", SNOMED_CT_NAME), ("def", SNOMED_CT_DEFINITION)];
                DescriptionTest::Type(self.parse_tokens(&types, "expected syn, fsn or def")?)
            }
            "typeId" => DescriptionTest::Type(self.parse_concepts()?),
            "dialect" => DescriptionTest::Dialect(self.parse_dialects(Self::parse_dialect_alias)?),
            "dialectId" => DescriptionTest::Dialect(self.parse_dialect_ids()?),
            "id" => DescriptionTest::Id(self.parse_list(|parser| parser.parse_number("expected an id"))?),
            "semanticTag" => DescriptionTest::SemanticTag(self.parse_texts()?),
            name => DescriptionTest::Component(self.parse_component_test(name, comparison)?),
        };
        Ok(EclFilter { negated: comparison.negated, test })
    }

    /// Parses the name of a filter and its comparison. Only dates have an order.
    fn parse_filter_name(
        &mut self,
        names: &[&'static str],
        expected: &'static str,
    ) -> Result<(&'static str, Comparison), EclError> {
        let name =
            names.iter().find(|name| self.take_keyword(name)).ok_or_else(|| self.expected(expected))?;
        let comparison = self.parse_comparison()?;
        if comparison.order != Equal && *name != "effectiveTime" {
            return Err(self.expected("this filter compares with = or !="));
        }
        Ok((name, comparison))
    }

    /// Parses the value of a filter that concepts and descriptions have in common.
    fn parse_component_test(
        &mut self,
        name: &str,
        comparison: Comparison,
    ) -> Result<ComponentTest, EclError> {
        Ok(match name {
            "active" if self.take("*") => ComponentTest::Active(None),
            "active" => ComponentTest::Active(Some(self.parse_boolean(true)?)),
            "moduleId" => ComponentTest::Module(self.parse_concepts()?),
            _ => ComponentTest::EffectiveTime(comparison.order, comparison.or_equal, self.parse_texts()?),
        })
    }

    /// Parses an item, or a list of items in brackets.
    pub(super) fn parse_list<T>(
        &mut self,
        parse: impl Fn(&mut Self) -> Result<T, EclError>,
    ) -> Result<Vec<T>, EclError> {
        if !self.take("(") {
            return Ok(vec![parse(self)?]);
        }
        let mut list = vec![parse(self)?];
        while !self.take(")") {
            list.push(parse(self)?);
        }
        Ok(list)
    }

    /// Parses words that stand for concepts, and returns these concepts.
    fn parse_tokens(
        &mut self,
        tokens: &[(&str, &str)],
        expected: &'static str,
    ) -> Result<EclExpression, EclError> {
        let list = self.parse_list(|parser| {
            let token_value = tokens.iter().find(|(token, _)| parser.take_keyword(token));
            let (_, concept) = token_value.ok_or_else(|| parser.expected(expected))?;
            Ok(EclExpression::Concept((*concept).to_owned()))
        })?;
        Ok(EclExpression::Or(list))
    }

    /// Parses an expression, or a list of concepts in brackets.
    fn parse_concepts(&mut self) -> Result<EclExpression, EclError> {
        let here = self.at;
        if self.take("(") {
            let mut list = Vec::new();
            while let Ok(concept) = self.parse_concept() {
                list.push(EclExpression::Concept(concept));
            }
            if list.len() > 1 && self.take(")") {
                return Ok(EclExpression::Or(list));
            }
            self.at = here;
        }
        self.parse_set()
    }

    /// Parses a text, or a list of texts in brackets.
    pub(super) fn parse_texts(&mut self) -> Result<Vec<String>, EclError> {
        self.parse_list(Self::parse_text)
    }

    /// Parses a text in quotation marks.
    pub(super) fn parse_text(&mut self) -> Result<String, EclError> {
        Ok(self.parse_quoted()?.into_iter().map(|(c, _)| c).collect())
    }

    /// Parses a text in quotation marks. A backslash precedes a quotation mark, a backslash or a wildcard in
    /// it. Returns the characters, and whether a backslash precedes them.
    fn parse_quoted(&mut self) -> Result<Vec<(char, bool)>, EclError> {
        if !self.take("\"") {
            return Err(self.expected("expected '\"'"));
        }
        let mut text = Vec::new();
        let mut rest = self.remaining().char_indices();
        while let Some((at, c)) = rest.next() {
            match c {
                '"' => {
                    self.at += at + 1;
                    return Ok(text);
                }
                '\\' => text.extend(rest.next().map(|(_, c)| (c, true))),
                _ => text.push((c, false)),
            }
        }
        Err(self.expected("expected '\"' after the text"))
    }

    /// Parses `"words"`, `match:"words"` or `wild:"pattern"`.
    fn parse_search_term(&mut self) -> Result<SearchTerm, EclError> {
        let is_wild = self.take_keyword("wild");
        if (is_wild || self.take_keyword("match")) && !self.take(":") {
            return Err(self.expected("expected ':'"));
        }
        if is_wild {
            let letters = |(c, is_escaped): (char, bool)| {
                let is_wildcard = c == '*' && !is_escaped;
                let folded = c.to_lowercase().map(move |c| (!is_wildcard).then_some(c));
                folded.collect::<Vec<_>>()
            };
            return Ok(SearchTerm::Wild(self.parse_quoted()?.into_iter().flat_map(letters).collect()));
        }
        let text = self.parse_text()?;
        let text = fold(&text);
        let words =
            text.split_whitespace().map(|word| word.trim_start_matches(|c: char| !c.is_alphanumeric()));
        let words: Vec<_> = words.filter(|word| !word.is_empty()).map(str::to_owned).collect();
        match words.is_empty() {
            true => Err(self.expected("expected a word in the text")),
            false => Ok(SearchTerm::Match(words)),
        }
    }

    fn parse_language(&mut self) -> Result<String, EclError> {
        let code = self.take_while(|c| c.is_ascii_alphabetic());
        match code.len() {
            2 => Ok(code.to_owned()),
            _ => Err(self.expected("expected a language code of two letters")),
        }
    }

    /// Parses `dialect = …` or a list in brackets. An acceptability in brackets may follow each item and the
    /// list.
    fn parse_dialects(
        &mut self,
        parse: fn(&mut Self) -> Result<EclExpression, EclError>,
    ) -> Result<Vec<DialectTest>, EclError> {
        let mut list = self.parse_list(|parser| {
            let reference_sets = parse(parser)?;
            Ok((reference_sets, parser.parse_acceptability()?))
        })?;
        let of_list = self.parse_acceptability()?;
        let dialect = |(reference_sets, own): (EclExpression, Option<Acceptability>)| DialectTest {
            reference_sets,
            acceptability: own.or(of_list).unwrap_or(Acceptability::ANY),
        };
        Ok(list.drain(..).map(dialect).collect())
    }

    fn parse_dialect_alias(&mut self) -> Result<EclExpression, EclError> {
        let here = self.at;
        let alias = self.take_while(|c| c.is_ascii_alphanumeric() || c == '-');
        match dialects::of_alias(alias).filter(|_| is_alias(alias)) {
            Some(reference_set) => Ok(EclExpression::Concept(reference_set.to_owned())),
            None => {
                self.at = here;
                Err(self.expected("expected the alias of a dialect, such as en-us; use dialectId for others"))
            }
        }
    }

    /// Parses a list of language reference sets with acceptabilities, or one expression.
    fn parse_dialect_ids(&mut self) -> Result<Vec<DialectTest>, EclError> {
        let here = self.at;
        let of_concepts = self.parse_dialects(|parser| parser.parse_concept().map(EclExpression::Concept));
        if let Ok(list) = of_concepts {
            return Ok(list);
        }
        self.at = here;
        let reference_sets = self.parse_set()?;
        let acceptability = self.parse_acceptability()?.unwrap_or(Acceptability::ANY);
        Ok(vec![DialectTest { reference_sets, acceptability }])
    }

    /// Parses acceptabilities in brackets, if there are any.
    fn parse_acceptability(&mut self) -> Result<Option<Acceptability>, EclError> {
        if !self.take("(") {
            return Ok(None);
        }
        let mut all = Acceptability::NONE;
        while !self.take(")") {
            if self.take_keyword("prefer") || self.take_keyword("preferred") {
                all.preferred = true;
            } else if self.take_keyword("accept") || self.take_keyword("acceptable") {
                all.acceptable = true;
            } else {
                match self.parse_concept().as_deref() {
                    Ok(PREFERRED) => all.preferred = true,
                    Ok(ACCEPTABLE) => all.acceptable = true,
                    _ => {
                        return Err(
                            self.expected("expected prefer, accept or the concept of an acceptability")
                        );
                    }
                }
            }
        }
        Ok(Some(all))
    }
}
