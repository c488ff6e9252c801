//! FHIR resources that rows name: `specs/fixtures/*.json`, each an object from name to resource.

use std::sync::LazyLock;

use serde_json::{Map, Value};

/// The files and their content.
const FILES: &[(&str, &str)] = &[
    ("code-systems.json", include_str!("../../specs/fixtures/code-systems.json")),
    ("value-sets.json", include_str!("../../specs/fixtures/value-sets.json")),
    ("others.json", include_str!("../../specs/fixtures/others.json")),
];

static BY_NAME: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let mut by_name = Map::new();
    for (file, text) in FILES {
        let named: Map<String, Value> =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("specs/fixtures/{file}: {error}"));
        by_name.extend(named);
    }
    by_name
});

/// Returns the resource with this name.
///
/// # Errors
/// There is no such resource.
pub fn named(name: &str) -> Result<&'static Value, String> {
    BY_NAME.get(name).ok_or_else(|| format!("specs/fixtures has no resource '{name}'"))
}

/// Returns the names of all resources.
pub fn names() -> impl Iterator<Item = &'static str> {
    BY_NAME.keys().map(String::as_str)
}
