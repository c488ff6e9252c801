//! Changes to the stored resources, and the report of an invalid stored resource.

use bytes::Bytes;

use super::CompiledResource as _;
use crate::code_system::{CodeSystem, CodeSystemIndex};
use crate::concept_map::ConceptMap;
use crate::model::canonical;
use crate::model::resource_json::ResourceHeader;
use crate::value_set::{IncludeRule, ValueSet};

/// One change of the stored terminology.
#[derive(Debug, Clone)]
pub enum TerminologyChange {
    /// A resource was created or replaced.
    Put {
        /// Resource type. Types other than `CodeSystem`, `ValueSet` and `StructureDefinition` are ignored.
        kind: &'static str,
        /// Resource id.
        id: String,
        /// The resource as JSON.
        bytes: Bytes,
    },
    /// A code system was stored in the form of an existing index.
    Index {
        /// Id of the resource that the index was built from, or an id chosen by the importer.
        id: String,
        /// Index of the code system.
        index: CodeSystemIndex,
    },
    /// A resource was deleted.
    Delete {
        /// Resource type.
        kind: &'static str,
        /// Resource id.
        id: String,
    },
}

/// Begin of the ids of releases in the catalog. An id of FHIR contains no colon, so that a release and the
/// CodeSystem resource that describes it can have the same id.
const RELEASE: &str = "release:";

/// The id of a release in the catalog.
pub(super) fn release_key(id: &str) -> String {
    format!("{RELEASE}{id}")
}

impl TerminologyChange {
    /// Returns the change that adds a release of a code system, or replaces it.
    pub fn release(id: &str, index: CodeSystemIndex) -> Self {
        Self::Index { id: release_key(id), index }
    }

    /// Returns the change that removes a release of a code system.
    pub fn release_removed(id: &str) -> Self {
        Self::Delete { kind: CodeSystem::KIND, id: release_key(id) }
    }
}

/// A stored resource that is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceProblem {
    /// Resource type.
    pub kind: &'static str,
    /// Resource id.
    pub id: String,
    /// Reason why the resource is invalid.
    pub reason: String,
}

/// Returns the faults of a resource that restrict its use in terminology, in words: why it cannot be used at
/// all, a cycle in the hierarchy of a CodeSystem, and what [`CodeSystemIndex::faults`] describes. Resources
/// of other types have none.
pub fn resource_faults(kind: &str, json: &[u8]) -> Vec<String> {
    let header = || serde_json::from_slice::<ResourceHeader>(json).map_err(|error| error.to_string());
    let compiled = match kind {
        CodeSystem::KIND => {
            return match CodeSystemIndex::from_resource(json) {
                Ok(index) => {
                    let cycle = index
                        .cycle()
                        .map(|codes| format!("the hierarchy has a cycle: {}", codes.join(" > ")));
                    cycle.into_iter().chain(index.faults().iter().cloned()).collect()
                }
                Err(reason) => vec![reason],
            };
        }
        ValueSet::KIND => header().and_then(|header| ValueSet::compile(&header, json)).map(drop),
        ConceptMap::KIND => ConceptMap::compile(json).map(drop),
        _ => Ok(()),
    };
    compiled.err().into_iter().collect()
}

/// Returns whether a ValueSet resource names this version of a code system, also by a pattern such as `2.x`,
/// so that it changes if the version is removed. A resource that cannot be read names none.
pub fn pins_version(value_set: &[u8], url: &str, version: &str) -> bool {
    let header = serde_json::from_slice::<ResourceHeader>(value_set).ok();
    let compiled = header.and_then(|header| ValueSet::compile(&header, value_set).ok());
    let is_pin = |rule: &IncludeRule| {
        let version_of_rule = rule.version.as_deref().filter(|version_text| *version_text != "*");
        rule.system.as_deref() == Some(url)
            && version_of_rule.is_some_and(|rule_version| canonical::matches(rule_version, version))
    };
    compiled.is_some_and(|set| set.compose.rules().any(is_pin))
}
