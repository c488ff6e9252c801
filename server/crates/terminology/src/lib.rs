//! FHIR R4 terminology over immutable, in-memory indexes: `$validate-code` of value sets and of code systems,
//! `$batch-validate-code`, `$subsumes`, `$lookup`, `$expand`, `$translate` and `$closure`. No HTTP, no async,
//! no IO.
//!
//! The modules are layers: each one uses only those above it in this table.
//!
//! | module | contents |
//! |---|---|
//! | `model` | canonical URLs and versions, languages, errors, the budget of a request, the JSON of resources |
//! | `interface` | one row for each operation and each parameter, and the typed access to a request by these rows |
//! | `grammar` | codes that follow a grammar: language tags, media types, units |
//! | `code_system` | the index of one code system: codes, columns, hierarchy, word index; its builder and its file |
//! | `expression` | post-coordinated expressions of SNOMED CT: syntax, classification, normal form |
//! | `concept_map` | one compiled concept map, in which codes of both sides are looked up |
//! | `value_set` | one compiled value set: includes, filters, expression constraints, implicit value sets |
//! | `catalog` | the stored and built-in resources by id and canonical URL, and the resources of a request |
//! | `membership` | the search for one code in a value set, and the list of all its codes |
//! | `ops` | the operations, their messages, and the service [`Terminology`] |
//!
//! Testing a code does not expand the value set. A resource is compiled on first use. Each request is
//! answered from one catalog, even if the stored resources change in the meantime.
//!
//! ```
//! use fhir::Parameters;
//! use trefoil_terminology::{
//!     OperationInput, OperationLevel, Terminology, TerminologyChange, TerminologyOperation,
//! };
//!
//! let colours = r#"{"resourceType":"CodeSystem","id":"colours","url":"urn:colours","status":"active",
//!     "content":"complete","concept":[{"code":"red","concept":[{"code":"crimson"}]}]}"#;
//! let terminology = Terminology::default();
//! terminology.apply([TerminologyChange::Put { kind: "CodeSystem", id: "colours".into(), bytes: colours.into() }]);
//!
//! let query = Parameters::from_query("codeA=red&codeB=crimson");
//! let (operation, level) = (TerminologyOperation::Subsumes, OperationLevel::Instance("colours"));
//! let answer = terminology.run(operation, level, OperationInput::from_query(&query), "2026-01-01T00:00:00Z");
//! let answer = answer.unwrap().into_parameters().unwrap();
//! assert_eq!(answer.text("outcome"), Some("subsumes"));
//! ```

mod catalog;
mod code_system;
mod concept_map;
mod expression;
mod grammar;
mod interface;
mod membership;
mod model;
mod ops;
mod value_set;

pub use self::model::filter_fault::FilterFault;
pub use catalog::{
    ConceptModelMode, PreferredVersions, ResourceProblem, TerminologyChange, pins_version, resource_faults,
};
pub use code_system::{CodeSystemIndex, IndexDescription, Subsumption};
pub use interface::operations::{OperationMethods, OperationRow};
pub use interface::{
    OperationInput, OperationLevel, ParsedParameters, ReceivedFault, ReceivedParameters,
    TerminologyOperation, parameters,
};
pub use model::budget::{Budget, BudgetCheck, BudgetExhausted, ExhaustionCause};
pub use model::dialects::SnomedDialects;
pub use model::error::{TxError, Unprocessable};
pub use model::language::MAX_LANGUAGES;
pub use ops::closure::{ClosureRequest, ClosureTable, MAX_CLOSURE_CODES};
pub use ops::expand::MAX_EXPANSION_CODES;
pub use ops::service::{OperationAnswer, Terminology};
pub use ops::validate::batch::MAX_BATCH_ITEMS;
pub use value_set::{MAX_FILTERS, MAX_PATTERNS};

/// Building blocks for importers: [`IndexBuilder`](indexing::IndexBuilder) takes the concepts of a code
/// system and returns its index.
pub mod indexing {
    pub use super::code_system::concept_designation::ConceptDesignation;
    pub use super::code_system::description_facts::DescriptionFacts;
    pub use crate::code_system::index_builder::{ConceptNumber, IndexBuilder};
    pub use crate::code_system::member_columns::MemberFacts;
    pub use crate::model::canonical::compare as compare_versions;
    pub use crate::model::known_systems::{
        LOINC, SNOMED_CT, SNOMED_CT_DEFINITION, SNOMED_CT_NAME, SNOMED_CT_SYNONYM, SNOMED_CT_UNPUBLISHED,
    };
    pub use crate::model::resource_json::{
        ContentMode, HeaderExtensions, HierarchyMeaning, PropertyDefinition, ResourceHeader,
    };
}
