//! The parts of JSON that a JSONPath selects (RFC 9535).

use serde_json::Value;
use serde_json::value::RawValue;
use serde_json_path::JsonPath;

use crate::exact_json;

/// Maximum number of characters of values on one line.
const MAX_SHORT: usize = 300;

#[derive(Clone, Debug)]
pub struct Selector(JsonPath);

impl Selector {
    /// Parses a path.
    ///
    /// # Errors
    /// A message for the user if the text is not a JSONPath.
    pub fn parse(path: &str) -> Result<Self, String> {
        JsonPath::parse(path).map(Self).map_err(|error| format!("'{path}' is not a JSONPath: {error}"))
    }

    /// Returns whether the path selects a value of the JSON text. It selects nothing of a text that is not
    /// JSON.
    pub fn selects(&self, json: &[u8]) -> bool {
        serde_json::from_slice(json).is_ok_and(|value: Value| !self.0.query(&value).is_empty())
    }

    /// The values that the path selects in a JSON text, as formatted JSON, each beginning on a line of its
    /// own.
    pub fn text(&self, json: &str) -> Option<String> {
        let texts: Vec<_> = self.values(json).iter().map(exact_json::text).collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }

    /// The values that the path selects. None of a text that is not JSON.
    fn values(&self, json: &str) -> Vec<Value> {
        // The path compares numbers, which are texts in the exact value.
        let (Ok(value), Ok(exact)) = (serde_json::from_str::<Value>(json), exact_json::parse(json)) else {
            return Vec::new();
        };
        let places = self.0.query_located(&value);
        let pointers = places.locations().map(|place| place.to_json_pointer());
        pointers.filter_map(|at| exact.pointer(&at).cloned()).collect()
    }

    /// The selected values on one line, which may be cut.
    pub fn short_text(&self, json: &str) -> String {
        let mut text = String::new();
        for value in self.values(json) {
            if !text.is_empty() {
                text.push_str("  ");
            }
            text.push_str(&exact_json::line(&value));
            if text.len() > MAX_SHORT {
                break;
            }
        }
        text.chars().take(MAX_SHORT).collect()
    }
}

/// Returns whether the text of a filter is a JSONPath.
pub fn is_path(filter: &str) -> bool {
    filter.starts_with('$')
}

/// The values that a path selects in a body, as formatted JSON.
///
/// # Errors
/// A message if the path or the body is invalid, or if nothing is selected.
pub fn select(body: &str, path: &str) -> Result<String, String> {
    let path = Selector::parse(path)?;
    serde_json::from_str::<&RawValue>(body).map_err(|_| {
        "the body cannot be filtered: it is not JSON, or only its beginning was recorded".to_owned()
    })?;
    path.text(body).ok_or_else(|| "the path selects nothing".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_selected() {
        let body = r#"{"entry":[{"id":"a","n":1},{"id":"b","n":2}]}"#;
        assert_eq!(select(body, "$.entry[*].id").unwrap(), "\"a\"\n\"b\"");
        assert_eq!(select(body, "$.entry[?@.n > 1].id").unwrap(), "\"b\"");
        let decimal = r#"{"value":{"n":1.50,"m":1.500}}"#;
        assert_eq!(select(decimal, "$.value[?@ == 1.5]").unwrap(), "1.50\n1.500");
        assert_eq!(select(body, "$.none").unwrap_err(), "the path selects nothing");
        assert!(select(body, "entry").unwrap_err().contains("is not a JSONPath"));
        assert!(select("{\"cut", "$").unwrap_err().contains("only its beginning"));
    }

    #[test]
    fn lines_are_selected_and_shortened() {
        let line = br#"{"id":"a","status":"final","name":[{"family":"Reed"}]}"#;
        let json = str::from_utf8(line).unwrap();
        let check = |path: &str, selects: bool, short: &str| {
            let path = Selector::parse(path).unwrap();
            assert_eq!((path.selects(line), path.short_text(json).as_str()), (selects, short));
        };
        check("$.name[?@.family == 'Reed'].family", true, "\"Reed\"");
        check("$['id', 'status']", true, "\"a\"  \"final\"");
        check("$.id[?$.status == 'final']", false, "");
        check("$[?$.status == 'final']", true, r#""a"  "final"  [{"family":"Reed"}]"#);
        check("$[?$.status == 'amended']", false, "");
        assert!(!Selector::parse("$").unwrap().selects(b"{\"cut"));
        let long = serde_json::json!({ "text": "é".repeat(1000) });
        assert_eq!(
            Selector::parse("$.text").unwrap().short_text(&long.to_string()).chars().count(),
            MAX_SHORT
        );
    }
}
