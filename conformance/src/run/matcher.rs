//! Compares received values with the values that a row expects. Members that the row does not name are not
//! compared.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use regex::Regex;
use serde_json::Value;
use sha2::{Digest as _, Sha256, Sha384, Sha512};

use crate::wire::adapt::ADAPT;
use crate::wire::variables::{ANSWERED_AT, UnknownVariable, Variables};

/// Matchers, which are texts with a special meaning in expectations, and what they match.
pub const MATCHERS: &[(&str, &str)] = &[
    ("$any", "any value, but not an absent one"),
    ("$absent", "no value"),
    ("$string`, `$number`, `$boolean", "a value of that type"),
    ("$contains:TEXT", "a text that contains it"),
    ("$lacks:TEXT", "a text that does not contain it, or no value"),
    ("$regex:RE", "a text that the regular expression matches as a whole"),
    ("$optional:MATCHER", "what the matcher matches; on a server that is not Trefoil also no value"),
    (
        "$permits:A|B",
        "the text A; on a server that is not Trefoil also B, or one of more texts, that the standard permits",
    ),
    ("$house:MATCHER", "what the matcher matches; on a server that is not Trefoil anything"),
    ("$number:A..B", "a number from A to B, also as a text; either bound can be left out"),
    (
        "$within:A..B",
        "a time from A to B seconds after now: seconds since 1970, an HTTP date or an instant of FHIR",
    ),
    ("$bits:N", "a text that is long enough for N random bits, judged by the kinds of its characters"),
    (
        "$half_hash:ALG:TEXT",
        "the left half of the hash of a text in base64url, as `at_hash`; ALG is SHA-256, SHA-384, SHA-512, or SHA-2 for any of them",
    ),
    ("$unshared", "a Cache-Control with which no cache keeps the answer for others, or no value"),
    ("anything else", "that text, with its variables filled in"),
];

/// Description of a difference between a received value and the row.
pub type Difference = String;

/// Compares JSON values. `at` is the path of the value for messages; `None` is an absent value.
///
/// # Errors
/// [`UnknownVariable`] if the expectation contains an unknown variable.
pub fn json(
    path: &str,
    expected: &Value,
    actual: Option<&Value>,
    vars: &Variables,
    out: &mut Vec<Difference>,
) -> Result<(), UnknownVariable> {
    match expected {
        Value::String(pattern) => return text(path, pattern, actual, vars, out),
        Value::Object(members) => {
            for (key, is_optional) in [("$optional", true), ("$house", false)] {
                if let Some(pattern) = members.get(key) {
                    let is_excused = is_other(vars) && (actual.is_none() || !is_optional);
                    return if is_excused { Ok(()) } else { json(path, pattern, actual, vars, out) };
                }
            }
            if let Some(Value::Array(alternatives)) = members.get("$any_of") {
                let fits = |pattern: &Value| {
                    let mut differences = Vec::new();
                    json(path, pattern, actual, vars, &mut differences).map(|()| differences.is_empty())
                };
                let fitting = alternatives.iter().map(fits).collect::<Result<Vec<_>, _>>()?;
                if !fitting.contains(&true) {
                    out.push(format!("{path}: {} matches none of the alternatives", shown(actual)));
                }
                return Ok(());
            }
            // No member of JSON in FHIR or OAuth begins with a dollar sign.
            if let Some((key, pattern)) = members.iter().next().filter(|(key, _)| key.starts_with('$')) {
                return list(path, key, pattern, actual, vars, out);
            }
            let Some(Value::Object(found)) = actual else {
                out.push(format!("{path}: {} instead of an object", shown(actual)));
                return Ok(());
            };
            for (key, expected) in members {
                json(&format!("{path}.{key}"), expected, found.get(key), vars, out)?;
            }
        }
        Value::Array(items) => {
            let Some(Value::Array(found)) = actual else {
                out.push(format!("{path}: {} instead of a list", shown(actual)));
                return Ok(());
            };
            if items.len() != found.len() {
                out.push(format!("{path}: {} items instead of {}", found.len(), items.len()));
            }
            for (index, (expected, actual)) in items.iter().zip(found).enumerate() {
                json(&format!("{path}[{index}]"), expected, Some(actual), vars, out)?;
            }
        }
        other if actual == Some(other) => {}
        other => out.push(format!("{path}: {} instead of {other}", shown(actual))),
    }
    Ok(())
}

/// Compares a list with `$some`, `$each` or `$several`.
fn list(
    path: &str,
    quantifier: &str,
    pattern: &Value,
    actual: Option<&Value>,
    vars: &Variables,
    out: &mut Vec<Difference>,
) -> Result<(), UnknownVariable> {
    let Some(Value::Array(found)) = actual.filter(|list| list.as_array().is_some_and(|l| !l.is_empty()))
    else {
        out.push(format!("{path}: {} instead of a list that is not empty", shown(actual)));
        return Ok(());
    };
    if quantifier == "$several" && found.len() < 2 {
        return Ok(());
    }
    let mut fitting = 0;
    for (index, item) in found.iter().enumerate() {
        let mut differences = Vec::new();
        json(&format!("{path}[{index}]"), pattern, Some(item), vars, &mut differences)?;
        fitting += usize::from(differences.is_empty());
        if matches!(quantifier, "$each" | "$several") {
            out.append(&mut differences);
        }
    }
    if quantifier == "$some" && fitting == 0 {
        out.push(format!("{path}: no item matches {pattern}; it is {}", shown(actual)));
    } else if !matches!(quantifier, "$some" | "$each" | "$several") {
        out.push(format!("{path}: the row says '{quantifier}', which means nothing"));
    }
    Ok(())
}

/// Compares a text with a pattern.
///
/// # Errors
/// [`UnknownVariable`] if the pattern contains an unknown variable.
pub fn text(
    path: &str,
    pattern: &str,
    actual: Option<&Value>,
    vars: &Variables,
    out: &mut Vec<Difference>,
) -> Result<(), UnknownVariable> {
    if let Some(pattern) = pattern.strip_prefix("$house:") {
        return if is_other(vars) { Ok(()) } else { text(path, pattern, actual, vars, out) };
    }
    if let Some(pattern) = pattern.strip_prefix("$optional:") {
        let is_excused = is_other(vars) && actual.is_none();
        return if is_excused { Ok(()) } else { text(path, pattern, actual, vars, out) };
    }
    if let Some(permitted) = pattern.strip_prefix("$permits:") {
        let match_of_choice = permitted.split('|').find(|text| actual.is_some_and(|actual| actual == *text));
        let first = permitted.split('|').next().unwrap_or_default();
        let expected = if is_other(vars) { match_of_choice.unwrap_or(permitted) } else { first };
        return text(path, expected, actual, vars, out);
    }
    let fits = match pattern {
        "$any" => actual.is_some(),
        "$absent" => actual.is_none(),
        "$string" => actual.is_some_and(Value::is_string),
        "$number" => actual.is_some_and(Value::is_number),
        "$boolean" => actual.is_some_and(Value::is_boolean),
        "$unshared" => actual.and_then(Value::as_str).is_none_or(is_unshared),
        _ => {
            let actual_text = actual.and_then(Value::as_str);
            if let Some(value) = measure(pattern, actual, vars) {
                match value {
                    Ok(fits) => fits,
                    Err(reason) => {
                        out.push(format!("{path}: the row's '{pattern}' is wrong: {reason}"));
                        return Ok(());
                    }
                }
            } else if let Some((algorithm, text)) =
                pattern.strip_prefix("$half_hash:").and_then(|rest| rest.split_once(':'))
            {
                let hashes = half_hashes(algorithm, &vars.fill(text)?);
                if hashes.is_empty() {
                    out.push(format!("{path}: the row's hash '{algorithm}' is not known"));
                    return Ok(());
                }
                hashes.iter().any(|hash| actual_text == Some(hash.as_str()))
            } else if let Some(part) = pattern.strip_prefix("$lacks:") {
                let part = vars.fill(part)?;
                actual_text.is_none_or(|actual_text| !actual_text.contains(&part))
            } else if let Some(part) = pattern.strip_prefix("$contains:") {
                let part = vars.fill(part)?;
                actual_text.is_some_and(|actual_text| actual_text.contains(&part))
            } else if let Some(expression) = pattern.strip_prefix("$regex:") {
                // A value of the server must not act as an expression.
                let expression = vars.fill_with(expression, |value| regex::escape(&value))?;
                match Regex::new(&format!("(?s)^(?:{expression})$")) {
                    Ok(regex) => actual_text.is_some_and(|actual_text| regex.is_match(actual_text)),
                    Err(error) => {
                        out.push(format!("{path}: the row's expression is wrong: {error}"));
                        return Ok(());
                    }
                }
            } else {
                let expected = vars.fill_json(&Value::from(pattern))?;
                if actual != Some(&expected) {
                    out.push(format!("{path}: {} instead of {expected}", shown(actual)));
                }
                return Ok(());
            }
        }
    };
    if !fits {
        out.push(format!("{path}: {} instead of {pattern}", shown(actual)));
    }
    Ok(())
}

/// Returns whether a `Cache-Control` keeps shared caches from storing an answer (RFC 9111 5.2.2).
fn is_unshared(cache_control: &str) -> bool {
    let directives = || cache_control.split(',').map(|directive| directive.trim().to_lowercase());
    let forbids = directives().any(|one| ["no-store", "no-cache", "private"].contains(&one.as_str()));
    let permits = |one: String| {
        let age = one.strip_prefix("max-age=").or(one.strip_prefix("s-maxage="));
        one == "public" || age.is_some_and(|age| age != "0")
    };
    forbids || !directives().any(permits)
}

/// Returns whether the target is not Trefoil, so that the rules of Trefoil do not hold.
fn is_other(vars: &Variables) -> bool {
    vars.get(ADAPT).is_some()
}

/// Compares a value with a matcher that measures it: `$number`, `$within` or `$bits`. Returns `None` for
/// other patterns.
fn measure(pattern: &str, actual: Option<&Value>, vars: &Variables) -> Option<Result<bool, String>> {
    let (name, range) = pattern.strip_prefix('$')?.split_once(':')?;
    let number_or_bits = match name {
        "number" => actual.and_then(number),
        "within" => actual.and_then(|value| seconds_from_response(value, vars)),
        "bits" => actual.and_then(Value::as_str).map(random_bits),
        _ => return None,
    };
    let range = match name {
        "bits" => format!("{range}.."),
        _ => range.to_owned(),
    };
    Some(bounds(&range).map(|(low, high)| number_or_bits.is_some_and(|value| low <= value && value <= high)))
}

/// Parses `A..B`.
fn bounds(text: &str) -> Result<(f64, f64), String> {
    let (low, high) = text.split_once("..").ok_or("a range is written A..B")?;
    let bound = |text: &str, open: f64| match text {
        "" => Ok(open),
        text => text.parse::<f64>().map_err(|_| format!("'{text}' is not a number")),
    };
    Ok((bound(low, f64::NEG_INFINITY)?, bound(high, f64::INFINITY)?))
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

/// The time from the response to a time in seconds.
fn seconds_from_response(value: &Value, vars: &Variables) -> Option<f64> {
    let answered_ms = vars.get(ANSWERED_AT).and_then(Value::as_i64);
    let now = answered_ms.unwrap_or_else(|| Timestamp::now().as_millisecond()) as f64 / 1000.0;
    if let Some(seconds) = value.as_f64() {
        // NumericDate has seconds, and `now` has fractions.
        return Some(seconds - now.floor());
    }
    let text = value.as_str()?;
    let time = match jiff::fmt::rfc2822::parse(text) {
        Ok(time) => time.timestamp(),
        Err(_) => text.parse().ok()?,
    };
    Some(time.as_millisecond() as f64 / 1000.0 - now.floor())
}

/// The number of random bits for which a text has room: 4 for each character of a text in lower-case
/// hexadecimal, 5 for one of a single case, and 6 otherwise.
fn random_bits(text: &str) -> f64 {
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let has_both =
        text.contains(|c: char| c.is_ascii_lowercase()) && text.contains(|c: char| c.is_ascii_uppercase());
    let of_character = if text.chars().all(is_hex) {
        4
    } else if has_both {
        6
    } else {
        5
    };
    (text.chars().filter(char::is_ascii_alphanumeric).count() * of_character) as f64
}

/// The left halves of the digests of a text. SHA-2 stands for each of its algorithms, of which that of the
/// signature is used.
fn half_hashes(algorithm: &str, text: &str) -> Vec<String> {
    let half = |digest: &[u8]| URL_SAFE_NO_PAD.encode(&digest[..digest.len() / 2]);
    let all = [
        ("SHA-256", half(&Sha256::digest(text))),
        ("SHA-384", half(&Sha384::digest(text))),
        ("SHA-512", half(&Sha512::digest(text))),
    ];
    all.into_iter()
        .filter(|(name, _)| *name == algorithm || algorithm == "SHA-2")
        .map(|(_, hash)| hash)
        .collect()
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
        check(json!({ "$several": { "a": 1 } }), json!([{}]), &[]);
        check(json!({ "$several": "$number" }), json!([1, "x"]), &[r#"body[1]: "x" instead of $number"#]);
        check(json!({ "$most": 1 }), json!([1]), &["body: the row says '$most', which means nothing"]);
    }

    #[test]
    fn times_are_compared_with_that_of_a_shared_response() {
        let mut vars = Variables::default();
        vars.set(ANSWERED_AT, 1_800_000_000_000_i64);
        let mut out = Vec::new();
        let at_once = json!(1_800_000_001);
        json("body", &json!("$within:0..2"), Some(&at_once), &vars, &mut out).unwrap();
        assert_eq!(out, Vec::<String>::new());
    }

    #[test]
    fn caches_keep_what_cache_control_permits() {
        for (text, is_unshared) in [
            ("no-store", true),
            ("max-age=0, must-revalidate", true),
            ("Private, max-age=60", true),
            ("public", false),
            ("max-age=60", false),
            ("s-maxage=5", false),
        ] {
            assert_eq!(super::is_unshared(text), is_unshared, "{text}");
        }
    }

    #[test]
    fn numbers_and_times_are_compared_with_a_range() {
        check(json!("$number:1..3"), json!(2), &[]);
        check(json!("$number:1.."), json!("7"), &[]);
        check(json!("$number:..3"), json!(4), &["body: 4 instead of $number:..3"]);
        check(
            json!("$number:3"),
            json!(3),
            &["body: the row's '$number:3' is wrong: a range is written A..B"],
        );
        let now = Timestamp::now();
        check(json!("$within:-2..2"), json!(now.as_second()), &[]);
        check(json!("$within:-2..2"), json!(now.to_string()), &[]);
        let date = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&now).unwrap();
        check(json!("$within:-2..2"), json!(date), &[]);
        let differences = |value: Value| {
            let mut out = Vec::new();
            json("body", &json!("$within:1..300"), Some(&value), &Variables::default(), &mut out).unwrap();
            out.len()
        };
        assert_eq!(differences(json!(now.as_second() + 100)), 0);
        for wrong in [json!(now.as_second() - 9), json!(now.as_millisecond() + 100), json!("soon"), json!("")]
        {
            assert_eq!(differences(wrong), 1);
        }
    }

    #[test]
    fn secrets_have_room_for_random_bits_and_hashes_are_computed() {
        check(json!("$bits:128"), json!("0123456789abcdef0123456789abcdef"), &[]);
        check(json!("$bits:128"), json!("xQ7rT1mZ0aLw9Kd3Vb6nYp"), &[]);
        check(json!("$bits:128"), json!("xQ7r"), &[r#"body: "xQ7r" instead of $bits:128"#]);
        // The example of OpenID Connect Core, appendix A.3.
        let token = "jHkWEdUXMU1BwAsC4vtUsZwnNvTIxEl0z9K3vx5KF0Y";
        check(json!(format!("$half_hash:SHA-256:{token}")), json!("77QmUPtjPfzWtF2AnpK9RQ"), &[]);
        check(
            json!("$half_hash:SHA-256:x"),
            json!("77Qm"),
            &[r#"body: "77Qm" instead of $half_hash:SHA-256:x"#],
        );
    }
}
