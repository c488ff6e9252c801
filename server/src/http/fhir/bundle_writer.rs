//! Bundles as answers to searches and histories.

use bytes::Bytes;
use fhir::OperationOutcome;
use serde_json::json;

use crate::http::answer_memory::AnswerMemory;
use crate::http::reply::{self, Response};

/// Resources of this size are pieces of the body; smaller ones are copied into the text before them.
const OWN_PIECE: usize = 16 << 10;

/// Writes a Bundle. Stored resources are written without being parsed.
pub(super) struct BundleWriter {
    /// Finished pieces of the text, of which large resources are not copied.
    pieces: Vec<Bytes>,
    text: Vec<u8>,
    has_entries: bool,
    ahead: Vec<u8>,
}

impl BundleWriter {
    /// Begins a Bundle of a type.
    pub fn new(kind: &str) -> Self {
        let text = format!("{{\"resourceType\":\"Bundle\",\"type\":\"{kind}\"").into_bytes();
        Self { pieces: Vec::new(), text, has_entries: false, ahead: Vec::new() }
    }

    /// Writes a member of the Bundle.
    pub fn member(&mut self, name: &str, value: &impl serde::Serialize) {
        write_member(&mut self.text, name, value);
    }

    /// Adds a member to the next entry.
    pub fn member_of_next(&mut self, name: &str, value: &impl serde::Serialize) {
        write_member(&mut self.ahead, name, value);
    }

    /// Writes an entry with remarks of the server about the search.
    pub fn outcome(&mut self, outcome: &OperationOutcome) {
        let start: &[u8] = if self.has_entries { b"," } else { b",\"entry\":[" };
        self.has_entries = true;
        let entry = json!({ "resource": outcome, "search": { "mode": "outcome" } });
        self.text.extend_from_slice(start);
        self.text.extend_from_slice(entry.to_string().as_bytes());
    }

    /// Writes an entry. All members of the Bundle precede its entries.
    pub fn entry(
        &mut self,
        address: &str,
        resource: Option<Bytes>,
        name: &str,
        value: &impl serde::Serialize,
    ) {
        let start: &[u8] = if self.has_entries { b",{\"fullUrl\":" } else { b",\"entry\":[{\"fullUrl\":" };
        self.has_entries = true;
        self.text.extend_from_slice(start);
        serde_json::to_writer(&mut self.text, address).expect("a text serialises to JSON");
        if let Some(resource) = resource {
            self.text.extend_from_slice(b",\"resource\":");
            if resource.len() < OWN_PIECE {
                self.text.extend_from_slice(&resource);
            } else {
                self.pieces.push(std::mem::take(&mut self.text).into());
                self.pieces.push(resource);
            }
        }
        self.text.append(&mut self.ahead);
        write_member(&mut self.text, name, value);
        self.text.push(b'}');
    }

    pub fn answer(mut self, memory: AnswerMemory) -> Response {
        self.text.extend_from_slice(if self.has_entries { b"]}" } else { b"}" });
        self.pieces.push(self.text.into());
        reply::no_store(memory.respond(reply::FHIR_JSON, self.pieces))
    }
}

fn write_member(text: &mut Vec<u8>, name: &str, value: &impl serde::Serialize) {
    text.extend_from_slice(format!(",\"{name}\":").as_bytes());
    serde_json::to_writer(text, value).expect("these values serialise to JSON");
}
