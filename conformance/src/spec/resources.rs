//! FHIR resources that rows refer to by name. Each file `specs/fixtures/*.json` is an object of names and
//! resources.

use std::sync::LazyLock;

use serde_json::{Map, Value};

/// Names and contents of the files.
const FILES: &[(&str, &str)] = &[
    ("code-systems.json", include_str!("../../specs/fixtures/code-systems.json")),
    ("value-sets.json", include_str!("../../specs/fixtures/value-sets.json")),
    ("others.json", include_str!("../../specs/fixtures/others.json")),
];

static BY_NAME: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let mut by_name = Map::new();
    for (file, text) in FILES {
        let resources: Map<String, Value> =
            serde_json::from_str(text).unwrap_or_else(|error| panic!("specs/fixtures/{file}: {error}"));
        by_name.extend(resources);
    }
    by_name
});

/// The resource with this name.
///
/// # Errors
/// A message if there is no such resource.
pub fn named(name: &str) -> Result<&'static Value, String> {
    BY_NAME.get(name).ok_or_else(|| format!("specs/fixtures has no resource '{name}'"))
}

/// The names of all resources.
pub fn names() -> impl Iterator<Item = &'static str> {
    BY_NAME.keys().map(String::as_str)
}
