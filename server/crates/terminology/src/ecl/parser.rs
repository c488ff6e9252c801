//! The grammar of ECL, read from left to right.

use super::{Attribute, Cardinality, Expression, Fault, ONCE, Refinement, Value, Walk};

/// Longest constraint, in bytes.
const LONGEST: usize = 16 * 1024;
/// How deep brackets may be nested, and how many dots may follow one another.
const DEEPEST: usize = 32;

/// Reads a constraint.
///
/// # Errors
/// [`Fault::Syntax`].
pub(super) fn parse(text: &str) -> Result<Expression, Fault> {
    if text.len() > LONGEST {
        return Err(Fault::Syntax { at: LONGEST, expected: "the end is expected" });
    }
    let mut parser = Parser { text, at: 0, depth: 0 };
    let expression = parser.expression()?;
    parser.space();
    match parser.rest() {
        "" => Ok(expression),
        _ => Err(parser.expected("AND, OR, MINUS, a refinement or the end is expected")),
    }
}

/// Reads from left to right; ECL needs no looking back.
struct Parser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn expected(&self, expected: &'static str) -> Fault {
        Fault::Syntax { at: self.text[..self.at].chars().count(), expected }
    }

    /// Passes over blanks and comments.
    fn space(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            match trimmed.strip_prefix("/*").and_then(|comment| comment.find("*/")) {
                Some(end) => self.at += end + 4,
                None => return,
            }
        }
    }

    fn take(&mut self, token: &str) -> bool {
        self.space();
        let found = self.rest().starts_with(token);
        self.at += if found { token.len() } else { 0 };
        found
    }

    /// Takes a word, whatever its case, that is not the beginning of a longer one.
    fn word(&mut self, word: &str) -> bool {
        self.space();
        let rest = self.rest();
        let found = rest.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word))
            && !rest[word.len()..].starts_with(|c: char| c.is_alphanumeric());
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn number<T: std::str::FromStr>(&mut self, expected: &'static str) -> Result<T, Fault> {
        self.space();
        let rest = self.rest();
        let end =
            rest.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+'))).unwrap_or(rest.len());
        // `..` ends a number: it stands between those of a cardinality.
        let end = rest[..end].find("..").unwrap_or(end);
        let number = rest[..end].parse().map_err(|_| self.expected(expected))?;
        self.at += end;
        Ok(number)
    }

    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Fault>) -> Result<T, Fault> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.expected("brackets are nested too deep"));
        }
        let read = read(self);
        self.depth -= 1;
        read
    }

    fn expression(&mut self) -> Result<Expression, Fault> {
        self.nested(|parser| {
            let first = parser.refined()?;
            if parser.word("MINUS") {
                return Ok(Expression::Minus(Box::new(first), Box::new(parser.refined()?)));
            }
            let mut list = vec![first];
            if parser.and() {
                list.push(parser.refined()?);
                while parser.and() {
                    list.push(parser.refined()?);
                }
                return Ok(Expression::And(list));
            }
            while parser.word("OR") {
                list.push(parser.refined()?);
            }
            Ok(if list.len() == 1 { list.remove(0) } else { Expression::Or(list) })
        })
    }

    fn and(&mut self) -> bool {
        self.word("AND") || self.take(",")
    }

    /// A set with its refinement and dots.
    fn refined(&mut self) -> Result<Expression, Fault> {
        let mut set = self.set()?;
        // Each dot nests what stands before it.
        for dots in 0.. {
            if !self.take(".") {
                break;
            }
            if dots == DEEPEST {
                return Err(self.expected("no more dots are allowed; a refinement or the end is expected"));
            }
            set = Expression::Values(Box::new(set), Box::new(self.set()?));
        }
        if self.take(":") {
            let refinement = self.refinement()?;
            set = Expression::Refined(Box::new(set), Box::new(refinement));
        }
        Ok(set)
    }

    /// A concept, `*` or brackets, with operators before it.
    fn set(&mut self) -> Result<Expression, Fault> {
        self.nested(|parser| {
            // The longer ones first.
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
                    let inner = parser.set()?;
                    return Ok(Expression::Walk(Walk { up, one_step, with_self }, Box::new(inner)));
                }
            }
            if parser.take("^") {
                return Ok(Expression::MemberOf(Box::new(parser.set()?)));
            }
            if parser.take("(") {
                let inner = parser.expression()?;
                return match parser.take(")") {
                    true => Ok(inner),
                    false => Err(parser.expected("AND, OR, MINUS or ')' is expected")),
                };
            }
            let set = if parser.take("*") { Expression::Any } else { Expression::Concept(parser.concept()?) };
            if parser.take("{{") {
                return Err(parser.expected("filters in {{ }} are not known here; nothing else is expected"));
            }
            Ok(set)
        })
    }

    /// An identifier, with its term between bars.
    fn concept(&mut self) -> Result<String, Fault> {
        self.space();
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if !(6..=18).contains(&end) {
            return Err(self.expected("the identifier of a concept is expected"));
        }
        self.at += end;
        if self.take("|") {
            let Some(term) = self.rest().find('|') else {
                return Err(self.expected("a '|' is expected after the term"));
            };
            self.at += term + 1;
        }
        Ok(rest[..end].to_owned())
    }

    fn refinement(&mut self) -> Result<Refinement, Fault> {
        self.nested(|parser| {
            let mut list = vec![parser.refinement_part()?];
            if parser.and() {
                list.push(parser.refinement_part()?);
                while parser.and() {
                    list.push(parser.refinement_part()?);
                }
                return Ok(Refinement::And(list));
            }
            while parser.word("OR") {
                list.push(parser.refinement_part()?);
            }
            Ok(if list.len() == 1 { list.remove(0) } else { Refinement::Or(list) })
        })
    }

    fn refinement_part(&mut self) -> Result<Refinement, Fault> {
        let cardinality = self.cardinality()?;
        if self.take("{") {
            let inner = self.refinement()?;
            return match self.take("}") {
                true => Ok(Refinement::Group(cardinality, Box::new(inner))),
                false => Err(self.expected("AND, OR or '}' is expected")),
            };
        }
        // A bracket holds attributes or, before an `=`, the attribute's name; what comes behind it tells.
        let here = self.at;
        if self.take("(") {
            let inner = self.refinement();
            if let (Ok(inner), true) = (inner, self.take(")")) {
                return Ok(inner);
            }
            self.at = here;
        }
        let reversed = self.word("R");
        let name = self.set()?;
        self.attribute(cardinality, reversed, name).map(Refinement::Attribute)
    }

    fn attribute(
        &mut self,
        cardinality: Cardinality,
        reversed: bool,
        name: Expression,
    ) -> Result<Attribute, Fault> {
        use std::cmp::Ordering::{Equal, Greater, Less};
        self.space();
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
        .ok_or_else(|| self.expected("a comparison is expected"))?;
        let value = if self.take("#") {
            Value::Number(order, or_equal, self.number("a number is expected")?)
        } else if order != Equal {
            return Err(self.expected("a number, as in #5, is expected"));
        } else if self.take("\"") {
            let Some(end) = self.rest().find('"') else {
                return Err(self.expected("a '\"' is expected after the text"));
            };
            let text = self.rest()[..end].to_owned();
            self.at += end + 1;
            Value::Text(text)
        } else {
            Value::Expression(self.set()?)
        };
        Ok(Attribute { cardinality, reversed, name, negated, value })
    }

    fn cardinality(&mut self) -> Result<Cardinality, Fault> {
        if !self.take("[") {
            return Ok(ONCE);
        }
        let least = self.number("the least count is expected")?;
        if !self.take("..") {
            return Err(self.expected("'..' is expected"));
        }
        let most =
            if self.take("*") { None } else { Some(self.number("the greatest count or '*' is expected")?) };
        match self.take("]") {
            true => Ok(Cardinality { least, most }),
            false => Err(self.expected("']' is expected")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Budget;
    use crate::code_system::CodeSystem;
    use crate::ecl::Constraint;

    #[test]
    fn what_is_nested_deep_in_any_way_is_refused() {
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
            assert!(matches!(fault, Fault::Syntax { .. }), "{}: {fault}", &text[..20]);
        }
    }

    #[test]
    fn the_deepest_constraint_can_be_asked() {
        let json = r#"{"resourceType":"CodeSystem","content":"complete","concept":[{"code":"a"}]}"#;
        let header = serde_json::from_str(json).unwrap();
        let system = CodeSystem::compile(&header, json.as_bytes()).unwrap();
        let dots = ".*".repeat(DEEPEST);
        let wrap = |inner: String| format!("({inner}{dots})");
        let deepest = (0..DEEPEST / 2 - 1).fold("*".to_owned(), |inner, _| wrap(inner));
        assert!(parse(&wrap(deepest.clone())).is_err(), "this one is deeper");
        let constraint = Constraint::parse(&deepest).unwrap();
        assert_eq!(constraint.members(&system, &Budget::default()).unwrap().iter_after(0).count(), 0);
        assert!(!constraint.admits(&system, 0, &Budget::default()).unwrap());
    }
}
