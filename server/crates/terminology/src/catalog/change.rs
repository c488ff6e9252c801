//! Changes to the stored resources, and the report of an invalid stored resource.

use bytes::Bytes;

use crate::code_system::CodeSystemIndex;

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

/// A stored resource that is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceProblem {
    /// Resource type.
    pub kind: &'static str,
    /// Resource id.
    pub id: String,
    /// Reason why the resource is invalid.
    pub why: String,
}
