//! Builds code systems that are part of the program.

use serde_json::{Value, json};

use crate::catalog::StoredResource;
use crate::code_system::CodeSystem;

pub(super) fn resource(
    url: &str,
    name: &str,
    exact: bool,
    properties: &[&str],
    concepts: Vec<Value>,
) -> StoredResource<CodeSystem> {
    let property = |code: &&str| json!({ "code": code, "type": "string" });
    let json = json!({
        "resourceType": "CodeSystem",
        "url": url,
        "name": name,
        "status": "active",
        "content": "complete",
        "caseSensitive": exact,
        "language": "en",
        "property": properties.iter().map(property).collect::<Vec<_>>(),
        "concept": concepts,
    });
    StoredResource::new(format!("built-in {url}"), json.to_string().into_bytes().into())
}
