//! Deleted resources as transaction Bundles (Bulk Data Access 2.0.0, `deleted` of the manifest).

use store::ResourceKey;

/// Maximum number of entries of a Bundle. Each Bundle is one line.
const ENTRIES: usize = 500;

/// A transaction Bundle that is being written.
#[derive(Debug, Default)]
pub(crate) struct DeleteBundle {
    text: Vec<u8>,
    entries: usize,
}

impl DeleteBundle {
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    pub fn is_full(&self) -> bool {
        self.entries == ENTRIES
    }

    /// Adds a deleted resource. Types and ids consist of letters, digits, `-` and `.`, so that no character
    /// has to be escaped.
    pub fn add(&mut self, key: &ResourceKey) {
        let before =
            if self.is_empty() { r#"{"resourceType":"Bundle","type":"transaction","entry":["# } else { "," };
        let ResourceKey { kind, id } = key;
        let entry = format!(r#"{before}{{"request":{{"method":"DELETE","url":"{kind}/{id}"}}}}"#);
        self.text.extend_from_slice(entry.as_bytes());
        self.entries += 1;
    }

    /// Starts a new, empty Bundle, and returns the previous one.
    pub fn take(&mut self) -> Vec<u8> {
        self.entries = 0;
        self.text.extend_from_slice(b"]}");
        std::mem::take(&mut self.text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_bundle_is_bounded_and_lists_the_deletes() {
        let mut bundle = DeleteBundle::default();
        for number in 0..ENTRIES {
            assert!(!bundle.is_full());
            bundle.add(&ResourceKey::new("Patient", format!("p-{number}.x")));
        }
        assert!(bundle.is_full());
        let read: Value = serde_json::from_slice(&bundle.take()).unwrap();
        assert_eq!((&read["resourceType"], &read["type"]), (&json!("Bundle"), &json!("transaction")));
        assert_eq!(read["entry"].as_array().unwrap().len(), ENTRIES);
        assert_eq!(read["entry"][0], json!({ "request": { "method": "DELETE", "url": "Patient/p-0.x" } }));
        assert!(bundle.is_empty());
    }
}
