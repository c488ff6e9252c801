//! Compares answers with expectations of HL7's terminology ecosystem suite.
//!
//! An expectation is a resource with templates. Order does not matter: items of arrays are paired so that as
//! many as possible match. Members beyond the expectation are differences, unless the test asks for a pattern
//! only. Texts are [templates](super::text_template).
//!
//! | expected member | means |
//! |---|---|
//! | `$optional$` | this object, an item of an array or a member, may be missing (`true`, `!mode`, `warning:…`, `version:N`) |
//! | `$optional-properties$` | these members may be missing |
//! | `$count-arrays$` | only the length of these arrays is compared |

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};

use super::item_pairing::ItemPairing;
use super::text_template;

/// Maximum length of a value in a difference, in characters.
const EXCERPT: usize = 160;

/// Compares answers with expectations.
#[derive(Debug)]
pub struct AnswerMatcher<'a> {
    /// The modes of the run, such as `general`.
    pub modes: &'a BTreeSet<String>,
    /// FHIR version that the server implements.
    pub fhir_version: &'a str,
    /// Texts of the server's messages for this response, by number.
    pub externals: Option<&'a HashMap<String, String>>,
    /// Whether the answer may contain more than the expectation.
    pub pattern: bool,
}

/// Notes about missing items that the suite recommends but does not require.
type MissingItems = RefCell<Vec<String>>;

impl AnswerMatcher<'_> {
    /// A description of the first difference, or `None` if there is none, and the notes that the suite
    /// requests.
    pub fn compare(&self, expected: &Value, response: &Value) -> (Option<String>, Vec<String>) {
        let notes = MissingItems::default();
        let difference = self.value(expected, response, "", &notes);
        (difference, notes.into_inner())
    }

    fn value(&self, expected: &Value, response: &Value, path: &str, notes: &MissingItems) -> Option<String> {
        let same = match (expected, response) {
            (Value::Object(expected), Value::Object(response)) => {
                return self.object(expected, response, path, notes);
            }
            (Value::Array(expected), Value::Array(response)) => {
                return self.array(expected, response, path, notes);
            }
            (Value::Object(_), _) => {
                return Some(format!("{path}: expected an object, got {}", short(response)));
            }
            (Value::Array(_), _) => {
                return Some(format!("{path}: expected an array, got {}", short(response)));
            }
            (Value::String(expected), Value::String(response)) => {
                text_template::matches(expected, response, self.fhir_version, self.externals)
            }
            (Value::Bool(expected), Value::Bool(response)) => expected == response,
            (Value::Bool(_), _) | (_, Value::Bool(_)) => false,
            (Value::String(expected), _) => expected == "$$",
            (Value::Number(expected), Value::Number(response)) => {
                expected == response || expected.as_f64() == response.as_f64()
            }
            _ => expected == response,
        };
        (!same).then(|| format!("{path}: expected {}, got {}", short(expected), short(response)))
    }

    /// Returns whether this expected item of an array may be missing.
    fn is_optional(&self, item: &Value) -> bool {
        match item.get("$optional$") {
            Some(Value::Bool(flag)) => *flag,
            Some(Value::String(flag)) => match flag.split_once(':') {
                Some(("warning", _)) => true,
                Some(("version", version)) => self.fhir_version.starts_with(version),
                _ => flag == "true" || flag.strip_prefix('!').is_some_and(|mode| !self.modes.contains(mode)),
            },
            _ => false,
        }
    }

    fn object(
        &self,
        expected: &Map<String, Value>,
        response: &Map<String, Value>,
        path: &str,
        notes: &MissingItems,
    ) -> Option<String> {
        let list = |name: &str| -> Vec<&str> {
            let names = expected.get(name).and_then(Value::as_array);
            names.into_iter().flatten().filter_map(Value::as_str).collect()
        };
        let mut may_lack = list("$optional-properties$");
        // Three files of the suite use this spelling.
        may_lack.extend(list("$optional"));
        let counts = list("$count-arrays$");
        for (name, expected_value) in expected.iter().filter(|(name, _)| !name.starts_with('$')) {
            let here = join(path, name);
            let Some(actual) = response.get(name) else {
                let all_optional = || {
                    let items = expected_value.as_array().filter(|items| !items.is_empty());
                    items.is_some_and(|items| items.iter().all(|item| self.is_optional(item)))
                };
                if may_lack.contains(&name.as_str()) || self.is_optional(expected_value) || all_optional() {
                    continue;
                }
                return Some(format!("{here}: missing in the answer (expected {})", short(expected_value)));
            };
            if let Some(expected_value) =
                expected_value.as_array().filter(|_| counts.contains(&name.as_str()))
            {
                match actual.as_array().map(Vec::len) {
                    Some(length) if length == expected_value.len() => continue,
                    Some(length) => {
                        return Some(format!(
                            "{here}: expected {} items, got {length}",
                            expected_value.len()
                        ));
                    }
                    None => return Some(format!("{here}: expected an array, got {}", short(actual))),
                }
            }
            if let Some(difference) = self.value(expected_value, actual, &here, notes) {
                return Some(difference);
            }
        }
        let more = response
            .iter()
            .find(|(name, _)| !expected.contains_key(*name) && !may_lack.contains(&name.as_str()));
        more.filter(|_| !self.pattern).map(|(name, given)| {
            format!("{}: not expected, the answer has {}", join(path, name), short(given))
        })
    }

    fn array(
        &self,
        expected: &[Value],
        response: &[Value],
        path: &str,
        notes: &MissingItems,
    ) -> Option<String> {
        let mut pairing = ItemPairing::new(expected.len(), response.len(), |index, of| {
            // The notes of this comparison are dropped, because it only tests a possible pair.
            self.value(&expected[index], &response[of], path, &MissingItems::default()).is_none()
        });
        let required: Vec<usize> =
            (0..expected.len()).filter(|index| !self.is_optional(&expected[*index])).collect();
        required.iter().for_each(|index| pairing.pair_same_position(*index));
        let missing = required.iter().find(|index| !pairing.place_expected(**index)).copied();
        if let Some(index) = missing {
            return Some(self.missing_item(&expected[index], response, &pairing, path, notes));
        }
        if !self.pattern
            && let Some(of) = (0..response.len()).find(|of| !pairing.place_answer(*of))
        {
            return Some(self.unexpected_item(&response[of], expected, path, notes));
        }
        for (index, item) in
            expected.iter().enumerate().filter(|(index, _)| pairing.partner[*index].is_none())
        {
            let flag = item.get("$optional$").and_then(Value::as_str);
            if let Some(flag) = flag.filter(|flag| flag.starts_with("warning:")) {
                let name = label(item).unwrap_or_else(|| index.to_string());
                notes.borrow_mut().push(format!("{path}: no item '{name}' ({flag})"));
            }
        }
        None
    }

    /// The most likely reason why an expected item has no match.
    fn missing_item(
        &self,
        item: &Value,
        response: &[Value],
        pairing: &ItemPairing<impl Fn(usize, usize) -> bool>,
        path: &str,
        notes: &MissingItems,
    ) -> String {
        let name = label(item);
        let free = |of: &usize| pairing.taken[*of].is_none();
        let alike = |of: &usize| label(&response[*of]) == name;
        let near = (0..response.len()).filter(free).find(alike).or_else(|| (0..response.len()).find(alike));
        let difference = near.and_then(|of| {
            let place = name.clone().unwrap_or_else(|| of.to_string());
            self.value(item, &response[of], &format!("{path}[{place}]"), notes)
        });
        difference.unwrap_or_else(|| format!("{path}: no item like {}", short(item)))
    }

    /// Explains why an item of the response matches no expected item.
    fn unexpected_item(&self, item: &Value, expected: &[Value], path: &str, notes: &MissingItems) -> String {
        let name = label(item);
        let alike = expected.iter().find(|other| name.is_some() && label(other) == name);
        let place = name.clone().unwrap_or_default();
        alike
            .and_then(|other| self.value(other, item, &format!("{path}[{place}]"), notes))
            .unwrap_or_else(|| format!("{path}: unexpected item {}", short(item)))
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// A label of an item: severity and kind of an issue, otherwise its name, address, code or value.
fn label(item: &Value) -> Option<String> {
    if let Some(severity) = item.get("severity") {
        let kind = item.pointer("/details/coding/0/code").and_then(Value::as_str).unwrap_or("?");
        return Some(format!("{}:{kind}", severity.as_str().unwrap_or("?")));
    }
    let text = |name: &&str| item.get(name).and_then(Value::as_str).map(str::to_owned);
    ["name", "url", "code", "value"].iter().find_map(text)
}

/// Formats a value as text, truncated to the maximum length.
pub(super) fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(EXCERPT) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(expected: Value, response: Value, matches: bool) {
        let modes = BTreeSet::from(["general".to_owned()]);
        let matcher = AnswerMatcher { modes: &modes, fhir_version: "4.0.1", externals: None, pattern: false };
        let (difference, _) = matcher.compare(&expected, &response);
        assert_eq!(difference.is_none(), matches, "{expected} and {response}: {difference:?}");
    }

    #[test]
    fn values_keep_their_kind() {
        check(json!(true), json!(true), true);
        check(json!(true), json!("true"), false);
        check(json!("$$"), json!(true), false);
        check(json!("$$"), json!(7), true);
        check(json!(1), json!(1.0), true);
        check(json!(1), json!(2), false);
        check(json!({}), json!([]), false);
        check(json!([]), json!({}), false);
    }

    #[test]
    fn members_are_compared_by_name() {
        check(json!({ "a": 1 }), json!({ "a": 1, "b": 2 }), false);
        check(json!({ "a": 1 }), json!({}), false);
        check(json!({ "$optional-properties$": ["a"], "a": 1 }), json!({}), true);
        check(json!({ "$optional-properties$": ["a"], "a": 1 }), json!({ "a": 2 }), false);
        check(json!({ "$optional": ["a"] }), json!({ "a": 2 }), true);
        check(json!({ "$count-arrays$": ["a"], "a": [1, 2] }), json!({ "a": [3, 4] }), true);
        check(json!({ "$count-arrays$": ["a"], "a": [1, 2] }), json!({ "a": [3] }), false);
        check(json!({ "a": [{ "$optional$": true }] }), json!({}), true);
        check(json!({ "a": { "$optional$": true, "b": 1 } }), json!({}), true);
        check(json!({ "a": { "$optional$": true, "b": 1 } }), json!({ "a": { "b": 2 } }), false);
        check(json!({ "a": [] }), json!({}), false);
    }

    #[test]
    fn arrays_have_no_order() {
        check(json!([1, 2, 3]), json!([3, 1, 2]), true);
        check(json!([1, 2]), json!([1, 2, 2]), false);
        check(json!([1, 2, 2]), json!([1, 2]), false);
        // The pair that is tried first must be undone.
        check(json!(["$$", "a"]), json!(["a", "b"]), true);
        check(json!(["$$", "$string$", "a"]), json!(["a", "b", "c"]), true);
        check(json!(["$$", "a", "a"]), json!(["a", "b", "c"]), false);
    }

    #[test]
    fn items_may_be_optional() {
        for (flag, may_lack) in [
            (json!(true), true),
            (json!("true"), true),
            (json!(false), false),
            (json!("!snomed"), true),
            (json!("!general"), false),
            (json!("warning:version"), true),
            (json!("version:4"), true),
            (json!("version:5"), false),
        ] {
            check(json!([{ "$optional$": flag, "name": "x" }]), json!([]), may_lack);
            check(json!([{ "$optional$": flag, "name": "x" }]), json!([{ "name": "x" }]), true);
            check(json!([{ "$optional$": flag, "name": "x" }]), json!([{ "name": "y" }]), false);
        }
    }

    #[test]
    fn a_pattern_accepts_additional_members_and_items() {
        let modes = BTreeSet::new();
        let matcher = AnswerMatcher { modes: &modes, fhir_version: "4.0.1", externals: None, pattern: true };
        let (expected, answer) = (json!({ "a": [1] }), json!({ "a": [2, 1], "b": 3 }));
        assert_eq!(matcher.compare(&expected, &answer).0, None);
        assert!(matcher.compare(&json!({ "a": [1] }), &json!({ "a": [2] })).0.is_some());
    }

    #[test]
    fn differences_and_notes_are_reported() {
        let modes = BTreeSet::new();
        let matcher = AnswerMatcher { modes: &modes, fhir_version: "4.0.1", externals: None, pattern: false };
        let expected = json!({ "parameter": [{ "name": "result", "valueBoolean": true },
            { "name": "version", "$optional$": "warning:version" }] });
        let answer = json!({ "parameter": [{ "name": "result", "valueBoolean": false }] });
        let (difference, _) = matcher.compare(&expected, &answer);
        assert_eq!(difference.unwrap(), "parameter[result].valueBoolean: expected true, got false");
        let response = json!({ "parameter": [{ "name": "result", "valueBoolean": true }] });
        let (difference, notes) = matcher.compare(&expected, &response);
        assert_eq!(difference, None);
        assert_eq!(notes, ["parameter: no item 'version' (warning:version)"]);
    }
}
