//! The parser of ECL.

use std::cmp::Ordering::{self, Equal, Greater, Less};

use super::filter_parser::OperandFilters;
use super::syntax::{
    AttributeConstraint, EclCardinality, EclError, EclExpression, EclRefinement, HierarchyOperator,
    HistoryProfile, ONCE, ValueConstraint,
};

/// Maximum length of a constraint, in bytes.
const LONGEST: usize = 16 * 1024;
/// Maximum depth of brackets, and maximum number of consecutive dots.
const DEEPEST: usize = 32;

/// Reference set of the association SAME AS, which `+HISTORY-MIN` uses.
const HISTORY_MIN: &[&str] = &["900000000000527005"];
/// Reference sets of `+HISTORY-MOD`: SAME AS, REPLACED BY, WAS A and PARTIALLY EQUIVALENT TO.
const HISTORY_MOD: &[&str] =
    &["900000000000527005", "900000000000526001", "900000000000528000", "1186924009"];

/// Hierarchy operators as symbols and as words of the long syntax, of which longer ones precede their
/// prefixes: direction, whether they take one step, and whether they include the concept itself.
const HIERARCHY_OPERATORS: [(&str, &str, bool, bool, bool); 8] = [
    ("<<!", "childOrSelfOf", false, true, true),
    (">>!", "parentOrSelfOf", true, true, true),
    ("<<", "descendantOrSelfOf", false, false, true),
    (">>", "ancestorOrSelfOf", true, false, true),
    ("<!", "childOf", false, true, false),
    (">!", "parentOf", true, true, false),
    ("<", "descendantOf", false, false, false),
    (">", "ancestorOf", true, false, false),
];

/// Comparison operators: the order that the value has, whether equality is included, and whether the result
/// is negated.
const COMPARISONS: [(&str, Ordering, bool, bool); 7] = [
    ("!=", Equal, true, true),
    ("<>", Equal, true, true),
    ("<=", Less, true, false),
    (">=", Greater, true, false),
    ("=", Equal, true, false),
    ("<", Less, false, false),
    (">", Greater, false, false),
];

/// A comparison: the order that the value has, whether equality is included, and whether the result is
/// negated.
#[derive(Clone, Copy)]
pub(super) struct Comparison {
    pub(super) order: Ordering,
    pub(super) or_equal: bool,
    pub(super) negated: bool,
}

/// Parses a constraint.
///
/// # Errors
/// [`EclError::Syntax`] if the text is not valid.
pub(super) fn parse(text: &str) -> Result<EclExpression, EclError> {
    if text.len() > LONGEST {
        return Err(EclError::Syntax { at: LONGEST, expected: "expected the end" });
    }
    let mut parser = EclParser { text, at: 0, depth: 0 };
    let expression = parser.parse_expression()?;
    parser.skip_space();
    match parser.remaining() {
        "" => Ok(expression),
        _ => Err(parser.expected("expected AND, OR, MINUS, a refinement or the end")),
    }
}

/// A parser that reads from left to right; ECL needs no backtracking.
pub(super) struct EclParser<'t> {
    text: &'t str,
    pub(super) at: usize,
    depth: usize,
}

impl<'t> EclParser<'t> {
    pub(super) fn remaining(&self) -> &'t str {
        &self.text[self.at..]
    }

    pub(super) fn expected(&self, expected: &'static str) -> EclError {
        EclError::Syntax { at: self.text[..self.at].chars().count(), expected }
    }

    fn skip_space(&mut self) {
        loop {
            let rest = self.remaining();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            match trimmed.strip_prefix("/*").and_then(|comment| comment.find("*/")) {
                Some(end) => self.at += end + 4,
                None => return,
            }
        }
    }

    pub(super) fn take(&mut self, token: &str) -> bool {
        self.skip_space();
        let is_next = self.remaining().starts_with(token);
        self.at += if is_next { token.len() } else { 0 };
        is_next
    }

    /// Consumes the characters that pass a test.
    pub(super) fn take_while(&mut self, test: impl Fn(char) -> bool) -> &'t str {
        self.skip_space();
        let rest = self.remaining();
        let end = rest.find(|c: char| !test(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    /// Consumes a keyword in any case, unless it is the start of a longer word.
    pub(super) fn take_keyword(&mut self, word: &str) -> bool {
        self.skip_space();
        let rest = self.remaining();
        let is_next = rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
            && !rest[word.len()..].starts_with(|c: char| c.is_alphanumeric());
        self.at += if is_next { word.len() } else { 0 };
        is_next
    }

    pub(super) fn parse_number<T: std::str::FromStr>(
        &mut self,
        expected: &'static str,
    ) -> Result<T, EclError> {
        self.skip_space();
        let rest = self.remaining();
        let end =
            rest.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+'))).unwrap_or(rest.len());
        // `..` ends a number, because it separates the numbers of a cardinality.
        let end = rest[..end].find("..").unwrap_or(end);
        let number = rest[..end].parse().map_err(|_| self.expected(expected))?;
        self.at += end;
        Ok(number)
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, EclError>) -> Result<T, EclError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.expected("brackets are nested too deeply"));
        }
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn parse_expression(&mut self) -> Result<EclExpression, EclError> {
        self.nested(|parser| {
            let first = parser.parse_refined()?;
            if parser.take_keyword("MINUS") {
                return Ok(EclExpression::Minus(Box::new(first), Box::new(parser.parse_refined()?)));
            }
            let mut list = vec![first];
            if parser.take_and() {
                list.push(parser.parse_refined()?);
                while parser.take_and() {
                    list.push(parser.parse_refined()?);
                }
                return Ok(EclExpression::And(list));
            }
            while parser.take_keyword("OR") {
                list.push(parser.parse_refined()?);
            }
            Ok(if list.len() == 1 { list.remove(0) } else { EclExpression::Or(list) })
        })
    }

    fn take_and(&mut self) -> bool {
        self.take_keyword("AND") || self.take(",")
    }

    /// Parses a set with its dots and its refinement.
    fn parse_refined(&mut self) -> Result<EclExpression, EclError> {
        let mut set = self.parse_set()?;
        // Each dot applies to the whole expression before it.
        for dots in 0.. {
            if !self.take(".") {
                break;
            }
            if dots == DEEPEST {
                return Err(self.expected("too many dots; expected a refinement or the end"));
            }
            set = EclExpression::Values(Box::new(set), Box::new(self.parse_set()?));
        }
        if self.take(":") {
            let refinement = self.parse_refinement()?;
            set = EclExpression::Refined(Box::new(set), Box::new(refinement));
        }
        Ok(set)
    }

    /// Parses a concept, `*` or brackets, with the operators before it, and the filters and the history
    /// supplement after it.
    pub(super) fn parse_set(&mut self) -> Result<EclExpression, EclError> {
        let set = self.parse_operand()?;
        let mut filters = OperandFilters::default();
        while self.take("{{") {
            if self.take("+") {
                let profile = self.parse_history()?;
                let set = filters.apply_to(set);
                return Ok(EclExpression::WithHistory(Box::new(set), profile));
            }
            self.parse_filters(&mut filters)?;
        }
        Ok(filters.apply_to(set))
    }

    pub(super) fn close_filter(&mut self) -> Result<(), EclError> {
        match self.take("}}") {
            true => Ok(()),
            false => Err(self.expected("expected ',' or '}}'")),
        }
    }

    /// Parses a history supplement after its plus sign.
    fn parse_history(&mut self) -> Result<HistoryProfile, EclError> {
        if !self.take_word("HISTORY") {
            return Err(self.expected("expected HISTORY"));
        }
        let profile = if self.take_suffix("MIN") {
            HistoryProfile::Listed(HISTORY_MIN)
        } else if self.take_suffix("MOD") {
            HistoryProfile::Listed(HISTORY_MOD)
        } else if self.take_suffix("MAX") {
            HistoryProfile::All
        } else if self.take("(") {
            let sets = self.parse_expression()?;
            if !self.take(")") {
                return Err(self.expected("expected ')'"));
            }
            HistoryProfile::Of(Box::new(sets))
        } else {
            HistoryProfile::All
        };
        self.close_filter()?;
        Ok(profile)
    }

    fn take_suffix(&mut self, word: &str) -> bool {
        let here = self.at;
        let is_next = (self.take("-") || self.take("_")) && self.take_keyword(word);
        self.at = if is_next { self.at } else { here };
        is_next
    }

    /// Takes a word that other characters than letters may follow.
    fn take_word(&mut self, word: &str) -> bool {
        self.skip_space();
        let rest = self.remaining();
        let is_next = rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
        self.at += if is_next { word.len() } else { 0 };
        is_next
    }

    pub(super) fn parse_boolean(&mut self, with_digits: bool) -> Result<bool, EclError> {
        if self.take_keyword("true") || (with_digits && self.take_keyword("1")) {
            return Ok(true);
        }
        match self.take_keyword("false") || (with_digits && self.take_keyword("0")) {
            true => Ok(false),
            false => Err(self.expected("expected true or false")),
        }
    }

    pub(super) fn parse_comparison(&mut self) -> Result<Comparison, EclError> {
        if self.take_keyword("NOT") {
            return match self.take("=") {
                true => Ok(Comparison { order: Equal, or_equal: true, negated: true }),
                false => Err(self.expected("expected '='")),
            };
        }
        COMPARISONS
            .into_iter()
            .find_map(|(token, order, or_equal, negated)| {
                self.take(token).then_some(Comparison { order, or_equal, negated })
            })
            .ok_or_else(|| self.expected("expected a comparison operator"))
    }

    /// Parses a concept, `*` or brackets, with the operators before it.
    pub(super) fn parse_operand(&mut self) -> Result<EclExpression, EclError> {
        self.nested(|parser| {
            for (symbols, word, is_top) in [("!!>", "top", true), ("!!<", "bottom", false)] {
                if parser.take(symbols) || parser.take_keyword(word) {
                    return Ok(EclExpression::Extreme { is_top, of: Box::new(parser.parse_operand()?) });
                }
            }
            for (symbols, word, up, one_step, with_self) in HIERARCHY_OPERATORS {
                if parser.take(symbols) || parser.take_keyword(word) {
                    let inner = parser.parse_operand()?;
                    return Ok(EclExpression::Walk(
                        HierarchyOperator { up, one_step, with_self },
                        Box::new(inner),
                    ));
                }
            }
            if parser.take("^") || parser.take_keyword("memberOf") {
                return parser.parse_members();
            }
            if parser.take("(") {
                let inner = parser.parse_expression()?;
                return match parser.take(")") {
                    true => Ok(inner),
                    false => Err(parser.expected("expected AND, OR, MINUS or ')'")),
                };
            }
            match parser.take("*") || parser.take_keyword("any") {
                true => Ok(EclExpression::Any),
                false => Ok(EclExpression::Concept(parser.parse_concept()?)),
            }
        })
    }

    /// Parses a concept id or an alternate identifier, with an optional term between bars.
    pub(super) fn parse_concept(&mut self) -> Result<String, EclError> {
        self.skip_space();
        let rest = self.remaining();
        let concept = if rest.starts_with(|c: char| c == '"' || c.is_ascii_alphabetic()) {
            self.parse_alternate_identifier()?
        } else {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            if !(6..=18).contains(&end) {
                return Err(self.expected("expected the identifier of a concept"));
            }
            self.at += end;
            rest[..end].to_owned()
        };
        if self.take("|") {
            let Some(term) = self.remaining().find('|') else {
                return Err(self.expected("expected '|' after the term"));
            };
            self.at += term + 1;
        }
        Ok(concept)
    }

    /// Parses `ALIAS#IDENTIFIER`, which may be in quotation marks.
    fn parse_alternate_identifier(&mut self) -> Result<String, EclError> {
        let here = self.at;
        let is_quoted = self.remaining().starts_with('"');
        let text = if is_quoted {
            self.parse_text()?
        } else {
            let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '#' | '-' | '.' | '_');
            self.take_while(is_part).to_owned()
        };
        match text.split_once('#') {
            Some((alias, identifier)) if is_alias(alias) && !identifier.is_empty() => Ok(text),
            _ => {
                self.at = here;
                Err(self.expected("expected the identifier of a concept"))
            }
        }
    }

    fn parse_refinement(&mut self) -> Result<EclRefinement, EclError> {
        self.nested(|parser| {
            let mut list = vec![parser.parse_refinement_part()?];
            if parser.take_and() {
                list.push(parser.parse_refinement_part()?);
                while parser.take_and() {
                    list.push(parser.parse_refinement_part()?);
                }
                return Ok(EclRefinement::And(list));
            }
            while parser.take_keyword("OR") {
                list.push(parser.parse_refinement_part()?);
            }
            Ok(if list.len() == 1 { list.remove(0) } else { EclRefinement::Or(list) })
        })
    }

    fn parse_refinement_part(&mut self) -> Result<EclRefinement, EclError> {
        let cardinality = self.parse_cardinality()?;
        if self.take("{") {
            let inner = self.parse_refinement()?;
            return match self.take("}") {
                true => Ok(EclRefinement::Group(cardinality, Box::new(inner))),
                false => Err(self.expected("expected AND, OR or '}'")),
            };
        }
        // A bracket contains attributes, or the name of an attribute if `=` follows it.
        let here = self.at;
        if self.take("(") {
            let inner = self.parse_refinement();
            if let (Ok(inner), true) = (inner, self.take(")")) {
                return Ok(inner);
            }
            self.at = here;
        }
        let reversed = self.take_keyword("R") || self.take_keyword("reverseOf");
        let name = self.parse_set()?;
        self.parse_attribute(cardinality, reversed, name).map(EclRefinement::Attribute)
    }

    fn parse_attribute(
        &mut self,
        cardinality: EclCardinality,
        reversed: bool,
        name: EclExpression,
    ) -> Result<AttributeConstraint, EclError> {
        let Comparison { order, or_equal, negated } = self.parse_comparison()?;
        let value = if self.take("#") {
            ValueConstraint::Number(order, or_equal, self.parse_number("expected a number")?)
        } else if order != Equal {
            return Err(self.expected("expected a number such as #5"));
        } else if self.starts_with_text() {
            // An alternate identifier in quotation marks takes precedence over a text of the same form.
            let here = self.at;
            match self.parse_set() {
                Ok(concepts) => ValueConstraint::Expression(concepts),
                Err(_) => {
                    self.at = here;
                    ValueConstraint::Text(self.parse_texts()?)
                }
            }
        } else if let Ok(value) = self.parse_boolean(false) {
            ValueConstraint::Boolean(value)
        } else {
            ValueConstraint::Expression(self.parse_set()?)
        };
        Ok(AttributeConstraint { cardinality, reversed, name, negated, value })
    }

    /// Returns whether a text, or a list of texts in brackets, is next.
    fn starts_with_text(&mut self) -> bool {
        self.skip_space();
        let rest = self.remaining();
        let rest = rest.strip_prefix('(').map_or(rest, str::trim_start);
        rest.starts_with('"')
    }

    fn parse_cardinality(&mut self) -> Result<EclCardinality, EclError> {
        if !self.take("[") {
            return Ok(ONCE);
        }
        let least = self.parse_number("expected the minimum count")?;
        if !(self.take("..") || self.take_keyword("to")) {
            return Err(self.expected("expected '..'"));
        }
        let most = if self.take("*") || self.take_keyword("many") {
            None
        } else {
            Some(self.parse_number("expected the maximum count or '*'")?)
        };
        match self.take("]") {
            true => Ok(EclCardinality { least, most }),
            false => Err(self.expected("expected ']'")),
        }
    }
}

/// Returns whether a text is the alias of a scheme or dialect: letters, digits and dashes that begin with a
/// letter.
pub(super) fn is_alias(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code_system::CodeSystem;
    use crate::model::Budget;
    use crate::value_set::ecl::EclConstraint;

    #[test]
    fn any_deep_nesting_is_rejected() {
        let deep = [
            format!("{}*{}", "(".repeat(5_000), ")".repeat(5_000)),
            format!("{}*", "<".repeat(5_000)),
            format!("{}*", "^".repeat(5_000)),
            format!("*{}", ".*".repeat(5_000)),
            format!("*:{}*=*", "*=*:".repeat(3_000)),
            format!("*:{}*=*{}", "(".repeat(5_000), ")".repeat(5_000)),
            format!("*:{}*=*{}", "{".repeat(5_000), "}".repeat(5_000)),
        ];
        for text in deep {
            let fault = parse(&text).unwrap_err();
            assert!(matches!(fault, EclError::Syntax { .. }), "{}: {fault}", &text[..20]);
        }
    }

    #[test]
    fn the_deepest_constraint_can_be_evaluated() {
        let json = r#"{"resourceType":"CodeSystem","content":"complete","concept":[{"code":"a"}]}"#;
        let header = serde_json::from_str(json).unwrap();
        let system = CodeSystem::compile(&header, json.as_bytes()).unwrap();
        let dots = ".*".repeat(DEEPEST);
        let wrap = |inner: String| format!("({inner}{dots})");
        let deepest = (0..DEEPEST / 2 - 1).fold("*".to_owned(), |inner, _| wrap(inner));
        assert!(parse(&wrap(deepest.clone())).is_err(), "one level deeper than the limit");
        let constraint = EclConstraint::parse(&deepest).unwrap();
        assert_eq!(constraint.members(&system, &Budget::default()).unwrap().iter_after(0).count(), 0);
        assert!(!constraint.admits(&system, 0, &Budget::default()).unwrap());
    }
}
