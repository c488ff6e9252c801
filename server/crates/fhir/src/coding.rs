//! Coding and CodeableConcept (FHIR R4, datatypes).

use serde::{Deserialize, Serialize};

/// A code in a code system. Members that we do not use are ignored when read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Coding {
    /// Canonical URL of the code system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// Version of the code system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The code itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Text for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub display: Option<String>,
    /// Was this coding chosen by a person?
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_selected: Option<bool>,
}

impl Coding {
    /// A coding of a system and a code.
    pub fn new(system: impl Into<String>, code: impl Into<String>) -> Self {
        Self { system: Some(system.into()), code: Some(code.into()), ..Self::default() }
    }
}

/// Several codings of one concept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeableConcept {
    /// The codings, in the order given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub coding: Vec<Coding>,
    /// Plain text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}
