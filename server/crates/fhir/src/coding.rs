//! Coding and CodeableConcept (FHIR R4, datatypes).

use serde::Deserialize;

use crate::json::{Json, Object, serialize};

/// A code in a code system. Members that we do not use are ignored when read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Coding {
    /// Canonical URL of the code system.
    pub system: Option<String>,
    /// Version of the code system.
    pub version: Option<String>,
    /// The code itself.
    pub code: Option<String>,
    /// Text for people.
    pub display: Option<String>,
    /// Was this coding chosen by a person?
    pub user_selected: Option<bool>,
}

impl Coding {
    /// A coding of a system and a code.
    pub fn new(system: impl Into<String>, code: impl Into<String>) -> Self {
        Self { system: Some(system.into()), code: Some(code.into()), ..Self::default() }
    }
}

/// Several codings of one concept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct CodeableConcept {
    /// The codings, in the order given.
    #[serde(default)]
    pub coding: Vec<Coding>,
    /// Plain text.
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
