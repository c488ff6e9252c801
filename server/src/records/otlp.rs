//! Parts of the JSON form of OTLP, for traces and for audit events.

use serde_json::{Value, json};

/// An attribute with a text.
pub fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// The resource that sends: this server. `node` is its name.
pub fn resource(node: &str) -> Value {
    let attributes = [
        text("service.name", "trefoil"),
        text("service.version", env!("CARGO_PKG_VERSION")),
        text("service.instance.id", node),
    ];
    json!({ "attributes": attributes })
}
