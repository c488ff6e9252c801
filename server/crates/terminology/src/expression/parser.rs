//! The grammar of expressions (SNOMED CT Compositional Grammar 2.3).

use super::syntax::{
    Attribute, AttributeTerm, ConceptReference, Expression, ExpressionBody, ExpressionFault,
};

/// Maximum length of an expression, in bytes.
const LONGEST: usize = 4_096;

/// Maximum number of concepts that `+` joins. Records and value sets join two or three.
const MOST_FOCUS: usize = 32;

/// Maximum depth of expressions in expressions.
const DEEPEST: usize = 8;

/// Parses an expression.
///
/// # Errors
/// [`ExpressionFault::Syntax`] if the text is not an expression.
pub(super) fn parse(text: &str) -> Result<Expression, ExpressionFault> {
    if text.len() > LONGEST {
        return Err(ExpressionFault::Syntax { at: LONGEST, expected: "expected the end" });
    }
    let mut parser = ExpressionParser { text, at: 0, depth: 0 };
    let is_subtype = parser.take("<<<");
    if !is_subtype {
        parser.take("===");
    }
    let body = parser.parse_body()?;
    parser.skip_space();
    match parser.remaining() {
        "" => Ok(Expression { is_subtype, body }),
        _ => Err(parser.expected("expected '+', ':', ',', '{' or the end")),
    }
}

/// A parser that reads from left to right.
struct ExpressionParser<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> ExpressionParser<'t> {
    fn remaining(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn expected(&self, expected: &'static str) -> ExpressionFault {
        ExpressionFault::Syntax { at: self.text[..self.at].chars().count(), expected }
    }

    fn skip_space(&mut self) {
        let rest = self.remaining();
        self.at += rest.len() - rest.trim_start().len();
    }

    fn take(&mut self, token: &str) -> bool {
        self.skip_space();
        let is_next = self.remaining().starts_with(token);
        self.at += if is_next { token.len() } else { 0 };
        is_next
    }

    /// Consumes a word in any case.
    fn take_word(&mut self, word: &str) -> bool {
        let is_next = self.remaining().get(..word.len()).is_some_and(|next| next.eq_ignore_ascii_case(word));
        self.at += if is_next { word.len() } else { 0 };
        is_next
    }

    fn require(&mut self, token: &str, expected: &'static str) -> Result<(), ExpressionFault> {
        if self.take(token) { Ok(()) } else { Err(self.expected(expected)) }
    }

    /// Consumes the text up to a delimiter, and the delimiter.
    fn take_until(&mut self, delimiter: char, expected: &'static str) -> Result<&'t str, ExpressionFault> {
        let rest = self.remaining();
        let Some(end) = rest.find(delimiter) else {
            self.at = self.text.len();
            return Err(self.expected(expected));
        };
        self.at += end + delimiter.len_utf8();
        Ok(&rest[..end])
    }

    fn parse_body(&mut self) -> Result<ExpressionBody, ExpressionFault> {
        let mut body = ExpressionBody::default();
        body.focus.push(self.parse_concept()?);
        while self.take("+") {
            if body.focus.len() == MOST_FOCUS {
                return Err(self.expected("expected no more than 32 concepts that are joined by '+'"));
            }
            body.focus.push(self.parse_concept()?);
        }
        if !self.take(":") {
            return Ok(body);
        }
        self.skip_space();
        if !self.remaining().starts_with('{') {
            loop {
                body.ungrouped.push(self.parse_attribute()?);
                if !self.take(",") {
                    break;
                }
                self.skip_space();
                if self.remaining().starts_with('{') {
                    break;
                }
            }
        }
        while self.take("{") {
            let mut group = vec![self.parse_attribute()?];
            while self.take(",") {
                group.push(self.parse_attribute()?);
            }
            self.require("}", "expected ',' or '}'")?;
            body.groups.push(group);
            if self.take(",") {
                self.skip_space();
                if !self.remaining().starts_with('{') {
                    return Err(self.expected("expected '{', because attributes precede groups"));
                }
            }
        }
        Ok(body)
    }

    fn parse_concept(&mut self) -> Result<ConceptReference, ExpressionFault> {
        self.skip_space();
        let rest = self.remaining();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if !(6..=18).contains(&end) {
            return Err(self.expected("expected the code of a concept, which has 6 to 18 digits"));
        }
        self.at += end;
        let term = match self.take("|") {
            true => Some(self.take_until('|', "expected '|' after the term")?.trim().to_owned()),
            false => None,
        };
        Ok(ConceptReference { code: rest[..end].to_owned(), term })
    }

    fn parse_attribute(&mut self) -> Result<Attribute, ExpressionFault> {
        let name = self.parse_concept()?;
        self.require("=", "expected '='")?;
        self.skip_space();
        let rest = self.remaining();
        let value = if self.take("(") {
            self.depth += 1;
            if self.depth > DEEPEST {
                return Err(self.expected("expected at most 8 nested expressions"));
            }
            let body = self.parse_body()?;
            self.require(")", "expected ',', '{' or ')'")?;
            self.depth -= 1;
            match (body.focus.as_slice(), body.ungrouped.len() + body.groups.len()) {
                ([only], 0) => AttributeTerm::Concept(only.clone()),
                _ => AttributeTerm::Expression(Box::new(body)),
            }
        } else if rest.starts_with('"') {
            AttributeTerm::Literal(self.parse_text()?)
        } else if let Some(after) = rest.strip_prefix('#') {
            let is_numeric = |c: char| c.is_ascii_digit() || "+-.".contains(c);
            let length = after.find(|c: char| !is_numeric(c)).unwrap_or(after.len());
            if after[..length].parse::<f64>().is_err() {
                return Err(self.expected("expected a number after '#'"));
            }
            self.at += 1 + length;
            AttributeTerm::Literal(rest[..=length].to_owned())
        } else if let Some(word) = ["true", "false"].into_iter().find(|word| self.take_word(word)) {
            AttributeTerm::Literal(word.to_owned())
        } else {
            AttributeTerm::Concept(self.parse_concept()?)
        };
        Ok(Attribute { name, value })
    }

    /// Reads a text in quotation marks, in which `\` escapes a quotation mark or itself. Returns it with its
    /// marks and without escapes.
    fn parse_text(&mut self) -> Result<String, ExpressionFault> {
        let mut text = String::from('"');
        let mut chars = self.remaining().char_indices().skip(1);
        while let Some((offset, char)) = chars.next() {
            match char {
                '"' => {
                    self.at += offset + 1;
                    text.push('"');
                    return Ok(text);
                }
                '\\' => text.extend(chars.next().map(|(_, escaped)| escaped)),
                _ => text.push(char),
            }
        }
        self.at = self.text.len();
        Err(self.expected("expected '\"' after the text"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_read_into_its_parts() {
        let text = "=== 125605004 |Fracture of bone| + 64572001: 246112005 = #-2.5, 363698007|Finding site| = \
            (71341001: {272741003 = 7771000}) , {116676008=(72704001), 246075003 = \"a\\\"b\"}{ 408732007=tRUE }";
        let parsed = parse(text).unwrap();
        assert!(!parsed.is_subtype);
        let codes: Vec<_> = parsed.body.focus.iter().map(|concept| concept.code.as_str()).collect();
        assert_eq!(codes, ["125605004", "64572001"]);
        assert_eq!(parsed.body.focus[0].term.as_deref(), Some("Fracture of bone"));
        assert_eq!(parsed.body.ungrouped[0].value, AttributeTerm::Literal("#-2.5".to_owned()));
        let AttributeTerm::Expression(inner) = &parsed.body.ungrouped[1].value else { panic!("{parsed:?}") };
        assert_eq!((inner.focus[0].code.as_str(), inner.groups[0].len()), ("71341001", 1));
        assert!(
            matches!(&parsed.body.groups[0][0].value, AttributeTerm::Concept(one) if one.code == "72704001")
        );
        assert_eq!(parsed.body.groups[0][1].value, AttributeTerm::Literal("\"a\"b\"".to_owned()));
        assert_eq!(parsed.body.groups[1][0].value, AttributeTerm::Literal("true".to_owned()));
        assert!(parse("<<<125605004").unwrap().is_subtype);
    }

    #[test]
    fn a_fault_is_located() {
        #[track_caller]
        fn check(text: &str, fault: &str) {
            assert_eq!(parse(text).unwrap_err().to_string(), fault, "{text}");
        }
        check("", "expected the code of a concept, which has 6 to 18 digits at character 1");
        check("12345:", "expected the code of a concept, which has 6 to 18 digits at character 1");
        check("125605004:", "expected the code of a concept, which has 6 to 18 digits at character 11");
        check("125605004|Fracture", "expected '|' after the term at character 19");
        check("125605004:363698007", "expected '=' at character 20");
        check(
            "125605004:363698007=",
            "expected the code of a concept, which has 6 to 18 digits at character 21",
        );
        check("125605004:{363698007=71341001", "expected ',' or '}' at character 30");
        check("125605004:363698007=(71341001", "expected ',', '{' or ')' at character 30");
        check("125605004:363698007=#x", "expected a number after '#' at character 21");
        check("125605004:363698007=\"x", "expected '\"' after the text at character 23");
        check("125605004 64572001", "expected '+', ':', ',', '{' or the end at character 11");
        check(
            "125605004:{363698007=71341001},363698007=71341001",
            "expected '{', because attributes precede groups at character 32",
        );
        let nested = format!("125605004:{}71341001{}", "363698007=(71341001:".repeat(9), ")".repeat(9));
        assert!(parse(&nested).unwrap_err().to_string().starts_with("expected at most 8 nested expressions"));
        let joined = |count: usize| vec!["125605004"; count].join("+");
        assert!(parse(&joined(MOST_FOCUS)).is_ok());
        check(
            &joined(MOST_FOCUS + 1),
            "expected no more than 32 concepts that are joined by '+' at character 321",
        );
        assert!(parse(&"1".repeat(5_000)).unwrap_err().to_string().starts_with("expected the end"));
    }
}
