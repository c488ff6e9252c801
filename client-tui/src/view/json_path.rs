//! The part of a JSON body that a JSONPath selects (RFC 9535).

use serde_json::Value;
use serde_json_path::JsonPath;

/// Returns the selected values as formatted JSON, each beginning on a line of its own.
///
/// # Errors
/// Returns a message if the path or the body is invalid.
pub(super) fn select(body: &str, path: &str) -> Result<String, String> {
    let path = JsonPath::parse(path).map_err(|error| format!("'{path}' is not a JSONPath: {error}"))?;
    let body: Value = serde_json::from_str(body).map_err(|_| {
        "the body cannot be filtered: it is not JSON, or only its beginning was recorded".to_owned()
    })?;
    let found: Vec<_> = path.query(&body).all().into_iter().map(|value| format!("{value:#}")).collect();
    if found.is_empty() { Err("the path selects nothing".to_owned()) } else { Ok(found.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_selected() {
        let body = r#"{"entry":[{"id":"a","n":1},{"id":"b","n":2}]}"#;
        assert_eq!(select(body, "$.entry[*].id").unwrap(), "\"a\"\n\"b\"");
        assert_eq!(select(body, "$.entry[?@.n > 1].id").unwrap(), "\"b\"");
        assert_eq!(select(body, "$.none").unwrap_err(), "the path selects nothing");
        assert!(select(body, "entry").unwrap_err().contains("is not a JSONPath"));
        assert!(select("{\"cut", "$").unwrap_err().contains("only its beginning"));
    }
}
