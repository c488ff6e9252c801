//! Compares received values with the values that a row expects. Members that the row does not name are not compared.

use regex::Regex;
use serde_json::Value;

use crate::wire::adapt::ADAPT;
use crate::wire::variables::{UnknownVariable, Variables};

/// Matchers, which are texts with a special meaning in expectations, and what they match.
pub const MATCHERS: &[(&str, &str)] = &[
    ("$any", "any value, but not an absent one"),
    ("$absent", "no value"),
    ("$string`, `$number`, `$boolean", "a value of that type"),
    ("$contains:TEXT", "a text that contains it"),
    ("$regex:RE", "a text that the regular expression matches as a whole"),
    ("$optional:MATCHER", "what the matcher matches; on a server that is not Trefoil also no value"),
    ("$house:MATCHER", "what the matcher matches; on a server that is not Trefoil anything"),
    ("anything else", "that text, with its variables filled in"),
];

/// Description of a difference between a received value and the row.
pub type Difference = String;

/// Compares JSON values. `at` is the path of the value for messages; `None` is an absent value.
///
/// # Errors
/// Returns [`UnknownVariable`] if the expectation contains an unknown variable.
pub fn json(
    at: &str,
    expected: &Value,
    actual: Option<&Value>,
    vars: &Variables,
    out: &mut Vec<Difference>,
) -> Result<(), UnknownVariable> {
    match expected {
        Value::String(pattern) => return text(at, pattern, actual, vars, out),
        Value::Object(members) => {
            for (key, is_optional) in [("$optional", true), ("$house", false)] {
                if let Some(pattern) = members.get(key) {
                    let is_excused = is_other(vars) && (actual.is_none() || !is_optional);
                    return if is_excused { Ok(()) } else { json(at, pattern, actual, vars, out) };
                }
            }
            if let Some((key, pattern)) = members.iter().next().filter(|(key, _)| key.starts_with('$')) {
                return list(at, key, pattern, actual, vars, out);
            }
            let Some(Value::Object(found)) = actual else {
                out.push(format!("{at}: {} instead of an object", shown(actual)));
                return Ok(());
            };
            for (key, expected) in members {
                json(&format!("{at}.{key}"), expected, found.get(key), vars, out)?;
            }
        }
        Value::Array(items) => {
            let Some(Value::Array(found)) = actual else {
                out.push(format!("{at}: {} instead of a list", shown(actual)));
                return Ok(());
            };
            if items.len() != found.len() {
                out.push(format!("{at}: {} items instead of {}", found.len(), items.len()));
            }
            for (index, (expected, actual)) in items.iter().zip(found).enumerate() {
                json(&format!("{at}[{index}]"), expected, Some(actual), vars, out)?;
            }
        }
        other if actual == Some(other) => {}
        other => out.push(format!("{at}: {} instead of {other}", shown(actual))),
    }
    Ok(())
}

/// Compares a list with `$some` or `$each`.
fn list(
    at: &str,
    quantifier: &str,
    pattern: &Value,
    actual: Option<&Value>,
    vars: &Variables,
    out: &mut Vec<Difference>,
) -> Result<(), UnknownVariable> {
    let Some(Value::Array(found)) = actual.filter(|list| list.as_array().is_some_and(|l| !l.is_empty()))
    else {
        out.push(format!("{at}: {} instead of a list that is not empty", shown(actual)));
        return Ok(());
    };
    let mut fitting = 0;
    for (index, item) in found.iter().enumerate() {
        let mut differences = Vec::new();
        json(&format!("{at}[{index}]"), pattern, Some(item), vars, &mut differences)?;
        fitting += usize::from(differences.is_empty());
        if quantifier == "$each" {
            out.append(&mut differences);
        }
    }
    if quantifier == "$some" && fitting == 0 {
        out.push(format!("{at}: no item matches {pattern}; it is {}", shown(actual)));
    } else if !matches!(quantifier, "$some" | "$each") {
        out.push(format!("{at}: the row says '{quantifier}', which means nothing"));
    }
    Ok(())
}

/// Compares a text with a pattern.
///
/// # Errors
/// Returns [`UnknownVariable`] if the pattern contains an unknown variable.
pub fn text(
    at: &str,
    pattern: &str,
    actual: Option<&Value>,
    vars: &Variables,
    out: &mut Vec<Difference>,
) -> Result<(), UnknownVariable> {
    if let Some(pattern) = pattern.strip_prefix("$house:") {
        return if is_other(vars) { Ok(()) } else { text(at, pattern, actual, vars, out) };
    }
    if let Some(pattern) = pattern.strip_prefix("$optional:") {
        let is_excused = is_other(vars) && actual.is_none();
        return if is_excused { Ok(()) } else { text(at, pattern, actual, vars, out) };
    }
    let fits = match pattern {
        "$any" => actual.is_some(),
        "$absent" => actual.is_none(),
        "$string" => actual.is_some_and(Value::is_string),
        "$number" => actual.is_some_and(Value::is_number),
        "$boolean" => actual.is_some_and(Value::is_boolean),
        _ => {
            let found = actual.and_then(Value::as_str);
            if let Some(part) = pattern.strip_prefix("$contains:") {
                let part = vars.fill(part)?;
                found.is_some_and(|found| found.contains(&part))
            } else if let Some(expression) = pattern.strip_prefix("$regex:") {
                let expression = vars.fill_with(expression, |value| regex::escape(&value))?;
                match Regex::new(&format!("(?s)^(?:{expression})$")) {
                    Ok(regex) => found.is_some_and(|found| regex.is_match(found)),
                    Err(error) => {
                        out.push(format!("{at}: the row's expression is wrong: {error}"));
                        return Ok(());
                    }
                }
            } else {
                let expected = vars.fill_json(&Value::from(pattern))?;
                if actual != Some(&expected) {
                    out.push(format!("{at}: {} instead of {expected}", shown(actual)));
                }
                return Ok(());
            }
        }
    };
    if !fits {
        out.push(format!("{at}: {} instead of {pattern}", shown(actual)));
    }
    Ok(())
}

/// Returns whether the target is not Trefoil, so that the rules of Trefoil do not hold.
fn is_other(vars: &Variables) -> bool {
    vars.get(ADAPT).is_some()
}

/// Formats a value for a message.
fn shown(value: Option<&Value>) -> String {
    match value {
        None => "nothing".to_owned(),
        Some(value) => {
            let text = value.to_string();
            match text.char_indices().nth(300) {
                Some((end, _)) => format!("{}…", &text[..end]),
                None => text,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(expected: Value, actual: Value, differences: &[&str]) {
        let mut vars = Variables::default();
        vars.set("name", "a.b");
        let mut out = Vec::new();
        json("body", &expected, Some(&actual), &vars, &mut out).unwrap();
        assert_eq!(out, differences, "{expected} against {actual}");
    }

    #[test]
    fn only_named_members_are_compared() {
        check(json!({ "a": 1 }), json!({ "a": 1, "b": 2 }), &[]);
        check(json!({ "a": 1 }), json!({ "a": "1" }), &[r#"body.a: "1" instead of 1"#]);
        check(json!({ "a": "$absent", "b": "$any" }), json!({ "b": null }), &[]);
        check(json!({ "a": "$absent" }), json!({ "a": 1 }), &["body.a: 1 instead of $absent"]);
        check(json!({ "a": "$any" }), json!({}), &["body.a: nothing instead of $any"]);
    }

    #[test]
    fn texts_match_whole_or_by_matcher() {
        check(json!("$name"), json!("a.b"), &[]);
        check(json!("$contains:.b"), json!("a.b"), &[]);
        check(json!("$regex:$name\\d"), json!("a.b7"), &[]);
        check(json!("$regex:$name\\d"), json!("axb7"), &[r#"body: "axb7" instead of $regex:$name\d"#]);
        check(json!("$regex:a"), json!("ab"), &[r#"body: "ab" instead of $regex:a"#]);
        check(json!("$number"), json!("7"), &[r#"body: "7" instead of $number"#]);
    }

    #[test]
    fn rules_of_trefoil_do_not_hold_for_others() {
        let mut others = Variables::default();
        others.set(ADAPT, json!({}));
        let differences = |expected: Value, actual: Value| {
            let mut out = Vec::new();
            json("body", &expected, Some(&actual), &others, &mut out).unwrap();
            out.len()
        };
        let optional = json!({ "a": "$optional:b", "n": { "$optional": 1 } });
        check(
            optional.clone(),
            json!({}),
            &[r#"body.a: nothing instead of "b""#, "body.n: nothing instead of 1"],
        );
        assert_eq!(differences(optional.clone(), json!({})), 0);
        assert_eq!(differences(optional, json!({ "a": "c", "n": 2 })), 2);
        let house = json!({ "a": "$house:b", "n": { "$house": 1 } });
        check(house.clone(), json!({ "a": "b", "n": 2 }), &["body.n: 2 instead of 1"]);
        assert_eq!(differences(house, json!({ "a": "c", "n": 2 })), 0);
    }

    #[test]
    fn lists_match_item_by_item_or_by_quantifier() {
        check(json!([1, 2]), json!([1, 2]), &[]);
        check(json!([1]), json!([1, 2]), &["body: 2 items instead of 1"]);
        check(json!({ "$some": { "a": 1 } }), json!([{ "a": 0 }, { "a": 1 }]), &[]);
        check(json!({ "$each": "$number" }), json!([1, "x"]), &[r#"body[1]: "x" instead of $number"#]);
        check(json!({ "$each": "$any" }), json!([]), &["body: [] instead of a list that is not empty"]);
        check(json!({ "$most": 1 }), json!([1]), &["body: the row says '$most', which means nothing"]);
    }
}
