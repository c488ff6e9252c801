//! The parser of ECL.

use super::{
    AttributeConstraint, EclCardinality, EclError, EclExpression, EclRefinement, HierarchyOperator, ONCE,
    ValueConstraint,
};

/// Maximum length of a constraint, in bytes.
const LONGEST: usize = 16 * 1024;
/// Maximum depth of brackets, and maximum number of consecutive dots.
const DEEPEST: usize = 32;

/// Parses a constraint.
///
/// # Errors
/// Returns [`EclError::Syntax`] if the text is not valid.
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
struct EclParser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> EclParser<'t> {
    fn remaining(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn expected(&self, expected: &'static str) -> EclError {
        EclError::Syntax { at: self.text[..self.at].chars().count(), expected }
    }

    /// Skips white space and comments.
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

    fn take(&mut self, token: &str) -> bool {
        self.skip_space();
        let found = self.remaining().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    /// Consumes a keyword in any case, unless it is the start of a longer word.
    fn take_keyword(&mut self, word: &str) -> bool {
        self.skip_space();
        let rest = self.remaining();
        let found = rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
            && !rest[word.len()..].starts_with(|c: char| c.is_alphanumeric());
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn parse_number<T: std::str::FromStr>(&mut self, expected: &'static str) -> Result<T, EclError> {
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

    /// Parses a concept, `*` or brackets, with the operators before it.
    fn parse_set(&mut self) -> Result<EclExpression, EclError> {
        self.nested(|parser| {
            // Longer operators precede their prefixes.
            for (token, up, one_step, with_self) in [
                ("<<!", false, true, true),
                (">>!", true, true, true),
                ("<<", false, false, true),
                (">>", true, false, true),
                ("<!", false, true, false),
                (">!", true, true, false),
                ("<", false, false, false),
                (">", true, false, false),
            ] {
                if parser.take(token) {
                    let inner = parser.parse_set()?;
                    return Ok(EclExpression::Walk(
                        HierarchyOperator { up, one_step, with_self },
                        Box::new(inner),
                    ));
                }
            }
            if parser.take("^") {
                return Ok(EclExpression::MemberOf(Box::new(parser.parse_set()?)));
            }
            if parser.take("(") {
                let inner = parser.parse_expression()?;
                return match parser.take(")") {
                    true => Ok(inner),
                    false => Err(parser.expected("expected AND, OR, MINUS or ')'")),
                };
            }
            let set = if parser.take("*") {
                EclExpression::Any
            } else {
                EclExpression::Concept(parser.parse_concept()?)
            };
            if parser.take("{{") {
                return Err(parser.expected("filters in {{ }} are not supported"));
            }
            Ok(set)
        })
    }

    /// Parses a concept id with an optional term between bars.
    fn parse_concept(&mut self) -> Result<String, EclError> {
        self.skip_space();
        let rest = self.remaining();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if !(6..=18).contains(&end) {
            return Err(self.expected("expected the identifier of a concept"));
        }
        self.at += end;
        if self.take("|") {
            let Some(term) = self.remaining().find('|') else {
                return Err(self.expected("expected '|' after the term"));
            };
            self.at += term + 1;
        }
        Ok(rest[..end].to_owned())
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
        let reversed = self.take_keyword("R");
        let name = self.parse_set()?;
        self.parse_attribute(cardinality, reversed, name).map(EclRefinement::Attribute)
    }

    fn parse_attribute(
        &mut self,
        cardinality: EclCardinality,
        reversed: bool,
        name: EclExpression,
    ) -> Result<AttributeConstraint, EclError> {
        use std::cmp::Ordering::{Equal, Greater, Less};
        self.skip_space();
        let (order, or_equal, negated) = [
            ("!=", Equal, true, true),
            ("<=", Less, true, false),
            (">=", Greater, true, false),
            ("=", Equal, true, false),
            ("<", Less, false, false),
            (">", Greater, false, false),
        ]
        .into_iter()
        .find_map(|(token, order, or_equal, negated)| self.take(token).then_some((order, or_equal, negated)))
        .ok_or_else(|| self.expected("expected a comparison operator"))?;
        let value = if self.take("#") {
            ValueConstraint::Number(order, or_equal, self.parse_number("expected a number")?)
        } else if order != Equal {
            return Err(self.expected("expected a number such as #5"));
        } else if self.take("\"") {
            let Some(end) = self.remaining().find('"') else {
                return Err(self.expected("expected '\"' after the text"));
            };
            let text = self.remaining()[..end].to_owned();
            self.at += end + 1;
            ValueConstraint::Text(text)
        } else {
            ValueConstraint::Expression(self.parse_set()?)
        };
        Ok(AttributeConstraint { cardinality, reversed, name, negated, value })
    }

    fn parse_cardinality(&mut self) -> Result<EclCardinality, EclError> {
        if !self.take("[") {
            return Ok(ONCE);
        }
        let least = self.parse_number("expected the minimum count")?;
        if !self.take("..") {
            return Err(self.expected("expected '..'"));
        }
        let most =
            if self.take("*") { None } else { Some(self.parse_number("expected the maximum count or '*'")?) };
        match self.take("]") {
            true => Ok(EclCardinality { least, most }),
            false => Err(self.expected("expected ']'")),
        }
    }
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
