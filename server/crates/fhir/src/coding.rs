//! The data types Coding and CodeableConcept (FHIR R4, datatypes).

use serde::Deserialize;

use crate::json::{Json, Object, serialize};

/// A code in a code system. Members that this type does not have are ignored when it is parsed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Coding {
    /// Canonical URL of the code system.
    pub system: Option<String>,
    /// Version of the code system.
    pub version: Option<String>,
    /// The code.
    pub code: Option<String>,
    /// Display text of the code.
    pub display: Option<String>,
    /// `true` if a person selected this coding.
    pub user_selected: Option<bool>,
}

impl Coding {
    /// Creates a coding from a system and a code.
    pub fn new(system: impl Into<String>, code: impl Into<String>) -> Self {
        Self { system: Some(system.into()), code: Some(code.into()), ..Self::default() }
    }
}

/// A concept, given by several codings or by text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct CodeableConcept {
    /// The codings in the order of the JSON array.
    #[serde(default)]
    pub coding: Vec<Coding>,
    /// The concept as plain text.
    pub text: Option<String>,
}

impl Json for Coding {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        object.text("system", self.system.as_deref());
        object.text("version", self.version.as_deref());
        object.text("code", self.code.as_deref());
        object.text("display", self.display.as_deref());
        object.boolean("userSelected", self.user_selected);
        object.end();
    }
}

impl Json for CodeableConcept {
    fn write(&self, out: &mut Vec<u8>) {
        let mut object = Object::begin(out);
        object.list("coding", &self.coding);
        object.text("text", self.text.as_deref());
        object.end();
    }
}

serialize!(Coding, CodeableConcept);
