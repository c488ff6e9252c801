//! Variables of a case, and how texts refer to them.
//!
//! `$name` in a text is replaced by the value of a variable, `$(TEXT*TIMES)` by a repeated text. A list item
//! `{ "$repeat" = …, times = … }` is repeated.

use serde_json::{Map, Value};

use crate::spec::request::OPERATIONS;

/// The name of an unknown variable in a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown variable '${0}'")]
pub struct UnknownVariable(pub String);

/// Variable with the time of a response in milliseconds since 1970, if the response is compared later because
/// several cases share it.
pub const ANSWERED_AT: &str = "answered_at";

/// Values by name. A dotted path refers to a value within another one.
#[derive(Debug, Clone, Default)]
pub struct Variables(Map<String, Value>);

impl Variables {
    /// Sets a variable, replacing an existing one with this name.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.0.insert(name.into(), value.into());
    }

    /// Sets all members of an object as variables.
    pub fn extend(&mut self, members: Map<String, Value>) {
        self.0.extend(members);
    }

    /// Sets all variables of another set, replacing existing ones.
    pub fn extend_from(&mut self, other: &Self) {
        self.0.extend(other.0.clone());
    }

    /// The value at a dotted path.
    pub fn get(&self, path: &str) -> Option<&Value> {
        value_at(&self.0, path)
    }

    /// The value of a variable that is a text.
    ///
    /// # Errors
    /// [`UnknownVariable`] if the variable does not exist or is not a text.
    pub fn text(&self, path: &str) -> Result<&str, UnknownVariable> {
        self.get(path).and_then(Value::as_str).ok_or_else(|| UnknownVariable(path.to_owned()))
    }

    /// Replaces the variables in a text by their values. Numbers and objects are written as JSON.
    ///
    /// # Errors
    /// [`UnknownVariable`] if a variable does not exist.
    pub fn fill(&self, text: &str) -> Result<String, UnknownVariable> {
        self.fill_with(text, |value| value)
    }

    /// Replaces the variables in a text like [`fill`](Self::fill), and applies `quote` to each value.
    ///
    /// # Errors
    /// [`UnknownVariable`] if a variable does not exist.
    pub fn fill_with(&self, text: &str, quote: impl Fn(String) -> String) -> Result<String, UnknownVariable> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(offset) = rest.find('$') {
            let (before, after) = (&rest[..offset], &rest[offset + 1..]);
            out.push_str(before);
            if let Some((text, times, end)) = repetition(after) {
                out.push_str(&text.repeat(times));
                rest = &after[end..];
                continue;
            }
            let name = name(after);
            if name.is_empty() {
                out.push('$');
            } else {
                let value = self.get(name).ok_or_else(|| UnknownVariable(name.to_owned()))?;
                out.push_str(&quote(plain(value)));
            }
            rest = &after[name.len()..];
        }
        out.push_str(rest);
        Ok(out)
    }

    /// Replaces the variables in every text of a JSON value. A text that consists of one variable becomes its
    /// value.
    ///
    /// # Errors
    /// [`UnknownVariable`] if a variable does not exist.
    pub fn fill_json(&self, value: &Value) -> Result<Value, UnknownVariable> {
        Ok(match value {
            Value::String(text) => match text.strip_prefix('$').filter(|rest| name(rest) == *rest) {
                Some(path) if !path.is_empty() => {
                    self.get(path).cloned().ok_or_else(|| UnknownVariable(path.to_owned()))?
                }
                _ => Value::String(self.fill(text)?),
            },
            Value::Array(items) => {
                let mut values = Vec::with_capacity(items.len());
                for item in items {
                    match (item.get("$repeat"), item.get("times").and_then(Value::as_u64)) {
                        (Some(item), Some(times)) => {
                            let item = self.fill_json(item)?;
                            values.extend((0..times).map(|_| item.clone()));
                        }
                        _ => values.push(self.fill_json(item)?),
                    }
                }
                Value::Array(values)
            }
            Value::Object(members) => Value::Object(
                members
                    .iter()
                    .map(|(key, value)| Ok((key.clone(), self.fill_json(value)?)))
                    .collect::<Result<_, _>>()?,
            ),
            other => other.clone(),
        })
    }
}

/// The value at a dotted path.
pub fn value_at<'a>(members: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let mut parts = path.split('.');
    let first = members.get(parts.next()?)?;
    parts.try_fold(first, |value, part| match value {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        _ => value.get(part),
    })
}

/// The names of the variables in a text.
pub fn names(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices('$').map(|(offset, _)| name(&text[offset + 1..])).filter(|name| !name.is_empty())
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Parses `(TEXT*TIMES)` at the start of a text. Returns the text, the number of times, and the length of the
/// expression.
fn repetition(text: &str) -> Option<(&str, usize, usize)> {
    let (inner, _) = text.strip_prefix('(')?.split_once(')')?;
    let (repeated, times) = inner.rsplit_once('*')?;
    Some((repeated, times.parse().ok()?, inner.len() + 2))
}

/// The name of the variable at the start of a text; empty if there is none.
fn name(text: &str) -> &str {
    if OPERATIONS.iter().any(|operation| text.starts_with(operation)) {
        return "";
    }
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.')).unwrap_or(text.len());
    text[..end].trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vars() -> Variables {
        let mut vars = Variables::default();
        vars.set("code", "abc");
        vars.set("user", json!({ "claims": { "sub": "s1" }, "names": ["a", "b"], "age": 7 }));
        vars
    }

    #[track_caller]
    fn check(text: &str, expected: Result<&str, &str>) {
        let got = vars().fill(text);
        assert_eq!(
            got,
            expected.map(str::to_owned).map_err(|name| UnknownVariable(name.to_owned())),
            "{text}"
        );
    }

    #[test]
    fn texts_are_filled() {
        check("code=$code&x", Ok("code=abc&x"));
        check("$user.claims.sub/$user.names.1", Ok("s1/b"));
        check("$user.age years", Ok("7 years"));
        check("ends with $code.", Ok("ends with abc."));
        check("/ValueSet/$validate-code?a=$code", Ok("/ValueSet/$validate-code?a=abc"));
        check("5 $ and $-x", Ok("5 $ and $-x"));
        check("a$(xy*3)b$code", Ok("axyxyxybabc"));
        check("$(xy*z)", Ok("$(xy*z)"));
        check("$nothing", Err("nothing"));
        check("$user.names.7", Err("user.names.7"));
    }

    #[test]
    fn items_are_repeated() {
        let list = json!([{ "$repeat": { "a": "$code" }, "times": 2 }, 1]);
        assert_eq!(vars().fill_json(&list).unwrap(), json!([{ "a": "abc" }, { "a": "abc" }, 1]));
    }

    #[test]
    fn a_text_that_is_one_variable_takes_its_type() {
        let value = vars().fill_json(&json!({ "a": "$user.age", "b": ["$code", "is $user.age"] })).unwrap();
        assert_eq!(value, json!({ "a": 7, "b": ["abc", "is 7"] }));
    }
}
